"""What `question.decide` does, on secret counts: only the answers are opened.

The noisy counts, their differences and the highest count stay secret, and so does whether a query reaches the threshold
behind the last one that is answered. A comparison's result is secret, too, unless it is an answer.
"""

from typing import Any

import numpy as np

from sfumato.voting.question import NOT_ANSWERED, Answers, Question
from sfumato.voting.tally.multi_party.engine import Engine

_AT_ONCE = 4096
"""Comparisons at once: a step of a tallier must not keep it from telling the others that it is there."""


async def open_answers(
    engine: Engine, question: Question, sums: np.ndarray, noise: np.ndarray, threshold_noise: np.ndarray | None
) -> Answers:
    """The answers, the same at all talliers.

    Args:
        engine: of this tallier; `begin` was called.
        question: what is asked.
        sums: its share of the counts, object [queries × classes].
        noise: its own noise, int64 [queries, classes].
        threshold_noise: its own noise, int64 [queries], where there is a threshold.
    """
    shape = (question.queries, question.classes)
    counts = engine.shared(sums, shape)
    noisy = counts + engine.sum_of_all(noise)
    everything = np.ones(question.queries, dtype=bool)
    if question.opens == "counts":
        return Answers(everything, None, await engine.opened(noisy))
    if question.opens == "attributes":
        parts = [noisy[part] < question.cut_units for part in _parts(*shape)]
        return Answers(everything, np.concatenate([await engine.opened(part) for part in parts]) == 0)
    if question.threshold is None:
        return Answers(everything, await _labels(engine, noisy))
    assert threshold_noise is not None
    assert question.max_answers is not None
    highest = [_winner(engine, counts[part])[0] for part in _parts(*shape)]
    reached = 1 - (_joined(engine, highest) + engine.sum_of_all(threshold_noise) < question.threshold_units)
    first = engine.mpc.np_cumsum(reached) < question.max_answers + 1
    answered = (await engine.opened(reached * first)).astype(bool)
    labels = np.full(question.queries, NOT_ANSWERED, np.int64)
    if answered.any():
        labels[answered] = await _labels(engine, noisy[np.flatnonzero(answered)])
    return Answers(answered, labels)


async def _labels(engine: Engine, noisy: Any) -> np.ndarray:
    found = []
    for part in _parts(*noisy.shape):
        winner = _winner(engine, noisy[part], labels=True)[1]
        found.append(await engine.opened(winner))
    return np.concatenate(found)


def _winner(engine: Engine, counts: Any, *, labels: bool = False) -> tuple[Any, Any]:
    """The highest count of each query and, if asked for, its class; of equal ones the lowest class wins.

    A tournament in which the lower classes stand left, and right wins only if it is higher.
    """
    queries, classes = counts.shape
    rows = [counts]
    if labels:
        rows.append(engine.shared(np.tile(np.arange(classes).astype(object), queries), (queries, classes)))
    while classes > 1:
        left, right = slice(0, classes - 1, 2), slice(1, classes, 2)
        wins = rows[0][:, left] < rows[0][:, right]
        winners = [row[:, left] + wins * (row[:, right] - row[:, left]) for row in rows]
        if classes % 2:
            winners = [engine.mpc.np_hstack((won, row[:, -1:])) for won, row in zip(winners, rows)]
        rows, classes = winners, -(-classes // 2)
    return rows[0][:, 0], rows[-1][:, 0]


def _joined(engine: Engine, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else engine.mpc.np_concatenate(tuple(parts))


def _parts(queries: int, classes: int) -> list[slice]:
    step = max(1, _AT_ONCE // classes)
    return [slice(first, min(first + step, queries)) for first in range(0, queries, step)]
