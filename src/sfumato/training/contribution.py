"""What an algorithm adds to the loop: the sum of what its cohort contributes, each weighted by the plan's bound.

A new algorithm is a new `Contribution`; it has no loop, no bound, no noise and no ε of its own.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from sfumato._random import RandomSource
from sfumato._types import Stated
from sfumato.clipping import ClippedSum, Layout, NormBound
from sfumato.sampling import Cohort
from sfumato.training.behaviour import Behaviour
from sfumato.training.trainable import Trainable


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

    def new_sum(self, layout: Layout) -> ClippedSum:
        """The sum of this round, empty."""
        return ClippedSum(self.bound, self.clip_norm, layout, device=self.theta.device, out=self.out)


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
        """What a resumed run must do in the same way to repeat itself bit for bit, beside the plan, as JSON."""
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

    def behaviour(self) -> Behaviour | None:
        """What the model and its loss compute, in numbers that another one would not give; None where both are ours."""
        return None


# What the data must be, and how a model is measured and told of: the part of training that knows what targets are.


class Task(Protocol):
    """A kind of model and data."""

    def check(self, data: Any) -> None:
        """Raise InputError if a model cannot be trained on the data."""
        ...

    def measure(self, model: nn.Module, data: Any, *, curve: bool, device: str) -> dict[str, Any]:
        """How good a model is on some data, as plain numbers.

        Returns:
            a row of evaluation.json or metrics.jsonl; with `curve` also what takes more room.
        """
        ...

    def about_test(self, data: Any, row: dict[str, Any]) -> dict[str, Any]:
        """What evaluation.json tells of the test data beside the measurements; `row` is the first of them."""
        ...

    def headline(self, row: dict[str, Any]) -> str:
        """A measurement in a few words, for the progress bar; empty if the row is none."""
        ...

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Measurements for people: names of columns, keys of `measure`'s rows for them, and a line on the test data.

        Keys with a slash lead into nested rows, as in "recall_at_far/0.001".
        """
        ...

    def assumptions(self, data: Any) -> list[Stated]:
        """Sentences on what is taken to be public about the data."""
        ...
