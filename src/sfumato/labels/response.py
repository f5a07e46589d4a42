"""Randomised response on labels: exact thresholds, priors, RR, RRTop-k and RRWithPrior (Ghazi et al. 2021).

**Thresholds.** No true ratio of probabilities ever exceeds e^epsilon. Every label takes one uniform word w of T = 2^64
values. Of k reports, a response gives each wrong one b words and the right one the other a = T - (k-1) b. The least
whole b with b (E + k - 1) >= T makes a <= E b, and E is a rational number below e^epsilon: so a/b <= e^epsilon holds
for the words themselves, without any rounding left to argue about. The right report loses less than k/T of its
probability against the real mechanism.

A label outside the k reports gets a uniform one, floor(w k / T), which the words give floor(T/k) or ceil(T/k) times
each. For epsilon >= 1e-6 and k <= 2^20 these lie between b and a, because T/k - T/(E+k-1) > 1: see
docs/explanation/label-privacy.md.

>>> other_weight(1.0, 4) / WORDS, (WORDS - 3 * other_weight(1.0, 4)) / WORDS
(0.1748777045..., 0.4753668864...)

**Priors** give labels an order, and how many of them are worth keeping: functions of public numbers, which cost
nothing. Labels of one probability stand in the order of their numbers; so do those that differ in the last bits only,
as many as the number of classes has. The size is k* of RRWithPrior (Ghazi et al. 2021, Algorithm 3): the one that makes
a true report most likely, sum of the k largest probabilities * e^epsilon / (e^epsilon + k - 1); of several such the
least.

>>> order, size = ranked(np.array([0.2, 0.55, 0.25]), epsilon=1.0)
>>> order.tolist(), int(size)
([1, 2, 0], 2)

**Response:** RR, RRTop-k and RRWithPrior (Algorithms 1 to 3).

- **Unit.** One label; inputs, and how many rows there are, are public.
- **Neighbours.** A label is replaced by any other one of the classes. The guarantee is pure.
- **Mechanism.** The prior's k likeliest labels may be reported. A label among them is kept with probability e^epsilon /
  (e^epsilon + k - 1), else each other one of them is as likely; a label that is not gets a uniform one of them.
- **Noise.** One 64-bit word a label, by thresholds whose true ratio never exceeds e^epsilon (`words`). The n-th label
  has the n-th word, in blocks of any size and on any number of threads.
- **Event.** `PureDP(epsilon, "replace")`, whatever the prior is: priors are public, and so is what follows from them.
- **Edges.** A prior may have zeros: such a label is reported only where it is among the k. With k = 1 the report is the
  likeliest label and reveals nothing. Labels outside the classes are refused.

Each label may be randomised once. A second report of it has a cost of its own.

>>> response = LabelResponse(epsilon=1.0, classes=3)
>>> prior = np.array([0.55, 0.25, 0.2])
>>> round(float(response.success(prior)), 6)
0.584847
>>> (response.weights(prior) / WORDS).astype(float).round(3).tolist()
[[0.731, 0.269, 0.0], [0.269, 0.731, 0.0], [0.5, 0.5, 0.0]]

**Losses** undo the noise of randomised labels, so that a model learns what the true ones would teach it. With P the
probabilities of reports for labels (`LabelResponse.probabilities`), after Patrini et al. 2017:

- **Backward** (Theorem 1): a report r counts with the losses of all classes, weighted by row r of P^-1. In the mean
  this is the loss of the true label, whatever the model says. P must have an inverse: RR has one; where the prior keeps
  fewer than all labels, reports do not distinguish the rest, and there is none. Weights are negative and large for a
  small epsilon.
- **Forward** (Theorem 2): the model's probabilities go through P, and the loss is that of the report. It needs no
  inverse, and serves any prior, one for each row as well (`LabelResponse.likelihoods`).

Both are post-processing of the reports: they cost nothing.

>>> unbiased = unbiased_targets(LabelResponse(epsilon=1.0, classes=3, size=3).probabilities())
>>> unbiased[0].round(3).tolist()      # for a report of class 0
[2.164, -0.582, -0.582]

**Phase.** Randomised labels are a phase of a run (`randomized`): released once, kept in the run, free to train on in
any way. A run that goes on finds the labels that it has drawn, and neither draws nor pays again. If it died before they
were kept, it draws the same ones: the n-th label has the n-th word of the run's stream.

>>> from sfumato.runs import Run
>>> response = LabelResponse(epsilon=2.0, classes=3)
>>> with Run.open(None, plan={"plan": "labels"}, seed=1) as run:
...     _ = run.start("what identifies plan and data")
...     reports = randomized(run, response, np.array([0, 1, 2, 2, 1, 0]))
...     statement = run.finish({}, label_facts(population=6, mechanism="randomised response"))
>>> reports.tolist(), statement.unit, statement.epsilon, statement.delta
([0, 1, 1, 2, 2, 0], 'label', 2.0, 0.0)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._random import RandomSource, Stream
from sfumato._types import Assumption, Stated
from sfumato.accounting import Event, PureDP
from sfumato.statement import Facts
from sfumato.statement.sentences import render

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.runs import Run

WORDS = 1 << 64
"""How many words there are."""


LEAST_EPSILON, MOST_EPSILON = 1e-6, 500.0
MOST_CLASSES = 1 << 20
_DIGITS = 60
_BELOW = Fraction(1) - Fraction(1, 10 ** (_DIGITS - 2))  # more than Decimal's exp is off


def require_epsilon(epsilon: object) -> None:
    """Refuse an epsilon that no response has.

    Raises:
        InputError: it is not in [1e-6, 500].
    """
    try:
        _check.positive(epsilon=epsilon)
        _check.between(LEAST_EPSILON, MOST_EPSILON, epsilon=epsilon)
    except InputError as error:
        reason = "0 would be no report and infinity no privacy"
        raise InputError(f"{error}; a response needs one in [{LEAST_EPSILON:g}, {MOST_EPSILON:g}]: {reason}") from None


def require_classes(classes: object) -> None:
    """Refuse a number of classes among which nothing can be hidden, or too many of them.

    Raises:
        InputError: it is not in [2, 2^20].
    """
    _check.whole(at_least=2, classes=classes, remedy="with one class there is nothing to hide")
    _check.between(2, MOST_CLASSES, classes=classes)


@functools.lru_cache(maxsize=64)
def most_ratio(epsilon: float) -> Fraction:
    """A rational number below e^epsilon, by less than one part in 10^57."""
    return Fraction(Context(prec=_DIGITS).exp(Decimal(epsilon))) * _BELOW


@functools.lru_cache(maxsize=4096)
def other_weight(epsilon: float, size: int) -> int:
    """Words for each wrong one of `size` reports."""
    share = most_ratio(epsilon) + (size - 1)
    return -(-WORDS * share.denominator // share.numerator)


def other_weights(epsilon: float, sizes: np.ndarray) -> np.ndarray:
    """The same for each of int64 [n] sizes, uint64 [n]."""
    present = np.flatnonzero(np.bincount(sizes))
    known = np.zeros(int(sizes.max(initial=0)) + 1, np.uint64)
    known[present] = [other_weight(epsilon, int(size)) for size in present]
    return known[sizes]


def shares(words: np.ndarray, sizes: np.ndarray | np.uint64) -> np.ndarray:
    """floor(w k / 2^64): a uniform number below k; words and sizes uint64 -> int64."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    return ((high * sizes + (low * sizes >> np.uint64(32))) >> np.uint64(32)).astype(np.int64)


def share_weight(place: int, size: int) -> int:
    """How many words `shares` turns into this place of `size`."""
    return -(-(place + 1) * WORDS // size) + (-place * WORDS // size)


_OFF = 1e-3  # a sum of numbers in half precision is off by that much


def require_prior(prior: np.ndarray, classes: int, what: str = "prior") -> None:
    """Refuse what is no probability of each class.

    Args:
        prior: float [classes] or [rows, classes].
        classes: how many there are.
        what: its name in messages.

    Raises:
        InputError: it has another width, a number that is negative or not finite, or does not sum to one.
    """
    if prior.ndim not in (1, 2) or prior.dtype.kind != "f":
        raise InputError(f"{what} must be floats [classes] or [rows, classes], got {prior.dtype} {list(prior.shape)}")
    if prior.shape[-1] != classes:
        raise InputError(f"{what} must have one number for each of the {classes} classes, got {prior.shape[-1]}")
    totals = prior.sum(axis=-1)
    good = np.abs(totals - 1) <= _OFF  # false for NaN and infinity, too
    if good.all() and prior.min(initial=0.0) >= 0:
        return
    rows, sums = np.atleast_2d(prior), np.atleast_1d(totals)
    odd = int(np.argmax(~np.atleast_1d(good) | (rows < 0).any(axis=1)))
    where = f" of row {odd}" if prior.ndim == 2 else ""
    if not np.isfinite(rows[odd]).all() or (rows[odd] < 0).any():
        wrong = rows[odd][~(rows[odd] >= 0) | np.isinf(rows[odd])][0]
        raise InputError(f"{what}{where} must hold numbers in [0, 1], got {wrong}")
    raise InputError(f"{what}{where} must sum to 1, got {sums[odd]:.6g}; divide it by its sum")


def ranked(prior: np.ndarray, epsilon: float, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The order of labels, the likeliest first, and how many of them are reported.

    Args:
        prior: float [classes] or [rows, classes].
        epsilon: > 0.
        size: of reports; None for the best one of each row.

    Returns:
        int64 [classes] or [rows, classes], and int64 [] or [rows].
    """
    order, sums = _sorted(prior)
    if size is not None:
        return order, np.full(prior.shape[:-1], size, np.int64)
    sums /= 1 + np.arange(prior.shape[-1]) * math.exp(-epsilon)
    return order, np.asarray(sums.argmax(axis=-1) + 1)


def _sorted(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of labels, and the sums of the likeliest ones, both as the prior.

    Numbers are sorted with their labels in their last bits: five times as fast as sorting labels by numbers.
    """
    count = prior.shape[-1]
    last = (1 << (count - 1).bit_length()) - 1
    keys = (prior.astype(np.float64) + 0.0).view(np.int64)  # in the order of the numbers, as none is below 0.0
    keys = (keys | last) - np.arange(count)
    keys.sort(axis=-1)
    keys = np.ascontiguousarray(keys[..., ::-1])
    order = last - (keys & last)
    return order, np.cumsum((keys & ~last).view(np.float64), axis=-1)


def success(prior: np.ndarray, epsilon: float, size: int | None = None) -> np.ndarray:
    """The probability of a true report for a label that is drawn from the prior, float64 [] or [rows]."""
    sums, sizes = _sorted(prior)[1], ranked(prior, epsilon, size)[1]
    among = np.take_along_axis(sums, np.expand_dims(sizes - 1, -1), axis=-1)[..., 0]
    return among / (1 + (sizes - 1) * math.exp(-epsilon))


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
        reported = order[:size]
        for label in range(self.classes):
            if label in reported:
                found[label, reported] = other
                found[label, label] = WORDS - (size - 1) * other
            else:
                found[label, reported] = [share_weight(place, size) for place in range(size)]
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


_LEAST = 1e-6  # a label's weight where the prior has none
_LARGEST = 1e8  # a condition number beyond which the inverse is noise


def unbiased_targets(probabilities: np.ndarray) -> np.ndarray:
    """Targets for reports whose mean is the true label's one-hot vector: P^-1.

    Args:
        probabilities: float [labels, reports], square; rows add up to 1.

    Returns:
        float64 [reports, labels]; multiplied by the numbers that labels stand for, it gives unbiased numbers.

    Raises:
        InputError: reports do not distinguish all labels.
    """
    table = np.asarray(probabilities, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InputError(f"probabilities must be [labels, reports] with as many of both, got {list(table.shape)}")
    if not np.linalg.cond(table) < _LARGEST:
        raise InputError(
            "reports of this response do not distinguish all labels, so no weights undo it; use forward_loss, or a "
            "response that reports all classes"
        )
    return np.linalg.inv(table)


def unbiased_numbers(probabilities: np.ndarray, values: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Numbers for reports whose mean, for each label, is what the label stands for, or as near to it as can be.

    Labels that no report distinguishes, as those of one bin, get their mean under the prior.

    Args:
        probabilities: float [labels, reports]; rows add up to 1.
        values: float [labels], what labels stand for.
        prior: float [labels], by which labels weigh where not all means can be right; zeros count as a millionth.

    Returns:
        float64 [reports].

    >>> noisy = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> unbiased_numbers(noisy, np.array([1.0, 5.0]), np.array([0.5, 0.5])).round(6).tolist()
    [-1.0, 7.0]
    """
    weights = np.sqrt(np.maximum(prior, _LEAST))
    return np.linalg.lstsq(probabilities * weights[:, None], values * weights, rcond=None)[0]


def backward_loss(losses: Tensor, reports: Tensor, targets: Tensor) -> Tensor:
    """The unbiased loss of each row, [n].

    Args:
        losses: float [n, classes], the loss that each row would have with each class as its label.
        reports: int64 [n].
        targets: float [classes, classes], of `unbiased_targets`.
    """
    return (targets.to(losses)[reports] * losses).sum(dim=1)


def forward_loss(logits: Tensor, likelihoods: Tensor) -> Tensor:
    """The cross-entropy of each row's report, [n].

    Args:
        logits: float [n, classes], of the true label.
        likelihoods: float [n, classes], the probability of the row's report for each label; with one prior, column r
            of P for a report r.
    """
    logs = torch.log_softmax(logits, dim=1)
    return -torch.logsumexp(logs + likelihoods.to(logits).log(), dim=1)


PHASE = "labels"
"""The name of the release, in a run and in its ledger."""


_BLOCK = 1 << 20  # labels whose words are in memory at once
_RELEASED = "The randomised labels, the ledger and the plan"
_DISCLOSURE: dict[str, str] = {
    "trust_model": render(Assumption("trust_randomiser")),
    "contribution": render(Assumption("contribution_report")),
    "sampling_as_run": render(Assumption("every_label_once")),
    "floating_point": render(Assumption("exact_reports")),
}


class Response(Protocol):
    """What turns labels into reports, and what that costs one label."""

    def event(self) -> Event: ...

    def draw(self, labels: np.ndarray, words: np.ndarray) -> np.ndarray: ...


def words_of(source: RandomSource) -> Stream:
    """The words of a phase's labels, in the order of the rows."""
    return source.stream("label words")


def reports_of(
    response: Response, labels: np.ndarray, words: Stream, prior: np.ndarray | None = None, *, threads: int = 1
) -> np.ndarray:
    """The reports of the next rows.

    Args:
        response: to them.
        labels: int64 [n].
        words: of the phase; n of them are taken.
        prior: float [classes] or [n, classes], for a response to classes only.
        threads: to compute on.
    """
    drawn = words.uint64(len(labels))
    if isinstance(response, LabelResponse):
        return response.draw(labels, drawn, prior, threads=threads)
    return response.draw(labels, drawn)


def randomized(
    run: Run,
    response: Response,
    labels: np.ndarray,
    prior: np.ndarray | None = None,
    *,
    threads: int = 1,
    **public: Any,
) -> np.ndarray:
    """Release labels that are in memory.

    Args:
        run: an open run that has started; its ledger gets the cost.
        response: to each label.
        labels: int64 [rows], private.
        prior: as for `reports_of`, public or released before.
        threads: to compute on.
        public: for the ledger.

    Returns:
        the reports [rows], int64 for classes, float64 for numbers; those of the first time if asked again.

    Raises:
        InputError: a label is outside the classes, or the prior is none.
    """

    def draw(source: RandomSource) -> dict[str, torch.Tensor]:
        words, parts = words_of(source), []
        for start in range(0, max(len(labels), 1), _BLOCK):
            rows = slice(start, start + _BLOCK)
            known = prior[rows] if prior is not None and prior.ndim == 2 else prior
            parts.append(reports_of(response, labels[rows], words, known, threads=threads))
        return {"labels": torch.from_numpy(np.concatenate(parts))}

    return run.release(PHASE, response.event(), draw, **public)["labels"].numpy()


def label_facts(
    *,
    population: int,
    mechanism: str,
    assumptions: Sequence[Stated] = (),
    trained: bool = False,
    shuffled: bool = False,
    recorded: bool = False,
    earlier: int = 0,
) -> Facts:
    """What the statement holds on labels that were randomised, next to the ledger.

    Args:
        population: how many rows there are.
        mechanism: in words.
        assumptions: more of them, as those of the data.
        trained: whether the run releases a model, too.
        shuffled: whether rows were written in a random order, and their own one was not tested.
        recorded: whether earlier releases were looked for in a record.
        earlier: how many were found and are in the ledger.
    """
    counted = (
        {} if not earlier else {"other_releases": render(Assumption("other_releases_counted", {"count": earlier}))}
    )
    released = "The model, the randomised labels, the ledger and the plan" if trained else _RELEASED
    return Facts(
        unit="label",
        adjacency="replace",
        population=population,
        delta=0.0,
        sampling="every label once",
        mechanism=mechanism,
        assumptions=(
            Assumption("label_only_shuffled" if shuffled else "label_only"),
            Assumption("rows_shuffled" if shuffled else "row_order"),
            Assumption("draws_recorded", {"count": earlier}) if recorded else Assumption("one_draw"),
            Assumption("label_domain"),
            *assumptions,
        ),
        disclosure={
            **_DISCLOSURE,
            **counted,
            "released": render(Assumption("released_reports", {"files": released})),
        },
        covered=Assumption("covers_labels_and_model" if trained else "covers_labels"),
        rounding=Assumption("rounding_labels"),
    )
