"""metrics.jsonl by columns: what every round left, and what was measured on validation data between rounds."""

from dataclasses import dataclass, field
from typing import Any

from sfumato.metrics.shown import FIRST
from sfumato.report.numbers import finite


@dataclass
class Metrics:
    """metrics.jsonl by columns.

    Attributes:
        rounds: of the rows below.
        epsilon, clip_norm: public, None where there is none.
        private: figures computed from private records without noise, by name.
        measured: false accept rate → (rounds, recall) on validation data.
        accuracy: (rounds, accuracy) on validation data, of a classifier.
        errors: measure → (rounds, values) on validation data, of a model of numbers: those of `metrics.shown.FIRST`.
    """

    rounds: list[int] = field(default_factory=list)
    epsilon: list[float | None] = field(default_factory=list)
    clip_norm: list[float | None] = field(default_factory=list)
    private: dict[str, list[float | None]] = field(default_factory=dict)
    measured: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    accuracy: tuple[list[int], list[float]] = field(default_factory=lambda: ([], []))
    errors: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        """Take in a line of the file: what a round left, or what was measured on validation data."""
        if "evaluation" in row:
            for far, recall in row.get("recall_at_far", {}).items():
                rounds, values = self.measured.setdefault(f"{float(far):g}", ([], []))
                rounds.append(int(row["round"]))
                values.append(float(recall))
            if "accuracy" in row:
                self.accuracy[0].append(int(row["round"]))
                self.accuracy[1].append(float(row["accuracy"]))
            for name in FIRST:
                if name in row:
                    rounds, values = self.errors.setdefault(name, ([], []))
                    rounds.append(int(row["round"]))
                    values.append(float(row[name]))
            return
        if "phase" in row or ("stage" in row and "round" not in row):  # one of several, with losses of their own
            return
        self.rounds.append(int(row["round"]))
        self.epsilon.append(finite(row.get("epsilon")))
        self.clip_norm.append(finite(row.get("clip_norm")))
        private = row.get("not_private", {})
        for name in {*private, *self.private}:
            column = self.private.setdefault(name, [None] * (len(self.rounds) - 1))
            column.append(finite(private.get(name)))
