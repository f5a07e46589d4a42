"""How columns go together, in a real table and in a synthetic one.

Between numbers: the rank correlation. Ranks are those among all values of a column (ties share their mean rank); a pair
of columns is correlated over the rows where both are there, so that without missing values it is Spearman's ρ.
Between categories: Cramér's V, over the rows where both are there, without correction for bias. Pairs of a number and a
category are not compared.

These numbers are computed from the records without noise: they are not private.

>>> x = np.arange(40.0)
>>> gap = rank_correlation_gap(np.c_[x, x], np.c_[x, -x])
>>> gap.mean, gap.largest, gap.pair
(2.0, 2.0, (0, 1))
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


def rank_correlation_gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    """Between the rank correlations of numeric columns, float [n, p] and [m, p]; NaN is missing."""
    return _gap(_rank_correlations(real), _rank_correlations(synthetic))


def category_association_gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    """Between Cramér's V of categorical columns, whole numbers [n, p] and [m, p]; −1 is missing."""
    return _gap(_cramers(real), _cramers(synthetic))


def _gap(real: np.ndarray, synthetic: np.ndarray) -> AssociationGap:
    apart = np.abs(real - synthetic)
    rows, columns = np.triu_indices(len(apart), 1)
    differences = apart[rows, columns]
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
