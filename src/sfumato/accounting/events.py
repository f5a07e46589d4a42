"""Events: what a mechanism released, as immutable values that accountants turn into a privacy cost.

An event says what ran and nothing about a data set: `Gaussian(1.1).poisson(0.01) * 1000`. `+` composes
(adaptively, on the same records), `*` repeats. Composition does not depend on the order, so events have one
normal form: a list of different events with a count each. Adding the same event n times gives the same value
as multiplying by n, and the count is applied in one place (`terms`), whatever the accountant.

The unit of privacy is whoever the noise multiplier was computed for: its sensitivity is the most that one
unit can move the sum when it is added or removed.

>>> step = Gaussian(noise_multiplier=1.1).poisson(0.01)
>>> step + step + step == step * 3
True
>>> event_from_json((step * 3).to_json()) == step * 3
True
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sfumato._check import InputError, between, positive, whole


class Event:
    """What was released. Compare, hash, add, multiply and write to JSON; never change."""

    __slots__ = ()

    def __add__(self, other: "Event") -> "Event":
        """Both, on the same records; the second may depend on what the first released."""
        if not isinstance(other, Event):
            return NotImplemented
        counts = dict(terms(self))
        for event, count in terms(other):
            counts[event] = counts.get(event, 0) + count
        return compose(counts)

    def __radd__(self, other: object) -> "Event":
        return self if other == 0 else NotImplemented  # so that sum(events) works

    def __mul__(self, count: int) -> "Event":
        """The event `count` times, each with fresh noise and a fresh sample."""
        whole(at_least=0, count=count)
        return compose({event: times * int(count) for event, times in terms(self)})

    __rmul__ = __mul__

    def poisson(self, sampling_rate: float) -> "Event":
        """The event on a sample that takes each unit independently.

        Args:
            sampling_rate: probability in [0, 1]. 0 costs nothing, 1 is the event itself.

        Raises:
            InputError: no amplification by sampling is known for this event.
        """
        between(0, 1, sampling_rate=sampling_rate)
        if sampling_rate == 0:
            return Composition(())
        if sampling_rate == 1 or isinstance(self, NonPrivate):
            return self
        return Poisson(_one_gaussian(self, "Poisson sampling"), sampling_rate)

    def without_replacement(self, sample_size: int, population: int) -> "Event":
        """The event on a uniform sample of exactly `sample_size` out of `population` units.

        A unit that enters such a sample pushes another one out, so the sum moves by up to twice a
        contribution, under every adjacency. Poisson's formula does not apply; see `sfumato.accounting.rdp`.

        Args:
            sample_size: units in the sample, 0 <= sample_size <= population.
            population: units in the larger of two neighbouring data sets, >= 1.

        Raises:
            InputError: the sample is larger than the population, or nothing is known for this event.
        """
        whole(at_least=0, sample_size=sample_size)
        whole(population=population)
        if sample_size > population:
            raise InputError(
                f"sample_size must be <= population, got {sample_size} of {population}; take a smaller sample"
            )
        if sample_size == 0:
            return Composition(())
        if isinstance(self, NonPrivate):
            return self
        return WithoutReplacement(_one_gaussian(self, "sampling without replacement"), sample_size, population)

    def to_json(self) -> dict[str, Any]:
        """A dictionary that `json` can write and `event_from_json` reads back to an equal event."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Gaussian(Event):
    """A sum released with Gaussian noise.

    Attributes:
        noise_multiplier: std of the noise divided by the most that adding or removing one unit can move the
            sum (in L2 norm), > 0. Replacing a unit moves it twice as far; accountants take care of that.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, remedy="for a run without noise use NonPrivate()")
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))

    def to_json(self) -> dict[str, Any]:
        return {"event": "gaussian", "noise_multiplier": self.noise_multiplier}


@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee: epsilon is infinite. For runs without noise."""

    def to_json(self) -> dict[str, Any]:
        return {"event": "non_private"}


@dataclass(frozen=True, slots=True)
class Poisson(Event):
    """`event` on a Poisson sample; made by `Event.poisson`.

    Attributes:
        event: what was done with the sample.
        sampling_rate: probability that a unit is in the sample, strictly between 0 and 1.
    """

    event: Gaussian
    sampling_rate: float

    def __post_init__(self) -> None:
        between(0, 1, ends="()", sampling_rate=self.sampling_rate, remedy="use event.poisson(rate)")
        _require_gaussian(self.event, "Poisson sampling")
        object.__setattr__(self, "sampling_rate", float(self.sampling_rate))

    def to_json(self) -> dict[str, Any]:
        return {"event": "poisson", "sampling_rate": self.sampling_rate, "of": self.event.to_json()}


@dataclass(frozen=True, slots=True)
class WithoutReplacement(Event):
    """`event` on a uniform sample of fixed size; made by `Event.without_replacement`.

    Attributes:
        event: what was done with the sample.
        sample_size: units in the sample, >= 1.
        population: units in the larger of two neighbouring data sets, >= sample_size.
    """

    event: Gaussian
    sample_size: int
    population: int

    def __post_init__(self) -> None:
        whole(sample_size=self.sample_size)
        whole(at_least=self.sample_size, population=self.population)
        _require_gaussian(self.event, "sampling without replacement")
        object.__setattr__(self, "sample_size", int(self.sample_size))
        object.__setattr__(self, "population", int(self.population))

    @property
    def sampling_rate(self) -> float:
        """Share of the population in a sample, rounded up."""
        share = self.sample_size / self.population
        return share if self.sample_size == self.population else math.nextafter(share, 1.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "event": "without_replacement",
            "sample_size": self.sample_size,
            "population": self.population,
            "of": self.event.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Repeated(Event):
    """`event`, `count` times; made by `event * count`."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        whole(count=self.count)
        if isinstance(self.event, Repeated | Composition):
            raise InputError("Repeated takes a single event; write (a + b) * 3 to repeat a composition")
        _require_event(self.event, "Repeated")
        object.__setattr__(self, "count", int(self.count))

    def to_json(self) -> dict[str, Any]:
        return {"event": "repeated", "count": self.count, "of": self.event.to_json()}


@dataclass(frozen=True, slots=True, eq=False)
class Composition(Event):
    """Several events on the same records, in any order; made by `+`. Empty: nothing was released.

    Attributes:
        events: different single events, each repeated as often as it happened. What is given is brought into
            this form, so that equal compositions cost the same.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.events, Iterable):
            raise InputError(f"Composition takes a tuple of events, got {self.events!r}; write a + b")
        members = tuple(self.events)
        for member in members:
            _require_event(member, "Composition")
        object.__setattr__(self, "events", _parts(_counts(members)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composition) and frozenset(self.events) == frozenset(other.events)

    def __hash__(self) -> int:
        return hash(frozenset(self.events))

    def to_json(self) -> dict[str, Any]:
        return {"event": "composition", "events": [event.to_json() for event in self.events]}


def terms(event: Event) -> Iterator[tuple[Event, int]]:
    """The different single events in `event`, each with its count: the one place where repetition is
    resolved.
    """
    if isinstance(event, Composition):
        for part in event.events:
            yield from terms(part)
    elif isinstance(event, Repeated):
        yield event.event, event.count
    else:
        yield event, 1


def compose(counts: Mapping[Event, int]) -> Event:
    """The event that consists of single events with these counts, in normal form."""
    parts = _parts(counts)
    return parts[0] if len(parts) == 1 else Composition(parts)


def combined_gaussian(event: Event) -> float | None:
    """1/z of the one Gaussian that equals a composition of Gaussians; None where anything else is inside."""
    parts: list[float] = []
    for single, count in terms(event):
        if not isinstance(single, Gaussian):
            return None
        parts.append(math.sqrt(count) * (1.0 / single.noise_multiplier))
    return math.hypot(*parts)  # without overflow or underflow of the squares, to about 2 ulp


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote.

    Raises:
        InputError: the dictionary is not an event, or holds values that no event can have.
    """
    try:
        kind = value["event"]
        if kind == "gaussian":
            return Gaussian(value["noise_multiplier"])
        if kind == "non_private":
            return NonPrivate()
        if kind == "poisson":
            return event_from_json(value["of"]).poisson(value["sampling_rate"])
        if kind == "without_replacement":
            return event_from_json(value["of"]).without_replacement(value["sample_size"], value["population"])
        if kind == "repeated":
            return event_from_json(value["of"]) * value["count"]
        if kind == "composition":
            return _sum(event_from_json(part) for part in value["events"])
    except (KeyError, TypeError) as error:
        raise InputError(f"not an event: {value!r} ({error}); expected what to_json() wrote") from None
    raise InputError(f"unknown event {kind!r}; this version of sfumato does not know it")


def _sum(events: Iterable[Event]) -> Event:
    return compose(_counts(events))


def _counts(events: Iterable[Event]) -> dict[Event, int]:
    counts: dict[Event, int] = {}
    for event in events:
        for single, count in terms(event):
            counts[single] = counts.get(single, 0) + count
    return counts


def _parts(counts: Mapping[Event, int]) -> tuple[Event, ...]:
    return tuple(event if count == 1 else Repeated(event, count) for event, count in counts.items() if count)


def _require_event(event: object, where: str) -> None:
    if not isinstance(event, Event):
        raise InputError(f"{where} takes events such as Gaussian(1.0), got {event!r}")


def _require_gaussian(event: Event, sampling: str) -> None:
    if not isinstance(event, Gaussian):
        raise InputError(f"{sampling} of {type(event).__name__} is not known; only of Gaussian events")


def _one_gaussian(event: Event, sampling: str) -> Gaussian:
    """Gaussian releases from one and the same sample are one Gaussian release of the stacked sums."""
    if isinstance(event, Gaussian):
        return event
    inverse = combined_gaussian(event)
    if not inverse:
        names = " + ".join(sorted({type(single).__name__ for single, _ in terms(event)})) or "an empty event"
        raise InputError(f"{sampling} of {names} is not known; sample each Gaussian event and add them up")
    return Gaussian(1.0 / inverse * (1.0 - 3 * math.ulp(1.0)))
