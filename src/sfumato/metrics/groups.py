"""Verification by group: how well pairs of one source, or of people with one label, are judged, and how groups differ.

A pair belongs to a group when both of its people do; other pairs are left out. Three measures a group: the accuracy in
folds with thresholds of the group's own (as RFW reports it; `pair_accuracy`), and at one threshold for all groups, that
of a false accept rate over all pairs of groups, the recall and the realised false accept rate: a common threshold is
what a deployed system has.

A source of pictures (films, press, one country) is no ethnic group, and differences between sources are those of
cameras, dates, poses and selection, too. Labels that others gave to people are opinions on pictures. Groups of fewer
than `least` people are not reported, only named.

Intervals hold 95 % of bootstrap draws over *people*, with all pairs of each, thresholds held fixed: a pair of a person
drawn twice counts twice, one of two people by the product. They say nothing of another training run, and nothing of
several comparisons at once.

These numbers are computed from the data without noise: they are not private.

References:
    Huang et al.: Labeled Faces in the Wild. Technical report 07-49, 2007. Wang et al.: Racial Faces in the Wild. ICCV
    2019 (balanced pairs and ten folds a group).
    Poh, Martin, Bengio: Performance Generalization in Biometric Authentication Using Joint User-Specific and Sample
    Bootstraps. TPAMI 2007 (the bootstrap over people).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.metrics.pairs import pair_accuracy
from sfumato.metrics.verification import pair_histogram

LEAST = 30
"""People from which on a group is reported."""

NOTE = "Sources and given labels are not ethnic groups: pictures of groups differ in cameras, dates and selection, too."
"""The sentence that goes with every table of groups."""

_PARTS = 64  # bootstrap draws at a time

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
    seed: int,
    far: float = 1e-2,
    least: int = LEAST,
    draws: int = 1000,
) -> GroupResults:
    """Judge pairs by group.

    Args:
        similarity: float [pairs].
        same: whether a pair is genuine, bool [pairs].
        folds: integers [pairs].
        names: of both people, text [pairs, 2].
        groups: the group of each person; people who are not in it have none.
        seed: of the bootstrap.
        far: false accept rate of the common threshold, in (0, 1).
        least: people from which on a group is reported, >= 2.
        draws: of the bootstrap, >= 100.

    Raises:
        InputError: shapes do not match, no group is large enough, or a group has one kind of pairs only.
    """
    _check.between(0, 1, ends="()", far=far)
    _check.whole(at_least=2, least=least)
    _check.whole(at_least=100, draws=draws)
    similarity, same, folds, names = map(np.asarray, (similarity, same, folds, names))
    if not similarity.shape == same.shape == folds.shape or names.shape != (*similarity.shape, 2):
        raise InputError(
            f"similarity, same, folds and names must be one, one, one and two a pair, got {similarity.shape}, "
            f"{same.shape}, {folds.shape} and {names.shape}"
        )
    labels = np.array([[groups.get(str(each), "") for each in pair] for pair in names], dtype=str).reshape(-1, 2)
    inside = (labels[:, 0] == labels[:, 1]) & (labels[:, 0] != "")
    sizes = {name: len(np.unique(names[inside & (labels[:, 0] == name)])) for name in sorted(set(groups.values()))}
    large = [name for name, size in sizes.items() if size >= least]
    if not large:
        raise InputError(
            f"no group has pairs of {least} people; the largest has {max(sizes.values(), default=0)}; give more"
        )
    chosen = np.isin(labels[:, 0], large) & inside
    threshold = pair_histogram(similarity[chosen], same[chosen]).recall_at_far((far,)).threshold[float(far)]
    streams = np.random.default_rng(seed).spawn(len(large))
    found: dict[str, GroupResult] = {}
    drawn: dict[str, dict[str, np.ndarray]] = {}
    for name, stream in zip(large, streams, strict=True):
        rows = chosen & (labels[:, 0] == name)
        each, spread = _measured(similarity[rows], same[rows], folds[rows], names[rows], threshold, draws, stream)
        drawn[name] = spread
        found[name] = GroupResult(
            identities=sizes[name],
            genuine_pairs=int(same[rows].sum()),
            impostor_pairs=int((~same[rows]).sum()),
            **{measure: _range(each[measure], spread[measure]) for measure in MEASURES},
        )
    differences = tuple(
        GroupDifference(
            first=first,
            second=second,
            **{
                measure: _range(
                    getattr(found[first], measure)[0] - getattr(found[second], measure)[0],
                    drawn[first][measure] - drawn[second][measure],
                )
                for measure in MEASURES
            },
        )
        for first, second in combinations(large, 2)
    )
    small = {name: size for name, size in sizes.items() if size < least}
    return GroupResults(groups=found, differences=differences, left_out=small, threshold=threshold)


def _measured(
    similarity: np.ndarray,
    same: np.ndarray,
    folds: np.ndarray,
    people: np.ndarray,
    threshold: float,
    draws: int,
    stream: np.random.Generator,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The measures of a group, and their bootstrap draws [draws]."""
    own = pair_accuracy(similarity, same, folds)
    limits = dict(zip(np.unique(folds).tolist(), own.thresholds.tolist(), strict=True))
    right = (similarity > np.array([limits[fold] for fold in folds.tolist()])) == same
    above = similarity > threshold
    values = {"accuracy": own.accuracy, "recall": float(above[same].mean()), "far": float(above[~same].mean())}
    names, who = np.unique(people, return_inverse=True)
    first, second = who.reshape(-1, 2).T
    spread: dict[str, list[np.ndarray]] = {measure: [] for measure in MEASURES}
    for start in range(0, draws, _PARTS):
        times = stream.multinomial(len(names), np.full(len(names), 1 / len(names)), min(_PARTS, draws - start))
        genuine = times[:, first[same]].astype(float)
        impostor = times[:, first[~same]] * times[:, second[~same]].astype(float)
        accepted, refused = _share(genuine, right[same]), _share(impostor, right[~same])
        spread["accuracy"].append((accepted + refused) / 2)
        spread["recall"].append(_share(genuine, above[same]))
        spread["far"].append(_share(impostor, above[~same]))
    return values, {measure: np.concatenate(parts) for measure, parts in spread.items()}


def _share(weights: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """The weighted share of hits of each draw; not a number where a draw has no such pair."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return weights @ hits / weights.sum(axis=1)


def _range(value: float, draws: Sequence[float] | np.ndarray) -> Range:
    low, high = np.nanquantile(draws, (0.025, 0.975))
    return float(value), float(low), float(high)
