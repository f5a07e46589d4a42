"""The course of one training run: from its parts and their trial to the released files.

Without an opening: the parts are made and checked, the first file is written, the rounds run. With one
(`training.opening`): the parts are made of what it could release and are tried out; only then does the run start and
release; the parts that train are made of what it released.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from torch import Tensor, nn

from sfumato._check import InputError
from sfumato.data.domain import BUILT
from sfumato.guard import Coupled
from sfumato.runs import Checkpoint, Run
from sfumato.training.contribution import Contribution
from sfumato.training.facts import facts_of
from sfumato.training.loop import Cadence, Loop
from sfumato.training.moving_average import MovingAverage
from sfumato.training.opening import ROUNDS, Opening
from sfumato.training.plan import ContributionFactory, Plan
from sfumato.training.private_sum import PrivateSum
from sfumato.training.result import Result
from sfumato.training.server import OptimizerFactory, Server
from sfumato.training.task import Task
from sfumato.training.told.callback import Callback
from sfumato.training.told.cost_so_far import CostSoFar, before_rounds
from sfumato.training.told.display import Display
from sfumato.training.told.learned import columns, trouble
from sfumato.training.told.seen import SEEN, marked, who_took_part
from sfumato.training.trainable import HEAD, Trainable

ModelBuilder = Callable[[Any], nn.Module]
"""Builds the model where an opening decides the data to train on: from what is public of these (`Opening.public`)."""


@dataclass(frozen=True)
class Parts:
    """What a run is put together from, at its start."""

    private_sum: PrivateSum
    contribution: Contribution
    theta: Tensor
    frozen: dict[str, Tensor]
    server: Server


@dataclass(frozen=True)
class Course:
    """What stays the same while a run goes on.

    Attributes:
        plan: decided for the population.
        population: public number of units.
        task: how a model is measured.
        model: the module; with an opening, what builds it.
        data, validation, test: the records; with an opening, as they are before it.
        about: JSON for plan.json and the released model's file.
        device: where to train.
        contribute, optimizer: what is used instead of the plan's own way.
        opening: what is released before the first round.
        negatives: public examples beside the records, as `Plan.negatives_of` has made them of what was given.
        joined: where the model is the trained part of a larger one and the records are behind the rest of it
            (`training.prefix`), puts a trained copy into the whole, which is released.
        beside: tensors of that rest, kept for a run that goes on.
    """

    plan: Plan
    population: int
    task: Task
    model: nn.Module | ModelBuilder
    data: Any
    validation: Any
    test: Any
    about: dict[str, Any]
    device: str
    contribute: ContributionFactory | None = None
    optimizer: OptimizerFactory | None = None
    opening: Opening | None = None
    negatives: Any = None
    joined: Callable[[nn.Module], nn.Module] | None = None
    beside: dict[str, Tensor] = field(default_factory=dict)

    def as_begun(self, recorded: Mapping[str, Any]) -> Self:
        """With what searches found as the run has it that recorded this in its plan.json."""
        opening, told = self.opening, (recorded.get("about") or {}).get("opening")
        if opening is not None and isinstance(told, dict):
            opening = opening.as_begun(told)
        return replace(self, plan=self.plan.as_begun(recorded, self.population), opening=opening)

    def rehearsed(self, run: Run) -> tuple[Self, Parts]:
        """The parts with which the run is tried out and told from others, and of which course they are.

        Without an opening they are those that train; with one they are of what it could release.
        """
        if self.opening is None:
            return self, self._parts(run)
        if told := self.opening.outlook(self.population):
            warnings.warn(told, stacklevel=2)
        first = self._after(self.opening.rehearsal)
        parts = first._parts(run)
        adjacency = parts.private_sum.sampler.adjacency
        entry, cost = parts.private_sum.entry(0), self.opening.event(adjacency)
        run.between(adjacency)
        events = [cost] if entry is None else [cost, entry]
        run.refuse_unaffordable(f"the {self.opening.phase} and a first round", *events)
        return first, parts

    def _after(self, found: Any) -> Self:
        """The course as it goes on after the opening has released this."""
        opening = self.opening
        assert opening is not None
        data, validation, test = (
            None if each is None else opening.prepare(found, each) for each in (self.data, self.validation, self.test)
        )
        about = {**self.about, **opening.about(found)}
        return replace(self, data=data, validation=validation, test=test, about=about)

    def _module(self) -> nn.Module:
        if self.opening is None:
            assert isinstance(self.model, nn.Module)
            return self.model
        made = self.model(self.opening.public(self.data))
        if not isinstance(made, nn.Module):
            raise InputError(f"the function that builds the model must return a torch module, got {made!r:.80}")
        return made

    def _parts(self, run: Run) -> Parts:
        """Everything that a round needs; refuses what does not fit together."""
        plan, population, team = self.plan, self.population, run.team
        plan.refuse_unready(population)
        private_sum = plan.private_sum(population)
        contribute = self.contribute or plan.contribution
        if self.negatives is not None:
            contribute = plan.beside(self.negatives)
        model = self._module()
        try:
            contribution = contribute(model, self.data, self.device, run.source.seed64("initial head"))
        except InputError as error:
            if self.opening is None:
                raise
            raise InputError(f"{error} (it has to be built from the data that the function is given)") from None
        trained = contribution.trained
        private_sum.bound.groups(trained.layout.names)  # refuses a bound that does not fit this model
        private_sum.sampler.draw(contribution.population, 0, run.source)  # refuses units that it was not planned for
        theta = team.broadcast(trained.initial.clone())
        frozen = {name: team.broadcast(tensor) for name, tensor in trained.frozen().items()}
        trained.load_frozen(frozen)
        server = _server(plan, self.optimizer or plan.server, trained.views(theta), theta, private_sum.rounds)
        return Parts(private_sum, contribution, theta, frozen, server)

    def measure_before(self, run: Run, parts: Parts) -> None:
        """Refuse data to measure on that are of no use."""
        self._measure(run, parts.contribution, parts.theta)
        validate = self._validator(run, parts.contribution)
        if validate is not None:
            validate(0)

    def go(self, run: Run, cadence: Cadence, *, resume: bool, progress: bool, callback: Callback) -> Result:
        """The whole of it."""
        try:
            first, parts = self.rehearsed(run)
        except Coupled as error:
            if not resume:
                raise
            raise Coupled(
                f"{error}. This run was begun without this check and cannot go on; its ledger, its metrics and a "
                "statement that it has stay as they are"
            ) from None
        fingerprint = first._fingerprint(parts)
        run.team.refuse_difference(fingerprint)
        saved = run.saved(fingerprint) if resume else None
        if self.opening is None:
            return self._train(run, parts, saved, fingerprint, cadence, progress=progress, callback=callback)
        if saved is None or self.opening.phase not in saved.phases:
            first.measure_before(run, parts)
            run.start(fingerprint)
            fingerprint = None
        adjacency = parts.private_sum.sampler.adjacency
        del first, parts  # before others of a larger model are made
        course = self._after(self.opening.release(run, self.data, adjacency))
        try:
            parts = course._parts(run)
        except InputError as error:
            raise InputError(f"{error} (the {self.opening.phase} is released and what it cost is spent)") from None
        return course._train(run, parts, saved, fingerprint, cadence, progress=progress, callback=callback)

    def _train(
        self,
        run: Run,
        parts: Parts,
        saved: Checkpoint | None,
        fingerprint: str | None,
        cadence: Cadence,
        *,
        progress: bool,
        callback: Callback,
    ) -> Result:
        """The rounds and what they leave; a fingerprint starts the run, None finds it started."""
        plan, team = self.plan, run.team
        population, private_sum, contribution = self.population, parts.private_sum, parts.contribution
        theta, server = parts.theta, parts.server
        trained = contribution.trained
        loop = Loop(
            private_sum=private_sum,
            contribution=contribution,
            server=server,
            theta=theta,
            run=run,
            phase=None if self.opening is None else ROUNDS,
            callback=callback,
        )
        begun = saved is not None and bool(saved.state)
        if begun:
            trained.load_frozen({name: t for name, t in run.frozen().items() if name not in self.beside})
        if saved is not None:
            loop.resume(saved)
        done_before = loop.finished
        # Before anything is written, so that a test set of no use leaves no folder behind.
        untrained = self._measure(run, contribution, theta) if loop.round == 0 else None
        delta = plan.delta_for(population)
        visible = progress and team.leads
        if fingerprint is not None:
            run.start(fingerprint)
        if not begun:
            run.keep_frozen({**self.beside, **parts.frozen})
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
            opening=self.opening,
            data_assumptions=[
                *([BUILT] if getattr(self.data, "found", ()) else []),
                *self.task.assumptions(self.data),
                *contribution.assumptions(),
                *([] if self.negatives is None else [self.negatives.assumption()]),
                *callback.assumptions(),
            ],
        )
        released, model = self._released(trained, final)
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
        tensors, model = trained.released(theta), trained.released_model(theta)
        if self.joined is None:
            return tensors, model
        whole = self.joined(model)
        state = {name: value.detach().cpu().clone() for name, value in whole.state_dict().items()}
        return {**state, **tensors}, whole

    def _fingerprint(self, parts: Parts) -> str:
        plan, opening = json.dumps(self.plan.to_json(), sort_keys=True), self.opening
        told = f"{plan} {parts.server.describe()} {parts.contribution.fingerprint()}"
        return hashlib.sha256((told if opening is None else f"{told} {opening.fingerprint()}").encode()).hexdigest()

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


def _server(plan: Plan, make: OptimizerFactory, views: list[Tensor], theta: Tensor, rounds: int) -> Server:
    decay = plan.average_decay
    return Server(
        make,
        views,
        schedule=plan.rate_schedule(rounds),
        average=None if decay is None else MovingAverage(theta, decay=decay),
    )
