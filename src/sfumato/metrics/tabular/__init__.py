"""Tables of synthetic records against real ones: columns, pairs, a detector."""

from sfumato.metrics.tabular.associations import AssociationGap, category_association_gap, rank_correlation_gap
from sfumato.metrics.tabular.bootstrap import Interval, bootstrap, bootstrap_mean, centred
from sfumato.metrics.tabular.columns import (
    CategoricalFit,
    Cdf,
    NumericFit,
    cdf,
    compare_categories,
    compare_numbers,
    kolmogorov_smirnov,
    share_below,
)
from sfumato.metrics.tabular.detector import detector_auc
from sfumato.metrics.tabular.projection import Projection, project

__all__ = [
    "AssociationGap",
    "CategoricalFit",
    "Cdf",
    "Interval",
    "NumericFit",
    "Projection",
    "bootstrap",
    "bootstrap_mean",
    "category_association_gap",
    "cdf",
    "centred",
    "compare_categories",
    "compare_numbers",
    "detector_auc",
    "kolmogorov_smirnov",
    "project",
    "rank_correlation_gap",
    "share_below",
]
