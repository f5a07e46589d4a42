"""One self-contained HTML page about one run or several: no scripts, no requests, readable on paper.

The page of a run that has private figures says so at the top and next to each of them. A public page holds only what
the statement covers: plan, statement, ledger and what follows from them. Measurements on validation and test data are
on it only if the caller says that those records are public: nothing in a run states that.

A run is a list of sections, each with an anchor, a title and a body. What they hold is decided here; how it is marked
up, by the macros of `templates/run.html`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sfumato import __version__
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.algorithms import ALGORITHMS, TRAINED
from sfumato.metrics.regression import FIRST, NUMBERS
from sfumato.report import numbers, words
from sfumato.report.charts import Series, palette, swatch
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
from sfumato.report.run_record import (
    RunRecord,
    Score,
    by_records,
    nearest_images,
    read_run,
    trouble,
    unmeasured,
)
from sfumato.runs.checkpoint import KEY
from sfumato.statement.statement import Block, brief
from sfumato.statement.verdict import scale_in_words
from sfumato.synthesis.history import without_figures

_FEW_PAIRS = 10  # a recall that rests on fewer impostor pairs jumps with each of them
_ADDED = {"lora_rank": "adapters (LoRA) of rank", "projection": "a projection to"}
_SEVERAL = {"example": "examples", "label": "labels"}
_PATHS = ("data", "agents", "events", "physionet2012", "mimic_iv")
"""What a command may keep of where its records are."""

_ARGUMENTS = {
    "users": "model, users",
    "examples": "model, examples",
    "agents": "agents, pool, model, student=student",
    "labels": "model, examples",
    "ehr": "records",
    "silos": "model, silos, public=public",
}
"""The arguments of a plan's `fit`, by its kind of records."""


@dataclass(frozen=True)
class Section:
    """A part of a run on the page.

    Attributes:
        anchor: end of its anchor.
        title: in the contents.
        heading: above it.
        body: its HTML; None leaves the section out.
        kind: its class in the style sheet, or "".
    """

    anchor: str
    title: str
    heading: str
    body: str | None
    kind: str = ""


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
    measured = public_evaluation or not public
    if public:
        records = [replace(run, statement=without_figures(run.statement)) for run in records]
    runs = [Named(name, run, i) for i, (name, run) in enumerate(zip(_names(records), records, strict=True))]
    several = len(runs) > 1
    level = 2 if several else 1
    parts = [
        _sections(each.name, each.run, f"r{i}", level + 2, private=not public, measured=measured)
        for i, each in enumerate(runs)
    ]
    return fill(
        "page.html",
        articles=[
            _part(
                "article",
                run=each.run,
                name=each.name,
                title=plan_title(each.run),
                at=f"r{i}",
                level=level,
                headline=words.headline(each.run.statement),
                trouble=trouble(each.run, private=not public, measured=measured),
                result=result(each.run) if measured else None,
                measured=measured,
                sections=sections,
            )
            for i, (each, sections) in enumerate(zip(runs, parts, strict=True))
        ],
        title=f"{len(runs)} runs compared" if several else f"{runs[0].name}: {plan_title(runs[0].run)}",
        public=public,
        show_evaluation=measured,
        has_evaluation=any(_measured(run) for run in records),
        has_private=any(s.body is not None for part in parts for s in part if s.kind == "private"),
        comparison=_comparison(runs, private=not public, measured=measured) if several else None,
        caution=_caution(records) if several else "",
        charts=_charts("all", runs, measured=measured) if several else [],
        private_charts=private_figures("all", runs) if several and not public else [],
    )


def summary(run: Path | str, page: Path | str | None = None) -> list[str]:
    """A run in at most eight lines, nine if it was stopped: the verdict of its page, and where the whole text is.

    Args:
        run: the folder of a run.
        page: its page, if there is one, to be named with statement.json.

    Raises:
        InputError: it is not the folder of a run, the run has not ended, or a file is damaged; names the file.
    """
    record = read_run(run)
    where = ", ".join(str(path) for path in (record.path / "statement.json", page) if path)
    return brief(record.statement, record.ledger.event, stopped=_stopped(record), trouble=trouble(record), where=where)


def _stopped(record: RunRecord) -> str:
    """How far a run came that was stopped, and what became of its key; "" for one that is finished."""
    if record.finished:
        return ""
    said = f"Stopped after {record.ledger.rounds:,} of {record.rounds_planned:,} {record.counted}"
    if record.makes_records:
        said = "Stopped before it could make records"
    if (record.path / "checkpoint" / KEY).exists():
        return f"{said}; its key is still in checkpoint/, and sfumato close deletes it."
    return f"{said}."


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


def _shown(blocks: Iterable[Block]) -> list[Block]:
    return [block for block in blocks if not block.empty]


def _sections(name: str, run: RunRecord, at: str, below: int, *, private: bool, measured: bool) -> list[Section]:
    """What the page shows of a run; `below` is the level of headings within a section."""
    alone = [Named("this run", run, 0)]
    statement, blocks = run.statement, run.statement.blocks(run.ledger.event)
    return [
        Section(
            "promise",
            "The promise",
            "What would be promised" if run.seeded and run.guaranteed else "What is promised",
            _part(
                "promise",
                run=run,
                below=below,
                paragraphs=words.promise(run),
                found=words.found(run),
                charts=_drawn(found_figure(f"{at}-found", alone)),
                meaning=words.meaning(run),
                began=_began(run),
            ),
        ),
        Section(
            "statement",
            "The statement",
            "The statement",
            _part("statement", below=below, blocks=_shown(blocks[:-1])),
        ),
        Section("reached", "What it reached", "What it reached", _reached(run, at, below, private, measured)),
        Section(
            "questions",
            "Questions of a disclosure",
            "Questions of a disclosure",
            _part("questions", unanswered=words.unanswered(statement), answers=words.disclosure(statement)),
        ),
        Section("cost", "Round by round", "What it cost, round by round", _cost(at, alone)),
        Section(
            "private",
            "Not private",
            "Not private: do not publish",
            _private(run, at, alone) if private else None,
            "private",
        ),
        Section("ledger", "The ledger", "The ledger", _part("ledger", run=run)),
        Section(
            "conventions",
            "Other conventions",
            "The same run under other conventions",
            _part(
                "conventions",
                paper=words.papers_convention(statement),
                lines=blocks[-1].lines,
                rows=statement.conventions(),
            )
            if run.guaranteed and statement.alternatives
            else None,
            "second",
        ),
        Section(
            "reproduce",
            "How to reproduce",
            "How to reproduce",
            _part(
                "reproduce",
                run=run,
                below=below,
                reproduction=_reproduction(run, name),
                statement=json.dumps(statement.to_json(), indent=2, sort_keys=True, ensure_ascii=False),
            ),
        ),
    ]


def _reached(run: RunRecord, at: str, below: int, private: bool, measured: bool) -> str:
    """What was measured on validation and test data; that it is left out, where it may not be shown."""
    if not measured:
        return _part("left_out")
    alone = [Named("this run", run, 0)]
    figures = (
        accuracy_figure(f"{at}-accuracy", alone),
        error_figure(f"{at}-error", alone),
        recall_figure(f"{at}-recall", alone),
        roc_figure(f"{at}-roc", alone),
    )
    return _part(
        "reached",
        run=run,
        below=below,
        attacks=_attacks(run),
        scores=_scores(run),
        evaluated=_evaluated(run),
        unmeasured=unmeasured(run),
        by_records=by_records(run, private=private),
        nearest_images=nearest_images(run),
        charts=_drawn(*figures),
    )


def _cost(at: str, alone: Sequence[Named]) -> str | None:
    """What the rounds cost, and the clip norm; None where there is nothing to draw."""
    charts = _drawn(epsilon_figure(f"{at}-epsilon", alone), clip_norm_figure(f"{at}-clip", alone))
    return _part("figures", charts=charts) if charts else None


def _private(run: RunRecord, at: str, alone: Sequence[Named]) -> str | None:
    """What was computed without noise; None where nothing was kept."""
    charts, facts = private_figures(at, alone), _private_facts(run)
    return _part("private", charts=charts, facts=facts) if charts or facts else None


def _drawn(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure]


def _names(records: Sequence[RunRecord]) -> list[str]:
    """The folders' names, with as much of the path in front as distinguishes them."""
    paths = [record.path.resolve() for record in records]
    depth, deepest = 1, max(len(path.parts) for path in paths)
    while depth < deepest and len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]).replace("//", "/") for path in paths]


def _measured(run: RunRecord) -> bool:
    return run.evaluation is not None or bool(
        run.metrics and (run.metrics.measured or run.metrics.accuracy[0] or run.metrics.errors)
    )


def plan_title(run: RunRecord) -> str:
    """The method, with DP in front where there is a guarantee."""
    if run.plan_name not in ALGORITHMS:
        return run.plan_name
    title = ALGORITHMS[run.plan_name].title
    return f"DP-{title}" if run.guaranteed and "DP" not in title else title


def result(run: RunRecord) -> tuple[str, str] | None:
    """(what was measured on test data, before and after); None where nothing was."""
    if run.evaluation is None:
        return None
    if attacks := run.evaluation.attacks:
        return "Attacks above their ideal", f"{sum(attack.above for attack in attacks)} of {len(attacks)}"
    before, after = run.evaluation.untrained, run.evaluation.trained
    fars = sorted({far for score in (before, after) if score for far in score.recall}, key=float)
    scores = (before, after)
    if first := next((name for name in FIRST if any(score and name in score.numbers for score in scores)), None):
        name, values = measure_title(first), [score.numbers.get(first) if score else None for score in scores]
    elif any(score and score.accuracy is not None for score in scores):
        name, values = "Accuracy", [score.accuracy if score else None for score in scores]
    elif fars:
        name, values = (
            f"Recall at FAR {float(fars[0]):g}",
            [score.recall.get(fars[0]) if score else None for score in scores],
        )
    else:
        return None
    return name, " → ".join("–" if value is None else numbers.near(value, 3) for value in values)


def measure_title(name: str) -> str:
    """A measure of `sfumato.metrics.regression` at the beginning of a line."""
    return NUMBERS[name][:1].upper() + NUMBERS[name][1:]


def _began(run: RunRecord) -> list[tuple[str, str]]:
    """(what, value) pairs of the model, of what it began with that no guarantee covers, and of what was trained."""
    about = run.about
    pairs: list[tuple[str, str]] = []
    if isinstance(model := about.get("model"), str):
        more = [f"{what} {about[name]}" for name, what in _ADDED.items() if about.get(name) is not None]
        pairs.append(("Model", ", ".join([model, *more])))
    if weights := about.get("weights") or about.get("pretrained"):
        pairs.append(("First weights", f"{_file(weights)}; those whose records they come from are not covered"))
    trained = run.plan.get("trainable")
    if isinstance(trained, str) and trained != "all":
        pairs.append(("What was trained", f"{trained}; the rest stayed as it was, and is part of the model"))
    if about.get("negatives"):
        pairs.append(("Public negatives", f"{_file(about['negatives'])}: not covered"))
    return pairs


def _file(path: Any) -> str:
    """A path by its last name: a page says nothing of somebody's folders here."""
    return str(path).replace("\\", "/").rstrip("/").rpartition("/")[2]


def _scores(run: RunRecord) -> list[tuple[str, str, str, str, str]]:
    """Rows of (measure, untrained, trained, what baselines reach, remark)."""
    if run.evaluation is None:
        return []
    untrained, trained = run.evaluation.untrained, run.evaluation.trained
    baselines = trained.baselines if trained else {}

    def trivial(measure: str) -> str:
        """What the baselines reach."""
        found = {name: row.get(measure) for name, row in baselines.items()}
        return ", ".join(f"{name} {numbers.near(each, 4)}" for name, each in found.items() if each is not None)

    fars = sorted({far for score in (untrained, trained) if score for far in score.recall}, key=float)
    impostors = run.evaluation.about.get("impostor_pairs")
    rows = []
    for what, name in (("accuracy", "accuracy"), ("log loss", "log_loss")):
        values = [getattr(score, name, None) for score in (untrained, trained)]
        if any(value is not None for value in values):
            shown = [numbers.near(value, 4) if value is not None else "–" for value in values]
            rows.append((what, shown[0], shown[1], trivial(name), ""))
    for name, what in NUMBERS.items():
        values = [score.numbers.get(name) if score else None for score in (untrained, trained)]
        if any(value is not None for value in values):
            shown = [numbers.near(value, 4) if value is not None else "–" for value in values]
            rows.append((what, shown[0], shown[1], trivial(name), ""))
    for far in fars:
        pairs = float(far) * impostors if impostors else _FEW_PAIRS
        remark = f"rests on about {pairs:.0f} impostor pairs: uncertain" if pairs < _FEW_PAIRS else ""
        shown = [recall_text(score, far) for score in (untrained, trained)]
        rows.append((f"recall at FAR {float(far):g}", *shown, "", remark))
    if any(score and score.auc is not None for score in (untrained, trained)):
        area = [numbers.near(s.auc, 3) if s and s.auc is not None else "–" for s in (untrained, trained)]
        rows.append(("area under the ROC curve", area[0], area[1], trivial("auc"), ""))
    return rows


def _evaluated(run: RunRecord) -> list[tuple[str, str]]:
    if run.evaluation is None:
        return []
    return [(name.replace("_", " "), numbers.count(number)) for name, number in run.evaluation.about.items()]


def _attacks(run: RunRecord) -> list[tuple[str, str, str, str]]:
    """Rows of (attack, found, ideal, remark)."""

    def written(value: float, low: float, high: float) -> str:
        ends = [numbers.near(each, 3) for each in (value, low, high)]
        return ends[0] if low == high else f"{ends[0]} ({ends[1]} to {ends[2]})"

    return [
        (attack.name, written(*attack.found), written(*attack.ideal), "above the ideal" if attack.above else "")
        for attack in (run.evaluation.attacks if run.evaluation else ())
    ]


def _private_facts(run: RunRecord) -> list[tuple[str, str]]:
    """Sums over the run of figures that reveal who took part."""
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
    shown = {title: [_ends(each.run, value) for each in runs] for title, value in _COMPARED.items() if measured}
    columns = {title: column for title, column in shown.items() if any(cell != "–" for cell in column)}
    recall += columns
    header = ["Run", "Method", "Protection", "ε", "for", "δ", *recall, "Noise", "Rounds", "In the data"]
    rows = []
    for i, each in enumerate(runs):
        run, statement = each.run, each.run.statement
        cells = [
            plan_title(run),
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
        flags += ["no better than a baseline"] if trouble(run, private=private, measured=measured) else []
        rows.append({"name": each.name, "anchor": f"r{i}", "swatch": key, "cells": cells, "flags": flags})
    return {"header": header, "rows": rows}


def _noise(run: RunRecord) -> str:
    """Its noise multiplier; of a vote the noise on a count, in votes."""
    if run.plan.get("noise_std"):
        return f"{numbers.near(run.plan['noise_std'], 3)} votes"
    noise = run.plan.get("noise")
    multiplier = noise.get("noise_multiplier") if isinstance(noise, dict) else run.plan.get("noise_multiplier")
    if multiplier:
        return numbers.near(multiplier, 3)
    return "in the labels" if run.statement.unit == "label" else "none"


def _whom(run: RunRecord) -> str:
    if not run.guaranteed:
        return "none"
    return "none: simulation only" if run.seeded else words.unit_name(run.statement.unit)


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
    written = ["–" if value is None else numbers.near(value, 4) for value in ends]
    return "–" if written == ["–", "–"] else " → ".join(written)


_COMPARED: dict[str, Callable[[Score], float | None]] = {
    "Accuracy": lambda score: score.accuracy,
    **{measure_title(name): lambda score, name=name: score.numbers.get(name) for name in FIRST},
}
"""Columns of the comparison that some runs have next to recall."""


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


@dataclass(frozen=True)
class Reproduction:
    """What to type, and what to expect.

    Attributes:
        sentence: whether a repetition is equal.
        code: a command, or Python where the run was started from Python; "" for a plan of another kind.
        language: "shell" or "Python".
        fields: names and values of the plan.
        about: names and values of what the plan says of the data and the model.
        version: sfumato's version that ran, if it was kept.
    """

    sentence: str
    code: str
    language: str
    fields: list[tuple[str, str]]
    about: list[tuple[str, str]]
    version: str | None


def _reproduction(run: RunRecord, name: str) -> Reproduction:
    """For one run; `name` is that of its folder."""
    # The command line keeps the data's path under "about", which is all that --config needs to go on.
    by_command = any(run.about.get(name) for name in _PATHS)
    if run.plan_name not in ALGORITHMS:
        code = ""
    elif by_command:
        code = (
            f"sfumato {ALGORITHMS[run.plan_name].words} --config {_quoted(name)}/plan.json --out {_quoted(name)}-again"
        )
    else:
        code = _python(run, name)
    if run.seeded:
        sentence = "Seeded, for simulation only: the same data, plan and version give the same bytes."
    elif run.guaranteed:
        sentence = (
            "Not seeded: a repetition draws other people and other noise. It makes the same promise and reaches "
            "similar figures, not the same ones. On the same records it costs as much again."
        )
    else:
        sentence = "Not seeded: a repetition draws other samples, and reaches similar figures, not the same ones."
    if code:
        sentence += f" What is below runs in the folder that holds {name}."
    version = run.about.get("version")
    return Reproduction(
        sentence=sentence,
        code=code,
        language="shell" if by_command else "Python",
        fields=_flat(run.plan),
        about=_flat(run.about),
        version=str(version) if version else None,
    )


def _python(run: RunRecord, name: str) -> str:
    algorithm = ALGORITHMS[run.plan_name]
    made = [f"plan = {algorithm.plan}.from_json(fields)"]
    if run.plan_name not in TRAINED:
        made = ['del fields["plan"], fields["about"]', f"plan = {algorithm.plan}(**fields)"]
    return "\n".join(
        [
            "import json",
            "from pathlib import Path",
            "",
            f"from {algorithm.package} import {algorithm.plan}",
            "",
            f"fields = json.loads(Path({name + '/plan.json'!r}).read_text())",
            *made,
            f"plan.fit({_ARGUMENTS[algorithm.records]}, out={name + '-again'!r})",
        ]
    )


def _flat(items: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Names with dots for what is nested."""
    rows: list[tuple[str, str]] = []
    for name, item in sorted(items.items()):
        if isinstance(item, dict):
            rows += _flat(item, f"{before}{name}.")
        else:
            rows.append((before + name, numbers.value(item)))
    return rows


def _quoted(name: str) -> str:
    return name if all(c.isalnum() or c in "-_./" for c in name) else "'" + name.replace("'", "'\\''") + "'"


def fill(template: str, **values: Any) -> str:
    """A page's HTML.

    Args:
        template: its file's name.
        values: what it shows, besides the globals of all pages.
    """
    return _environment().get_template(template).render(**values)


def _part(macro: str, **values: Any) -> str:
    """The HTML of a part of a page, by a macro of run.html."""
    return getattr(_environment().get_template("run.html").module, macro)(**values)


@cache
def _environment() -> Environment:
    """Templates, each compiled once in a process, and what all of them show."""
    loader = PackageLoader("sfumato.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_unbroken,
    )
    environment.filters["drawing"] = Markup  # charts escape their own text
    style = loader.get_source(environment, "style.css")[0]
    environment.globals |= {
        "style": Markup(f"{style}{palette()}"),
        "version": __version__,
        "scale": scale_in_words(),
        "count": numbers.count,
        "up": numbers.up,
    }
    return environment


def write_page(out: Path, text: str, *, private: bool) -> None:
    """Write a page, for its owner's eyes alone if it is private.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        write_atomic(out, text.encode(), private=private)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another place") from None


def refuse_folder(out: Path, name: str) -> None:
    """Refuse a folder where a page is to be written, before any work is done for it."""
    if out.is_dir():
        raise InputError(f"{out} is a folder; give a file name, {out / name} for example")


def _unbroken(item: Any) -> Any:
    """No line ends between a number and its percent sign."""
    return item.replace(" %", "\N{NO-BREAK SPACE}%") if isinstance(item, str) else item
