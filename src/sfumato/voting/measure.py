"""How good the answers and the student are, on public examples with labels.

Nothing here is private: the answers are released, the student follows from them, and pool and test are public.
"""

from typing import Any

import numpy as np
from torch import nn

from sfumato.data import ExampleDataset
from sfumato.metrics.attributes import f1
from sfumato.training.scores import measure
from sfumato.voting.question import Answers

__all__ = ["measure", "measured"]


def measured(
    answers: Answers,
    pool: ExampleDataset,
    queries: np.ndarray,
    student: nn.Module | None,
    untrained: nn.Module | None,
    test: ExampleDataset | None,
    *,
    device: str,
) -> dict[str, Any]:
    """Rows for evaluation.json: "answers", and of the student "untrained" and "trained".

    Args:
        answers: what was opened.
        pool: its targets are the truth that answers are compared with, where it has some.
        queries: int64 [queries], positions in it.
        student: as it was trained.
        untrained: as it began.
        test: to measure both on; None for no row of theirs.
        device: where to compute.
    """
    found: dict[str, Any] = {"answers": _of_answers(answers, pool, queries)}
    if test is not None and test.targets is not None:
        for name, model in (("untrained", untrained), ("trained", student)):
            if model is not None:
                found[name] = measure(model, test, device=device)
    return found


def _of_answers(answers: Answers, pool: ExampleDataset, queries: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {"queries": len(queries), "answered": int(answers.answered.sum())}
    if pool.targets is None or not answers.answered.any():
        return row
    truth = np.asarray(pool.targets)[queries]
    if truth.ndim == 2:
        if answers.labels is not None:
            row["micro_f1"] = f1(truth > 0, answers.labels)[0]
        return row
    found = answers.labels if answers.labels is not None else answers.counts.argmax(axis=1)  # pyright: ignore[reportOptionalMemberAccess]
    row["accuracy"] = float((found == truth)[answers.answered].mean())
    return row
