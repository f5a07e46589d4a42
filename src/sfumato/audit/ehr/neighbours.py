"""The vote of the nearest records on a column, and the same vote of records that were drawn again.

Five records vote, each weighted by one over its squared distance: a copy outvotes the others. The fifteen nearest are
kept, so that a vote can be taken again with some records several times and others not at all, as a bootstrap draws
them; what an attack finds depends on which records it happened to have, and an interval that kept them fixed would be
too narrow.
"""

import numpy as np

from sfumato.audit.ehr.scale import Placed, squared_distances

_VOTERS = 5
_KEPT = 15
_NEAREST = 1e-6  # squared distance: copies weigh this much the more, and do not divide by zero


class Votes:
    """What records say about a column of queries.

    Args:
        queries, records: on one scale, without the column; at least one record.
        values: the column in the records, float64 [records].
        numeric: whether it holds numbers, of which the vote is the mean, or codes, of which the heaviest wins.
    """

    def __init__(self, queries: Placed, records: Placed, values: np.ndarray, *, numeric: bool) -> None:
        kept = min(_KEPT, len(records))
        self._nearest = np.empty((len(queries), kept), np.int64)
        self._weights = np.empty((len(queries), kept))
        for rows, distances in squared_distances(queries, records):
            near = np.argpartition(distances, kept - 1, axis=1)[:, :kept]
            far = np.take_along_axis(distances, near, 1)
            order = np.argsort(far, 1, kind="stable")
            self._nearest[rows] = np.take_along_axis(near, order, 1)
            self._weights[rows] = 1 / (np.take_along_axis(far, order, 1) + _NEAREST)
        self._values = values[self._nearest]
        self._records = len(records)
        self._numeric = numeric
        self._same = None if numeric else (self._values[:, :, None] == self._values[:, None, :]).astype(np.float32)

    def outcome(self, times: np.ndarray | None = None) -> np.ndarray:
        """What the vote gives for each query, float64 [queries]; NaN where all that are near were left out.

        Args:
            times: how often each record is there, int64 [records]; None for once.
        """
        there = np.ones_like(self._nearest) if times is None else times[self._nearest]
        before = np.cumsum(there, 1) - there
        weights = self._weights * np.clip(_VOTERS - before, 0, there)
        with np.errstate(invalid="ignore"):  # no weight at all becomes NaN
            if self._same is None:
                return (weights * self._values).sum(1) / weights.sum(1)
            behind = np.matmul(weights[:, None, :], self._same)[:, 0]
            winner = np.where(weights > 0, behind, 0.0).argmax(1)
            found = np.take_along_axis(self._values, winner[:, None], 1)[:, 0]
            return np.where(weights.sum(1) > 0, found, np.nan)

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """The outcome with as many records, drawn again with replacement."""
        return self.outcome(np.bincount(rng.integers(0, self._records, self._records), minlength=self._records))
