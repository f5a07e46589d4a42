"""Gaussian releases in which the unit moves the sum by a random amount: matrix mechanisms with sampling, and the like.

The unit moves the sum by v_i with probability p_i, where |v_i| <= s_i, and the choice is independent of everything
else: the other units' contributions, the noise, what was released before. Adding, removing or blanking the unit is then
dominated by the mixture of N(s_i, std^2) against N(0, std^2), in both directions; see
docs/explanation/mixture-of-gaussians.md for the proof, and Choquette-Choo, Ganesh, Steinke and Thakurta 2024, "Privacy
Amplification for Matrix Mechanisms", for the use. For replacing the unit no such pair is proven here: the cost is that
of somebody who is told i, without amplification, each v_i moving to another vector at distance 2 s_i at most.

>>> event = MixtureOfGaussians(noise_std=1.0, sensitivities=(0.0, 1.0), probabilities=(0.99, 0.01))
>>> from sfumato.accounting.guarantee import guarantee
>>> round(guarantee(event * 1000).epsilon(1e-5), 2)         # sampling with q = 0.01 is the special case
1.83
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, between, non_negative, positive
from sfumato._types import Adjacency
from sfumato.accounting.doubles import inverse_square
from sfumato.accounting.events.event import Composition, Event, event_kind
from sfumato.accounting.events.grid_limits import require_grid
from sfumato.accounting.moments.bounded_pair import renyi_from_log_excess
from sfumato.accounting.moments.mixture import log_excess_mixture, log_excess_revealed
from sfumato.accounting.pairs.labelled import Labelled
from sfumato.accounting.pairs.mixture import MixedGaussian
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.sampled_gaussian import SampledGaussian

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
        object.__setattr__(self, "noise_std", float(self.noise_std))
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
            told = [(weight, SampledGaussian("remove", 1.0, 2 * s)) for s, weight in zip(shifts, weights) if s]
            return (Labelled(tuple(told), idle=weights[0] if shifts[0] == 0 else 0.0),)
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
        return adjacency != "replace" or len(self._cases()[0]) == 1  # its pair for replacing tells which case it was

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
