"""Where an event stands among events of its kind: which of two costs more, whatever else is released.

One event costs at least as much as another one if each of its numbers is at least as large, because the other one can
be made from its output: by more noise, or by leaving units out of the sample (docs/explanation/schedules.md).
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

E = TypeVar("E")


class Rank(NamedTuple, Generic[E]):
    """The place of an event.

    Attributes:
        kind: events of the same kind can be compared.
        numbers: larger ones cost more; as many for all of a kind.
        make: the event of these numbers.
    """

    kind: Hashable
    numbers: tuple[float, ...]
    make: Callable[[tuple[float, ...]], E]


def worst(ranks: Iterable[Rank[E]]) -> E:
    """An event that costs at least as much as each of these, all of one kind."""
    ranks = list(ranks)
    return ranks[0].make(tuple(map(max, zip(*(rank.numbers for rank in ranks)))))


def mildest(ranks: Iterable[Rank[E]]) -> E:
    """An event that costs at most as much as each of these, all of one kind."""
    ranks = list(ranks)
    return ranks[0].make(tuple(map(min, zip(*(rank.numbers for rank in ranks)))))
