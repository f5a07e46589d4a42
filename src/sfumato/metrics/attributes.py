"""How well several attributes at once are told: F1 over all of them and by attribute, and mean average precision.

These numbers are computed from the data without noise: they are not private.

>>> truth = np.array([[True, False], [True, True], [False, False]])
>>> attribute_scores(truth, np.array([[2.0, -1.0], [1.0, -0.5], [-1.0, -2.0]]))
{'micro_f1': 0.8, 'macro_f1': 0.5, 'mean_average_precision': 1.0}
"""

import numpy as np
from sklearn.metrics import average_precision_score


def attribute_scores(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """F1 of the attributes whose score is above 0, and how well scores rank the examples of each.

    Args:
        truth: bool [n, attributes].
        scores: float [n, attributes].

    Returns:
        micro_f1, macro_f1 (an attribute that is neither there nor told counts 0) and mean_average_precision over the
        attributes that some example has; each in [0, 1].
    """
    micro, macro = f1(truth, scores > 0)
    seen = truth.any(axis=0)
    precision = average_precision_score(truth[:, seen], scores[:, seen], average="macro") if seen.any() else 0.0
    return {"micro_f1": micro, "macro_f1": macro, "mean_average_precision": float(precision)}


def f1(truth: np.ndarray, told: np.ndarray) -> tuple[float, float]:
    """F1 over all attributes together, and the mean of those of each; bool [n, attributes] both."""
    right, either = (truth & told).sum(axis=0), truth.sum(axis=0) + told.sum(axis=0)
    each = 2 * right / np.maximum(either, 1)
    return float(2 * right.sum() / max(int(either.sum()), 1)), float(each.mean())
