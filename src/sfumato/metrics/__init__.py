"""Measures of embeddings on held-out classes: recall at a false accept rate, ROC, AUC."""

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
    "PairHistogram",
    "RecallAtFar",
    "Roc",
    "in_batch_recall_at_far",
    "pair_histogram",
    "recall_at_far",
    "roc",
]
