"""Measures on held-out data: embeddings (recall at a false accept rate, ROC), classes, numbers, counts."""

from sfumato.metrics.classification import ClassificationCounts, ClassificationReport, classification_report, roc_auc
from sfumato.metrics.counts import CountsReport, CountsSums, counts_report
from sfumato.metrics.regression import RegressionReport, RegressionSums, regression_report
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
    "ClassificationCounts",
    "ClassificationReport",
    "CountsReport",
    "CountsSums",
    "RecallAtFar",
    "RegressionReport",
    "RegressionSums",
    "Roc",
    "SimilarityHistogram",
    "classification_report",
    "counts_report",
    "in_batch_recall_at_far",
    "recall_at_far",
    "regression_report",
    "roc",
    "roc_auc",
    "similarity_histogram",
]
