"""Whether a run learned anything, for its page: what `sfumato.training.told.learned` says of the files of the run."""

from typing import Any

from sfumato.report.evaluation import Evaluation, Score
from sfumato.report.record import RunRecord
from sfumato.training.told.learned import not_finite
from sfumato.training.told.learned import trouble as trouble_of


def trouble(run: RunRecord, *, private: bool = True, measured: bool = True) -> str:
    """Why the model is of no use, in a sentence or two; "" where nothing speaks against it.

    Args:
        run: what ran.
        private: whether the losses and the counts of the rounds may be told.
        measured: whether the measurements on test data may be told.
    """
    return trouble_of(
        run.metrics.private if private and run.metrics else None, _evaluation(run.evaluation) if measured else None
    )


def unmeasured(run: RunRecord) -> str:
    """Which test examples gave nothing to measure, a sentence; "" if all did."""
    told = not_finite(_evaluation(run.evaluation) or {})
    return f"{told}." if told else ""


def _evaluation(found: Evaluation | None) -> dict[str, Any] | None:
    """As the run wrote it."""
    if found is None:
        return None
    scores = {"untrained": found.untrained, "trained": found.trained}
    return {**found.about, **{name: _flat(score) for name, score in scores.items() if score}}


def _flat(score: Score) -> dict[str, Any]:
    """As the run wrote it: measures of numbers stand beside the others."""
    return {**vars(score), **score.numbers}
