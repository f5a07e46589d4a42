"""How faithful synthetic records are: columns, pairs of columns, visits, and whether a classifier distinguishes them.

Each figure comes with the same one of real patients that were held out, against the same real ones: what a perfect
generator would show for so many. Figures of a temporal column are over all visits; pairs and the detector look at the
flat table, a row a patient. Not private.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato.audit.ehr.attacks import Scale
from sfumato.audit.ehr.flat import Flat, FlatColumn, Part, flatten
from sfumato.audit.ehr.utility import Features
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column
from sfumato.metrics.tabular import (
    AssociationGap,
    CategoricalFit,
    Cdf,
    Interval,
    NumericFit,
    Projection,
    category_association_gap,
    cdf,
    compare_categories,
    compare_numbers,
    detector_auc,
    project,
    rank_correlation_gap,
    share_below,
)

LIMITS = (0.03, 0.05)
"""KS statistics below which a column counts as good."""

_SHOWN = 300  # patients of a side in a projection
_FEWEST_DETECTED = 10
_KINDS_OF_COLUMNS: tuple[Part, ...] = ("static", "temporal")


@dataclass(frozen=True, kw_only=True)
class ColumnFit:
    """A column of the records, or what is between visits.

    Attributes:
        name: of the column; "visits" and "time between visits" for the two that no schema names.
        part: static or temporal.
        fit: real against synthetic.
        ideal: the distance (KS or total variation) of real against held-out; None where there is none.
        cdf: of a numeric column, for a plot.
    """

    name: str
    part: Part
    fit: NumericFit | CategoricalFit
    ideal: float | None
    cdf: Cdf | None

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers."""
        return isinstance(self.fit, NumericFit)

    def to_json(self) -> dict[str, Any]:
        """The fields by their names, without the points of the plot."""
        kind = "numeric" if self.numeric else "categorical"
        return {"name": self.name, "part": self.part, "kind": kind, "ideal": self.ideal, **asdict(self.fit)}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures over all columns, for synthetic records or for those held out.

    Attributes:
        good: for each of `LIMITS`, the share of numeric columns whose KS statistic is below it; None without any.
        missing_error: mean absolute difference of the shares of missing values, over all columns.
        correlation: gap between rank correlations of numbers.
        association: gap between Cramér's V of categories.
        detector: AUC of distinguishing them from real records; None with fewer than 10 patients on a side.
    """

    good: tuple[float | None, ...]
    missing_error: float
    correlation: AssociationGap
    association: AssociationGap
    detector: Interval | None


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """All of it.

    Attributes:
        columns: static ones, temporal ones, visits, time between them.
        synthetic, ideal: the summaries of synthetic and of held-out records, each against real ones.
        baseline: the summary of a baseline, if there was one.
        correlation_columns, association_columns: the names that the pairs of a gap count by.
        projections: of static and of temporal columns, where there are enough.
    """

    columns: tuple[ColumnFit, ...]
    synthetic: Summary
    ideal: Summary
    baseline: Summary | None
    correlation_columns: tuple[str, ...]
    association_columns: tuple[str, ...]
    projections: Mapping[Part, Projection]

    def to_json(self) -> dict[str, Any]:
        """The fields by their names, without the points of the plots."""
        return {
            "columns": [each.to_json() for each in self.columns],
            "ks_limits": list(LIMITS),
            "synthetic": asdict(self.synthetic),
            "ideal": asdict(self.ideal),
            "baseline": None if self.baseline is None else asdict(self.baseline),
            "correlation_columns": list(self.correlation_columns),
            "association_columns": list(self.association_columns),
        }


def fidelity(
    real: EHRDataset,
    holdout: EHRDataset,
    synthetic: EHRDataset,
    rng: np.random.Generator,
    *,
    baseline: EHRDataset | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Fidelity:
    """Compare synthetic with real records, and held-out ones with the same real records.

    Args:
        real, holdout, synthetic: of one schema.
        rng: of the folds, of intervals and of the projections.
        baseline: records of that schema by a trivial generator, which are compared, too.
        progress: called with (done, total) parts.
    """
    report = progress or (lambda done, total: None)
    sides = {"synthetic": synthetic, "ideal": holdout, **({} if baseline is None else {"baseline": baseline})}
    columns: list[ColumnFit] = []
    fits: dict[str, list[NumericFit | CategoricalFit]] = {name: [] for name in sides}
    for mine, *others in zip(_columns(real), *map(_columns, sides.values()), strict=True):
        compare = compare_numbers if mine.numeric else compare_categories
        for name, other in zip(sides, others, strict=True):
            fits[name].append(compare(mine.values, other.values))
        fit, ideal = fits["synthetic"][-1], fits["ideal"][-1]
        plot = cdf(mine.values, others[0].values) if mine.numeric else None
        columns.append(ColumnFit(name=mine.name, part=mine.part, fit=fit, ideal=ideal.distance, cdf=plot))
    report(1, 5)
    flat, flats = flatten(real), {name: flatten(side) for name, side in sides.items()}
    pairs = flat.where(_in_pairs)

    def summary(name: str) -> Summary:
        return _summary(flat, flats[name], pairs, flats[name].where(_in_pairs), fits[name], rng)

    made = summary("synthetic")
    report(2, 5)
    held = summary("ideal")
    report(3, 5)
    projections = {}
    for part in _KINDS_OF_COLUMNS:
        if found := _projection(flat, flats["synthetic"], part, rng):
            projections[part] = found
    report(4, 5)
    trivial = summary("baseline") if "baseline" in sides else None
    report(5, 5)
    return Fidelity(
        columns=tuple(columns),
        synthetic=made,
        ideal=held,
        baseline=trivial,
        correlation_columns=tuple(each.name for each in pairs.number_columns),
        association_columns=tuple(each.name for each in pairs.code_columns),
        projections=projections,
    )


@dataclass(frozen=True)
class _Values:
    name: str
    part: Part
    numeric: bool
    values: np.ndarray


def _columns(records: EHRDataset) -> list[_Values]:
    """All columns, and visits and the times between them."""
    schema = records.schema
    kinds: list[tuple[Part, tuple[Column, ...], np.ndarray, bool]] = [
        ("static", schema.static_numeric, records.static_numbers, True),
        ("static", schema.static_categorical, records.static_codes, False),
        ("temporal", schema.temporal_numeric, records.numbers, True),
        ("temporal", schema.temporal_categorical, records.codes, False),
    ]
    gaps = np.delete(np.diff(records.times, prepend=0.0), records.offsets[:-1])
    return [
        *(
            _Values(column.name, part, numeric, values[:, place])
            for part, columns, values, numeric in kinds
            for place, column in enumerate(columns)
        ),
        _Values("visits", "temporal", True, records.lengths.astype(np.float64)),
        _Values(f"{schema.time_unit} between visits", "temporal", True, gaps),
    ]


def _in_pairs(column: FlatColumn) -> bool:
    """One figure of each column: static values, the mean of temporal numbers, the last of temporal categories."""
    of_category = column.categories > 0 and column.what == "last"
    return column.part == "static" or column.what in ("visits", "mean") or of_category


def _summary(
    real: Flat,
    other: Flat,
    real_pairs: Flat,
    other_pairs: Flat,
    fits: list[NumericFit | CategoricalFit],
    rng: np.random.Generator,
) -> Summary:
    numeric = [fit for fit in fits if isinstance(fit, NumericFit)]
    features = Features(real)
    enough = min(len(real), len(other)) >= _FEWEST_DETECTED
    return Summary(
        good=tuple(share_below(numeric, limit) for limit in LIMITS),
        missing_error=float(np.mean([fit.missing_error for fit in fits])),
        correlation=rank_correlation_gap(real_pairs.numbers, other_pairs.numbers),
        association=category_association_gap(real_pairs.codes, other_pairs.codes),
        detector=detector_auc(features.of(real), features.of(other), rng) if enough else None,
    )


def _projection(real: Flat, synthetic: Flat, part: Part, rng: np.random.Generator) -> Projection | None:
    """Of some patients of both sides; None where they, or the columns, are too few."""
    sides = [side.where(lambda each: each.part == part) for side in (real, synthetic)]
    if not sides[0].sources or min(map(len, sides)) < _FEWEST_DETECTED:
        return None
    scale, features = Scale(sides[0]), Features(sides[0])
    rows = []
    for side in sides:
        side = side.take(rng.permutation(len(side))[:_SHOWN])
        hot = features.of(side)[:, side.numbers.shape[1] :]
        rows.append(np.concatenate([scale.place(side).numbers, hot * np.sqrt(0.5)], 1))
    return project(rows[0], rows[1], rng)
