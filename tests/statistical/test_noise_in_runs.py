"""What a run releases has the noise that its ledger records. Seeds are fixed; false alarms are below 1e-6."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from sfumato.federated import FedAvg, FedEmb


def released_vector(folder) -> np.ndarray:
    """All trained tensors of a run, as one vector."""
    tensors = load_file(folder / "model.safetensors")
    return torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)]).numpy()


def ledger_of(folder) -> list[dict]:
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "event" in entry]


def std_is(samples: np.ndarray, std: float) -> bool:
    """Chi-square test of the std of normal samples at level 1e-6, and of the shape."""
    statistic = (samples**2).sum() / std**2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], samples.size)
    return low < statistic < high and stats.kstest(samples / std, "norm").pvalue > 1e-6


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clipping": "per_layer"},
        {"clipping": "automatic"},
        {"clipping": "adaptive", "adaptive_clip_count_noise": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("users_per_client", [1, 2])
def test_the_noise_in_the_released_sum_has_the_std_in_the_ledger(blobs, tiny, tmp_path, changes, users_per_client):
    """Two runs with the same seed, with and without noise, differ by the noise alone."""
    users, model = blobs(12), tiny()
    fields = {
        "rounds": 1,
        "clients_per_round": 4,
        "users_per_client": users_per_client,
        "server_learning_rate": 1.0,
        "server_momentum": 0.0,
        "local_epochs": 1,
        "seed": 7,
        "clip_norm": 0.01,
    }
    for z, name in ((1.3, "noisy"), (0.0, "plain")):
        FedEmb(noise_multiplier=z, **fields, **changes).fit(model, users, out=tmp_path / name)
    noise = (released_vector(tmp_path / "plain") - released_vector(tmp_path / "noisy")) * 4
    entry = ledger_of(tmp_path / "noisy")[0]
    assert std_is(noise, entry["noise_std"])
    assert not std_is(noise, entry["noise_std"] * 1.3)  # the test can tell


def test_an_empty_cohort_releases_pure_noise_and_takes_a_step(blobs, tiny, tmp_path):
    users, model = blobs(4), tiny()
    plan = FedAvg(
        rounds=3,
        clients_per_round=2,
        population=10**9,  # so rare that nobody takes part
        noise_multiplier=0.8,
        clip_norm=0.5,
        server_learning_rate=1.0,
        server_momentum=0.0,
        seed=1,
    )
    result = plan.fit(model, users, out=tmp_path / "run")
    assert [row["not_private"]["units"] for row in result.history] == [0, 0, 0]
    before = torch.cat([p.detach().reshape(-1).double() for p in model.parameters()]).numpy()
    after = torch.cat([p.detach().reshape(-1).double() for p in result.model.parameters()]).numpy()
    stds = [entry["noise_std"] for entry in ledger_of(tmp_path / "run")]
    assert std_is((after - before) * 2, float(np.sqrt(np.sum(np.square(stds)))))


def test_rounds_do_not_share_their_noise(blobs, tiny):
    users, model = blobs(4), tiny()
    common = {
        "clients_per_round": 2,
        "population": 10**9,
        "noise_multiplier": 1.0,
        "clip_norm": 1.0,
        "server_learning_rate": 1.0,
        "server_momentum": 0.0,
        "seed": 5,
    }

    def vector(rounds: int) -> np.ndarray:
        trained = FedAvg(rounds=rounds, **common).fit(model, users).model
        return torch.cat([p.detach().reshape(-1).double() for p in trained.parameters()]).numpy()

    one, two, three = vector(1), vector(2), vector(3)
    correlation = np.corrcoef(two - one, three - two)[0, 1]
    assert abs(correlation) < 5 / np.sqrt(one.size)


def test_cohorts_of_a_run_appear_at_the_accounted_rate(blobs, tiny):
    plan = FedAvg(rounds=300, clients_per_round=3, noise_multiplier=1.0, seed=2, local_epochs=1, max_examples=1)
    users = blobs(15)
    result = plan.fit(tiny(), users)
    units = sum(row["not_private"]["units"] for row in result.history)
    rate = plan.private_sum(15).event(1).sampling_rate
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 300 * 15, rate)
    assert low <= units <= high


def test_two_released_runs_share_nothing(blobs, tiny):
    plan = FedAvg(rounds=1, clients_per_round=2, population=10**9, noise_multiplier=1.0)
    first, second = (plan.fit(tiny(), blobs(4)) for _ in range(2))
    assert "operating system" in first.statement.noise_source
    weights = [next(iter(result.model.parameters())) for result in (first, second)]
    assert not torch.equal(*weights)
