"""Gaussian releases in which the unit moves the sum by a random amount: matrix mechanisms with sampling, and the like.

The unit moves the sum by v_i with probability p_i, where |v_i| <= s_i, and the choice is independent of everything
else: the other units' contributions, the noise, what was released before. Adding, removing or blanking the unit is then
dominated by the mixture of N(s_i, std^2) against N(0, std^2), in both directions; see
docs/explanation/mixture-of-gaussians.md for the proof, and Choquette-Choo, Ganesh, Steinke and Thakurta 2024, "Privacy
Amplification for Matrix Mechanisms", for the use. For replacing the unit no such pair is proven here: the cost is that
of an observer who knows i, without amplification, each v_i moving to another vector at distance 2 s_i at most.

>>> event = MixtureOfGaussians(noise_std=1.0, sensitivities=(0.0, 1.0), probabilities=(0.99, 0.01))
>>> from sfumato.accounting.guarantees import guarantee
>>> round(guarantee(event * 1000).epsilon(1e-5), 2)         # sampling with q = 0.01 is the special case
1.83

**Pair.** In units of the noise: P is the mixture of N(s_i, 1) with weights w_i and Q = N(0, 1) for removing a unit; the
same two, exchanged, for adding one (Choquette-Choo, Ganesh, Steinke and Thakurta 2024, "Privacy Amplification for
Matrix Mechanisms", Section 4). Since no s_i is negative, the loss rises with the observation u, and a cell of losses is
an interval of u. The inverse of the loss has no closed form; Newton's method finds it from above, where it cannot
overshoot because the loss is convex. What is left of the equation is added to the error of the cells.

>>> pair = MixedGaussian("remove", shifts=(0.0, 1.0), weights=(0.5, 0.5))
>>> upper, lower, _ = pair.cells(np.array([-np.inf, 0.0, np.inf]))      # likelier under Q or under P: u = 1/2
>>> upper.round(4).tolist(), lower.round(4).tolist()
([0.5, 0.5], [0.6915, 0.3085])

**Log moments,** the quantity under its Renyi bounds. `excess` is E_Q[(P/Q)^a] - 1, computed as a sum of positive terms
on logarithms (see `logs`), by a trapezoid rule. The likelihood ratio of the mixture has no zero closer to the real line
than pi / (largest shift - smallest shift), so the rule converges exponentially. Orders for which it would need too many
points get an upper bound in closed form: the excess of an observer who knows which shift it was.

>>> orders = np.array([2.0, 3.0])
>>> log_excess_mixture(orders, (0.0, 1.0), (0.99, 0.01), "remove").round(6)      # q = 0.01, see sampled_gaussian
array([-8.669016, -7.543737])
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Composition, Event, event_kind, require_grid
from sfumato.accounting.loss.renyi import renyi_from_log_excess
from sfumato.accounting.numerics import EPS, inverse_square, log_bregman, log_expm1, log_sum, times_exp
from sfumato.accounting.pair import Labelled, Pair
from sfumato.accounting.sampled_pair import MOST_POINTS, PAIR_REACH, REACH, SampledGaussian, normal_masses

_FAR = 40.0  # standard deviations beyond which a normal distribution has no mass that a double can hold


@dataclass(frozen=True)
class MixedGaussian:
    """A mixture of normal distributions against one.

    Attributes:
        direction: "remove" (the mixture is P) or "add" (it is Q).
        shifts: different numbers >= 0 in rising order, the last one > 0.
        weights: their probabilities > 0; divided by their sum.
    """

    direction: Literal["remove", "add"]
    shifts: tuple[float, ...]
    weights: tuple[float, ...]

    def span(self) -> tuple[float, float]:
        low, high = (float(value) for value in self._loss(np.array([-PAIR_REACH, PAIR_REACH + self.shifts[-1]])))
        return (low, high) if self.direction == "remove" else (-float(self._loss(np.array([PAIR_REACH]))[0]), -low)

    def bulk(self) -> float:
        if self.direction == "add":
            return -float(self._loss(np.zeros(1))[0])
        likeliest = max(range(len(self.shifts)), key=lambda index: self.weights[index])
        return float(self._loss(np.array([self.shifts[likeliest]]))[0])

    def atom(self) -> float:
        return 0.0

    def infinity(self) -> float:
        return 0.0

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if self.direction == "add":  # the same cells seen from the other side: losses change sign and order
            mixed, base, error = MixedGaussian("remove", self.shifts, self.weights).cells(-edges[::-1])
            return base[::-1], mixed[::-1], times_exp(error[::-1], edges[1:])
        u, off = self._observation(edges)
        base, base_error = normal_masses(u)
        mixed, mixed_error = np.zeros((2, len(base)))
        for shift, weight in zip(self.shifts, self._shares()):
            moved, moved_error = normal_masses(u - shift)
            mixed += weight * moved
            mixed_error += weight * moved_error
        misplaced = np.maximum(off[:-1], off[1:])
        error = mixed_error + misplaced * mixed + times_exp(base_error + misplaced * base, edges[1:])
        return mixed, base, error

    def _shares(self) -> tuple[float, ...]:
        total = float(np.sum(self.weights))
        return tuple(weight / total for weight in self.weights)

    def _moving(self) -> tuple[np.ndarray, np.ndarray]:
        """The shifts > 0 and their probabilities."""
        first = 1 if self.shifts[0] == 0.0 else 0
        return np.array(self.shifts[first:]), np.array(self._shares()[first:])

    def _loss(self, u: np.ndarray) -> np.ndarray:
        shifts, shares = self._moving()
        log_moved, _ = _log_sum(u, shifts, shares)
        if len(shifts) == len(self.shifts):
            return log_moved
        excess = np.zeros(len(u))  # of the likelihood ratio over one: precise where the unit hardly ever takes part
        highest = np.full(len(u), -np.inf)
        for shift, share in zip(shifts, shares):
            part = shift * u - shift**2 / 2
            excess += share * np.expm1(np.minimum(part, 1.0))
            np.maximum(highest, part, out=highest)
        large = np.logaddexp(np.log(self._shares()[0]), log_moved)
        return np.where(highest < 1.0, np.log1p(excess), large)

    def _observation(self, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The u at which P/Q of the remove pair is e^loss, -inf below its support, and by how much e^loss may be off
        there, relatively.
        """
        shifts, shares = self._moving()
        moved = 1.0 if len(shifts) == len(self.shifts) else float(shares.sum())
        target = loss
        if moved < 1.0:  # the loss that the moving parts alone must reach: e^target = e^loss - (1 - moved)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                small = np.log(moved) + np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / moved, -1.0))
                large = loss + np.log1p(-(1 - moved) * np.exp(-loss))
            target = np.where(loss < 30.0, small, large)
        u = np.full(len(target), np.inf)
        for shift, share in zip(shifts, shares):
            np.minimum(u, (target - np.log(share) + shift**2 / 2) / shift, out=u)
        u = np.clip(u, -_FAR, self.shifts[-1] + _FAR)
        active = np.flatnonzero(np.isfinite(target))
        for _ in range(100):
            value, slope = _log_sum(u[active], shifts, shares)
            step = np.clip((value - target[active]) / slope, 0.0, u[active] + _FAR)
            u[active] -= step
            active = active[step > 2 * EPS * (1.0 + np.abs(u[active]))]
            if not len(active):
                break
        inside = np.flatnonzero((u > -_FAR) & (u < self.shifts[-1] + _FAR))
        off = np.zeros(len(u))
        value, _ = _log_sum(u[inside], shifts, shares)
        share_moved = np.exp(np.minimum(target[inside] - loss[inside], 0.0))
        round_off = 2 * EPS * (1.0 + shifts[-1] * np.abs(u[inside]) + shifts[-1] ** 2 / 2)
        off[inside] = share_moved * (np.abs(value - target[inside]) + round_off)
        return np.where(np.isinf(target), target, u), off


def _log_sum(u: np.ndarray, shifts: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log of the sum of shares * e^(s u - s^2/2), and its slope in u; one part at a time, as there may be thousands."""
    starts = np.log(shares) - shifts**2 / 2
    top = np.full(len(u), -np.inf)
    for start, shift in zip(starts, shifts):
        np.maximum(top, start + shift * u, out=top)
    total, slope = np.zeros((2, len(u)))
    for start, shift in zip(starts, shifts):
        part = np.exp(start + shift * u - top)
        total += part
        slope += shift * part
    return top + np.log(total), slope / total


def log_excess_mixture(
    orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...], direction: Literal["remove", "add"]
) -> np.ndarray:
    """An upper bound on log(E_Q[(P/Q)^a] - 1), exact up to round-off where the orders are not huge.

    Args:
        orders: float [k], each > 1.
        shifts: different numbers >= 0 in rising order, the last one > 0, in units of the noise.
        weights: their probabilities.
        direction: "remove" for P = sum of w_i N(s_i, 1) and Q = N(0, 1), "add" for the same two exchanged.

    Returns:
        float [k].
    """
    integral = _remove(orders, shifts, weights) if direction == "remove" else _add(orders, shifts, weights)
    return np.minimum(integral, log_excess_revealed(orders, shifts, weights))


def log_excess_revealed(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """The same for somebody who sees which shift was drawn: the weighted sum of the Gaussian ones."""
    total = np.full(len(orders), -np.inf)
    for shift, weight in zip(shifts, weights):
        if shift > 0:
            total = np.logaddexp(
                total, np.log(weight) + log_expm1(np.maximum(orders * (orders - 1) * shift**2 / 2, 1e-300))
            )
    return total


def _remove(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    top = shifts[-1]
    step = min(0.5, 0.45 / top)
    points = np.minimum((2 * REACH + orders * top) / step, 1e18).astype(int) + 1
    result = np.full(len(orders), np.inf)
    feasible = points <= MOST_POINTS
    u = -REACH + step * np.arange(points[feasible].max(initial=0))
    log_ratio = log_mixture(u, shifts, weights)
    log_weight = -u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
    for index in np.flatnonzero(feasible):
        used = points[index]
        result[index] = log_sum(log_bregman(log_ratio[:used], float(orders[index])) + log_weight[:used])
    return result


def _add(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    top = shifts[-1]
    result = np.full(len(orders), np.inf)
    for index, (order, peak) in enumerate(zip(orders.tolist(), _peaks(orders, shifts, weights).tolist())):
        step = min(0.4, 0.2 / top, 0.4 / np.sqrt(1.0 + order * top**2 / 4))
        low, high = peak - REACH, REACH + top
        if peak < -2 * REACH:  # what lies around zero is nothing next to it
            high = peak + REACH
        if (high - low) / step > MOST_POINTS:
            continue
        u = np.arange(low, high, step)
        log_ratio = log_mixture(u, shifts, weights)
        log_terms = log_bregman(-log_ratio, order) + log_ratio - u * u / 2 + np.log(step / np.sqrt(2 * np.pi))
        result[index] = log_sum(log_terms)
    return result


def _peaks(orders: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Where (P/Q)^a Q is largest when the mixture is Q; its logarithm is concave in u, so there is one such point."""
    amounts = np.array(shifts)
    low, high = -orders * shifts[-1], np.zeros(len(orders))
    for _ in range(60):
        middle = 0.5 * (low + high)
        terms = np.log(weights) + np.outer(middle, amounts) - amounts**2 / 2
        shares = np.exp(terms - terms.max(axis=1, keepdims=True))
        rises = -middle - (orders - 1) * (shares @ amounts) / shares.sum(axis=1) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    return low


def log_mixture(u: np.ndarray, shifts: tuple[float, ...], weights: tuple[float, ...]) -> np.ndarray:
    """log of the likelihood ratio, sum of w_i e^(s_i u - s_i^2/2); precise where it is near zero."""
    highest, lowest = np.full(len(u), -np.inf), np.full(len(u), np.inf)
    for shift in shifts:  # one at a time, as there may be thousands
        loss = shift * u - shift**2 / 2
        np.maximum(highest, loss, out=highest)
        np.minimum(lowest, loss, out=lowest)
    excess, total = np.zeros((2, len(u)))
    for shift, weight in zip(shifts, weights):
        loss = shift * u - shift**2 / 2
        excess += weight * np.expm1(np.minimum(loss, 1.0))
        total += weight * np.exp(loss - highest)
    idle = weights[0] if shifts[0] == 0.0 else 0.0
    near = (highest < 1.0) & ((lowest > -1.0) | (idle > 0.5))
    return np.where(near, np.log1p(np.maximum(excess, -1.0 + 1e-16)), highest + np.log(total))


_HUGE = 1e100  # shifts whose square no double can hold
_LEAST = 1e-140  # smaller ones are rounded up to it, so that their inverse squares fit
_ROUNDING = 1e-9  # by which the probabilities may miss one; they are divided by their sum


@event_kind("mixture_of_gaussians")
@dataclass(frozen=True, slots=True)
class MixtureOfGaussians(Event):
    """A sum with Gaussian noise that the unit moves by a random amount.

    Attributes:
        noise_std: std of the noise, > 0.
        sensitivities: the most that adding or removing the unit moves the sum in each case, in L2 norm, >= 0 and not
            all zero. Replacing moves it by at most twice that.
        probabilities: how likely each case is, in [0, 1]; they sum to one.
    """

    noise_std: float
    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    unsampled = "a Poisson sample of it is a mixture again; use event.poisson(rate)"
    ranked: ClassVar[Mapping[str, int]] = {"noise_std": -1}
    sampled = True

    def __post_init__(self) -> None:
        positive(noise_std=self.noise_std, remedy="for a run without noise use NonPrivate()")
        amounts = _numbers("sensitivities", self.sensitivities)
        chances = _numbers("probabilities", self.probabilities)
        if len(amounts) != len(chances):
            raise InputError(
                f"sensitivities and probabilities must be of one length, got {len(amounts)} and {len(chances)}"
            )
        for amount, chance in zip(amounts, chances):
            non_negative(sensitivities=amount)
            between(0, 1, probabilities=chance)
        total = math.fsum(chances)
        if abs(total - 1) > _ROUNDING:
            raise InputError(f"probabilities must sum to 1, got a sum of {total:.12g}; add the case of no contribution")
        if not any(amount and chance for amount, chance in zip(amounts, chances)):
            raise InputError("sensitivities must have one > 0 that can happen; leave out an event that moves nothing")
        if math.isinf(float(max(amounts)) / float(self.noise_std)):
            raise InputError(f"noise_std {self.noise_std} is too small for a sensitivity of {max(amounts)}; add noise")
        object.__setattr__(self, "sensitivities", tuple(float(amount) for amount in amounts))
        object.__setattr__(self, "probabilities", tuple(float(chance) for chance in chances))

    def poisson(self, sampling_rate: float) -> Event:
        """The mixture in which the unit takes part with this probability only; see `Event.poisson`."""
        between(0, 1, sampling_rate=sampling_rate)
        if sampling_rate == 0:
            return Composition(())
        if sampling_rate == 1:
            return self
        drawn = tuple(sampling_rate * chance for chance in self.probabilities)
        return MixtureOfGaussians(self.noise_std, (0.0, *self.sensitivities), (1 - sampling_rate, *drawn))

    def gaussian_shift(self, adjacency: Adjacency) -> float | None:
        shifts, _ = self._cases()
        return (2.0 if adjacency == "replace" else 1.0) * shifts[0] if len(shifts) == 1 else None

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        shifts, weights = self._cases()
        require_grid(self, (2.0 if adjacency == "replace" else 1.0) * shifts[-1])
        if adjacency == "replace":
            known = [(weight, SampledGaussian("remove", 1.0, 2 * s)) for s, weight in zip(shifts, weights) if s]
            return (Labelled(tuple(known), idle=weights[0] if shifts[0] == 0 else 0.0),)
        return MixedGaussian("remove", shifts, weights), MixedGaussian("add", shifts, weights)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        shifts, weights = self._cases()
        if shifts[-1] > _HUGE:
            return orders * self.rho(adjacency)
        if adjacency == "replace":
            log_excess = log_excess_revealed(orders, tuple(2 * shift for shift in shifts), weights)
        else:
            removed = log_excess_mixture(orders, shifts, weights, "remove")
            log_excess = np.maximum(removed, log_excess_mixture(orders, shifts, weights, "add"))
        widest = (2.0 if adjacency == "replace" else 1.0) * shifts[-1]
        return np.minimum(renyi_from_log_excess(log_excess, orders, widest), orders * self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        shifts, _ = self._cases()
        return (2.0 if adjacency == "replace" else 0.5) * inverse_square(1 / shifts[-1])

    def attained(self, adjacency: Adjacency) -> bool:
        return adjacency != "replace" or len(self._cases()[0]) == 1  # its pair for replacing reveals which case it was

    def _cases(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Different shifts in units of the noise, in rising order, with their probabilities > 0, which sum to one."""
        chances: dict[float, list[float]] = {}
        for amount, chance in zip(self.sensitivities, self.probabilities):
            if chance:
                chances.setdefault(max(amount / self.noise_std, _LEAST if amount else 0.0), []).append(chance)
        shifts = tuple(sorted(chances))
        total = math.fsum(self.probabilities)
        return shifts, tuple(math.fsum(chances[shift]) / total for shift in shifts)


def _numbers(name: str, values: object) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a tuple of numbers, got {values!r}")
    numbers = tuple(values)
    if not numbers:
        raise InputError(f"{name} must have at least one number, got none")
    return numbers
