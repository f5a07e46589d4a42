"""Measures on held-out data: embeddings (recall at a false accept rate, ROC, AUC) and classifiers."""

from sfumato.metrics.classification import ClassificationCounts, ClassificationReport, classification_report, roc_auc
from sfumato.metrics.verification import (
    PairHistogram,
    RecallAtFar,
    Roc,
    in_batch_recall_at_far,
    pair_histogram,
    recall_at_far,
    roc,
)

__all__ = [
    "ClassificationCounts",
    "ClassificationReport",
    "PairHistogram",
    "RecallAtFar",
    "Roc",
    "classification_report",
    "in_batch_recall_at_far",
    "pair_histogram",
    "recall_at_far",
    "roc",
    "roc_auc",
]
