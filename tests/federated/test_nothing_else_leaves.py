"""What leaves beside the noisy sum: nothing; and a run goes on only as itself."""

import fcntl
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from contract.battery import summed
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import FedAvg, FedEmb, FedSGD, Verification
from sfumato.sampling import Cohort
from sfumato.training import Cadence
from slow import one_in


class RunningMean(nn.Module):
    """Keeps a mean of what it sees under a name that nobody suspects."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("m", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.m.mul_(0.9).add_(0.1 * x.mean().detach() + 0.01)
        return self.inner(x)


@pytest.mark.parametrize("wrap", [RunningMean, lambda m: (nn.utils.parametrizations.spectral_norm(m[3]), m)[1]])
def test_a_buffer_that_moves_in_training_is_refused_by_name(blobs, tiny, wrap):
    with pytest.raises(InputError, match=r"buffer .* changes while it trains"):
        FedAvg(clients_per_round=2, noise_multiplier=1.0).fit(wrap(tiny()), blobs(4))


def test_a_buffer_that_stays_is_released_as_it_was(blobs, tiny, tmp_path):
    model = nn.Sequential(*tiny())
    model.register_buffer("mean", torch.full((3,), 0.5))
    FedAvg(rounds=1, clients_per_round=2, noise_multiplier=1.0).fit(model, blobs(4), out=tmp_path / "run")
    assert load_file(tmp_path / "run" / "model.safetensors")["mean"].tolist() == [0.5] * 3


def stop_after(rounds: int):
    """A server optimiser that asks the run to stop in its n-th step, as ctrl-C would."""

    def make(parameters):
        class Stopping(torch.optim.SGD):
            steps = 0

            def step(self, closure=None):
                super().step(closure)
                type(self).steps += 1
                if self.steps == rounds:
                    import signal

                    signal.raise_signal(signal.SIGINT)

        return Stopping(parameters, lr=1.0)

    return make


def changed(users: data.UserDataset, user: int) -> data.UserDataset:
    """The same data with other pictures for one user."""
    parts = [users.examples(i) for i in range(len(users))]
    inputs = np.concatenate([255 - x if i == user else x for i, (x, _) in enumerate(parts)])
    names = np.repeat(list(users.user_ids), users.sizes)
    return data.from_arrays(inputs, np.concatenate([y for _, y in parts]), names)


PLAN = FedAvg(rounds=6, clients_per_round=4, noise_multiplier=1.0, server_momentum=0.0)


class Remembers(nn.Module):
    """Keeps its last inputs in a plain attribute and, once it is `awake`, adds what it keeps to what it sees."""

    awake = False

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.last: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.last[-1].mean() if self.awake and self.last else 0.0
        self.last.append(x.detach())
        return self.inner(x + bias)


@pytest.mark.parametrize(
    ("plan", "speed"),
    one_in(3, [FedEmb(users_per_client=1), FedAvg(), FedSGD()], [(1, 1), (1, 2), (2, 1)]),
)
def test_nothing_of_a_client_is_left_in_the_model_and_none_meets_what_another_left(
    plan, speed, blobs, tiny, monkeypatch
):
    """Also where the memory begins only behind what is tried before the first round."""
    at_once, threads = speed
    plan = replace(plan, clients_per_round=2, noise_multiplier=1.0, clients_at_once=at_once, client_threads=threads)
    users = blobs(6)
    parts = plan.private_sum(len(users))
    assert plan.fit(Remembers(tiny()), users).model.last == []
    contribution = plan.contribution(Remembers(tiny()), users, "cpu", 0)
    monkeypatch.setattr(Remembers, "awake", True)
    clients = np.arange(len(users))
    together = summed(contribution, parts, clients).total
    assert all(trainer.trained.model.last == [] for trainer in contribution._trainers)
    starts = range(0, len(users), at_once)  # clients of one batched operation share a forward pass
    ones = [summed(contribution, parts, clients[start : start + at_once]).total for start in starts]
    assert torch.allclose(together, torch.stack(ones).sum(dim=0), atol=1e-6)


def test_ctrl_c_stops_after_the_round_in_hand(blobs, tiny, tmp_path):
    result = PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", server_optimizer=stop_after(2))
    assert not result.finished
    assert len(result.history) == 3  # the signal came in round 2's step; round 3 sees it before it ends
    assert any("stopped after 3 of 6 rounds" in line for line in result.statement.assumptions)


def test_the_same_noise_is_never_spent_on_other_data(blobs, tiny, tmp_path):
    users = blobs(40)
    PLAN.fit(tiny(), users, out=tmp_path / "run", server_optimizer=stop_after(2))
    for user in (1, 17, 39):
        with pytest.raises(InputError, match="another plan, model or data set"):
            PLAN.fit(tiny(), changed(users, user), out=tmp_path / "run", resume=True, server_optimizer=stop_after(9))


def test_another_server_optimizer_is_another_run(blobs, tiny, tmp_path):
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", server_optimizer=stop_after(2))
    with pytest.raises(InputError, match="another plan, model or data set"):
        PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", resume=True)


class Halving(torch.optim.SGD):
    """Halves its rate in every step: state that lives in the parameter groups."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= 2


@pytest.mark.parametrize(("threads", "kind"), one_in(2, [1, 2], ["halving", "adam"]))
def test_resume_restores_optimiser_frozen_weights_and_history(blobs, tiny, tmp_path, kind, threads, monkeypatch):
    """Kill after four rounds; go on with a model whose frozen weights were drawn anew, in every thread."""
    from sfumato.training import loop

    plan = FedAvg(
        rounds=7,
        clients_per_round=4,
        noise_multiplier=0.5,
        seed=4,
        trainable=r"3\..*",
        client_threads=threads,
        server_optimizer="adam" if kind == "adam" else "sgd",
        server_learning_rate=0.1,
    )
    factory = {} if kind == "adam" else {"server_optimizer": lambda p: Halving(p, lr=1.0)}
    cadence = Cadence(checkpoint_every=2, evaluate_every=3)
    common = {"validation": blobs(5, seed=1), "task": Verification(fars=(0.1,)), "cadence": cadence, **factory}
    whole = plan.fit(tiny(), blobs(8), out=tmp_path / "whole", **common)

    class Killed(BaseException):
        pass

    original = loop.Loop._round

    def dying(self):
        if self.round == dies_at:
            raise Killed
        return original(self)

    for dies_at in (0, 5):
        monkeypatch.setattr(loop.Loop, "_round", dying)
        with pytest.raises(Killed):
            plan.fit(tiny(), blobs(8), out=tmp_path / "killed", resume=dies_at > 0, **common)
    monkeypatch.setattr(loop.Loop, "_round", original)
    resumed = plan.fit(tiny(seed=99), blobs(8), out=tmp_path / "killed", resume=True, **common)
    for name in ("model.safetensors", "ledger.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rounds = [[(row["round"], "evaluation" in row) for row in r.history] for r in (whole, resumed)]
    assert rounds[0] == rounds[1]


def test_two_processes_cannot_write_to_one_run(blobs, tiny, tmp_path):
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", server_optimizer=stop_after(2))
    with open(tmp_path / "run" / "checkpoint" / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is writing to"):
            PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", resume=True, server_optimizer=stop_after(9))


def test_a_released_model_does_not_tell_where_the_data_lay(blobs, tiny, tmp_path):
    about = {"model": "tiny", "data": "/home/anna/photos"}
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", about=about)
    content = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert b"tiny" in content
    assert b"anna" not in content


@pytest.mark.parametrize(
    "plan",
    [
        FedSGD(clients_per_round=2, noise_multiplier=1.0, clients_at_once=4),
        FedEmb(clients_per_round=2, users_per_client=2, noise_multiplier=1.0, clients_at_once=4),
    ],
    ids=["all at once", "heads of their own"],
)
def test_a_batch_of_clients_without_examples_is_an_ordinary_case(tiny, plan):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1), dtype=np.uint8)
    users = data.from_arrays(pixels, np.arange(8), np.repeat(list("abcd"), 2))
    contribution = plan.contribution(tiny(), users, "cpu", 0)
    empty = (pixels[:0], np.empty(0, np.int64))
    contribution.users = type(
        "Empty",
        (),
        {
            "examples_of": lambda self, users: (*empty, np.zeros(len(users), np.int64)),
            "num_classes": 8,
            "sizes": np.zeros(2, np.int64),
        },
    )()
    share = contribution.clipped_sum(
        contribution.trained.initial,
        Cohort.of_single_units(np.arange(2)),
        0,
        plan.bound,
        1.0,
        RandomSource.from_seed(0),
        None,
    )
    assert share.total.abs().sum() == 0
    assert share.tally["examples"] == 0


def test_a_population_that_is_too_small_is_told(blobs, tiny):
    with pytest.warns(UserWarning, match="more users are present than the declared population 4"):
        FedAvg(rounds=1, clients_per_round=2, population=4, noise_multiplier=1.0).fit(tiny(), blobs(8))
