"""One self-contained HTML page about one run or several: no scripts, no requests, readable on paper.

The page of a run that has private figures says so at the top and beside each of them. A public page holds only what
the statement covers: plan, statement, ledger and what follows from them. Measurements on validation and test data are
on it only if somebody says that those records are public: nothing in a run can tell.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.metrics.shown import FIRST, NUMBERS
from sfumato.report import numbers, words
from sfumato.report.alike import Alike, alike
from sfumato.report.by_records import ByRecords, by_records
from sfumato.report.chart import Series, swatch
from sfumato.report.evaluation import Score
from sfumato.report.figures import (
    Figure,
    Named,
    accuracy_figure,
    clip_norm_figure,
    common_fars,
    epsilon_figure,
    error_figure,
    found_figure,
    private_figures,
    recall_figure,
    recall_text,
    roc_figure,
)
from sfumato.report.learned import trouble, unmeasured
from sfumato.report.record import RunRecord, read_run
from sfumato.report.reproduce import Reproduction, reproduction
from sfumato.report.template import fill, refuse_folder, write_page
from sfumato.synthesis.history import without_figures

_FEW_PAIRS = 10  # a recall that rests on fewer impostor pairs jumps with each of them


@dataclass(frozen=True)
class View:
    """What the template shows of one run. `None` and empty lists leave a part out."""

    name: str
    anchor: str
    run: RunRecord
    title: str
    trouble: str
    result: tuple[str, str] | None
    contents: list[tuple[str, str]]
    headline: words.Convention
    paper: words.Convention | None
    promise: list[str]
    meaning: list[tuple[str, str]]
    began: list[tuple[str, str]]
    found: list[tuple[str, str]]
    attack: list[Figure]
    not_covered: list[str]
    disclosure: list[tuple[str, str]]
    unanswered: str
    alternatives: tuple[list[str], list[list[str]]]
    cost: list[Figure]
    reached: list[Figure]
    recall: list[tuple[str, str, str, str]]
    by_records: ByRecords | None
    alike: Alike | None
    unmeasured: str
    attacks: list[tuple[str, str, str, str]]
    evaluated: list[tuple[str, str]]
    private: list[Figure]
    private_facts: list[tuple[str, str]]
    reproduction: Reproduction
    statement: str


def write_report(
    runs: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    public: bool = False,
    public_evaluation: bool = False,
) -> Path:
    """Write one page about a run, or about several side by side.

    Args:
        runs: folders of runs; several are compared first and then shown one by one.
        out: the file; None for report.html in the folder of the run, or comparison.html in that of the first of
            several, whose own page stays.
        public: leave out everything that was computed from private records without noise.
        public_evaluation: the validation and test data are public, so a public page may show what was measured on
            them.

    Returns:
        the file's path.

    Raises:
        InputError: a folder is not that of a finished or stopped run, a file in it is missing or damaged, or the page
            cannot be written there.
    """
    paths = [Path(run) for run in runs]
    if not paths:
        raise InputError("no run to report; give the folder of at least one")
    name = "report.html" if len(paths) == 1 else "comparison.html"
    out = paths[0] / name if out is None else Path(out)
    refuse_folder(out, name)
    records = [read_run(path) for path in paths]
    text = render(records, public=public, public_evaluation=public_evaluation)
    write_page(out, text, private=not public)
    return out


def render(records: Sequence[RunRecord], *, public: bool = False, public_evaluation: bool = False) -> str:
    """The page's HTML; arguments as for `write_report`."""
    show_evaluation = public_evaluation or not public
    if public:
        records = [replace(run, statement=without_figures(run.statement)) for run in records]
    runs = [Named(name, run, i) for i, (name, run) in enumerate(zip(_names(records), records, strict=True))]
    views = [_view(each, f"r{i}", private=not public, measured=show_evaluation) for i, each in enumerate(runs)]
    several = len(runs) > 1
    charts = _charts("all", runs, measured=show_evaluation) if several else []
    return fill(
        "page.html",
        scale=words.SCALE,
        views=views,
        title=f"{len(views)} runs compared" if several else f"{views[0].name}: {views[0].title}",
        public=public,
        show_evaluation=show_evaluation,
        has_evaluation=any(_measured(run) for run in records),
        has_private=any(view.private or view.private_facts for view in views),
        comparison=_comparison(runs, private=not public, measured=show_evaluation) if several else None,
        caution=_caution(records) if several else "",
        charts=charts,
        private_charts=private_figures("all", runs) if several and not public else [],
        up=numbers.up,
    )


def _charts(name: str, runs: Sequence[Named], *, measured: bool) -> list[Figure]:
    """All runs laid over each other."""
    charts = [found_figure(f"{name}-found", runs), epsilon_figure(f"{name}-epsilon", runs)]
    if measured:
        makers = (
            (accuracy_figure, "accuracy"),
            (error_figure, "error"),
            (recall_figure, "recall"),
            (roc_figure, "roc"),
        )
        charts = [*(make(f"{name}-{about}", runs) for make, about in makers), *charts]
    return [chart for chart in charts if chart]


def _view(named: Named, anchor: str, *, private: bool, measured: bool) -> View:
    run = named.run
    alone = [Named("this run", run, 0)]
    cost = [epsilon_figure(f"{anchor}-epsilon", alone), clip_norm_figure(f"{anchor}-clip", alone)]
    figures = (
        (
            accuracy_figure(f"{anchor}-accuracy", alone),
            error_figure(f"{anchor}-error", alone),
            recall_figure(f"{anchor}-recall", alone),
            roc_figure(f"{anchor}-roc", alone),
        )
        if measured
        else ()
    )
    reached = [figure for figure in figures if figure]
    attack = found_figure(f"{anchor}-found", alone)
    shown = private_figures(anchor, alone) if private else []
    facts = _private_facts(run) if private else []
    cost = [figure for figure in cost if figure]
    return View(
        name=named.name,
        anchor=anchor,
        run=run,
        title=words.plan_title(run),
        trouble=trouble(run, private=private, measured=measured),
        result=words.result(run) if measured else None,
        contents=_contents(run, cost=bool(cost), private=bool(shown or facts)),
        headline=words.headline(run.statement),
        paper=words.papers_convention(run.statement) if run.guaranteed else None,
        promise=words.promise(run),
        meaning=words.meaning(run),
        began=words.began(run),
        found=words.found(run),
        attack=[attack] if attack else [],
        not_covered=words.not_covered(run),
        disclosure=words.disclosure(run.statement),
        unanswered=words.unanswered(run.statement),
        alternatives=words.alternatives(run.statement),
        cost=cost,
        reached=reached,
        recall=_recall(run) if measured else [],
        by_records=by_records(run, private=private) if measured else None,
        alike=alike(run) if measured else None,
        unmeasured=unmeasured(run) if measured else "",
        attacks=_attacks(run) if measured else [],
        evaluated=_evaluated(run) if measured else [],
        private=shown,
        private_facts=facts,
        reproduction=reproduction(run, named.name),
        statement=json.dumps(run.statement.to_json(), indent=2, sort_keys=True, ensure_ascii=False),
    )


def _contents(run: RunRecord, *, cost: bool, private: bool) -> list[tuple[str, str]]:
    """(end of the anchor, title) of the sections that this run has, in their order."""
    several = run.guaranteed and bool(run.statement.alternatives)
    sections = [
        ("promise", "The promise", True),
        ("reached", "What it reached", True),
        ("not-covered", "What is not covered", True),
        ("rests", "What it rests on" if run.guaranteed else "Remarks", bool(run.statement.assumptions)),
        ("questions", "Questions of a disclosure", True),
        ("cost", "Round by round", cost),
        ("private", "Not private", private),
        ("ledger", "The ledger", True),
        ("conventions", "Other conventions", several),
        ("reproduce", "How to reproduce", True),
    ]
    return [(anchor, title) for anchor, title, there in sections if there]


def _names(records: Sequence[RunRecord]) -> list[str]:
    """The folders' names, with as much of the path in front as tells them apart."""
    paths = [record.path.resolve() for record in records]
    depth, deepest = 1, max(len(path.parts) for path in paths)
    while depth < deepest and len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]).replace("//", "/") for path in paths]


def _measured(run: RunRecord) -> bool:
    return run.evaluation is not None or bool(
        run.metrics and (run.metrics.measured or run.metrics.accuracy[0] or run.metrics.errors)
    )


def _recall(run: RunRecord) -> list[tuple[str, str, str, str]]:
    """Rows of (false accept rate, untrained, trained, remark)."""
    if run.evaluation is None:
        return []
    untrained, trained = run.evaluation.untrained, run.evaluation.trained
    fars = sorted({far for score in (untrained, trained) if score for far in score.recall}, key=float)
    impostors = run.evaluation.about.get("impostor_pairs")
    rows = []
    for what, name in (("accuracy", "accuracy"), ("log loss", "log_loss")):
        values = [getattr(score, name, None) for score in (untrained, trained)]
        if any(value is not None for value in values):
            told = [numbers.near(value, 4) if value is not None else "–" for value in values]
            rows.append((what, told[0], told[1], ""))
    for name, what in NUMBERS.items():
        values = [score.numbers.get(name) if score else None for score in (untrained, trained)]
        if any(value is not None for value in values):
            rows.append((what, *(numbers.near(value, 4) if value is not None else "–" for value in values), ""))
    for far in fars:
        behind = float(far) * impostors if impostors else _FEW_PAIRS
        remark = f"rests on about {behind:.0f} impostor pairs: uncertain" if behind < _FEW_PAIRS else ""
        rows.append((f"recall at FAR {float(far):g}", recall_text(untrained, far), recall_text(trained, far), remark))
    if any(score and score.auc is not None for score in (untrained, trained)):
        area = [numbers.near(s.auc, 3) if s and s.auc is not None else "–" for s in (untrained, trained)]
        rows.append(("area under the ROC curve", area[0], area[1], ""))
    return rows


def _evaluated(run: RunRecord) -> list[tuple[str, str]]:
    if run.evaluation is None:
        return []
    return [(name.replace("_", " "), numbers.count(number)) for name, number in run.evaluation.about.items()]


def _attacks(run: RunRecord) -> list[tuple[str, str, str, str]]:
    """Rows of (attack, found, ideal, remark)."""

    def told(value: float, low: float, high: float) -> str:
        ends = [numbers.near(each, 3) for each in (value, low, high)]
        return ends[0] if low == high else f"{ends[0]} ({ends[1]} to {ends[2]})"

    return [
        (attack.name, told(*attack.found), told(*attack.ideal), "above the ideal" if attack.above else "")
        for attack in (run.evaluation.attacks if run.evaluation else ())
    ]


def _private_facts(run: RunRecord) -> list[tuple[str, str]]:
    """Sums over the run of figures that tell who took part."""
    if run.metrics is None:
        return []
    columns = {
        name: known
        for name, values in run.metrics.private.items()
        if (known := [value for value in values if value is not None])
    }
    facts = []
    if "units" in columns:
        units = columns["units"]
        spread = f"{min(units):g} to {max(units):g}, mean {numbers.near(sum(units) / len(units), 3)}"
        facts.append(("contributions a round", spread))
    if "examples" in columns:
        facts.append(("examples processed", numbers.count(sum(columns["examples"]))))
    if "non_finite" in columns:
        facts.append(("contributions with NaN or infinity, counted as zero", numbers.count(sum(columns["non_finite"]))))
    if "seconds" in columns:
        seconds = sum(columns["seconds"])
        facts.append(("time in rounds", f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"))
    return facts


def _comparison(runs: Sequence[Named], *, private: bool, measured: bool) -> dict[str, Any]:
    """Header and rows of the table that comes first."""
    far = next(iter(common_fars([each.run for each in runs])), None) if measured else None
    recall = [f"Recall at FAR {float(far):g}"] if far else []
    told = {title: [_ends(each.run, value) for each in runs] for title, value in _COMPARED.items() if measured}
    columns = {title: column for title, column in told.items() if any(cell != "–" for cell in column)}
    recall += columns
    header = ["Run", "Method", "Protection", "ε", "for", "δ", *recall, "Noise", "Rounds", "In the data"]
    rows = []
    for i, each in enumerate(runs):
        run, statement = each.run, each.run.statement
        cells = [
            words.plan_title(run),
            run.verdict.word,
            numbers.up(statement.epsilon),
            _whom(run),
            numbers.up(statement.delta, 3) if run.guaranteed else "–",
            *([_before_and_after(run, far)] if far else []),
            *(column[i] for column in columns.values()),
            _noise(run),
            f"{run.ledger.rounds:,}" + ("" if run.finished else f" of {run.rounds_planned:,}"),
            _population(run),
        ]
        key = swatch(Series(each.name, [0, 1], [0, 1], each.colour, each.colour))
        flags = [] if run.finished else ["stopped early"]
        flags += ["the ledger costs more"] if run.verdict.contradicted else []
        flags += ["δ too large"] if run.verdict.delta_too_large else []
        flags += ["learned nothing"] if trouble(run, private=private, measured=measured) else []
        rows.append({"name": each.name, "anchor": f"r{i}", "swatch": key, "cells": cells, "flags": flags})
    return {"header": header, "rows": rows}


def _noise(run: RunRecord) -> str:
    """Its noise multiplier; of a vote the noise on a count, in votes."""
    if run.plan.get("noise_std"):
        return f"{numbers.near(run.plan['noise_std'], 3)} votes"
    if run.plan.get("noise_multiplier"):
        return numbers.near(run.plan["noise_multiplier"], 3)
    return "in the labels" if run.statement.unit == "label" else "none"


def _whom(run: RunRecord) -> str:
    if not run.guaranteed:
        return "nobody"
    return "nobody: simulation only" if run.seeded else words.unit_name(run.statement.unit)


_SEVERAL = {"example": "examples", "label": "labels"}


def _population(run: RunRecord) -> str:
    if not run.statement.population:
        return "–"
    return f"{numbers.count(run.statement.population)} {_SEVERAL.get(run.statement.unit, 'users')}"


def _before_and_after(run: RunRecord, far: str) -> str:
    score = run.evaluation
    if score is None:
        return "–"
    return f"{recall_text(score.untrained, far)} → {recall_text(score.trained, far)}"


def _ends(run: RunRecord, measure: Callable[[Score], float | None]) -> str:
    """A measure on test data, before → after."""
    if run.evaluation is None:
        return "–"
    ends = [measure(score) if score else None for score in (run.evaluation.untrained, run.evaluation.trained)]
    told = ["–" if value is None else numbers.near(value, 4) for value in ends]
    return "–" if told == ["–", "–"] else " → ".join(told)


_COMPARED: dict[str, Callable[[Score], float | None]] = {
    "Accuracy": lambda score: score.accuracy,
    **{words.measure_title(name): lambda score, name=name: score.numbers.get(name) for name in FIRST},
}
"""Columns of the comparison that some runs have beside recall."""


def _caution(records: Sequence[RunRecord]) -> str:
    """What to mind when runs are compared."""
    private = [run.statement for run in records if run.guaranteed]
    said = []
    if len({(s.unit, s.adjacency) for s in private}) > 1:
        said.append("These statements are for different units or neighbours, so their ε cannot be compared.")
    elif len({s.delta for s in private}) > 1:
        said.append("These statements have different δ, so their ε are not quite comparable.")
    if len(private) > 1:
        said.append("Where these runs used the same records and more than one is released, their costs add up.")
    return " ".join(said)
