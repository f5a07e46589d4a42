"""The cost of a run that grows step by step: epsilon after any number of repetitions of one event.

Guarantees an upper bound on epsilon for the unit that the events were made for, as the accountant `pld` does.
Adding a step only counts; what a step looks like on a grid, and its Fourier transform, are computed once and
remembered, so that asking after the next step costs one inverse transform (some milliseconds).

>>> from sfumato.accounting.events import Gaussian
>>> run = RunningPld(Gaussian(1.0).poisson(0.01), delta=1e-5)
>>> run.add(1000)
>>> run.add()
>>> run.steps, round(run.epsilon(), 3)
(1001, 1.829)
>>> run.steps_within(2.0)
1202
>>> epsilon_curve(Gaussian(1.0).poisson(0.01), [10, 100, 1000], delta=1e-5).round(2)
array([0.38, 0.72, 1.83])
"""

from collections.abc import Iterable
from typing import get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, whole
from sfumato._types import Adjacency
from sfumato.accounting.accountants.pld import PldAccountant
from sfumato.accounting.events import Event

_MOST_STEPS = 1 << 40


class RunningPld:
    """Epsilon of `spent` and of a step that is repeated.

    Args:
        step: what each step releases.
        delta: in (0, 1).
        adjacency: "add_remove", "replace" or "zero_out".
        spent: what was released before the first step, if anything.

    Raises:
        InputError: no pair is known for an event.
    """

    def __init__(
        self, step: Event, delta: float, adjacency: Adjacency = "add_remove", spent: Event | None = None
    ) -> None:
        between(0, 1, ends="()", delta=delta)
        if not isinstance(step, Event):
            raise InputError(f"step must be an accounting event such as Gaussian(1.0), got {step!r}")
        if spent is not None and not isinstance(spent, Event):
            raise InputError(f"spent must be an accounting event such as Gaussian(1.0), got {spent!r}")
        one_of(get_args(Adjacency), adjacency=adjacency)
        self._step, self._spent, self._delta = step, spent, float(delta)
        self._adjacency: Adjacency = adjacency
        self._steps = 0
        self._known: dict[int, float] = {}
        PldAccountant(self._run(1), adjacency)  # refuses what has no pair now, not after the first step

    @property
    def steps(self) -> int:
        """How many steps were added."""
        return self._steps

    def add(self, count: int = 1) -> None:
        """Count more steps; nothing is computed."""
        whole(count=count)
        self._steps += int(count)

    def epsilon(self) -> float:
        """An upper bound on the epsilon of the steps so far."""
        return self.epsilon_after(self._steps)

    def epsilon_after(self, steps: int) -> float:
        """An upper bound on the epsilon of this many steps, whatever was added; remembered.

        Args:
            steps: >= 0.
        """
        whole(at_least=0, steps=steps)
        if steps not in self._known:
            if len(self._known) >= 4096:
                self._known.clear()
            self._known[steps] = PldAccountant(self._run(int(steps)), self._adjacency).upper(self._delta)
        return self._known[steps]

    def steps_within(self, epsilon: float) -> int:
        """The most steps whose epsilon stays within a budget, at least 0.

        Args:
            epsilon: the budget, >= 0.

        Raises:
            InputError: what was spent before is more than the budget, or no number of steps exceeds it.
        """
        non_negative(epsilon=epsilon)
        if self.epsilon_after(0) > epsilon:
            raise InputError(
                f"epsilon {epsilon:g} is less than the {self.epsilon_after(0):.6g} already spent; allow more"
            )
        good, bad = 0, 1
        while self.epsilon_after(bad) <= epsilon:
            good, bad = bad, 2 * bad
            if bad > _MOST_STEPS:
                raise InputError(f"epsilon {epsilon:g} allows more than {_MOST_STEPS} steps; no limit is needed")
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.epsilon_after(middle) <= epsilon else (good, middle)
        return good

    def _run(self, steps: int) -> Event:
        run = self._step * steps
        return run if self._spent is None else self._spent + run


def epsilon_curve(
    step: Event, steps: Iterable[int], delta: float, adjacency: Adjacency = "add_remove", spent: Event | None = None
) -> np.ndarray:
    """Upper bounds on epsilon after each number of steps, for plots.

    Args:
        step: what each step releases.
        steps: k numbers of steps, each >= 0, in any order.
        delta: in (0, 1).
        adjacency: how two neighbouring data sets differ.
        spent: what was released before the first step, if anything.

    Returns:
        float [k].
    """
    if not isinstance(steps, Iterable):
        raise InputError(f"steps must be a list of whole numbers, got {steps!r}")
    run = RunningPld(step, delta, adjacency, spent)
    return np.array([run.epsilon_after(count) for count in steps])
