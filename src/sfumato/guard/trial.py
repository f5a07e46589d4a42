"""A pass of a user's model and loss under the conditions of a check, forward alone or recorded."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.guard.double import widened
from sfumato.guard.draws import Losses, SameNoise
from sfumato.guard.rows import count_of
from sfumato.per_example.engine import Recording
from sfumato.per_example.rule import Layer


class Coupled(InputError):
    """What a user brings lets one unit reach another; no bound on one unit would hold."""


COUPLED = (
    "the examples of a batch are coupled there, and no bound on one example's gradient would hold; "
    "let it work on each example by itself, in the batch's order (attention, statistics, ranks and lengths over the "
    "batch do not; pack sequences with enforce_sorted=False)"
)


@dataclass(frozen=True)
class Tolerance:
    """How much of a difference is round-off.

    Attributes:
        relative: to the number itself.
        floor: to the largest one around it.
    """

    relative: float
    floor: float

    def holds(self, found: Tensor, expected: Tensor, scale: float) -> bool:
        """Whether numbers are the same, wherever there is one to compare with."""
        same = (found - expected).abs() <= self.relative * expected.abs() + self.floor * scale
        return bool((same | ~expected.isfinite()).all())


DOUBLE = Tolerance(1e-6, 1e-9)
SINGLE = Tolerance(1e-3, 1e-5)
HALF = Tolerance(5e-2, 1e-2)
SAME_SHAPE = Tolerance(1e-5, 1e-5)


@dataclass
class Trial:
    """A model, its loss, how it is covered, and what is known of its draws.

    Attributes:
        model: the user's module.
        losses: gives float [B], one loss for each example of a batch; calls the model.
        layers: from `covered`.
        tolerance: of the precision that it runs in.
        axes: of each random draw in turn, the dimension of the examples.
        draws: whether it draws random numbers.
        passes: how many there were; decides what is drawn for all examples together.
        apart: whether in the last pass examples had numbers of their own where they were to have them.
    """

    model: nn.Module
    losses: Losses
    layers: Sequence[Layer[Any]]
    tolerance: Tolerance
    axes: Sequence[int | None] = ()
    draws: bool = True
    passes: int = 0
    apart: bool = True

    def forward(self, batch: Any, *, outcome: int | Sequence[int] = 0) -> Tensor:
        """The losses of a batch, float [B].

        Raises:
            InputError: not one for each example.
        """
        examples = count_of(batch)
        with self.same_noise(examples, outcome=outcome) as noise:
            found = self.losses(widened(batch) if self.tolerance is DOUBLE else batch)
        self.apart = noise.apart
        if found.shape != (examples,):
            raise InputError(
                f"the loss must give one number for each example, [{examples}], got shape {list(found.shape)}; "
                "use reduction='none'"
            )
        return found

    @contextmanager
    def recorded(self, batch: Any, *, outcome: int = 0) -> Iterator[Recording]:
        """A recording of a batch, with its backward pass done."""
        with Recording(self.layers, examples=count_of(batch)) as recording:
            recording.backward(self.forward(batch, outcome=outcome))
        yield recording

    def same_noise(self, examples: int, *, outcome: int | Sequence[int] = 0) -> SameNoise:
        """The draws of the next pass."""
        self.passes += 1
        return SameNoise(examples, self.axes, outcome=outcome, number=self.passes, watch=self.draws)

    def norms(self, batch: Any, *, outcome: int = 0) -> Tensor:
        """The norm of each example's gradient in each parameter, float64 [B, parameters]."""
        with self.recorded(batch, outcome=outcome) as recording:
            squares = [recording.squared_norms([parameter]) for parameter in recording.parameters]
        return torch.stack([square.cpu().expand(count_of(batch)) for square in squares], dim=1).sqrt()
