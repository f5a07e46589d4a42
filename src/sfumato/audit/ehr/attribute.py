"""Attribute inference: whether synthetic records tell a sensitive column of those who were trained on.

The attacker knows all columns of a training patient but one, and takes the vote of the nearest synthetic records on the
one that is missing. The ideal is the same with as many real records of other patients. So what a column has in common
with the others in everybody, which no generator can or should hide, counts for the ideal, too.

A category scores 1 where it is right. A number scores 1 − the difference between the rank of the vote and that of the
truth. Patients in whom the column is missing are not asked about. Intervals are of drawing the patients again as well
as the records that vote.
"""

from collections.abc import Sequence

import numpy as np

from sfumato._check import InputError
from sfumato.audit.ehr.attack import Attack, Measure
from sfumato.audit.ehr.flatten import Flat, pooled
from sfumato.audit.ehr.neighbours import Votes
from sfumato.audit.ehr.scale import Scale
from sfumato.metrics.tabular.bootstrap import Interval, centred

_REPLICATES = 200
_MOST_TEAMS = 4  # of synthetic records, each as many as there are real ones to compare with


def attribute_inference(
    members: Flat, outsiders: Flat, synthetic: Flat, sensitive: Sequence[str], rng: np.random.Generator
) -> Attack:
    """The attack on what was learned from `members`, of whom `sensitive` static columns are asked.

    Args:
        members, outsiders, synthetic: as for `membership_inference`, as flat tables.
        sensitive: names of static columns, at least one; with several, the first measure is their mean.
        rng: deals the synthetic records into teams of the size of `outsiders` and draws the intervals.

    Raises:
        InputError: a column is not static, or is never there.
    """
    size = min(len(outsiders), len(synthetic))
    dealt = rng.permutation(len(synthetic))
    teams = [dealt[start : start + size] for start in range(0, len(dealt) - size + 1, size)][:_MOST_TEAMS]
    others = [outsiders.take(rng.permutation(len(outsiders))[:size])]
    made = [synthetic.take(team) for team in teams]
    reference = pooled(members, outsiders)
    questions = [_Question(members, reference, made, others, name) for name in sensitive]
    found, ideal = (np.array(side) for side in zip(*(each.rates() for each in questions), strict=True))
    again = np.array([[each.rates(rng) for each in questions] for _ in range(_REPLICATES)])
    measures = [_measure(name, found[place], ideal[place], again[:, place]) for place, name in enumerate(sensitive)]
    if len(measures) > 1:
        measures.insert(0, _measure("mean of the columns", found.mean(), ideal.mean(), again.mean(1)))
    return Attack(name="attribute inference", measures=tuple(measures), records=len(members))


def _measure(name: str, found: float, ideal: float, again: np.ndarray) -> Measure:
    return Measure(
        name=name,
        found=_within_one(centred(found, again[:, 0])),
        ideal=_within_one(centred(ideal, again[:, 1])),
        excess=centred(found - ideal, again[:, 0] - again[:, 1]),
    )


def _within_one(interval: Interval) -> Interval:
    return Interval(interval.value, max(interval.low, 0.0), min(interval.high, 1.0))


class _Question:
    """One sensitive column: what synthetic and other real records answer about the members."""

    def __init__(self, members: Flat, reference: Flat, made: list[Flat], others: list[Flat], name: str) -> None:
        values, self._numeric = _column(members, name)
        known = np.flatnonzero(~np.isnan(values))
        if not len(known):
            raise InputError(f"the sensitive column {name!r} is missing in all real records; choose another")
        self._truth = values[known]
        self._ordered = np.sort(self._truth)
        scale = Scale(reference.without(name))
        queries = scale.place(members.take(known).without(name))
        self._sides: list[list[Votes | None]] = []
        for side in (made, others):
            answers = []
            for records in side:
                told, _ = _column(records, name)
                rows = np.flatnonzero(~np.isnan(told))
                there = scale.place(records.take(rows).without(name))
                answers.append(Votes(queries, there, told[rows], numeric=self._numeric) if len(rows) else None)
            self._sides.append(answers)

    def rates(self, rng: np.random.Generator | None = None) -> tuple[float, float]:
        """Mean score of synthetic and of other real records; with a generator of patients and records drawn again."""
        count = len(self._truth)
        rows = np.arange(count) if rng is None else rng.integers(0, count, count)
        made, real = (float(np.mean([self._scores(votes, rng)[rows].mean() for votes in side])) for side in self._sides)
        return made, real

    def _scores(self, votes: Votes | None, rng: np.random.Generator | None) -> np.ndarray:
        """In [0, 1], float64 [members asked about]; 0 where nothing is told."""
        if votes is None:
            return np.zeros(len(self._truth))
        told = votes.outcome() if rng is None else votes.redrawn(rng)
        if not self._numeric:
            return (told == self._truth).astype(np.float64)
        return np.nan_to_num(1 - np.abs(self._rank(told) - self._rank(self._truth)))

    def _rank(self, values: np.ndarray) -> np.ndarray:
        below, up_to = (np.searchsorted(self._ordered, values, side) for side in ("left", "right"))
        return np.where(np.isnan(values), np.nan, (below + up_to) / (2 * len(self._ordered)))


def _column(flat: Flat, name: str) -> tuple[np.ndarray, bool]:
    """A static column as float64 [n], NaN = missing, and whether it holds numbers."""
    columns = (*flat.code_columns, *flat.number_columns)
    static = [each.name for each in columns if each.part == "static"]
    if name not in static:
        raise InputError(f"there is no static column {name!r}; sensitive ones may be {', '.join(static) or 'none'}")
    place = next(place for place, each in enumerate(columns) if each.name == name and each.part == "static")
    if place >= len(flat.code_columns):
        return flat.numbers[:, place - len(flat.code_columns)], True
    codes = flat.codes[:, place]
    return np.where(codes < 0, np.nan, codes), False
