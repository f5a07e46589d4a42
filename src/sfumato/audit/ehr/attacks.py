"""Attacks on synthetic health records: membership, attributes, re-identification."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.audit.ehr.flat import Flat, pooled
from sfumato.metrics.tabular import LEVEL, Interval, bootstrap, bootstrap_mean, centred

# What an attack found, and what it finds where nothing can have leaked.
#
# The ideal comes from real records that the generator never saw. An attack that finds no more than that has learned
# what the records say about everybody. Examples of attacks are no bound: another one may find more.


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A figure of an attack; the larger, the worse.

    Attributes:
        name: what it is.
        found: with the synthetic records.
        ideal: with real records that were held out; exact where it follows from chance alone.
        excess: found − ideal, from records that were drawn again for both.
    """

    name: str
    found: Interval
    ideal: Interval
    excess: Interval

    @property
    def above(self) -> bool:
        """Whether more was found than the ideal, beyond the interval: by chance in one of forty measures."""
        return self.excess.low > 0

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return {**asdict(self), "above": self.above}


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack and what it was run on.

    Attributes:
        name: of the attack.
        measures: the first is the one that it is known by.
        records: how many records each measure rests on.
    """

    name: str
    measures: tuple[Measure, ...]
    records: int

    @property
    def above(self) -> bool:
        """Whether one of its measures is."""
        return any(measure.above for measure in self.measures)

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        measures: Sequence[dict[str, Any]] = [measure.to_json() for measure in self.measures]
        return {"name": self.name, "measures": measures, "records": self.records, "above": self.above}


# The one distance between patients of a flat table, in which numbers, categories and missing values count the same.
#
# A number is its rank among the values of a reference (mean rank of ties, divided by their count: in [0, 1], whatever
# its unit and its outliers). The squared distance of two rows is the sum, over all columns, of
#
# - the squared difference of the two ranks, where a missing number has the rank ½;
# - 1 where a number is missing in one of the two and not in the other;
# - 1 where two categories differ; missing is a category of its own.
#
# The last is what one-hot vectors of length 1/√2 give, without ever having them in memory. The reference is to hold
# both kinds that an attack compares, members and outsiders, or the scale would distinguish them.


_BLOCK = 1 << 22  # distances at once
_DECIMALS = 9  # of a squared distance: what is below is rounding, and copies are at 0


@dataclass(frozen=True, eq=False)
class Placed:
    """Rows on the scale.

    Attributes:
        numbers: float64 [n, 2p]: ranks, and then 1 where a number is missing.
        codes: int32 [n, q].
    """

    numbers: np.ndarray
    codes: np.ndarray

    def __len__(self) -> int:
        """Rows."""
        return len(self.numbers)

    def take(self, rows: np.ndarray) -> "Placed":
        """These rows."""
        return Placed(self.numbers[rows], self.codes[rows])


class Scale:
    """Ranks among the values of a reference.

    Args:
        reference: its rows decide the ranks.
    """

    def __init__(self, reference: Flat) -> None:
        self._sorted = [np.sort(column[~np.isnan(column)]) for column in reference.numbers.T]

    def place(self, flat: Flat) -> Placed:
        """Rows of a table with the columns of the reference, on its scale."""
        missing = np.isnan(flat.numbers)
        ranks = np.full(flat.numbers.shape, 0.5)
        for place, known in enumerate(self._sorted):
            there = ~missing[:, place]
            if len(known):
                values = flat.numbers[there, place]
                below, up_to = (np.searchsorted(known, values, side) for side in ("left", "right"))
                ranks[there, place] = (below + up_to) / (2 * len(known))
        return Placed(np.concatenate([ranks, missing], 1), flat.codes)


def squared_distances(queries: Placed, records: Placed) -> Iterator[tuple[slice, np.ndarray]]:
    """Of each block of queries its place and float64 [queries in it, records]."""
    squares = (records.numbers**2).sum(1)
    step = max(1, _BLOCK // max(len(records), 1))
    for start in range(0, len(queries), step):
        rows = slice(start, min(start + step, len(queries)))
        numbers = queries.numbers[rows]
        found = (numbers**2).sum(1)[:, None] + squares - 2 * (numbers @ records.numbers.T)
        for mine, theirs in zip(queries.codes[rows].T, records.codes.T, strict=True):
            found += mine[:, None] != theirs
        yield rows, np.round(np.maximum(found, 0.0, out=found), _DECIMALS, out=found)


def nearest_distances(queries: Placed, records: Placed) -> np.ndarray:
    """Squared distance of each query to the record next to it, float64 [queries]."""
    found = np.empty(len(queries))
    for rows, distances in squared_distances(queries, records):
        found[rows] = distances.min(1)
    return found


# The vote of the nearest records on a column, and the same vote of records that were drawn again.
#
# Five records vote, each weighted by one over its squared distance: a copy outvotes the others. The fifteen nearest are
# kept, so that a vote can be taken again with some records several times and others not at all, as a bootstrap draws
# them; what an attack finds depends on which records it happened to have, and an interval that kept them fixed would be
# too narrow.


_VOTERS = 5
_NEIGHBOURS = 15
_NEAREST = 1e-6  # squared distance: copies weigh this much the more, and do not divide by zero


class Votes:
    """What records say about a column of queries.

    Args:
        queries, records: on one scale, without the column; at least one record.
        values: the column in the records, float64 [records].
        numeric: whether it holds numbers, of which the vote is the mean, or codes, of which the heaviest wins.
    """

    def __init__(self, queries: Placed, records: Placed, values: np.ndarray, *, numeric: bool) -> None:
        kept = min(_NEIGHBOURS, len(records))
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
            support = np.matmul(weights[:, None, :], self._same)[:, 0]
            winner = np.where(weights > 0, support, 0.0).argmax(1)
            found = np.take_along_axis(self._values, winner[:, None], 1)[:, 0]
            return np.where(weights.sum(1) > 0, found, np.nan)

    def redrawn(self, rng: np.random.Generator) -> np.ndarray:
        """The outcome with as many records, drawn again with replacement."""
        return self.outcome(np.bincount(rng.integers(0, self._records, self._records), minlength=self._records))


# Attribute inference: whether synthetic records reveal a sensitive column of the training patients.
#
# The attacker knows all columns of a training patient but one, and takes the vote of the nearest synthetic records on
# the one that is missing. The ideal is the same with as many real records of other patients. So what a column has in
# common with the others in everybody, which no generator can or should hide, counts for the ideal, too.
#
# A category scores 1 where it is right. A number scores 1 − the difference between the rank of the vote and that of the
# truth. Patients in whom the column is missing are not asked about. Intervals are of drawing the patients again as well
# as the records that vote.


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
    measures = [
        _measure(name, found[place], ideal[place], again[:, place], size) for place, name in enumerate(sensitive)
    ]
    if len(measures) > 1:
        measures.insert(0, _measure("mean of the columns", found.mean(), ideal.mean(), again.mean(1), size))
    return Attack(name="attribute inference", measures=tuple(measures), records=len(members))


def _measure(name: str, found: float, ideal: float, again: np.ndarray, units: int) -> Measure:
    return Measure(
        name=name,
        found=_within_one(centred(found, again[:, 0], units)),
        ideal=_within_one(centred(ideal, again[:, 1], units)),
        excess=centred(found - ideal, again[:, 0] - again[:, 1], units),
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
                values, _ = _column(records, name)
                rows = np.flatnonzero(~np.isnan(values))
                there = scale.place(records.take(rows).without(name))
                answers.append(Votes(queries, there, values[rows], numeric=self._numeric) if len(rows) else None)
            self._sides.append(answers)

    def rates(self, rng: np.random.Generator | None = None) -> tuple[float, float]:
        """Mean score of synthetic and of other real records; with a generator of patients and records drawn again."""
        count = len(self._truth)
        rows = np.arange(count) if rng is None else rng.integers(0, count, count)
        made, real = (float(np.mean([self._scores(votes, rng)[rows].mean() for votes in side])) for side in self._sides)
        return made, real

    def _scores(self, votes: Votes | None, rng: np.random.Generator | None) -> np.ndarray:
        """In [0, 1], float64 [members asked about]; 0 where nothing is predicted."""
        if votes is None:
            return np.zeros(len(self._truth))
        predicted = votes.outcome() if rng is None else votes.redrawn(rng)
        if not self._numeric:
            return (predicted == self._truth).astype(np.float64)
        return np.nan_to_num(1 - np.abs(self._rank(predicted) - self._rank(self._truth)))

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


# Membership inference: whether the nearest synthetic record reveals who was trained on.
#
# The attacker has somebody's record and the synthetic ones, and says "member" where the nearest of them is closer than
# a threshold. The threshold is the best one on half of the members and outsiders; the other half measures how often it
# is right, both kinds counting the same. The ideal is 0.5. The first half also decides the side: a generator that keeps
# away from its members reveals who they are, too; then the attacker says "member" where the nearest is farther.
#
# How many members are found with one outsider in a hundred suspected (TPR at 1 % FPR) is about the few that are
# remembered best. Its ideal is what is found of members who are strangers to the generator, too: beta-binomial, a
# little more than 1 %, and exact whatever the distances are. Its excess is against the ends of that, because draws
# among the few nearest outsiders say little.


FPR = 0.01


def membership_inference(members: Placed, outsiders: Placed, synthetic: Placed, rng: np.random.Generator) -> Attack:
    """The attack on what was learned from `members`.

    Args:
        members: records that the generator was trained on, at least 2.
        outsiders: real records that it has not seen, at least 2.
        synthetic: what it made, at least 1.
        rng: halves both and draws the intervals.
    """
    sides = [rng.permutation(nearest_distances(each, synthetic)) for each in (members, outsiders)]
    learned, tested = ([each[half::2] for each in sides] for half in (0, 1))
    side = best_side(*learned)
    threshold = best_threshold(*(side * each for each in learned))
    accuracy = _interval(lambda inside, outside: accuracy_at(threshold, side * inside, side * outside), tested, rng)
    excess = Interval(*(end - 0.5 for end in (accuracy.value, accuracy.low, accuracy.high)))
    guess = Measure(name="accuracy", found=accuracy, ideal=Interval.exact(0.5), excess=excess)
    found, ideal = _interval(tpr_at_fpr, sides, rng), ideal_tpr(len(members), len(outsiders))
    beyond = Interval(found.value - ideal.value, found.value - ideal.high, found.value - ideal.low)
    measures = (guess, Measure(name="TPR at 1 % FPR", found=found, ideal=ideal, excess=beyond))
    return Attack(name="membership inference", measures=measures, records=len(members) + len(outsiders))


def best_threshold(members: np.ndarray, outsiders: np.ndarray) -> float:
    """The distance up to which to say "member": the lowest of those with the best accuracy; −∞ for never.

    >>> best_threshold(np.array([0.0, 1, 5]), np.array([2.0, 3, 6]))
    1.0
    """
    candidates = np.unique(np.concatenate([[-np.inf], members, outsiders]))
    right = np.searchsorted(np.sort(members), candidates, "right") / len(members)
    wrong = np.searchsorted(np.sort(outsiders), candidates, "right") / len(outsiders)
    return float(candidates[np.argmax(right - wrong)])


def best_side(members: np.ndarray, outsiders: np.ndarray) -> int:
    """1 where members are best recognised by small distances, −1 where by large ones.

    >>> best_side(np.array([0.0, 1, 5]), np.array([2.0, 3, 6])), best_side(np.array([4.0, 5]), np.array([1.0, 2]))
    (1, -1)
    """
    found = {}
    for side in (1, -1):
        inside, outside = side * members, side * outsiders
        found[side] = accuracy_at(best_threshold(inside, outside), inside, outside)
    return 1 if found[1] >= found[-1] else -1


def accuracy_at(threshold: float, members: np.ndarray, outsiders: np.ndarray) -> float:
    """Share of right answers where either kind comes half of the time."""
    return float(((members <= threshold).mean() + (outsiders > threshold).mean()) / 2)


def tpr_at_fpr(members: np.ndarray, outsiders: np.ndarray, fpr: float = FPR) -> float:
    """Share of members nearer than the threshold that suspects at most this share of outsiders.

    >>> tpr_at_fpr(np.array([0.0, 1, 5]), np.array([2.0, 3, 6]))
    0.6666666666666666
    """
    ordered = np.sort(outsiders)
    allowed = int(fpr * len(ordered))  # of them may be suspected
    return float((members < ordered[allowed]).mean())


def ideal_tpr(members: int, outsiders: int, fpr: float = FPR) -> Interval:
    """What `tpr_at_fpr` is where members and outsiders come from one distribution: its mean and the middle 95 %.

    >>> ideal_tpr(3000, 1000)
    Interval(value=0.01098901098901099, low=0.004666666666666667, high=0.019333333333333334)
    """
    from scipy.stats import betabinom  # late: it takes half a second to import

    suspected = int(fpr * outsiders)
    found = betabinom(members, suspected + 1, outsiders - suspected)
    low, high = found.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2]) / members
    return Interval((suspected + 1) / (outsiders + 1), float(low), float(high))


def _interval(statistic: Callable[..., float], sides: list[np.ndarray], rng: np.random.Generator) -> Interval:
    return bootstrap(
        lambda *rows: statistic(*(side[each] for side, each in zip(sides, rows, strict=True))),
        [len(side) for side in sides],
        rng,
    )


# Re-identification: whether two halves of a synthetic record lead to one and the same patient.
#
# The columns are dealt into two halves (what comes from one column stays together). The attacker looks for the training
# record nearest to a synthetic record by the one half, and by the other. Where both lead to the same record, what
# is known of somebody by the one half can be joined with what the other half reveals. The ideal is the same with real
# records of other patients in place of the synthetic ones.
#
# Several records may be equally near: then it counts how likely two fair draws among them agree. The rate is the mean
# over several ways of dealing the columns.


_WAYS = 5


def reidentification(members: Flat, outsiders: Flat, synthetic: Flat, rng: np.random.Generator) -> Attack:
    """The attack on what was learned from `members`; arguments as for `membership_inference`, as flat tables.

    Raises:
        InputError: the records have a single column, which has no halves.
    """
    sources = members.sources
    if len(sources) < 2:
        raise InputError(f"re-identification needs two columns at least, got {len(sources)}; give records with more")
    together = pooled(members, outsiders)
    made, real = np.zeros(len(synthetic)), np.zeros(len(outsiders))
    for _ in range(_WAYS):
        dealt = [sources[place] for place in rng.permutation(len(sources))]
        halves = dealt[: len(dealt) // 2], dealt[len(dealt) // 2 :]
        scales = [Scale(together.without(*half)) for half in halves]
        placed = [
            [scale.place(side.without(*half)) for scale, half in zip(scales, halves, strict=True)]
            for side in (members, synthetic, outsiders)
        ]
        made += agreement(placed[1], placed[0]) / _WAYS
        real += agreement(placed[2], placed[0]) / _WAYS
    excess = bootstrap(lambda a, b: made[a].mean() - real[b].mean(), [len(made), len(real)], rng)
    measure = Measure(
        name="rate of agreement", found=bootstrap_mean(made, rng), ideal=bootstrap_mean(real, rng), excess=excess
    )
    return Attack(name="re-identification", measures=(measure,), records=len(synthetic))


def agreement(queries: list[Placed], records: list[Placed]) -> np.ndarray:
    """How likely the two halves of each query have the same nearest record, float64 [queries] in [0, 1]."""
    found = np.empty(len(queries[0]))
    blocks = (squared_distances(*half) for half in zip(queries, records, strict=True))
    for (rows, first), (_, second) in zip(*blocks, strict=True):
        nearest = [distances == distances.min(1, keepdims=True) for distances in (first, second)]
        chances = nearest[0].sum(1) * nearest[1].sum(1)
        found[rows] = (nearest[0] & nearest[1]).sum(1) / chances
    return found
