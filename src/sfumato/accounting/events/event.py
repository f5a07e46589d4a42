"""Events: what a mechanism released, as immutable values that accountants turn into a privacy cost.

An event says what ran and nothing about a data set: `Gaussian(1.1).poisson(0.01) * 1000`. `+` composes
(adaptively, on the same records), `*` repeats. Composition does not depend on the order, so events have one
normal form: a list of different events with a count each. Adding the same event n times gives the same value
as multiplying by n, and the count is applied in one place (`terms`), whatever the accountant.

The unit of privacy is the one that the noise multiplier was computed for: its sensitivity is the most that one
unit can move the sum when it is added or removed.

>>> from sfumato.accounting.events import Gaussian
>>> step = Gaussian(noise_multiplier=1.1).poisson(0.01)
>>> step + step + step == step * 3
True
>>> event_from_json((step * 3).to_json()) == step * 3
True
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields
from functools import cache
from importlib import import_module
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, TypeVar

import numpy as np

from sfumato._check import InputError, whole
from sfumato._types import Adjacency
from sfumato.accounting.loss.renyi import renyi_of_pairs, renyi_of_pure, rho_of_pairs, rho_of_pure
from sfumato.accounting.pair import Pair


class Unknown(InputError):
    """Nothing is known about this combination; the message names it."""


class Event:
    """What was released. Compare, hash, add, multiply and write to JSON; never change.

    A kind of release is a frozen dataclass that says what is known about it: `gaussian_shift`, `pairs`, `renyi`, `rho`
    and `largest_loss`. What it does not say is unknown, and an accountant that needs it refuses the event by name.
    """

    __slots__ = ()

    kind: ClassVar[str] = ""
    """Name of the event in JSON."""

    unsampled: ClassVar[str] = "it is not known how sampling amplifies it"
    """Why the event cannot be released from a sample of the units; empty where it can."""

    sampled: ClassVar[bool] = False
    """Whether it is a release on a sample of the units, whose draw stays secret."""

    ranked: ClassVar[Mapping[str, int]] = {}
    """Fields by which events of the kind that are otherwise equal compare: 1 where a larger number costs more, -1 where
    it costs less. The cheaper one can be made from the other one's output, by more noise or by leaving units out of the
    sample (docs/explanation/schedules.md). Empty where no order is known."""

    def __add__(self, other: "Event") -> "Event":
        """Both, on the same records; the second may depend on what the first released."""
        if not isinstance(other, Event):
            return NotImplemented
        if isinstance(self, Composition) and self.several:
            return self.joined(other)
        return _of_parts(_parts(_counts((self, other))))

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
        return _derived("poisson")(self, sampling_rate)

    def without_replacement(self, sample_size: int, population: int) -> "Event":
        """The event on a uniform sample of exactly `sample_size` out of `population` units.

        A unit that enters such a sample pushes another one out, so the sum moves by up to twice a
        contribution, under every adjacency. Poisson's formula does not apply; see `sfumato.accounting.accountants`.

        Args:
            sample_size: units in the sample, 0 <= sample_size <= population.
            population: units in the larger of two neighbouring data sets, >= 1.

        Raises:
            InputError: the sample is larger than the population, or nothing is known for this event.
        """
        return _derived("without_replacement")(self, sample_size, population)

    def truncated_poisson(self, sampling_rate: float, max_batch: int, population: int) -> "Event":
        """The event on a Poisson sample that is cut to a uniform part of at most `max_batch` units.

        A unit that enters a full batch pushes another one out, so the sum moves by up to twice a contribution.

        Args:
            sampling_rate: probability in [0, 1] that a unit's coin picks it.
            max_batch: units in the largest batch, >= 0. From `population` on it is Poisson sampling.
            population: units in the larger of two neighbouring data sets, >= 1, exactly.

        Raises:
            InputError: a number is out of range, or the event is no Gaussian release.
        """
        return _derived("truncated_poisson")(self, sampling_rate, max_batch, population)

    def min_separation(self, rounds: int, separation: int, max_participations: int | None = None) -> "Event":
        """The event in each of `rounds` rounds, of which a unit is in few, far from each other.

        The sampler must enforce it: a unit that takes part sits out at least the next `separation` rounds, and never
        takes part more than `max_participations` times. There is no amplification by sampling.

        Args:
            rounds: rounds of the run, >= 1.
            separation: rounds that lie at least between two participations of a unit, >= 0.
            max_participations: >= 1; None for as many as the separation allows.

        Raises:
            InputError: a number is out of range, or the event is sampled already.
        """
        return _derived("min_separation")(self, rounds, separation, max_participations)

    def for_group(self, units: int) -> "Event":
        """The same release, seen by a group: neighbours differ in up to `units` units at once.

        For one person who owns several units, such as k examples in DP-SGD: account `event.for_group(k)`.

        Args:
            units: in the group, >= 1.

        Raises:
            InputError: nothing better is known for this event than for each of the units by itself.
        """
        whole(units=units)
        if units == 1:
            return self
        counts: dict[Event, int] = {}
        for single, count in terms(self):
            for part, times in terms(single._of_group(int(units))):
                counts[part] = counts.get(part, 0) + times * count
        return compose(counts)

    def _of_group(self, units: int) -> "Event":
        """`for_group` of a single event and two units or more."""
        raise Unknown(f"what {type(self).__name__} shows of a group is not known; account each unit by itself")

    def gaussian_shift(self, adjacency: Adjacency) -> float | None:
        """s where the event equals one Gaussian release, N(s, 1) against N(0, 1) at worst; None otherwise."""
        return None

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        """Dominating pairs: a symmetric one, or one for removing and one for adding a unit.

        Raises:
            Unknown: no pair is known.
        """
        raise Unknown(f'no pair is known for {type(self).__name__} under {adjacency}; use method="rdp" or "zcdp"')

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        """Renyi divergence at each order, in nats.

        Args:
            orders: float [k], each > 1.
            adjacency: how two neighbouring data sets differ.

        Returns:
            float [k], >= 0, inf where it is unbounded. Where the largest loss is finite, it is that of the pairs.

        Raises:
            Unknown: no bound is known.
        """
        loss = self.largest_loss(adjacency)
        if math.isinf(loss):
            raise Unknown(f"no Renyi bound is known for {type(self).__name__} under {adjacency}; use another method")
        try:
            pairs = self.pairs(adjacency)
        except Unknown:
            return renyi_of_pure(orders, loss)
        return renyi_of_pairs(pairs, orders, loss)

    def rho(self, adjacency: Adjacency) -> float:
        """rho of zCDP; inf where there is none. Where the largest loss is finite, it is that of the pairs.

        Raises:
            Unknown: no bound is known.
        """
        loss = self.largest_loss(adjacency)
        if math.isinf(loss):
            raise Unknown(f"no zCDP bound is known for {type(self).__name__} under {adjacency}; use another method")
        try:
            pairs = self.pairs(adjacency)
        except Unknown:
            return rho_of_pure(loss)
        return rho_of_pairs(pairs, loss)

    def largest_loss(self, adjacency: Adjacency) -> float:
        """The epsilon of pure differential privacy; inf where there is none."""
        return float("inf")

    def attained(self, adjacency: Adjacency) -> bool:
        """Whether one mechanism attains the pairs, so that a lower bound on their cost is one on the event's."""
        return True

    def concentrated(self, adjacency: Adjacency) -> tuple[float, float]:
        """(xi, rho) of (xi, rho)-zCDP: Renyi divergences of at most xi + rho * order.

        Raises:
            Unknown: no bound is known.
        """
        return 0.0, self.rho(adjacency)

    def to_json(self) -> dict[str, Any]:
        """A dictionary that `json` can write and `event_from_json` reads back to an equal event."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        return {"event": self.kind} | {_NAMES.get(name, name): _to_json(value) for name, value in values.items()}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> "Event":
        """The event with these fields, as they stand in JSON."""
        known = {_NAMES.get(field.name, field.name): field.name for field in fields(cls)}  # pyright: ignore[reportArgumentType]
        return cls(**{known[name]: _from_json(value) for name, value in values.items()})


_MODULES = (
    "claims",
    "correlated",
    "discrete_gaussian",
    "gaussian",
    "laplace",
    "mixture",
    "randomized_response",
    "sampled",
    "selection",
    "votes",
)
"""All modules with an `event_kind` or a `derivation`: what is known must not depend on what was imported."""


_NAMES = {"event": "of"}  # the key "event" is taken by the kind
_KINDS: dict[str, type[Event]] = {}
_DERIVATIONS: dict[str, Callable[..., Event]] = {}
_AnyEvent = TypeVar("_AnyEvent", bound=type[Event])
_Derivation = TypeVar("_Derivation", bound=Callable[..., Event])


def event_kind(name: str) -> Callable[[_AnyEvent], _AnyEvent]:
    """Give a class of events its name in JSON, and its fields the types that they are declared with.

    What `__post_init__` has checked may be any number, such as one of NumPy. A field of `float` or `int` (or None) then
    holds a number of Python, so that equal events are written in the same way.
    """

    def register(cls: _AnyEvent) -> _AnyEvent:
        cls.kind = name
        _KINDS[name] = cls
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _converted(cls)  # pyright: ignore[reportAttributeAccessIssue]
        return cls

    return register


def _converted(cls: type[Event]) -> Callable[[Any], None]:
    """`__post_init__` of the class, after which fields are of their types."""
    check = vars(cls)["__post_init__"]
    declared = {field.name: field.type for field in fields(cls)}  # pyright: ignore[reportArgumentType]
    numbers = {name: kind for name, of in declared.items() for kind in (float, int) if of in (kind, kind | None)}

    def __post_init__(self: Any) -> None:
        check(self)
        for name, kind in numbers.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, kind(value))

    return __post_init__


def derivation(name: str) -> Callable[[_Derivation], _Derivation]:
    """Make a function, or a class, what the method of `Event` with this name calls.

    A sampled event is an event itself, so its module imports this one, which therefore must not import it.
    """

    def register(make: _Derivation) -> _Derivation:
        _DERIVATIONS[name] = make
        return make

    return register


@cache
def _register() -> None:
    """Import every kind of event. They import this module, so it can do so only when it is asked for one by name."""
    for name in _MODULES:
        import_module(f"sfumato.accounting.events.{name}")


def _derived(name: str) -> Callable[..., Event]:
    """What the method of `Event` with this name calls."""
    _register()
    return _DERIVATIONS[name]


def _to_json(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_json(value)
    return tuple(_from_json(item) for item in value) if isinstance(value, list) else value


@event_kind("repeated")
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

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Event:
        event, count = event_from_json(values["of"]), values["count"]
        _require_names(values, "of", "count")
        by_hand = isinstance(count, int) and count == 1 and not isinstance(event, Repeated | Composition)
        return cls(event, count) if by_hand else event * count


@event_kind("composition")
class Composition(Event):
    """Several events on the same records, in any order; made by `+`. Empty: nothing was released.

    Compositions that grow from one another share a list of what was added, so a sum of n events takes n steps.

    Args:
        events: what is given is brought into the normal form, so that equal compositions cost the same.
    """

    __slots__ = ("_added", "_events", "_size")

    _added: list[Event]
    _size: int
    _events: tuple[Event, ...] | None

    def __init__(self, events: Iterable[Event]) -> None:
        try:
            members = tuple(events)
        except TypeError:
            raise InputError(f"Composition takes a tuple of events, got {events!r}; write a + b") from None
        for member in members:
            _require_event(member, "Composition")
        parts = _parts(_counts(members))
        self._fill(list(parts), len(parts), parts)

    @property
    def events(self) -> tuple[Event, ...]:
        """Different single events, each repeated as often as it happened."""
        with _JOINING:
            parts = self._events
            if parts is None:
                parts = _parts(_counts(islice(self._added, self._size)))
                self._fill(self._added if len(parts) == self._size else list(parts), len(parts), parts)
            return parts

    @property
    def several(self) -> bool:
        """Whether it has two different events at least."""
        return self._size > 1

    def joined(self, other: Event) -> Event:
        """This composition of several events, and another event."""
        more = other.events if isinstance(other, Composition) else (other,)
        with _JOINING:
            added, size = self._added, self._size
            if len(added) != size:  # another sum goes on from here
                added = added[:size]
            added.extend(more)
            return _composition(added, size + len(more))

    def _fill(self, added: list[Event], size: int, events: tuple[Event, ...] | None) -> None:
        for name, value in (("_added", added), ("_size", size), ("_events", events)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Composition, (self.events,)

    def __repr__(self) -> str:
        return f"Composition(events={self.events!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composition) and frozenset(self.events) == frozenset(other.events)

    def __hash__(self) -> int:
        return hash(frozenset(self.events))

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, "events": [event.to_json() for event in self.events]}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Event:
        _require_names(values, "events")
        return compose(_counts(event_from_json(part) for part in values["events"]))


_JOINING = Lock()  # of lists that compositions share


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
    """The event that consists of these events, each with its count.

    Raises:
        InputError: not a mapping of events to whole numbers >= 0.
    """
    if not isinstance(counts, Mapping):
        raise InputError(f"compose takes a dictionary of events and counts, got {counts!r}; write a + b")
    combined: dict[Event, int] = {}
    for event, count in counts.items():
        _require_event(event, "compose")
        whole(at_least=0, count=count)
        for single, times in terms(event):
            combined[single] = combined.get(single, 0) + times * int(count)
    return _of_parts(_parts(combined))


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote.

    Raises:
        InputError: the dictionary is not an event, or holds values that no event can have.
    """
    _register()
    try:
        kind = value["event"]
        if kind in _KINDS:
            return _KINDS[kind].from_fields({name: given for name, given in value.items() if name != "event"})
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"not an event: {value!r} ({error}); expected what to_json() wrote") from None
    except RecursionError:
        raise InputError("not an event: it is nested too deeply; expected what to_json() wrote") from None
    raise InputError(f"unknown event {kind!r}; this version of sfumato does not know it")


def _counts(events: Iterable[Event]) -> dict[Event, int]:
    counts: dict[Event, int] = {}
    for event in events:
        for single, count in terms(event):
            counts[single] = counts.get(single, 0) + count
    return counts


def _of_parts(parts: tuple[Event, ...]) -> Event:
    """The event of parts that are in normal form."""
    return parts[0] if len(parts) == 1 else _composition(list(parts), len(parts), parts)


def _composition(added: list[Event], size: int, parts: tuple[Event, ...] | None = None) -> Event:
    made = object.__new__(Composition)
    made._fill(added, size, parts)  # pyright: ignore[reportPrivateUsage]
    return made


def _parts(counts: Mapping[Event, int]) -> tuple[Event, ...]:
    return tuple(event if count == 1 else Repeated(event, count) for event, count in counts.items() if count)


def _require_names(values: Mapping[str, Any], *known: str) -> None:
    """Refuse a field that says something which this version would leave out."""
    for name in values:
        if name not in known:
            raise KeyError(name)


def _require_event(event: object, where: str) -> None:
    if not isinstance(event, Event):
        raise InputError(f"{where} takes events such as Gaussian(1.0), got {event!r}")


# What a grid of losses can hold; a pair beyond it is refused by name, and Renyi bounds take over.


_LEAST_SHIFT = 1e-7
_LARGEST_SHIFT = 20.0  # its losses stay below 700, the logarithm of the largest double


def require_grid(event: object, shift: float) -> None:
    """Refuse a pair whose largest shift, in units of the noise, no grid can hold.

    Raises:
        Unknown: the shift is too small or too large.
    """
    if not _LEAST_SHIFT <= shift <= _LARGEST_SHIFT:
        size = "much" if shift < _LEAST_SHIFT else "little"
        raise Unknown(f'{type(event).__name__} has too {size} noise for method="pld"; use "rdp"')
