"""`sfumato ads sweep`: which settings, for each ε, and the loss against it.

What a sweep promises depends on how settings are chosen. A model whose settings were tried on records that are set
aside costs what its own run costs, for all others; those who are set aside have no guarantee. Settings that were tried
on the training records themselves are paid for: the number of runs is drawn at random and stays secret, only the best
model is released, and its statement counts all of them (`PrivateSelection`).

References:
    Denison et al.: Private Ad Modeling with DP-SGD. 2022, arXiv 2211.11896 (the figures).
    Papernot, Steinke: Hyperparameter Tuning with Renyi Differential Privacy. ICLR 2022 (the cost of a choice).
"""

from __future__ import annotations

import fcntl
import functools
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sfumato import runs
from sfumato._check import InputError, between, positive, whole
from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.cli.ads import USUAL, ClickOptions, as_plan, cell, measured, measures_of
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import STOPPED, Answer, Table, bar, notify, plain
from sfumato.cli.parse import answer_help, find, read_flags, read_settings
from sfumato.cli.run_options import (
    FolderOptions,
    about_run,
    free_folder,
    grouped,
    groups_of,
    use_threads,
)

if TYPE_CHECKING:
    from torch import nn

    from sfumato.accounting import Event
    from sfumato.central import DPSGD
    from sfumato.data import ExampleDataset
    from sfumato.statement import Statement

_PLAIN = "without privacy"
_PRIVATE = "private"
_OF_EVERY_RUN = (
    *("public_settings", "one_example", "one_user", "prepared_alone", "covers_model", "one_run", "rounding_floats"),
    *("draw_secret", "seeded_run"),
)
"""Conditions that a statement is made with anyway."""


@dataclass(frozen=True, kw_only=True)
class SweepRun(FolderOptions):
    """Where the sweep goes.

    Attributes:
        out: a new folder for models, figures and statement.
        resume: go on with the sweep in this folder; everything else is read from it.
        dry_run: print the trainings with their noise, and train nothing.
        device: where to train: cpu, cuda, or cuda:1.
        words: by which it goes on.
    """

    device: str = "cpu"
    words: tuple[str, ...] = field(default=(), metadata={"planned": True})


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Which settings are tried, and on whom.

    Attributes:
        epsilons: budgets; a model is trained for each. One without noise, which protects no one, is measured
            and thrown away: the dotted line of the figures.
        batches: batch sizes; without them --cohort.
        clips: clip norms to try, > 0.
        rates: learning rates to try, > 0.
        choose: held-out tries settings on records that are set aside and have no guarantee. private tries them on the
            training records: a random number of runs, of which only the best model is released, at the cost of all.
        held_out_share: the share of records (users, where they are the unit) that is set aside to choose by.
        mean_runs: for private: the expected number of runs, > 1.
        repeats: trainings of each chosen model, for the spread; each is a release of its own.
        rdp: for held-out: also train with the noise that Rényi accounting asks for at the same epsilon.
    """

    epsilons: tuple[float, ...] = (0.5, 1.0, 3.0, 5.0, 10.0, 30.0)
    batches: tuple[int, ...] = ()
    clips: tuple[float, ...] = (4.0, 10.0)
    rates: tuple[float, ...] = (0.2, 0.5)
    choose: Literal["held-out", "private"] = "held-out"
    held_out_share: float = 0.2
    mean_runs: float = 5.0
    repeats: int = 1
    rdp: bool = False


@functools.cache
def sweep_group() -> Any:
    """The class of all options of `sfumato ads sweep`."""
    groups = groups_of("dpsgd")
    del groups["budget"]
    groups["run"] = (SweepRun, "Where the sweep goes.")
    ads = (ClickOptions, "What is predicted, and who is protected.")
    does = "Choose settings for each epsilon, train a model for each, and draw the loss against epsilon."
    return grouped(does, grid=(GridOptions, "Which settings are tried, and on whom."), ads=ads, **groups)


_STATE, _MODELS, _WORK = "sweep.json", "models", "work"
_NOT_KEPT = ("out", "resume", "json", "config", "dry-run")
_MAY_MOVE = ("data", "device", "threads", "json")


def sweep_options(argv: Sequence[str]) -> Any:
    """The options of `sfumato ads sweep`; of one that goes on, those that it began with."""
    command, kind = "ads sweep", sweep_group()
    about = COMMANDS[command].about()
    answer_help(kind, argv, command=command, about=about)
    resume = find(argv, "resume")
    words = list(argv)
    if resume is not None:
        given = [word.partition("=")[0][2:] for word in argv if word.startswith("--")]
        other = next((name for name in given if name not in ("resume", *_MAY_MOVE)), None)
        if other is not None:
            raise InputError(f"a sweep goes on as it began; leave --{other} out, or start a new one")
        words = [*_state(Path(resume))["words"], *argv]
    words = _with_defaults(kind, words)
    options = read_flags(kind, words, command=command, about=about)
    given = frozenset(word.partition("=")[0][2:].replace("-", "_") for word in words if word.startswith("--"))
    options = replace(options, run=replace(options.run, chosen=given, words=tuple(_without(words, _NOT_KEPT))))
    return as_plan(options, chosen_by=given)


def _without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The words without some options and their values.

    >>> _without(["--out", "a", "--rates", "1", "2", "--json", "--seed=1"], ("out", "json"))
    ['--rates', '1', '2', '--seed=1']
    """
    kept, left_out = list[str](), False
    for word in words:
        if word.startswith("--"):
            left_out = word.partition("=")[0][2:].replace("_", "-") in names
        if not left_out:
            kept.append(word)
    return kept


def _with_defaults(kind: Any, argv: Sequence[str]) -> list[str]:
    """The words, before them those of the settings file and the usual settings."""
    from sfumato.cli.parse import as_flags

    words, config = list(argv), find(argv, "config")
    if config is not None:
        words = [*as_flags(read_settings(Path(config)), kind, source=config, later=words), *words]
    usual = {name: value for name, value in USUAL.items() if name != "epochs" or find(words, "steps") is None}
    return [*as_flags(usual, kind, source="ads sweep", later=words), *words]


def _state(out: Path) -> dict[str, Any]:
    if not (out / _STATE).exists():
        raise InputError(f"{out} holds no sweep; start one with: sfumato ads sweep --out {out}")
    return read_json(out / _STATE)


class _Stopped(Exception):
    """A training was asked to stop and is saved."""


def sweep(options: Any) -> Answer:
    """Try settings, train the chosen models, and draw."""
    from sfumato.cli.models import check_device
    from sfumato.cli.sources import read_example_parts

    run, grid = options.run, options.grid
    _check_grid(options)
    check_device(run.device)
    use_threads(run.threads)
    out = free_folder("ads-sweep", run)
    if options.data.validation_share:
        raise InputError("--held-out-share says which records are set aside; leave --validation-share out")
    reading = replace(options.data, validation_share=grid.held_out_share)
    parts = read_example_parts(reading, classes=options.plan.task == "classes", quiet=run.json)
    if parts.test is None or parts.validation is None:
        raise InputError("a sweep needs records to choose by and to test on; give shares > 0 of both")
    options.plan.default_task().check(parts.train)
    options.plan.refuse_found(parts.train.found)
    if options.model.model in ("ctr", "dlrm") and len(parts.train.input_shapes) != 2:
        raise InputError(
            f"{options.model.model} reads tables with columns of categories, got {parts.train}; choose --model"
        )
    sweep = _Sweep(options, parts, out)
    for batch in sweep.batches:  # before there is a folder
        sweep.refuse_too_large(batch)
    if run.dry_run:
        return sweep.planned()
    try:
        sweep.begin()
        return sweep.go()
    except (_Stopped, KeyboardInterrupt):
        if not (out / _STATE).exists():
            raise KeyboardInterrupt from None
        notify(f"stopped; what was trained is kept; go on with: sfumato ads sweep --resume {out}")
        return STOPPED
    finally:
        sweep.close()


def _check_grid(options: Any) -> None:
    grid = options.grid
    for epsilon in grid.epsilons:
        positive(epsilons=epsilon)
    for name in ("clips", "rates"):
        for value in getattr(grid, name):
            positive(**{name: value})
        if not getattr(grid, name):
            raise InputError(f"--{name} names no value to try; give one or several")
    for name, form in (("epsilons", "g"), ("batches", "d"), ("clips", "g"), ("rates", "g")):
        shown = [format(value, form) for value in getattr(grid, name)]  # as in the names of trainings
        twice = next((value for value in shown if shown.count(value) > 1), None)
        if twice is not None:
            raise InputError(f"--{name} has {twice} twice; give each once")
    if options.plan.noise.noise_multiplier is not None:
        raise InputError("--noise is calibrated to each of --epsilons; leave it out")
    for batch in grid.batches:
        whole(batches=batch)
    whole(repeats=grid.repeats)
    between(0.0, 1.0, ends="()", held_out_share=grid.held_out_share)
    if not grid.epsilons:
        raise InputError("--epsilons names no budget; give one or several, such as 1 3 10")
    if grid.choose != "private":
        return
    between(1, 1e4, ends="(]", mean_runs=grid.mean_runs)
    if len(grid.batches) > 1:
        raise InputError(
            f"--choose private takes one batch size, got {len(grid.batches)}: what a run costs must not depend on the "
            "settings that are tried"
        )
    if grid.rdp or grid.repeats > 1:
        raise InputError("--rdp and --repeats train several models of one epsilon; use --choose held-out")


Kind = Literal["choose", "final", "rdp", "run"]


@dataclass(frozen=True)
class _Trial:
    """One training: what for, at which ε (None for no noise), and with which settings."""

    of: Kind
    epsilon: float | None
    batch: int
    clip: float | None
    rate: float
    number: int = 0

    @property
    def name(self) -> str:
        """Of its folder and its result."""
        epsilon = "none" if self.epsilon is None else f"{self.epsilon:g}"
        clip = "none" if self.clip is None else f"{self.clip:g}"
        return f"{self.of}-epsilon-{epsilon}-batch-{self.batch}-clip-{clip}-rate-{self.rate:g}-{self.number}"


class _Sweep:
    """The trainings of a sweep, their results in sweep.json, and what is made of them.

    Args:
        options: of the command.
        parts: train: who is protected; validation: whom settings are chosen by; test: whom models are measured on.
        out: the folder.
    """

    def __init__(self, options: Any, parts: Any, out: Path) -> None:
        from sfumato import data

        self.options, self.grid, self.parts, self.out = options, options.grid, parts, out
        self.population = options.plan.public_population(parts.train)
        self.loss = next(iter(measures_of(parts.train)))
        self.tune = None
        if self.grid.choose == "held-out":
            self.tune = data.split_examples(parts.validation, test=0.25, seed=options.data.split_seed)
        self.state: dict[str, Any] = {}
        self._lock: int | None = None

    @property
    def batches(self) -> tuple[int, ...]:
        return self.grid.batches or (self.options.plan.cohort.size,)

    def settings(self, epsilon: float | None) -> list[tuple[int, float | None, float]]:
        """Batch, clip norm and rate of each point of the grid; without noise nothing is clipped."""
        clips = self.grid.clips if epsilon is not None else (None,)
        return [(batch, clip, rate) for batch in self.batches for clip in clips for rate in self.grid.rates]

    # plans

    def plan(self, trial: _Trial) -> DPSGD:
        """The plan of a training, with its noise."""
        plan, records = self._plan(trial.batch, trial.clip, trial.rate), self.records(trial)
        seed = None if self.options.plan.seed is None else self.options.plan.seed + trial.number
        plan = replace(plan, seed=seed)
        if trial.epsilon is None:
            return plan.replace(noise=0.0, clipping=None)
        population = plan.public_population(records)
        key = f"{trial.of == 'choose'} {trial.epsilon} {trial.batch} {trial.of if trial.of in ('rdp', 'run') else ''}"
        noises = self.state.setdefault("noises", {})
        if key not in noises:
            noises[key] = self._noise(plan, trial, population)
        delta = plan.delta_for(population)
        return replace(plan, delta=delta, population=population).replace(noise=noises[key])

    def _plan(self, batch: int, clip: float | None, rate: float) -> DPSGD:
        return self.options.plan.replace(**{"cohort.size": batch, "clipping": clip, "server.learning_rate": rate})

    def _noise(self, plan: DPSGD, trial: _Trial, population: int) -> float:
        """The least noise that meets ε; for one of several runs, that of the selection of the best."""
        assert trial.epsilon is not None
        if trial.of in ("choose", "final"):
            found = plan.calibrate(epsilon=trial.epsilon, population=population).noise.noise_multiplier
            assert found is not None
            return found
        from sfumato.accounting import PrivateSelection, calibrate

        def event(noise: float) -> Event:
            one = self.event(plan.replace(noise=noise), population)
            return one if trial.of == "rdp" else PrivateSelection.of_mean(one, self.grid.mean_runs)

        adjacency, delta = plan.cohort.adjacency, plan.delta_for(population)
        return calibrate(event, epsilon=trial.epsilon, delta=delta, adjacency=adjacency, method="rdp")

    def refuse_too_large(self, batch: int) -> None:
        """Refuse a batch that cannot be drawn from the records of each training."""
        fewest = [
            self.population,
            *([] if self.tune is None else [self.options.plan.public_population(self.tune.train)]),
        ]
        self._plan(batch, None, 1.0).sampler(min(fewest))

    def event(self, plan: DPSGD, population: int) -> Event:
        """What a whole run of this plan costs."""
        private_sum = plan.for_population(population).private_sum(population)
        return private_sum.event(private_sum.rounds)

    def records(self, trial: _Trial) -> ExampleDataset:
        """What a training reads."""
        if trial.of != "choose":
            return self.parts.train
        assert self.tune is not None
        return self.tune.train

    # trainings

    def begin(self) -> None:
        """Make the folder, or go on in it.

        Raises:
            InputError: the folder is not empty, another process is at it, or the records are not those that it began
                with.
        """
        records = [each.fingerprint() for each in (self.parts.train, self.parts.validation, self.parts.test)]
        if self.options.run.resume is not None:
            self._claim()
            self.state = _state(self.out)
            if self.state["records"] != records:
                raise InputError(f"the records are not those that {self.out} began with; give the same --data")
            return
        if self.out.exists() and any(self.out.iterdir()):
            raise InputError(f"{self.out} is not empty; choose another folder, or go on with --resume {self.out}")
        self.out.mkdir(parents=True, exist_ok=True)
        self._claim()
        self.state = {"words": list(self.options.run.words), "records": records, "results": {}, "noises": {}}
        self.save()

    def _claim(self) -> None:
        """Keep other processes away until this one ends: each would draw runs of its own, and one statement count one.

        Raises:
            InputError: another process is at this sweep.
        """
        self._lock = os.open(self.out, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is writing to {self.out}; let it end or stop it first") from None

    def close(self) -> None:
        """Let other processes at this sweep."""
        if self._lock is not None:
            os.close(self._lock)

    def save(self) -> None:
        """Write what is known; for the owner's eyes only."""
        write_json(self.out / _STATE, self.state, private=True)

    def trained(self, trial: _Trial, folder: Path) -> tuple[nn.Module | None, Statement | None]:
        """The model of a training, and what it states; None where it left the finite numbers.

        Raises:
            _Stopped: it was asked to stop, and is saved.
        """
        from sfumato.cli.models import about_classifier, build_classifier
        from sfumato.runs.checkpoint import STATE
        from sfumato.training import RunOptions

        options, plan, records = self.options, self.plan(trial), self.records(trial)
        self.save()  # noise that a search found
        begun = (folder / "checkpoint" / STATE).exists()
        if folder.exists() and not begun:
            shutil.rmtree(folder)
        reading = replace(options.data, validation_share=self.grid.held_out_share)
        about = about_run(reading, options.model, device=options.run.device, **about_classifier(records))
        given = {"load": True, "quiet": True, "reading": options.data, "trainable": plan.trainable}
        model = build_classifier(options.model, records, plan.seed, **given)
        settings = RunOptions(evaluate_every=0, checkpoint_minutes=1.0, device=options.run.device, about=about)
        try:
            result = plan.fit(model, records, out=folder, resume=begun, options=settings)
        except InputError as error:
            if "not finite" not in str(error):
                raise
            return None, None
        if not result.finished:
            raise _Stopped
        return result.model, result.statement

    def result(self, trial: _Trial) -> dict[str, Any]:
        """What a training brought; one that is done is not repeated."""
        if trial.name in self.state["results"]:
            return self.state["results"][trial.name]
        keeps = trial.of in ("final", "rdp") and trial.epsilon is not None
        folder = self.out / (_MODELS if keeps else _WORK) / trial.name
        with bar(trial.name):
            model, statement = self.trained(trial, folder)
        on = self.tune.test if trial.of == "choose" and self.tune else self.parts.validation
        on = self.parts.test if trial.of in ("final", "rdp") else on
        row: dict[str, Any] = {self.loss: math.inf}
        if model is not None:
            row, row["constant"] = measured(model, on, device=self.options.run.device)
            row[self.loss] = row[self.loss] if row[self.loss] is not None else math.inf
        if statement is not None and trial.epsilon is not None:
            row |= {"epsilon": statement.epsilon, "delta": statement.delta, "unit": statement.unit}
        self.state["results"][trial.name] = plain(row)
        self.save()
        if not keeps and trial.of != "run":
            shutil.rmtree(folder, ignore_errors=True)
        return self.state["results"][trial.name]

    def go(self) -> Answer:
        """All trainings, then figures and statement."""
        rows = []
        for epsilon in (None, *self.grid.epsilons):
            if self.grid.choose == "private" and epsilon is not None:
                rows.append(self.selected(epsilon))
                continue
            batch, clip, rate = self.best(epsilon)
            finals = [_Trial("final", epsilon, batch, clip, rate, number) for number in range(self.grid.repeats)]
            found = [self.result(trial) for trial in finals]
            row = {"epsilon": epsilon, "batch": batch, "clip": clip, "rate": rate, "measured": found}
            if self.grid.rdp and epsilon is not None:
                row["rdp"] = [self.result(replace(trial, of="rdp")) for trial in finals]
            rows.append(row)
        shutil.rmtree(self.out / _WORK, ignore_errors=True)
        return self.answer(rows)

    def best(self, epsilon: float | None) -> tuple[int, float | None, float]:
        """The settings with the least loss on the records that are chosen by."""
        of: Kind = "choose" if self.grid.choose == "held-out" else "run"
        grid = self.settings(epsilon)
        losses = [float(self.result(_Trial(of, epsilon, *point))[self.loss]) for point in grid]
        if min(losses) == math.inf:
            raise InputError(f"no setting gave a finite model at epsilon {epsilon or 'none'}; add smaller --rates")
        return grid[losses.index(min(losses))]

    # a choice that is paid for

    def draws(self, epsilon: float) -> list[tuple[int, float | None, float]]:
        """The settings of a secret number of runs: each drawn at random, of a geometric number of them."""
        drawn = self.state.setdefault("drawn", {})
        if f"{epsilon:g}" not in drawn:
            seed = self.options.plan.seed
            source = RandomSource.from_os() if seed is None else RandomSource.from_seed(seed)
            stream, grid = source.stream("private selection", f"{epsilon:g}"), self.settings(epsilon)
            stop = 1 / self.grid.mean_runs
            count = 1 + int(math.log1p(-float(stream.uniform(1)[0])) / math.log1p(-stop))
            drawn[f"{epsilon:g}"] = [grid[int(place * len(grid))] for place in stream.uniform(count)]
            self.save()
        return [tuple(point) for point in drawn[f"{epsilon:g}"]]

    def selected(self, epsilon: float) -> dict[str, Any]:
        """The best of the runs, under a statement that counts all; of the others nothing is left."""
        from sfumato import models

        done = self.state.setdefault("selected", {})
        if f"{epsilon:g}" in done:
            return done[f"{epsilon:g}"]
        trials = [_Trial("run", epsilon, *point, number) for number, point in enumerate(self.draws(epsilon))]
        losses = [float(self.result(trial)[self.loss]) for trial in trials]
        trial = trials[losses.index(min(losses))]
        if min(losses) == math.inf:
            raise InputError(f"no run gave a finite model at epsilon {epsilon:g}; add smaller --rates")
        work = runs.RunFolder(self.out / _WORK / trial.name)
        name = trial.name.removeprefix("run-").rpartition("-")[
            0
        ]  # which of the runs it is says that there were as many
        out = runs.RunFolder(self.out / _MODELS / name)
        model, own = self.trained(trial, work.path)
        assert model is not None
        assert own is not None
        out.path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work.plan, out.plan)
        models.save_weights(model, out.model)
        statement = self.selection(self.plan(trial), own)
        write_json(out.statement, statement.to_json())
        row, row["constant"] = measured(model, self.parts.test, device=self.options.run.device)
        row |= {"epsilon": statement.epsilon, "delta": statement.delta, "unit": statement.unit}
        point = {"batch": trial.batch, "clip": trial.clip, "rate": trial.rate}
        done[f"{epsilon:g}"] = plain({"epsilon": epsilon, **point, "measured": [row]})
        for each in trials:
            del self.state["results"][each.name]
        del self.state["drawn"][f"{epsilon:g}"]
        self.save()
        for each in trials:
            shutil.rmtree(self.out / _WORK / each.name, ignore_errors=True)
        return done[f"{epsilon:g}"]

    def selection(self, plan: DPSGD, run: Statement) -> Statement:
        """What the best of the runs states: the cost of all, under the conditions of its own run."""
        from sfumato.accounting import PrivateSelection
        from sfumato.statement import make_statement
        from sfumato.training.fit import facts_of

        plan = plan.for_population(self.population)
        private_sum, delta = plan.private_sum(self.population), plan.delta_for(self.population)
        rounds, mean = private_sum.rounds, self.grid.mean_runs
        facts = facts_of(plan, private_sum, rounds=rounds, population=self.population, delta=delta)
        facts = replace(
            facts,
            attained=False,
            covered=Assumption("covers_selected"),
            mechanism=f"the best of a random number of runs, {mean:g} on average, each of {facts.mechanism}",
            alternatives=(),
            assumptions=(
                *(line for line in run.assumptions if getattr(line, "id", "") not in _OF_EVERY_RUN),
                Assumption("selection_counted", {"mean": f"{mean:g}"}),
            ),
        )
        event = PrivateSelection.of_mean(private_sum.event(rounds), mean)
        return make_statement(event, facts, noise_source="os" if plan.seed is None else "seeded")

    # answers

    def planned(self) -> Answer:
        """The trainings with their noise."""
        rows, trainings = [], 0
        of: Kind = "final" if self.grid.choose == "held-out" else "run"
        for epsilon in self.grid.epsilons:
            for batch in self.batches:
                noise = self.plan(_Trial(of, epsilon, batch, self.grid.clips[0], self.grid.rates[0])).noise
                rows.append({"epsilon": epsilon, "batch": batch, "noise_multiplier": noise.noise_multiplier})
            trainings += len(self.settings(epsilon)) + (1 + self.grid.rdp) * self.grid.repeats
        if self.grid.choose == "private":
            trainings = round(len(self.grid.epsilons) * self.grid.mean_runs)
        trainings += len(self.settings(None)) + self.grid.repeats
        cells = [[f"{row['epsilon']:g}", f"{row['batch']:,}", f"{row['noise_multiplier']:.4g}"] for row in rows]
        about = "on average " if self.grid.choose == "private" else ""
        lines = [
            Table(["epsilon", "batch", "noise multiplier"], cells),
            *self.promises(),
            f"\ndry run: {about}{trainings:,} trainings; nothing was trained or written",
        ]
        return Answer({"trainings": trainings, "noise": rows, "statement": self.promises()}, lines)

    def promises(self) -> list[str]:
        """Who is protected by what."""
        unit, grid = self.options.plan.unit, self.grid
        units = f"{self.population:,} {unit}s"
        aside = f"Anyone among the {self.options.plan.units_in(self.parts.validation):,} {unit}s that are set aside"
        if grid.choose == "private":
            return [
                f"Settings were chosen on the records of the {units} that are protected: each model is the best of a "
                f"random number of runs ({grid.mean_runs:g} on average), and its epsilon counts all of them.",
                f"{aside} to measure the runs has no guarantee. How many runs there were must stay secret: do not "
                "publish how long this took.",
            ]
        return [
            f"Settings were chosen by training on records that are set aside. Each model costs the {units} that it was "
            "trained on its own epsilon, and the choice costs them nothing.",
            f"{aside} has no guarantee: they must be public, or have agreed.",
        ]

    def cost_of_all(self, rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
        """ε and δ of all models in the folder for one unit, if all of them are released."""
        from sfumato.accounting import PrivateSelection, guarantee

        whole: Event | None = None
        plan = self.options.plan
        for row in rows:
            if row["epsilon"] is None:
                continue
            point = row["batch"], row["clip"], row["rate"]
            kinds: tuple[Kind, ...] = (
                ("run",) if self.grid.choose == "private" else ("final", *(["rdp"] if "rdp" in row else []))
            )
            for of in kinds:
                plan = self.plan(_Trial(of, row["epsilon"], *point))
                one = self.event(plan, self.population)
                one = PrivateSelection.of_mean(one, self.grid.mean_runs) if of == "run" else one * self.grid.repeats
                whole = one if whole is None else whole + one
        assert whole is not None
        delta = plan.delta_for(self.population)
        return guarantee(whole, adjacency=plan.cohort.adjacency).epsilon(delta), delta

    def answer(self, rows: list[dict[str, Any]]) -> Answer:
        """Figures, statement, and a table."""
        with bar("figures"):
            noise = self.noise_of_batches()
            all_of_them, delta = self.cost_of_all(rows)
            figures = _figures(self.out, rows, noise, measures_of(self.parts.train))
        promises = [
            *self.promises(),
            f"All models of this folder together cost one {self.options.plan.unit} epsilon {all_of_them:.4g} at delta "
            f"{delta:.2g}; release one, or count this.",
            "The model without privacy was measured and thrown away. Losses are not covered by any guarantee.",
        ]
        write_json(self.out / "statement.json", {"statement": promises, "epsilon_of_all": all_of_them, "delta": delta})
        names = measures_of(self.parts.train)
        cells = [self.cells(row, names, rows[0]) for row in rows]
        header = ["epsilon", "batch", "clip norm", "rate", *names.values(), "increase, %"]
        constant = rows[0]["measured"][0]["constant"]
        cells.append(["constant", "", "", "", *(cell(constant[key]) for key in names), ""])
        done = {"rows": rows, "noise": noise, "epsilon_of_all": all_of_them, "statement": promises, "figures": figures}
        return Answer({"out": self.out, **done}, [Table(header, cells), "", *promises, f"\nsweep: {self.out}"])

    def cells(self, row: Mapping[str, Any], names: Mapping[str, str], ideal: Mapping[str, Any]) -> list[str]:
        """A row of the table."""
        epsilon = _PLAIN if row["epsilon"] is None else f"{row['epsilon']:g}"
        clip = "" if row["clip"] is None else f"{row['clip']:g}"
        means = [cell(mean_of(row["measured"], key)) for key in names]
        increase = "" if row is ideal else f"{increase_of(row['measured'], ideal['measured'], self.loss):.2f}"
        return [epsilon, f"{row['batch']:,}", clip, f"{row['rate']:g}", *means, increase]

    def noise_of_batches(self) -> list[dict[str, float]]:
        """The noise on a mean gradient, in clip norms, against the batch, at fixed epochs and at fixed steps."""
        plan, kept = self.options.plan, self.state.setdefault("noise of batches", [])
        if kept:
            return kept
        size, epsilon = self.batches[0], sorted(self.grid.epsilons)[len(self.grid.epsilons) // 2]
        steps = plan.replace(**{"cohort.size": size}).rounds_for(self.population)
        sizes = sorted({min(self.population, max(1, size * factor // 16)) for factor in (1, 4, 16, 64, 256)})
        for batch in sizes:
            row: dict[str, float] = {"batch": batch, "epsilon": epsilon}
            at = {"epochs": plan.replace(**{"cohort.size": batch}), "steps": None}
            at["steps"] = replace(at["epochs"], epochs=None, steps=steps)
            for fixed, each in at.items():
                z = each.replace(noise=None).calibrate(epsilon=epsilon, population=self.population).noise.multiplier
                row[f"at fixed {fixed}"] = z / batch
            kept.append(row)
        self.save()
        return kept


def mean_of(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The mean of a measure over repeats; None where it has none."""
    found = [float(row[key]) for row in rows if row.get(key) is not None]
    return sum(found) / len(found) if found else None


def increase_of(rows: Sequence[Mapping[str, Any]], ideal: Sequence[Mapping[str, Any]], loss: str) -> float:
    """By how many percent the loss is above that without privacy."""
    mine, best = mean_of(rows, loss), mean_of(ideal, loss)
    return 100 * (mine / best - 1) if mine is not None and best else math.nan


def _figures(
    out: Path, rows: Sequence[Mapping[str, Any]], noise: Sequence[Mapping[str, float]], names: Mapping[str, str]
) -> list[Path]:
    """The loss over ε, the two accountants where both were trained by, and the noise over batches."""
    from sfumato.report.plots import COLOURS, save

    loss, plain_row, private = next(iter(names)), rows[0], rows[1:]
    epsilons = [row["epsilon"] for row in private]

    def of_loss(figure: Any) -> None:
        axes = figure.subplots()
        increases = [increase_of(row["measured"], plain_row["measured"], loss) for row in private]
        axes.plot(epsilons, increases, color=COLOURS[0], marker="o", markersize=3, label=_PRIVATE)
        axes.axhline(0.0, color=COLOURS[5], linewidth=0.8, linestyle=":", label=_PLAIN)
        axes.set(xscale="log", xlabel="ε", ylabel=f"relative increase of the {names[loss]}, %")
        axes.legend(frameon=False, fontsize=7)

    second = list(names)[1]

    def of_accountants(figure: Any) -> None:
        axes = figure.subplots()
        for place, (key, name) in enumerate((("measured", "PLD"), ("rdp", "RDP"))):
            means = [mean_of(row[key], second) for row in private]
            axes.plot(epsilons, means, color=COLOURS[place], marker="o", markersize=3, label=f"noise by {name}")
        axes.set(xscale="log", xlabel="ε", ylabel=names[second])
        axes.legend(frameon=False, fontsize=7)

    def of_noise(figure: Any) -> None:
        axes = figure.subplots()
        for place, key in enumerate(("at fixed epochs", "at fixed steps")):
            values = [row[key] for row in noise]
            axes.plot(
                [row["batch"] for row in noise], values, color=COLOURS[place], marker="o", markersize=3, label=key
            )
        label = f"noise on the mean gradient, clip norms, ε = {noise[0]['epsilon']:g}"
        axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel=label)
        axes.legend(frameon=False, fontsize=7)

    drawn = {"loss.svg": of_loss, "noise.svg": of_noise}
    if private and all("rdp" in row for row in private):
        drawn["accountants.svg"] = of_accountants
    for name, fill in drawn.items():
        save(out / name, (5.6, 3.6), fill)
    return [out / name for name in drawn]
