"""Events on a sample of the units: Poisson sampling, and samples of a fixed size.

A unit that is not drawn contributes nothing, and nobody learns who was drawn; that amplifies privacy. What is
accounted is the sampling that ran: a sample of fixed size is never Poisson's. A shuffled epoch is neither and is
accounted without amplification.

Poisson sampling takes each unit by its own coin. For adding or removing a unit, the pair of the sampled event is the
mixture (1-q) Q + q P against Q (Zhu, Dong and Wang 2022, Theorem 11). For replacement a pair is known for Gaussian
releases only (see `pairs.gaussian`).

A sample of fixed size exchanges units: who enters pushes another one out, so the sum moves by up to twice a
contribution under every adjacency (see docs/explanation/fixed-size-cohorts.md).

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> poisson_sample(Gaussian(2.0) * 4, 0.01)      # four sums of one and the same sample
Poisson(event=Gaussian(noise_multiplier=0.9999999999999993), sampling_rate=0.01)
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._types import Adjacency
from sfumato.accounting._moments import log_excess_replace, log_excess_sampled_gaussian
from sfumato.accounting.events.claims import NonPrivate
from sfumato.accounting.events.event import Composition, Event, Unknown, event_kind, terms
from sfumato.accounting.events.gaussian import Gaussian, combined_shift
from sfumato.accounting.pairs.gaussian import SampledGaussian
from sfumato.accounting.pairs.pair import Pair


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

    def __post_init__(self) -> None:
        between(0, 1, ends="()", sampling_rate=self.sampling_rate, remedy="use event.poisson(rate)")
        _require_sampleable(self.event, "Poisson sampling")
        object.__setattr__(self, "sampling_rate", float(self.sampling_rate))

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        shift = self.event.gaussian_shift("add_remove")
        if shift is None:
            raise Unknown(f"no pair is known for a Poisson sample of {type(self.event).__name__}")
        if adjacency == "replace":
            return (SampledGaussian("replace", self.sampling_rate, shift),)
        return (
            SampledGaussian("remove", self.sampling_rate, shift),
            SampledGaussian("add", self.sampling_rate, shift),
        )

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        shift = self.event.gaussian_shift("add_remove")
        if shift is None:
            raise Unknown(f"no Renyi bound is known for a Poisson sample of {type(self.event).__name__}")
        q, z = self.sampling_rate, 1.0 / shift
        log_excess = log_excess_sampled_gaussian(orders, q, z / 2 if adjacency == "replace" else z)
        if adjacency == "replace":
            log_excess = np.minimum(log_excess + np.log(2), log_excess_replace(orders, q, z))
        return renyi_from_log_excess(log_excess, orders)

    def rho(self, adjacency: Adjacency) -> float:
        return self.event.rho(adjacency)

    def largest_loss(self, adjacency: Adjacency) -> float:
        whole_loss = self.event.largest_loss(adjacency)
        if adjacency == "replace" or math.isinf(whole_loss):
            return whole_loss
        return math.log1p(self.sampling_rate * math.expm1(min(whole_loss, 700.0))) if whole_loss < 700 else whole_loss


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

    def __post_init__(self) -> None:
        whole(sample_size=self.sample_size)
        whole(at_least=self.sample_size, population=self.population)
        _require_sampleable(self.event, "sampling without replacement")
        object.__setattr__(self, "sample_size", int(self.sample_size))
        object.__setattr__(self, "population", int(self.population))

    @property
    def sampling_rate(self) -> float:
        """Share of the population in a sample, rounded up."""
        share = self.sample_size / self.population
        return share if self.sample_size == self.population else math.nextafter(share, 1.0)

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        rate, shift = self.sampling_rate, self._shift()
        if adjacency == "add_remove":
            return SampledGaussian("remove", rate, shift), SampledGaussian("add", rate, shift)
        return (SampledGaussian("exchange", rate, shift),)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        log_excess = log_excess_sampled_gaussian(orders, self.sampling_rate, 1 / self._shift())
        if adjacency != "add_remove":
            log_excess = log_excess + np.log(2)
        return np.minimum(renyi_from_log_excess(log_excess, orders), orders * self.rho(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        return self.event.rho("replace")

    def _shift(self) -> float:
        shift = self.event.gaussian_shift("replace")
        if shift is None:
            raise Unknown(f"nothing is known about a sample of fixed size of {type(self.event).__name__}")
        return shift


def poisson_sample(event: Event, sampling_rate: float) -> Event:
    """See `Event.poisson`."""
    between(0, 1, sampling_rate=sampling_rate)
    if sampling_rate == 0:
        return Composition(())
    if sampling_rate == 1 or isinstance(event, NonPrivate):
        return event
    return Poisson(_single(event, "Poisson sampling"), sampling_rate)


def fixed_size_sample(event: Event, sample_size: int, population: int) -> Event:
    """See `Event.without_replacement`."""
    whole(at_least=0, sample_size=sample_size)
    whole(population=population)
    if sample_size > population:
        raise InputError(f"sample_size must be <= population, got {sample_size} of {population}; take a smaller sample")
    if sample_size == 0:
        return Composition(())
    if isinstance(event, NonPrivate):
        return event
    return WithoutReplacement(_single(event, "sampling without replacement"), sample_size, population)


def renyi_from_log_excess(log_excess: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Renyi divergence from log(E_Q[(P/Q)^a] - 1), rounded up."""
    rounding = 1e-12 * (1.0 + orders)  # the moments are exact to about 1e-13 per order
    with np.errstate(invalid="ignore"):
        values = np.logaddexp(0.0, log_excess + rounding) / (orders - 1)
    return np.where(np.isposinf(log_excess), np.inf, values)


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
