"""What the data must be, and how a model is measured and told of: the part of training that knows what targets are."""

from typing import Any, Protocol

from torch import nn


class Task(Protocol):
    """A kind of model and data."""

    def check(self, data: Any) -> None:
        """Raise InputError if a model cannot be trained on the data."""
        ...

    def measure(self, model: nn.Module, data: Any, *, curve: bool, device: str) -> dict[str, Any]:
        """How good a model is on some data, as plain numbers.

        Returns:
            a row of evaluation.json or metrics.jsonl; with `curve` also what takes more room.
        """
        ...

    def about_test(self, data: Any, row: dict[str, Any]) -> dict[str, Any]:
        """What evaluation.json tells of the test data beside the measurements; `row` is the first of them."""
        ...

    def headline(self, row: dict[str, Any]) -> str:
        """A measurement in a few words, for the progress bar; empty if the row is none."""
        ...

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """Measurements for people: names of columns, keys of `measure`'s rows for them, and a line on the test data.

        Keys with a slash lead into nested rows, as in "recall_at_far/0.001".
        """
        ...

    def assumptions(self, data: Any) -> list[str]:
        """Sentences on what is taken to be public about the data."""
        ...
