"""Randomised numbers: response on bins (Ghazi et al. 2023), and Laplace noise on a public grid.

**Event.** `PureDP(epsilon, "replace")` for one label, in both.

**Response on bins** (ICLR 2023, Algorithm 2), for labels of a few values. Neighbouring values share a bin, and the bin
is reported by plain randomised response, as a number that stands for it. Which bins and which numbers is best follows
from the prior alone. With weights w = e^epsilon within a bin and 1 outside, a bin costs L(bin) = min over z of the sum
of p(y) w loss(z, y) over all y, and d bins the sum of L / (e^epsilon + d - 1).

The paper's dynamic programme has a row for each number of bins. A ratio of two sums over the bins needs none
(Dinkelbach 1967): for the best ratio r so far, the bins that minimise the sum of (L - r) give the next one, and where
that is no better, r is the least. Each step is a programme over n ends, and there are about five.

Values without probability belong to bins like all others. The prior may be private: bins are post-processing.

>>> values = np.array([0.0, 1.0, 2.0, 10.0])
>>> response = BinnedResponse.best(values, np.full(4, 0.25), epsilon=3.0)
>>> response.bins.tolist(), response.outputs.round(2).tolist()
([0, 0, 0, 1], [1.15, 8.83])

**Laplace noise.** A label is rounded, moved into the range, and then one of n evenly spaced values. Discrete Laplace
noise of rate epsilon / (n - 1) is added to its place, since a replaced label moves it by n - 1 at most, and what falls
outside is reported as the nearest end. That is one table of probabilities, which is turned into whole numbers of 64-bit
words. Where rounding would make the ratio of two of a report's weights exceed e^epsilon, the smaller one is raised, at
the cost of the true report's; the table is then checked. Drawing from it is exact.

>>> response = GridLaplace(epsilon=1.0, low=0.0, high=4.0, count=5)
>>> (response.weights()[0] / 2.0**64).astype(float).round(3).tolist()
[0.562, 0.097, 0.075, 0.059, 0.207]
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import PureDP
from sfumato.labels.response import WORDS, LabelResponse, most_ratio, require_epsilon, require_labels, require_prior

Loss = Literal["squared", "absolute", "poisson"]
MOST_VALUES = 2048
"""The costs of all bins are held at once: n² numbers."""


_STEPS = 100  # of Dinkelbach; each makes the ratio smaller, and there are finitely many


@dataclass(frozen=True, kw_only=True, eq=False)
class BinnedResponse:
    """The response to a number.

    Attributes:
        epsilon: of one label, in [1e-6, 500].
        values: float64 [n], ascending: what a label can be.
        bins: int64 [n], the bin of each value: 0, …, d-1, none of them empty.
        outputs: float64 [d], what is reported for a bin.
    """

    epsilon: float
    values: np.ndarray
    bins: np.ndarray
    outputs: np.ndarray

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_values(self.values)
        steps = np.diff(self.bins)
        if len(self.bins) != len(self.values) or self.bins[0] or not np.isin(steps, (0, 1)).all():
            raise InputError("bins must begin with 0 and go up by 0 or 1 from each value to the next")
        if len(self.outputs) != self.bins[-1] + 1:
            raise InputError(f"outputs must have one number for each of {self.bins[-1] + 1} bins")

    @classmethod
    def best(cls, values: np.ndarray, prior: np.ndarray, *, epsilon: float, loss: Loss = "squared") -> "BinnedResponse":
        """The response with the least expected loss for labels that follow the prior.

        Args:
            values: float [n], ascending, n <= 2048.
            prior: float [n].
            epsilon: of one label.
            loss: squared, absolute, or poisson (z - y log z, for values >= 0).

        Raises:
            InputError: an argument is out of range.
        """
        values = require_values(values)
        require_epsilon(epsilon)
        require_prior(np.asarray(prior), len(values))
        _check.one_of(_BEST, loss=loss)
        if loss == "poisson" and values[0] < 0:
            raise InputError(f"for the Poisson loss values must be >= 0, got {values[0]:g}; take another loss")
        prior = np.asarray(prior, np.float64)
        costs, outputs = _BEST[loss](values, prior / prior.sum(), math.exp(-epsilon))
        ends = _partition(costs, math.exp(-epsilon))
        bins = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        return cls(epsilon=epsilon, values=values, bins=bins, outputs=outputs(ends[:-1], ends[1:]))

    @classmethod
    def plain(cls, values: np.ndarray, *, epsilon: float) -> "BinnedResponse":
        """Randomised response on the values themselves."""
        values = require_values(values)
        return cls(epsilon=epsilon, values=values, bins=np.arange(len(values)), outputs=values)

    def event(self) -> PureDP:
        """What the report costs one label."""
        return PureDP(float(self.epsilon), "replace")

    def draw(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The reports, float64 [n].

        Args:
            labels: int64 [n], places in `values`.
            words: uint64 [n], uniform and used for nothing else.
        """
        require_labels(labels, len(self.values))
        if len(self.outputs) == 1:
            return np.full(len(labels), self.outputs[0])
        return self.outputs[self._response().draw(self.bins[labels], words)]

    def weights(self) -> np.ndarray:
        """How many of the 2^64 words turn each value into each report: whole numbers [n, d], as objects."""
        if len(self.outputs) == 1:
            return np.full((len(self.values), 1), 1 << 64, object)
        return self._response().weights()[self.bins]

    def _response(self) -> LabelResponse:
        return LabelResponse(epsilon=self.epsilon, classes=len(self.outputs), size=len(self.outputs))


def require_values(values: np.ndarray) -> np.ndarray:
    """The values of a label as float64.

    Raises:
        InputError: they are not two or more finite numbers in ascending order, or too many.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not 2 <= len(values) <= MOST_VALUES:
        raise InputError(f"values must be 2 to {MOST_VALUES} numbers, got shape {list(values.shape)}")
    if not np.isfinite(values).all() or not (np.diff(values) > 0).all():
        raise InputError("values must be finite and ascending, each once")
    return values


def _partition(costs: np.ndarray, small: float) -> np.ndarray:
    """The ends of the bins of the least ratio: 0, …, n.

    Args:
        costs: [n+1, n+1], of a bin from the row's place up to before the column's, divided by e^epsilon.
        small: e^-epsilon.
    """
    count = len(costs) - 1
    ends = np.array([0, count])
    ratio = float(costs[0, count])
    for _ in range(_STEPS):
        total, first = np.zeros(count + 1), np.zeros(count + 1, np.int64)
        for end in range(1, count + 1):
            reached = total[:end] + costs[:end, end]
            first[end] = reached.argmin()
            total[end] = reached[first[end]] - ratio * small
        found = [count]
        while found[-1]:
            found.append(int(first[found[-1]]))
        new = np.array(found[::-1])
        better = _ratio(costs, new, small)
        if better >= ratio:
            return ends
        ends, ratio = new, better
    return ends


def _ratio(costs: np.ndarray, ends: np.ndarray, small: float) -> float:
    return float(costs[ends[:-1], ends[1:]].sum() / (1 + (len(ends) - 2) * small))


Outputs = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _sums(terms: np.ndarray, small: float) -> np.ndarray:
    """Weighted sums for all bins, divided by e^epsilon: [n+1, n+1]."""
    up_to = np.concatenate([[0.0], np.cumsum(terms)])
    return (1 - small) * (up_to[None, :] - up_to[:, None]) + small * up_to[-1]


def _about_the_mean(
    values: np.ndarray,
    prior: np.ndarray,
    small: float,
    loss: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, Outputs]:
    """For losses whose best number is the weighted mean."""
    mass, moment = _sums(prior, small), _sums(prior * values, small)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.clip(np.where(mass > 0, moment / mass, values[0]), values[0], values[-1])
    return loss(mass, moment, means), lambda start, end: means[start, end]


def _squared(values: np.ndarray, prior: np.ndarray, small: float) -> tuple[np.ndarray, Outputs]:
    middle = float(prior @ values)  # so that squares do not cancel far from zero
    shifted = values - middle
    square = _sums(prior * shifted**2, small)

    def loss(mass: np.ndarray, moment: np.ndarray, means: np.ndarray) -> np.ndarray:
        return square - mass * means**2

    costs, outputs = _about_the_mean(shifted, prior, small, loss)
    return np.maximum(costs, 0.0), lambda start, end: outputs(start, end) + middle


def _poisson(values: np.ndarray, prior: np.ndarray, small: float) -> tuple[np.ndarray, Outputs]:
    # Up to a constant of each value, which would change the ratio, so it stays in: the deviance is >= 0.
    least = _sums(prior * (values - values * np.log(np.where(values > 0, values, 1.0))), small)

    def loss(mass: np.ndarray, moment: np.ndarray, means: np.ndarray) -> np.ndarray:
        return mass * means - moment * np.log(np.where(means > 0, means, 1.0)) - least

    return _about_the_mean(values, prior, small, loss)


def _absolute(values: np.ndarray, prior: np.ndarray, small: float) -> tuple[np.ndarray, Outputs]:
    count = len(values)
    mass, moment = (np.concatenate([[0.0], np.cumsum(terms)]) for terms in (prior, prior * values))
    start, end = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]

    def up_to(sums: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Of the values before a place, weighted."""
        return (1 - small) * (sums[np.clip(place, start, np.maximum(end, start))] - sums[start]) + small * sums[place]

    whole = up_to(mass, np.full((count + 1, count + 1), count))
    low, high = np.zeros_like(whole, dtype=np.int64), np.full(whole.shape, count - 1)
    for _ in range(count.bit_length()):  # the first value with half of the mass up to it
        place = (low + high) // 2
        reached = up_to(mass, place + 1) >= whole / 2
        low, high = np.where(reached, low, np.minimum(place + 1, high)), np.where(reached, place, high)
    medians = values[high]
    below, at = up_to(mass, high), up_to(moment, high)
    everything = up_to(moment, np.full_like(high, count))
    costs = medians * below - at + (everything - at) - medians * (whole - below)
    return costs, lambda first, last: medians[first, last]


_BEST: dict[str, Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, Outputs]]] = {
    "squared": _squared,
    "absolute": _absolute,
    "poisson": _poisson,
}


@dataclass(frozen=True, kw_only=True)
class GridLaplace:
    """The response to a number.

    Attributes:
        epsilon: of one label, in [1e-6, 40]; beyond, 64 bits do not hold the tails.
        low, high: the range.
        count: of values, both ends included, in [2, 2048].
    """

    epsilon: float
    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.between(0, 40, epsilon=self.epsilon, remedy="beyond, 64 bits do not hold the tails")
        _check.whole(at_least=2, count=self.count)
        _check.between(2, MOST_VALUES, count=self.count)
        if not -np.inf < self.low < self.high < np.inf:
            raise InputError(f"low must be below high, and both finite, got {self.low:g} and {self.high:g}")

    @property
    def values(self) -> np.ndarray:
        """The grid, float64 [count]."""
        return np.linspace(self.low, self.high, self.count)

    def event(self) -> PureDP:
        """What the report costs one label."""
        return PureDP(float(self.epsilon), "replace")

    def draw(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The reports, float64 [n].

        Args:
            labels: int64 [n], places in `values`.
            words: uint64 [n], uniform and used for nothing else.
        """
        require_labels(labels, self.count)
        ends = _ends(self.epsilon, self.count)
        low, high = np.zeros(len(labels), np.int64), np.full(len(labels), self.count - 1)
        for _ in range((self.count - 1).bit_length()):  # the first report whose words end behind this one
            middle = (low + high) // 2
            found = (low < high) & (ends[labels, np.minimum(middle, self.count - 2)] <= words)
            low, high = np.where(found, middle + 1, low), np.where(found | (low == high), high, middle)
        return self.values[low]

    def weights(self) -> np.ndarray:
        """How many of the 2^64 words turn each value into each report: whole numbers [n, n], as objects."""
        ends = _ends(self.epsilon, self.count).astype(object)
        bounds = np.concatenate([np.zeros((self.count, 1), object), ends, np.full((self.count, 1), WORDS)], axis=1)
        return np.diff(bounds, axis=1)


@functools.lru_cache(maxsize=1)
def _ends(epsilon: float, count: int) -> np.ndarray:
    """Where the words of each report but the last one end, for each value: uint64 [n, n-1]."""
    rate = epsilon / (count - 1)
    place = np.arange(count)
    shape = np.full(count, np.tanh(rate / 2))  # (1 - q) / (1 + q)
    shape[[0, -1]] = 1 / (1 + np.exp(-rate))  # and all that lies beyond the ends
    chances = np.exp(-rate * np.abs(place[:, None] - place)) * shape
    np.fill_diagonal(chances, 0.0)
    weights = (chances * float(WORDS)).astype(np.uint64)
    np.fill_diagonal(weights, _rest(weights))
    ratio = most_ratio(epsilon)
    least = [-(-int(most) * ratio.denominator // ratio.numerator) for most in weights.max(axis=0)]
    weights = np.maximum(weights, np.array(least, np.uint64))
    np.fill_diagonal(weights, 0)
    np.fill_diagonal(weights, _rest(weights))
    for most, smallest in zip(weights.max(axis=0).tolist(), weights.min(axis=0).tolist(), strict=True):
        if most > ratio * smallest:
            raise InputError(f"{count} values are too many for epsilon {epsilon:g}; take fewer")
    return np.cumsum(weights[:, :-1], axis=1, dtype=np.uint64)


def _rest(weights: np.ndarray) -> np.ndarray:
    """What is left of the 2^64 words in each row: uint64, which counts modulo 2^64."""
    return np.uint64(0) - weights.sum(axis=1, dtype=np.uint64)
