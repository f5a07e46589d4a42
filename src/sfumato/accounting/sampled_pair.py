"""The pair of a mechanism on a sample, and the moments of the subsampled Gaussian.

**Of a Gaussian release.** All pairs are monotone in the observation u (in units of the noise), so a cell of losses is
an interval of u and its masses are differences of normal distribution functions, taken from whichever tail is smaller.

- remove: P = (1-q) N(0,1) + q N(s,1) against Q = N(0,1), with s = sensitivity / std of the noise;
- add: the same two, exchanged (Zhu, Dong and Wang 2022, Theorem 11);
- replace, Poisson sampling: P = (1-q) N(0,1) + q N(s,1) against Q = (1-q) N(0,1) + q N(-s,1). Conditioned on the
  unit being drawn, one side is N(s,1) against a mixture whose components are at distance at most s and 2s;
- exchange (fixed-size sample, replacement): the remove curve above loss zero in both directions, the rest at
zero.

>>> pair = SampledGaussian("remove", rate=1.0, shift=1.0)
>>> upper, lower, error = pair.cells(np.array([-50.0, 0.5, 50.0]))   # N(1,1) and N(0,1) below and above u = 1
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.5, 0.5], [0.8413, 0.1587])

**Of any mechanism,** from its pair (P, Q):

- remove: (1-q) Q + q P against Q, where (P, Q) dominates removing a unit; add: P against (1-q) P + q Q, where (P, Q)
  dominates adding one (Zhu, Dong and Wang 2022, Theorem 11). Sampling is Poisson's.
- exchange, for a sample of fixed size and the replacement of a unit: the remove curve above loss zero, in both
  directions, where (P, Q) dominates replacing a unit (Balle, Barthe and Gaboardi 2018, Theorem 11). It is symmetric;
  what is left of the two masses lies at a loss of zero.

The loss of the sampled pair rises with that of the base, l = log(1 - q + q e^l') for remove, so a cell of its losses is
a cell of the base. What only Q has, at l' = -inf, gets the finite loss log(1 - q), and the other way round for add.

>>> from sfumato.accounting.events.laplace import LaplacePair
>>> pair = SampledPair("remove", 0.5, LaplacePair(1.0))
>>> low, high = pair.span()
>>> round(low, 4), round(high, 4)                    # log((1 + e^-1) / 2), log((1 + e) / 2)
(-0.3799, 0.6201)

**Log moments** of the subsampled Gaussian, the quantity under every Renyi bound, for any rate and noise. For a pair (P,
Q), `excess` is E_Q[(P/Q)^a] - 1. It is computed as a sum of positive terms, never as a difference from one, so it keeps
its relative precision when it is 1e-18 (rates of 1e-9) and works on logarithms, so it does not overflow when it is
e^1e8 (noise multipliers of 0.1). Integer orders use the binomial sum of Mironov, Talwar and Zhang 2019 (Section 3.3);
fractional orders a trapezoid rule, which converges exponentially because the integrand is analytic in a strip of
half-width pi * z.

>>> log_excess_sampled_gaussian(np.array([2.0]), 0.01, 1.0).round(6)   # log(q^2 (e - 1))
array([-8.669016])
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato._lazy import scipy
from sfumato.accounting.numerics import (
    EPS,
    LEAST_RATE,
    grid_rate,
    inverse_square,
    log_bregman,
    log_expm1,
    log_mix,
    log_sum,
    round_off,
    times_exp,
)
from sfumato.accounting.pair import Pair

Direction = Literal["remove", "add", "replace", "exchange"]
PAIR_REACH = 13.0
"""Standard deviations that a grid covers: a normal variable is beyond them with probability 6e-39."""


@dataclass(frozen=True)
class SampledGaussian:
    """A Gaussian release on a sample; `rate` is q in (0, 1], `shift` is s > 0."""

    direction: Direction
    rate: float
    shift: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", grid_rate(self.rate))

    def span(self) -> tuple[float, float]:
        reach, s = PAIR_REACH, self.shift
        top = float(self._loss(np.array(reach + s)))
        match self.direction:
            case "remove":
                return float(self._loss(np.array(-reach))), top
            case "add":
                return -float(self._loss(np.array(reach))), -float(self._loss(np.array(-reach)))
            case "replace":
                return -float(self._loss_replace(np.array(reach))), float(self._loss_replace(np.array(reach + s)))
            case "exchange":
                return -top, top

    def bulk(self) -> float:
        match self.direction:
            case "remove":
                return float(self._loss(np.array(self.shift if self.rate > 0.5 else 0.0)))
            case "add":
                return -float(self._loss(np.array(0.0)))
            case "replace":
                return float(self._loss_replace(np.array(self.shift))) if self.rate > 0.5 else 0.0
            case "exchange":
                return 0.0

    def atom(self) -> float:
        if self.direction != "exchange":
            return 0.0
        upper, lower, _ = SampledGaussian("remove", self.rate, self.shift).cells(np.array([0.0, np.inf]))
        return max(0.0, 1.0 - float(upper[0]) - float(lower[0]))

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        match self.direction:
            case "remove":
                u = self._observation(edges)
                base, base_error = normal_masses(u)
                moved, moved_error = normal_masses(u - self.shift)
                mix = (1 - self.rate) * base + self.rate * moved
                mix_error = (1 - self.rate) * base_error + self.rate * moved_error
                return mix, base, mix_error + times_exp(base_error, edges[1:])
            case "add":  # the same cells seen from the other side: losses change sign and order
                base, mix, error = SampledGaussian("remove", self.rate, self.shift).cells(-edges[::-1])
                return mix[::-1], base[::-1], times_exp(error[::-1], edges[1:])
            case "replace":
                u = self._observation_replace(edges)
                base, base_error = normal_masses(u)
                right, right_error = normal_masses(u - self.shift)
                left, left_error = normal_masses(u + self.shift)
                upper = (1 - self.rate) * base + self.rate * right
                lower = (1 - self.rate) * base + self.rate * left
                upper_error = (1 - self.rate) * base_error + self.rate * right_error
                lower_error = (1 - self.rate) * base_error + self.rate * left_error
                return upper, lower, upper_error + times_exp(lower_error, edges[1:])
            case "exchange":
                return self._exchange(edges)

    def _exchange(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one_way = SampledGaussian("remove", self.rate, self.shift)
        above, below = np.maximum(edges, 0.0), np.maximum(-edges[::-1], 0.0)
        upper, lower, error = one_way.cells(above)
        error = np.where(above[1:] > above[:-1], error, 0.0)  # nothing is below zero on this side
        mirror_upper, mirror_lower, mirror_error = one_way.cells(below)
        mirror_error = np.where(below[1:] > below[:-1], mirror_error, 0.0)
        upper, lower = upper + mirror_lower[::-1], lower + mirror_upper[::-1]
        error = error + times_exp(mirror_error[::-1], np.minimum(edges[1:], 0.0))
        return upper, lower, error

    def _loss(self, u: np.ndarray) -> np.ndarray:
        t = self.shift * u - self.shift**2 / 2
        if self.rate == 1.0:
            return t
        small = np.log1p(self.rate * np.expm1(np.minimum(t, 1.0)))
        return np.where(t < 1.0, small, np.logaddexp(np.log1p(-self.rate), np.log(self.rate) + t))

    def _loss_replace(self, u: np.ndarray) -> np.ndarray:
        return self._loss(u) - self._loss(-u)

    def _observation(self, loss: np.ndarray) -> np.ndarray:
        """The u at which P/Q of the remove pair is e^loss; -inf below its support."""
        q = self.rate
        if q == 1.0:
            t = loss
        else:
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / q, -1.0))
                large = loss - np.log(q) + np.log1p(-(1 - q) * np.exp(-loss))
            t = np.where(loss < 30.0, small, large)
        return t / self.shift + self.shift / 2

    def _observation_replace(self, loss: np.ndarray) -> np.ndarray:
        """From c w^2 + (1-q)(1 - e^loss) w - c e^loss = 0 with w = e^(s u) and c = q e^(-s^2/2)."""
        log_c = np.log(self.rate) - self.shift**2 / 2
        with np.errstate(over="ignore"):
            ratio = (1 - self.rate) * np.sinh(np.clip(loss, -1200, 1200) / 2) * np.exp(-log_c)
        return (loss / 2 + np.arcsinh(ratio)) / self.shift


def normal_masses(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Masses of N(0,1) between neighbouring edges, and a bound on their absolute error."""
    below, above = scipy.special.ndtr(edges), scipy.special.ndtr(-edges)
    masses = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    finite = np.where(np.isfinite(edges), edges, 0.0)
    error = 2 * EPS * (1 + finite * finite) * np.minimum(below, above)
    return np.maximum(masses, 0.0), error[:-1] + error[1:]


_TAIL = 512 * EPS  # relative error of the base's masses in a cell that has no upper end


@dataclass(frozen=True)
class SampledPair:
    """`base` on a sample; `rate` is q in (0, 1), at most `NEXT_TO_ONE`."""

    direction: Literal["remove", "add", "exchange"]
    rate: float
    base: Pair

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", max(self.rate, LEAST_RATE))

    def span(self) -> tuple[float, float]:
        low, high = self.base.span()
        least = math.log1p(-self.rate)  # the loss of what only Q has
        one_sided = self.base.infinity() > 0
        if self.direction == "add":
            return -float(self._loss(-low)), -least if one_sided else -float(self._loss(-high))
        top = float(self._loss(high))
        if self.direction == "exchange":
            return -top, top
        # Q lies lower than P does, as far down as P reaches up if the base is symmetric
        return least if one_sided else float(self._loss(min(low, -high))), top

    def bulk(self) -> float:
        match self.direction:
            case "remove":
                return float(self._loss(self.base.bulk() if self.rate > 0.5 else -self.base.bulk()))
            case "add":
                return -float(self._loss(-self.base.bulk()))
            case "exchange":
                return 0.0

    def atom(self) -> float:
        if self.direction != "exchange":
            return self.base.atom()
        upper, lower, _ = SampledPair("remove", self.rate, self.base).cells(np.array([0.0, np.inf]))
        return max(0.0, 1.0 - float(upper[0]) - float(lower[0]))

    def infinity(self) -> float:
        return 0.0 if self.direction == "add" else self.rate * self.base.infinity()

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = self.rate
        match self.direction:
            case "remove":
                inner = self._base_loss(edges)
                upper, lower, error = self.base.cells(inner)
                mixed = (1 - q) * lower + q * upper
                # e^l - (1-q) = q e^l', so what the base errs in Q e^l' - P counts q times
                return mixed, lower, q * error + round_off(mixed, lower, edges[1:])
            case "add":
                inner = -self._base_loss(-edges)
                upper, lower, error = self.base.cells(inner)
                mixed = (1 - q) * upper + q * lower
                ends, known = edges[1:], np.isfinite(inner[1:])
                tail = times_exp(_TAIL * (upper + lower), ends)
                error = np.where(known, times_exp(q * error, ends - np.where(known, inner[1:], 0.0)), tail)
                return upper, mixed, error + round_off(upper, mixed, ends)
            case "exchange":
                return self._exchange(edges)

    def _exchange(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one_way = SampledPair("remove", self.rate, self.base)
        above, below = np.maximum(edges, 0.0), np.maximum(-edges[::-1], 0.0)
        upper, lower, error = one_way.cells(above)
        # seen from the other side, (x, y] becomes [-y, -x): an atom on an edge changes its cell
        below = np.where(np.isinf(below), below, np.nextafter(below, 0.0))
        mirror_upper, mirror_lower, mirror_error = one_way.cells(below)
        upper, lower = upper + mirror_lower[::-1], lower + mirror_upper[::-1]
        return upper, lower, error + times_exp(mirror_error[::-1], np.minimum(edges[1:], 0.0))

    def _loss(self, base_loss: float) -> np.ndarray:
        """log(1 - q + q e^l')."""
        t, q = np.float64(base_loss), self.rate
        if t < 1.0:
            return np.log1p(q * np.expm1(t))
        return np.logaddexp(math.log1p(-q), math.log(q) + t)

    def _base_loss(self, loss: np.ndarray) -> np.ndarray:
        """The l' at which the sampled loss is l; -inf at log(1 - q) and below."""
        q = self.rate
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / q, -1.0))
            large = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 1.0)))
        return np.where(loss < 30.0, small, large)


REACH = 39.0
"""Standard deviations beyond which the normal density is below the smallest double."""


MOST_POINTS = 200_000
"""Of a trapezoid rule."""


def log_excess_sampled_gaussian(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for P = (1-q) N(0, z^2) + q N(1, z^2) and Q = N(0, z^2).

    Args:
        orders: float [k], each > 1.
        rate: q in (0, 1].
        noise_multiplier: z > 0.

    Returns:
        float [k].
    """
    noise_multiplier = min(noise_multiplier, 1e100)  # less noise costs more, and nothing underflows
    result = np.empty(len(orders))
    is_whole = orders == np.floor(orders)
    result[is_whole] = _binomial(orders[is_whole].astype(int), rate, noise_multiplier)
    result[~is_whole] = _trapezoid(orders[~is_whole], rate, noise_multiplier)
    return result


def _binomial(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    if rate == 1.0:
        return log_expm1(orders * (orders - 1.0) * (inverse_square(noise_multiplier) / 2))
    result = np.empty(len(orders))
    k = np.arange(orders.max(initial=2) + 1, dtype=np.float64)
    log_factorial = scipy.special.gammaln(k + 1)
    drawn = k[2:] * np.log(rate) - log_factorial[2:]
    drawn += log_expm1((k[2:] - 1) * k[2:] * (inverse_square(noise_multiplier) / 2))
    absent = (k * np.log1p(-rate) - log_factorial)[::-1]
    for index, order in enumerate(orders):
        log_terms = drawn[: order - 1] + absent[len(k) - order + 1 :]
        result[index] = log_sum(log_terms) + log_factorial[order]
    return result


def _trapezoid(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    step = min(0.5, 0.45 * noise_multiplier)
    with np.errstate(over="ignore"):  # inf where the noise is next to nothing
        points = (2 * REACH + orders / noise_multiplier) / step + 1
    feasible = points <= MOST_POINTS  # of each order by itself: a large one must not cost the small ones their digits
    result = np.empty(len(orders))
    result[~feasible] = from_above(orders[~feasible], rate, noise_multiplier)
    if not feasible.any():
        return result
    u = -REACH + step * np.arange(int(points[feasible].max()))
    log_ratio = log_mix(u / noise_multiplier - 1 / (2 * noise_multiplier**2), rate)
    log_weight = -u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
    for index in np.flatnonzero(feasible):
        used = int(points[index])
        result[index] = log_sum(log_bregman(log_ratio[:used], float(orders[index])) + log_weight[:used])
    return result


def from_above(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """Upper bounds on the same without an integral, the smaller of two; also for discrete Gaussian noise.

    The log of a moment is convex in its order, so its chords between whole orders lie above. And x^a is convex, so
    the moment of (1-q) + q r is at most (1-q) + q times that of r. With little noise everybody sees whether the
    unit was drawn, and this one is all but exact at orders next to one.
    """
    below = np.floor(orders)
    ends = []
    for whole in (below, below + 1):
        log_excess = np.full(len(orders), -np.inf)  # the first moment of a ratio is one
        log_excess[whole > 1] = _binomial(whole[whole > 1].astype(int), rate, noise_multiplier)
        ends.append(np.logaddexp(0.0, log_excess))
    with np.errstate(invalid="ignore"):
        chords = ends[0] + (orders - below) * (ends[1] - ends[0])
    chords = log_expm1(np.maximum(np.where(np.isfinite(ends[1]), chords, np.inf), 1e-300))
    return np.minimum(chords, _known_draw(orders, rate, noise_multiplier, shift=1.0))


def _known_draw(orders: np.ndarray, rate: float, noise_multiplier: float, shift: float) -> np.ndarray:
    """log of q times the Gaussian excess: an upper bound, the cost where the attacker knows that the unit was drawn."""
    gaussian = orders * (orders - 1.0) * (shift * shift * inverse_square(noise_multiplier) / 2)
    return np.log(rate) + log_expm1(gaussian)


def log_excess_replace(orders: np.ndarray, rate: float, noise_multiplier: float) -> np.ndarray:
    """log(E_Q[(P/Q)^a] - 1) for P = (1-q) N(0, z^2) + q N(1, z^2) and Q = (1-q) N(0, z^2) + q N(-1, z^2).

    The pair dominates a Poisson-sampled Gaussian under replacement of one unit. Orders that would need more
    than 200,000 points have an upper bound, the smaller of two: the moment is jointly convex in P and Q, so at most
    (1-q) + q times that of N(1, z^2) against N(-1, z^2); and Q is at least (1-q) N(0, z^2), so the moment is at most
    (1-q)^(1-a) times that of P against N(0, z^2).
    """
    noise_multiplier = min(noise_multiplier, 1e100)
    result = _known_draw(orders, rate, noise_multiplier, shift=2.0)
    if rate < 1.0:
        removed = np.logaddexp(0.0, log_excess_sampled_gaussian(orders, rate, noise_multiplier))
        result = np.minimum(result, log_expm1(removed + (1.0 - orders) * np.log1p(-rate)))
    if noise_multiplier < 1e-3:
        return result
    for index, order in enumerate(orders):
        narrow = 1.0 / np.sqrt(1.0 + order / (4 * noise_multiplier**2))
        step = min(0.4, 0.2 * noise_multiplier, 0.4 * narrow)
        low, high = -REACH - 1 / noise_multiplier, REACH + _falls_from(float(order), rate, noise_multiplier)
        if (high - low) / step > MOST_POINTS:
            continue
        u = np.arange(low, high, step)
        half = 1 / (2 * noise_multiplier**2)
        log_base = log_mix(-u / noise_multiplier - half, rate)
        log_ratio = log_mix(u / noise_multiplier - half, rate) - log_base
        log_terms = log_bregman(log_ratio, order) + log_base - u * u / 2 - 0.5 * np.log(2 * np.pi)
        result[index] = log_sum(log_terms) + np.log(step)
    return result


def _falls_from(order: float, rate: float, noise_multiplier: float) -> float:
    """A point from which (P/Q)^a Q of `log_excess_replace` falls at least as fast as a normal density from its mean.

    In units of the noise, log (P/Q)^a Q has the slope -u + (a p + (a-1) s) / z, where p and s <= 1 are the shares of
    N(1, z^2) in P and of N(-1, z^2) in Q at u. From u* + z log a on, (a-1) s <= 1, where N(-1, z^2) and N(0, z^2) weigh
    equal in Q at u*.
    """
    z = noise_multiplier
    equal = z * (np.log(rate) - np.log1p(-rate)) - 1 / (2 * z) if rate < 1.0 else np.inf
    return min((2 * order - 1) / z, max((order + 1) / z, equal + z * np.log(order)))
