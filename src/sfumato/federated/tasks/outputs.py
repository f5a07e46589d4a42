"""Models that give what is measured themselves: values, logits of classes, logits of the next token.

A measurement is a few sums over records, so that it can be taken user by user, put together and told by group.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.tasks.divided import refuse_few, refuse_undivided

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

    def assumptions(self, data: UserDataset) -> list[str]:
        """What was taken to be public when the data were read."""
        return list(data.assumptions)
