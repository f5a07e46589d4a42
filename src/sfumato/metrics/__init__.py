"""Measures on held-out data: embeddings, classes, numbers, counts, tables of synthetic records."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.metrics.classification import (
        ClassificationCounts,
        ClassificationReport,
        classification_report,
        roc_auc,
    )
    from sfumato.metrics.groups import GroupDifference, GroupResult, GroupResults, pairs_by_group
    from sfumato.metrics.neighbours import nearest
    from sfumato.metrics.pairs import PairAccuracy, Pairs, balanced_pairs, lfw_pairs, pair_accuracy
    from sfumato.metrics.regression import (
        CountsReport,
        CountsSums,
        RegressionReport,
        RegressionSums,
        counts_report,
        regression_report,
    )
    from sfumato.metrics.tabular import (
        AssociationGap,
        CategoricalFit,
        Interval,
        NumericFit,
        category_association_gap,
        compare_categories,
        compare_numbers,
        detector_auc,
        kolmogorov_smirnov,
        rank_correlation_gap,
    )
    from sfumato.metrics.templates import Identification, Templates, identify, make_templates
    from sfumato.metrics.verification import (
        RecallAtFar,
        Roc,
        SimilarityHistogram,
        in_batch_recall_at_far,
        pair_histogram,
        recall_at_far,
        roc,
        similarity_histogram,
    )

__all__ = [
    "AssociationGap",
    "CategoricalFit",
    "ClassificationCounts",
    "ClassificationReport",
    "CountsReport",
    "CountsSums",
    "GroupDifference",
    "GroupResult",
    "GroupResults",
    "Identification",
    "Interval",
    "NumericFit",
    "PairAccuracy",
    "Pairs",
    "RecallAtFar",
    "RegressionReport",
    "RegressionSums",
    "Roc",
    "SimilarityHistogram",
    "Templates",
    "balanced_pairs",
    "category_association_gap",
    "classification_report",
    "compare_categories",
    "compare_numbers",
    "counts_report",
    "detector_auc",
    "identify",
    "in_batch_recall_at_far",
    "kolmogorov_smirnov",
    "lfw_pairs",
    "make_templates",
    "nearest",
    "pair_accuracy",
    "pair_histogram",
    "pairs_by_group",
    "rank_correlation_gap",
    "recall_at_far",
    "regression_report",
    "roc",
    "roc_auc",
    "similarity_histogram",
]
__getattr__, __dir__ = lazily(__name__)
