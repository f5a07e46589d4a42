"""Runs of very many different steps, such as a noise schedule: similar steps count as equal ones, from both sides.

Guarantees bounds as `pld` does, for the unit that the events were made for. Steps are put into at most 128 groups. With
each step replaced by the worst of its group the run costs at least as much, with the mildest at most as much
(`Event.ranked`). Groups are split where that makes the largest difference, by Renyi costs at one order.

>>> from sfumato.accounting.events import Composition, Gaussian
>>> run = sum((Gaussian(1 + step / 500).poisson(0.01) for step in range(500)), Composition(()))
>>> low, high = ScheduleAccountant(run).epsilon_interval(1e-5)
>>> low < high < 1.02 * low
True
"""

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._types import Adjacency
from sfumato.accounting.accountants.pld import PldAccountant
from sfumato.accounting.events import Event, Joint, compose, terms

_MOST_EXACT = 64  # different steps that are composed as they are
_MOST_GROUPS = 128
_MOST_FOR_CURVES = 24  # of which five compositions are made in each direction

_MOST_UNRANKED = 256  # different steps that cannot be compared; more of them take minutes
_MOST_ASKED = 64  # steps whose Renyi costs choose the order
_ORDERS = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_DELTA = 1e-6  # at which the order is the best one; any delta gives bounds


class ScheduleAccountant:
    """Two-sided bounds for a composition of many different events.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".

    Raises:
        InputError: the pair of an event is not known.
    """

    method = "pld"

    def __init__(self, event: Event, adjacency: Adjacency = "add_remove") -> None:
        self._event = event
        self._adjacency: Adjacency = adjacency
        worse, milder = grouped(event, adjacency)
        self._worse = PldAccountant(worse, adjacency, rough=True)
        self._milder = PldAccountant(milder, adjacency, rough=True)

    @staticmethod
    def suits(event: Event, adjacency: Adjacency) -> bool:
        """Whether all pairs are known, and not too many steps differ from all others in kind.

        Discrete Gaussians of different sigma do: which of two shows more is not known to follow from sigma. More of
        them than can be composed one by one cost what Renyi divergences say, without a lower bound.
        """
        unranked = sum(Rank.of(single) is None for single, _ in _different(event, adjacency))
        return unranked <= _MOST_UNRANKED and PldAccountant.suits(event, adjacency)

    def epsilon(self, delta: float) -> float:
        """An upper bound on epsilon; 0 <= epsilon <= inf."""
        return self._worse.upper(delta)

    def epsilon_interval(self, delta: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest epsilon of the pairs at this delta."""
        high = self.epsilon(delta)
        return min(self._milder.lower(delta), high), high

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, in [0, 1]."""
        return self._worse.delta(epsilon)

    def delta_interval(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper) bounds on the smallest delta of the pairs at this epsilon."""
        high = self.delta(epsilon)
        return min(self._milder.delta_interval(epsilon)[0], high), high

    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on delta at many epsilons >= 0, as `PldAccountant.curve`, from fewer groups."""
        worse, _ = grouped(self._event, self._adjacency, _MOST_FOR_CURVES)
        return PldAccountant(worse, self._adjacency, rough=True).curve()


def many_different(event: Event, adjacency: Adjacency) -> bool:
    """Whether more steps differ than are composed one by one; Gaussian releases are one, however many they are."""
    return len(_different(event, adjacency)) > _MOST_EXACT


def grouped(event: Event, adjacency: Adjacency, most: int = _MOST_GROUPS) -> tuple[Event, Event]:
    """The event with similar steps made equal: one that costs at least as much, and one that costs at most as much.

    Args:
        event: what was released.
        adjacency: "add_remove", "replace" or "zero_out".
        most: groups; what cannot be compared with anything is a group by itself, however many there are.
    """
    found = _different(event, adjacency)
    ranked: dict[object, list[tuple[Rank, int]]] = {}
    kept = dict(terms(event))
    for single, count in found:
        rank = Rank.of(single)
        if rank is not None:
            ranked.setdefault(rank.kind, []).append((rank, count))
            del kept[single]
    order = _order(found, adjacency)
    groups = [_Group(tuple(members), order, adjacency) for members in ranked.values()]
    room = most - sum(single.gaussian_shift(adjacency) is None for single in kept)
    while groups and len(groups) < room:
        groups.sort(key=lambda group: group.difference)
        if not groups[-1].difference > 0:
            break
        groups += groups.pop().halves()
    worse, milder = dict(kept), dict(kept)
    for group in groups:
        for counts, single in ((worse, group.worst), (milder, group.mildest)):
            counts[single] = counts.get(single, 0) + group.count
    return compose(worse), compose(milder)


@dataclass(frozen=True)
class Rank:
    """Where an event stands among those that it can be compared with (`Event.ranked`).

    One event costs at least as much as another one of its kind if each of its numbers is at least as large.

    Attributes:
        event: the event.
        kind: all that is not compared: events of the same kind can be.
        numbers: larger ones cost more; as many for all of a kind.
    """

    event: Event
    kind: Hashable
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, event: Event) -> "Rank | None":
        """The rank of an event; None where no order is known."""
        if isinstance(event, Joint):
            event = event.gaussian
        if not event.ranked:
            return None
        kind: list[Hashable] = [type(event)]
        numbers = [float(sign * getattr(event, name)) for name, sign in event.ranked.items()]
        for name in _others(event):
            value = getattr(event, name)
            if isinstance(value, Event):
                inner = cls.of(value)
                if inner is None:
                    return None
                value, numbers = inner.kind, [*numbers, *inner.numbers]
            kind.append(value)
        return cls(event, tuple(kind), tuple(numbers))


def worst(ranks: Iterable[Rank]) -> Event:
    """An event that costs at least as much as each of these, all of one kind."""
    ranks = list(ranks)
    return _with_numbers(ranks[0].event, map(max, zip(*(rank.numbers for rank in ranks))))


def mildest(ranks: Iterable[Rank]) -> Event:
    """An event that costs at most as much as each of these, all of one kind."""
    ranks = list(ranks)
    return _with_numbers(ranks[0].event, map(min, zip(*(rank.numbers for rank in ranks))))


def _with_numbers(event: Event, numbers: Iterator[float]) -> Event:
    """An event of this kind, with other numbers in the order of `Rank.numbers`."""
    if isinstance(event, Joint):
        event = event.gaussian
    changed: dict[str, Any] = {}
    for name, sign in event.ranked.items():
        changed[name] = type(getattr(event, name))(sign * next(numbers))
    for name in _others(event):
        value = getattr(event, name)
        if isinstance(value, Event):
            changed[name] = _with_numbers(value, numbers)
    return replace(event, **changed)  # pyright: ignore[reportArgumentType]


def _others(event: Event) -> list[str]:
    """Names of the fields that are not compared."""
    return [field.name for field in fields(event) if field.name not in event.ranked]  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Group:
    """Steps of one kind, with counts."""

    members: tuple[tuple[Rank, int], ...]
    order: float
    adjacency: Adjacency

    @cached_property
    def worst(self) -> Event:
        return worst(rank for rank, _ in self.members)

    @cached_property
    def mildest(self) -> Event:
        return mildest(rank for rank, _ in self.members)

    @cached_property
    def count(self) -> int:
        return sum(count for _, count in self.members)

    @cached_property
    def difference(self) -> float:
        """What it matters, in Renyi costs, that the steps of the group are counted as equal."""
        if len(self.members) == 1:
            return 0.0
        order = np.array([self.order])
        both = [_renyi(single, order, self.adjacency)[0] for single in (self.worst, self.mildest)]
        return self.count * (both[0] - both[1] if math.isfinite(both[0]) else max(self._spreads))

    @cached_property
    def _spreads(self) -> list[float]:
        """How far apart the steps are in each number, on a logarithmic scale."""
        columns = np.log(np.abs([rank.numbers for rank, _ in self.members]) + 1e-300)
        return np.ptp(columns, axis=0).tolist()

    def halves(self) -> "list[_Group]":
        """Two groups, parted at the middle of the number in which the steps differ most."""
        axis = int(np.argmax(self._spreads))
        numbers = np.abs([rank.numbers[axis] for rank, _ in self.members])
        least, most = float(numbers.min()), float(numbers.max())
        middle = min(math.sqrt(least) * math.sqrt(most), math.nextafter(most, 0.0))
        parts = ([], [])
        for member, number in zip(self.members, numbers):
            parts[int(number > middle)].append(member)
        return [_Group(tuple(part), self.order, self.adjacency) for part in parts if part]


def _different(event: Event, adjacency: Adjacency) -> list[tuple[Event, int]]:
    return [(single, count) for single, count in terms(event) if single.gaussian_shift(adjacency) is None]


def _order(found: list[tuple[Event, int]], adjacency: Adjacency) -> float:
    """About the order at which the Renyi cost of all steps gives the smallest epsilon; from some of them."""
    ordered = sorted(found, key=lambda one: rank.numbers if (rank := Rank.of(one[0])) else ())
    shown = [ordered[index] for index in np.unique(np.linspace(0, len(found) - 1, _MOST_ASKED).astype(int))]
    share = sum(count for _, count in found) / sum(count for _, count in shown)
    total = sum((share * count * _renyi(single, _ORDERS, adjacency) for single, count in shown), np.zeros(len(_ORDERS)))
    epsilons = total - (math.log(_DELTA) + np.log(_ORDERS)) / (_ORDERS - 1)
    return float(_ORDERS[np.argmin(epsilons)])


def _renyi(single: Event, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
    try:
        return single.renyi(orders, adjacency)
    except InputError:
        return np.full(len(orders), np.inf)
