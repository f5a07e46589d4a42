"""The charts of a page, of one run or of several laid over each other.

Each function gives None where there is nothing to draw.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.metrics.regression import FIRST, NUMBERS
from sfumato.report.charts import Axis, Series, line_chart, swatch
from sfumato.report.numbers import near
from sfumato.report.run_record import Metrics, RunRecord, Score
from sfumato.statement.verdict import FPR

_STRETCHES = 200
_LEAST_FPR = 1e-4
_MOST_SPREAD = 1e3  # of positive values, above which only a logarithmic axis shows them all


@dataclass(frozen=True)
class Figure:
    """A chart with its legend.

    Attributes:
        title: what it shows.
        svg: the chart.
        legend: (swatch as SVG, name) of each line; empty for a single line.
        note: a sentence below, or "".
    """

    title: str
    svg: str
    legend: list[tuple[str, str]]
    note: str = ""


@dataclass(frozen=True)
class Named:
    """A run with its name on the page and its colour."""

    name: str
    run: RunRecord
    colour: int


def epsilon_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """ε against rounds, as it was known while the run went on."""
    lines = []
    for each in runs:
        metrics = each.run.metrics
        if metrics and any(value is not None for value in metrics.epsilon):
            label = each.name if len(runs) > 1 else "running bound"
            lines.append(Series(label, metrics.rounds, metrics.epsilon, each.colour, each.colour))
        if metrics and each.run.guaranteed and len(runs) == 1:
            end = [each.run.ledger.rounds]
            lines.append(Series("this statement", end, [each.run.statement.epsilon], 1, 0, dots=True))
    if not any(len(line.x) > 1 for line in lines):
        return None
    return _figure(
        name,
        "ε against rounds",
        Axis("rounds", low=0),
        Axis("ε", low=0),
        lines,
        note="The running bound is by Rényi accounting. The statement uses the tightest valid accountant.",
        several=len(runs) > 1,
    )


def found_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """What an attacker can find, by the trade-off curve of each run."""
    rates = np.geomspace(_LEAST_FPR, 1.0, 61)
    lines = [
        Series(each.name, rates.tolist(), each.run.ledger.cost.tpr(rates).tolist(), each.colour, each.colour)
        for each in runs
        if each.run.guaranteed
    ]
    if not lines:
        return None
    lines.append(Series("guessing", rates.tolist(), rates.tolist(), 6, 2))
    return _figure(
        name,
        "What a test finds at most, by the trade-off curve",
        Axis("share of outsiders it suspects (log)", log=True, low=_LEAST_FPR, high=1.0),
        Axis("share of members it finds (log)", log=True, low=_LEAST_FPR, high=1.0),
        lines,
        marks=[FPR],
        note="Vertical line: 1 %, which the verdict is taken at.",
    )


def clip_norm_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """The clip norm, where it moved. It follows a noisy count, so it is covered where the model is."""
    lines = [
        Series(each.name, each.run.metrics.rounds, each.run.metrics.clip_norm, each.colour, each.colour)
        for each in runs
        if each.run.metrics and each.run.covered and _clip_norm_changes(each.run.metrics)
    ]
    title = "The clip norm, from noisy counts"
    return _figure(name, title, Axis("rounds", low=0), Axis("clip norm", low=0), lines) if lines else None


def recall_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """Recall against rounds: on validation data during the run, on test data before and after it."""
    fars = common_fars([each.run for each in runs])
    if not fars:
        return None
    alone = len(runs) == 1
    # The rates of one run, or one rate of all runs: never both, or lines could not be distinguished.
    chosen = fars if alone else fars[:1]
    lines = []
    for each in runs:
        for number, far in enumerate(chosen):
            hue = number if alone else each.colour
            who = f"FAR {float(far):g}" if alone else each.name
            if each.run.metrics and far in each.run.metrics.measured:
                rounds, recall = each.run.metrics.measured[far]
                label = f"{who}, validation" if alone else who
                lines.append(Series(label, rounds, recall, hue, hue, dots=len(rounds) < 40))
            tested = _tested(each.run, far)
            if tested:
                label = f"{who}, test" if alone else "" if lines and lines[-1].label == who else who
                lines.append(Series(label, *tested, hue, hue, loose=True))
    if not lines:
        return None
    at = "" if alone and len(chosen) > 1 else f" at FAR {float(chosen[0]):g}"
    hollow = any(line.loose for line in lines) and not alone
    note = "Lines: validation data. Hollow points: test data, before and after the run." if hollow else ""
    return _figure(name, f"Recall{at} against rounds", _ROUNDS, Axis("recall", low=0), lines, note=note)


def accuracy_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """Accuracy of classifiers against rounds: on validation data during the run, on test data before and after it."""
    lines = _measured(runs, lambda metrics: metrics.accuracy, lambda score: score.accuracy)
    if not lines:
        return None
    axis = _counted(runs)
    return _figure(name, f"Accuracy against {axis.label}", axis, Axis("accuracy", low=0, high=1), lines)


def error_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """The error of models of numbers against rounds, in the first measure that a run has."""
    for measure in FIRST:
        lines = _measured(
            runs,
            lambda metrics, measure=measure: metrics.errors.get(measure, ([], [])),
            lambda score, measure=measure: score.numbers.get(measure),
        )
        if lines:
            axis = _counted(runs)
            return _figure(name, f"{NUMBERS[measure]} against {axis.label}", axis, Axis(NUMBERS[measure]), lines)
    return None


def _measured(
    runs: Sequence[Named],
    watched: Callable[[Metrics], tuple[list[int], list[float]]],
    tested: Callable[[Score], float | None],
) -> list[Series]:
    """A measure of each run: on validation data during it, on test data before and after it."""
    lines = []
    for each in runs:
        metrics, evaluation = each.run.metrics, each.run.evaluation
        rounds, watched_values = watched(metrics) if metrics else ([], [])
        if rounds:
            label = f"{each.name}, validation" if len(runs) == 1 else each.name
            lines.append(Series(label, rounds, watched_values, each.colour, each.colour, dots=len(rounds) < 40))
        if evaluation and each.run.counted != "queries":  # a student is trained after the queries, not by them
            ends = ((0, evaluation.untrained), (each.run.ledger.rounds, evaluation.trained))
            between = tuple(enumerate(evaluation.stages[:-1], start=1))  # the last one's model is the trained one
            tests = (*ends[:1], *between, *ends[1:])
            points = [(at, value) for at, score in tests if score and (value := tested(score)) is not None]
            if points:
                label = f"{each.name}, test" if len(runs) == 1 or not lines else ""
                at, values = [at for at, _ in points], [value for _, value in points]
                lines.append(Series(label, at, values, each.colour, each.colour, loose=True))
    return lines


def _counted(runs: Sequence[Named]) -> Axis:
    """The axis of stages where all runs have some, else that of rounds."""
    return Axis("stages", low=0) if all(each.run.counted == "stages" for each in runs) else _ROUNDS


_ROUNDS = Axis("rounds", low=0)


def roc_figure(name: str, runs: Sequence[Named]) -> Figure | None:
    """The ROC on a log axis, untrained dashed and trained solid."""
    lines, smallest = [], 1.0
    alone = len(runs) == 1
    for each in runs:
        evaluation = each.run.evaluation
        for which, dash in (("untrained", 1), ("trained", 0)):
            score: Score | None = getattr(evaluation, which, None)
            if score and score.fpr and (alone or which == "trained" or not lines):
                label = which if alone else f"untrained ({each.name})" if which == "untrained" else each.name
                colour = (1 if which == "untrained" else 0) if alone else 6 if which == "untrained" else each.colour
                if which == "trained" and not alone:
                    dash = each.colour
                lines.append(Series(label, score.fpr, score.tpr, colour, dash))
                smallest = min([smallest, *(rate for rate in score.fpr if rate > 0)])
    if not lines:
        return None
    fars = [float(far) for far in common_fars([each.run for each in runs])]
    # Two decades below the rates of interest there is little to see, whatever the number of pairs.
    smallest = max(smallest, min(fars, default=1e-5) / 100)
    lines = [_from(line, smallest) for line in lines]
    steps = [smallest ** (1 - i / 60) for i in range(61)]
    lines.insert(0, Series("chance", steps, steps, 6, 2))
    marks = [far for far in fars if far >= smallest]
    note = "Vertical lines: the false accept rates that recall is reported at." if marks else ""
    return _figure(
        name,
        "ROC on a log axis",
        Axis("false accept rate (log)", log=True, low=smallest, high=1.0),
        Axis("true accept rate", low=0, high=1),
        lines,
        note=note,
        marks=marks,
    )


def private_figures(name: str, runs: Sequence[Named]) -> list[Figure]:
    """Loss and clipping: computed from private records without noise, so never to be published."""
    wanted = [
        ("loss", "Loss", "mean local loss", {}),
        ("clipped", "Clipped contributions", "share of contributions", {"low": 0.0, "high": 1.0}),
        ("norm_mean", "Norm before clipping", "mean L2 norm", {"low": 0.0}),
        ("clip_norm", "Clip norm", "clip norm", {"low": 0.0}),
    ]
    figures = []
    for column, title, label, limits in wanted:
        lines, longest = [], 1
        for each in runs:
            values = _private_column(each.run, column)
            if each.run.metrics and any(value is not None for value in values):
                rounds, means, stretch = _averaged(each.run.metrics, values)
                longest = max(longest, stretch)
                lines.append(Series(each.name, rounds, means, each.colour, each.colour))
        if lines:
            if _spread(lines) > _MOST_SPREAD and "high" not in limits:
                label, limits = f"{label} (log)", {"log": True}
            note = f"Each point is the mean of {longest} rounds." if longest > 1 else ""
            figure = _figure(
                f"{name}-{column}",
                f"{title} (not private)",
                _ROUNDS,
                Axis(label, **limits),
                lines,
                note=note,
                several=len(runs) > 1,
            )
            figures.append(figure)
    return figures


def common_fars(runs: Sequence[RunRecord]) -> list[str]:
    """False accept rates that all runs which measured anything have, smallest first."""
    kinds = [kind for kind in map(_fars, runs) if kind]
    return sorted(set.intersection(*kinds), key=float) if kinds else []


def _fars(run: RunRecord) -> set[str]:
    scores = [run.evaluation.untrained, run.evaluation.trained] if run.evaluation else []
    found = {far for score in scores if score for far in score.recall}
    return found | set(run.metrics.measured if run.metrics else ())


def _from(line: Series, low: float) -> Series:
    """The part of a line at and above a place on the x axis."""
    kept = [i for i, x in enumerate(line.x) if x >= low]
    return replace(line, x=[line.x[i] for i in kept], y=[line.y[i] for i in kept])


def _spread(lines: Sequence[Series]) -> float:
    """The largest positive value over the smallest one: losses of a run that diverged span many decades."""
    values = [value for line in lines for value in line.y if value is not None and value > 0]
    return max(values) / min(values) if values else 1.0


def _clip_norm_changes(metrics: Metrics) -> bool:
    return len({value for value in metrics.clip_norm if value is not None}) > 1


def _private_column(run: RunRecord, name: str) -> Sequence[float | None]:
    """A private figure by round; the clip norm is one where its counts had no noise."""
    if run.metrics is None:
        return []
    if name == "clip_norm":
        return [] if run.covered or not _clip_norm_changes(run.metrics) else run.metrics.clip_norm
    if name == "clipped" and all(bound is None for bound in run.metrics.clip_norm):
        return []  # nothing was to be clipped
    return run.metrics.private.get(name, [])


def _tested(run: RunRecord, far: str) -> tuple[list[int], list[float]] | None:
    if run.evaluation is None:
        return None
    ends = ((0, run.evaluation.untrained), (run.ledger.rounds, run.evaluation.trained))
    points = [(at, score.recall[far]) for at, score in ends if score and far in score.recall]
    return ([at for at, _ in points], [recall for _, recall in points]) if points else None


def _averaged(metrics: Metrics, values: Sequence[float | None]) -> tuple[list[int], list[float | None], int]:
    """Means over stretches of rounds, for figures that jump from round to round."""
    stretch = math.ceil(len(values) / _STRETCHES) or 1
    rounds: list[int] = []
    means: list[float | None] = []
    for start in range(0, len(values), stretch):
        known = [value for value in values[start : start + stretch] if value is not None]
        rounds.append(metrics.rounds[min(start + stretch, len(values)) - 1])
        means.append(sum(known) / len(known) if known else None)
    return rounds, means, stretch


def _figure(
    name: str,
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    lines: list[Series],
    *,
    note: str = "",
    marks: Sequence[float] = (),
    several: bool = False,
) -> Figure:
    svg = line_chart(name, title, x_axis, y_axis, lines, marks=marks)
    named = [line for line in lines if line.label]
    legend = [(swatch(line), line.label) for line in named] if several or len(lines) > 1 else []
    return Figure(title, svg, legend, note)


def recall_text(score: Score | None, far: str) -> str:
    """Three digits; a dash where the recall at this false accept rate was not measured."""
    return "–" if score is None or far not in score.recall else near(score.recall[far], 3)
