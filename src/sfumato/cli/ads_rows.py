"""`sfumato ads train --frequent-rows`: a click model of the rows that most units read (DP-FEST).

Noisy counts choose the rows. That is the first release of the run: one ledger, one statement and one ε cover it and the
steps. With --epsilon the choice may cost a share of the budget by itself, and the noise of the steps is calibrated with
it. The ids that were kept are in the run's frequent_rows.json, by which `sfumato ads evaluate` translates rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato import accounting, runs
from sfumato._check import InputError, positive, whole
from sfumato._files import read_json
from sfumato.central import FrequentRows
from sfumato.central.frequent_rows import FILE
from sfumato.cli.console import STOPPED, Answer, bar, notify
from sfumato.cli.models import check_device, with_usual_model
from sfumato.cli.results import dry_run, measured
from sfumato.cli.run_options import TrainingRun, about_run, free_folder, open_logs, use_threads
from sfumato.cli.training import RECORD_KINDS, StartMessage, refuse_undecided
from sfumato.mechanisms import Auto
from sfumato.models import is_custom_model
from sfumato.statement import make_statement
from sfumato.training import Plan, RunOptions
from sfumato.training.fit import facts_of

if TYPE_CHECKING:
    from torch import nn

    from sfumato.data import ExampleDataset

_COMMAND = "ads train"
_SHARE = 0.3
"""Of epsilon, for the choice by itself; the steps then have about a twentieth more noise."""


def train(options: Any) -> Answer:
    """Choose rows, and train on them; arguments and errors as of `cli.training.train`."""
    run: TrainingRun = options.run
    _refuse(options)
    use_threads(run.threads)
    check_device(run.device)
    out = free_folder("ads", run)
    logs = open_logs(run.log, out, private=run.log_private, public_evaluation=run.public_evaluation)
    already = run.resume is not None and runs.RunFolder(out).has_ended()
    kind = RECORD_KINDS["examples"]
    parts = kind.read(options, quiet=run.json)
    options = with_usual_model(options, parts.train)
    population = options.plan.public_population(parts.train)
    plan, choice = resolved(options, parts.train, population)
    if run.evaluate_every and parts.validation is None:
        raise InputError("--evaluate-every needs validation data: give --validation-share 0.1, for example")

    def build(public: ExampleDataset) -> nn.Module:
        return kind.build(options, plan, public, plan.seed)

    given = {"validation": parts.validation, "test": parts.test}
    settings = RunOptions(**run.settings(), initial_release=choice)
    if run.dry_run:
        with bar("trying out model and data"):
            tried = plan.try_out(build, parts.train, **given, options=settings)
        return _dry_run(plan, choice, population, [*parts.train.assumptions, *tried.assumptions()])
    message = StartMessage(out, _COMMAND, already=already, quiet=run.json)
    message.show()
    settings = replace(
        settings,
        progress=True,
        about=_about(options, choice, kind.about(options, plan, parts.train)),
        callbacks=[message, *logs],
    )
    resume = f"sfumato {_COMMAND} --resume {out}"
    try:
        result = plan.fit(build, parts.train, out=out, resume=run.resume is not None, **given, options=settings)
    except KeyboardInterrupt:
        if not message.done:
            raise
        notify(f"stopped at once; go on with: {resume}")
        return STOPPED
    except OSError as error:
        raise InputError(
            f"{out} cannot be written: {error.strerror or error}; what was saved before is whole: make room and go on "
            f"with: {resume}"
        ) from None
    if not result.finished:
        notify(
            f"stopped after {len(result.history)} steps; go on with: {resume}; or end it for good with: "
            f"sfumato close {out}"
        )
        return STOPPED
    return measured(result.statement, out, plan.default_task(), already=already)


def resolved(options: Any, data: ExampleDataset, population: int) -> tuple[Plan, FrequentRows]:
    """The plan and the choice with their noise.

    Args:
        options: of the command.
        data: to train on.
        population: public number of units.

    Raises:
        InputError: no noise is enough for the budget, or the data have no rows to choose from.
    """
    plan = options.plan.with_usual_sizes(population, options.run.chosen)
    epsilon, delta, adjacency = options.budget.epsilon, plan.delta_for(population), plan.sampler(population).adjacency
    noise = options.ads.frequent_rows_noise
    if noise is None:
        with bar("calibrating the noise"):
            noise = accounting.calibrate(
                accounting.Gaussian, epsilon=_SHARE * epsilon, delta=delta, adjacency=adjacency
            )
    rule = FrequentRows(rows=options.ads.frequent_rows, noise_multiplier=noise, unit=plan.unit)
    choice = rule.initial_release(data)
    if epsilon is not None:
        before = choice.event(adjacency)
        with bar("calibrating the noise"):
            plan = plan.calibrate(epsilon=epsilon, delta=plan.delta, population=population, before=before)
    return plan, choice


def _refuse(options: Any) -> None:
    """Refuse what does not go with a choice of rows; without the records."""
    ads, run = options.ads, options.run
    whole(frequent_rows=ads.frequent_rows)
    if ads.frequent_rows_noise is not None:
        positive(frequent_rows_noise=ads.frequent_rows_noise)
    refuse_undecided(options)
    if is_custom_model(options.model.model) or options.model.pretrained is not None:
        given = "--pretrained" if options.model.pretrained is not None else f"--model {options.model.model}"
        raise InputError(
            f"{given} has tables of a fixed size, which --frequent-rows decides in the run; take ctr or dlrm without "
            "weights, or use RunOptions.initial_release in Python"
        )
    if options.plan.noise.noise_multiplier == 0:
        raise InputError("--noise 0 hides no one, so --frequent-rows cannot either; give --epsilon, or a --noise")
    if isinstance(options.plan.noise, Auto):
        raise InputError("--noise auto does not know of --frequent-rows; give a kind of noise, such as gaussian")
    if ads.frequent_rows_noise is None and options.budget.epsilon is None:
        raise InputError(
            "--frequent-rows with a noise multiplier (--noise) needs a --frequent-rows-noise, 10 for example; with "
            "--epsilon it is chosen"
        )
    if run.resume is not None:
        if options.budget.epsilon is not None:
            raise InputError("a run with --frequent-rows goes on with the noise that it has; leave --epsilon out")
        began = _recorded(run.resume).get("frequent_rows")
        if began != ads.frequent_rows:
            raise InputError(
                f"the run in {run.resume} began with {'all' if began is None else f'{began:,}'} rows and goes on with "
                f"these, got --frequent-rows {ads.frequent_rows}; leave it out, or start a new run"
            )


def _recorded(run: Path) -> dict[str, Any]:
    """What the plan.json of a run states of its data and model."""
    return runs.RunFolder(run).read_plan().get("about") or {}


def _about(options: Any, choice: FrequentRows, data: dict[str, Any]) -> dict[str, Any]:
    """What plan.json states with the plan: enough to read the data, choose the same rows and build the model again."""
    run: TrainingRun = options.run
    wanted = options.budget.epsilon if run.resume is None else _recorded(run.resume).get("epsilon_wanted")
    return about_run(
        options.data,
        options.model,
        **run.settings(),
        log=run.log,
        log_private=run.log_private,
        public_evaluation=run.public_evaluation,
        frequent_rows=choice.rows,
        frequent_rows_noise=choice.noise_multiplier,
        epsilon_wanted=wanted,
        **data,
    )


def _dry_run(plan: Plan, choice: FrequentRows, population: int, assumptions: Sequence[Any]) -> Answer:
    """The plan, and the statement of choice and steps."""
    plan = plan.for_population(population)
    private_sum = plan.private_sum(population)
    if warning := choice.warning(population):
        warnings.warn(warning, stacklevel=2)
    facts = facts_of(
        plan,
        private_sum,
        rounds=private_sum.rounds,
        population=population,
        delta=plan.delta_for(population),
        initial_release=choice,
        data_assumptions=assumptions,
    )
    event = choice.event(facts.adjacency) + private_sum.event(private_sum.rounds)
    statement = make_statement(event, facts, noise_source="os" if plan.seed is None else "seeded")
    done = "model and data were tried out; nothing was trained or written"
    return dry_run(plan, statement, done, **choice.about())


def as_read(rows: ExampleDataset, about: Mapping[str, Any], run: Path) -> ExampleDataset:
    """Rows as the model of a run reads them: by those that it chose, where it chose any.

    Args:
        rows: as the run read its own.
        about: of its plan.json.
        run: its folder.

    Raises:
        InputError: the file of the chosen rows is missing, or of other tables.
    """
    kept = about.get("frequent_rows")
    if kept is None:
        return rows
    file = run / FILE
    if not file.exists():
        raise InputError(f"{file} is missing, by which the model of {run} reads its rows; copy it there")
    found = [np.asarray(each, np.int64) for each in read_json(file)]
    if len(found) != sum(map(bool, rows.vocabulary_sizes)):
        raise InputError(f"{file} has {len(found)} tables, and the rows have others; copy the run's own file there")
    return FrequentRows(rows=kept, noise_multiplier=about["frequent_rows_noise"]).prepare(found, rows)
