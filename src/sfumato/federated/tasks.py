"""How a federated plan measures its model; which task it is follows from the loss (`task_of`).

A model gives what is measured itself (values, logits of classes, logits of the next token), or embeddings, which are
measured by pairs of records: do two of them show the same class? A model whose users rebuild a part of it is measured
for each user: the part is rebuilt on some of the user's records, and measured on the rest.

Who is measured may never have taken part in the training; nothing distinguishes them from those who did. The division
of a person's records is the same in every measurement. People with a single record have none to be measured on.
"""

import base64
import io
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from sfumato import _check
from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data import UserDataset, to_tensor
from sfumato.data.text import EOS_NAME, OOV_NAME, PADDING
from sfumato.federated.client import PartlyLocalTraining, Phase
from sfumato.federated.losses import ClassLoss, Loss, NextTokenLoss, OutputLoss, SquaredLoss
from sfumato.federated.serving import Serving, support_labels
from sfumato.metrics import SimilarityHistogram, nearest, similarity_histogram
from sfumato.metrics.baselines import CONSTANT, RANDOM, compared, error_gain, mean_gain, root_gain, standard_error
from sfumato.metrics.regression import NUMBERS
from sfumato.training.contribution import Task

# What all data of users have to be, whatever is learned from them.


def refuse_undivided(data: Any) -> None:
    """Refuse data that are not divided by user.

    Raises:
        InputError: with how to divide them.
    """
    if not isinstance(data, UserDataset):
        raise InputError(
            f"data must be divided by user (UserDataset), got {type(data).__name__}; data.open_users(table, "
            "user=…, input=…) makes them of a table, data.from_arrays of arrays; single examples are for DPSGD"
        )


def refuse_few(data: UserDataset) -> None:
    """Refuse data of fewer than two users, in which no user is hidden among others.

    Raises:
        InputError: there are fewer than two users.
    """
    if len(data) == 0:
        raise InputError("the data set has no users; point to a folder with one sub-folder a user")
    if len(data) == 1:
        raise InputError("the data set has one user; a private sum needs at least 2")


# Models that give what is measured themselves: values, logits of classes, logits of the next token.
#
# A measurement is a few sums over records, so that it can be taken user by user, added up and reported by group.


_AT_ONCE = 1 << 24  # numbers that a model gives for a batch, at most; a batch has one example at least


class OutputTask(Task):
    """A model maps inputs [n, …] to outputs of the data's labels; data sets are `UserDataset`s."""

    things: ClassVar[str]
    """What an example of the data is called, in the plural."""
    compared: ClassVar[Mapping[str, tuple[int, int]]]
    """What is compared with baselines: measure → its column of `sums`, and 1 where more is better, -1 where less is."""

    def check(self, data: UserDataset) -> None:
        """Refuse data of another kind, or of fewer than two users."""
        refuse_undivided(data)
        self.refuse_other(data)
        refuse_few(data)

    @abstractmethod
    def refuse_other(self, data: UserDataset) -> None:
        """Raise InputError if the labels are of another kind."""

    @abstractmethod
    def sums(self, outputs: Tensor, targets: Tensor, known: Any) -> Tensor:
        """Sums over examples, float64 [k]; the first is how many things were measured. `known` is from `known_of`."""

    @abstractmethod
    def row(self, sums: list[float]) -> dict[str, Any]:
        """The measurement that follows from the sums; there is at least one thing."""

    @abstractmethod
    def baselines(self, users: Callable[[], Iterator[np.ndarray]], known: Any) -> dict[str, np.ndarray]:
        """What predictors that read no input give.

        Args:
            users: the labels of the records that were measured, user by user; each call begins anew.
            known: from `known_of`.

        Returns:
            baseline → its `sums` for each user, float64 [users, k].
        """

    def gains(self, sums: np.ndarray, baselines: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The model next to baselines, as its row has them; sums of each are [users, k]."""
        found, row = {}, self.row(sums.sum(axis=0).tolist())
        for name, constant in baselines.items():
            measures = self.row(constant.sum(axis=0).tolist())
            with np.errstate(invalid="ignore"):
                gains = {
                    measure: mean_gain(better * (sums - constant)[:, column], sums[:, 0])
                    for measure, (column, better) in self.compared.items()
                }
            if "rmse" in row and "rmse" in measures:
                gains["rmse"] = root_gain(gains["rmse"], row["rmse"], measures["rmse"])
            found[name] = compared(measures, gains)
        return found

    def known_of(self, data: UserDataset, device: str) -> Any:
        """What `sums` has to know of the data, found once; nothing unless overridden."""
        return None

    def size_of(self, data: UserDataset) -> int:
        """Numbers that a model gives for an example."""
        return max(1, data.num_classes)

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Over all records of all users; with `curve` next to baselines."""
        step, known = max(1, _AT_ONCE // self.size_of(data)), self.known_of(data, device)
        each = []
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for user in range(len(data)):
                    inputs, labels = data.examples(user)
                    total = torch.zeros((), dtype=torch.float64, device=device)
                    for start in range(0, len(labels), step):
                        outputs = model(to_tensor(inputs[start : start + step]).to(device))
                        targets = torch.from_numpy(labels[start : start + step]).to(device)
                        total = total + self.sums(outputs, targets, known)
                    if total.dim():
                        each.append(total)
        finally:
            model.train(was_training)
        sums = torch.stack(each) if each else torch.zeros((1, 1), dtype=torch.float64)
        row = self.row_of(sums.sum(0))
        if curve:
            measured = [user for user in range(len(data)) if data.sizes[user]]
            labels_of = lambda: (np.asarray(data.examples(user)[1]) for user in measured)  # noqa: E731
            row["baselines"] = self.gains(sums.cpu().numpy(), self.baselines(labels_of, known))
        return row

    def row_of(self, total: Tensor) -> dict[str, Any]:
        """The row of sums over all data.

        Raises:
            InputError: nothing was measured.
        """
        sums = total.tolist()
        if not isinstance(sums, list) or not sums[0]:
            raise InputError(f"there are no {self.things} to measure on; give test data that have some")
        return self.row(sums)

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of users, examples and classes, and of what was measured."""
        found = {"data": "test", "users": len(data), "examples": data.num_examples, self.things: row[self.things]}
        return {**found, "classes": data.num_classes} if data.num_classes else found

    def line(self, evaluation: dict[str, Any]) -> str:
        """On what it was measured."""
        return f"on {evaluation[self.things]:,} {self.things} of {evaluation['users']:,} test users"


# How often a model that gives logits predicts the class of users' records.


class Classes(OutputTask):
    """A model maps inputs [n, …] to logits [n, classes]."""

    columns: ClassVar = {"accuracy": "accuracy", "log_loss": "log loss"}
    things: ClassVar = "records"
    compared: ClassVar = {"accuracy": (1, 1), "log_loss": (2, -1)}

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse sequences, values and attributes."""
        data.refuse_attributes("be learned by client.loss=cross_entropy")
        if data.of_sequences or data.of_values:
            what = (
                "sequences of tokens (client.loss=next_token)" if data.of_sequences else "values (client.loss=squared)"
            )
            raise InputError(f"client.loss=cross_entropy needs a class for each record, and the data are {what}")

    def sums(self, outputs: Tensor, targets: Tensor, known: Any) -> Tensor:
        """Their number, how many are predicted correctly, and log loss."""
        losses = functional.cross_entropy(outputs.float(), targets, reduction="none").double()
        right = (outputs.argmax(1) == targets).sum().double()
        return torch.stack([torch.full_like(right, len(targets)), right, losses.sum()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Accuracy and mean log loss."""
        count, right, loss = sums
        row: dict[str, Any] = {"records": int(count), "accuracy": right / count}
        return {**row, "log_loss": loss / count} if math.isfinite(loss) else row

    def baselines(self, users: Callable[[], Iterator[np.ndarray]], known: Any) -> dict[str, np.ndarray]:
        """The most frequent class, with the frequencies of classes as probabilities."""
        counts = _counts(users())
        losses, best = _log_losses(counts), counts.argmax()
        rows = [(len(labels), (labels == best).sum(), losses[labels].sum()) for labels in users()]
        return {CONSTANT: np.array(rows, np.float64)}


# How far a model's predictions of values, such as ratings, are from them.


_HALF = 0.5


class Values(OutputTask):
    """A model maps inputs [n, …] to values [n]."""

    columns: ClassVar = {name: NUMBERS[name] for name in ("rmse", "within_half", "mae")}
    things: ClassVar = "values"
    compared: ClassVar = {"rmse": (1, -1)}

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse data of classes or sequences."""
        if not data.of_values:
            raise InputError(
                "client.loss=squared needs a value for each record, and the data have classes; read ratings with "
                "data.open_users, or a table with --item and --value"
            )

    def sums(self, outputs: Tensor, targets: Tensor, known: Any) -> Tensor:
        """Their number, the squared errors, those of at most ½, and the absolute errors."""
        errors = (outputs - targets).double().abs()
        count = torch.full_like(errors.sum(), len(errors))
        return torch.stack([count, (errors**2).sum(), (errors <= _HALF).sum().double(), errors.sum()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Root mean squared error, the share of errors of at most ½, and the mean absolute error."""
        count, squared, close, absolute = sums
        row: dict[str, Any] = {"values": int(count)}
        if math.isfinite(squared):
            row |= {"rmse": math.sqrt(squared / count), "within_half": close / count, "mae": absolute / count}
        return row

    def baselines(self, users: Callable[[], Iterator[np.ndarray]], known: Any) -> dict[str, np.ndarray]:
        """The mean of all values."""
        values = np.concatenate([np.zeros(0), *users()])
        return {CONSTANT: self.constants(users(), itertools.repeat(values.mean()))}

    def constants(self, users: Iterator[np.ndarray], means: Iterator[float]) -> np.ndarray:
        """The sums of a number for each user, float64 [users, 4]."""
        errors = [np.abs(values.astype(np.float64) - mean) for values, mean in zip(users, means, strict=False)]
        return np.array([(len(e), (e**2).sum(), (e <= _HALF).sum(), e.sum()) for e in errors], np.float64)


# How often a model predicts the next token of users' sequences, and how sure it is of it.
#
# Counted are all tokens but padding. A second accuracy leaves out of the count the tokens that are not in the
# vocabulary and the ends of the texts, as the tables of the StackOverflow task do: both are easily predicted and show
# little.


class NextToken(OutputTask):
    """A model maps token ids [n, T] to logits [n, T, vocabulary]."""

    columns: ClassVar = {
        "accuracy": "accuracy",
        "accuracy_no_oov_no_eos": "without oov and eos",
        "log_loss": "log loss",
        "perplexity": "perplexity",
    }
    things: ClassVar = "tokens"
    compared: ClassVar = {"accuracy": (1, 1), "log_loss": (2, -1)}

    def refuse_other(self, data: UserDataset) -> None:
        """Refuse data that are no sequences."""
        if not data.of_sequences:
            raise InputError(
                "client.loss=next_token needs a label for every token, and the data have one an example; read texts "
                "with data.open_users (--text characters or words)"
            )

    def size_of(self, data: UserDataset) -> int:
        """A logit of every id at every place."""
        return data.input_shape[0] * data.num_classes

    def known_of(self, data: UserDataset, device: str) -> Tensor:
        """The ids that are easily predicted."""
        return _ids(data, (OOV_NAME, EOS_NAME)).to(device)

    def sums(self, outputs: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Tokens, correct ones, log loss, both counts without the easy ones, and whether there are any easy ones."""
        losses = functional.cross_entropy(
            outputs.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=PADDING
        )
        there = targets != PADDING
        right = (outputs.argmax(2) == targets) & there
        hard = there & ~torch.isin(targets, known)
        counted = (there.sum(), right.sum(), losses.sum(dtype=torch.float64), hard.sum(), (right & hard).sum())
        return torch.stack([*(each.double() for each in counted), torch.full_like(losses[0], len(known)).double()])

    def row(self, sums: list[float]) -> dict[str, Any]:
        """Both accuracies, mean log loss and perplexity."""
        tokens, right, loss, known, known_right, easy = sums
        row: dict[str, Any] = {"accuracy": right / tokens, "tokens": int(tokens)}
        if easy and known:
            row["accuracy_no_oov_no_eos"] = known_right / known
        if math.isfinite(loss):
            row["log_loss"] = loss / tokens
            row["perplexity"] = math.exp(min(loss / tokens, 700.0))  # beyond it, doubles end
        return row

    def baselines(self, users: Callable[[], Iterator[np.ndarray]], known: Tensor) -> dict[str, np.ndarray]:
        """The frequencies of single tokens; and of pairs, which are counted in one half of the users and measured on
        the other half: counted and measured on the same tokens, they would know each rare pair."""
        easy = known.cpu().numpy()
        counts = _counts(labels[labels != PADDING] for labels in users())
        losses, best = _log_losses(counts), counts.argmax()
        single, halves = [], [_Bigrams(counts), _Bigrams(counts)]
        for place, labels in enumerate(users()):
            there = labels[labels != PADDING]
            single.append(_token_sums(there, there == best, losses[there], easy))
            halves[place % 2].add(labels)
        pairs = []
        for place, labels in enumerate(users()):
            there, right, loss = halves[1 - place % 2].predict(labels)
            pairs.append(_token_sums(there, right, loss, easy))
        found = {"unigram": np.array(single, np.float64)}
        return found if len(pairs) < _FEWEST_USERS else {**found, "bigram": np.array(pairs, np.float64)}

    def line(self, evaluation: dict[str, Any]) -> str:
        """Tokens and sequences."""
        return (
            f"on {evaluation['tokens']:,} tokens in {evaluation['examples']:,} test sequences of "
            f"{evaluation['users']:,} users"
        )


_FEWEST_USERS = 4  # half of whom count pairs of tokens
_MOST_WAITING = 1 << 22  # pairs of tokens that are counted at once
_PRIOR = 5.0
"""Observations that the frequencies of single tokens count for, next to those of the pairs that follow a token."""


def _counts(labels: Iterable[np.ndarray]) -> np.ndarray:
    """How often each class is there, int64 [classes that occur]."""
    counts = np.zeros(1, np.int64)
    for some in labels:
        found = np.bincount(some.ravel(), minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


def _log_losses(counts: np.ndarray) -> np.ndarray:
    """The log loss of each class where probabilities are frequencies."""
    with np.errstate(divide="ignore"):
        return -np.log(counts / max(counts.sum(), 1))


def _token_sums(tokens: np.ndarray, right: np.ndarray, losses: np.ndarray, easy: np.ndarray) -> tuple[float, ...]:
    """The sums of `NextToken` from predictions of tokens, each [n]."""
    hard = ~np.isin(tokens, easy)
    return len(tokens), right.sum(), losses.sum(), hard.sum(), (right & hard).sum(), float(len(easy))


class _Bigrams:
    """Predicts a token from the one before by counts of pairs, smoothed by the frequencies of single tokens.

    Args:
        counts: of single tokens; they say how often an unseen pair is expected.
    """

    def __init__(self, counts: np.ndarray) -> None:
        self._size = len(counts) + 1  # the last id stands in front of a sequence
        self._single = counts / max(counts.sum(), 1)
        self._codes, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[np.ndarray] = []
        self._held = 0  # pairs that wait

    def add(self, labels: np.ndarray) -> None:
        """Count the pairs of some sequences, [n, T]; memory grows with kinds of pairs, not with tokens."""
        before, tokens = self._pairs(labels)
        self._waiting.append(before * self._size + tokens)
        self._held += len(tokens)
        if self._held > _MOST_WAITING:
            self._count()

    def _count(self) -> None:
        codes, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *self._waiting]), return_counts=True)
        every, place = np.unique(np.concatenate([self._codes, codes]), return_inverse=True)
        weights = np.concatenate([self._counts, counts])
        self._codes, self._counts = every, np.bincount(place, weights=weights, minlength=len(every)).astype(np.int64)
        self._waiting, self._held = [], 0

    def predict(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of sequences without padding, whether each is the most likely one, and its log loss, [n] each."""
        codes, counts, firsts, best = self._table
        before, tokens = self._pairs(labels)
        place = np.minimum(np.searchsorted(codes, before * self._size + tokens), max(len(codes) - 1, 0))
        found = codes[place] == before * self._size + tokens if len(codes) else np.zeros(len(tokens), bool)
        pair = np.where(found, counts[place] if len(counts) else 0, 0)
        chance = (pair + _PRIOR * self._single[tokens]) / (firsts[before] + _PRIOR)
        return tokens, best[before] == tokens, -np.log(chance)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Codes of pairs in order, their counts, how often each token comes first, and what most likely follows it."""
        self._count()
        codes, counts = self._codes, self._counts
        before, tokens = codes // self._size, codes % self._size
        firsts = np.bincount(before, weights=counts, minlength=self._size)
        best = np.full(self._size, self._single.argmax(), np.int64)
        weights = counts + _PRIOR * self._single[tokens]
        order = np.lexsort((weights, before))  # the last one of each first token is the likeliest that was seen
        last = np.flatnonzero(np.diff(before[order], append=-1))
        top = order[last]
        better = weights[top] >= _PRIOR * self._single.max()
        best[before[top][better]] = tokens[top][better]
        return codes, counts, firsts, best

    def _pairs(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The token before each, and each, of what is no padding."""
        labels = labels.astype(np.int64)
        before = np.concatenate([np.full((len(labels), 1), self._size - 1), labels[:, :-1]], axis=1)
        there = labels != PADDING
        return np.where(before == PADDING, self._size - 1, before)[there], labels[there]


def _ids(data: UserDataset, names: tuple[str, ...]) -> Tensor:
    """The ids of tokens that have these names, int64."""
    held = list(data.label_names or ())
    return torch.tensor([held.index(name) for name in names if name in held], dtype=torch.int64)


# The pictures whose embeddings are nearest to some others, for people who would rather look than read a recall.
#
# Six pictures of six classes are shown, drawn at random and not chosen by what comes out; next to them stands the share
# of right ones over many pictures. The answer holds copies of pictures: it is as private as the records it was made
# from, and for their owner only.


ASKED = 6
"""Pictures that are asked for."""


SHOWN = 5
"""Nearest others of each."""


COUNTED = 1000
"""Pictures whose nearest others are counted for the share of right ones, at most."""


_PUBLIC_SEED = 0  # which pictures are looked at is no secret


_SIDE = 64  # pixels of a copy, at most: to recognise it by, and some kilobytes


def nearest_pictures(data: UserDataset, labels: np.ndarray, vectors: np.ndarray) -> list[dict[str, Any]]:
    """The pictures that the embeddings hold for similar.

    Args:
        data: where the pictures are.
        labels: int64 [examples], in the order of the data.
        vectors: their embeddings of length 1, float32 [examples, dimensions].

    Returns:
        a row for each picture asked for: label, picture (PNG in base64) and nearest, a list of label, picture and same
        (whether the class is that of the one asked for), nearest first. No rows where inputs are no 8-bit pictures, or
        no picture has another of its class.
    """
    asked = _asked(labels)
    if not len(asked) or not _are_pictures(data):
        return []
    found = _others(vectors, asked)
    ends = np.cumsum(data.sizes)

    def shown(row: int) -> dict[str, Any]:
        user = int(np.searchsorted(ends, row, side="right"))
        picture = np.asarray(data.examples(user)[0])[row - (int(ends[user - 1]) if user else 0)]
        label = int(labels[row])
        return {
            "label": str(data.label_names[label] if data.label_names is not None else label),
            "picture": _png(picture),
        }

    return [
        {
            **shown(int(row)),
            "nearest": [{**shown(int(near)), "same": bool(labels[near] == labels[row])} for near in neighbours],
        }
        for row, neighbours in zip(asked, found, strict=True)
    ]


def nearest_share(labels: np.ndarray, vectors: np.ndarray) -> float | None:
    """Of the nearest others of pictures drawn at random, the share that shows the same class; None where no picture has
    another of its class. Arguments as for `nearest_pictures`."""
    paired = _paired(labels)
    if not len(paired):
        return None
    drawn = np.random.default_rng(_PUBLIC_SEED).permutation(paired)[:COUNTED]
    found = _others(vectors, drawn)
    return float(
        np.mean([labels[place] == labels[row] for row, places in zip(drawn, found, strict=True) for place in places])
    )


def _others(vectors: np.ndarray, asked: np.ndarray) -> list[list[int]]:
    """The places of the most similar others of each row that is asked for."""
    places = nearest(vectors[asked], [vectors], count=SHOWN + 1)[0]
    return [[place for place in each if place != row][:SHOWN] for row, each in zip(asked, places.tolist(), strict=True)]


def _paired(labels: np.ndarray) -> np.ndarray:
    """Rows of classes that have two."""
    _, place, count = np.unique(labels, return_inverse=True, return_counts=True)
    return np.flatnonzero(count[place] > 1)


def _asked(labels: np.ndarray) -> np.ndarray:
    """One picture each of some classes that have two, drawn at random."""
    drawn = np.random.default_rng(_PUBLIC_SEED).permutation(_paired(labels))
    _, first = np.unique(labels[drawn], return_index=True)
    return drawn[np.sort(first)[:ASKED]]


def _are_pictures(data: UserDataset) -> bool:
    return len(data.input_shape) == 3 and data.input_shape[2] in (1, 3) and data.dtype == np.uint8


def _png(picture: np.ndarray) -> str:
    image = Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)
    image.thumbnail((_SIDE, _SIDE))
    written = io.BytesIO()
    image.save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode("ascii")


# Embeddings of a data set, and how well they separate identities.
#
# Whatever is measured here on private records is private: only public or consented data belongs in an evaluation that
# is released.


_NUMBERS = 2**19  # of inputs that a CPU reads at a time: 13 pictures of 112×112 in colour, all of a batch of 28×28
_FEWEST = 8
_COMPARED = 256  # pictures of an identity that are compared with its others at a time


def embed(
    model: nn.Module, data: UserDataset, *, batch_size: int = 256, device: torch.device | str = "cpu"
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Embeddings of all examples in bounded memory, user by user, in batches.

    Yields:
        users int64 [n], labels int64 [n], L2-normalised embeddings float32 [n, d]; n <= batch_size.
    """
    was_training = model.training
    model.eval()
    try:
        for users, inputs, labels in _batches(data, batch_size):
            with torch.inference_mode():
                read = to_tensor(inputs).to(device)
                raw = torch.cat([model(part) for part in read.split(_at_once(read))])
                yield users, labels, nn.functional.normalize(raw, dim=1).cpu().numpy()
    finally:
        model.train(was_training)


def evaluate(
    model: nn.Module,
    data: UserDataset,
    *,
    fars: tuple[float, ...] = (1e-3,),
    curve: bool = False,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """recall@FAR over all pairs of the data set, as plain numbers.

    Args:
        model: maps inputs to embeddings [n, d].
        data: the labels are the identities to separate.
        fars: false accept rates.
        curve: add the ROC curve and its area, the standard error of each recall over identities, and the pictures
            nearest to some (`nearest_pictures`), if there are any.
        device: where the model lies.
    """
    parts = [(labels, vectors) for _, labels, vectors in embed(model, data, device=device)]
    labels = np.concatenate([part[0] for part in parts])
    vectors = np.concatenate([part[1] for part in parts])
    similarities = similarity_histogram(vectors, labels)
    recall = similarities.recall_at_far(fars)
    row: dict[str, Any] = {
        "recall_at_far": {f"{far:g}": float(recall.recall[far]) for far in fars},
        "genuine_pairs": int(recall.genuine_pairs),
        "impostor_pairs": int(recall.impostor_pairs),
    }
    if curve:
        drawn = similarities.roc()
        row["auc"] = float(drawn.auc)
        row["roc"] = {"fpr": drawn.fpr.tolist(), "tpr": drawn.tpr.tolist()}
        errors, identities = _errors(similarities, vectors, labels, recall.threshold)
        row["error_units"] = identities
        row["standard_error"] = {name: error for name, error in errors.items() if error is not None}
        measures: dict[str, Any] = {"auc": 0.5, "recall_at_far": {f"{far:g}": far for far in fars}}
        gain = error_gain(row["auc"] - 0.5, errors["auc"], identities)
        row["baselines"] = {RANDOM: compared(measures, {"auc": gain})}
        if pictures := nearest_pictures(data, labels, vectors):
            row["nearest"] = pictures
            row["nearest_right"] = nearest_share(labels, vectors)
    return row


def _errors(
    similarities: SimilarityHistogram, vectors: np.ndarray, labels: np.ndarray, thresholds: Mapping[float, float]
) -> tuple[dict[str, float | None], int]:
    """Standard errors of the recall above thresholds and of the area, over identities drawn independently; and how many
    identities have two pictures.

    The similarities of different people are taken as known: they are many more than those of the same.
    """
    below = np.append(0.0, np.cumsum(similarities.impostor)) / similarities.impostor_pairs
    order = np.argsort(labels, kind="stable")
    accepted: dict[float, list[float]] = {far: [] for far in thresholds}
    ranks, pairs = [], []
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) < 2:
            continue
        over, rank = dict.fromkeys(thresholds, 0.0), 0.0
        for start in range(0, len(rows), _COMPARED):  # some at a time: pairs grow with the square
            some = vectors[rows[start : start + _COMPARED]] @ vectors[rows].T
            found = some[np.arange(len(rows)) > np.arange(start, start + len(some))[:, None]]
            for far, threshold in thresholds.items():
                over[far] += float((found > threshold).sum())
            rank += float(below[np.searchsorted(similarities.similarity, found)].sum())
        for far, count in over.items():
            accepted[far].append(count)
        ranks.append(rank)
        pairs.append(len(rows) * (len(rows) - 1) / 2)
    sizes = np.array(pairs)
    each = {f"recall_at_far/{far:g}": standard_error(np.array(sums), sizes) for far, sums in accepted.items()}
    return {**each, "auc": standard_error(np.array(ranks), sizes)}, len(pairs)


def _at_once(inputs: torch.Tensor) -> int:
    """Examples that a model reads in one go: on a CPU what its layers make of them has to stay in the caches."""
    if inputs.device.type != "cpu":
        return len(inputs)
    return max(_FEWEST, _NUMBERS * len(inputs) // max(1, inputs.numel()))


def _batches(data: UserDataset, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    users: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    waiting = 0
    for user in range(len(data)):
        x, y = data.examples(user)
        users.append(np.full(len(y), user, np.int64))
        inputs.append(np.asarray(x))
        labels.append(np.asarray(y))
        waiting += len(y)
        while waiting >= size or (waiting and user == len(data) - 1):
            u, x, y = (np.concatenate(part) for part in (users, inputs, labels))
            yield u[:size], x[:size], y[:size]
            users, inputs, labels = [u[size:]], [x[size:]], [y[size:]]
            waiting = len(u[size:])


@dataclass(frozen=True, kw_only=True)
class Verification(Task):
    """A model maps inputs to embeddings [n, d]; data sets are `UserDataset`s.

    Attributes:
        fars: false accept rates to report recall at, each in (0, 1).
    """

    fars: tuple[float, ...] = (1e-3,)

    def __post_init__(self) -> None:
        for far in self.fars:
            _check.between(0, 1, ends="()", far=far)

    def check(self, data: UserDataset) -> None:
        """Refuse data that are not divided by user, or of fewer than two users."""
        refuse_undivided(data)
        data.refuse_values("be measured by pairs of classes")
        data.refuse_attributes("be measured by pairs of classes")
        if data.of_sequences:
            raise InputError(
                "the data are sequences of tokens, not of classes; train with client.loss=next_token (--client.loss)"
            )
        refuse_few(data)

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Recall at the false accept rates, over all pairs.

        Raises:
            InputError: no two examples are of one class.
        """
        if data.classes_present().sum() == data.num_examples:
            raise InputError(
                f"no two of the {data.num_examples:,} examples to measure on are of one class; take users with "
                "several (--test-names, --test), or measure nothing (--test-share 0)"
            )
        return evaluate(model, data, fars=self.fars, curve=curve, device=device)

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """Counts of images, users and pairs."""
        return {
            "data": "test",
            "images": int(data.sizes.sum()),
            "users": len(data),
            "genuine_pairs": row["genuine_pairs"],
            "impostor_pairs": row["impostor_pairs"],
        }

    def headline(self, row: dict[str, Any]) -> str:
        """Recall at every rate."""
        return ", ".join(f"recall@FAR={far} {v:.3f}" for far, v in row.get("recall_at_far", {}).items())

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Recall at every rate that was measured, and the area under the ROC curve."""
        first = evaluation.get("untrained") or evaluation["trained"]
        fars = list(first["recall_at_far"])
        measured = (
            f"on {evaluation['images']:,} test images of {evaluation['users']:,} users: "
            f"{evaluation['genuine_pairs']:,} genuine and {evaluation['impostor_pairs']:,} impostor pairs"
        )
        names = [*(f"recall@FAR={far}" for far in fars), "AUC"]
        return names, [*(f"recall_at_far/{far}" for far in fars), "auc"], measured


_TASKS: dict[type[OutputLoss], type[OutputTask]] = {NextTokenLoss: NextToken, SquaredLoss: Values, ClassLoss: Classes}


def task_of(loss: Loss) -> OutputTask | Verification:
    """Of what the model gives itself; of embeddings, recall at a false accept rate."""
    return _TASKS[type(loss)]() if isinstance(loss, OutputLoss) else Verification()


_GROUPS = (1, 10, 30, 100, 300)
"""Records of a person from which on the next group begins."""


@dataclass(frozen=True, kw_only=True)
class Personalised(Task):
    """A model with a part of each person's own; data sets are `UserDataset`s.

    Attributes:
        inner: what is measured.
        client: how an own part is rebuilt, and how records are divided.
        trainable: which parameters were trained.
        local_parameters: a regular expression of those that are each person's own; None takes the model's, "" for none.
        at_once: people in one batched operation.
        phases: what a person's records do to the model before it is measured; () rebuilds the own part.
    """

    inner: OutputTask
    client: PartlyLocalTraining
    trainable: str = "all"
    local_parameters: str | None = None
    at_once: int = 1
    phases: Sequence[Phase] = ()

    monitors_training_users: ClassVar[bool] = True
    """Measured on people who took part, too: nothing should distinguish them from others."""

    def check(self, data: UserDataset) -> None:
        """Refuse what the inner task refuses, and data without a user of two records."""
        self.inner.check(data)
        if data.sizes.max(initial=0) < 2:
            raise InputError("no user has two records: one rebuilds the own part, another one updates the shared one")

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """On the part of everybody's records that nothing was rebuilt from; with `curve` also by number of records."""
        pattern = local_parameters_of(model, self.local_parameters) if self.local_parameters != "" else None
        serving = Serving(
            model, self.client, trainable=self.trainable, local_parameters=pattern, at_once=self.at_once, device=device
        )
        phases = self.phases or ((self.client.local.phase,) if self.client.local.phase.most else ())
        asked = Phase(records="query", local=None, shared=None, batch_size=None)
        known = self.inner.known_of(data, device)
        sums: dict[int, Tensor] = {}
        labels: dict[int, np.ndarray] = {}
        for answers in serving.answers(data, phases, asked):
            counts = answers.counts.tolist()
            parts = (answers.outputs.split(counts), answers.labels.split(counts))
            for user, outputs, wanted in zip(answers.users.tolist(), *parts, strict=True):
                if len(wanted):
                    sums[user] = self.inner.sums(outputs, wanted, known)
                    labels[user] = wanted.cpu().numpy()
        users = np.array(sorted(sums), np.int64)
        each = torch.stack([sums[user] for user in users.tolist()]) if len(users) else torch.zeros((1, 1))
        row = self.inner.row_of(each.sum(0))
        if curve:
            found, group = each.cpu().numpy(), np.searchsorted(_GROUPS, data.sizes[users], side="right") - 1
            row["by_records"] = [
                {
                    **self.inner.row(found[group == number].sum(axis=0).tolist()),
                    "records": _range(number),
                    "users": int((group == number).sum()),
                }
                for number in np.unique(group).tolist()
            ]
            row["baselines"] = self.inner.gains(found, self._baselines(data, users, labels, known))
        return row

    def _baselines(
        self, data: UserDataset, users: np.ndarray, labels: Mapping[int, np.ndarray], known: Any
    ) -> dict[str, np.ndarray]:
        """Those of the inner task; and of values each user's mean, of the records that the own part is rebuilt from."""

        def asked() -> Iterator[np.ndarray]:
            return (labels[user] for user in users.tolist())

        found = self.inner.baselines(asked, known)
        if isinstance(self.inner, Values):
            everyone = np.concatenate(list(asked())).mean()
            kept = support_labels(data, users, self.client)
            means = iter([float(some.mean()) if len(some) else everyone for some in kept])
            found["user mean"] = self.inner.constants(asked(), means)
        return found

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """As of the inner task."""
        return self.inner.about_test(data, row)

    def headline(self, row: dict[str, Any]) -> str:
        """As of the inner task."""
        return self.inner.headline(row)

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """As of the inner task."""
        names, keys, measured = self.inner.table(evaluation)
        return names, keys, f"{measured}, each with an own part rebuilt from their other records"

    def assumptions(self, data: UserDataset) -> list[Stated]:
        """As of the inner task."""
        return self.inner.assumptions(data)


def local_parameters_of(model: nn.Module, wanted: str | None) -> str:
    """The regular expression of the parameters that are each person's own: that which is wanted, or the model's.

    Raises:
        InputError: neither is set.
    """
    pattern = wanted or getattr(model, "local_parameters", None)
    if not pattern:
        names = ", ".join(name for name, _ in model.named_parameters())
        raise InputError(
            "which parameters are each user's own? give client.local.parameters, a regular expression of whole names; "
            f"the model has {names}"
        )
    return pattern


def _range(group: int) -> str:
    least = _GROUPS[group]
    return f"{least} or more" if group + 1 == len(_GROUPS) else f"{least} to {_GROUPS[group + 1] - 1}"
