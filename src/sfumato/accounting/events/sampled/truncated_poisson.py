"""Poisson sampling into batches of a fixed capacity: a sample that is too large is cut to a random part of it.

Whether the other units alone fill the batch is decided by their coins, so it has the same probability with and without
the unit. Where they do not, the unit takes part with the sampling rate and moves the sum by one contribution. Where
they do, it is in the batch with a smaller probability and pushes another unit out, so the sum moves by up to two. The
pair is this lottery of two pairs; docs/explanation/truncated-poisson.md has the proof for adding, removing, replacing
and blanking a unit. Ganesh 2025, "Tighter Privacy Analysis for Truncated Poisson Sampling" (arXiv 2508.15089), splits
the cases in the same way.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> step = truncated_poisson_sample(Gaussian(1.0), 0.01, max_batch=120, population=10_000)
>>> round(step.chance_of_full_batch, 4)
0.0275
"""

from dataclasses import dataclass

import numpy as np
import scipy

from sfumato._check import InputError, between, whole
from sfumato._types import Adjacency
from sfumato.accounting.events.claims import NonPrivate
from sfumato.accounting.events.event import Composition, Event, derivation, event_kind
from sfumato.accounting.events.grid_limits import require_grid
from sfumato.accounting.events.joint import joint
from sfumato.accounting.events.sampled.sampling import fixed_size_sample, poisson_sample
from sfumato.accounting.moments.bounded_pair import renyi_from_log_excess
from sfumato.accounting.moments.sampled_gaussian import log_excess_replace, log_excess_sampled_gaussian
from sfumato.accounting.pairs.labelled import Labelled
from sfumato.accounting.pairs.pair import Pair
from sfumato.accounting.pairs.sampled_gaussian import SampledGaussian

_LEAST_CHANCE = 1e-300  # so that no chance is lost to underflow


@event_kind("truncated_poisson")
@dataclass(frozen=True, slots=True)
class TruncatedPoisson(Event):
    """`event` on a Poisson sample of at most `max_batch` units; made by `Event.truncated_poisson`.

    Sensitivity where the batch is not full: that of `event` (twice for replacing). Where it is full: twice that of
    `event`, whichever way the data sets differ.

    Attributes:
        event: what was done with the batch; a Gaussian release.
        sampling_rate: probability that a unit's coin picks it, strictly between 0 and 1.
        max_batch: units in the largest batch, >= 1. A larger sample is cut to a uniform part of this size.
        population: units in the larger of two neighbouring data sets, > max_batch. The cost is for this number exactly;
            a bound on it is not enough, because fewer units fill a batch less often but are cut less often too.
    """

    event: Event
    sampling_rate: float
    max_batch: int
    population: int

    unsampled = "it is sampled already"
    sampled = True

    def __post_init__(self) -> None:
        between(0, 1, ends="()", sampling_rate=self.sampling_rate, remedy="use event.truncated_poisson(...)")
        whole(max_batch=self.max_batch)
        whole(at_least=int(self.max_batch) + 1, population=self.population, remedy="no batch is cut; use poisson(rate)")
        object.__setattr__(self, "event", joint(self.event))
        object.__setattr__(self, "sampling_rate", float(self.sampling_rate))
        object.__setattr__(self, "max_batch", int(self.max_batch))
        object.__setattr__(self, "population", int(self.population))

    @property
    def chance_of_full_batch(self) -> float:
        """Probability that the other units fill the batch, so that the unit can only take another one's place."""
        return max(
            float(scipy.special.betainc(self.max_batch, self.population - self.max_batch, self.sampling_rate)),
            _LEAST_CHANCE,
        )

    @property
    def rate_in_full_batch(self) -> float:
        """Probability that the unit is in a batch that the others alone would fill, rounded up."""
        largest = self.sampling_rate * (self.max_batch / (self.max_batch + 1))
        cut = float(scipy.special.betainc(self.max_batch + 1, self.population - self.max_batch, self.sampling_rate))
        share = self.max_batch / self.population * cut / self.chance_of_full_batch
        exact = min(self.chance_of_full_batch, cut) > _LEAST_CHANCE
        return max(min(share * (1 + 1e-11) if exact else largest, largest * (1 + 1e-15)), _LEAST_CHANCE)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        q, rate, shift = self.sampling_rate, self.rate_in_full_batch, self._shift()
        require_grid(self, 2 * shift)
        exchanged = SampledGaussian("exchange", rate, 2 * shift)
        if adjacency == "replace":
            return (self._lottery(SampledGaussian("replace", q, shift), exchanged),)
        removed, added = SampledGaussian("remove", q, shift), SampledGaussian("add", q, shift)
        if adjacency == "zero_out":
            return self._lottery(removed, exchanged), self._lottery(added, exchanged)
        return (
            self._lottery(removed, SampledGaussian("remove", rate, 2 * shift)),
            self._lottery(added, SampledGaussian("add", rate, 2 * shift)),
        )

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        q, z = self.sampling_rate, 1 / self._shift()
        free = log_excess_sampled_gaussian(orders, q, z / 2 if adjacency == "replace" else z)
        full = log_excess_sampled_gaussian(orders, self.rate_in_full_batch, z / 2)
        if adjacency == "replace":
            free = np.minimum(free + np.log(2), log_excess_replace(orders, q, z))
        if adjacency != "add_remove":
            full = full + np.log(2)
        log_excess = np.logaddexp(free + np.log(self._chance_of_room()), full + np.log(self.chance_of_full_batch))
        return np.minimum(renyi_from_log_excess(log_excess, orders, 2 / z), orders * self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        return self.event.rho("replace")

    def attained(self, adjacency: Adjacency) -> bool:
        return False  # the pair tells whether the batch was full, which no release of it does

    def _chance_of_room(self) -> float:
        return max(
            float(scipy.special.betaincc(self.max_batch, self.population - self.max_batch, self.sampling_rate)),
            _LEAST_CHANCE,
        )

    def _shift(self) -> float:
        shift = self.event.gaussian_shift("add_remove")
        assert shift is not None
        return shift

    def _lottery(self, free: SampledGaussian, full: SampledGaussian) -> Pair:
        return Labelled(((self._chance_of_room(), free), (self.chance_of_full_batch, full)))


@derivation("truncated_poisson")
def truncated_poisson_sample(event: Event, sampling_rate: float, max_batch: int, population: int) -> Event:
    """See `Event.truncated_poisson`."""
    between(0, 1, sampling_rate=sampling_rate)
    whole(at_least=0, max_batch=max_batch)
    whole(population=population)
    if not isinstance(event, Event):
        raise InputError(f"truncated Poisson sampling takes events such as Gaussian(1.0), got {event!r}")
    if isinstance(event, NonPrivate) or sampling_rate == 0 or max_batch == 0:
        return event if sampling_rate and max_batch else Composition(())
    max_batch, population = int(max_batch), int(population)
    if max_batch >= population:
        return poisson_sample(event, sampling_rate)
    if sampling_rate == 1:
        return fixed_size_sample(joint(event), max_batch, population)
    return TruncatedPoisson(event, sampling_rate, max_batch, population)
