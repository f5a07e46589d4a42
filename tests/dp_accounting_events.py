"""Events from and to those of Google's dp-accounting, so that tests can compare the two.

What one side cannot say exactly is refused by name, so a converted event never costs less than the original.
"""

from typing import Any

from dp_accounting import dp_event as dp

from sfumato._check import InputError
from sfumato.accounting.events import (
    ZCDP,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    NonPrivate,
    Poisson,
    RandomizedResponse,
    TreeAggregation,
    TruncatedPoisson,
    Unknown,
    WithoutReplacement,
    compose,
    terms,
)


def from_dp_event(event: Any) -> Event:
    """The event of a `dp_accounting.DpEvent`.

    Args:
        event: any DpEvent. Noise of zero becomes NonPrivate, as it is there.

    Raises:
        InputError: not a DpEvent.
        Unknown: an event that has no counterpart here.
    """
    if not isinstance(event, dp.DpEvent):
        raise InputError(f"expected a dp_accounting.DpEvent, got {event!r}")
    match event:
        case dp.NoOpDpEvent():
            return compose({})
        case dp.NonPrivateDpEvent():
            return NonPrivate()
        case dp.GaussianDpEvent(noise_multiplier=z):
            return Gaussian(z) if z else NonPrivate()
        case dp.LaplaceDpEvent(noise_multiplier=b):
            return Laplace(b) if b else NonPrivate()
        case dp.DiscreteLaplaceDpEvent(noise_parameter=a, sensitivity=sensitivity):
            return DiscreteLaplace(a, sensitivity)
        case dp.RandomizedResponseDpEvent(noise_parameter=p, num_buckets=k):
            return RandomizedResponse(p, k) if p else NonPrivate()
        case dp.MixtureOfGaussiansDpEvent(standard_deviation=std, sensitivities=moves, sampling_probs=shares):
            return MixtureOfGaussians(std, tuple(moves), tuple(shares)) if std else NonPrivate()
        case dp.ZCDpEvent(rho=rho, xi=xi):
            return ZCDP(rho, xi=xi)
        case dp.SelfComposedDpEvent(event=inner, count=count):
            return from_dp_event(inner) * count
        case dp.ComposedDpEvent(events=parts):
            return sum((from_dp_event(part) for part in parts), start=compose({}))
        case dp.PoissonSampledDpEvent(sampling_probability=q, event=inner):
            return from_dp_event(inner).poisson(q)
        case dp.SampledWithoutReplacementDpEvent(source_dataset_size=population, sample_size=size, event=inner):
            return from_dp_event(inner).without_replacement(size, population)
        case dp.SingleEpochTreeAggregationDpEvent(noise_multiplier=z, step_counts=counts):
            # each record is in one of the trees, so the deepest one decides
            steps = max(counts) if isinstance(counts, list) else counts
            return TreeAggregation(noise_multiplier=z, steps=steps) if z else NonPrivate()
        case dp.TruncatedSubsampledGaussianDpEvent():
            inner = Gaussian(event.noise_multiplier)
            return inner.truncated_poisson(event.sampling_probability, event.truncated_batch_size, event.dataset_size)
    raise Unknown(f"{type(event).__name__} has no counterpart; account it with dp-accounting")


def to_dp_event(event: Event) -> Any:
    """The `dp_accounting.DpEvent` of an event.

    Raises:
        InputError: not an event.
        Unknown: an event that has no counterpart there.
    """
    if not isinstance(event, Event):
        raise InputError(f"expected an accounting event such as Gaussian(1.0), got {event!r}")
    parts = [_repeated(_single(single), count) for single, count in terms(event)]
    if not parts:
        return dp.NoOpDpEvent()
    return parts[0] if len(parts) == 1 else dp.ComposedDpEvent(parts)


def _repeated(event: Any, count: int) -> Any:
    return event if count == 1 else dp.SelfComposedDpEvent(event, count)


def _single(event: Event) -> Any:
    match event:
        case NonPrivate():
            return dp.NonPrivateDpEvent()
        case Gaussian(noise_multiplier=z):
            return dp.GaussianDpEvent(z)
        case Laplace(scale=b):
            return dp.LaplaceDpEvent(b)
        case DiscreteLaplace(rate=a, sensitivity=sensitivity):
            return dp.DiscreteLaplaceDpEvent(a, sensitivity)
        case RandomizedResponse(noise_parameter=p, categories=k):
            return dp.RandomizedResponseDpEvent(p, k)
        case MixtureOfGaussians(noise_std=std, sensitivities=moves, probabilities=shares):
            return dp.MixtureOfGaussiansDpEvent(std, list(moves), list(shares))
        case ZCDP(claimed_rho=rho, adjacency="add_remove", xi=xi):
            return dp.ZCDpEvent(rho, xi)
        case Poisson(event=inner, sampling_rate=q):
            return dp.PoissonSampledDpEvent(q, to_dp_event(inner))
        case WithoutReplacement(event=inner, sample_size=size, population=population):
            return dp.SampledWithoutReplacementDpEvent(population, size, to_dp_event(inner))
        case TreeAggregation(noise_multiplier=z):
            return dp.SingleEpochTreeAggregationDpEvent(z, _steps_of_one_epoch(event))
        case TruncatedPoisson(event=Gaussian(noise_multiplier=z), sampling_rate=q, max_batch=size, population=n):
            return dp.TruncatedSubsampledGaussianDpEvent(n, q, size, z)
    raise Unknown(f"{type(event).__name__} has no counterpart in dp-accounting")


def _steps_of_one_epoch(event: TreeAggregation) -> int:
    """Steps of a single tree that costs a unit with one participation as much: those of the deepest tree."""
    if event.participation.most > 1:
        raise Unknown("TreeAggregation with several participations has no counterpart in dp-accounting")
    steps = min(event.steps, event.restart_every or event.steps)
    if event.completion and event.steps > steps:
        steps = 1 << (steps - 1).bit_length()  # filled up with empty rounds
    assert event.squared_sensitivity == steps.bit_length(), "the depth of the deepest tree"
    return steps
