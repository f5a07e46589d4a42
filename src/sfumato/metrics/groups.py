"""Verification by group: how well pairs of one source, or of people with one label, are judged, and how groups differ.

A pair belongs to a group when both of its people do; other pairs are left out. Three measures a group: the accuracy in
folds with thresholds of the group's own (as RFW reports it; `pair_accuracy`), and at one threshold for all groups, that
of a false accept rate over all pairs of groups, the recall and the realised false accept rate: a common threshold is
what a deployed system has.

A source of pictures (films, press, one country) is no ethnic group, and differences between sources are those of
cameras, dates, poses and selection, too. Labels that others gave to people are opinions on pictures. Groups of fewer
than `least` people are not reported, only named.

Intervals are of 95 % over *people*, with all pairs of each, thresholds held fixed: Wilson's with Student's quantile,
for as many independent trials as have the standard error over people. Where fewer than `FEW` people have an error, or
fewer than `FEW` a right answer, that error is hardly known: there are then at most as many trials as people (half as
many for pairs of two people), so that a group without an error has an interval, too. People with more pairs than
others count as fewer (Kish). The interval of a difference is Newcombe's. Intervals cover neither another training run
nor several comparisons at once.

These numbers are computed from the data without noise: they are not private.

References:
    Huang et al.: Labeled Faces in the Wild. Technical report 07-49, 2007. Wang et al.: Racial Faces in the Wild. ICCV
    2019 (balanced pairs and ten folds a group).
    Dean, Pagano: Evaluating Confidence Interval Methods for Binomial Proportions in Clustered Surveys. Journal of
    Survey Statistics and Methodology 2015 (Wilson's interval by effective trials).
    Newcombe: Interval Estimation for the Difference between Independent Proportions. Statistics in Medicine 1998.
    Efron, Stein: The Jackknife Estimate of Variance. Annals of Statistics 1981 (of pairs of two people the standard
    error over people is too large rather than too small).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.metrics.baselines import standard_error, t_quantile
from sfumato.metrics.pairs import pair_accuracy
from sfumato.metrics.verification import pair_histogram

LEAST = 30
"""People from which on a group is reported."""

NOTE = "Sources and given labels are not ethnic groups: pictures of groups differ in cameras, dates and selection, too."
"""The sentence that goes with every table of groups."""

FEW = 10
"""People with an error, and with a right answer, from which on the standard error alone decides an interval."""

_AT_ONCE = 2**14  # pairs whose names are looked up at a time

Range = tuple[float, float, float]
"""A value, and the lower and the upper end of its interval."""

MEASURES = ("accuracy", "recall", "far")


@dataclass(frozen=True, kw_only=True)
class GroupResult:
    """Measures of one group.

    Attributes:
        identities, genuine_pairs, impostor_pairs: how many there were.
        accuracy: in folds, thresholds chosen on the group's other folds.
        recall: share of genuine pairs above the common threshold.
        far: share of impostor pairs above it.
    """

    identities: int
    genuine_pairs: int
    impostor_pairs: int
    accuracy: Range
    recall: Range
    far: Range


@dataclass(frozen=True, kw_only=True)
class GroupDifference:
    """The first group less the second.

    Attributes:
        first, second: names of groups.
        accuracy, recall, far: differences with their intervals.
    """

    first: str
    second: str
    accuracy: Range
    recall: Range
    far: Range


@dataclass(frozen=True, kw_only=True)
class GroupResults:
    """All groups and their differences.

    Attributes:
        groups: by name.
        differences: of every two groups.
        left_out: people of each group that is too small to be reported.
        threshold: the common one.
        note: what groups are not; show it with the numbers.
    """

    groups: dict[str, GroupResult]
    differences: tuple[GroupDifference, ...]
    left_out: dict[str, int]
    threshold: float
    note: str = NOTE


def pairs_by_group(
    similarity: np.ndarray,
    same: np.ndarray,
    folds: np.ndarray,
    names: np.ndarray,
    groups: Mapping[str, str],
    *,
    far: float = 1e-2,
    least: int = LEAST,
) -> GroupResults:
    """Judge pairs by group.

    Args:
        similarity: float [pairs].
        same: whether a pair is genuine, bool [pairs].
        folds: integers [pairs].
        names: of both people, text [pairs, 2].
        groups: the group of each person; people who are not in it have none.
        far: false accept rate of the common threshold, in (0, 1).
        least: people from which on a group is reported, >= 2.

    Raises:
        InputError: shapes do not match, no group is large enough, or a group has one kind of pairs only.
    """
    _check.between(0, 1, ends="()", far=far)
    _check.whole(at_least=2, least=least)
    similarity, same, folds, names = map(np.asarray, (similarity, same, folds, names))
    if not similarity.shape == same.shape == folds.shape or names.shape != (*similarity.shape, 2):
        raise InputError(
            f"similarity, same, folds and names must be one, one, one and two a pair, got {similarity.shape}, "
            f"{same.shape}, {folds.shape} and {names.shape}"
        )
    known, who = _coded(names)
    number = {name: place for place, name in enumerate(sorted(set(groups.values()) - {""}))}
    group = np.array([number.get(groups.get(person, ""), -1) for person in known], np.int32)[who]
    kind = np.where(group[:, 0] == group[:, 1], group[:, 0], -1)
    sizes = {name: len(np.unique(who[kind == place])) for name, place in number.items()}
    large = [name for name, size in sizes.items() if size >= least]
    if not large:
        raise InputError(
            f"no group has pairs of {least} people; the largest has {max(sizes.values(), default=0)}; give more"
        )
    chosen = np.isin(kind, [number[name] for name in large])
    threshold = pair_histogram(similarity[chosen], same[chosen]).recall_at_far((far,)).threshold[float(far)]
    found: dict[str, GroupResult] = {}
    for name in large:
        rows = kind == number[name]
        found[name] = GroupResult(
            identities=sizes[name],
            genuine_pairs=int(same[rows].sum()),
            impostor_pairs=int((~same[rows]).sum()),
            **_measured(similarity[rows], same[rows], folds[rows], who[rows], threshold),
        )
    differences = tuple(
        GroupDifference(
            first=first,
            second=second,
            **{
                measure: _difference(getattr(found[first], measure), getattr(found[second], measure))
                for measure in MEASURES
            },
        )
        for first, second in combinations(large, 2)
    )
    small = {name: size for name, size in sizes.items() if size < least}
    return GroupResults(groups=found, differences=differences, left_out=small, threshold=threshold)


def _coded(names: np.ndarray) -> tuple[list[str], np.ndarray]:
    """All people, and the place of each of a pair's two among them, int32 [pairs, 2]."""
    places: dict[str, int] = {}
    who = np.empty(names.shape, np.int32)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE].ravel().tolist()
        who[start : start + _AT_ONCE] = np.reshape(
            [places.setdefault(str(name), len(places)) for name in some], (-1, 2)
        )
    return list(places), who


def _measured(
    similarity: np.ndarray, same: np.ndarray, folds: np.ndarray, who: np.ndarray, threshold: float
) -> dict[str, Range]:
    """The measures of a group, with their intervals."""
    own = pair_accuracy(similarity, same, folds)
    right = (similarity > own.thresholds[np.unique(folds, return_inverse=True)[1]]) == same
    above = similarity > threshold
    accepted, refused = _Share.of(right, same, who), _Share.of(right, ~same, who)
    return {
        "accuracy": accepted.mean_with(refused).range(),
        "recall": _Share.of(above, same, who).range(),
        "far": _Share.of(above, ~same, who).range(),
    }


@dataclass(frozen=True, kw_only=True)
class _Share:
    """A share of pairs, or the mean of two, and how it rests on people.

    Attributes:
        value: the share.
        shifts: by how much each person's pairs move it, float [people]; they sum to zero.
        hit, miss: whether a person has a pair that counts, and one that does not, bool [people].
        units: how many people with equally many pairs would know as much (Kish).
        trials: how many pairs these would make of which no two share anyone.
    """

    value: float
    shifts: np.ndarray
    hit: np.ndarray
    miss: np.ndarray
    units: float
    trials: float

    @classmethod
    def of(cls, hits: np.ndarray, kind: np.ndarray, who: np.ndarray) -> "_Share":
        """The share of hits among the genuine pairs, or among the impostor pairs."""
        both, count = who[kind].ravel(), int(who.max()) + 1
        pairs = np.bincount(both, minlength=count)  # those of one person twice, with their hits
        found = np.bincount(both, np.repeat(hits[kind], 2), minlength=count)
        total, value = pairs.sum(), float(hits[kind].mean())
        sides = 1 if (who[kind, 0] == who[kind, 1]).all() else 2
        units = float(total) ** 2 / float(np.square(pairs, dtype=float).sum())
        shifts = sides * (found - value * pairs) / total
        return cls(value=value, shifts=shifts, hit=found > 0, miss=found < pairs, units=units, trials=units / sides)

    def mean_with(self, other: "_Share") -> "_Share":
        """The mean of two shares among the same people; trials are those of the share that has fewer."""
        return _Share(
            value=(self.value + other.value) / 2,
            shifts=(self.shifts + other.shifts) / 2,
            hit=self.hit | other.hit,
            miss=self.miss | other.miss,
            units=min(self.units, other.units),
            trials=min(self.trials, other.trials),
        )

    def range(self) -> Range:
        """The share with its interval."""
        present, p = self.hit | self.miss, self.value
        error = (standard_error(self.shifts, present) or 0.0) * int(present.sum())
        trials = p * (1 - p) / error**2 if error else math.inf
        if min(self.hit.sum(), self.miss.sum()) < FEW or not error:
            trials = min(trials, self.trials)
        if self.units < 2:  # one person shows nothing of others
            return p, 0.0, 1.0
        square = t_quantile(self.units) ** 2 / trials
        middle = (p + square / 2) / (1 + square)
        reach = math.sqrt(square * (p * (1 - p) + square / 4)) / (1 + square)
        return p, max(0.0, min(p, middle - reach)), min(1.0, max(p, middle + reach))


def _difference(first: Range, second: Range) -> Range:
    """The first less the second, with Newcombe's interval."""
    value = first[0] - second[0]
    below = math.hypot(first[0] - first[1], second[2] - second[0])
    above = math.hypot(first[2] - first[0], second[0] - second[1])
    return value, value - below, value + above
