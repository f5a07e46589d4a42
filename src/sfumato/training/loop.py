"""The private-sum loop: sample, contribute, clip, add noise, step, record. The only one.

For every round, in this order: the cohort is drawn; it contributes, and its contributions are bounded; the sums of all
processes are put together; the cost is written to the ledger; only then is noise added and the sum used. The noisy sum
is divided by the planned number of contributions. An empty cohort goes the same way: it releases noise and takes a
step.

Everything random is a function of the run's key and the round, so a run that was killed and resumed from a checkpoint
repeats the rounds since then bit for bit: the same cohort, the same noise, the same ledger.

Rounds that are a phase of a run draw under its name and what they begin with, too: the model, what it computes and what
the contribution keeps with it, such as what an earlier phase has learned.
Between an earlier release and the first checkpoint of the loop nothing keeps these, so two copies of a run that was
killed there may go on with two models; under one noise, the difference of their first sums would leave without any.
The same holds of a run without phases that was killed before that checkpoint, while its untrained model was measured
for example: when it goes on, it draws so, too.

An initial release is what a run releases before its first round, as a phase of the run: its cost stands in the same
ledger, before the rounds, and one statement covers both. What it releases decides the data that the rounds see and the
size of the model; both are made after it. Until then the run is tried out with a placeholder, so that a mistake is
found before anything is spent.

An initial release answers in its docstring: which unit it protects and by how much that unit moves what it counts; who
is counted; what is released; and what happens where a run goes on.
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._types import Adjacency, Stated, Unit
from sfumato.accounting import Event
from sfumato.clipping import Tally
from sfumato.clipping.bounds import COUNT_SENSITIVITY
from sfumato.runs import Checkpoint, Run
from sfumato.runs.checkpoint import digest
from sfumato.training.cadence import Cadence
from sfumato.training.contribution import Contribution, ModelFingerprint, RoundContext, refuse_other
from sfumato.training.monitoring import Callback, Stop, Watch
from sfumato.training.private_sum import PrivateSum
from sfumato.training.server import Server

ROUNDS = "rounds"
"""What the ledger calls the rounds that come after an initial release."""


class InitialRelease(Protocol):
    """The first release of a run.

    Attributes:
        phase: its name in the ledger.
        unit: whom it protects; a plan that protects another unit is refused.
        words: how the statement words it, a phrase.
        assumptions: sentences that its guarantee rests on.
        placeholder: a value of the kind that it releases, from no record.
    """

    @property
    def phase(self) -> str: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def words(self) -> str: ...
    @property
    def assumptions(self) -> tuple[Stated, ...]: ...
    @property
    def placeholder(self) -> Any: ...

    def resolved(self, delta: float) -> Self:
        """With all settings that follow from the statement's δ.

        Raises:
            InputError: it does not go with this δ.
        """
        ...

    def as_started(self, recorded: Mapping[str, Any]) -> Self:
        """With what a search found in the run whose plan.json recorded this of the initial release."""
        ...

    def warning(self, population: int) -> str:
        """Why it will hardly release anything of use among so many units, from public numbers; "" for no reason."""
        ...

    def event(self, adjacency: Adjacency) -> Event:
        """What it costs one unit.

        Raises:
            InputError: it is not accounted for such neighbours.
        """
        ...

    def fingerprint(self) -> str:
        """Digest of the settings and of the private records, so that a run cannot go on with others."""
        ...

    def about(self, found: Any = None) -> dict[str, Any]:
        """JSON for plan.json; of what was found, for the file of the released model."""
        ...

    def release(self, run: Run, data: Any, adjacency: Adjacency) -> Any:
        """Release it, or read what a run that goes on has released.

        Args:
            run: has started, unless the phase is in its checkpoint.
            data: that the rounds train on; no one else is counted.
            adjacency: the run's.

        Raises:
            InputError: nothing of use was found; what that cost is spent.
        """
        ...

    def prepare(self, found: Any, data: Any) -> Any:
        """The data as they are after such a release: those to train on, to watch or to test on."""
        ...

    def public(self, data: Any) -> Any:
        """What is public of prepared data: a model is built from that, as its size and first weights are public."""
        ...


class Loop:
    """Runs the rounds of a `PrivateSum`; see the module.

    Args:
        private_sum: what happens in a round and what it costs.
        contribution: what the cohort adds.
        server: takes the step; writes through to `theta`.
        theta: parameter vector, float [size].
        run: key, ledger, metrics and checkpoints.
        phase: what the ledger calls these rounds, where the run releases more than them; they are drawn within it, so
            several loops of one run have different phases.
        callback: is called for what happens.
        last: False where the run goes on after these rounds.

    Attributes:
        round: rounds done.
        clip_norm: bound of the next round.
        stopped: whether somebody asked it to stop before the end.
    """

    def __init__(
        self,
        *,
        private_sum: PrivateSum,
        contribution: Contribution,
        server: Server,
        theta: Tensor,
        run: Run,
        phase: str | None = None,
        callback: Callback | None = None,
        last: bool = True,
    ) -> None:
        self.round = 0
        self.clip_norm = private_sum.bound.norm
        self.stopped = False
        self._resumed = False
        self._sum, self._contribution, self._server, self._theta = private_sum, contribution, server, theta
        self._run, self._phase, self._last = run, phase, last
        self._callback = callback or Callback()
        contribution.rounds = private_sum.rounds
        run.between(private_sum.sampler.adjacency)
        run.take_rounds(phase)
        self._memory: Tensor | None = None
        self._model_fingerprint: ModelFingerprint | None = None
        self._beginning: str | None = None
        self._by_beginning = phase is not None
        self._source = run.source
        self._evaluated_every = 0
        self._evaluated_before: int | None = None

    @property
    def finished(self) -> bool:
        """Whether all planned rounds have run."""
        return self.round == self._sum.rounds

    def rounds(
        self,
        cadence: Cadence,
        *,
        epsilon_so_far: Callable[[int], float | None] = lambda rounds: None,
        evaluate: Callable[[int], dict[str, Any]] | None = None,
        show: Callable[[dict[str, Any]], None] = lambda row: None,
    ) -> None:
        """Do the rounds that are left, or those until somebody asks to stop.

        Args:
            cadence: when to evaluate and save.
            epsilon_so_far: ε after so many rounds, for the metrics.
            evaluate: measures the model after a round; None for never.
            show: gets every row of the metrics.
        """
        saved_at, watch = time.monotonic(), Watch()
        self._evaluated_every = self._every(cadence) if evaluate else 0
        self._refuse_other_reads()
        if not self._resumed:
            self._begin()
            try:
                self._evaluate(cadence, evaluate, show)
            except Stop:
                self.stopped = True
            self._save()
        while not self.finished and not self.stopped:
            try:
                stop = self._round_and_row(watch, epsilon_so_far, show)
                self._evaluate(cadence, evaluate, show)
            except Stop:  # what a round had not released by then is dropped
                stop = True
            self.stopped = stop and not self.finished
            due = cadence.checkpoint_every and self.round % cadence.checkpoint_every == 0
            late = time.monotonic() - saved_at > 60 * cadence.checkpoint_minutes
            if due or late or self.finished or self.stopped:
                if self.finished or self.stopped:  # the model leaves: what goes on from here has the same noise in it
                    self._contribution.trained.tables.flush()
                self._save()
                saved_at = time.monotonic()

    def _round_and_row(
        self, watch: Watch, epsilon_so_far: Callable[[int], float | None], show: Callable[[dict[str, Any]], None]
    ) -> bool:
        """One round and its row of the metrics; whether a process was asked to stop."""
        started, clip_norm = time.monotonic(), self.clip_norm
        tally, stop = self._round()
        row = {
            **({} if self._phase in (None, ROUNDS) else {"phase": self._phase}),
            "round": self.round,
            "epsilon": epsilon_so_far(self.round),
            "clip_norm": clip_norm,
            "learning_rate": self._server.learning_rate,
            "cohort_planned": self._sum.grouping.clients,
            # How long a round takes reveals how many users took part.
            "not_private": {**tally.row(), "seconds": round(time.monotonic() - started, 4)},
        }
        self._note(row, show)
        if (line := watch.add(row)) and self._run.team.leads:
            warnings.warn(line, stacklevel=3)
        with self._contribution.trained.tables.tried_out():  # a model that a callback has kept reads no rows
            self._callback.on_round(row)
        return stop

    def resume(self, saved: Checkpoint) -> None:
        """Go on from a checkpoint; after one from before the loop began, it begins, and draws by what it begins with.

        Raises:
            InputError: the model or its loss computes something else than when the run began.
        """
        if not saved.state:
            self._by_beginning = True
            return
        then, now = saved.state["behaviour"], self._contribution.model_fingerprint()
        if then is not None and now is not None:
            refuse_other(then, now, processes_then=saved.state["processes"], processes_now=self._run.team.size)
        self._model_fingerprint = then
        self._draw_under(saved.state.get("beginning"))
        self._evaluated_before = saved.state.get("evaluated_every")
        self._resumed = True
        self.round, self.clip_norm = saved.state["round"], saved.state["clip_norm"]
        self._theta.copy_(saved.tensors["theta"])
        self._server.load(saved.tensors, saved.state["server"])
        self._contribution.restore_settings(saved.state["contribution"], _under("contribution.", saved.tensors))
        self._sum.mechanism.load(_under("mechanism.", saved.tensors))
        tables = self._contribution.trained.tables
        tables.load(_under("tables.", saved.tensors))
        if not saved.complete:  # another key would be another noise for what has left
            tables.source = self._source

    def _begin(self) -> None:
        """Take down what the rounds begin with."""
        if self._run.folder is None and not self._by_beginning:
            return
        self._model_fingerprint = self._contribution.model_fingerprint()
        if self._by_beginning:
            self._draw_under(self._run.team.from_leader(self._word_of_beginning()))

    def _word_of_beginning(self) -> str:
        """A digest of all that decides the sums except plan, data and key, which the run compares itself."""
        found = repr(self._model_fingerprint)
        if self._phase is None:
            found += json.dumps(self._contribution.settings(), sort_keys=True)
        if self._model_fingerprint is not None and self._model_fingerprint["draws"] and self._run.team.size > 1:
            found += f" in {self._run.team.size} processes"  # which divide the draws among them
        own = {f"contribution.{name}": tensor for name, tensor in self._contribution.tensors().items()}
        trained = self._contribution.trained
        tensors = {"theta": self._theta, **trained.frozen(), **trained.tables.first(), **own}
        return digest(found, {name: tensor.detach().cpu() for name, tensor in tensors.items()})

    def _draw_under(self, beginning: str | None) -> None:
        self._beginning = beginning
        run = self._run.source
        self._source = run if beginning is None else run.within(f"{self._phase or ROUNDS} {beginning}")

    def _save(self) -> None:
        if self._run.folder is None:
            return
        tensors, numbers = self._server.state()
        noise = {f"mechanism.{name}": tensor for name, tensor in self._sum.mechanism.state().items()}
        own = {f"contribution.{name}": tensor for name, tensor in self._contribution.tensors().items()}
        rows = {f"tables.{name}": tensor for name, tensor in self._contribution.trained.tables.state().items()}
        self._run.save(
            {"theta": self._theta, **tensors, **noise, **own, **rows},
            {
                "round": self.round,
                "clip_norm": self.clip_norm,
                "server": numbers,
                "contribution": self._contribution.settings(),
                "behaviour": self._model_fingerprint,
                "beginning": self._beginning,
                "evaluated_every": self._evaluated_every,
                "processes": self._run.team.size,
                "phase": self._phase,
            },
            complete=self.finished and self._last,
        )
        with self._contribution.trained.tables.tried_out():
            self._callback.on_checkpoint(self.round, self._run.folder.path)

    def _round(self) -> tuple[Tally, bool]:
        """One round: what is known of it privately, and whether a process was asked to stop."""
        index, clip_norm, source, team = self.round, self.clip_norm, self._source, self._run.team
        units = self._sum.sampler.draw(self._contribution.population, index, source)
        cohort = self._sum.grouping.group(units, index, source).take(team.part)
        trained = self._contribution.trained
        trained.tables.source = source
        share = self._contribution.clipped_sum(
            RoundContext(self._theta, cohort, index, self._sum.bound, clip_norm, source, self._memory)
        )
        total, tally = team.all_reduce(share.total), share.tally
        team.all_reduce(tally.values)
        stop = team.all_reduce(torch.tensor([float(self._run.asked_to_stop)])).item() > 0
        entry = self._sum.entry(index)
        if entry is not None:
            self._run.spend(entry, phase=self._phase, **self._sum.record(index, clip_norm))
        scale = self._sum.scale(clip_norm)
        if self._sum.mechanism.restarts(index):
            self._server.restart()
        noisy = self._sum.sum_mechanism(index).release(total, scale=scale, round=index, source=source)
        mean = noisy.div_(self._sum.grouping.clients)
        self._contribution.after_noise(mean, index, source)
        self._server.step(trained.views(mean), index)
        finite = trained.tables.step(
            share,
            round=index,
            denominator=self._sum.grouping.clients,
            noise_std=self._sum.sum_mechanism(index).noise_std(scale),
            selection=0.0 if self._sum.selection is None else self._sum.selection_multiplier,
        )
        self._memory = total  # fresh memory of a large model's size costs more than the step
        # Least and largest in one pass; NaN passes through both.
        if not finite or not all(torch.isfinite(end) for end in torch.aminmax(self._theta)):
            raise InputError(
                f"the model became NaN or infinite in round {index + 1}; start a new run with a lower server "
                "learning rate or less noise (this cost counts)"
            )
        self.clip_norm = self._next_clip_norm(index, clip_norm, tally)
        self.round = index + 1
        return tally, stop

    def _next_clip_norm(self, index: int, clip_norm: float | None, tally: Tally) -> float | None:
        rule = self._sum.bound.counted
        if clip_norm is None or rule is None or not rule.active(index):
            return clip_norm
        count = torch.tensor([tally["below"] - tally["units"] / 2], dtype=torch.float64)
        noisy = self._sum.count_mechanism().release(count, scale=COUNT_SENSITIVITY, round=index, source=self._source)
        return rule.updated(clip_norm, noisy_count=noisy.item(), clients=self._sum.grouping.clients)

    def _evaluate(
        self,
        cadence: Cadence,
        evaluate: Callable[[int], dict[str, Any]] | None,
        show: Callable[[dict[str, Any]], None],
    ) -> None:
        every = self._every(cadence)
        if evaluate and every and (self.round % every == 0 or self.finished):
            trained = self._contribution.trained
            trained.load(self._server.released(self._theta))
            trained.tables.source = self._source
            trained.tables.flush()
            try:
                with trained.tables.as_released():
                    row = evaluate(self.round)
            except InputError as error:
                if self.round == 0:  # the data is at fault; later on it is the model
                    raise
                warnings.warn(f"round {self.round} could not be measured: {error}", stacklevel=2)
                return
            finally:
                self._forget()
            self._note({"round": self.round, **row}, show)
            with trained.tables.as_released():
                self._callback.on_evaluation({"round": self.round, **row}, trained.model)
            self._forget()

    def _every(self, cadence: Cadence) -> int:
        """After how many rounds the model is measured; 0 for never."""
        return max(1, self._sum.rounds // 10) if cadence.evaluate_every is None else cadence.evaluate_every

    def _refuse_other_reads(self) -> None:
        """Refuse to measure a model with tables in other rounds than before.

        A row's noise follows from when it is read, so two sums would leave under two noises.

        Raises:
            InputError: with the number of rounds.
        """
        before, now = self._evaluated_before, self._evaluated_every
        if self._contribution.trained.tables.owing and before not in (None, now):
            raise InputError(
                f"tables=deferred goes on with measurements in the same rounds, every {before} (0: none), got {now}; "
                f"give evaluate_every={before} and validation data as before"
            )

    def _forget(self) -> None:
        """Leave no traces of what was measured in the model: who comes first in the next round would meet them."""
        self._contribution.trained.put_back()
        self._contribution.trained.forget()

    def _note(self, row: dict[str, Any], show: Callable[[dict[str, Any]], None]) -> None:
        self._run.note(row)
        if self._run.team.leads:
            show(row)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
