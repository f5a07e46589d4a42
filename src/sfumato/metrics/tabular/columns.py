"""One column of a real table against the same column of a synthetic one.

Numbers are compared by the Kolmogorov–Smirnov statistic (the largest distance between the two distribution functions,
ties taken as they are), categories by total variation (half the sum of the differences of the shares). Both are in
[0, 1] and 0 for equal distributions. Missing values are left out of them; their rates are compared by themselves.

These numbers are computed from the records without noise: they are not private.

>>> kolmogorov_smirnov(np.array([1.0, 2.0, 2.0, 3.0]), np.array([2.0, 2.0, 3.0, np.nan]))
0.25
>>> compare_categories(np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1])).total_variation.__round__(3)
0.417
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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
        """How far the distributions are apart, in [0, 1]."""
        return self.ks

    @property
    def missing_error(self) -> float:
        """Absolute difference of the shares of missing values."""
        return abs(self.real_missing - self.synthetic_missing)

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


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
        """How far the distributions are apart, in [0, 1]."""
        return self.total_variation

    @property
    def missing_error(self) -> float:
        """Absolute difference of the shares of missing values."""
        return abs(self.real_missing - self.synthetic_missing)

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


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

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


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


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Distribution function of the values."""
    return np.searchsorted(np.sort(values), places, side="right") / len(values)
