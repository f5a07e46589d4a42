"""`sfumato ads`: a log of impressions → a private model of clicks, sales or counts; and what its settings cost.

`train` is `sfumato dpsgd` with the defaults of such models. `evaluate` measures a model next to a constant. `generate`
makes logs whose truth is known. `sweep` is in `cli.ads_sweep`.

References:
    Denison et al.: Private Ad Modeling with DP-SGD. 2022, arXiv 2211.11896 (the tasks and the measures).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sfumato import runs
from sfumato._check import InputError, whole
from sfumato.cli.console import Answer, Table
from sfumato.cli.parse import CommonOptions
from sfumato.cli.run_options import (
    grouped,
    groups_of,
    training_options,
)

if TYPE_CHECKING:
    from torch import nn

    from sfumato.central import DPSGD
    from sfumato.data import ExampleDataset


# `sfumato ads train`: what is predicted, and who is protected, over the plan of `sfumato dpsgd`.


_TRAIN = "ads train"
USUAL: dict[str, Any] = {"model": "ctr", "tables": "deferred", "clipping": 10.0, "cohort": 1024, "epochs": 5}
"""Of click models: rare clicks have long gradients, so the norm is larger than elsewhere."""


@dataclass(frozen=True, kw_only=True)
class ClickOptions:
    """What is predicted, and who is protected.

    Attributes:
        predict: pctr (is it clicked) or pcvr (is something bought), by a column of two classes; or pconvs (how often),
            by a column of counts. With --schema criteo-attribution it also says which column that is.
        unit: who is protected: one row of the log (example), or a user with all rows.
        impressions: for --unit user: rows of a user that count in a step, at most. Choose this public number without a
            look at the users. Which ones count is drawn anew in each step.
    """

    predict: Literal["pctr", "pcvr", "pconvs"] | None = None
    unit: Literal["example", "user"] | None = None
    impressions: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ClickOptions):
    """What is predicted, who is protected, and which rows of tables there are.

    Attributes:
        frequent_rows: keep so many rows of all tables together: those that most examples (or users) read, by counts
            under noise. All other values of a column share a row. The cost is a part of the run's epsilon.
        frequent_rows_noise: noise multiplier of these counts; without it, they cost three tenths of --epsilon by
            themselves.
    """

    frequent_rows: int | None = None
    frequent_rows_noise: float | None = None


@functools.cache
def train_group() -> Any:
    """The class of all options of `sfumato ads train`."""
    does = "Train a model of clicks, sales or counts on a log of impressions (DP-SGD with deferred noise)."
    return grouped(does, ads=(TrainOptions, "What is predicted, and who is protected."), **groups_of("dpsgd"))


def train_options(argv: Sequence[str]) -> Any:
    """The options of `sfumato ads train`."""
    return as_plan(training_options("dpsgd", argv, command=_TRAIN, usual=USUAL), chosen_by=None)


def train(options: Any) -> Answer:
    """Train."""
    from sfumato.cli import ads_rows, training  # late: --help needs no torch

    if options.ads.frequent_rows is not None:
        ads_rows.refuse_with_rows(options)
        return training.train(options, command=_TRAIN, first=ads_rows.rows_first)
    if options.ads.frequent_rows_noise is not None:
        raise InputError("--frequent-rows-noise is for --frequent-rows; give that, too, or leave it out")
    return training.train(options, command=_TRAIN)


def as_plan(options: Any, *, chosen_by: frozenset[str] | None) -> Any:
    """The options with what is predicted and protected put into the plan and the data.

    Args:
        options: as they were read.
        chosen_by: names of the options that were given; None takes those that the run knows.
    """
    given, ads, plan, data = chosen_by or options.run.chosen, options.ads, options.plan, options.data
    if options.run.resume is not None and chosen_by is None:
        for name in ("predict", "unit", "impressions"):
            if name in given:
                raise InputError(f"a run goes on as it began; leave --{name} out, or start a new run")
        return options
    if ads.predict is not None:
        task = "counts" if ads.predict == "pconvs" else "classes"
        if "task" in given and plan.task != task:
            raise InputError(
                f"--predict {ads.predict} trains by --task {task}, got --task {plan.task}; give one of them"
            )
        plan = replace(plan, task=task)
        if ads.predict == "pcvr" and data.schema is not None:
            data = replace(data, schema=_of_conversions(data.schema))
    return replace(options, plan=_protecting(plan, ads, given), data=data)


def _protecting(plan: DPSGD, ads: ClickOptions, given: frozenset[str]) -> DPSGD:
    """The plan with its unit."""
    if "examples.per_user" in given and ads.impressions not in (None, plan.examples.per_user):
        raise InputError(
            f"--impressions {ads.impressions} and --examples.per-user {plan.examples.per_user} say the same; give one"
        )
    most = plan.examples.per_user if ads.impressions is None else ads.impressions
    if most is not None:
        whole(impressions=most)
    if ads.unit == "user" and most is None:
        raise InputError(
            "--unit user needs a public number of rows that count of each user in a step; give --impressions 5, for "
            "example, chosen without a look at the users"
        )
    if ads.unit == "example" and most is not None:
        raise InputError(f"--impressions {most} is for --unit user; give that, or leave --impressions out")
    return plan if most is None else replace(plan, examples=replace(plan.examples, per_user=most))


def _of_conversions(schema: Path) -> Path:
    """Criteo's log by what it calls a sale; another schema names its own label."""
    from sfumato.data.readers.criteo import CONVERSIONS  # late: readers need pyarrow

    word, colon, buckets = str(schema).partition(":")
    return Path(f"{CONVERSIONS}{colon}{buckets}") if word == "criteo-attribution" else schema


# `sfumato ads generate`: a log whose truth is known.


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(CommonOptions):
    """Write a log of impressions whose truth is known: values by Zipf's law, clicks or counts by a planted score.

    Memory does not grow with the rows. The same options give the same rows, and more rows leave the first ones as they
    are.

    Attributes:
        log: a new folder, a store that --data of sfumato ads train reads.
        rows: how many there are, >= 1.
        vocabularies: ids of each column, such as 1e6 500 20.
        numeric: standard normal numbers of a row.
        exponent: of Zipf's law, > 0: the larger, the more common are common values.
        strength: standard deviation of the score over rows, roughly.
        bias: score of a row whose weights are all 0: log odds of a click, or logarithm of a count.
        users: how many users there are; each has several rows. Without it rows stand alone.
        user_exponent: of the law by which rows belong to users.
        taste: standard deviation of what a user adds to the scores of all of their rows.
        counts: count conversions in the place of clicks.
        seed: public; everything follows from it.
    """

    log: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="LOG")]
    rows: int = 100_000
    vocabularies: tuple[int, ...] = (100_000, 1000, 20)
    numeric: int = 2
    exponent: float = 1.1
    strength: float = 1.0
    bias: float = -2.0
    users: int | None = None
    user_exponent: float = 1.0
    taste: float = 0.0
    counts: bool = False
    seed: int = 0


def generate(options: GenerateOptions) -> Answer:
    """Write the log."""
    from sfumato.data import ZipfClicks  # late: --help needs no pyarrow

    whole(rows=options.rows)
    names = {each.name for each in fields(ZipfClicks)} - {"vocabulary_sizes"}
    log = ZipfClicks(vocabulary_sizes=options.vocabularies, **{name: getattr(options, name) for name in names})
    data = log.examples(options.rows, store=options.log)
    users = None if data.owners is None else data.num_users
    facts = {"log": options.log, "rows": len(data), "users": users, "rows_of_tables": sum(options.vocabularies)}
    whose = "" if users is None else f" of {users:,} users"
    return Answer(facts, [f"{len(data):,} rows{whose}, {sum(options.vocabularies):,} rows of tables: {options.log}"])


# `sfumato ads evaluate`: the measures of papers on ads, next to a constant.


_OF_CLICKS = {"log_loss": "log loss", "auc_loss": "1 − AUC", "calibration": "predicted / true"}
_OF_COUNTS = {"deviance": "mean Poisson deviance", "explained": "deviance explained", "calibration": "predicted / true"}
_AT_ONCE = 4096  # rows


def measures_of(data: ExampleDataset) -> dict[str, str]:
    """Of each measure, the name; the first one is the loss."""
    return _OF_COUNTS if data.num_classes is None else _OF_CLICKS


def measured(model: nn.Module, data: ExampleDataset, *, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    """The measures of a model on some rows, and of the best constant for these rows. Not private.

    Args:
        model: gives two logits or one a row, or the logarithm of a rate.
        data: with two classes, or one count a row.
        device: where the model is.

    Raises:
        InputError: the targets are neither, or there are no rows.
    """
    from sfumato.central.tasks import predict
    from sfumato.metrics import ClassificationCounts, CountsSums

    if data.num_classes not in (None, 2) or data.targets is None:
        raise InputError(f"models of ads give two classes or a count, got {data}; use sfumato dpsgd for others")
    if data.num_classes is None:
        counts = CountsSums()
        for targets, outputs in predict(model, data, device=device):
            counts.add(outputs, targets)
        found = counts.report()
        constant = {"deviance": found.constant_deviance, "explained": 0.0, "calibration": 1.0}
        ratio = found.mean_rate / found.mean_count if found.mean_count else None
        row = {"deviance": found.deviance, "explained": found.explained, "calibration": ratio}
        return {**row, "not_finite": found.not_finite}, constant
    classes = ClassificationCounts(2, compare=True)
    for targets, outputs in predict(model, data, device=device):
        classes.add(outputs[:, :2], targets)
    report = classes.report()
    constant = next(iter(classes.baselines().values()))["log_loss"]
    row = {"log_loss": report.log_loss, "auc_loss": report.auc_loss, "calibration": report.calibration}
    return {**row, "not_finite": report.not_finite}, {"log_loss": constant, "auc_loss": 0.5, "calibration": 1.0}


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommonOptions):
    """Measure a trained model on rows that it was not trained on, next to the best constant.

    No guarantee covers the numbers: they are computed from the rows without noise. Publish them only where these rows
    may be published.

    Attributes:
        run: folder of a run of sfumato ads train (or dpsgd), or of a model of sfumato ads sweep.
        data: rows to measure on, read as the run read its own; without it, the test part of the run's records.
        schema: for --data, where it is not that of the run.
        device: cpu, cuda, or cuda:1.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    data: str | None = None
    schema: Path | None = None
    device: str = "cpu"


def evaluate(options: EvaluateOptions) -> Answer:
    """Measure."""
    from sfumato import models
    from sfumato.cli.ads_rows import as_read
    from sfumato.cli.models import built_again, check_device

    check_device(options.device)
    folder = runs.RunFolder(options.run)
    settings = folder.read_plan()
    if settings.get("plan") != "dpsgd" or "outputs" not in (settings.get("about") or {}):
        raise InputError(f"{options.run} is no run of sfumato ads train or dpsgd; give the folder of one")
    if not (folder.statement.exists() and folder.model.exists()):
        raise InputError(f"{options.run} has not ended; go on with: sfumato ads train --resume {options.run}")
    about = settings["about"]
    rows = _rows(options)
    _refuse_other_rows(rows, about, options.run)
    rows = as_read(rows, about, options.run)
    model = built_again({**about, "vocabulary_sizes": rows.vocabulary_sizes})
    models.load_weights(model, folder.model)
    found, constant = measured(model.to(options.device).eval(), rows, device=options.device)
    names = measures_of(rows)
    lines = [
        Table(
            ["", *names.values()],
            [[who, *map(cell, (row[key] for key in names))] for who, row in (("model", found), ("constant", constant))],
        ),
        f"\non {len(rows):,} rows; the constant is the best one for these rows",
        *([f"{found['not_finite']:,} rows gave no finite output"] if found["not_finite"] else []),
        "No guarantee covers these numbers.",
    ]
    return Answer({"run": options.run, "rows": len(rows), "model": found, "constant": constant}, lines)


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _rows(options: EvaluateOptions) -> ExampleDataset:
    """What is measured on."""
    from sfumato.cli.sources import read_example_parts, read_examples

    words = ["--resume", str(options.run)]
    if options.schema is not None:
        if options.data is None:
            raise InputError("--schema is for --data; give both, or leave it out")
        words += ["--schema", str(options.schema)]
    if options.data is not None:
        words += ["--data", options.data]
    reading = training_options("dpsgd", words)
    if options.data is not None:
        return read_examples(options.data, reading.data, classes=reading.plan.task == "classes")
    parts = read_example_parts(reading.data, classes=reading.plan.task == "classes", quiet=True)
    if parts.test is None:
        raise InputError(f"{options.run} kept no rows to test on; give --data")
    return parts.test


def _refuse_other_rows(rows: ExampleDataset, about: Mapping[str, Any], run: Path) -> None:
    """Refuse rows that the model does not read: its tables have other sizes."""
    for name, mine in (("input_shapes", rows.input_shapes), ("vocabulary_sizes", rows.vocabulary_sizes)):
        theirs = [list(each) if isinstance(each, list) else each for each in about[name]]
        found = [list(each) if isinstance(each, tuple) else each for each in mine]
        if found != theirs:
            raise InputError(
                f"the rows have {name.replace('_', ' ')} {found}, the model of {run} {theirs}; read them by the "
                "schema of the run"
            )
    if rows.num_classes != about["classes"]:
        raise InputError(
            f"the rows have {rows.num_classes or 'no'} classes, the model of {run} {about['classes'] or 'none'}; give "
            "rows with the same kind of target"
        )
