"""What an algorithm adds to the loop: the sum of what its cohort contributes, each weighted by the plan's bound.

A new algorithm is a new `Contribution`; it has no loop, no bound, no noise and no ε of its own.

A run goes on only as itself: what a model and its loss compute is recorded in some numbers (`fingerprint_of`). A round
that is repeated after a crash meets the same noise. If the model computes something else by then (another loss of the
same name, another activation at equal shapes, another rate of dropout), two sums leave under one noise, and their
difference without any. Names and shapes do not show it; numbers do: the losses, and the norms of their gradients in
every trained parameter, for placeholder inputs at placeholder weights. No record is read.

The numbers are kept in the checkpoint and compared, not hashed, so that none of them can lie at the edge of a rounding.
They are computed in double precision wherever the model can be run in it. There, other numbers of threads or another
library for matrices move them by some 1e-13, and 1e-8 is taken to be another model; in single precision 1e-3.

Inputs that are given as public are so by declaration; what can be checked is that no record is one. What a model learns
from public inputs, of its norm layers or as negatives with clients' records, is not accounted. So a run whose public
inputs hold a training record is refused; a row of nothing but equal numbers (an empty picture) is accepted.
"""

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Stated
from sfumato.clipping import ClippedSum, Layout, NormBound, RowSum
from sfumato.guard.trial import in_double, seed_dropout, states
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.sampling import Cohort
from sfumato.training.trainable import Trainable

ROWS = 4
"""Placeholder examples that go through the model."""

_DOUBLE, _SINGLE = 1e-8, 1e-3

ModelFingerprint = dict[str, Any]
"""JSON: "numbers", their "precision", and whether the model "draws" random numbers."""


@dataclass(frozen=True)
class RoundContext:
    """What a contribution gets in a round.

    Attributes:
        theta: the parameters of this round, float [size]; not to be changed.
        cohort: this process's part of those who contribute.
        round: from 0.
        bound: the plan's; every contribution goes through a `ClippedSum` of this bound (`new_sum`).
        clip_norm: its state; None for a run without privacy.
        source: the run's randomness; label by round and slot.
        out: float64 [size] for the sum, or None.
    """

    theta: Tensor
    cohort: Cohort
    round: int
    bound: NormBound
    clip_norm: float | None
    source: RandomSource
    out: Tensor | None = None

    def new_sum(self, layout: Layout, tables: Mapping[str, RowSum] | None = None) -> ClippedSum:
        """The sum of this round, empty."""
        return ClippedSum(self.bound, self.clip_norm, layout, device=self.theta.device, out=self.out, tables=tables)


class Contribution(Protocol):
    """Turns a cohort into a bounded sum. Inherit from it: what is mostly nothing need not be written.

    Attributes:
        trained: the model and the vector that its parameters are.
        population: units present in the data.
        rounds: of the whole run, as the loop knows them; 0 before.
    """

    trained: Trainable
    population: int
    rounds: int = 0

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """What the cohort contributes; what one adds depends on its own units, its slot and the model alone."""
        ...

    def after_noise(self, mean: Tensor, round: int, source: RandomSource) -> None:
        """Add to the noisy mean, float64 [size], in place, what follows from it, the model and public inputs alone.

        Post-processing of what was released: nothing private may be read here. Mostly nothing is added.
        """

    def settings(self) -> dict[str, Any]:
        """What a resumed run must do in the same way to repeat itself bit for bit, in addition to the plan, as JSON."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Tensors of that kind; mostly none."""
        return {}

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on in that way."""

    def assumptions(self) -> list[Stated]:
        """Sentences for the statement on what could not be tried of the user's code; mostly none."""
        return []

    def fingerprint(self) -> str:
        """Digest of the data and of the parameters' names and shapes."""
        ...

    def model_fingerprint(self) -> ModelFingerprint | None:
        """What the model and its loss compute, in numbers that another one would not give; None where both are ours."""
        return None


# What the data must be, and how a model is measured: the part of training that knows what targets are.


class Task(ABC):
    """A kind of model and data.

    Attributes:
        columns: measures in the order in which people read them: key of a row → name; the first one is the headline.
        digits: format of the headline's number.
    """

    columns: ClassVar[Mapping[str, str]]
    digits: ClassVar[str] = ".4f"

    @abstractmethod
    def check(self, data: Any) -> None:
        """Raise InputError if a model cannot be trained on the data."""

    @abstractmethod
    def measure(self, model: nn.Module, data: Any, *, curve: bool, device: str) -> dict[str, Any]:
        """How good a model is on some data, as plain numbers.

        Returns:
            a row of evaluation.json or metrics.jsonl; with `curve` also what takes more room.
        """

    def about_test(self, data: Any, row: dict[str, Any]) -> dict[str, Any]:
        """What evaluation.json has on the test data next to the measurements; `row` is the first of them."""
        return {"data": "test", "examples": len(data)}

    def headline(self, row: dict[str, Any]) -> str:
        """A measurement in a few words, for the progress bar; empty if the row is none."""
        key, name = next(iter(self.columns.items()))
        return f"{name} {row[key]:{self.digits}}" if key in row else ""

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Measurements for people: names of columns, keys of `measure`'s rows for them, and a line on the test data.

        Keys with a slash lead into nested rows, as in "recall_at_far/0.001".
        """
        last = evaluation.get("trained") or evaluation["untrained"]
        keys = [key for key in self.columns if key in last]
        return [self.columns[key] for key in keys], keys, self.line(evaluation)

    def line(self, evaluation: dict[str, Any]) -> str:
        """On what it was measured."""
        return f"on {evaluation['examples']:,} test examples"

    def assumptions(self, data: Any) -> list[Stated]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)


# What a model and its loss compute, in some numbers.


def fingerprint_of(trained: Trainable, losses: Callable[[nn.Module], Tensor]) -> ModelFingerprint:
    """The numbers of a model.

    Args:
        trained: the model; a fresh copy of it is tried.
        losses: float [n], of a model in training mode, from inputs that `placeholder` gives.
    """
    with trained.tables.tried_out():
        return _fingerprint(trained, losses, placeholder_weights(trained))


def _fingerprint(trained: Trainable, losses: Callable[[nn.Module], Tensor], weights: Tensor) -> ModelFingerprint:
    for precision in ("double", "single"):
        model = trained.released_model(weights).train()
        names = set(trained.layout.names)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in names)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            with in_double(model) if precision == "double" else nullcontext():
                numbers, draws = _measured(lambda: losses(model), parameters, weights.device)  # noqa: B023
        except Exception:  # whatever the user's own forward raises where it is given placeholders
            continue
        return {"numbers": numbers, "precision": precision, "draws": draws}
    return {"numbers": [], "precision": "none", "draws": True}


def placeholder_weights(trained: Trainable) -> Tensor:
    """Values for what is trained, float [size]: the same ones for the same shapes."""
    parts = [_weights(view, place) for place, view in enumerate(trained.views(trained.initial))]
    return torch.cat(parts).to(trained.initial)


def refuse_other(then: ModelFingerprint, now: ModelFingerprint, *, processes_then: int, processes_now: int) -> None:
    """Refuse to go on with a run that began as something else.

    Raises:
        InputError: with what differs.
    """
    share = _DOUBLE if now["precision"] == "double" else _SINGLE
    one, other = (np.array(each["numbers"], np.float64) for each in (then, now))
    comparable = then["precision"] == now["precision"] and one.shape == other.shape
    if not comparable or not np.allclose(one, other, rtol=share, atol=0.0, equal_nan=True):
        raise InputError(
            "the model or its loss computes something else than when this run began; resume with the same "
            "code, or start a new run"
        )
    if now["draws"] and processes_then != processes_now:
        raise InputError(
            f"{processes_now} processes divide the model's random numbers in another way than the "
            f"{processes_then} of this run; resume with {processes_then} processes"
        )


def _weights(like: Tensor, seed: int) -> Tensor:
    """Placeholder weights of a size that lets signals through."""
    values = torch.randn(like.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if like.dim() < 2:  # a bias, or the scale of a norm layer
        return (1 + 0.1 * values).reshape(-1)
    return (values * (len(like) / like.numel()) ** 0.5).reshape(-1)


def _measured(
    losses: Callable[[], Tensor], parameters: Sequence[nn.Parameter], device: torch.device
) -> tuple[list[float], bool]:
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"):
            seed_dropout(0, device)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            before = _generators(device)
            found = losses()
            draws = before != _generators(device)
            weights = 1.0 / torch.arange(1, len(found) + 1, device=found.device)  # so that examples do not cancel
            gradients = torch.autograd.grad((found * weights.to(found)).sum(), parameters, allow_unused=True)
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    norms = [0.0 if gradient is None else float(gradient.double().norm()) for gradient in gradients]
    return [*found.detach().double().tolist(), *norms], draws


def _generators(device: torch.device) -> tuple[list[bytes], str, str]:
    of_torch = [state.numpy().tobytes() for state in states(device)]
    return of_torch, str(random.getstate()), str(np.random.get_state())  # noqa: NPY002


# No record is among the public inputs.


def refuse_private_as_public(trained: Trainable, records: Iterable[tuple[Tensor, ...]]) -> None:
    """Compare public inputs with all records; nothing is read where the model has none.

    Args:
        trained: the model.
        records: batches of inputs as the model gets them.

    Raises:
        InputError: with how many are in both.
    """
    parts = trained.with_public_inputs()
    refuse_private_rows(
        (public_inputs_of(part) or () for part in parts), records, of="public inputs of the norm layers"
    )


def refuse_private_rows(
    public: Iterable[tuple[Tensor, ...]], records: Iterable[tuple[Tensor, ...]], *, of: str
) -> None:
    """Compare public rows with all records; no record is read where there are no public rows.

    Args:
        public: batches of inputs as the model gets them.
        records: the same of the private ones.
        of: what the public rows are, for the message.

    Raises:
        InputError: with how many are in both.
    """
    rows = {row for batch in public for row in _digests(batch)}
    if not rows:
        return
    found = set().union(*(rows.intersection(_digests(batch)) for batch in records))
    if found:
        raise InputError(
            f"{len(found)} of the {len(rows)} {of} are training records, whose use would have no noise; give "
            "inputs of no user, or leave them out of training"
        )


def _digests(inputs: tuple[Tensor, ...]) -> Iterable[bytes]:
    """Of each row of several inputs together; in single precision, whichever precision the model has."""
    if not inputs:
        return
    # zeros of either sign are one number
    rows = [(each.float() + 0.0 if each.is_floating_point() else each).cpu().contiguous().flatten(1) for each in inputs]
    for row in zip(*rows, strict=True):
        if any(len(part) and bool((part != part[0]).any()) for part in row):
            yield hashlib.blake2b(b"".join(part.numpy().tobytes() for part in row), digest_size=16).digest()
