"""Whether a loop of one's own gives the same examples the same losses later on.

What a loop remembers of examples (a mean of losses by which the next ones are weighed, a memory bank) is no part of the
model. Nothing puts it back, and where it changes between two steps, no comparison within a step sees it. So a few
examples go through at the first step, and again at the steps that `Recheck` looks at, each time at the weights that the
model had when the run was opened and with `done` as it was then. If they have other losses or gradients there,
something of the loop has changed: a schedule, which does no harm, or what follows from examples, for which no bound
holds. Nobody can tell one from the other, so both are told, and the statement says which of them it is taken to be.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from sfumato.per_example import Recheck
from sfumato.training import Trainable


class LookingBack:
    """Losses of a few examples, now and at the first step.

    Args:
        recheck: measures, and tells which steps are looked at.
        trained: the model.
        measure: losses and squared norms of the examples, [n] each.
        begun: a context in which the loop tells the step at which it began.

    Attributes:
        found: the step, from 1, at which they were others; None for none so far.
    """

    def __init__(
        self,
        recheck: Recheck,
        trained: Trainable,
        measure: Callable[[], tuple[Tensor, Tensor]],
        begun: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.found: int | None = None
        self._recheck, self._trained, self._measure, self._begun = recheck, trained, measure, begun
        self._first: tuple[Tensor, Tensor] | None = None

    def look(self, step: int, theta: Tensor, examples: int) -> None:
        """Before a step: measure what there is to compare with, or compare.

        Args:
            step: of the run, from 0.
            theta: float [size], the weights of the step, which the model has again afterwards.
            examples: how many `measure` takes.
        """
        if self.found is not None or (self._first is not None and not self._recheck.due(step)):
            return
        self._trained.load(self._trained.initial)
        try:
            with self._begun():
                now = self._recheck.measured(range(examples), lambda _: self._measure())
        finally:
            self._trained.forget()
            self._trained.put_back(theta)
        if self._first is None:
            self._first = now
        elif self._recheck.moved(self._first, now):
            self.found = step + 1
            warnings.warn(f"{_WHAT.format(step=self.found)}. The statement takes this to be {_RISK}", stacklevel=2)

    def assumptions(self) -> list[str]:
        """What the guarantee rests on then."""
        if self.found is None:
            return []
        return [f"{_WHAT.format(step=self.found)}. This is taken to be {_RISK}."]


_WHAT = (
    "At step {step} the loop gave the same examples, at the same weights, other losses or gradients than when the run "
    "was opened"
)
_RISK = (
    "a schedule that follows from the number of steps alone; where it follows from examples (a mean of earlier losses, "
    "a memory bank), no bound on one example holds"
)
