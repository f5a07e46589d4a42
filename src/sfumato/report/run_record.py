"""A run's folder as a report needs it: read whole, checked, never changed.

Guarantees that what is shown is what the files say: a missing or damaged file is refused by name, the ledger's
chain is verified line by line, and its events are accounted again to check the statement.
"""

import base64
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from sfumato._check import InputError
from sfumato._files import parse_json, read_json
from sfumato._types import Adjacency, RecordUnit
from sfumato.accounting import Event, Guarantee, guarantee
from sfumato.algorithms import ALGORITHMS, TRAINED
from sfumato.ledger import Ledger
from sfumato.ledger import ledger as binding
from sfumato.metrics.regression import FIRST, NUMBERS
from sfumato.models.weights import read_metadata
from sfumato.report.numbers import finite, near
from sfumato.statement import Statement
from sfumato.statement.verdict import Verdict, promised
from sfumato.training import monitoring
from sfumato.training.monitoring import MONITORED
from sfumato.training.plan import current

T = TypeVar("T")

_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError)  # of reading what no run writes
_ALL = "all"


@dataclass(frozen=True)
class Group:
    """People with about as many records each.

    Attributes:
        records: how many, as "10 to 29".
        users: how many people, or None.
        measures: by name; those that are finite.
    """

    records: str
    users: int | None
    measures: dict[str, float]


@dataclass(frozen=True)
class Picture:
    """A picture of the test data.

    Attributes:
        label: its class.
        png: in base64.
        same: whether it shows the class that was asked for.
        nearest: of one that was asked for: those with the most similar embeddings, nearest first.
    """

    label: str
    png: str
    same: bool = True
    nearest: tuple["Picture", ...] = ()


@dataclass(frozen=True)
class Score:
    """One model on the test data.

    Attributes:
        recall: false accept rate (as text) → recall.
        auc: area under the ROC curve, or None.
        fpr, tpr: the curve, possibly empty.
        accuracy, log_loss: of a classifier, or None.
        numbers: measure of `metrics.shown` → value, of a model of numbers; those that are finite.
        not_finite: test examples that gave no finite output.
        by_records: by how many records people have, for models with a part of their own.
        nearest: pictures that were asked for, with those nearest to them.
        nearest_right: of the nearest ones of many pictures, the share that shows the same class; None if unknown.
        baselines: trivial predictor → its measures, and the model's gain in each, see `sfumato.metrics.baselines`.
        standard_error: of measures of which it is known.
        error_units: identities or examples that these rest on; None if unknown.
        likely_cause: what probably kept the model from learning, a sentence; "" if nothing did, or none is known.
    """

    recall: dict[str, float]
    auc: float | None
    fpr: list[float]
    tpr: list[float]
    accuracy: float | None = None
    log_loss: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    not_finite: int = 0
    by_records: tuple[Group, ...] = ()
    nearest: tuple[Picture, ...] = ()
    baselines: dict[str, dict[str, Any]] = field(default_factory=dict)
    standard_error: dict[str, float] = field(default_factory=dict)
    likely_cause: str = ""
    nearest_right: float | None = None
    error_units: int | None = None


@dataclass(frozen=True)
class AttackFound:
    """What an attack on synthetic records found.

    Attributes:
        name: of the attack and of its measure.
        found, ideal: (value, lower end, upper end) with the synthetic records, and where nothing can have leaked.
        above: whether one of its measures is above its ideal.
    """

    name: str
    found: tuple[float, float, float]
    ideal: tuple[float, float, float]
    above: bool


@dataclass(frozen=True)
class Evaluation:
    """evaluation.json.

    Attributes:
        about: counts of images, users, classes and pairs, those that are known.
        untrained, trained: None if not measured.
        participants: the trained model on people who took part, which is private; None if not measured.
        stages: the models of the first, second, … stage, of a run that has some.
        attacks: on the records that the run made, the first measure of each.
    """

    about: dict[str, int]
    untrained: Score | None
    trained: Score | None
    participants: Score | None = None
    stages: tuple[Score, ...] = ()
    attacks: tuple[AttackFound, ...] = ()


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


@dataclass(frozen=True)
class LedgerCheck:
    """What the ledger says.

    Attributes:
        entries: lines of the ledger; their chain of hashes is whole.
        head: hash of the last entry, "" for an empty ledger.
        rounds: rounds recorded; those that ran, where one entry stands for the whole run and there are metrics.
        event: all that was released.
        epsilon: what it costs at the statement's δ, accounted anew; None if that is unknown.
        cost: the guarantee that follows from it, or from the statement alone where it is unknown.
        bound: whether statement and ledger name each other, so that lines that are missing at the end would show.
        whole: whether one entry stands for all rounds, as where they share noise.
    """

    entries: int
    head: str
    rounds: int
    event: Event
    epsilon: float | None
    cost: Guarantee
    bound: bool
    whole: bool


@dataclass(frozen=True)
class RunRecord:
    """One run.

    Attributes:
        path: its folder.
        plan: the fields of plan.json without "plan" and "about".
        plan_name: "fedemb", "fedavg" …
        about: what plan.json says of the data and the model.
        statement: what was promised.
        ledger: what was released.
        metrics: None if there is no metrics.jsonl, as in a released bundle.
        evaluation: None if there was no test data.
    """

    path: Path
    plan: dict[str, Any]
    plan_name: str
    about: dict[str, Any]
    statement: Statement
    ledger: LedgerCheck
    metrics: Metrics | None
    evaluation: Evaluation | None

    @property
    def rounds_planned(self) -> int:
        """Rounds or steps that the plan has as a number; else those that the ledger counts."""
        stages = len(self.plan.get("stages") or ())
        return int(self.plan.get("rounds") or self.plan.get("steps") or stages or self.ledger.rounds)

    @property
    def counted(self) -> str:
        """What a run is made of, several: rounds, steps, stages, or the queries of a vote."""
        return next((name for name in ("queries", "steps", "stages") if name in self.plan), "rounds")

    @property
    def makes_records(self) -> bool:
        """Whether it learned to make health records, in stages that have steps of their own and no rounds."""
        return self.statement.unit in get_args(RecordUnit)

    @cached_property
    def finished(self) -> bool:
        """Whether all that was planned has run; what makes records is written when it has."""
        if self.makes_records:
            model = self.path / "model.safetensors"
            return not model.exists() or bool(read_metadata(model))
        return self.ledger.rounds >= self.rounds_planned

    @property
    def seeded(self) -> bool:
        """Whether its randomness can be repeated, which is for simulation only."""
        return self.plan.get("seed") is not None or self.statement.seeded

    @cached_property
    def verdict(self) -> Verdict:
        """What an attacker gains, by the ledger; the statement is held against it."""
        statement = self.statement
        if self.seeded and not statement.seeded:  # plan.json knows the seed that the statement keeps silent about
            statement = replace(statement, noise_source="seeded: simulation only")
        return statement.verdict(self.ledger.event)

    @property
    def covered(self) -> bool:
        """Whether noise that no one can repeat stands between the records and what was released."""
        return self.guaranteed and not self.seeded

    @property
    def guaranteed(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.statement.epsilon)


def read_run(path: Path | str) -> RunRecord:
    """Read the folder of a run.

    Raises:
        InputError: it is not the folder of a run, the run has not ended, or a file is damaged; names the file.
    """
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path} is not the folder of a run; give the folder that a run wrote (--out)")
    if not (path / "plan.json").exists():
        raise InputError(f"{path} holds no plan.json: it is not the folder of a run")
    if not (path / "statement.json").exists():
        if _closed(path / "checkpoint"):
            raise InputError(f"{path} was closed before its end: it has no model and no statement to report")
        raise InputError(f"{path} holds no statement.json: the run has not ended; resume it, or wait for it")
    plan = _load(path / "plan.json", _plan)
    if plan.get("plan") in TRAINED:
        plan = current(plan, ALGORITHMS[plan["plan"]].load())
    statement = _load(path / "statement.json", Statement.from_json)
    about = plan.pop("about", None) or {}
    measured = path / "evaluation.json"
    metrics = _metrics(path / "metrics.jsonl") if (path / "metrics.jsonl").exists() else None
    ledger = _ledger(path / "ledger.jsonl", statement)
    if ledger.whole and metrics is not None and metrics.rounds:
        ledger = replace(ledger, rounds=min(ledger.rounds, metrics.rounds[-1]))  # it was written before the first one
    return RunRecord(
        path=path,
        plan_name=str(plan.pop("plan", "unknown")),
        plan={name: value for name, value in plan.items() if name != "format"},
        about=about if isinstance(about, dict) else {"about": about},
        statement=statement,
        ledger=ledger,
        metrics=metrics,
        evaluation=_load(measured, _evaluation) if measured.exists() else None,
    )


def _load(path: Path, build: Callable[[Any], T]) -> T:
    try:
        return build(read_json(path))
    except InputError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged ({_reason(error):.500}); take a whole copy") from None


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _plan(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("it holds no fields")
    rounds = value.get("rounds", value.get("steps", 1))
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"rounds is {rounds!r}")
    if not isinstance(value.get("plan", ""), str):
        raise TypeError(f"plan is {value['plan']!r:.80}, no name")
    return value


def _ledger(path: Path, statement: Statement) -> LedgerCheck:
    if not path.exists():
        raise InputError(f"{path.parent} holds no ledger.jsonl, so nothing backs its statement; take a whole copy")
    totals = Ledger.read(path)
    bound = binding.compare(totals, statement, path.parent)
    adjacency = cast(Adjacency, statement.adjacency)  # the statement has checked it
    try:
        cost = guarantee(totals.event(), adjacency)
        epsilon = cost.epsilon(statement.delta) if statement.delta < 1 else None
    except InputError:
        cost, epsilon = promised(statement.epsilon, statement.delta, adjacency), None
    whole = "rounds" in totals.last
    rounds = next(
        (totals.last[name] for name in ("rounds", "round", "stage", "queries") if name in totals.last), totals.releases
    )
    if not isinstance(rounds, int):
        raise InputError(f"{path}, the round of its last release is not a number ({rounds!r:.80}); take a whole copy")
    head = totals.head if totals.entries else ""
    return LedgerCheck(totals.entries, head, rounds, totals.event(), epsilon, cost, bound, whole)


def _closed(folder: Path) -> bool:
    """Whether a checkpoint says that its run was ended before all of it was released."""
    from sfumato.runs import checkpoint  # late: it needs torch, and a run that ended is read without

    try:
        return checkpoint.load(folder).closed
    except InputError:
        return False


def _metrics(path: Path) -> Metrics:
    metrics = Metrics()
    for line, row in enumerate(_lines(path), start=1):
        try:
            metrics.add(row)
        except _DAMAGE as error:
            raise InputError(f"{path}, line {line} is damaged ({_reason(error):.500}); take a whole copy") from None
    return metrics


def _lines(path: Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield parse_json(line)
            except ValueError as error:
                raise InputError(f"{path}, line {number} is damaged ({error!s:.500}); take a whole copy") from None


def _evaluation(value: Any) -> Evaluation:
    """What evaluation.json holds.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: it is not what a run writes.
    """
    measured = next((name for name in ("images", "records", "values", "tokens") if value.get(name) is not None), "")
    names = (measured or "examples", "users", "classes", "genuine_pairs", "impostor_pairs")
    about = {name: int(value[name]) for name in names if value.get(name) is not None}
    untrained, trained, participants = (
        _score(value[name]) if name in value else None for name in ("untrained", "trained", MONITORED)
    )
    stages = takewhile(value.__contains__, (f"stage {number}" for number in count(1)))
    attacks = tuple(map(_attack, value.get("synthetic", {}).get("attacks", ())))
    return Evaluation(about, untrained, trained, participants, tuple(_score(value[name]) for name in stages), attacks)


def _attack(value: Any) -> AttackFound:
    measure = value["measures"][0]
    found, ideal = (
        (float(measure[side]["value"]), float(measure[side]["low"]), float(measure[side]["high"]))
        for side in ("found", "ideal")
    )
    return AttackFound(f"{value['name']}: {measure['name']}", found, ideal, bool(value["above"]))


def _score(value: Any) -> Score:
    curve = value.get("roc") or {"fpr": [], "tpr": []}
    fpr, tpr = [float(x) for x in curve["fpr"]], [float(y) for y in curve["tpr"]]
    if len(fpr) != len(tpr):
        raise ValueError(f"the ROC curve has {len(fpr)} rates of one kind and {len(tpr)} of the other")
    recall = {f"{float(far):g}": float(share) for far, share in value.get("recall_at_far", {}).items()}
    numbers = {name: number for name in NUMBERS if (number := finite(value.get(name))) is not None}
    if not (recall or numbers or {"accuracy", "not_finite", "values"}.intersection(value)):
        raise KeyError("recall_at_far, no accuracy and no other measure")
    area, accuracy, log_loss = (finite(value.get(name)) for name in ("auc", "accuracy", "log_loss"))
    groups = tuple(map(_group, value.get("by_records") or ()))
    nearest = tuple(map(_picture, value.get("nearest") or ()))
    lost = int(value.get("not_finite") or 0)
    baselines = {str(name): _baseline(row) for name, row in (value.get("baselines") or {}).items()}
    errors = {str(name): float(error) for name, error in (value.get("standard_error") or {}).items()}
    cause = str(value.get("likely_cause") or "")
    right = finite(value.get("nearest_right"))
    units = None if value.get("error_units") is None else int(value["error_units"])
    return Score(
        recall,
        area,
        fpr,
        tpr,
        accuracy,
        log_loss,
        numbers,
        lost,
        groups,
        nearest,
        baselines,
        errors,
        cause,
        right,
        units,
    )


def _baseline(value: Any) -> dict[str, Any]:
    recall = {str(far): float(share) for far, share in value.get("recall_at_far", {}).items()}
    measures: dict[str, Any] = {
        str(name): finite(number) for name, number in value.items() if name not in ("gain", "recall_at_far")
    }
    measures |= {"recall_at_far": recall} if recall else {}
    gain = {str(name): [float(end) for end in ends] for name, ends in value["gain"].items()}
    if any(len(ends) != 3 for ends in gain.values()):
        raise ValueError("a gain has no three numbers")
    return {**measures, "gain": gain}


def _picture(value: Any) -> Picture:
    png = str(value["picture"])
    base64.b64decode(png, validate=True)  # refuses what is none
    same = bool(value.get("same", True))
    return Picture(str(value["label"]), png, same, tuple(map(_picture, value.get("nearest") or ())))


def _group(value: Any) -> Group:
    measures = {name: number for name in (*NUMBERS, "accuracy") if (number := finite(value.get(name))) is not None}
    return Group(str(value["records"]), int(value["users"]), measures)


def trouble(run: RunRecord, *, private: bool = True, measured: bool = True) -> str:
    """Why the model is of no use, in a sentence or two; "" where nothing speaks against it.

    Args:
        run: what ran.
        private: whether the losses and the counts of the rounds may be shown.
        measured: whether the measurements on test data may be shown.
    """
    return monitoring.trouble(
        run.metrics.private if private and run.metrics else None, _as_written(run.evaluation) if measured else None
    )


def unmeasured(run: RunRecord) -> str:
    """Which test examples gave nothing to measure, a sentence; "" if all did."""
    lost = monitoring.not_finite(_as_written(run.evaluation) or {})
    return f"{lost}." if lost else ""


def _as_written(found: Evaluation | None) -> dict[str, Any] | None:
    """As the run wrote it."""
    if found is None:
        return None
    scores = {"untrained": found.untrained, "trained": found.trained}
    rows = {
        name: {**vars(score), **score.numbers, "recall_at_far": score.recall} for name, score in scores.items() if score
    }
    return {**found.about, **rows}


@dataclass(frozen=True)
class ByRecords:
    """How well a model serves people by how many records they have, as a table.

    Attributes:
        header: names of columns.
        rows: the cells of each.
        private: whether people who took part are in it.
    """

    header: list[str]
    rows: list[list[str]]
    private: bool


def by_records(run: RunRecord, *, private: bool) -> ByRecords | None:
    """The table of a run whose model has a part of each person's own; None for others.

    Args:
        run: what ran.
        private: whether those who took part may be shown.
    """
    trained = run.evaluation.trained if run.evaluation else None
    if run.evaluation is None or trained is None or not trained.by_records:
        return None
    participants = run.evaluation.participants if private else None
    measure = next((name for name in (*FIRST, "accuracy") if name in trained.by_records[-1].measures), None)
    if measure is None:
        return None
    columns = [("never trained on", _groups(trained, measure))]
    if participants is not None:
        columns.append(("who took part (not private)", _groups(participants, measure)))
    named = NUMBERS.get(measure, measure)
    header = ["records of a person"]
    for who, _ in columns:
        header += [f"people {who}", named]
    ranges = list(dict.fromkeys(each for _, groups in columns for each in groups if each != _ALL))
    ranges.sort(key=lambda text: int(text.split()[0]))
    return ByRecords(header, [_row(each, columns, measure) for each in (*ranges, _ALL)], participants is not None)


def _groups(score: Score, measure: str) -> dict[str, Group]:
    every = {**score.numbers, **({} if score.accuracy is None else {"accuracy": score.accuracy})}
    found = {group.records: group for group in score.by_records}
    if measure in every:
        found[_ALL] = Group(_ALL, sum(group.users or 0 for group in score.by_records), every)  # whom it was measured on
    return found


def _row(records: str, columns: list[tuple[str, dict[str, Group]]], measure: str) -> list[str]:
    cells = [records]
    for _, groups in columns:
        group = groups.get(records)
        users = group.users if group else None
        value = group.measures.get(measure) if group else None
        cells += ["–" if users is None else f"{users:,}", "–" if value is None else near(value, 4)]
    return cells


@dataclass(frozen=True)
class NearestImages:
    """Pictures whose embeddings are nearest to each other, before and after training: copies of test pictures.

    Attributes:
        rows: for each picture that was asked for, itself and those nearest to it by each model; same order as `models`.
        models: "untrained", "trained".
        right: of each model, the share of the nearest ones that show the class that was asked for, over many pictures:
            "54.2 %"; in files without it "7 of 30 shown".
    """

    rows: list[tuple[Picture, list[tuple[Picture, ...]]]]
    models: list[str]
    right: list[str]


def nearest_images(run: RunRecord) -> NearestImages | None:
    """What there is of a run; None where its test data are no pictures."""
    found = run.evaluation
    scores = [("untrained", found.untrained), ("trained", found.trained)] if found else []
    shown: list[tuple[str, Score]] = [(name, score) for name, score in scores if score and score.nearest]
    if not shown:
        return None
    asked = shown[0][1].nearest
    shown = [(name, score) for name, score in shown if [p.png for p in score.nearest] == [p.png for p in asked]]
    rows = [(picture, [score.nearest[i].nearest for _, score in shown]) for i, picture in enumerate(asked)]
    return NearestImages(rows, [name for name, _ in shown], [_right(score) for _, score in shown])


def _right(score: Score) -> str:
    if score.nearest_right is not None:
        return f"{100 * score.nearest_right:.1f} %"
    same = [picture.same for asked in score.nearest for picture in asked.nearest]
    return f"{sum(same)} of {len(same)} shown"
