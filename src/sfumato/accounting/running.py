"""The cost of a run that grows step by step: epsilon after any number of rounds.

Guarantees an upper bound on epsilon for the unit that the events were made for. A step is repeated with fresh noise;
a stream, whose noise is shared between rounds, is one event for its first n rounds. What a step looks like on a grid,
and its Fourier transform, are computed once and remembered, so that asking after the next step costs one inverse
transform (some milliseconds). Events without a dominating pair are asked of `guarantee`.

>>> from sfumato.accounting.events import Gaussian
>>> run = RunningCost(Gaussian(1.0).poisson(0.01), delta=1e-5)
>>> round(run.epsilon_after(1000), 3), round(run.epsilon_after(1001), 3)
(1.828, 1.829)
>>> epsilon_curve(Gaussian(1.0).poisson(0.01), [10, 100, 1000], delta=1e-5).round(2)
array([0.38, 0.72, 1.83])
>>> from sfumato.accounting.events import TreeAggregation
>>> stream = RunningCost(lambda n: TreeAggregation(noise_multiplier=7.0, steps=n), 1e-10, "zero_out")
>>> round(stream.epsilon_after(7), 3), round(stream.epsilon_after(8), 3)     # from a tree of three levels to four
(1.476, 1.716)
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import get_args

import numpy as np

from sfumato._check import InputError, between, one_of, whole
from sfumato._types import Adjacency
from sfumato.accounting.events import Composition, Event, Unknown, combined_shift
from sfumato.accounting.guarantees import guarantee
from sfumato.accounting.pld import PldAccountant, many_different


class RunningCost:
    """Epsilon of `spent` and of a number of steps.

    Args:
        step: what each step releases; or a function of n >= 1 that gives what the first n steps release together.
        delta: in (0, 1).
        adjacency: "add_remove", "replace" or "zero_out".
        spent: what was released before the first step, if anything.

    Raises:
        InputError: no accountant knows the event.
    """

    def __init__(
        self,
        step: Event | Callable[[int], Event],
        delta: float,
        adjacency: Adjacency = "add_remove",
        spent: Event | None = None,
    ) -> None:
        between(0, 1, ends="()", delta=delta)
        if not isinstance(step, Event) and not callable(step):
            raise InputError(f"step must be an accounting event such as Gaussian(1.0), got {step!r}")
        if spent is not None and not isinstance(spent, Event):
            raise InputError(f"spent must be an accounting event such as Gaussian(1.0), got {spent!r}")
        one_of(get_args(Adjacency), adjacency=adjacency)
        self._step, self._spent, self._delta = step, spent, float(delta)
        self._adjacency: Adjacency = adjacency
        self._known: dict[int, float] = {}
        guarantee(self._run(1), adjacency)  # refuses what has no known cost now, not after the first step

    def epsilon_after(self, steps: int) -> float:
        """An upper bound on the epsilon of this many steps; remembered.

        Args:
            steps: >= 0.
        """
        whole(at_least=0, steps=steps)
        if steps not in self._known:
            if len(self._known) >= 4096:
                self._known.clear()
            self._known[steps] = self._cost(self._run(int(steps)))
        return self._known[steps]

    def _run(self, steps: int) -> Event:
        if isinstance(self._step, Event):
            run = self._step * steps
        else:
            run = self._step(steps) if steps else Composition(())
            if not isinstance(run, Event):
                raise InputError(f"step must give an accounting event for the first {steps} steps, got {run!r}")
        return run if self._spent is None else self._spent + run

    def _cost(self, run: Event) -> float:
        if combined_shift(run, self._adjacency) is None and not many_different(run, self._adjacency):
            with contextlib.suppress(Unknown):
                return PldAccountant(run, self._adjacency).upper(self._delta)
        return guarantee(run, self._adjacency).epsilon(self._delta)


def epsilon_curve(
    step: Event | Callable[[int], Event],
    steps: Iterable[int],
    delta: float,
    adjacency: Adjacency = "add_remove",
    spent: Event | None = None,
) -> np.ndarray:
    """Upper bounds on epsilon after each number of steps, for plots.

    Args:
        step: as for `RunningCost`.
        steps: k numbers of steps, each >= 0, in any order.
        delta: in (0, 1).
        adjacency: how two neighbouring data sets differ.
        spent: what was released before the first step, if anything.

    Returns:
        float [k].
    """
    try:
        counts = list(steps)
    except TypeError:  # an array without axes is iterable, too, until it is iterated over
        raise InputError(f"steps must be a list of whole numbers, got {steps!r}") from None
    run = RunningCost(step, delta, adjacency, spent)
    return np.array([run.epsilon_after(count) for count in counts])
