"""Fitting a plan to data: one run, from the first check to the released files.

`run_plan` reads from top to bottom: what stays the same while the run goes on is put together and checked (`Setup`),
the parts that train are made and tried out (`Parts`), the first file is written, the rounds run, and what they leave is
released. With an initial release, the parts are first made of what it could release and tried out; only then does the
run start and release; the parts that train are made of what it released.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sfumato._bar import bar, begin
from sfumato._check import InputError
from sfumato._types import Assumption, Stated
from sfumato.data.domain import BUILT
from sfumato.guard import Coupled, examples_tried
from sfumato.ledger import Budget
from sfumato.runs import Checkpoint, Run, RunFolder, Team, share_cores
from sfumato.runs.checkpoint import FROZEN, load_frozen
from sfumato.sampling import Poisson, VirtualClients
from sfumato.statement import Alternative, Facts, Statement
from sfumato.statement.sentences import render
from sfumato.training.cadence import RunSettings
from sfumato.training.contribution import Contribution, Task
from sfumato.training.frozen_features import PrefixCache, Split, cut_for, refuse_folder
from sfumato.training.loop import ROUNDS, InitialRelease, Loop
from sfumato.training.monitoring import (
    MONITORED,
    Callback,
    Callbacks,
    CostSoFar,
    Display,
    before_rounds,
    columns,
    likely_cause,
    marked,
    trouble,
    who_took_part,
)
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import MovingAverage, OptimizerFactory, Server
from sfumato.training.trainable import HEAD, Trainable, copied

if TYPE_CHECKING:
    from sfumato.training.plan import Plan

_TRIED = 256  # records of a part that is measured on, where a plan is only tried out
_FEWEST_TRIED = 8  # users


def facts_of(
    plan: Plan,
    private_sum: PrivateSum,
    *,
    rounds: int,
    population: int,
    delta: float,
    initial_release: InitialRelease | None = None,
    data_assumptions: Sequence[Stated] = (),
) -> Facts:
    """The facts of the rounds that ran.

    Args:
        plan: the plan that ran.
        private_sum: its parts.
        rounds: rounds that ran.
        population: public number of units.
        delta: δ.
        initial_release: what was released before the rounds.
        data_assumptions: what is taken to be public about the data.
    """
    return Facts(
        unit=plan.unit,
        adjacency=private_sum.sampler.adjacency,
        population=population,
        delta=delta,
        sampling=private_sum.sampler.describe(),
        mechanism=_mechanism(private_sum, rounds)
        if initial_release is None
        else _both(initial_release, private_sum, rounds),
        attained=initial_release is None and private_sum.attained,
        assumptions=(
            *_assumptions(plan, private_sum, rounds),
            *plan.assumptions(),
            *(() if initial_release is None else initial_release.assumptions),
            *data_assumptions,
        ),
        # an initial release is one user's and not a virtual client's, and may fail, which Rényi accounting does not
        # know
        alternatives=() if initial_release is not None else tuple(_alternatives(plan, private_sum, rounds)),
        disclosure={
            "contribution": render(Assumption("contribution_bounded", {"bound": private_sum.bound.disclose()})),
            "sampling_as_run": render(Assumption("sampler_as_run")),
        },
    )


def _mechanism(private_sum: PrivateSum, rounds: int) -> str:
    z = private_sum.mechanism.multiplier
    if z == 0:
        return f"no noise: {rounds} rounds without any guarantee"
    count = "" if private_sum.bound.counted is None else ", with a noisy count for the norm"
    count += "" if private_sum.selection is None else ", with noisy counts that select rows of tables"
    what = private_sum.mechanism.describe()
    return f"{rounds} {what} of contributions {private_sum.bound.describe()}, noise multiplier {z:.6g}{count}"


def _both(initial_release: InitialRelease, private_sum: PrivateSum, rounds: int) -> str:
    return f"{initial_release.words}; then {_mechanism(private_sum, rounds)}"


def _assumptions(plan: Plan, private_sum: PrivateSum, rounds: int) -> list[Stated]:
    tried = examples_tried(rounds) if plan.of_examples else Assumption("clients_tried")
    lines: list[Stated] = [tried, Assumption("began_public"), Assumption("training_part")]
    stopped = {"rounds": rounds, "planned": private_sum.rounds}
    if isinstance(private_sum.grouping, VirtualClients):
        lines.append(Assumption("virtual_clients"))
    if private_sum.sampler.adjacency == "zero_out":
        lines.append(Assumption("participation_public", {"unit": plan.unit.replace("_", " ")}))
    if private_sum.whole and rounds < private_sum.rounds:
        lines.append(Assumption("stopped_all_counted", stopped))
    elif rounds < private_sum.rounds:
        lines.append(Assumption("stopped_early", stopped))
    return lines


def _alternatives(plan: Plan, private_sum: PrivateSum, rounds: int) -> list[Alternative]:
    """The same run under other conventions."""
    found = [Alternative(name="this statement, by Rényi accounting", unit=plan.unit, method="rdp")]
    # limits on participation are a user's: groups are formed anew each round, and no virtual client has any
    if isinstance(private_sum.grouping, VirtualClients) and isinstance(private_sum.sampler, Poisson):
        client = private_sum.contributor_event(rounds)
        paper = "the paper's convention: neighbours differ in a whole virtual client (Xu et al. 2022)"
        found += [
            Alternative(name=f"{paper}, by Rényi accounting", unit="virtual_client", event=client, method="rdp"),
            Alternative(name=paper, unit="virtual_client", event=client),
        ]
    return found


ModelBuilder = Callable[[Any], nn.Module]
"""Builds the model from what is public of the data that an initial release decides (`InitialRelease.public`)."""

ContributionFactory = Callable[[nn.Module, Any, str, int], Contribution]
"""Builds a contribution from the model, the data, the device and the seed of fresh heads."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunSettings):
    """Where and how a run goes; fields with those of `RunSettings`. No result depends on them but where stated.

    Attributes:
        progress: True shows progress on stderr: a bar on a terminal, a line every ten seconds elsewhere. None shows
            such lines on a terminal, too; what takes less than ten seconds prints none. False shows nothing.
        callbacks: are called after rounds, measurements and checkpoints; see `sfumato.training.Callback`.
        about: JSON that describes the model and the data, kept in plan.json.
        budget: what the run may cost; a round beyond it is refused.
        negatives: public data whose classes join every client's head; for a plan with client.negatives.
        initial_release: what the run releases first, under the same ledger and statement, and what its data and its
            model
            follow from: a vocabulary (`PrivateVocabulary.initial_release`).
        task: what the data must be and how a model is measured, instead of the plan's own.
        contribution: builds what the cohort adds, instead of the plan's own way.
        optimizer: builds any torch optimiser from the parameters, instead of the plan's.
    """

    progress: bool | None = None
    callbacks: Sequence[Callback] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget | None = None
    negatives: Any = None
    initial_release: InitialRelease | None = None
    task: Task | None = None
    contribution: ContributionFactory | None = None
    optimizer: OptimizerFactory | None = None


@dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes:
        model: the trained copy of the user's module, in evaluation mode.
        statement: what it cost whom.
        history: rows of metrics.jsonl; what is private in them is under "not_private".
        head: the shared head [classes, d] where the plan has one.
        evaluation: of the untrained and the trained model on the test data, if any was given.
        finished: False if the run was asked to stop before its last round.
        folder: the run's folder, or None.
        trouble: why the model is of no use, a sentence; "" where nothing speaks against it. Not private: it follows
            from losses and counts without noise.
    """

    model: nn.Module
    statement: Statement
    history: list[dict[str, Any]]
    head: Tensor | None
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None
    trouble: str = ""


_NEGATIVES = "negatives_digest"  # in plan.json, with the path


def run_plan(
    plan: Plan,
    model: nn.Module | ModelBuilder,
    data: Any,
    *,
    validation: Any = None,
    test: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    options: RunOptions | None = None,
) -> Result:
    """Train, and report what it cost; arguments and errors as for `Plan.fit`."""
    options = options or RunOptions()
    if options.progress is None:
        begin()
    setup = set_up(plan, model, data, validation, test, options)
    begun = RunFolder(Path(out)) if resume and out is not None else None
    if begun is not None:
        setup = setup.as_started(begun.recorded(resume=True))
        _refuse_other_negatives(begun, setup.negatives)
    record = setup.record()
    if begun is not None:
        begun.refuse_another(record)
    share_cores()
    if options.prefix_cache is not None:
        _refuse_within_run(Path(options.prefix_cache), out)
        setup = with_frozen_features(setup, Path(options.prefix_cache), run=None if begun is None else begun.path)
    with Run.open(out, plan=record, seed=plan.seed, resume=resume, budget=options.budget) as run:
        return setup.go(run, resume=resume)


def try_out(
    plan: Plan,
    model: nn.Module | ModelBuilder,
    data: Any,
    *,
    validation: Any = None,
    test: Any = None,
    options: RunOptions | None = None,
) -> Contribution:
    """All that `run_plan` does before its first round; arguments, result and errors as for `Plan.try_out`.

    A model is measured on at most `_TRIED` records of each part, at even distances: that shows whether they fit.
    """
    options = options or RunOptions()
    setup = set_up(plan, model, data, _some(validation), _some(test), options)
    share_cores()
    if options.prefix_cache is not None:
        refuse_folder(Path(options.prefix_cache))
        refuse_uncut(setup)
    with Run.open(None, plan=setup.plan.to_json(), seed=plan.seed) as run:
        first, parts = setup.tried(run)
        first.measure_before(run, parts)
        return parts.contribution


def _some(data: Any) -> Any:
    """At most `_TRIED` of its records, or users who have about as many."""
    if data is None or not hasattr(data, "subset"):
        return data
    sizes = getattr(data, "sizes", np.ones(len(data)))
    count = max(_FEWEST_TRIED, int(_TRIED / max(1.0, float(sizes.mean())))) if len(data) else 0
    return data if len(data) <= count else data.subset(np.arange(count) * len(data) // count)


def set_up(
    plan: Plan, model: nn.Module | ModelBuilder, data: Any, validation: Any, test: Any, options: RunOptions
) -> Setup:
    """What stays the same while a run goes on; refuses data of no use."""
    task, initial_release, negatives = options.task or plan.default_task(), options.initial_release, options.negatives
    data_sets = {"data": data, "validation": validation, "test": test, "negatives": negatives}
    for name, given in data_sets.items():
        _refuse_arrays(given, name, plan.unit)
    if negatives is not None:
        if options.contribution is not None:
            raise InputError("give negatives or a contribution of your own, not both")
        negatives = plan.with_negatives(negatives, data)
    _refuse_other_model(model, initial_release)
    if initial_release is not None and initial_release.unit != plan.unit:
        raise InputError(
            f"the initial release ({initial_release.phase}) has the unit {initial_release.unit}, and the plan "
            f"{plan.unit}; give both the same one"
        )
    task.check(data)
    if not isinstance(model, nn.Module):
        plan.refuse_found(getattr(data, "found", ()))
    population = plan.public_population(data)
    resolved = plan.for_population(population)
    return Setup(
        plan=resolved,
        population=population,
        task=task,
        model=model,
        data=data,
        validation=validation,
        test=test,
        options=options,
        callback=Callbacks(options.callbacks),
        negatives=negatives,
        initial_release=None if initial_release is None else initial_release.resolved(resolved.delta_for(population)),
    )


@dataclass(frozen=True)
class Parts:
    """What a run is put together from, at its start."""

    private_sum: PrivateSum
    contribution: Contribution
    theta: Tensor
    frozen: dict[str, Tensor]
    server: Server


@dataclass(frozen=True)
class Setup:
    """What stays the same while a run goes on.

    Attributes:
        plan: resolved for the population.
        population: public number of units.
        task: how a model is measured.
        model: the module; with an initial release, what builds it.
        data, validation, test: the records; with an initial release, as they are before it.
        options: of the run.
        callback: all callbacks as one.
        initial_release: what is released before the first round, resolved for the plan's δ.
        negatives: public examples that join the records, as `Plan.with_negatives` made them.
        joined: where the model is the trained part of a larger one and the records have gone through the rest of it
            (`training.frozen_features`), puts a trained copy into the whole, which is released.
        frozen: tensors of that rest, kept for a run that goes on.
    """

    plan: Plan
    population: int
    task: Task
    model: nn.Module | ModelBuilder
    data: Any
    validation: Any
    test: Any
    options: RunOptions
    callback: Callback
    initial_release: InitialRelease | None = None
    negatives: Any = None
    joined: Callable[[nn.Module], nn.Module] | None = None
    frozen: dict[str, Tensor] = field(default_factory=dict)

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        """With what searches found as the run has it that recorded this in its plan.json."""
        initial_release, found = self.initial_release, (recorded.get("about") or {}).get("opening")
        if initial_release is not None and isinstance(found, dict):
            initial_release = initial_release.as_started(found)
        return replace(self, plan=self.plan.as_started(recorded, self.population), initial_release=initial_release)

    def record(self) -> dict[str, Any]:
        """What plan.json holds."""
        about = {**self.options.about, **({} if self.initial_release is None else self.initial_release.about())}
        if self.negatives is not None:
            about[_NEGATIVES] = self.negatives.fingerprint()
        return {**self.plan.to_json(), "about": about}

    def tried(self, run: Run) -> tuple[Self, Parts]:
        """The parts with which the run is tried out and recognised, and the set-up that they are of.

        Without an initial release they are those that train; with one they are of what it could release.
        """
        if self.initial_release is None:
            return self, self._parts(run)
        if text := self.initial_release.warning(self.population):
            warnings.warn(text, stacklevel=2)
        first = self._after(self.initial_release.placeholder)
        parts = first._parts(run)
        adjacency = parts.private_sum.sampler.adjacency
        entry, cost = parts.private_sum.entry(0), self.initial_release.event(adjacency)
        run.between(adjacency)
        events = [cost] if entry is None else [cost, entry]
        run.refuse_unaffordable(f"the {self.initial_release.phase} and a first round", *events)
        return first, parts

    def _after(self, found: Any) -> Self:
        """As it goes on after the initial release has released this."""
        initial_release = self.initial_release
        assert initial_release is not None
        data, validation, test = (
            None if each is None else initial_release.prepare(found, each)
            for each in (self.data, self.validation, self.test)
        )
        options = replace(self.options, about={**self.options.about, **initial_release.about(found)})
        return replace(self, data=data, validation=validation, test=test, options=options)

    @property
    def _negatives(self) -> dict[str, Any]:
        return {} if self.negatives is None else {"negatives": self.negatives}

    def _shows(self, run: Run) -> bool | None:
        """How this process shows progress."""
        return self.options.progress if run.team.leads else False

    def _module(self) -> nn.Module:
        if self.initial_release is None:
            assert isinstance(self.model, nn.Module)
            return self.model
        made = self.model(self.initial_release.public(self.data))
        if not isinstance(made, nn.Module):
            raise InputError(f"the function that builds the model must return a torch module, got {made!r:.80}")
        return made

    def _parts(self, run: Run) -> Parts:
        """Everything that a round needs; refuses what does not fit together."""
        plan, population, team = self.plan, self.population, run.team
        plan.refuse_unready(population)
        private_sum = plan.private_sum(population)
        contribute = self.options.contribution or partial(plan.contribution, **self._negatives)
        model = self._module()
        try:
            contribution = contribute(model, self.data, self.options.device, run.source.seed64("initial head"))
        except InputError as error:
            if self.initial_release is None:
                raise
            raise InputError(f"{error} (it has to be built from the data that the function is given)") from None
        trained = contribution.trained
        private_sum.bound.groups(trained.layout.names)  # refuses a bound that does not fit this model
        private_sum.sampler.draw(contribution.population, 0, run.source)  # refuses units that it was not planned for
        theta = team.broadcast(trained.initial.clone())
        frozen = {name: team.broadcast(tensor) for name, tensor in trained.frozen().items()}
        trained.load_frozen(frozen)
        optimizer = self.options.optimizer or plan.optimizer_for(private_sum)
        server = _server(plan, optimizer, trained.views(theta), theta, private_sum.rounds)
        if trained.tables:
            if team.size > 1:
                raise InputError(f"tables train in one process, got {team.size}; start one, or use tables=dense")
            trained.tables.start(server.row_steps(), private_sum.mechanism)
        return Parts(private_sum, contribution, theta, frozen, server)

    def measure_before(self, run: Run, parts: Parts) -> None:
        """Refuse data to measure on that are of no use."""
        self._measure(run, parts.contribution, parts.theta)
        validate = self._validator(run, parts.contribution)
        if validate is not None:
            validate(0)

    def go(self, run: Run, *, resume: bool) -> Result:
        """The run: what is released before the rounds, and the rounds."""
        try:
            with bar("checking model and data", visible=self._shows(run)):
                first, parts = self.tried(run)
        except Coupled as error:
            if not resume:
                raise
            raise Coupled(
                f"{error}. This run began without this check and cannot go on; start a new one (its ledger, "
                "metrics and statement stay)"
            ) from None
        fingerprint = first._fingerprint(parts)
        run.team.refuse_difference(fingerprint)
        saved = run.saved(fingerprint) if resume else None
        if self.initial_release is None:
            with parts.contribution.trained.tables.erased_on_error():
                return self._train(run, parts, saved, fingerprint)
        if saved is None or self.initial_release.phase not in saved.phases:
            first.measure_before(run, parts)
            run.start(fingerprint)
            fingerprint = None
        adjacency = parts.private_sum.sampler.adjacency
        del first, parts  # before others of a larger model are made
        after = self._after(self.initial_release.release(run, self.data, adjacency))
        try:
            parts = after._parts(run)
        except InputError as error:
            raise InputError(
                f"{error} (the {self.initial_release.phase} is released and what it cost is spent)"
            ) from None
        with parts.contribution.trained.tables.erased_on_error():
            return after._train(run, parts, saved, fingerprint)

    def _train(self, run: Run, parts: Parts, saved: Checkpoint | None, fingerprint: str | None) -> Result:
        """The rounds and what they leave; a fingerprint starts the run, None finds it started."""
        plan, callback = self.plan, self.callback
        population, private_sum, contribution = self.population, parts.private_sum, parts.contribution
        theta, server = parts.theta, parts.server
        trained = contribution.trained
        loop = Loop(
            private_sum=private_sum,
            contribution=contribution,
            server=server,
            theta=theta,
            run=run,
            phase=None if self.initial_release is None else ROUNDS,
            callback=callback,
        )
        begun = saved is not None and bool(saved.state)
        if begun:
            trained.load_frozen({name: t for name, t in run.frozen().items() if name not in self.frozen})
        if saved is not None:
            loop.resume(saved)
        done_before = loop.finished
        # Before anything is written, so that a test set of no use leaves no folder behind.
        visible = self._shows(run)
        with bar("measuring the untrained model", visible=visible):
            untrained = self._measure(run, contribution, theta) if loop.round == 0 else None
        delta = plan.delta_for(population)
        if fingerprint is not None:
            run.start(fingerprint)
        if not begun:
            run.keep_frozen({**self.frozen, **parts.frozen})
        cost = CostSoFar(private_sum, delta, before_rounds(run.spent(), private_sum, loop.round))
        display = Display(
            private_sum.rounds, loop.round, visible=visible, headline=self.task.headline, planned=cost.planned
        )
        callback.on_start(plan.to_json(), private_sum.rounds, loop.round)
        with display:
            if untrained:
                self._keep(run, "untrained", untrained)
            loop.rounds(
                self.options,
                epsilon_so_far=cost.after,
                evaluate=self._validator(run, contribution),
                show=display.show,
            )
        final = server.released(theta)
        facts = facts_of(
            plan,
            private_sum,
            rounds=loop.round,
            population=population,
            delta=delta,
            initial_release=self.initial_release,
            data_assumptions=[
                *([BUILT] if getattr(self.data, "found", ()) else []),
                *self.task.assumptions(self.data),
                *contribution.assumptions(),
                *([] if self.negatives is None else [self.negatives.assumption()]),
                *callback.assumptions(),
            ],
        )
        released, model = self._released(trained, final)
        public = {name: self.options.about[name] for name in plan.model_fields if name in self.options.about}
        with bar("statement", visible=visible):
            statement = run.finish(released, facts, metadata=public, complete=loop.finished)
        evaluation = run.folder.evaluation() if run.folder is not None else {}
        if untrained:
            evaluation["untrained"] = untrained
        measured = done_before and "trained" in evaluation  # and kept: a finished run is not measured again
        with bar("measuring the trained model", visible=visible):
            if loop.finished and not measured and (row := self._measure_or_warn(run, contribution, final)):
                evaluation["trained"] = row
                if trouble(None, evaluation):
                    row["likely_cause"] = likely_cause(private_sum, theta.numel(), evaluation)
                self._keep(run, "trained", row)
                self._keep_monitored(run, contribution, final, evaluation)
        result = Result(
            model=model,
            statement=statement,
            history=run.history,
            head=released.get(HEAD),
            evaluation=evaluation,
            finished=loop.finished,
            folder=None if run.folder is None else run.folder.path,
            trouble=trouble(columns(run.history), evaluation),
        )
        callback.on_end(result)
        return result

    def _released(self, trained: Trainable, theta: Tensor) -> tuple[dict[str, Tensor], nn.Module]:
        """Tensors and module of the whole model."""
        tensors, model = trained.released(theta), trained.released_model(theta, final=True)
        if self.joined is None:
            return tensors, model
        whole = self.joined(model)
        state = {name: value.detach().cpu().clone() for name, value in whole.state_dict().items()}
        return {**state, **tensors}, whole

    def _fingerprint(self, parts: Parts) -> str:
        plan, initial_release = json.dumps(self.plan.to_json(), sort_keys=True), self.initial_release
        whole = f"{plan} {parts.server.describe()} {parts.contribution.fingerprint()}"
        return hashlib.sha256(
            (whole if initial_release is None else f"{whole} {initial_release.fingerprint()}").encode()
        ).hexdigest()

    def _validator(self, run: Run, contribution: Contribution) -> Callable[[int], dict[str, Any]] | None:
        if self.validation is None:
            return None

        def measure(_: int) -> dict[str, Any]:
            if not run.team.leads:
                return {}
            row = self.task.measure(
                contribution.trained.model, self.validation, curve=False, device=self.options.device
            )
            return {"evaluation": "validation", **row}

        return measure

    def _measure(self, run: Run, contribution: Contribution, theta: Tensor) -> dict[str, Any] | None:
        if self.test is None or not run.team.leads:
            return None
        return self._measured(contribution, theta, self.test)

    def _measured(self, contribution: Contribution, theta: Tensor, users: Any) -> dict[str, Any]:
        model = contribution.trained.released_model(theta)
        with contribution.trained.tables.as_released():
            return self.task.measure(model, users, curve=True, device=self.options.device)

    def _measure_or_warn(self, run: Run, contribution: Contribution, theta: Tensor) -> dict[str, Any] | None:
        """A model that has collapsed cannot be measured; that must not cost the run its files."""
        try:
            return self._measure(run, contribution, theta)
        except InputError as error:
            warnings.warn(f"the trained model could not be measured: {error}", stacklevel=2)
            return None

    def _keep_monitored(self, run: Run, contribution: Contribution, theta: Tensor, evaluation: dict[str, Any]) -> None:
        """Measure users who took part, where the task asks for them."""
        users = who_took_part(self.task, self.data, self.test)
        if users is None:
            return
        try:
            evaluation[MONITORED] = marked(self._measured(contribution, theta, users), users)
        except InputError as error:
            warnings.warn(f"people who took part could not be measured: {error}", stacklevel=2)
            return
        self._keep(run, MONITORED, evaluation[MONITORED])

    def _keep(self, run: Run, name: str, row: dict[str, Any]) -> None:
        if run.folder is not None and run.team.leads:
            run.folder.add_evaluation(name, row, self.task.about_test(self.test, row))


def _server(plan: Plan, make: OptimizerFactory, views: list[Tensor], theta: Tensor, rounds: int) -> Server:
    decay = plan.server.ema_decay
    return Server(
        make,
        views,
        schedule=plan.server.rate_schedule(rounds),
        average=None if decay is None else MovingAverage(theta, decay=decay),
    )


# A run that goes on after the frozen first layers of its model.


def with_frozen_features(setup: Setup, folder: Path, *, run: Path | None) -> Setup:
    """The run on what the frozen layers make of its records, with the rest of its model; it releases the whole.

    Of several processes, the first one makes what is not there yet, and the others wait for it.

    Args:
        setup: on the records themselves.
        folder: where rows are kept.
        run: the folder of a run that goes on: its frozen layers count, whatever the model begins with.

    Raises:
        InputError: as `cut_for` and `PrefixCache`; or the plan or an initial release change the records during the run.
    """
    if run is not None and isinstance(setup.model, nn.Module):
        checkpoint, model = RunFolder(run).checkpoint, copied(setup.model)
        if (checkpoint / FROZEN).exists():  # where it is not, the run reports it
            try:
                model.load_state_dict(load_frozen(checkpoint), strict=False)
            except RuntimeError:
                raise InputError(
                    f"the checkpoint in {run} is from a model of other shapes; resume with the same one, or choose "
                    "another folder"
                ) from None
        setup = replace(setup, model=model)
    halves = refuse_uncut(setup)
    with (
        _of_the_run(run),
        _in_turn() as leads,
        bar("records through the frozen layers", visible=setup.options.progress if leads else False) as show,
    ):
        cache = PrefixCache(folder, halves, device=setup.options.device, progress=lambda _, done, of: show(done, of))
        parts = {
            name: None if given is None else cache.through(given, name)
            for name, given in {"data": setup.data, "validation": setup.validation, "test": setup.test}.items()
        }
        negatives = setup.negatives
        if negatives is not None:
            negatives = negatives.through(lambda given: cache.through(given, "negatives"))
    return replace(
        setup,
        model=halves.rest,
        joined=halves.joined,
        frozen=halves.frozen(),
        negatives=negatives,
        callback=_OfTheWhole(setup.callback, halves.joined),
        **parts,
    )


def refuse_uncut(setup: Setup) -> Split:
    """The model of a run in two.

    Raises:
        InputError: it cannot be cut, or something before the cut changes in every round.
    """
    setup.plan.refuse_prefix()
    if setup.initial_release is not None:
        raise InputError(
            f"the {setup.initial_release.phase} is released before the records are known, so nothing of them can be "
            "kept before; leave out prefix_cache (--prefix-cache)"
        )
    assert isinstance(setup.model, nn.Module)
    return cut_for(setup.model, setup.plan.trainable, setup.data, setup.options.device)


class _OfTheWhole(Callback):
    """A callback that gets the whole model where a part of it is trained.

    Args:
        inner: that callback.
        joined: puts a trained part into the whole.
    """

    def __init__(self, inner: Callback, joined: Callable[[nn.Module], nn.Module]) -> None:
        self._inner, self._joined = inner, joined
        self.on_start, self.on_round, self.on_checkpoint = inner.on_start, inner.on_round, inner.on_checkpoint
        self.on_end, self.assumptions = inner.on_end, inner.assumptions

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        """With the whole."""
        self._inner.on_evaluation(row, self._joined(model))


@contextmanager
def _of_the_run(run: Path | None) -> Iterator[None]:
    """Report of a cache that is of no use that a run which goes on would refuse another one, too."""
    try:
        yield
    except InputError as error:
        if run is None:
            raise
        raise InputError(f"{error}; the run in {run} goes on with the layers and records that it began with") from None


@contextmanager
def _in_turn() -> Iterator[bool]:
    """The first process of a team alone, then the others; yields whether this is the first."""
    team = Team()
    try:
        if not team.leads:
            team.from_leader(None)
        yield team.leads
        if team.leads:
            team.from_leader(None)
    finally:
        team.close()


def _refuse_other_model(model: Any, initial_release: InitialRelease | None) -> None:
    """Refuse a module that is there before what decides its size, and a function where nothing calls it."""
    if initial_release is not None and (isinstance(model, nn.Module) or not callable(model)):
        raise InputError(
            f"the model is built after the {initial_release.phase} is released: give a function of the data, "
            f"lambda data: models.lstm(vocabulary_size=data.num_classes), got {type(model).__name__}"
        )
    if initial_release is None and not isinstance(model, nn.Module):
        remedy = "a function that builds one is for a run with an initial release"
        if isinstance(model, type):
            remedy = f"make one of the class: {model.__name__}()"
        raise InputError(f"model must be a torch module, got {type(model).__name__}; {remedy}")


def _refuse_other_negatives(folder: RunFolder, negatives: Any) -> None:
    """Refuse to go on with other public examples than before."""
    if negatives is None:
        return
    then, now = (folder.read_plan().get("about") or {}).get(_NEGATIVES), negatives.fingerprint()
    if then not in (None, now):
        raise InputError(
            f"the negatives differ from those of the run in {folder.path} (SHA-256 {then[:12]}… then, "
            f"{now[:12]}… now); give the same again (--negatives), or start a new run"
        )


def _refuse_within_run(prefix_cache: Path, out: str | Path | None) -> None:
    """Refuse private rows within the folder of a run."""
    if out is not None and prefix_cache.resolve().is_relative_to(Path(out).resolve()):
        raise InputError(
            f"prefix_cache must lie outside of the run's folder, got {prefix_cache} in {out}: its rows are as "
            "private as the records; name another (--prefix-cache)"
        )


def _refuse_arrays(data: Any, name: str, unit: str) -> None:
    """Refuse what other libraries train on: it does not define what one unit is, or how often a loader shows it."""
    if not isinstance(data, tuple | list | dict | np.ndarray | Tensor | DataLoader | Dataset):
        return
    if unit in ("example", "label"):
        remedy = (
            "make a data set with sfumato.data.examples_from_arrays(x, y, num_classes=…), or train in a loop of your "
            "own with plan.open(model, optimizer, dataset)"
        )
    else:
        remedy = "make a data set of users with sfumato.data.from_arrays"
    raise InputError(f"{name} must be a data set of sfumato, got {type(data).__name__}; {remedy}")
