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
    from sfumato.metrics.neighbours import nearest
    from sfumato.metrics.pairs import PairAccuracy, Pairs, lfw_pairs, pair_accuracy
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
    from sfumato.metrics.verification import (
        RecallAtFar,
        Roc,
        SimilarityHistogram,
        in_batch_recall_at_far,
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
    "Interval",
    "NumericFit",
    "PairAccuracy",
    "Pairs",
    "RecallAtFar",
    "RegressionReport",
    "RegressionSums",
    "Roc",
    "SimilarityHistogram",
    "category_association_gap",
    "classification_report",
    "compare_categories",
    "compare_numbers",
    "counts_report",
    "detector_auc",
    "in_batch_recall_at_far",
    "kolmogorov_smirnov",
    "lfw_pairs",
    "nearest",
    "pair_accuracy",
    "rank_correlation_gap",
    "recall_at_far",
    "regression_report",
    "roc",
    "roc_auc",
    "similarity_histogram",
]
__getattr__, __dir__ = lazily(__name__)
