"""Events on a sample of the units: Poisson sampling, capped batches, and samples of a fixed size.

A unit that is not drawn contributes nothing, and no one learns who was drawn; that amplifies privacy. What is
accounted is the sampling that ran: a sample of fixed size is never Poisson's. A shuffled epoch is neither and is
accounted without amplification.

**Poisson sampling** takes each unit by its own coin. For adding or removing a unit, the pair of the sampled event is
the mixture (1-q) Q + q P against Q (Zhu, Dong and Wang 2022, Theorem 11), whatever the pair (P, Q) of the event. For
replacement a pair is known for Gaussian releases only (see `pairs.gaussian`).

**A sample of fixed size** exchanges units: who enters pushes another one out, so the sum moves by up to twice a
contribution under every adjacency (see docs/explanation/fixed-size-cohorts.md). The base is the event's pair under
replacement (Balle, Barthe and Gaboardi 2018, Theorem 11), whatever it is.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> poisson_sample(Gaussian(2.0) * 4, 0.01)      # four sums of one and the same sample
Poisson(event=Gaussian(noise_multiplier=0.9999999999999993), sampling_rate=0.01)

**Batches of a fixed capacity:** a Poisson sample that is too large is cut to a random part of it. Whether the other
units alone fill the batch is decided by their coins, so it has the same probability with and without the unit. Where
they do not, the unit takes part with the sampling rate and moves the sum by one contribution. Where they do, it is in
the batch with a smaller probability and pushes another unit out, so the sum moves by up to two. The pair is this
lottery of two pairs; docs/explanation/truncated-poisson.md has the proof for adding, removing, replacing and blanking a
unit. Ganesh 2025, "Tighter Privacy Analysis for Truncated Poisson Sampling" (arXiv 2508.15089), splits the cases in the
same way.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> step = truncated_poisson_sample(Gaussian(1.0), 0.01, max_batch=120, population=10_000)
>>> round(step.chance_of_full_batch, 4)
0.0275
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._lazy import scipy
from sfumato._types import Adjacency
from sfumato.accounting.events.claims import Claim, NonPrivate, require_range
from sfumato.accounting.events.discrete_gaussian import DiscreteGaussian, log_excess_sampled_integers
from sfumato.accounting.events.event import Composition, Event, Unknown, derivation, event_kind, require_grid, terms
from sfumato.accounting.events.gaussian import Gaussian, combined_shift, joint
from sfumato.accounting.events.mixture import MixtureOfGaussians
from sfumato.accounting.loss.renyi import renyi_from_log_excess
from sfumato.accounting.numerics import EPS, grid_rate, round_up
from sfumato.accounting.pair import Labelled, Pair
from sfumato.accounting.sampled_pair import (
    SampledGaussian,
    SampledPair,
    log_excess_replace,
    log_excess_sampled_gaussian,
)


@event_kind("poisson")
@dataclass(frozen=True, slots=True)
class Poisson(Event):
    """`event` on a Poisson sample; made by `Event.poisson`.

    Attributes:
        event: what was done with the sample.
        sampling_rate: probability that a unit is in the sample, strictly between 0 and 1.
    """

    event: Event
    sampling_rate: float

    unsampled = "it is sampled already; multiply the sampling rates if the samples are nested"
    sampled = True
    ranked: ClassVar[Mapping[str, int]] = {"sampling_rate": 1}

    def __post_init__(self) -> None:
        between(0, 1, ends="()", sampling_rate=self.sampling_rate, remedy="use event.poisson(rate)")
        _require_sampleable(self.event, "Poisson sampling")

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        q, shift = self.sampling_rate, self.event.gaussian_shift("add_remove")
        if shift is not None:
            if adjacency == "replace":
                return (SampledGaussian("replace", q, shift),)
            return SampledGaussian("remove", q, shift), SampledGaussian("add", q, shift)
        self._require_presence(adjacency)
        require_range(self, self.largest_loss(adjacency))
        pairs = self.event.pairs(adjacency)
        if grid_rate(q) == 1:
            return pairs
        return SampledPair("remove", q, pairs[0]), SampledPair("add", q, pairs[-1])

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        q, shift = self.sampling_rate, self.event.gaussian_shift("add_remove")
        if shift is not None:
            z, doubled = 1.0 / shift, 2.0 * shift if adjacency == "replace" else shift
            log_excess = log_excess_sampled_gaussian(orders, q, z / 2 if adjacency == "replace" else z)
            if adjacency == "replace":
                log_excess = np.minimum(log_excess + np.log(2), log_excess_replace(orders, q, z))
            return renyi_from_log_excess(log_excess, orders, doubled)
        self._require_presence(adjacency)
        if isinstance(self.event, DiscreteGaussian):
            moved, sigma = self.event.shift(adjacency), self.event.sigma
            cost = renyi_from_log_excess(log_excess_sampled_integers(orders, q, sigma, moved), orders, moved / sigma)
            return np.minimum(cost, self.event.renyi(orders, adjacency))
        return np.minimum(Event.renyi(self, orders, adjacency), self.event.renyi(orders, adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        unsampled = self.event.rho(adjacency)
        return min(unsampled, Event.rho(self, adjacency)) if math.isfinite(self.largest_loss(adjacency)) else unsampled

    def largest_loss(self, adjacency: Adjacency) -> float:
        loss = self.event.largest_loss(adjacency)
        known = adjacency == "add_remove" or (adjacency == "zero_out" and not isinstance(self.event, Claim))
        return sampled_loss(self.sampling_rate, loss) if known else loss

    def attained(self, adjacency: Adjacency) -> bool:
        return self.event.attained(adjacency) and grid_rate(self.sampling_rate) == self.sampling_rate

    def _of_group(self, units: int) -> Event:
        """How many of the group are drawn is binomial; each moves the sum as before (Ganesh 2024, arXiv 2401.10294)."""
        shift = self.event.gaussian_shift("add_remove")
        if shift is None:
            return Event._of_group(self, units)
        return MixtureOfGaussians(
            (1.0 - 3 * EPS) / shift,
            tuple(float(drawn) for drawn in range(units + 1)),
            binomial(units, self.sampling_rate),
        )

    def _require_presence(self, adjacency: Adjacency) -> None:
        """A Poisson sample hides whether a unit is there; more is known for Gaussian releases only."""
        name = type(self.event).__name__
        if adjacency == "replace":
            raise Unknown(
                f"a Poisson sample of {name} is not known under replace; "
                'use adjacency="add_remove", or a sample of fixed size'
            )
        if adjacency == "zero_out" and isinstance(self.event, Claim):
            raise Unknown(
                f"{name} does not say what a sample without the unit would do, so zero_out is not known; "
                'use adjacency="add_remove"'
            )


@event_kind("without_replacement")
@dataclass(frozen=True, slots=True)
class WithoutReplacement(Event):
    """`event` on a uniform sample of fixed size; made by `Event.without_replacement`.

    Conditioned on whether the unit is drawn, the sample differs by an exchange. For add/remove the pair is therefore
    the Poisson one with the shift of a replacement; for replacement the same curve holds above loss zero in both
    directions, which at most doubles the excess moment. That is below Theorem 27 of Wang, Balle and Kasiviswanathan
    2019 in every term, and never above the cost without sampling.

    Attributes:
        event: what was done with the sample.
        sample_size: units in the sample, >= 1.
        population: units in the larger of two neighbouring data sets, >= sample_size.
    """

    event: Event
    sample_size: int
    population: int

    unsampled = "it is sampled already"
    sampled = True
    ranked: ClassVar[Mapping[str, int]] = {"sample_size": 1}

    def __post_init__(self) -> None:
        whole(sample_size=self.sample_size)
        whole(at_least=self.sample_size, population=self.population)
        _require_sampleable(self.event, "sampling without replacement")

    @property
    def sampling_rate(self) -> float:
        """Share of the population in a sample, rounded up."""
        share = self.sample_size / self.population
        return share if self.sample_size == self.population else math.nextafter(share, 1.0)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        rate, shift = self.sampling_rate, self.event.gaussian_shift("replace")
        if shift is not None:
            if adjacency == "add_remove":
                return SampledGaussian("remove", rate, shift), SampledGaussian("add", rate, shift)
            return (SampledGaussian("exchange", rate, shift),)
        base = self._exchanged(adjacency)
        if grid_rate(rate) == 1:
            return (base,)
        require_range(self, self.largest_loss(adjacency))
        if adjacency == "add_remove":
            return SampledPair("remove", rate, base), SampledPair("add", rate, base)
        return (SampledPair("exchange", rate, base),)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        shift = self.event.gaussian_shift("replace")
        unsampled = self.event.renyi(orders, "replace")
        if shift is not None:
            log_excess = log_excess_sampled_gaussian(orders, self.sampling_rate, 1 / shift)
        elif isinstance(self.event, DiscreteGaussian):
            moved = self.event.shift("replace")
            log_excess = log_excess_sampled_integers(orders, self.sampling_rate, self.event.sigma, moved)
            shift = moved / self.event.sigma
        else:
            return np.minimum(Event.renyi(self, orders, adjacency), unsampled)
        if adjacency != "add_remove":
            log_excess = log_excess + np.log(2)
        return np.minimum(renyi_from_log_excess(log_excess, orders, shift), unsampled)

    def rho(self, adjacency: Adjacency) -> float:
        unsampled = self.event.rho("replace")
        return min(unsampled, Event.rho(self, adjacency)) if math.isfinite(self.largest_loss(adjacency)) else unsampled

    def largest_loss(self, adjacency: Adjacency) -> float:
        if adjacency == "zero_out":
            self.event.largest_loss(adjacency)  # a claim may know nothing about it
        loss = self.event.largest_loss("replace")
        return loss if self.sample_size == self.population else sampled_loss(self.sampling_rate, loss)

    def attained(self, adjacency: Adjacency) -> bool:
        kept = grid_rate(self.sampling_rate) == self.sampling_rate
        return adjacency == "add_remove" and kept and self.event.attained("replace")

    def _exchanged(self, adjacency: Adjacency) -> Pair:
        """The pair of a unit that enters the sample in another one's place."""
        if adjacency == "zero_out":
            self.event.pairs(adjacency)  # a claim may know nothing about it
        pair, *others = self.event.pairs("replace")
        if others:
            raise Unknown(
                f"a sample of fixed size of {type(self.event).__name__} is not known; "
                "sample a Gaussian event or one of bounded loss"
            )
        return pair


@derivation("poisson")
def poisson_sample(event: Event, sampling_rate: float) -> Event:
    """See `Event.poisson`."""
    between(0, 1, sampling_rate=sampling_rate)
    if sampling_rate == 0:
        return Composition(())
    if sampling_rate == 1 or isinstance(event, NonPrivate):
        return event
    return Poisson(_single(event, "Poisson sampling"), sampling_rate)


@derivation("without_replacement")
def fixed_size_sample(event: Event, sample_size: int, population: int) -> Event:
    """See `Event.without_replacement`."""
    whole(at_least=0, sample_size=sample_size)
    whole(population=population)
    sample_size, population = int(sample_size), int(population)
    if sample_size > population:
        raise InputError(f"sample_size must be <= population, got {sample_size} of {population}; take a smaller sample")
    if sample_size == 0:
        return Composition(())
    if isinstance(event, NonPrivate):
        return event
    return WithoutReplacement(_single(event, "sampling without replacement"), sample_size, population)


def binomial(trials: int, chance: float) -> tuple[float, ...]:
    """P(0), ..., P(trials) of a binomial number, what is above zero rounded up at the cost of zero."""
    k = np.arange(1, trials + 1)
    logs = scipy.special.gammaln(trials + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(trials - k + 1)
    some = np.exp(logs + k * math.log(chance) + (trials - k) * math.log1p(-chance)) * (1 + 1e-11)
    some = np.minimum(some, 1.0)
    return (max(0.0, 1.0 - math.fsum(some)), *some.tolist())


def sampled_loss(rate: float, loss: float) -> float:
    """log(1 + q (e^loss - 1)), rounded up: the largest loss on a sample."""
    if loss > 700:  # q e^loss is out of range, or unbounded
        return loss
    return min(loss, round_up(math.log1p(rate * math.expm1(loss))))


def _single(event: Event, sampling: str) -> Event:
    """Gaussian releases from one and the same sample are one Gaussian release of the stacked sums."""
    singles = [single for single, _ in terms(event)]
    if len(singles) == 1 and event == singles[0]:
        _require_sampleable(event, sampling)
        return event
    shift = combined_shift(event, "add_remove")
    if not shift or not all(isinstance(single, Gaussian) for single in singles):
        names = " + ".join(sorted({type(single).__name__ for single in singles})) or "an empty event"
        raise Unknown(f"{sampling} of {names} is not known; sample each Gaussian event and add them up")
    return Gaussian(1.0 / shift * (1.0 - 3 * math.ulp(1.0)))


def _require_sampleable(event: Event, sampling: str) -> None:
    if not isinstance(event, Event):
        raise InputError(f"{sampling} takes events such as Gaussian(1.0), got {event!r}")
    if event.unsampled:
        raise Unknown(f"{sampling} of {type(event).__name__} is not known: {event.unsampled}")


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
        log_excess = np.logaddexp(
            free + np.log(self._chance_of_partial_batch()), full + np.log(self.chance_of_full_batch)
        )
        return np.minimum(renyi_from_log_excess(log_excess, orders, 2 / z), orders * self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        return self.event.rho("replace")

    def attained(self, adjacency: Adjacency) -> bool:
        return False  # the pair reveals whether the batch was full, which no release of it does

    def _chance_of_partial_batch(self) -> float:
        return max(
            float(scipy.special.betaincc(self.max_batch, self.population - self.max_batch, self.sampling_rate)),
            _LEAST_CHANCE,
        )

    def _shift(self) -> float:
        shift = self.event.gaussian_shift("add_remove")
        assert shift is not None
        return shift

    def _lottery(self, free: SampledGaussian, full: SampledGaussian) -> Pair:
        return Labelled(((self._chance_of_partial_batch(), free), (self.chance_of_full_batch, full)))


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
