"""Classification on held-out examples: accuracy, log loss, ROC-AUC for two classes, and several attributes at once.

These numbers are computed from the data without noise: they are not private.

**Attributes.** F1 over all of them and by attribute, and mean average precision.

>>> truth = np.array([[True, False], [True, True], [False, False]])
>>> attribute_scores(truth, np.array([[2.0, -1.0], [1.0, -0.5], [-1.0, -2.0]]))
{'micro_f1': 0.8, 'macro_f1': 0.5, 'mean_average_precision': 1.0}

**Classes.** Also the confusion matrix. Batches are added as they come. Memory is the confusion matrix; with two classes
also one score an example, which the exact AUC needs. An example whose logits are not finite numbers is counted as an
error, in accuracy and log loss, and by itself in `not_finite`: a model that diverged does not look better for it.

>>> report = classification_report(np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0, 1, 1]), num_classes=2)
>>> report.accuracy, round(report.log_loss, 6), report.auc
(0.6666666666666666, 1.162926, 0.5)
>>> report.confusion.tolist()
[[1, 0], [1, 1]]
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

from sfumato._check import InputError, whole
from sfumato._lazy import scipy
from sfumato.metrics.baselines import CONSTANT, area_gain, compared, mean_gain


def attribute_scores(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """F1 of the attributes whose score is above 0, and how well scores rank the examples of each.

    Args:
        truth: bool [n, attributes].
        scores: float [n, attributes].

    Returns:
        micro_f1, macro_f1 (an attribute that is neither there nor predicted counts 0) and mean_average_precision over
        the attributes that some example has; each in [0, 1].
    """
    micro, macro = f1(truth, scores > 0)
    seen = truth.any(axis=0)
    precision = average_precision_score(truth[:, seen], scores[:, seen], average="macro") if seen.any() else 0.0
    return {"micro_f1": micro, "macro_f1": macro, "mean_average_precision": float(precision)}


def f1(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """F1 over all attributes together, and the mean of those of each; bool [n, attributes] both."""
    right, either = (truth & predicted).sum(axis=0), truth.sum(axis=0) + predicted.sum(axis=0)
    each = 2 * right / np.maximum(either, 1)
    return float(2 * right.sum() / max(int(either.sum()), 1)), float(each.mean())


_MOST_IN_A_TABLE = 100


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """What a classifier got right. Not private."""

    accuracy: float
    """Share of examples whose largest logit is that of their class, in [0, 1]; the lower class wins a tie."""
    log_loss: float
    """Mean of −log(probability of the true class) in nats, ≥ 0; infinite where one of them is 0."""
    auc: float | None
    """With two classes: chance that an example of class 1 scores higher than one of class 0, a tie counting one half;
    None with more classes, where one of the two is absent, or where a score is not finite."""
    confusion: np.ndarray | None
    """Examples of each class (row) by the class that was predicted (column), int64 [classes, classes]; those that are
    not finite are in no cell. None with more than 100 classes: it grows with their square."""
    examples: int
    not_finite: int
    """Examples whose logits hold NaN or +inf, or nothing but −inf."""

    calibration: float | None = None
    """With two classes: how many times as many of class 1 are predicted, by probability, as there are; None with more
    classes, where there is none, or where a score is not finite."""

    @property
    def auc_loss(self) -> float | None:
        """1 − AUC, as papers on ads report it."""
        return None if self.auc is None else 1 - self.auc

    def summary(self) -> dict[str, float | int]:
        """The numbers alone, finite ones, for a log."""
        numbers = {"accuracy": self.accuracy, "log_loss": self.log_loss, "auc": self.auc, "not_finite": self.not_finite}
        return {name: value for name, value in numbers.items() if value is not None and np.isfinite(value)}


class ClassificationCounts:
    """Adds up batches of logits.

    Args:
        num_classes: number of classes, ≥ 2.
        compare: keep label, loss and success of each example, for `baselines`.

    Raises:
        InputError: fewer than two classes.
    """

    def __init__(self, num_classes: int, *, compare: bool = False) -> None:
        whole(at_least=2, num_classes=num_classes)
        self.num_classes = int(num_classes)
        tabulated = self.num_classes <= _MOST_IN_A_TABLE
        self._confusion = np.zeros((self.num_classes, self.num_classes), np.int64) if tabulated else None
        self._examples = self._not_finite = self._right = 0
        self._loss = 0.0
        self._scores: list[np.ndarray] = []
        self._positive: list[np.ndarray] = []
        self._compare = compare
        self._each: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # labels, successes, losses of examples

    def add(self, logits: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            logits: floats [n, num_classes], before the softmax; for two classes also [n] or [n, 1], the logit of
                class 1.
            labels: whole numbers [n] in 0 … num_classes − 1.

        Raises:
            InputError: shapes that do not fit, or labels that are not whole numbers or out of range.
        """
        scores, classes = self._checked(np.asarray(logits), np.asarray(labels))
        largest = scores.max(1, initial=-np.inf)
        usable = np.isfinite(largest)  # NaN and +inf are larger than anything, and −inf is the largest if alone
        self._examples += len(classes)
        self._not_finite += int((~usable).sum())
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is −inf or recognised as not finite
            good, true = scores[usable] - largest[usable, None], classes[usable]
            margins = scores[:, 1] - scores[:, 0]
        predicted = good.argmax(1)
        self._right += int((predicted == true).sum())
        if self._confusion is not None:
            cells = np.bincount(true * self.num_classes + predicted, minlength=self.num_classes**2)
            self._confusion += cells.reshape(self._confusion.shape)
        losses = np.log(np.exp(good).sum(1)) - good[np.arange(len(true)), true]
        self._loss += float(losses.sum()) if usable.all() else np.inf
        if self.num_classes == 2:
            self._scores.append(margins)
            self._positive.append(classes == 1)
        if self._compare:
            successes, every_loss = np.zeros(len(classes)), np.full(len(classes), np.inf)
            successes[usable], every_loss[usable] = predicted == true, losses
            self._each.append((classes, successes, every_loss))

    def baselines(self) -> dict[str, dict[str, Any]]:
        """The model next to a constant: the most frequent class, with the frequencies of classes as probabilities.

        Returns:
            baseline → its accuracy, log loss and, for two classes, AUC of ½; and the model's gain in each, see
            `sfumato.metrics.baselines`.
        """
        labels, successes, losses = (np.concatenate(column) for column in zip(*self._each, strict=True))
        counts = np.bincount(labels, minlength=self.num_classes)
        with np.errstate(divide="ignore"):
            constant = -np.log(counts / len(labels))[labels]
        measures = {"accuracy": float(counts.max() / len(labels)), "log_loss": float(constant.mean())}
        gains = {
            "accuracy": mean_gain(successes - (labels == counts.argmax())),
            "log_loss": mean_gain(constant - losses),
        }
        if (area := self._auc()) is not None:
            measures["auc"] = 0.5
            gains["auc"] = area_gain(area, int(counts[1]), int(counts[0]))
        return {CONSTANT: compared(measures, gains)}

    def report(self) -> ClassificationReport:
        """The numbers of all batches so far.

        Raises:
            InputError: there were no examples.
        """
        if self._examples == 0:
            raise InputError("there are no examples to measure on; add a batch first, or keep a larger test part")
        return ClassificationReport(
            accuracy=self._right / self._examples,
            log_loss=max(self._loss / self._examples, 0.0),
            auc=self._auc(),
            calibration=self._calibration(),
            confusion=None if self._confusion is None else self._confusion.copy(),
            examples=self._examples,
            not_finite=self._not_finite,
        )

    def _auc(self) -> float | None:
        if self.num_classes != 2 or self._not_finite:
            return None
        scores, positive = np.concatenate(self._scores), np.concatenate(self._positive)
        return roc_auc(np.clip(scores, -1e300, 1e300), positive) if 0 < positive.sum() < len(positive) else None

    def _calibration(self) -> float | None:
        if self.num_classes != 2 or self._not_finite:
            return None
        predicted = sum(float(scipy.special.expit(margins).sum()) for margins in self._scores)
        true = sum(int(each.sum()) for each in self._positive)
        return predicted / true if true else None

    def _checked(self, logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Float64 logits [n, classes] and int64 labels [n]."""
        if logits.dtype.kind not in "fiu":
            raise InputError(f"logits must be numbers, got {logits.dtype}; give them as float32")
        scores = logits.astype(np.float64)
        if self.num_classes == 2 and (scores.ndim == 1 or scores.shape[1:] == (1,)):
            scores = scores.reshape(-1, 1)
            scores = np.concatenate([np.zeros_like(scores), scores], 1)
        if scores.ndim != 2 or scores.shape[1] != self.num_classes:
            raise InputError(
                f"logits must have shape [examples, {self.num_classes}], got {logits.shape}; "
                "the model's last layer needs one output a class"
            )
        if labels.shape != scores.shape[:1] or labels.dtype.kind not in "iu":
            raise InputError(f"labels must be {len(scores)} whole numbers, got {labels.dtype} {labels.shape}")
        outside = (labels < 0) | (labels >= self.num_classes)
        if outside.any():
            raise InputError(f"labels must be in 0 … {self.num_classes - 1}, got {int(labels[outside][0])}")
        return scores, labels.astype(np.int64)


def classification_report(logits: Any, labels: Any, *, num_classes: int) -> ClassificationReport:
    """Everything about one array of logits, see `ClassificationCounts.add`.

    Raises:
        InputError: no examples, or arrays that do not fit.
    """
    counts = ClassificationCounts(num_classes)
    counts.add(logits, labels)
    return counts.report()


def roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Chance that a positive example scores higher than a negative one, ties counting one half.

    Args:
        scores: finite floats [n].
        positive: booleans or 0 and 1, [n], both of them present.

    Raises:
        InputError: the shapes differ, a score is not finite, or all examples are of one class.
    """
    scores, positive = np.asarray(scores), np.asarray(positive).astype(bool)
    if scores.ndim != 1 or scores.shape != positive.shape:
        raise InputError(f"AUC needs one score and one class an example, got {scores.shape} and {positive.shape}")
    if not np.isfinite(scores).all():
        raise InputError("AUC needs finite scores; one is NaN or infinite: the model has diverged")
    if positive.all() or not positive.any():
        raise InputError("AUC compares positive with negative examples and needs both; all are of one class")
    above, below = scores[positive], np.sort(scores[~positive])  # a bootstrap asks thousands of times
    beaten = sum(np.searchsorted(below, above, side).sum() for side in ("left", "right"))
    return float(beaten / (2 * len(above) * len(below)))
