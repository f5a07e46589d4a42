"""From when until when a record goes, and how much of that a gap between two visits may take.

The number of visits, the first and the last time are drawn before any visit is told. So a gap never takes what the
visits behind it need at the least, and the last gap is what is left: both marginals are kept, and times ascend.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans of patients.

    Attributes:
        visits: int64 [n], >= 1.
        start: float64 [n], time of the first visit, >= 0.
        end: float64 [n], time of the last one; that of the first one where there is one visit only.
        least: the smallest gap, > 0.
    """

    visits: np.ndarray
    start: np.ndarray
    end: np.ndarray
    least: float

    @classmethod
    def of(
        cls, visits: np.ndarray, start: np.ndarray, end: np.ndarray, *, horizon: float, least: float, middle: float
    ) -> Self:
        """What was drawn, made possible.

        The number of visits stays where they fit before the horizon at all. An end that is too early for them moves:
        just as far as they need, or, where it is not after the first visit, to where gaps of middle length lead.

        Args:
            visits, start, end: float64 [n], as they were drawn; NaN for no idea.
            horizon: the latest time of any visit.
            least, middle: the smallest gap and one of middle length, > 0.
        """
        visits = np.maximum(np.nan_to_num(np.round(visits), nan=1.0), 1.0)
        start, end = np.clip(np.nan_to_num(start), 0.0, horizon), np.nan_to_num(end)
        visits = np.minimum(visits, np.floor((horizon - start) / least) + 1)
        gaps = visits - 1
        end = np.where(end > start, end, np.minimum(start + gaps * middle, horizon))
        end = np.where(gaps > 0, np.maximum(end, start + gaps * least), start)
        return cls(visits.astype(np.int64), start, end, least)

    def at(self, order: np.ndarray) -> "Spans":
        """Those of some patients, int64 [m]."""
        return Spans(self.visits[order], self.start[order], self.end[order], self.least)

    def room(self, elapsed: np.ndarray, step: int) -> np.ndarray:
        """The longest gap before a visit that leaves the least one before each visit behind it, float64 [m].

        Args:
            elapsed: float64 [m], when the visit before was; of the first patients.
            step: which visit, >= 1; all of these patients have it.
        """
        now = len(elapsed)
        behind = self.visits[:now] - step - 1
        return np.maximum(self.end[:now] - elapsed - behind * self.least, self.least)

    def ends(self, now: int, step: int) -> np.ndarray:
        """Whether this visit is the last one, bool [now], of the first patients."""
        return self.visits[:now] == step + 1
