"""Whether a run learned anything, from what was measured: the first thing to say where it did not.

Guarantees no false praise: silence means that nothing speaks against the run, not that it is good. Losses and counts
of contributions were computed from private records without noise, measurements from the test data; the caller says
which of the two may be told.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.metrics.shown import EXPLAINED, FIRST, NUMBERS

_LAST = 3
"""Rounds in a row without a finite loss, or without half of their contributions, that are called a divergence."""

_BEFORE_AND_AFTER = (
    *((name, NUMBERS[name], -1) for name in FIRST),
    ("accuracy", "accuracy", 1),
    ("auc", "area under the ROC curve", 1),
)
"""Measures that tell whether the training brought anything: key, name, and 1 where more is better, -1 where less is.
The first that there is decides: a share of values that are nearly right is no measure beside their error."""

Column = Sequence[float | None]


def trouble(private: Mapping[str, Column] | None, evaluation: Mapping[str, Any] | None) -> str:
    """Why the model is of no use, in a sentence or two; "" where nothing speaks against it.

    Args:
        private: "units", "loss" and "non_finite" of every round; None where they may not be told.
        evaluation: scores of the models "untrained" and "trained", and the number of "classes", as far as they are
            known; None where they may not be told.
    """
    reasons = diverged(private) if private else []
    reasons += _chance(evaluation) if evaluation else []
    if reasons:
        return f"The model learned nothing: {', and '.join(reasons)}."
    return _no_gain(evaluation) if evaluation else ""


def not_finite(evaluation: Mapping[str, Any]) -> str:
    """How many test examples gave no finite output, and which measures were left out for it, in a sentence without its
    full stop; "" if none or unknown.

    Args:
        evaluation: scores of the models "untrained" and "trained", and the numbers of "examples" and "classes".
    """
    rows = {name: evaluation.get(name) or {} for name in ("untrained", "trained")}
    counts = {name: row.get("not_finite") or 0 for name, row in rows.items() if row}
    worst = max(counts, key=lambda name: counts[name], default="")
    if not worst or not counts[worst]:
        return ""
    whose = "" if len(set(counts.values())) == 1 else f" from the {worst} model"
    left_out = "measures that are not finite are left out"
    if rows[worst].get("accuracy") is not None:
        left_out = "log loss and AUC are left out" if evaluation.get("classes") == 2 else "the log loss is left out"
    of = f" of {evaluation['examples']:,} test" if evaluation.get("examples") else " test"
    examples = "example" if of == " test" and counts[worst] == 1 else "examples"
    return f"{counts[worst]:,}{of} {examples} gave no finite output{whose}; {left_out}"


def diverged(private: Mapping[str, Column]) -> list[str]:
    """What speaks for a divergence in the last rounds; only rounds that drew somebody count: others have no loss."""
    units, losses = private.get("units", []), private.get("loss", [])
    broken = private.get("non_finite", [])
    drawn = [i for i, number in enumerate(units) if number][-_LAST:]
    reasons = []
    if drawn and losses and all(losses[i] is None for i in drawn):
        rounds = "round" if len(drawn) == 1 else f"{len(drawn)} rounds"
        reasons.append(f"the loss of the last {rounds} is not finite, so the training diverged")
    lost, whole = sum(broken[i] or 0 for i in drawn) if broken else 0, sum(units[i] or 0 for i in drawn)
    if drawn and 2 * lost >= whole:
        reasons.append(f"{lost:.0f} of the last {whole:.0f} contributions were not finite and counted as zero")
    return reasons


class Watch:
    """Tells while it happens of contributions that are not finite, once in a run, and of a divergence, once for all
    rounds in a row of which it is true."""

    def __init__(self) -> None:
        self._columns: dict[str, list[float | None]] = {"units": [], "loss": [], "non_finite": []}
        self._told = self._told_of_zeros = False

    def add(self, row: Mapping[str, Any]) -> str:
        """Take in a row of the metrics; one line where there is something new to tell, otherwise ""."""
        for name, column in self._columns.items():
            column.append(row["not_private"].get(name))
            del column[: -2 * _LAST]
        reasons = diverged(self._columns) if len(self._columns["units"]) >= _LAST else []
        begins, self._told = bool(reasons) and not self._told, bool(reasons)
        broken, units = (row["not_private"].get(name) or 0 for name in ("non_finite", "units"))
        first, self._told_of_zeros = bool(broken) and not self._told_of_zeros, self._told_of_zeros or bool(broken)
        if begins:
            return (
                f"round {row['round']}: {', and '.join(reasons)}; each further round costs privacy and teaches "
                "nothing: stop, and start a new run with lower learning rates"
            )
        if first:
            return (
                f"round {row['round']}: {broken} of {units} contributions were not finite and counted as zero; look "
                "for NaN and infinite numbers in the records, or lower the learning rates (metrics.jsonl has "
                "non_finite of every round, this is told once)"
            )
        return ""


def columns(history: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """The private figures of rows of the metrics."""
    rows = [row["not_private"] for row in history if "not_private" in row]
    return {name: [row.get(name) for row in rows] for name in ("units", "loss", "non_finite")}


def _chance(evaluation: Mapping[str, Any]) -> list[str]:
    score, classes = evaluation.get("trained"), evaluation.get("classes")
    if score is None:
        return []
    area, accuracy = score.get("auc"), score.get("accuracy")
    if area is not None and area <= 0.505:  # half of a percent above chance is still none
        return [f"the area under its ROC curve is {area:.3g}, and guessing gives 0.5"]
    if accuracy is not None and classes and accuracy <= 1 / classes:
        return [f"its accuracy is {accuracy:.3g}, and guessing among {classes} gives {1 / classes:.3g}"]
    for name in EXPLAINED:
        explained = score.get(name)
        if explained is not None and explained <= 0:
            return [f"its {NUMBERS[name]} is {explained:.3g}, and a constant gives 0"]
    return []


def _no_gain(evaluation: Mapping[str, Any]) -> str:
    for name, words, better in _BEFORE_AND_AFTER:
        before, after = ((evaluation.get(model) or {}).get(name) for model in ("untrained", "trained"))
        if before is not None and after is not None:
            if better * after > better * before:
                return ""
            told = f"{words} {before:.4g} before and {after:.4g} after"
            return f"The training brought nothing on the test data: {told}."
    return ""
