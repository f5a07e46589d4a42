"""One user moves the sum of deltas, and each part of it, by at most what is stated; nothing else leaves a client."""

import fcntl
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from contract.battery import summed
from fitting import fit_plan
from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import FedAvg, FedEmb, FedSGD, Verification
from sfumato.sampling import Cohort
from sfumato.training import RoundContext, RunOptions
from slow import by_profile, one_in, slow_but

# What one user can move, layer by layer; that it is at most the sensitivity is asked of every plan in contract/.


class Scores(nn.Module):
    """Embeddings that are the inputs, scaled: one client's delta can be as large as its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def users_of(seed: int, scale: float, count: int = 7) -> data.UserDataset:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, count)
    owners = np.repeat(np.arange(count), sizes)
    inputs = rng.normal(0, 1, (len(owners), 3)).astype(np.float32)
    inputs[owners == count - 1] *= scale  # the last user's records can be as wild as they like
    labels = rng.integers(0, 4, len(owners))
    labels[:4] = np.arange(4)
    return data.from_arrays(inputs, labels, np.array([f"u{o}" for o in owners]))


def moved(plan, users, seed: int) -> float:
    """By how much the sum moves without the last user."""
    torch.manual_seed(0)
    model = Scores()
    source = RandomSource.from_seed(seed)
    private_sum = plan.private_sum(len(users))
    sums = []
    present = np.arange(len(users))
    whole = plan.contribution(model, users, "cpu", 0)
    for cohort in (present, present[:-1]):
        groups = private_sum.grouping.group(cohort, 0, source)
        share = whole.clipped_sum(
            RoundContext(whole.trained.initial, groups, 0, plan.clipping, plan.clipping.norm, source)
        )
        sums.append(share.total)
    return (sums[0] - sums[1]).norm().item()


LOCAL = {
    "client.learning_rate": 0.5,
    "client.momentum": 0.5,
    "client.epochs": 2,
    "client.batch_size": 2,
    "noise.noise_multiplier": 1.0,
}


def test_inside_a_virtual_client_one_user_can_move_more_than_one_clip_norm():
    """So the paper's C would not be a bound for a user: 2C is needed."""
    plan, worst = FedEmb(cohort={"size": 2, "users_per_client": 3}, clipping=1e-3, **LOCAL), 0.0
    for seed in range(60):
        worst = max(worst, moved(plan, users_of(seed, 1e3), seed) / 1e-3)
    assert worst > 1.2


def alone(plan, scale: float = 1e3) -> list[torch.Tensor]:
    """What one wild client adds to the sum, layer by layer."""
    torch.manual_seed(0)
    contribution, source = plan.contribution(Scores(), users_of(1, scale), "cpu", 0), RandomSource.from_seed(0)
    cohort = plan.private_sum(7).grouping.group(np.array([6]), 0, source)
    theta = contribution.trained.initial
    share = contribution.clipped_sum(RoundContext(theta, cohort, 0, plan.clipping, plan.clipping.norm, source))
    assert share.tally["units"] == 1
    return contribution.trained.views(share.total)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("shares", [None, (3.0, 1.0), (1.0, 20.0)])
def test_one_wild_client_adds_at_most_the_bound_of_each_layer_to_that_layer(width, shares):
    plan = FedAvg(
        cohort=2, clipping={"norm": 0.1, "kind": "per_layer", "shares": shares}, client={"at_once": width}, **LOCAL
    )
    bounds = plan.clipping.bounds(2, 0.1)
    norms = [view.norm().item() for view in alone(plan)]
    assert all(norm <= bound for norm, bound in zip(norms, bounds, strict=True))
    assert norms == pytest.approx(bounds, rel=1e-3)  # the client is wild in both: no noise is wasted


def test_a_backbone_alone_has_all_of_the_bound_where_the_head_stays_with_its_client():
    plan = FedEmb(
        cohort={"size": 2, "users_per_client": 1},
        client={"head": {"classes": "global"}},
        clipping={"norm": 0.1, "kind": "per_layer"},
        **LOCAL,
    )
    (norm,) = (view.norm().item() for view in alone(plan))
    assert norm == pytest.approx(0.1, rel=1e-3)
    with pytest.raises(InputError, match="shares has 2 numbers but the model trains 1 layers"):
        alone(plan.replace(clipping={"shares": (1.0, 1.0)}))


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_automatic_clipping_brings_clients_to_one_length(scale):
    plan = FedAvg(cohort=2, clipping={"norm": 0.1, "kind": "automatic"}, **LOCAL)
    total = torch.cat([view.reshape(-1) for view in alone(plan, scale)])
    assert 0.09 < total.norm().item() < 0.1


@pytest.mark.parametrize(
    ("clipping", "told", "disclosed"),
    [
        ("flat", "clipped to norm 0.5", "clipped to a fixed public norm"),
        ("per_layer", "clipped layer by layer to norm 0.5 in all", "clipped to a fixed public norm in each layer"),
        ("automatic", "normalised to norm 0.5", "normalised to a fixed public norm"),
        ("adaptive", "clipped to an adaptive norm", "clipped to a public norm that follows a noisy count"),
    ],
)
def test_the_statement_reports_the_bound_that_ran(blobs, tiny, clipping, told, disclosed):
    plan = FedAvg(rounds=2, cohort=3, clipping={"norm": 0.5, "kind": clipping}, noise=1.0, seed=1)
    statement = plan.fit(tiny(), blobs(8)).statement
    assert f"of contributions {told}, noise multiplier 1" in statement.mechanism
    assert (", with a noisy count for the norm" in statement.mechanism) == (clipping == "adaptive")
    assert statement.disclosure["contribution"].startswith(f"Each contribution is {disclosed} in every round")
    flat = plan.replace(clipping="flat").fit(tiny(), blobs(8)).statement
    assert statement.epsilon == pytest.approx(flat.epsilon, rel=1e-6)


def test_shares_that_do_not_fit_the_model_leave_no_folder(blobs, tiny, tmp_path):
    plan = FedAvg(rounds=2, cohort=3, noise=1.0, clipping={"kind": "per_layer", "shares": (1.0, 2.0)})
    with pytest.raises(InputError, match="shares has 2 numbers but the model trains 3 layers"):
        plan.fit(tiny(), blobs(8), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Where a part of the network is trained, adapters, a projection, the last layers, one user moves no more of it.

SIDE, USERS = 6, 8
CLIP_NORM = 0.5


def backbone() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(24, 5)
    )


def adapted() -> nn.Module:
    model = backbone()
    models.add_lora(model, rank=2, layers="0|2|5", generator=torch.Generator().manual_seed(1))
    return model


ROUNDING = {1: 1e-9, 3: 1e-6, 32: 1e-6}
"""By how many clients share an operation: by what share of the bound rounding may move the sum, which is in single
precision there. The deltas of others stay as they are to the last bit, also where local training diverges."""

PARTS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "adapters": (adapted, "lora"),
    "adapters and norms": (adapted, "lora+norm"),
    "a projection": (lambda: models.add_projection(backbone(), 5, 3, hidden=4), "projection"),
    "the last layer": (backbone, "last"),
    "norms": (backbone, "norm"),
}


def people(seed: int, scale: float) -> data.UserDataset:
    """One class each, and pictures of any size for the last one."""
    random = np.random.default_rng(seed)
    owners = np.repeat(np.arange(USERS), random.integers(1, 5, USERS))
    inputs = random.normal(0, 1, (len(owners), 1, SIDE, SIDE)).astype(np.float32)
    inputs[owners == USERS - 1] *= np.float32(scale)
    return data.from_arrays(inputs, owners, [f"u{owner}" for owner in owners])


def public() -> data.UserDataset:
    inputs = np.random.default_rng(1).normal(0, 1, (24, 1, SIDE, SIDE)).astype(np.float32)
    return data.from_arrays(inputs, np.repeat(np.arange(6), 4), ["somebody"] * 24)


@pytest.mark.parametrize(("part", "together"), one_in(3, PARTS, ROUNDING))
@settings(deadline=None, max_examples=by_profile(3))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e4, 1e20, float("inf"), float("nan")]),
    users_per_client=st.sampled_from([1, 3]),
)
def test_one_user_moves_what_is_trained_by_at_most_the_sensitivity(part, together, seed, scale, users_per_client):
    build, trainable = PARTS[part]
    plan = FedEmb(
        rounds=2,
        cohort={"size": 2, "users_per_client": users_per_client},
        client={
            "negatives": 2 if users_per_client == 1 else 0,
            "loss": "cosine",
            "at_once": together,
            "learning_rate": 0.5,
            "epochs": 2,
            "batch_size": 2,
            "head": {"start": "means"},
        },
        trainable=trainable,
        clipping=CLIP_NORM,
        noise=1.0,
    )
    users, source = people(seed, scale), RandomSource.from_seed(seed)
    negatives = plan.with_negatives(public(), users) if plan.client.negatives else None
    contribution = plan.contribution(build(), users, "cpu", 0, negatives)
    private_sum, everybody = plan.private_sum(USERS), np.arange(USERS)
    frozen = contribution.trained.frozen()
    before = {name: tensor.clone() for name, tensor in frozen.items()}

    def total(present: np.ndarray) -> Tensor:
        cohort = private_sum.grouping.group(present, 0, source)
        theta = contribution.trained.initial
        return contribution.clipped_sum(RoundContext(theta, cohort, 0, plan.clipping, CLIP_NORM, source)).total.clone()

    whole, others = total(everybody), total(everybody[:-1])
    accounted = private_sum.relative_sensitivity * private_sum.scale(CLIP_NORM)
    assert accounted == CLIP_NORM * (1 if users_per_client == 1 else 2)
    assert (whole - others).norm() <= accounted * (1 + ROUNDING[together])
    assert others.norm() > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in contribution.trained.frozen().items())


# What leaves beside the noisy sum: nothing; and a run goes on only as itself.


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
        FedAvg(cohort=2, noise=1.0).fit(wrap(tiny()), blobs(4))


def test_a_buffer_that_stays_is_released_as_it_was(blobs, tiny, tmp_path):
    model = nn.Sequential(*tiny())
    model.register_buffer("mean", torch.full((3,), 0.5))
    FedAvg(rounds=1, cohort=2, noise=1.0).fit(model, blobs(4), out=tmp_path / "run")
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


PLAN = FedAvg(rounds=6, cohort=4, noise=1.0, server={"momentum": 0.0})


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
    one_in(3, [FedEmb(cohort={"users_per_client": 1}), FedAvg(), FedSGD()], [(1, 1), (1, 2), (2, 1)]),
)
def test_nothing_of_a_client_is_left_in_the_model_and_none_meets_what_another_left(
    plan, speed, blobs, tiny, monkeypatch
):
    """Also where the memory begins only behind what is tried before the first round."""
    at_once, threads = speed
    plan = plan.replace(rounds=3, cohort=2, noise=1.0, client={"at_once": at_once, "threads": threads})
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


def test_another_server_optimizer_is_another_run(blobs, tiny, tmp_path):
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", options=RunOptions(optimizer=stop_after(2)))
    with pytest.raises(InputError, match="another plan, model or data set"):
        PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", resume=True)


class Halving(torch.optim.SGD):
    """Halves its rate in every step: state that lives in the parameter groups."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            group["lr"] /= 2


@pytest.mark.parametrize(
    ("threads", "kind"), slow_but([(1, "halving"), (1, "adam"), (2, "halving"), (2, "adam")], (2, "halving"))
)
def test_resume_restores_optimiser_frozen_weights_and_history(blobs, tiny, tmp_path, kind, threads, monkeypatch):
    """Kill after four rounds; go on with a model whose frozen weights were drawn anew, in every thread."""
    from sfumato.training import loop

    plan = FedAvg(
        rounds=7,
        cohort=4,
        noise=0.5,
        seed=4,
        trainable=r"3\..*",
        client={"threads": threads},
        server={"name": "adam" if kind == "adam" else "sgd", "learning_rate": 0.1},
    )
    factory = {} if kind == "adam" else {"optimizer": lambda p: Halving(p, lr=1.0)}
    cadence = {"checkpoint_every": 2, "evaluate_every": 3}
    common = {"validation": blobs(5, seed=1), "task": Verification(fars=(0.1,)), **cadence, **factory}
    whole = fit_plan(plan, tiny(), blobs(8), out=tmp_path / "whole", **common)

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
            fit_plan(plan, tiny(), blobs(8), out=tmp_path / "killed", resume=dies_at > 0, **common)
    monkeypatch.setattr(loop.Loop, "_round", original)
    resumed = fit_plan(plan, tiny(seed=99), blobs(8), out=tmp_path / "killed", resume=True, **common)
    for name in ("model.safetensors", "ledger.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    rounds = [[(row["round"], "evaluation" in row) for row in r.history] for r in (whole, resumed)]
    assert rounds[0] == rounds[1]


def test_two_processes_cannot_write_to_one_run(blobs, tiny, tmp_path):
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", options=RunOptions(optimizer=stop_after(2)))
    with open(tmp_path / "run" / "checkpoint" / "lock", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process is writing to"):
            PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", resume=True, options=RunOptions(optimizer=stop_after(9)))


def test_a_released_model_does_not_report_where_the_data_lay(blobs, tiny, tmp_path):
    about = {"model": "tiny", "data": "/home/anna/photos"}
    PLAN.fit(tiny(), blobs(8), out=tmp_path / "run", options=RunOptions(about=about))
    content = (tmp_path / "run" / "model.safetensors").read_bytes()
    assert b"tiny" in content
    assert b"anna" not in content


@pytest.mark.parametrize(
    "plan",
    [
        FedSGD(cohort=2, noise=1.0, client={"at_once": 4}),
        FedEmb(cohort={"size": 2, "users_per_client": 2}, noise=1.0, client={"at_once": 4}),
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
        RoundContext(
            contribution.trained.initial,
            Cohort.of_single_units(np.arange(2)),
            0,
            plan.clipping,
            1.0,
            RandomSource.from_seed(0),
        ),
    )
    assert share.total.abs().sum() == 0
    assert share.tally["examples"] == 0
