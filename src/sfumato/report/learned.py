"""Whether a run learned anything, from what was measured: the first thing to say where it did not.

Guarantees no false praise: silence means that nothing speaks against the run, not that it is good. Losses and counts
of contributions were computed from private records without noise, measurements from the test data; the caller says
which of the two may be told.
"""

from sfumato.report.numbers import near
from sfumato.report.record import Evaluation, Metrics, RunRecord

_LAST = 3
"""Rounds at the end of a run that have to have finite losses and contributions."""


def trouble(run: RunRecord, *, private: bool = True, measured: bool = True) -> str:
    """Why the model is of no use, in a sentence or two; "" where nothing speaks against it.

    Args:
        run: what ran.
        private: whether the losses and the counts of the rounds may be told.
        measured: whether the measurements on test data may be told.
    """
    reasons = _diverged(run.metrics) if private and run.metrics else []
    reasons += _chance(run.evaluation) if measured and run.evaluation else []
    if reasons:
        return f"The model learned nothing: {', and '.join(reasons)}."
    return _no_gain(run.evaluation) if measured and run.evaluation else ""


def _diverged(metrics: Metrics) -> list[str]:
    """Only rounds that drew somebody count: an empty cohort has no loss."""
    units, losses = metrics.private.get("units", []), metrics.private.get("loss", [])
    broken = metrics.private.get("non_finite", [])
    drawn = [i for i, number in enumerate(units) if number][-_LAST:]
    reasons = []
    if drawn and losses and all(losses[i] is None for i in drawn):
        rounds = "round" if len(drawn) == 1 else f"{len(drawn)} rounds"
        reasons.append(f"the loss of the last {rounds} is not finite, so the training diverged")
    lost, whole = sum(broken[i] or 0 for i in drawn) if broken else 0, sum(units[i] or 0 for i in drawn)
    if drawn and 2 * lost >= whole:
        reasons.append(f"{lost:.0f} of the last {whole:.0f} contributions were not finite and counted as zero")
    return reasons


def _chance(evaluation: Evaluation) -> list[str]:
    score, classes = evaluation.trained, evaluation.about.get("classes")
    if score is None:
        return []
    if score.auc is not None and score.auc <= 0.505:  # half of a percent above chance is still none
        return [f"the area under its ROC curve is {near(score.auc, 3)}, and guessing gives 0.5"]
    if score.accuracy is not None and classes and score.accuracy <= 1 / classes:
        return [f"its accuracy is {near(score.accuracy, 3)}, and guessing among {classes} gives {near(1 / classes, 3)}"]
    return []


def _no_gain(evaluation: Evaluation) -> str:
    for name, words in (("accuracy", "accuracy"), ("auc", "area under the ROC curve")):
        before, after = (getattr(score, name, None) for score in (evaluation.untrained, evaluation.trained))
        if before is not None and after is not None:
            if after > before:
                return ""
            told = f"{words} {near(before, 3)} before and {near(after, 3)} after"
            return f"The training brought nothing on the test data: {told}."
    return ""
