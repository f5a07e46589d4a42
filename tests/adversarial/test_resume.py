"""A run goes on as itself only, and repeats no round on other sums: no noise meets two sums."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from adversarial.specimens import Seen, Watched
from fitting import fit_plan
from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.central.gradients import GradientSum
from sfumato.federated import FedAvg
from sfumato.guard.placeholders import placeholder
from sfumato.training import Callback, RunOptions, Trainable, contribution
from sfumato.training.contribution import ROWS, fingerprint_of, refuse_other

# A run does not go on as another one under the same noise: what differs may have the same name and the same shapes.

FEATURES, CLASSES = 6, 3
EXAMPLES = DPSGD(steps=4, cohort=6, noise=1.0, seed=1)
USERS = FedAvg(rounds=4, cohort=4, noise=1.0, seed=1)


def examples() -> data.ExampleDataset:
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    return data.examples_from_arrays(inputs, np.arange(24) % CLASSES, num_classes=CLASSES)


def users() -> data.UserDataset:
    inputs = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
    return data.from_arrays(inputs, np.arange(24) % CLASSES, np.arange(24) // 4)


def network(between: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), between or nn.Tanh(), nn.Linear(16, CLASSES))


class Stopped(BaseException):
    """What a process does not survive."""


def stopping(steps: int) -> Callable[[Any], torch.optim.Optimizer]:
    """A server optimiser that dies before so many steps are done."""

    class Stopping(torch.optim.SGD):
        left = steps

        def step(self, closure=None):
            type(self).left -= 1
            if type(self).left < 0:
                raise Stopped
            super().step(closure)

    return lambda parameters: Stopping(parameters, lr=0.1)


def go(out: Path, plan: Any, records: Any, *, dies: bool, model: nn.Module, **options: Any) -> None:
    common = {"out": out, "optimizer": stopping(2 if dies else 9), "resume": not dies, **options}
    if dies:
        with pytest.raises(Stopped):
            fit_plan(plan, model, records, **common)
    else:
        fit_plan(plan, model, records, **common)


def scaled(factor: float, smoothing: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda outputs, labels: (
        factor * functional.cross_entropy(outputs, labels, reduction="none", label_smoothing=smoothing)
    )


@pytest.mark.parametrize("other", [scaled(1.5), scaled(1 + 1e-6), scaled(1.0, 0.01)])
def test_another_loss_of_the_same_name_is_refused(other, tmp_path):
    go(tmp_path / "run", EXAMPLES, examples(), dies=True, model=network(), loss=scaled(1.0))
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match=r"computes something else|another plan, model or data set"):
        go(tmp_path / "run", EXAMPLES, examples(), dies=False, model=network(), loss=other)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before
    go(tmp_path / "run", EXAMPLES, examples(), dies=False, model=network(), loss=scaled(1.0))


BETWEEN = [nn.ReLU, nn.Sigmoid, lambda: nn.ELU(0.5), lambda: nn.Dropout(0.5), nn.Identity]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("kind", ["examples", "users"])
def test_another_network_of_the_same_shapes_is_refused(kind, between, tmp_path):
    plan, records = (EXAMPLES, examples()) if kind == "examples" else (USERS, users())
    go(tmp_path / "run", plan, records, dies=True, model=network())
    with pytest.raises(InputError, match="computes something else than when this run began"):
        go(tmp_path / "run", plan, records, dies=False, model=network(between()))


@pytest.mark.parametrize("kind", ["examples", "users"])
def test_other_starting_weights_are_no_other_run(kind, tmp_path):
    """They are in the checkpoint."""
    plan, records, drawn_anew = *((EXAMPLES, examples()) if kind == "examples" else (USERS, users())), network()
    go(tmp_path / "run", plan, records, dies=True, model=network())
    with torch.no_grad():
        for parameter in drawn_anew.parameters():
            parameter.normal_()
    go(tmp_path / "run", plan, records, dies=False, model=drawn_anew)


def described(model: nn.Module, factor: float = 1.0) -> dict[str, Any]:
    inputs, loss = placeholder(torch.empty(ROWS, FEATURES)), scaled(factor)
    return fingerprint_of(Trainable(model), lambda m: loss(m(inputs), torch.arange(ROWS) % CLASSES))


def same(one: dict[str, Any], other: dict[str, Any], *, processes: tuple[int, int] = (1, 1)) -> bool:
    try:
        refuse_other(one, other, processes_then=processes[0], processes_now=processes[1])
    except InputError:
        return False
    return True


@pytest.mark.parametrize("change", [1e-7, 1e-5, 1e-3])
def test_a_small_change_is_seen_and_round_off_is_not(change):
    """Both with room: round-off is 5 orders below what is refused, the least change here one above."""
    before = described(network())
    assert before["precision"] == "double"
    assert not same(before, described(network(), 1 + change))
    for factor in (1 + 1e-11, 1 - 1e-11):
        assert same(before, {**before, "numbers": [number * factor for number in before["numbers"]]})


def test_the_order_of_a_sum_and_the_number_of_threads_are_round_off():
    class Reordered(nn.Linear):
        def forward(self, values: Tensor) -> Tensor:
            halves = values.split(8, dim=1), self.weight.split(8, dim=1)
            return sum(functional.linear(v, w) for v, w in reversed(list(zip(*halves, strict=True)))) + self.bias

    reordered = network()
    reordered[2] = Reordered(16, CLASSES)
    assert described(reordered)["numbers"] != described(network())["numbers"]
    assert same(described(network()), described(reordered))
    program = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from adversarial.test_resume import described, deep\n"
        "print(json.dumps(described(deep())))"
    )
    tests = str(Path(__file__).parents[1])
    found = [
        subprocess.run(
            [sys.executable, "-c", program, tests],
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        ).stdout
        for threads in ("1", "2")
    ]
    assert same(*map(json.loads, found))


def deep() -> nn.Module:
    """Of a size at which threads divide the work."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, FEATURES)),
        nn.Upsample((24, 24)),
        *(layer for i in range(6) for layer in (nn.Conv2d(32 if i else 1, 32, 3, padding=1), nn.ReLU())),
        nn.Flatten(),
        nn.Linear(32 * 24 * 24, CLASSES),
    )


def test_the_number_of_processes_counts_where_the_model_draws():
    plain, drawing = described(network()), described(network(nn.Dropout(0.5)))
    assert same(plain, plain, processes=(1, 2))
    assert same(drawing, drawing, processes=(2, 2))
    assert not same(drawing, drawing, processes=(1, 2))


def test_a_model_that_takes_nothing_placeholder_is_still_resumed(tmp_path):
    class Picky(nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            if float(values.detach().abs().max()) > 0 and not bool((values[:, 0] > 0).all()):
                raise ValueError("the first feature is positive")
            return values

    inputs = np.random.default_rng(0).uniform(1, 2, (24, FEATURES)).astype(np.float32)
    records = data.from_arrays(inputs, np.arange(24) % CLASSES, np.arange(24) // 4)
    model = nn.Sequential(Picky(), *network())
    go(tmp_path / "run", USERS, records, dies=True, model=model)
    go(tmp_path / "run", USERS, records, dies=False, model=model)


@pytest.mark.parametrize("named", [True, False])
def test_another_weight_of_one_class_of_many_is_refused(named, tmp_path):
    """By the values that the loss carries; and where these are hidden in a global name, by what it computes."""
    classes = 40
    inputs = np.random.default_rng(0).normal(size=(80, FEATURES)).astype(np.float32)
    records = data.examples_from_arrays(inputs, np.arange(80) % classes, num_classes=classes)
    hidden: dict[str, Tensor] = {}

    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(FEATURES, classes)

    def loss_without(left_out: int) -> Callable[[Tensor, Tensor], Tensor]:
        weight = torch.ones(classes)
        weight[left_out] = 0.0
        hidden["weight"] = weight
        if named:
            return nn.CrossEntropyLoss(weight=weight, reduction="none")
        return lambda outputs, labels: functional.cross_entropy(
            outputs, labels, weight=hidden["weight"], reduction="none"
        )

    go(tmp_path / "run", EXAMPLES, records, dies=True, model=model(), loss=loss_without(17))
    with pytest.raises(InputError, match=r"computes something else|another plan, model or data set"):
        go(tmp_path / "run", EXAMPLES, records, dies=False, model=model(), loss=loss_without(23))


def test_draws_of_a_gpu_are_seen_too(monkeypatch):
    """They move its own generator and no other; a number stands in for it."""
    drawn = [0]
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device=None: torch.tensor(drawn))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device=None: drawn.__setitem__(0, int(state)))
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: drawn.__setitem__(0, seed))
    weight = nn.Parameter(torch.ones(2))

    def losses(draws: int) -> Tensor:
        drawn[0] += draws
        return weight * 2.0

    for draws in (1, 0):
        assert contribution._measured(lambda: losses(draws), [weight], torch.device("cuda", 0))[1] == bool(draws)  # noqa: B023
    assert drawn == [0]


# Two copies of a run that died before its first round go on with two models, and meet no noise twice.

INPUTS = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
LABELS = np.arange(24) % CLASSES
NOISY: dict[str, Any] = {"clipping.norm": 1.0, "noise.noise_multiplier": 1000.0}
RUNS = {
    "examples": (
        DPSGD(steps=2, cohort=6, **NOISY),
        lambda: data.examples_from_arrays(INPUTS, LABELS, num_classes=CLASSES),
    ),
    "users": (
        FedAvg(rounds=2, cohort=4, **NOISY),
        lambda: data.from_arrays(INPUTS, LABELS, np.arange(24) // 4),
    ),
}


class Died(BaseException):
    """The process ends."""


class DiesAtStart(Callback):
    """After the folder is there, and before the first round: while the untrained model is measured, for example."""

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        raise Died


def around(between: nn.Module, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), between, nn.Linear(16, CLASSES))


def go_watched(kind: str, folder: Path, model: nn.Module, **options: Any) -> None:
    plan, records = RUNS[kind]
    fit_plan(
        plan,
        model,
        records(),
        out=folder,
        options=RunOptions(optimizer=lambda given: Watched(given, lr=0.1)),
        **options,
    )


def copies(kind: str, folder: Path) -> tuple[Path, Path]:
    with pytest.raises(Died):
        go_watched(kind, folder / "one", around(nn.Tanh()), callbacks=[DiesAtStart()])
    shutil.copytree(folder / "one", folder / "two")
    return folder / "one", folder / "two"


def first_mean(kind: str, folder: Path, model: nn.Module) -> Tensor:
    """What a copy that goes on shows of its first round."""
    with pytest.raises(Seen) as shown:
        go_watched(kind, folder, model, resume=True)
    return shown.value.mean


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("other", [(nn.Tanh, 1), (nn.ReLU, 0)], ids=["weights", "function"])
def test_copies_that_go_on_with_two_models_draw_two_noises(kind, other, tmp_path):
    one, two = copies(kind, tmp_path)
    between, seed = other
    first, then = first_mean(kind, one, around(nn.Tanh())), first_mean(kind, two, around(between(), seed))
    assert (first - then).norm() > 0.5 * first.norm()  # the sums alone differ by a thousandth of that


@pytest.mark.parametrize("kind", RUNS)
def test_copies_that_go_on_similar_draw_the_same_noise(kind, tmp_path):
    """Else the mean of many copies would have none."""
    one, two = copies(kind, tmp_path)
    first, then = first_mean(kind, one, around(nn.Tanh())), first_mean(kind, two, around(nn.Tanh()))
    assert torch.equal(first, then)


# A round that is repeated with less memory is the same round, or none: no noise meets two sums.

COUNT, ROOM = 64, 16
PLAN = DPSGD(steps=2, cohort=48, clipping=1.0, noise=1000.0)


def mean_with(between: nn.Module, folder: Path, *, resume: bool) -> Tensor:
    inputs = np.random.default_rng(0).normal(size=(COUNT, FEATURES)).astype(np.float32)
    records = data.examples_from_arrays(inputs, np.arange(COUNT) % CLASSES, num_classes=CLASSES)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), between, nn.Linear(16, CLASSES))
    with pytest.raises(Seen) as shown:
        PLAN.fit(
            model,
            records,
            out=folder,
            resume=resume,
            options=RunOptions(optimizer=lambda given: Watched(given, lr=0.1)),
        )
    return shown.value.mean


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called on, memory runs out in steps of more than so many examples."""
    real = GradientSum._micro_batch

    def micro_batch(self: Any, examples: np.ndarray, *rest: Any) -> Any:
        return None if len(examples) > ROOM else real(self, examples, *rest)

    return lambda: monkeypatch.setattr(GradientSum, "_micro_batch", micro_batch)


def test_a_model_that_draws_is_not_put_through_in_smaller_pieces(tmp_path, little_room):
    mean_with(nn.Dropout(0.5), tmp_path / "run", resume=False)
    little_room()
    with pytest.raises(InputError, match="or resume with more memory"):
        mean_with(nn.Dropout(0.5), tmp_path / "run", resume=True)


def test_one_that_draws_nothing_gives_the_same_sum_in_smaller_pieces(tmp_path, little_room):
    whole = mean_with(nn.Tanh(), tmp_path / "run", resume=False)
    little_room()
    with pytest.warns(UserWarning, match="memory ran out with .* going on with"):
        pieces = mean_with(nn.Tanh(), tmp_path / "run", resume=True)
    torch.testing.assert_close(pieces, whole, atol=1e-6, rtol=1e-6)
