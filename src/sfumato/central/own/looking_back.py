"""Whether a loop of one's own gives the same examples the same losses later on.

What a loop remembers of examples (a mean of losses by which the next ones are weighed, a memory bank) is no part of the
model. Nothing puts it back, and where it changes between two steps, no comparison within a step sees it. So a few
examples go through at the first step, and again at the steps that are looked at, each time at the weights that the
model had when the run was opened, with `done` as it was then, and, in a fresh process, with `done` as in the last step
(a loop may read only later what it keeps from the start). If they have other losses or gradients there, something of
the loop has changed: a schedule, which does no harm, or what follows from examples, for which no bound holds. The two
cannot be distinguished here, so the warning names both, and the statement says which of them it is taken to be.
"""

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from sfumato.guard import Recheck
from sfumato.guard.recheck import Measured
from sfumato.training import Trainable


class LookingBack:
    """Losses of a few examples, now and at the first step.

    Args:
        recheck: measures.
        trained: the model.
        measure: losses and squared norms of the examples, [n] each.
        examples: how many `measure` takes.
        begun: a context in which the loop tells the step at which it began.
        last: a context in which a micro-batch looks like one of the last step.
        afresh: what some work gives in a fresh process, None where it fails there.

    Attributes:
        found: the step, from 1, at which they were others; None for none so far.
    """

    def __init__(
        self,
        recheck: Recheck,
        trained: Trainable,
        measure: Callable[[], tuple[Tensor, Tensor]],
        examples: int,
        begun: Callable[[], AbstractContextManager[None]],
        last: Callable[[], AbstractContextManager[None]],
        afresh: Callable[[Callable[[], Measured]], Measured | None],
    ) -> None:
        self.found: int | None = None
        self._recheck, self._trained, self._measure = recheck, trained, measure
        self._examples, self._begun, self._last, self._afresh = examples, begun, last, afresh
        self._first: list[Measured | None] | None = None

    def look(self, step: int, theta: Tensor, *, due: bool) -> None:
        """Before a step: measure what there is to compare with, or compare.

        Args:
            step: of the run, from 0.
            due: whether this step is looked at.
            theta: float [size], the weights of the step, which the model has again afterwards.
        """
        if self.found is not None or (self._first is not None and not due):
            return
        self._trained.load(self._trained.initial)
        try:
            late = self._afresh(lambda: self._seen(self._last))  # first: it begins as a step does
            now = [self._seen(self._begun), late]
        finally:
            self._trained.forget()
            self._trained.put_back(theta)
        if self._first is None:
            self._first = now
        elif any(
            one is not None and other is not None and self._recheck.moved(one, other)
            for one, other in zip(self._first, now, strict=True)
        ):
            self.found = step + 1
            warnings.warn(f"{_WHAT.format(step=self.found)}. The statement takes this to be {_RISK}", stacklevel=2)

    def _seen(self, when: Callable[[], AbstractContextManager[None]]) -> Measured:
        with when():
            return self._recheck.measured(range(self._examples), lambda _: self._measure())

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
    "a schedule that follows from the number of steps or from released weights alone; where it follows from examples "
    "(a mean of earlier losses, a memory bank), no bound on one example holds"
)
