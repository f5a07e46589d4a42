"""`sfumato labeldp`: tables with randomised labels, and models of the labels' noisy reports."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from sfumato import runs
from sfumato._check import InputError
from sfumato._parts import plan
from sfumato.algorithms import ALGORITHMS
from sfumato.cli.console import STOPPED, Answer, bar, notify, staged_bar
from sfumato.cli.models import (
    ClassifierOptions,
    about_classifier,
    build_classifier,
    check_device,
    public_features,
    with_usual_model,
)
from sfumato.cli.parse import CommonOptions
from sfumato.cli.results import dry_run, measured
from sfumato.cli.run_options import FolderOptions, about_run, free_folder, grouped, start_line, use_threads
from sfumato.cli.sources import ExampleParts, RatedDataOptions, read_example_parts
from sfumato.labels import LabelSettings

if TYPE_CHECKING:
    from sfumato.central import Classification, Counts, Regression
    from sfumato.data import ExampleDataset


# Options of plans whose labels are randomised before anything is trained, and what they train on.


_AT_ONCE = 256  # examples whose features are computed together


@dataclass(frozen=True, kw_only=True)
class LabelRun(FolderOptions):
    """The run.

    Attributes:
        dry_run: print the plan and its statement; no label is drawn, and nothing is trained.
        device: where to train: cpu, cuda, or cuda:1.
    """

    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class LabelModel(ClassifierOptions):
    """The model, and the features that clusters are found by.

    Attributes:
        features: with --clusters: what finds which rows are similar; the model itself sees the inputs. pixels (the
            inputs as they are), hog or scattering; squeezenet with --feature-weights; package.module:factory, an
            importable class or function without arguments that gives a frozen torch module; or a .npy of numbers with
            a row for each row of --data. They must be public, and not made from the labels.
        feature_weights: public weights of the features' network.
        model_seed: public; the first weights follow from it.
    """

    features: str | None = None
    feature_weights: Path | None = None
    model_seed: int = 0


def features_for(options: LabelModel, parts: ExampleParts) -> np.ndarray | None:
    """Public features of what is trained on, float [rows, d]; None where none are chosen.

    Raises:
        InputError: they are unknown, of other rows, or not finite.
    """
    from sfumato.data import to_tensor
    from sfumato.models import features_of

    name = options.features
    if name is None:
        if options.feature_weights is not None:
            raise InputError("--feature-weights is for --features squeezenet; give it, or leave both out")
        return None
    if name.endswith(".npy"):
        return _read(Path(name), parts)
    how = public_features(name, options.feature_weights, options.model_seed, flag="--feature-weights")
    rows, found = len(parts.train), []
    with bar("features") as progress:
        for (inputs, *more), _ in parts.train.batches(_AT_ONCE):
            if more:
                raise InputError(f"--features {name} are of examples with one input, got {1 + len(more)}; give a .npy")
            found.append(features_of(how, to_tensor(inputs), batch_size=_AT_ONCE))
            progress(_AT_ONCE * len(found), rows)
    return np.concatenate(found)


def _read(path: Path, parts: ExampleParts) -> np.ndarray:
    """The rows of a file that belong to what is trained on."""
    from sfumato.data.inputs import refuse_not_finite
    from sfumato.labels.priors import feature_rows

    rows = feature_rows(path)
    if len(rows) != parts.count:
        raise InputError(
            f"{path} must have a row for each of the {parts.count:,} rows of --data, in their order, got {len(rows):,}"
        )
    found = np.asarray(rows[parts.places], np.float32)
    refuse_not_finite(found, str(path))
    return found


# `sfumato labeldp randomize`: a table → the same table with randomised labels, which anybody may train on.


@plan
class RandomizeOptions(LabelSettings, CommonOptions):
    """Randomise the labels of a table: each under label differential privacy, all other columns as they are.

    The columns but the label, and how many rows there are, are public.

    Attributes:
        table: .parquet, .csv, .tsv (also .gz) or .jsonl.
        out: the table to write, in the same format, which must not exist yet. Ledger, statement and plan are in the
            folder OUT.run next to it.
        total_epsilon: release labels that were released before once more, if all of it costs at most this. The
            statement is that of the sum.
        record: the folder that remembers releases; `label-releases` next to the table unless given. Name one folder for
            tables that may be copies of each other.
        seed: repeatable randomness, for simulation only.
        resume: go on with a run for OUT that was stopped; with the same words otherwise.
    """

    table: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
    out: Path
    total_epsilon: float | None = None
    record: Path | None = None
    seed: int | None = None
    resume: bool = False


def randomize(options: RandomizeOptions) -> Answer:
    """Write the table, or nothing."""
    from sfumato.labels import randomize_table
    from sfumato.labels.randomize import run_folder

    with bar("randomising") as progress:
        try:
            done = randomize_table(
                options.table,
                options.out,
                options,
                total_epsilon=options.total_epsilon,
                record=options.record,
                seed=options.seed,
                resume=options.resume,
                progress=progress,
            )
        except KeyboardInterrupt:
            if run_folder(options.out).exists():
                notify(f"{options.out} was not written; go on by the same words and --resume")
            raise
    data = {"out": options.out, "rows": done.rows, "run": done.folder, "statement": done.statement.to_json()}
    lines = [
        f"{done.rows:,} labels: {options.out}",
        f"{done.statement.mechanism}",
        f"epsilon {done.statement.epsilon:g} for each label, delta 0; statement and ledger: {done.folder}",
    ]
    if done.statement.seeded:
        lines.append("Seeded: for simulation only. Anyone who knows the seed can take the noise away.")
    return Answer(data, lines)


# `sfumato labeldp train`: public inputs and private labels → a model of the labels' noisy reports.


@functools.cache
def options_of(name: str) -> Any:
    """The class of all options of a plan's command."""
    return grouped(
        run=(LabelRun, "Where the run goes, and how it is watched."),
        data=(
            RatedDataOptions,
            "Public inputs with private labels, and the rows that are kept out to test on, whose labels are not "
            "hidden.",
        ),
        model=(LabelModel, "The model."),
        plan=(ALGORITHMS[name].load(), "What one label costs, and how the model learns from the reports."),
    )


def train(options: Any) -> Answer:
    """Run the command of a plan of the registry."""
    from sfumato.data.domain import refuse_found

    run: LabelRun = options.run
    command = ALGORITHMS[options.plan.name].words
    check_device(run.device)
    use_threads(run.threads)
    out = free_folder(command.replace(" ", "-"), run)
    already = run.resume is not None and runs.RunFolder(out).has_ended()  # refuses one that was closed
    plan = options.plan
    parts = read_example_parts(options.data, classes=plan.of_classes, labels_alone=True, quiet=run.json)
    if not already:
        refuse_found(parts.train.found)
    options = with_usual_model(options, parts.train)
    model = build_classifier(
        options.model, parts.train, options.model.model_seed, load=True, quiet=run.json, reading=options.data
    )
    options_of_run = {"features": features_for(options.model, parts), "test": parts.test, "device": run.device}
    if run.dry_run:
        statement = plan.try_out(model, parts.train, **options_of_run)
        done = "model and data were tried out; no label was drawn, and nothing was trained or written"
        return dry_run(plan, statement, done)
    line = start_line(out, command, ended="drawn, trained or measured" if already else None)
    with staged_bar(None if run.json else line, "steps") as progress:
        try:
            result = plan.fit(
                model,
                parts.train,
                out=out,
                resume=run.resume is not None,
                about=_about(options, parts.train),
                progress=progress,
                **options_of_run,
            )
        except KeyboardInterrupt:
            if not (out / "plan.json").exists():
                raise
            notify(f"stopped; the reports that were drawn are kept; go on with: sfumato {command} --resume {out}")
            return STOPPED
    return measured(result.statement, out, _task(plan), already=already)


def _task(plan: Any) -> Classification | Regression | Counts:
    """How the model is measured."""
    from sfumato.central import Classification, Counts, Regression

    if plan.of_classes:
        return Classification()
    return Counts() if plan.loss == "poisson" else Regression()


def _about(options: Any, data: ExampleDataset) -> dict[str, Any]:
    """What plan.json states with the plan: enough to read the data and build the model again."""
    run: LabelRun = options.run
    return about_run(options.data, options.model, threads=run.threads, device=run.device, **about_classifier(data))
