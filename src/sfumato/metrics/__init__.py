"""Measures on held-out data: embeddings (recall at a false accept rate, ROC, AUC) and classifiers."""

from sfumato.metrics.classification import ClassificationCounts, ClassificationReport, classification_report, roc_auc
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
    "RecallAtFar",
    "Roc",
    "SimilarityHistogram",
    "classification_report",
    "in_batch_recall_at_far",
    "recall_at_far",
    "roc",
    "roc_auc",
    "similarity_histogram",
]
