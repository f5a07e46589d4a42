"""Models that give what is measured themselves: values, logits of classes, logits of the next token."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data import UserDataset, to_tensor
from sfumato.data.text import EOS_NAME, OOV_NAME, PADDING
from sfumato.metrics.regression import NUMBERS

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
    """Refuse data in which nobody can hide among others.

    Raises:
        InputError: there are fewer than two users.
    """
    if len(data) == 0:
        raise InputError("the data set has no users; point to a folder with one sub-folder a user")
    if len(data) == 1:
        raise InputError("the data set has one user; a private sum needs at least 2")


# Models that give what is measured themselves: values, logits of classes, logits of the next token.
#
# A measurement is a few sums over records, so that it can be taken user by user, put together and told by group.


_AT_ONCE = 1 << 24  # numbers that a model gives for a batch, at most; a batch has one example at least


class OutputTask(ABC):
    """A model maps inputs [n, …] to outputs of the data's labels; data sets are `UserDataset`s."""

    columns: ClassVar[dict[str, str]]
    """Keys of a row that people read, and what they are called."""

    things: ClassVar[str]
    """What an example of the data is called, in the plural."""

    def check(self, data: UserDataset) -> None:
        """Refuse data of another kind, or in which nobody can hide among others."""
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
        """The measurement that sums tell; there is at least one thing."""

    def known_of(self, data: UserDataset, device: str) -> Any:
        """What `sums` has to know of the data, found once; nothing unless said otherwise."""
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
        return self.told(total)

    def told(self, total: Tensor) -> dict[str, Any]:
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

    def headline(self, row: dict[str, Any]) -> str:
        """The first column."""
        key, name = next(iter(self.columns.items()))
        return f"{name} {row[key]:.4f}" if key in row else ""

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """All columns that were measured."""
        last = evaluation.get("trained") or evaluation["untrained"]
        keys = [key for key in self.columns if key in last]
        return [self.columns[key] for key in keys], keys, self.line(evaluation)

    def line(self, evaluation: dict[str, Any]) -> str:
        """On what it was measured."""
        return f"on {evaluation[self.things]:,} {self.things} of {evaluation['users']:,} test users"

    def assumptions(self, data: UserDataset) -> list[Stated]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)


# How often a model that gives logits tells the class of users' records.


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
        """Their number, told right, and log loss."""
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


# How often a model tells the next token of users' sequences, and how sure it is of it.
#
# Counted are all tokens but padding. A second accuracy leaves out of the count the tokens that are not in the
# vocabulary and the ends of the texts, as the tables of the StackOverflow task do: both are easily told and say little.


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
        """The ids that are easily told."""
        return _ids(data, (OOV_NAME, EOS_NAME)).to(device)

    def sums(self, outputs: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """Number of tokens, told right, log loss, number and told right without easy ones, and whether there are any
        easy ones."""
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
