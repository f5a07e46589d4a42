"""Releases of which only a number is known: none at all.

>>> NonPrivate().largest_loss("add_remove")
inf
"""

from dataclasses import dataclass

import numpy as np

from sfumato._types import Adjacency
from sfumato.accounting.events.event import Event, event_kind


@event_kind("non_private")
@dataclass(frozen=True, slots=True)
class NonPrivate(Event):
    """A release without any guarantee: epsilon is infinite. For runs without noise."""

    unsampled = ""

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return np.full(len(orders), np.inf)

    def rho(self, adjacency: Adjacency) -> float:
        return float("inf")
