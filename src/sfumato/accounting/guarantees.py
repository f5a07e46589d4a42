"""From an event, or a run step by step, to a guarantee by the tightest accountant that is valid for it.

Guarantees upper bounds for the unit that the events were made for: never below the truth, never negative,
never NaN; infinite where nothing can be promised.

>>> from sfumato.accounting.events import Gaussian
>>> promise = guarantee(Gaussian(1.0))
>>> round(promise.epsilon(1e-5), 6), promise.method
(4.377178, 'gaussian')

Of a run that grows, what a step looks like on a grid, and its Fourier transform, are computed once and remembered, so
that asking after the next step costs one inverse transform (some milliseconds). Events without a dominating pair are
asked of `guarantee`.

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
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, whole
from sfumato._types import Adjacency, Method
from sfumato.accounting.accountants import (
    USUAL_ORDERS,
    Accountant,
    NoGuarantee,
    PureAccountant,
    RdpAccountant,
    ZcdpAccountant,
)
from sfumato.accounting.events import (
    Composition,
    Event,
    MinSeparation,
    NonPrivate,
    Unknown,
    combined_shift,
    compose,
    terms,
)
from sfumato.accounting.gaussian_curve import GaussianAccountant
from sfumato.accounting.pld import PldAccountant, ScheduleAccountant, many_different
from sfumato.accounting.tradeoff import GaussianEquivalent, GaussianTradeoff, Tradeoff, TradeoffCurve

_FURTHEST = 1e100  # a shift from which on a double cannot distinguish Gaussian curves


@dataclass(frozen=True)
class Guarantee:
    """What an event promises; made by `guarantee`.

    Attributes:
        event: what was released.
        adjacency: how two neighbouring data sets differ.
        accountants: the accountants that are asked; each of them is valid, so the smallest answer is.
    """

    event: Event
    adjacency: Adjacency
    accountants: tuple[Accountant, ...]

    @property
    def method(self) -> str:
        """The accountant that is tightest as a rule; `tightest` names it for one delta."""
        return self.accountants[0].method

    def tightest(self, delta: float) -> str:
        """The accountant with the smallest epsilon at this delta, in [0, 1)."""
        between(0, 1, ends="[)", delta=delta, remedy="choose it well below 1 / population")
        delta = float(delta)
        return min(self.accountants, key=lambda accountant: accountant.epsilon(delta)).method

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon.

        Args:
            delta: in (0, 1); 0 gives inf for Gaussian noise.
        """
        between(0, 1, ends="[)", delta=delta, remedy="choose it well below 1 / population")
        delta = float(delta)  # a NumPy float32 would carry its precision into the result
        return min(max(0.0, accountant.epsilon(delta)) for accountant in self.accountants)

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1].

        Args:
            epsilon: >= 0.
        """
        non_negative(epsilon=epsilon)
        epsilon = float(epsilon)
        return min(min(1.0, max(0.0, accountant.delta(epsilon))) for accountant in self.accountants)

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon at this delta; the lower one is 0 where none is known.

        An accountant bounds the cost of the pairs from both sides. Its lower bound is one for the event only where
        the event attains its pairs.
        """
        high, delta = self.epsilon(delta), float(delta)
        return self._lower(high, (accountant.epsilon_interval(delta) for accountant in self.accountants)), high

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta at this epsilon; the lower one is 0 where none is known.

        Args:
            epsilon: >= 0.
        """
        high, epsilon = self.delta(epsilon), float(epsilon)
        return self._lower(high, (accountant.delta_interval(epsilon) for accountant in self.accountants)), high

    def _lower(self, high: float, intervals: Iterable[tuple[float, float]]) -> float:
        """The largest of the lower ends, at most `high`; 0 for an event that does not attain its pairs."""
        if not all(single.attained(self.adjacency) for single, _ in terms(self.event)):
            return 0.0
        return min(high, max(0.0, *(low for low, _ in intervals)))

    def advantage(self) -> float:
        """The most by which a test's true positive rate can exceed its false positive rate."""
        return self.delta(0.0)

    def tradeoff(self, fpr: float | np.ndarray) -> np.ndarray:
        """The least false negative rate of any test of whether a unit took part, or was left out.

        Args:
            fpr: the test's false positive rate in [0, 1], any shape.

        Returns:
            float, shape of `fpr`: a lower bound, convex and symmetric (see `sfumato.accounting.tradeoff`). The curve
            behind it is composed once for a guarantee.
        """
        return self._tradeoff.false_negative_rate(_rates(fpr))

    def tpr(self, fpr: float | np.ndarray) -> np.ndarray:
        """The largest true positive rate of any such test: 1 - `tradeoff`, also where it is tiny.

        Args:
            fpr: the test's false positive rate in [0, 1], any shape.

        Returns:
            float, shape of `fpr`: an upper bound.
        """
        return self._tradeoff.true_positive_rate(_rates(fpr))

    def bayes_risk(self, prior: float = 0.5) -> float:
        """The least probability that an attacker with this prior is wrong about whether a unit took part.

        Args:
            prior: probability, to the attacker's knowledge, that the unit took part, in [0, 1].

        Returns:
            A lower bound: min(prior, 1 - prior) * (1 - delta(epsilon)) at epsilon = |log(prior / (1 - prior))|.
        """
        between(0, 1, prior=prior)
        rarer = min(float(prior), 1.0 - float(prior))
        if rarer == 0.0:
            return 0.0
        epsilon = max(0.0, abs(math.log(prior) - math.log1p(-prior)) * (1 - 1e-15) - 1e-15)
        return rarer * (1.0 - self.delta(epsilon))

    def bayes_success(self, prior: float = 0.5) -> float:
        """The largest probability that an attacker with this prior is right: 1 - `bayes_risk`."""
        return 1.0 - self.bayes_risk(prior)

    def gdp(self, least_delta: float = 1e-10) -> GaussianEquivalent:
        """The Gaussian mechanism that is at most as private, and how well it fits.

        Args:
            least_delta: in (0, 1); what happens with a smaller probability is left out. Every test's false negative
                rate is at least that of the Gaussian mechanism minus this. Without it mu would describe the far
                tail alone (see docs/explanation/attackers.md).

        Returns:
            mu, rounded up, and the regret.
        """
        between(0, 1, ends="()", least_delta=least_delta)
        return self._tradeoff.gaussian_equivalent(float(least_delta))

    def rho(self) -> float | None:
        """rho of zCDP; None where there is none."""
        rho = ZcdpAccountant(self.event, self.adjacency).rho()
        return rho if math.isfinite(rho) else None

    @cached_property
    def _tradeoff(self) -> Tradeoff:
        epsilons, deltas = [np.zeros(1)], [np.array([self.delta(0.0)])]
        for accountant in self.accountants:
            if accountant.mu is not None:
                return GaussianTradeoff(min(accountant.mu, _FURTHEST))
            knots, values = accountant.curve()
            epsilons.append(knots)
            deltas.append(values)
        knots, values = np.concatenate(epsilons), np.concatenate(deltas)
        order = np.argsort(knots, kind="stable")
        return TradeoffCurve.from_deltas(knots[order], values[order])


def guarantee(event: Event, adjacency: Adjacency = "add_remove", method: Method = "auto") -> Guarantee:
    """The guarantee of an event.

    Args:
        event: what was released.
        adjacency: "add_remove" (a unit is there or not), "replace" (a unit is exchanged for another one) or
            "zero_out" (a unit's contribution is set to zero).
        method: "auto" for the tightest valid accountant, or one by name: "pld", "rdp" (docs/explanation/accountants.md
            compares these), "rdp_usual_orders" (the orders of published figures, see
            docs/explanation/renyi-figures.md), "zcdp", "gaussian" (exact, for plain Gaussian events), "pure" (the
            largest loss).

    Raises:
        InputError: the method does not know the event.
    """
    if not isinstance(event, Event):
        raise InputError(f"event must be an accounting event such as Gaussian(1.0), got {event!r}")
    one_of(get_args(Adjacency), adjacency=adjacency)
    one_of(get_args(Method), method=method)
    return _guarantee(event, adjacency, method)


@lru_cache(maxsize=32)
def _guarantee(event: Event, adjacency: Adjacency, method: Method) -> Guarantee:
    """Remembered with its curve: statement, page and terminal of a run all ask for the same one."""
    return Guarantee(event, adjacency, _accountants(_one_by_one(event), adjacency, method))


def _one_by_one(event: Event) -> Event:
    """The event with runs of distant participations as the releases that a unit is in, whose pairs are composed."""
    counts: dict[Event, int] = {}
    for single, count in terms(event):
        run = single.event * single.participations if isinstance(single, MinSeparation) else single
        for part, times in terms(run):
            counts[part] = counts.get(part, 0) + times * count
    return compose(counts)


def _rates(fpr: float | np.ndarray) -> np.ndarray:
    rates = np.asarray(fpr)
    if rates.dtype.kind not in "fiu":
        between(0, 1, fpr=fpr)  # names what is no number
        raise InputError(f"fpr must be numbers in [0, 1], got {rates.dtype}")
    outside = rates[~((rates >= 0) & (rates <= 1))]
    if outside.size:
        between(0, 1, fpr=outside.flat[0])
    return rates.astype(np.float64)


def _accountants(event: Event, adjacency: Adjacency, method: Method) -> tuple[Accountant, ...]:
    match method:
        case "pld":
            return (_pld(event, adjacency),)
        case "rdp":
            return (RdpAccountant(event, adjacency),)
        case "rdp_usual_orders":
            return (RdpAccountant(event, adjacency, USUAL_ORDERS),)
        case "zcdp":
            return (ZcdpAccountant(event, adjacency),)
        case "gaussian":
            return (GaussianAccountant(event, adjacency),)
        case "pure":
            return (PureAccountant(event, adjacency),)
    if any(isinstance(single, NonPrivate) for single, _ in terms(event)):
        return (NoGuarantee(),)
    if combined_shift(event, adjacency) is not None:
        return (GaussianAccountant(event, adjacency),)
    pure = PureAccountant(event, adjacency)
    bounded = (pure,) if math.isfinite(pure.largest_loss) else ()
    if ScheduleAccountant.suits(event, adjacency):
        attained = all(single.attained(adjacency) for single, _ in terms(event))
        # where no mechanism has the pair's curve, moments of the event itself can be below those of the pair
        moments = [] if attained else _moment_accountants(event, adjacency)[0]
        return (_pld(event, adjacency), *moments, *bounded)
    found, reason = _moment_accountants(event, adjacency)
    if reason and not found:
        raise reason
    return (*found, *bounded)


def _moment_accountants(event: Event, adjacency: Adjacency) -> tuple[list[Accountant], Unknown | None]:
    """Those of Renyi and zCDP that know the event, and why the first one that does not know it does not."""
    found: list[Accountant] = []
    reason: Unknown | None = None
    for make in (RdpAccountant, ZcdpAccountant):
        try:
            found.append(make(event, adjacency))
        except Unknown as error:
            reason = reason or error
    return found, reason


def _pld(event: Event, adjacency: Adjacency) -> Accountant:
    return (ScheduleAccountant if many_different(event, adjacency) else PldAccountant)(event, adjacency)


class RunningCost:
    """Epsilon of `spent` and of a number of steps.

    A step is repeated with fresh noise; a stream, whose noise is shared between rounds, is one event for its first n
    rounds.

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
