"""One run of a plan, from the first check to the released files."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import nn

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato._random import RandomSource
from sfumato.accounting import Ledger, Statement, guarantee
from sfumato.runs import checkpoint as checkpoints
from sfumato.runs.folder import RunFolder
from sfumato.runs.team import Team, share_cores
from sfumato.training.contribution import Contribution
from sfumato.training.loop import Cadence, Loop, Progress
from sfumato.training.moving_average import MovingAverage
from sfumato.training.progress import Display
from sfumato.training.server import OptimizerFactory, Server
from sfumato.training.statement import make_statement

if TYPE_CHECKING:
    from sfumato.training.plan import ContributionFactory, Measure, Plan


HEAD = "head.weight"
"""The released name of a shared head."""


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
    """

    model: nn.Module
    statement: Statement
    history: list[dict[str, Any]]
    head: torch.Tensor | None
    evaluation: dict[str, Any]
    finished: bool
    folder: Path | None


@dataclass(kw_only=True)
class Run:
    """Arguments as for `Plan.fit`."""

    plan: "Plan"
    model: nn.Module
    data: Any
    out: Path | None
    validation: Any
    test: Any
    cadence: Cadence
    show_progress: bool
    server_optimizer: OptimizerFactory
    measure: "Measure"
    contribute: "ContributionFactory"
    about: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def go(self, *, resume: bool) -> Result:
        """Run, or go on with a run."""
        share_cores()
        if resume and self.out is None:
            raise InputError("resume needs the folder of the run; give out")
        folder = None if self.out is None else RunFolder(self.out)
        team = Team()
        with ExitStack() as stack:
            stack.callback(team.close)
            if folder is not None:
                stack.callback(folder.release)
            stack.enter_context(torch.random.fork_rng(devices=[]))
            return self._go(team, folder, stack, resume=resume)

    def _go(self, team: Team, folder: RunFolder | None, stack: ExitStack, *, resume: bool) -> Result:
        population = self.plan.public_population(self.data)
        self.plan.refuse_unready(population)
        private_sum = self.plan.private_sum(population)
        if folder is not None and team.leads:
            folder.claim(resume=resume)
        source = self._source(team, folder, rounds=private_sum.rounds, resume=resume)
        contribution = self.contribute(self.model, self.data, self.device, source.seed64("initial head"))
        theta = team.broadcast(contribution.initial.clone())
        frozen = {name: team.broadcast(tensor) for name, tensor in contribution.frozen().items()}
        contribution.load_frozen(frozen)
        decay = self.plan.average_decay
        server = Server(
            self.server_optimizer,
            contribution.views(theta),
            schedule=self.plan.rate_schedule(private_sum.rounds),
            average=None if decay is None else MovingAverage(theta, decay=decay),
        )
        fingerprint = self._fingerprint(contribution, server)
        team.refuse_difference(fingerprint)
        progress = Progress(0, theta, private_sum.first_clip_norm)
        saved = self._restore(folder, fingerprint, progress, server, contribution) if resume and folder else None
        # Before anything is written, so that a test set of no use leaves no folder behind.
        untrained = self._measure(team, contribution, theta) if progress.round == 0 else None
        ledger = None
        if folder is not None and team.leads:
            if saved is None:
                self._begin(folder, source, contribution)
            # Whoever resumes repeats the rounds with the run's own key, so the key tells what is one release. Runs of
            # one seed may be many things, and have no identity.
            identity = source.stream("ledger").bytes(16).hex() if source.kind == "os" else None
            ledger = stack.enter_context(Ledger.open(folder.ledger, identity=identity))
            if saved is not None:
                self._rewind(ledger, saved)
                progress.history = folder.keep_metrics(saved.metrics_lines)
        loop = Loop(
            private_sum=private_sum,
            contribution=contribution,
            source=source,
            server=server,
            team=team,
            fingerprint=fingerprint,
            ledger=ledger,
            folder=folder,
        )
        if folder is not None and team.leads and untrained:
            self._keep(folder, "untrained", untrained)
        delta = self.plan.delta_for(population)
        event = private_sum.event()
        adjacency = private_sum.sampler.adjacency

        def epsilon_so_far(rounds: int) -> float | None:
            epsilon = guarantee(event * rounds, adjacency=adjacency, method="rdp").epsilon(delta)
            return round(epsilon, 6) if math.isfinite(epsilon) else None

        visible = self.show_progress and team.leads
        with Display(private_sum.rounds, progress.round, visible=visible, headline=self.plan.headline) as display:
            loop.run(
                progress,
                self.cadence,
                epsilon_so_far=epsilon_so_far,
                evaluate=self._validator(team, contribution),
                show=display.show,
                resumed=saved is not None,
            )
        contribution.load(server.released(progress.theta))
        statement = make_statement(
            self.plan,
            private_sum,
            event=ledger.event() if ledger is not None else event * progress.round,
            rounds=progress.round,
            population=population,
            delta=delta,
            noise_source=source.kind,
            data_assumptions=self.plan.data_assumptions(self.data),
        )
        finished = progress.round == private_sum.rounds
        released = contribution.state_dict()
        if folder is not None and team.leads:
            statement.save(folder.path / "statement.json")
            model = {name: self.about[name] for name in self.plan.model_fields if name in self.about}
            metadata = {"sfumato": json.dumps(model, sort_keys=True)}
            write_atomic(folder.model, lambda temporary: save_file(released, temporary, metadata))
            if finished:
                checkpoints.delete_key(folder.checkpoint)
        evaluation = folder.evaluation() if folder is not None else {}
        if untrained:
            evaluation["untrained"] = untrained
        if finished and (trained := self._measure_or_warn(team, contribution, server.released(progress.theta))):
            evaluation["trained"] = trained
            if folder is not None:
                self._keep(folder, "trained", trained)
        return Result(
            model=contribution.model.eval(),
            statement=statement,
            history=progress.history,
            head=released.get(HEAD),
            evaluation=evaluation,
            finished=finished,
            folder=self.out,
        )

    def _source(self, team: Team, folder: RunFolder | None, *, rounds: int, resume: bool) -> RandomSource:
        if self.plan.seed is not None:
            return RandomSource.from_seed(self.plan.seed)
        source = None
        if team.leads:
            key_kept = folder is not None and resume and not self._is_complete(folder, rounds)
            source = checkpoints.read_key(folder.checkpoint) if folder and key_kept else RandomSource.from_os()
        return team.from_leader(source)

    def _is_complete(self, folder: RunFolder, rounds: int) -> bool:
        return checkpoints.load(folder.checkpoint).round >= rounds

    def _begin(self, folder: RunFolder, source: RandomSource, contribution: Contribution) -> None:
        folder.start()
        folder.write_plan({**self.plan.to_json(), "about": self.about})
        checkpoints.write_key(folder.checkpoint, source)
        checkpoints.save_frozen(folder.checkpoint, contribution.frozen())

    def _restore(
        self,
        folder: RunFolder,
        fingerprint: str,
        progress: Progress,
        server: Server,
        contribution: Contribution,
    ) -> checkpoints.Checkpoint:
        saved = checkpoints.load(folder.checkpoint)
        if saved.fingerprint != fingerprint:
            raise InputError(
                f"the checkpoint in {folder.path} is from another plan, model or data set{self._difference(folder)}; "
                "resume with the same ones, or choose another folder"
            )
        frozen, _ = checkpoints.read_tensors(folder.checkpoint / checkpoints.FROZEN)
        contribution.load_frozen(frozen)
        progress.theta.copy_(saved.tensors["theta"])
        server.load(saved.tensors, saved.numbers)
        mine = {name: value for name, value in saved.numbers.items() if name.startswith("contribution.")}
        contribution.restore_settings({name.removeprefix("contribution."): value for name, value in mine.items()})
        progress.round = saved.round
        progress.clip_norm = saved.clip_norm
        return saved

    def _difference(self, folder: RunFolder) -> str:
        """Which fields of the plan differ, for the message."""
        then, now = folder.read_plan(), json.loads(json.dumps(self.plan.to_json()))
        changed = [f"{k} {then.get(k)} → {v}" for k, v in now.items() if then.get(k) != v]
        return f" ({', '.join(changed)})" if changed else ""

    def _rewind(self, ledger: Ledger, saved: checkpoints.Checkpoint) -> None:
        """Back to the checkpoint: the rounds after it are repeated with the same noise, and recorded again."""
        if len(ledger) < saved.ledger_entries:
            raise InputError(
                f"the ledger has {len(ledger)} entries but the checkpoint {saved.ledger_entries}: it was cut short; "
                "take a whole copy, or start a new run"
            )
        ledger.truncate(saved.ledger_entries)
        if ledger.head != saved.ledger_head:
            raise InputError("the ledger is not the one of the checkpoint; take the ledger.jsonl of this run")

    def _fingerprint(self, contribution: Contribution, server: Server) -> str:
        plan = json.dumps(self.plan.to_json(), sort_keys=True)
        return hashlib.sha256(f"{plan} {server.describe()} {contribution.fingerprint()}".encode()).hexdigest()

    def _validator(self, team: Team, contribution: Contribution) -> Callable[[int], dict[str, Any]] | None:
        validation = self.validation
        if validation is None:
            return None

        def measure(_: int) -> dict[str, Any]:
            if not team.leads:
                return {}
            row = self.measure(contribution.model, validation, curve=False, device=self.device)
            return {"evaluation": "validation", **row}

        return measure

    def _measure(self, team: Team, contribution: Contribution, theta: torch.Tensor) -> dict[str, Any] | None:
        if self.test is None or not team.leads:
            return None
        contribution.load(theta)
        return self.measure(contribution.model, self.test, curve=True, device=self.device)

    def _measure_or_warn(self, team: Team, contribution: Contribution, theta: torch.Tensor) -> dict[str, Any] | None:
        """A model that has collapsed cannot be measured; that must not cost the run its files."""
        try:
            return self._measure(team, contribution, theta)
        except InputError as error:
            warnings.warn(f"the trained model could not be measured: {error}", stacklevel=2)
            return None

    def _keep(self, folder: RunFolder, name: str, row: dict[str, Any]) -> None:
        folder.add_evaluation(name, row, self.plan.about_test(self.test, row))
