"""Tables of synthetic records against real ones: columns, pairs of columns, a detector.

These numbers are computed from the records without noise: they are not private.

**Columns with values.** scikit-learn's trees fail on one in which every training record is missing.

>>> columns_with_values(np.array([[1.0, np.nan], [np.nan, np.nan]]))
array([ True, False])

**Intervals** by the percentiles of a bootstrap: how far a figure would move with other records of the same kind. The
same generator gives the same interval. The usual percentiles are too narrow for few records: draws vary by √(1 - 1/n)
too little, and normal tails are too short. They are taken further out, as far as Student's t reaches (Hesterberg 2015,
section 5.2).

>>> found = bootstrap_mean(np.r_[np.zeros(60), np.ones(40)], np.random.default_rng(0))
>>> found.value, round(found.low, 2), round(found.high, 2)
(0.4, 0.3, 0.49)

**One column** of a real table against the same column of a synthetic one. Numbers are compared by the
Kolmogorov–Smirnov statistic (the largest distance between the two distribution functions, ties taken as they are),
categories by total variation (half the sum of the differences of the shares). Both are in [0, 1] and 0 for equal
distributions. Missing values are left out of them; their rates are compared by themselves.

>>> kolmogorov_smirnov(np.array([1.0, 2.0, 2.0, 3.0]), np.array([2.0, 2.0, 3.0, np.nan]))
0.25
>>> compare_categories(np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1])).total_variation.__round__(3)
0.417

**How columns go together.** Between numbers: the rank correlation. Ranks are those among all values of a column (ties
share their mean rank); a pair of columns is correlated over the rows where both are there, so that without missing
values it is Spearman's ρ. Between categories: Cramér's V, over the rows where both are there, without correction for
bias. Pairs of a number and a category are not compared.

>>> x = np.arange(40.0)
>>> gap = rank_correlation_gap(np.c_[x, x], np.c_[x, -x])
>>> gap.mean, gap.largest, gap.pair
(2.0, 2.0, (0, 1))

References:
    Efron, Tibshirani: An Introduction to the Bootstrap. 1993, ch. 13 (percentile intervals).
    Hesterberg: What Teachers Should Know About the Bootstrap. The American Statistician 69, 2015.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato.metrics.baselines import t_quantile
from sfumato.metrics.classification import roc_auc


def columns_with_values(features: np.ndarray) -> np.ndarray:
    """The columns in which some record has a value.

    Args:
        features: float [n, p] of the records to train on, NaN = missing.

    Returns:
        bool [p].
    """
    return np.asarray(~np.isnan(features).all(axis=0))


LEVEL = 0.95
REPLICATES = 500
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A figure with its bootstrap interval.

    Attributes:
        value: the figure on the records as they are.
        low, high: ends of the interval of level 95 %; equal to `value` where it is known exactly.
    """

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Interval":
        """A figure that is known and not estimated."""
        return cls(value, value, value)


def bootstrap(
    statistic: Callable[..., float],
    sizes: Sequence[int],
    rng: np.random.Generator,
    *,
    replicates: int = REPLICATES,
) -> Interval:
    """Interval of a statistic of one group of records or several, each drawn again by itself.

    Args:
        statistic: takes an int64 array of rows for each group and gives a number; NaN is left out of the percentiles.
        sizes: records in each group, ≥ 1.
        rng: draws the rows.
        replicates: how often to draw.

    Raises:
        InputError: a group has no records.
    """
    if min(sizes) < 1:
        raise InputError(f"an interval needs at least one record in each group, got {list(sizes)}")
    value = statistic(*(np.arange(size) for size in sizes))
    drawn = [statistic(*(rng.integers(0, size, size) for size in sizes)) for _ in range(replicates)]
    return _percentiles(value, np.array(drawn), min(sizes))


def bootstrap_mean(scores: np.ndarray, rng: np.random.Generator, *, replicates: int = REPLICATES) -> Interval:
    """Interval of the mean of finite numbers [n], n ≥ 1.

    Raises:
        InputError: there are no numbers.
    """
    scores = np.asarray(scores, np.float64)
    if len(scores) == 0:
        raise InputError("an interval needs at least one record, got none")
    at_once = max(1, _NUMBERS_AT_ONCE // len(scores))
    means = [
        scores[rng.integers(0, len(scores), (min(at_once, replicates - done), len(scores)))].mean(1)
        for done in range(0, replicates, at_once)
    ]
    return _percentiles(float(scores.mean()), np.concatenate(means), len(scores))


def centred(value: float, drawn: np.ndarray, units: int) -> Interval:
    """Interval of a figure whose draws are shifted, as a vote of records that were drawn twice is: around the value.

    Args:
        value: the figure on the records as they are.
        drawn: of records that were drawn again, float [replicates].
        units: records in the smallest group that is drawn from, ≥ 1.
    """
    return _percentiles(value, value + drawn - np.mean(drawn), units)


def _percentiles(value: float, drawn: np.ndarray, units: int) -> Interval:
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) == 0:
        return Interval.exact(float(value))
    reach = math.sqrt(units / (units - 1)) * t_quantile(units) if units > 1 else math.inf
    tail = float(scipy.special.ndtr(-reach))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(value), float(low), float(high))


_POINTS = 100


@dataclass(frozen=True, kw_only=True)
class NumericFit:
    """A numeric column of both tables. What needs a value is None where a table has none."""

    real_mean: float | None
    synthetic_mean: float | None
    real_std: float | None
    """Standard deviation over the values that are there, divided by their number."""
    synthetic_std: float | None
    real_missing: float
    """Share of missing values, in [0, 1]."""
    synthetic_missing: float
    ks: float | None
    """Kolmogorov–Smirnov statistic, in [0, 1]."""

    @property
    def distance(self) -> float | None:
        """The distance between the distributions, in [0, 1]."""
        return self.ks

    @property
    def missing_error(self) -> float:
        """Absolute difference of the shares of missing values."""
        return abs(self.real_missing - self.synthetic_missing)


@dataclass(frozen=True, kw_only=True)
class CategoricalFit:
    """A categorical column of both tables."""

    real_missing: float
    """Share of missing values, in [0, 1]."""
    synthetic_missing: float
    total_variation: float | None
    """In [0, 1]; None where a table has no values."""

    @property
    def distance(self) -> float | None:
        """The distance between the distributions, in [0, 1]."""
        return self.total_variation

    @property
    def missing_error(self) -> float:
        """Absolute difference of the shares of missing values."""
        return abs(self.real_missing - self.synthetic_missing)


@dataclass(frozen=True)
class Cdf:
    """Two distribution functions at the same places, for a plot.

    Attributes:
        at: ascending values.
        real, synthetic: share of values ≤ each of them.
    """

    at: tuple[float, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]


def compare_numbers(real: np.ndarray, synthetic: np.ndarray) -> NumericFit:
    """Both sides of a numeric column, float [n] and [m]; NaN is missing."""
    (real_there, real_missing), (made_there, made_missing) = _there(real), _there(synthetic)
    return NumericFit(
        real_mean=float(real_there.mean()) if len(real_there) else None,
        synthetic_mean=float(made_there.mean()) if len(made_there) else None,
        real_std=float(real_there.std()) if len(real_there) else None,
        synthetic_std=float(made_there.std()) if len(made_there) else None,
        real_missing=real_missing,
        synthetic_missing=made_missing,
        ks=kolmogorov_smirnov(real_there, made_there),
    )


def compare_categories(real: np.ndarray, synthetic: np.ndarray) -> CategoricalFit:
    """Both sides of a categorical column, whole numbers [n] and [m]; −1 is missing."""
    real, synthetic = np.asarray(real, np.int64), np.asarray(synthetic, np.int64)
    sides = [side[side >= 0] for side in (real, synthetic)]
    variation = None
    if all(len(side) for side in sides):
        categories = 1 + max(int(side.max()) for side in sides)
        shares = [np.bincount(side, minlength=categories) / len(side) for side in sides]
        variation = float(np.abs(shares[0] - shares[1]).sum() / 2)
    return CategoricalFit(
        real_missing=_share_missing(real < 0),
        synthetic_missing=_share_missing(synthetic < 0),
        total_variation=variation,
    )


def kolmogorov_smirnov(real: np.ndarray, synthetic: np.ndarray) -> float | None:
    """Largest distance between two distribution functions; None where a side has no value. NaN is left out."""
    (real, _), (synthetic, _) = _there(real), _there(synthetic)
    if not len(real) or not len(synthetic):
        return None
    places = np.concatenate([real, synthetic])
    return float(np.abs(_at(real, places) - _at(synthetic, places)).max())


def cdf(real: np.ndarray, synthetic: np.ndarray, *, points: int = _POINTS) -> Cdf | None:
    """Distribution functions at no more than so many places: quantiles of both sides. None where a side has no value.

    Args:
        real, synthetic: float [n] and [m]; NaN is left out.
        points: at most.
    """
    (real, _), (synthetic, _) = _there(real), _there(synthetic)
    if not len(real) or not len(synthetic):
        return None
    shares = np.linspace(0, 1, points // 2)
    quantiles = [np.quantile(side, shares, method="inverted_cdf") for side in (real, synthetic)]
    places = np.unique(np.concatenate(quantiles))
    return Cdf(*(tuple(each.tolist()) for each in (places, _at(real, places), _at(synthetic, places))))


def share_below(fits: Iterable[NumericFit], limit: float) -> float | None:
    """Share of the numeric columns whose KS statistic is below a limit; None where none has one."""
    known = [fit.ks for fit in fits if fit.ks is not None]
    return float(np.mean([ks < limit for ks in known])) if known else None


def _there(values: np.ndarray) -> tuple[np.ndarray, float]:
    """What is not missing, and the share of what is."""
    values = np.asarray(values, np.float64)
    missing = np.isnan(values)
    return values[~missing], _share_missing(missing)


def _share_missing(missing: np.ndarray) -> float:
    return float(missing.mean()) if len(missing) else 0.0


def _at(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Distribution function of the values."""
    return np.searchsorted(np.sort(values), points, side="right") / len(values)


FEWEST = 20
"""Rows in which both columns are there, on either side, that a pair needs to be compared."""


@dataclass(frozen=True)
class AssociationGap:
    """Absolute differences between the associations of two tables, over all pairs of columns that can be compared.

    Attributes:
        mean, largest: of them; None where there is no such pair.
        pair: places of the two columns that differ most.
        pairs: how many were compared.
    """

    mean: float | None
    largest: float | None
    pair: tuple[int, int] | None
    pairs: int


def rank_correlation_gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    """Between the rank correlations of numeric columns, float [n, p] and [m, p]; NaN is missing."""
    return _gap(_rank_correlations(real), _rank_correlations(synthetic))


def category_association_gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    """Between Cramér's V of categorical columns, whole numbers [n, p] and [m, p]; −1 is missing."""
    return _gap(_cramers(real), _cramers(synthetic))


def _gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    gaps = np.abs(real - synthetic)
    rows, columns = np.triu_indices(len(gaps), 1)
    differences = gaps[rows, columns]
    kept = np.flatnonzero(np.isfinite(differences))
    if len(kept) == 0:
        return AssociationGap(None, None, None, 0)
    worst = kept[differences[kept].argmax()]
    pair = (int(rows[worst]), int(columns[worst]))
    return AssociationGap(float(differences[kept].mean()), float(differences[worst]), pair, len(kept))


def _rank_correlations(values: np.ndarray) -> np.ndarray:
    """Float64 [p, p]; NaN for a pair with too few rows, or where one of the two does not vary."""
    from scipy.stats import rankdata  # late: it takes half a second to import

    there = ~np.isnan(values)
    ranks = np.zeros(values.shape)
    for column in range(values.shape[1]):
        rows = there[:, column]
        if rows.any():
            found = rankdata(values[rows, column])
            ranks[rows, column] = (found - found.mean()) / len(found)
    both = there.astype(np.float64)
    count = both.T @ both
    with np.errstate(invalid="ignore", divide="ignore"):  # pairs without rows become NaN
        first = ranks.T @ both / count  # [i, j]: mean of i over the rows where j is there, too
        second = (ranks**2).T @ both / count - first**2
        covariance = ranks.T @ ranks / count - first * first.T
        found = covariance / np.sqrt(second * second.T)
    constant = np.minimum(second, second.T) < 1e-12
    return np.where(constant | (count < FEWEST), np.nan, np.clip(found, -1, 1))


def _cramers(codes: np.ndarray) -> np.ndarray:
    """Float64 [p, p] above the diagonal; NaN elsewhere and for a pair with too few rows or one category on a side."""
    columns = codes.shape[1]
    found = np.full((columns, columns), np.nan)
    for i in range(columns):
        for j in range(i + 1, columns):
            both = (codes[:, i] >= 0) & (codes[:, j] >= 0)
            if both.sum() >= FEWEST:
                found[i, j] = _cramer(codes[both, i], codes[both, j])
    return found


def _cramer(first: np.ndarray, second: np.ndarray) -> float:
    """From the cells that are not empty alone: χ² / n = Σ n_ij² / (n_i n_j) − 1."""
    (_, rows, of_row), (_, columns, of_column) = (
        np.unique(side, return_inverse=True, return_counts=True) for side in (first, second)
    )
    free = min(len(of_row), len(of_column)) - 1
    if free == 0:
        return np.nan
    cells, counts = np.unique(rows * len(of_column) + columns, return_counts=True)
    expected = of_row[cells // len(of_column)] * of_column[cells % len(of_column)]
    return float(np.sqrt(max((counts.astype(np.float64) ** 2 / expected).sum() - 1, 0.0) / free))


# Whether a classifier distinguishes synthetic from real records: the AUC of gradient-boosted trees on held-out folds.
#
# 0.5 is what real records of the same kind give; 1 is records that every tree recognises. The scores are all of records
# that the trees have not seen. Not private.


_FOLDS = 5
_REPLICATES = 200


def detector_auc(real: np.ndarray, synthetic: np.ndarray, rng: np.random.Generator) -> Interval:
    """The AUC with its interval.

    Args:
        real, synthetic: features, float [n, p] and [m, p]; NaN is missing, which the trees may use.
        rng: deals the folds.

    Raises:
        InputError: a side has fewer than 10 records.
    """
    if min(len(real), len(synthetic)) < 2 * _FOLDS:
        raise InputError(
            f"the detector needs {2 * _FOLDS} records on either side, got {len(real)} real and {len(synthetic)} "
            "synthetic ones; give more"
        )
    from sklearn.ensemble import HistGradientBoostingClassifier  # late: it takes a second to import

    features = np.concatenate([real, synthetic])
    made = np.r_[np.zeros(len(real), bool), np.ones(len(synthetic), bool)]
    fold = np.concatenate([rng.permutation(np.arange(len(side)) % _FOLDS) for side in (real, synthetic)])
    scores = np.zeros(len(features))
    for held_out in range(_FOLDS):
        rest, test = fold != held_out, fold == held_out
        trees = HistGradientBoostingClassifier(random_state=0, max_iter=60, early_stopping=False)  # type: ignore[arg-type]
        known = columns_with_values(features[rest])
        if known.any():
            trees.fit(features[rest][:, known], made[rest])
            scores[test] = trees.predict_proba(features[test][:, known])[:, 1]
    return _with_interval(scores, made, fold, rng)


def _with_interval(scores: np.ndarray, made: np.ndarray, fold: np.ndarray, rng: np.random.Generator) -> Interval:
    """Mean of the folds' AUCs: scores of different trees are not compared."""
    sides = [np.flatnonzero(~made), np.flatnonzero(made)]

    def mean_auc(*drawn: np.ndarray) -> float:
        rows = np.concatenate([side[each] for side, each in zip(sides, drawn, strict=True)])
        found = [rows[fold[rows] == each] for each in range(_FOLDS)]
        both = [each for each in found if 0 < made[each].sum() < len(each)]
        return float(np.mean([roc_auc(scores[each], made[each]) for each in both])) if both else float("nan")

    return bootstrap(mean_auc, [len(side) for side in sides], rng, replicates=_REPLICATES)


# Real and synthetic records as points of a plane, for the eye: t-SNE of both together.
#
# Where the two clouds do not cover each other, something is missing or invented. Distances between clouds, and their
# sizes, mean nothing. Not private: a point is a record.


_DIMENSIONS = 50  # before t-SNE: what principal components keep
_FEWEST = 5
_STEPS = 500


@dataclass(frozen=True)
class Projection:
    """Points of both sides, (x, y) each, in the order of the rows that were given."""

    real: tuple[tuple[float, float], ...]
    synthetic: tuple[tuple[float, float], ...]


def project(real: np.ndarray, synthetic: np.ndarray, rng: np.random.Generator) -> Projection:
    """The plane of both.

    Args:
        real, synthetic: finite floats [n, p] and [m, p] on one scale, at least 5 rows each; time grows faster than
            their number, a thousand take seconds.
        rng: seeds what t-SNE draws.

    Raises:
        InputError: too few rows.
    """
    if min(len(real), len(synthetic)) < _FEWEST:
        raise InputError(f"a projection needs {_FEWEST} records on either side, got {len(real)} and {len(synthetic)}")
    from sklearn.decomposition import PCA  # late: they take a second to import
    from sklearn.manifold import TSNE

    rows = np.concatenate([real, synthetic]).astype(np.float64)
    seed = int(rng.integers(2**31))
    if rows.shape[1] > _DIMENSIONS:
        rows = PCA(min(_DIMENSIONS, len(rows)), random_state=seed).fit_transform(rows)
    if not np.ptp(rows, axis=0).any():
        points = np.zeros((len(rows), 2))  # one and the same record, which has no neighbours to keep
    else:
        init = "pca" if rows.shape[1] > 1 else "random"
        near = min(30.0, (len(rows) - 1) / 3)
        plane = TSNE(init=init, perplexity=near, max_iter=_STEPS, random_state=seed)
        points = plane.fit_transform(rows)
    pairs = tuple((float(x), float(y)) for x, y in points)
    return Projection(pairs[: len(real)], pairs[len(real) :])
