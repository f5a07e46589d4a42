"""Fitting a plan to data: one run, from the first check to the released files."""

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sfumato._check import InputError
from sfumato.accounting import Budget, Statement
from sfumato.runs import Run, share_cores
from sfumato.training.contribution import Contribution
from sfumato.training.facts import facts_of
from sfumato.training.loop import Cadence, Loop
from sfumato.training.moving_average import MovingAverage
from sfumato.training.plan import ContributionFactory, Plan
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import OptimizerFactory, Server
from sfumato.training.task import Task
from sfumato.training.told.callback import Callback, Callbacks
from sfumato.training.told.cost_so_far import CostSoFar, before_rounds
from sfumato.training.told.display import Display
from sfumato.training.told.learned import columns, trouble
from sfumato.training.told.seen import SEEN, marked, who_took_part
from sfumato.training.trainable import HEAD


@dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes:
        model: the trained copy of the user's module, in evaluation mode.
        statement: what it cost whom.
        history: rows of metrics.jsonl; what is private in them is under "not_private".
        head: the shared head [classes, d] where the plan has one.
        evaluation: of the untrained and the trained model on the test data, if any was given; "seen" is of the trained
            one on people who took part, for tasks that ask for it, and private.
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


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Plan):
    """A plan that trains a model by rounds of a private sum."""

    def fit(
        self,
        model: nn.Module,
        data: Any,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        validation: Any = None,
        test: Any = None,
        cadence: Cadence | None = None,
        progress: bool = False,
        server_optimizer: OptimizerFactory | None = None,
        about: dict[str, Any] | None = None,
        device: str = "cpu",
        budget: Budget | None = None,
        task: Task | None = None,
        contribution: ContributionFactory | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Train, and say what it cost.

        Args:
            model: any torch module that gives what the plan trains; it is copied, never changed.
            data: the private records.
            out: folder of the run; None keeps everything in memory.
            resume: go on from the checkpoint in `out`.
            validation: public data to measure during the run; what it shows is not covered by the guarantee.
            test: data to measure before the first and after the last round.
            cadence: when to evaluate and save.
            progress: show progress on stderr: a bar on a terminal, a line every half minute elsewhere.
            server_optimizer: builds any torch optimiser from the parameters, instead of the plan's by name.
            about: JSON that describes the model and the data, kept in plan.json.
            device: where to train.
            budget: what the run may cost; a round beyond it is refused.
            task: what the data must be and how a model is measured, instead of the plan's own.
            contribution: builds what the cohort adds, instead of the plan's own way.
            callbacks: are told of rounds, measurements and checkpoints; see `sfumato.training.Callback`.

        Raises:
            InputError: a mistake in the plan, the data or the folder; nothing is lost.
        """
        fit = self._fit(data, validation, test, about or {}, device, task)
        plan = fit.plan
        share_cores()
        with Run.open(
            out, plan={**plan.to_json(), "about": about or {}}, seed=plan.seed, resume=resume, budget=budget
        ) as run:
            parts = fit.parts(run, model, contribution or plan.contribution, server_optimizer or plan.server)
            return fit.go(
                run, parts, cadence or Cadence(), resume=resume, progress=progress, callback=Callbacks(callbacks)
            )

    def try_out(
        self,
        model: nn.Module,
        data: Any,
        *,
        validation: Any = None,
        test: Any = None,
        device: str = "cpu",
        task: Task | None = None,
        contribution: ContributionFactory | None = None,
    ) -> Contribution:
        """All that `fit` does before its first round, on the same model and data; nothing is trained or written.

        Args:
            model: as for `fit`, like the others.
            data: the private records.
            validation: as there; measured once.
            test: as there; measured once.
            device: where to train.
            task: instead of the plan's own.
            contribution: instead of the plan's own way.

        Returns:
            what a cohort would add.

        Raises:
            InputError: what `fit` would refuse before its first round.
        """
        fit = self._fit(data, validation, test, {}, device, task)
        share_cores()
        with Run.open(None, plan=fit.plan.to_json(), seed=self.seed) as run:
            parts = fit.parts(run, model, contribution or fit.plan.contribution, fit.plan.server)
            fit.measure_before(run, parts)
            return parts.contribution

    def _fit(
        self, data: Any, validation: Any, test: Any, about: dict[str, Any], device: str, task: Task | None
    ) -> "_Fit":
        """What stays the same while a run goes on; refuses data of no use."""
        task = task or self.default_task()
        for name, given in {"data": data, "validation": validation, "test": test}.items():
            _refuse_arrays(given, name, self.unit)
        task.check(data)
        population = self.public_population(data)
        return _Fit(self.for_population(population), population, task, data, test, validation, about, device)


@dataclass(frozen=True)
class _Parts:
    """What a run is put together from, at its start."""

    private_sum: PrivateSum
    contribution: Contribution
    theta: Tensor
    frozen: dict[str, Tensor]
    server: Server


@dataclass(frozen=True)
class _Fit:
    """What stays the same while a run goes on."""

    plan: Plan
    population: int
    task: Task
    data: Any
    test: Any
    validation: Any
    about: dict[str, Any]
    device: str

    def parts(self, run: Run, model: nn.Module, contribute: ContributionFactory, optimizer: OptimizerFactory) -> _Parts:
        """Everything that a round needs; refuses what does not fit together."""
        plan, population, team = self.plan, self.population, run.team
        plan.refuse_unready(population)
        private_sum = plan.private_sum(population)
        contribution = contribute(model, self.data, self.device, run.source.seed64("initial head"))
        trained = contribution.trained
        private_sum.bound.groups(trained.layout.names)  # refuses a bound that does not fit this model
        private_sum.sampler.draw(contribution.population, 0, run.source)  # refuses units that it was not planned for
        theta = team.broadcast(trained.initial.clone())
        frozen = {name: team.broadcast(tensor) for name, tensor in trained.frozen().items()}
        trained.load_frozen(frozen)
        server = _server(plan, optimizer, trained.views(theta), theta, private_sum.rounds)
        return _Parts(private_sum, contribution, theta, frozen, server)

    def measure_before(self, run: Run, parts: _Parts) -> None:
        """Refuse data to measure on that are of no use."""
        self._measure(run, parts.contribution, parts.theta)
        validate = self._validator(run, parts.contribution)
        if validate is not None:
            validate(0)

    def go(
        self, run: Run, parts: _Parts, cadence: Cadence, *, resume: bool, progress: bool, callback: Callback
    ) -> Result:
        """The whole of it."""
        plan, team = self.plan, run.team
        population, private_sum, contribution = self.population, parts.private_sum, parts.contribution
        theta, frozen, server = parts.theta, parts.frozen, parts.server
        trained = contribution.trained
        loop = Loop(
            private_sum=private_sum,
            contribution=contribution,
            server=server,
            theta=theta,
            run=run,
            callback=callback,
        )
        fingerprint = self._fingerprint(contribution, server)
        team.refuse_difference(fingerprint)
        if resume:
            saved = run.saved(fingerprint)
            trained.load_frozen(run.frozen())
            loop.resume(saved)
        done_before = loop.finished
        # Before anything is written, so that a test set of no use leaves no folder behind.
        untrained = self._measure(run, contribution, theta) if loop.round == 0 else None
        delta = plan.delta_for(population)
        visible = progress and team.leads
        run.start(fingerprint, frozen)
        cost = CostSoFar(private_sum, delta, before_rounds(run.spent(), private_sum, loop.round))
        display = Display(
            private_sum.rounds, loop.round, visible=visible, headline=self.task.headline, planned=cost.planned
        )
        callback.on_start(plan.to_json(), private_sum.rounds, loop.round)
        with display:
            if untrained:
                self._keep(run, "untrained", untrained)
            loop.rounds(
                cadence,
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
            data_assumptions=[*self.task.assumptions(self.data), *callback.assumptions()],
        )
        released = trained.released(final)
        public = {name: self.about[name] for name in plan.model_fields if name in self.about}
        statement = run.finish(released, facts, metadata=public, complete=loop.finished)
        evaluation = run.folder.evaluation() if run.folder is not None else {}
        if untrained:
            evaluation["untrained"] = untrained
        measured = done_before and "trained" in evaluation  # and kept: a finished run is not measured again
        if loop.finished and not measured and (row := self._measure_or_warn(run, contribution, final)):
            evaluation["trained"] = row
            self._keep(run, "trained", row)
            self._keep_seen(run, contribution, final, evaluation)
        result = Result(
            model=trained.released_model(final),
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

    def _fingerprint(self, contribution: Contribution, server: Server) -> str:
        plan = json.dumps(self.plan.to_json(), sort_keys=True)
        return hashlib.sha256(f"{plan} {server.describe()} {contribution.fingerprint()}".encode()).hexdigest()

    def _validator(self, run: Run, contribution: Contribution) -> Callable[[int], dict[str, Any]] | None:
        if self.validation is None:
            return None

        def measure(_: int) -> dict[str, Any]:
            if not run.team.leads:
                return {}
            row = self.task.measure(contribution.trained.model, self.validation, curve=False, device=self.device)
            return {"evaluation": "validation", **row}

        return measure

    def _measure(self, run: Run, contribution: Contribution, theta: Tensor) -> dict[str, Any] | None:
        if self.test is None or not run.team.leads:
            return None
        return self._measured(contribution, theta, self.test)

    def _measured(self, contribution: Contribution, theta: Tensor, people: Any) -> dict[str, Any]:
        model = contribution.trained.released_model(theta)
        return self.task.measure(model, people, curve=True, device=self.device)

    def _measure_or_warn(self, run: Run, contribution: Contribution, theta: Tensor) -> dict[str, Any] | None:
        """A model that has collapsed cannot be measured; that must not cost the run its files."""
        try:
            return self._measure(run, contribution, theta)
        except InputError as error:
            warnings.warn(f"the trained model could not be measured: {error}", stacklevel=2)
            return None

    def _keep_seen(self, run: Run, contribution: Contribution, theta: Tensor, evaluation: dict[str, Any]) -> None:
        """Measure people who took part, where the task asks for them."""
        people = who_took_part(self.task, self.data, self.test)
        if people is None:
            return
        try:
            evaluation[SEEN] = marked(self._measured(contribution, theta, people), people)
        except InputError as error:
            warnings.warn(f"people who took part could not be measured: {error}", stacklevel=2)
            return
        self._keep(run, SEEN, evaluation[SEEN])

    def _keep(self, run: Run, name: str, row: dict[str, Any]) -> None:
        if run.folder is not None and run.team.leads:
            run.folder.add_evaluation(name, row, self.task.about_test(self.test, row))


def _refuse_arrays(given: Any, name: str, unit: str) -> None:
    """Refuse what other libraries train on: it does not say what one unit is, or how often a loader shows it."""
    if not isinstance(given, tuple | list | dict | np.ndarray | Tensor | DataLoader | Dataset):
        return
    if unit == "example":
        remedy = (
            "make a data set with sfumato.data.examples_from_arrays(x, y, num_classes=…), or train in a loop of your "
            "own with plan.open(model, optimizer, dataset)"
        )
    else:
        remedy = "make a data set of users with sfumato.data.from_arrays"
    raise InputError(f"{name} must be a data set of sfumato, got {type(given).__name__}; {remedy}")


def _server(plan: Plan, make: OptimizerFactory, views: list[Tensor], theta: Tensor, rounds: int) -> Server:
    decay = plan.average_decay
    return Server(
        make,
        views,
        schedule=plan.rate_schedule(rounds),
        average=None if decay is None else MovingAverage(theta, decay=decay),
    )
