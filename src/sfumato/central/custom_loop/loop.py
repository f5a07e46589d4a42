"""A training loop of the user's own around the private sum."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import numpy as np
import torch
from greenlet import GreenletExit, getcurrent, greenlet
from greenlet import error as GreenletError
from torch import Tensor, nn

from sfumato._check import InputError, first_line
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.central.custom_loop.contribution import CustomContribution, SumDigests, refuse_no_device, refuse_stateless
from sfumato.central.custom_loop.dataset import Collate, Feed, MapRows
from sfumato.central.custom_loop.optimizer import (
    WrappedOptimizer,
    described,
    refuse_changed,
    refuse_gradients,
    settings_of,
    trained_by,
)
from sfumato.models import refuse_no_values
from sfumato.per_example.workspace import out_of_memory
from sfumato.runs.processes import Team
from sfumato.statement import Statement
from sfumato.training import Callback, Contribution, Result, Stop

if TYPE_CHECKING:
    from sfumato.central.dpsgd import DPSGD

_BATCH, _STEP, _PAUSE, _OVER = "batch", "step", "pause", "over"
_LEFT_OUT = (
    "a micro-batch was left out of backward(losses); its examples were drawn, so give their losses, whatever they are"
)


class PrivateLoop:
    """A context that hands out micro-batches; `DPSGD.open` makes one.

    Args:
        fit: runs the plan: takes contribution, optimizer and callbacks, and gives the result.
        plan: with its noise decided.
        model: the user's module; it is trained in place.
        optimizer: of this model's parameters; it takes the steps.
        dataset: any map-style data set of torch.
        collate: puts examples together; None for torch's own.
        workers: processes that read ahead; 0 reads in this one.
        keep: objects with a state_dict (schedulers, moving averages) that go with the checkpoints.
        checkpoint: folder of the run's checkpoint; None for a run in memory, which cannot go on.
        resume: whether the run goes on.

    Attributes:
        done: steps that were taken; those of a run that goes on, and its weights, are known from the first batch that
            is no trial.
        planned: steps of the whole run.
        epsilon: ε so far; None before the first step and without a guarantee.
        last: whether the batch in hand is the last one of its step; a scheduler stands behind the inner loop of
            `steps()`, as rates must not change before the step is taken.
        trying: whether the batch in hand only tries the loop out.
        examples: how many the batch in hand has.
        result: what `DPSGD.fit` returns, once the run is over.
    """

    _latest: ClassVar[ref[PrivateLoop] | None] = None  # the loop of this process that was entered last

    def __init__(
        self,
        fit: Callable[..., Result],
        plan: DPSGD,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        collate: Collate | None,
        workers: int,
        keep: Mapping[str, Any],
        callbacks: Sequence[Callback],
        checkpoint: Path | None,
        resume: bool,
    ) -> None:
        self.done, self.planned = 0, 0
        self._done_before = 0  # in this process
        self.epsilon: float | None = None
        self.last = self.trying = False
        self.result: Result | None = None
        self._fit, self._plan, self._model, self._optimizer = fit, plan, model, optimizer
        refuse_stateless(keep)
        self._workers, self._keep, self._callbacks = workers, dict(keep), tuple(callbacks)
        self._checkpoint, self._resume = checkpoint, resume
        refuse_no_values(model)
        self._names = trained_by(optimizer, model)
        self._step: Callable[[], object] = optimizer.step
        self._device = refuse_no_device(model)
        refuse_gradients([model.get_parameter(name) for name in self._names])
        self.rows = MapRows(dataset, collate)
        self._wrapped: WrappedOptimizer | None = None
        self._feed: Feed | None = None
        self._made: CustomContribution | None = None
        self.examples = 0
        self._state = ""
        self._payload: Any = None
        self._handed_out = self._within_backward = self._begun = False
        self._sum_digests: SumDigests | None = None
        self._versions: list[int] = []
        self._settings: list[dict[str, Any]] = []
        self._run = greenlet(self._all)
        self._user = getcurrent()

    @property
    def statement(self) -> Statement:
        """What the run cost whom.

        Raises:
            InputError: the run is not over.
        """
        if self.result is None and self._run.dead:
            ended = "before a step was taken, and has no statement; go through the batches of the with block"
            if self.done:
                ended = f"by an error after {self.done} steps, and has no statement; go on with resume=True"
            raise InputError(f"the run was ended {ended}")
        if self.result is None:
            raise InputError("the run is not over, and has no statement yet; read it behind the with block")
        return self.result.statement

    def __enter__(self) -> PrivateLoop:
        if self._state:
            raise InputError("a loop runs once; open another one with the plan")
        other = PrivateLoop._latest and PrivateLoop._latest()
        if other is not None and not other._begun and not other._run.dead:
            raise InputError(
                "another loop of this process is just being tried out; begin this one behind its first step, or end it"
            )
        self._user = self._run.parent = getcurrent()
        self._eagerly("force_eager")
        try:
            self._advance()
        except BaseException:
            self._give_back()
            raise
        self._versions = [parameter._version for parameter in self._model.parameters()]
        PrivateLoop._latest = ref(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                if not self._run.dead:
                    self._run.throw(GreenletExit)
                self._report(error)
            elif not self._run.dead:
                self._advance(throw=Stop if self._begun else GreenletExit)
        finally:
            self._give_back()

    def __iter__(self) -> Iterator[Any]:
        """All micro-batches of all steps."""
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[Iterator[Any]]:
        """For each step its micro-batches, none where the draw was empty; behind them the step is done.

        Raises:
            InputError: the micro-batches of a step were not gone through.
        """
        if not self._state:
            raise InputError("go through the batches within the loop's with block: with plan.open(…) as private: …")
        if not self._begun and self._versions != [parameter._version for parameter in self._model.parameters()]:
            raise InputError(
                "the model's parameters were changed within the with block, before the first batch; load weights "
                "before the loop is opened"
            )
        while self._state != _OVER:
            yield self._batches()
            if self._state == _OVER:  # a callback has stopped it
                return
            if self._state != _STEP:
                raise InputError(
                    "some micro-batches of a step were left out; let the inner loop run to its end, or leave the "
                    "outer loop to stop the run"
                )
            self._advance()

    def backward(self, losses: Tensor) -> None:
        """The backward pass of the micro-batch in hand: norms and clipped sum; with the last one, the step.

        Args:
            losses: float [n], one for each example of the batch, in its order.

        Raises:
            InputError: no losses of an example each, none or another batch in hand, coupled examples.
        """
        if not self._handed_out:
            raise InputError(
                "backward was called without a micro-batch in hand: once for each, with the losses of that one (add "
                "several losses of an example up before)"
            )
        if not isinstance(losses, Tensor) or losses.dim() != 1:
            found = f"shape {list(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(
                f"backward needs one loss for each example of the batch, [n], got {found}; use reduction='none', and "
                "the mean over what else an example has"
            )
        refuse_gradients([self._model.get_parameter(name) for name in self._names])
        self._handed_out = False
        with torch.autocast(self._device.type, enabled=False):
            self._within_backward = True
            try:
                self._advance(losses)
            finally:
                self._within_backward = False

    def step_by(self, step: Callable[[], object]) -> None:
        """Before the first batch: let something else take the optimiser's step, a trainer that counts them.

        Args:
            step: calls the optimiser's `step`; what it does to the gradient, it does to one that has its noise.
        """
        self._step = step

    def begin(self) -> None:
        """All trials before the first step are over: put the parameters of the run into the model."""
        self._begun, self._done_before = True, self.done
        if self._wrapped is not None:
            self._wrapped.show()
            self._wrapped.begin()

    def assumptions(self) -> list[Assumption]:
        """Sentences for the statement on what was seen of the loop."""
        if self._made is None:
            return []
        return [*self._made.loss_drift.assumptions(), *([Assumption("loop_rates")] if self._made.other_rates else [])]

    def go_on(self) -> None:
        """The next step begins; refuse other parameters than those that the run began with."""
        if self._wrapped is not None and self._made is not None:
            self._wrapped.refuse_others()
            self._made.other_rates |= self._wrapped.begin()

    def _batches(self) -> Iterator[Any]:
        while True:
            if self._handed_out:
                raise InputError(_LEFT_OUT)
            if self._state == _PAUSE:
                self._advance()
            if self._state != _BATCH:
                return
            batch, self.examples, self.last, self.trying = self._payload
            self._payload = None
            self._handed_out = True
            self._settings = self._settings or settings_of(self._optimizer)
            yield batch

    def _advance(self, value: Any = None, *, throw: type[BaseException] | None = None) -> None:
        """Let the run go on until it needs the user's code again."""
        if self._run.dead:
            raise InputError("this run already failed (see above); start a new one with the plan")
        try:
            found = self._run.switch(value) if throw is None else self._run.throw(throw)
        except GreenletError as error:
            raise InputError(f"the loop has to run in the thread that opened it ({first_line(error)})") from None
        if self._run.dead:
            self._state, self.result = _OVER, found if isinstance(found, Result) else None
        else:
            self._state, self._payload = found

    def _wait(self, state: str, payload: Any = None) -> Any:
        """In the run: let the user's code go on."""
        return self._user.switch((state, payload))

    def _all(self, _: Any = None) -> Result | None:
        """The whole run."""
        try:
            return self._fit(
                self._model,
                self.rows,
                contribution=self._contribution,
                optimizer=self._server,
                callbacks=[*self._callbacks, _Turns(self, self._wait)],
            )
        except Stop:  # before the first step
            return None

    def _contribution(self, model: nn.Module, rows: MapRows, device: str, head_seed: int) -> Contribution:
        population = self._plan.population or len(rows)  # `fit` has warned where it is too small
        private_sum = self._plan.private_sum(population)
        team = Team()

        def cohort(step: int, source: RandomSource) -> np.ndarray:
            units = private_sum.sampler.draw(len(rows), step, source)
            return private_sum.grouping.group(units, step, source).take(team.part).units

        self.planned = private_sum.rounds
        self._feed = Feed(rows, self._workers, private_sum.rounds, cohort)
        spec = "^(?:" + "|".join(map(re.escape, self._names)) + ")$"
        if self._checkpoint is not None and team.leads:
            self._sum_digests = SumDigests(self._checkpoint / "sums", goes_on=self._resume)
        self._made = CustomContribution(
            model,
            rows,
            spec=spec,
            ask=self._ask,
            pause=self._pause,
            at=self._at,
            steps=private_sum.rounds,
            feed=self._feed,
            keep=self._keep,
            about=described(self._optimizer),
            digest=self._checkpoint is not None,
            sum_digests=self._sum_digests,
            micro_batch=self._plan.examples.micro_batch,
            memory_budget=self._plan.examples.memory_budget,
            device=self._device,
        )
        return self._made

    def _server(self, given: list[nn.Parameter]) -> Any:
        assert self._made is not None
        if self._settings:
            refuse_changed(self._optimizer, self._settings, "while the loop was tried out")
        self._wrapped = WrappedOptimizer(self._optimizer, self._made.trained.parameters, given, self._step)
        return self._wrapped

    def _ask(self, batch: Any, examples: int, last: bool) -> Tensor:
        made = self._made
        return self._wait(_BATCH, (batch, examples, last, made is None or not (made.in_step or made.pretends)))

    @contextmanager
    def _at(self, done: int | None) -> Iterator[None]:
        """The loop reports another number of steps as done here; None reports that of the beginning."""
        now, self.done = self.done, self._done_before if done is None else done
        try:
            yield
        finally:
            self.done = now

    def _pause(self) -> None:
        if self._within_backward:
            self._wait(_PAUSE)

    def _report(self, error: BaseException) -> None:
        """In a line what torch says in its own words.

        Raises:
            InputError: where there is such a line.
        """
        if not isinstance(error, RuntimeError | MemoryError):
            return
        if "DataLoader worker" in str(error):
            raise InputError(
                f"a process that reads the data set has died ({first_line(error)}); see what it said (memory, as a "
                "rule: lower workers), and go on with resume=True"
            ) from error
        if "does not require grad" in str(error):
            raise InputError(
                f"loss.backward() found no gradient to follow ({first_line(error)}): trial batches have none; "
                "leave it out, as backward(losses) is the backward pass"
            ) from error
        if out_of_memory(error):
            raise InputError(
                f"memory ran out in the loop with {self.examples} examples at once; set micro_batch of the plan to "
                "less than that, and go on with resume=True"
            ) from error

    def _eagerly(self, stance: str) -> None:
        """Compiled models run as they are written: what is compiled does not show its layers."""
        if "torch._dynamo" in sys.modules:
            torch.compiler.set_stance(stance)

    def _give_back(self) -> None:
        self._eagerly("default")
        if self._wrapped is not None:
            self._wrapped.give_back()
        if self._feed is not None:
            self._feed.close()
        if self._made is not None:  # nothing of a record stays in the user's model
            self._made.trained.forget()
            self._made.trained.put_back()
        if self._sum_digests is not None and self.result is not None and self.result.finished:
            self._sum_digests.forget()
        self._handed_out = False


class _Turns(Callback):
    """Lets the user's code go on after each step."""

    def __init__(self, loop: PrivateLoop, wait: Callable[[str], Any]) -> None:
        self._loop, self._wait = loop, wait

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Know how many there will be, and put the values of a run that goes on into the model."""
        self._loop.planned, self._loop.done = rounds, done
        self._loop.begin()

    def on_round(self, row: dict[str, Any]) -> None:
        """A step is done."""
        self._loop.done, self._loop.epsilon = row["round"], row["epsilon"]
        self._wait(_STEP)
        if self._loop.done < self._loop.planned:
            self._wait(_PAUSE)  # what stands in front of the inner loop runs, before anything is tried
        self._loop.go_on()

    def assumptions(self) -> list[Assumption]:
        """Sentences on what was seen of the loop."""
        return self._loop.assumptions()
