"""Randomised response on labels: RR, RRTop-k and RRWithPrior (Ghazi et al. 2021, Algorithms 1 to 3).

- **Unit.** One label; inputs, and how many rows there are, are public.
- **Neighbours.** A label is replaced by any other one of the classes. The guarantee is pure.
- **Mechanism.** The prior's k likeliest labels may be reported. A label among them is kept with probability e^epsilon /
  (e^epsilon + k - 1), else each other one of them is as likely; a label that is not gets a uniform one of them.
- **Noise.** One 64-bit word a label, by thresholds whose true ratio never exceeds e^epsilon (`words`). The n-th label
  has the n-th word, in blocks of any size and on any number of threads.
- **Event.** `PureDP(epsilon, "replace")`, whatever the prior is: priors are public, and so is what follows from them.
- **Edges.** A prior may have zeros: such a label is reported only where it is among the k. With k = 1 the report is the
  likeliest label and tells nothing. Labels outside the classes are refused.

Each label may be randomised once. A second report of it has a cost of its own.

>>> response = LabelResponse(epsilon=1.0, classes=3)
>>> prior = np.array([0.55, 0.25, 0.2])
>>> round(float(response.success(prior)), 6)
0.584847
>>> (response.weights(prior) / WORDS).astype(float).round(3).tolist()
[[0.731, 0.269, 0.0], [0.269, 0.731, 0.0], [0.5, 0.5, 0.0]]
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato.accounting import PureDP
from sfumato.mechanisms.randomized_response.priors import ranked, require_prior, success
from sfumato.mechanisms.randomized_response.words import (
    WORDS,
    other_weight,
    other_weights,
    require_classes,
    require_epsilon,
    share_weight,
    shares,
)

_ROWS = 1 << 13  # labels that a thread does at a time: what they need stays in its cache


@dataclass(frozen=True, kw_only=True)
class LabelResponse:
    """The response to a label.

    Attributes:
        epsilon: of one label, in [1e-6, 500].
        classes: how many there are, >= 2.
        size: labels that may be reported: `classes` is RR, a smaller number RRTop-k, None the best number for the
            prior, RRWithPrior.
    """

    epsilon: float
    classes: int
    size: int | None = None

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require_classes(self.classes)
        if self.size is not None:
            _check.whole(size=self.size)
            _check.between(1, self.classes, size=self.size)

    def event(self) -> PureDP:
        """What the report costs one label."""
        return PureDP(float(self.epsilon), "replace")

    def draw(
        self, labels: np.ndarray, words: np.ndarray, prior: np.ndarray | None = None, *, threads: int = 1
    ) -> np.ndarray:
        """The reports.

        Args:
            labels: int64 [n] in {0, …, classes-1}.
            words: uint64 [n], uniform and used for nothing else.
            prior: float [classes] or [n, classes]; None for a uniform one.
            threads: to compute on; the reports are the same.

        Returns:
            int64 [n].

        Raises:
            InputError: a label is outside the classes, or the prior is none.
        """
        require_labels(labels, self.classes)
        prior = self._checked(prior)
        if prior.ndim == 1:
            order, size = ranked(prior, self.epsilon, self.size)
            rank = np.empty(self.classes, np.int64)
            rank[order] = np.arange(self.classes)
            sizes = np.full(len(labels), size)
            return order[_reported_rank(rank[labels], sizes, words, self.epsilon)]
        if len(prior) != len(labels):
            raise InputError(f"prior must have a row for each of the {len(labels)} labels, got {len(prior)}")
        found = np.empty(len(labels), np.int64)

        def part(start: int) -> None:
            rows = slice(start, start + _ROWS)
            order, sizes = ranked(prior[rows], self.epsilon, self.size)
            rank = (order == labels[rows, None]).argmax(axis=1)
            reported = _reported_rank(rank, sizes, words[rows], self.epsilon)
            found[rows] = np.take_along_axis(order, reported[:, None], axis=1)[:, 0]

        starts = range(0, len(labels), _ROWS)
        if threads == 1:
            for start in starts:
                part(start)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, starts))
        return found

    def weights(self, prior: np.ndarray | None = None) -> np.ndarray:
        """How many of the 2^64 words turn each label into each report: whole numbers [classes, classes], as objects.

        Divided by 2^64 they are the exact probabilities of what runs.
        """
        order, sizes = ranked(self._checked(prior, one=True), self.epsilon, self.size)
        size = int(sizes)
        other = other_weight(self.epsilon, size)
        found = np.zeros((self.classes, self.classes), object)
        kept = order[:size]
        for label in range(self.classes):
            if label in kept:
                found[label, kept] = other
                found[label, label] = WORDS - (size - 1) * other
            else:
                found[label, kept] = [share_weight(place, size) for place in range(size)]
        return found

    def probabilities(self, prior: np.ndarray | None = None) -> np.ndarray:
        """The probability of each report for each label, float64 [classes, classes]."""
        return (self.weights(prior) / WORDS).astype(np.float64)

    def likelihoods(self, reports: np.ndarray, prior: np.ndarray | None = None) -> np.ndarray:
        """The probability of each report if the label were each of the classes, float64 [n, classes].

        Args:
            reports: int64 [n].
            prior: that they were drawn with.
        """
        require_labels(reports, self.classes)
        prior = self._checked(prior)
        if prior.ndim == 1:
            return self.probabilities(prior).T[reports]
        order, sizes = ranked(prior, self.epsilon, self.size)
        inside = np.empty(prior.shape, bool)
        np.put_along_axis(inside, order, np.arange(self.classes) < sizes[:, None], axis=1)
        other = other_weights(self.epsilon, sizes) / WORDS
        found = np.where(inside, other[:, None], 1 / sizes[:, None])
        rows = np.arange(len(reports))
        found[rows, reports] = 1 - (sizes - 1) * other
        found[~inside[rows, reports]] = 0.0  # such a report is none of this prior
        return found

    def success(self, prior: np.ndarray | None = None) -> np.ndarray:
        """The probability of a true report where labels follow the prior, float64 [] or [rows]."""
        return success(self._checked(prior), self.epsilon, self.size)

    def _checked(self, prior: np.ndarray | None, *, one: bool = False) -> np.ndarray:
        if prior is None:
            return np.full(self.classes, 1 / self.classes)
        prior = np.asarray(prior)
        require_prior(prior, self.classes)
        if one and prior.ndim != 1:
            raise InputError(f"prior must be that of one row, float [{self.classes}], got {list(prior.shape)}")
        return prior


def require_labels(labels: np.ndarray, classes: int) -> None:
    """Refuse labels that are not in {0, …, classes-1}.

    Raises:
        InputError: one is not; names the first.
    """
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers, got {labels.dtype}")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"the label at position {row} must be in 0 … {classes - 1}, got {labels[row]}")


def _reported_rank(rank: np.ndarray, sizes: np.ndarray, words: np.ndarray, epsilon: float) -> np.ndarray:
    """The place in the prior's order that is reported for labels at these places; int64 [n]."""
    other, wanted = other_weights(epsilon, sizes), sizes.astype(np.uint64)
    wrong = words < (wanted - np.uint64(1)) * other
    slot = (words // other).astype(np.int64)  # of the words for wrong reports; the right report has no slot
    inside = np.where(wrong, slot + (slot >= rank), rank)
    return np.where(rank < sizes, inside, shares(words, wanted))
