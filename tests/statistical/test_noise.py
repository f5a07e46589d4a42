"""The noise of mechanisms and of whole runs has the distribution that is accounted."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch import nn

from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import examples_from_arrays
from sfumato.federated import FedAvg, FedEmb
from sfumato.mechanisms import BISR, BLT, Banded, Tree
from sfumato.mechanisms.correlated import Correlated

# The covariance of noise that is correlated over rounds, against matrices that are written out.

ROUNDS, DRAWS = 11, 200_000


def released_noise(kind: Correlated, dtype: torch.dtype = torch.float64) -> np.ndarray:
    mechanism = replace(kind, noise_multiplier=0.5, rounds=ROUNDS)
    source = RandomSource.from_os()
    zeros = torch.zeros(DRAWS, dtype=dtype)
    return np.stack(
        [mechanism.release(zeros.clone(), scale=2.0, round=round, source=source).numpy() for round in range(ROUNDS)]
    )


def toeplitz(column: np.ndarray) -> np.ndarray:
    return np.array([[column[t - j] if t >= j else 0.0 for j in range(ROUNDS)] for t in range(ROUNDS)])


def tree_rows(strategy: Tree) -> np.ndarray:
    """Residuals as weights on the noise of all nodes: each block's estimate is the best one from the nodes inside it,
    by generalised least squares, not by the recursion that the code uses."""
    size = strategy.restart or ROUNDS
    nodes = [
        (tree, height, index)
        for tree in range(-(-ROUNDS // size))
        for height in range(6)
        for index in range(-(-size // 2**height))
    ]
    column = {node: i for i, node in enumerate(nodes)}

    def estimate(tree: int, height: int, index: int, real: int) -> np.ndarray:
        """Of the sum of a block, of whose rounds the first `real` of the tree are not empty."""
        weights = np.zeros(len(nodes))
        if strategy.estimator == "plain":
            weights[column[tree, height, index]] = 1.0
            return weights
        first = index << height
        leaves = range(first, min(first + 2**height, real))
        inside = [
            (h, i)
            for h in range(height + 1)
            for i in range(index << height - h, index + 1 << height - h)
            if i << h < real
        ]
        design = np.array([[float(i << h <= leaf < (i + 1) << h) for leaf in leaves] for h, i in inside])
        target = np.linalg.solve(design.T @ design, np.ones(len(leaves)))  # noise of all nodes is equal
        for (h, i), weight in zip(inside, design @ target, strict=True):
            weights[column[tree, h, i]] = weight
        return weights

    prefixes, anchor = [], np.zeros(len(nodes))
    for round in range(ROUNDS):
        tree, done = divmod(round, size)
        done += 1
        if done == 1 and round:
            anchor = prefixes[-1]
        last = done == size and round < ROUNDS - 1
        if strategy.completion and last:
            prefixes.append(anchor + estimate(tree, (size - 1).bit_length(), 0, size))
            continue
        start, noise = 0, anchor.copy()
        for height in reversed(range(done.bit_length())):
            if done >> height & 1:
                noise += estimate(tree, height, start >> height, size)
                start += 1 << height
        prefixes.append(noise)
    return np.diff(np.array(prefixes), axis=0, prepend=np.zeros((1, len(nodes))))


def buffers() -> np.ndarray:
    late = 0.4 * 0.9 ** np.arange(ROUNDS) + 0.2 * 0.3 ** np.arange(ROUNDS)
    return np.linalg.inv(toeplitz(np.array([1.0, *late])))


SCALES = 1.0 + 0.2 * np.arange(ROUNDS)
CASES = {
    "banded": (
        Banded(coefficients=(1.0, 0.5, 0.3)),
        np.linalg.inv(toeplitz(np.array([1.0, 0.5, 0.3] + [0.0] * ROUNDS))),
    ),
    "scaled": (
        Banded(coefficients=(1.0, 0.5), column_scales=tuple(SCALES.tolist())),
        np.linalg.inv(toeplitz(np.array([1.0, 0.5] + [0.0] * ROUNDS)) @ np.diag(SCALES)),
    ),
    "blt": (BLT(coefficients=(0.4, 0.2, 0.9, 0.3)), buffers()),
    "bisr": (BISR(coefficients=(1.0, -0.5, -0.125)), toeplitz(np.array([1.0, -0.5, -0.125] + [0.0] * ROUNDS))),
    **{
        f"tree {strategy}": (strategy, tree_rows(strategy))
        for strategy in (
            Tree(estimator="plain"),
            Tree(estimator="efficient"),
            Tree(estimator="plain", restart=4),
            Tree(estimator="efficient", restart=5),
            Tree(estimator="plain", restart=5, completion=True),
            Tree(estimator="efficient", restart=3, completion=True),
        )
    },
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_the_covariance_over_rounds_is_that_of_the_matrix(name: str, dtype: torch.dtype):
    strategy, rows = CASES[name]
    expected = rows @ rows.T
    noise = released_noise(strategy, dtype).astype(np.float64)
    found = noise @ noise.T / DRAWS
    # The std of an entry is √((Σ_ii Σ_jj + Σ_ij²) / draws). Fresh randomness: 66 entries beyond 6.5 std in 1 of 10^8.
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / DRAWS)
    assert (np.abs(found - expected) / spread).max() < 6.5


@pytest.mark.parametrize("name", CASES)
def test_the_variance_of_prefix_sums_is_what_the_strategy_predicts(name: str):
    strategy, rows = CASES[name]
    sums = np.cumsum(rows, axis=0)
    np.testing.assert_allclose(
        replace(strategy, rounds=ROUNDS).prefix_variance(ROUNDS), (sums**2).sum(axis=1), rtol=1e-9
    )


# What a DP-SGD run releases has the noise that its ledger records. Seeds are fixed; false alarms are below 1e-6.

FIELDS = {
    "steps": 1,
    "cohort.size": 8,
    "server.learning_rate": 1.0,
    "clipping.norm": 0.05,
    "seed": 7,
    "examples.micro_batch": 5,
}


def examples():
    rng = np.random.default_rng(0)
    return examples_from_arrays(
        rng.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8), rng.integers(0, 3, 40), num_classes=3
    )


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16), nn.Linear(16, 3))


def released(folder) -> np.ndarray:
    tensors = load_file(folder / "model.safetensors")
    return torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)]).numpy()


def std_is(samples: np.ndarray, std: float) -> bool:
    """Chi-square test of the std of normal samples at level 1e-6, and of the shape."""
    statistic = (samples**2).sum() / std**2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], samples.size)
    return low < statistic < high and stats.kstest(samples / std, "norm").pvalue > 1e-6


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic", "adaptive"])
def test_the_noise_in_the_released_step_has_the_std_in_the_ledger(tmp_path, clipping):
    """Two runs with the same seed, with and without noise, differ by the noise alone, drawn once for all pieces."""
    for z, name in ((1.3, "noisy"), (0.0, "plain")):
        DPSGD(noise=z, clipping=clipping, **FIELDS).fit(network(), examples(), out=tmp_path / name)
    noise = (released(tmp_path / "plain") - released(tmp_path / "noisy")) * 8
    entry = json.loads((tmp_path / "noisy" / "ledger.jsonl").read_text().splitlines()[0])
    assert std_is(noise, entry["noise_std"])
    assert not std_is(noise, entry["noise_std"] * 1.1)  # the test can tell


def test_batches_of_a_run_appear_at_the_accounted_rate():
    plan = DPSGD(noise=1.0, **{**FIELDS, "steps": 300})
    result = plan.fit(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), examples())
    units = sum(row["not_private"]["units"] for row in result.history)
    rate = plan.private_sum(40).event(1).sampling_rate
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 300 * 40, rate)
    assert low <= units <= high


# What a run releases has the noise that its ledger records. Seeds are fixed; false alarms are below 1e-6.


def released_vector(folder) -> np.ndarray:
    """All trained tensors of a run, as one vector."""
    tensors = load_file(folder / "model.safetensors")
    return torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)]).numpy()


def ledger_of(folder) -> list[dict]:
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "event" in entry]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clipping": "per_layer"},
        {"clipping": "automatic"},
        {"clipping": "adaptive", "clipping.count_noise": 1.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("users_per_client", [1, 2])
def test_the_noise_in_the_released_sum_has_the_std_in_the_ledger(blobs, tiny, tmp_path, changes, users_per_client):
    """Two runs with the same seed, with and without noise, differ by the noise alone."""
    users, model = blobs(12), tiny()
    fields = {
        "rounds": 1,
        "cohort.size": 4,
        "cohort.users_per_client": users_per_client,
        "server.learning_rate": 1.0,
        "server.momentum": 0.0,
        "client.epochs": 1,
        "seed": 7,
        "clipping.norm": 0.01,
    }
    for z, name in ((1.3, "noisy"), (0.0, "plain")):
        FedEmb(noise=z, **fields, **changes).fit(model, users, out=tmp_path / name)
    noise = (released_vector(tmp_path / "plain") - released_vector(tmp_path / "noisy")) * 4
    entry = ledger_of(tmp_path / "noisy")[0]
    assert std_is(noise, entry["noise_std"])
    assert not std_is(noise, entry["noise_std"] * 1.3)  # the test can tell


def test_an_empty_cohort_releases_pure_noise_and_takes_a_step(blobs, tiny, tmp_path):
    users, model = blobs(4), tiny()
    plan = FedAvg(
        rounds=3,
        cohort=2,
        population=10**9,
        noise=0.8,
        clipping=0.5,
        server={"learning_rate": 1.0, "momentum": 0.0},
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
        "cohort.size": 2,
        "population": 10**9,
        "noise.noise_multiplier": 1.0,
        "clipping.norm": 1.0,
        "server.learning_rate": 1.0,
        "server.momentum": 0.0,
        "seed": 5,
    }

    def vector(rounds: int) -> np.ndarray:
        trained = FedAvg(rounds=rounds, **common).fit(model, users).model
        return torch.cat([p.detach().reshape(-1).double() for p in trained.parameters()]).numpy()

    one, two, three = vector(1), vector(2), vector(3)
    correlation = np.corrcoef(two - one, three - two)[0, 1]
    assert abs(correlation) < 5 / np.sqrt(one.size)


def test_cohorts_of_a_run_appear_at_the_accounted_rate(blobs, tiny):
    plan = FedAvg(rounds=300, cohort=3, noise=1.0, seed=2, client={"epochs": 1, "max_examples": 1})
    users = blobs(15)
    result = plan.fit(tiny(), users)
    units = sum(row["not_private"]["units"] for row in result.history)
    rate = plan.private_sum(15).event(1).sampling_rate
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 300 * 15, rate)
    assert low <= units <= high


def test_two_released_runs_share_nothing(blobs, tiny):
    plan = FedAvg(rounds=1, cohort=2, population=10**9, noise=1.0)
    first, second = (plan.fit(tiny(), blobs(4)) for _ in range(2))
    assert "operating system" in first.statement.noise_source
    weights = [next(iter(result.model.parameters())) for result in (first, second)]
    assert not torch.equal(*weights)
