"""How a federated plan measures its model; which task it is follows from the loss (`task_of`).

A model gives what is measured itself (values, logits of classes, logits of the next token), or embeddings, which are
measured by pairs of records: do two of them show the same class? A model whose users rebuild a part of it is measured
for each user: the part is rebuilt on some of the user's records, and measured on the rest.

Who is measured may never have taken part in the training; nothing distinguishes them from those who did. The division
of a person's records is the same in every measurement. People with a single record have none to be measured on.
"""

import base64
import io
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from sfumato.federated.serving import Serving
from sfumato.metrics import nearest, similarity_histogram
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

    def known_of(self, data: UserDataset, device: str) -> Any:
        """What `sums` has to know of the data, found once; nothing unless overridden."""
        return None

    def size_of(self, data: UserDataset) -> int:
        """Numbers that a model gives for an example."""
        return max(1, data.num_classes)

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """Over all records of all users."""
        step, known = max(1, _AT_ONCE // self.size_of(data)), self.known_of(data, device)
        total = torch.zeros((), dtype=torch.float64, device=device)  # there until the end, as one tensor
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                for user in range(len(data)):
                    inputs, labels = data.examples(user)
                    for start in range(0, len(labels), step):
                        outputs = model(to_tensor(inputs[start : start + step]).to(device))
                        targets = torch.from_numpy(labels[start : start + step]).to(device)
                        total = total + self.sums(outputs, targets, known)
        finally:
            model.train(was_training)
        return self.row_of(total)

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


# How far a model's predictions of values, such as ratings, are from them.


_HALF = 0.5


class Values(OutputTask):
    """A model maps inputs [n, …] to values [n]."""

    columns: ClassVar = {name: NUMBERS[name] for name in ("rmse", "within_half", "mae")}
    things: ClassVar = "values"

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

    def line(self, evaluation: dict[str, Any]) -> str:
        """Tokens and sequences."""
        return (
            f"on {evaluation['tokens']:,} tokens in {evaluation['examples']:,} test sequences of "
            f"{evaluation['users']:,} users"
        )


def _ids(data: UserDataset, names: tuple[str, ...]) -> Tensor:
    """The ids of tokens that have these names, int64."""
    held = list(data.label_names or ())
    return torch.tensor([held.index(name) for name in names if name in held], dtype=torch.int64)


# The pictures whose embeddings are nearest to some others, for people who would rather look than read a recall.
#
# Six pictures of six classes are asked for, evenly spaced over the data and not chosen by what comes out. The answer
# holds copies of pictures: it is as private as the records it was made from, and for their owner only.


ASKED = 6
"""Pictures that are asked for."""


SHOWN = 5
"""Nearest others of each."""


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
    found = [
        [place for place in places if place != row][:SHOWN]
        for row, places in zip(asked, nearest(vectors[asked], [vectors], count=SHOWN + 1)[0], strict=True)
    ]
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


def _asked(labels: np.ndarray) -> np.ndarray:
    """The first picture of each of some classes that have two, evenly spaced."""
    _, first, count = np.unique(labels, return_index=True, return_counts=True)
    first = first[count > 1]
    if not len(first):
        return first
    return first[np.unique(np.linspace(0, len(first) - 1, ASKED).astype(np.int64))]


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
        curve: add the ROC curve and its area, and the pictures nearest to some (`nearest_pictures`), if there are any.
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
        if pictures := nearest_pictures(data, labels, vectors):
            row["nearest"] = pictures
    return row


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
        groups: dict[int, Tensor] = {}
        people = np.zeros(len(_GROUPS), np.int64)
        for answers in serving.answers(data, phases, asked):
            group = np.searchsorted(_GROUPS, data.sizes[answers.users], side="right") - 1
            owner = np.repeat(group, answers.counts)
            people += np.bincount(group[answers.counts > 0], minlength=len(_GROUPS))
            for each in np.unique(owner).tolist():
                here = torch.from_numpy(owner == each).to(answers.outputs.device)
                sums = self.inner.sums(answers.outputs[here], answers.labels[here], known)
                groups[each] = groups[each] + sums if each in groups else sums
        total = sum(groups.values(), torch.zeros((), dtype=torch.float64, device=device))
        row = self.inner.row_of(total)
        if curve:
            row["by_records"] = [
                {**self.inner.row(groups[each].tolist()), "records": _range(each), "users": int(people[each])}
                for each in sorted(groups)
            ]
        return row

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
