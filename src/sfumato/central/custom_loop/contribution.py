"""Gradients of examples whose losses come from a loop of the user's own.

Unit: an example, one place of the data set. The sum, its bound and the checks while training are those of
`GradientSum`; what differs is who computes the losses. The self-check at the start runs through the user's loop too,
on real examples and in the precision of the run: what it can try without being able to catch a failure. It does not
make up rows or go to double precision, which `DPSGD.fit` does.

What is known of examples that only the user's own loop understands.
"""

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption, Stated
from sfumato.central.custom_loop.dataset import Feed, MapRows
from sfumato.central.examples import looked_at
from sfumato.central.gradients import GradientSum
from sfumato.central.tasks import CustomLoss
from sfumato.clipping import ClippedSum
from sfumato.guard import Coupled, Recheck, due, examples_first
from sfumato.guard.placeholders import count_of, placeholder_sample, probe_rows, tensors_of
from sfumato.guard.recheck import Measured
from sfumato.guard.trial import COUPLED
from sfumato.models import refuse_no_values
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.per_example import covered
from sfumato.training import Trainable
from sfumato.training.contribution import ModelFingerprint, RoundContext, placeholder_weights, refuse_private_as_public


class CustomLoop(CustomLoss):
    """A task without measures: the loop takes its own."""

    def check(self, data: Any) -> None:
        """Refuse data that are too small to protect anyone."""
        if len(data) < 2:
            raise InputError(f"the data set has {len(data)} examples; a private sum needs at least 2")

    def assumptions(self, data: MapRows) -> list[Stated]:
        """What the guarantee rests on, besides the engine's own checks."""
        return [Assumption("own_loop")]


# What a user keeps besides the model (a scheduler, a moving average): its state as tensors and JSON, and back.


def saved(objects: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and JSON in which a tensor is {"tensor": name}.

    Raises:
        InputError: an object without a state, or a state that neither can hold.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, {name: _plain(each.state_dict(), name, tensors) for name, each in objects.items()}


def restore(objects: Mapping[str, Any], tensors: Mapping[str, Tensor], states: Mapping[str, Any]) -> None:
    """Put the states back.

    Raises:
        InputError: other objects than were kept.
    """
    if set(objects) != set(states):
        raise InputError(
            f"the run kept {', '.join(sorted(states)) or 'nothing'}, and now is to keep "
            f"{', '.join(sorted(objects)) or 'nothing'}; give the same objects as keep"
        )
    for name, each in objects.items():
        each.load_state_dict(_whole(states[name], tensors))


def refuse_stateless(objects: Any) -> None:
    """Refuse what has no state that can be kept.

    Raises:
        InputError: names it.
    """
    if not isinstance(objects, Mapping):
        raise InputError(f"keep must name its objects, keep={{'scheduler': scheduler}}, got {type(objects).__name__}")
    for name, each in objects.items():
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise InputError(f"keep: {name} has no state_dict and load_state_dict, got {type(each).__name__}")
    saved(objects)


def _plain(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"items": [[key, _plain(each, f"{name}.{key}", tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{name}.{index}", tensors) for index, each in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"keep: a checkpoint cannot hold the state {name} ({type(value).__name__}); leave it out, or give "
        "it a state_dict of tensors, numbers, text, lists and dictionaries"
    )


def _whole(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict):
        return {key: _whole(each, tensors) for key, each in value["items"]}
    return [_whole(each, tensors) for each in value] if isinstance(value, list) else value


# Whether a step that is repeated after a crash is the same step.
#
# A run that goes on repeats the steps since its last checkpoint, under the same noise. In a loop of one's own the sum
# of such a step may be another one: a counter that began anew, an edited schedule, a batch that was put together
# otherwise. Then the difference of the two steps would have no noise at all. So each step leaves a word of its sum
# next to the checkpoint before its noise is added, under the run's key, and a step that finds another word is refused.


class SumDigests:
    """Words of the sums of a run.

    Args:
        path: where they are kept; next to the checkpoint, which is as secret.
        goes_on: whether the run goes on; else what lies there is of another one.
    """

    def __init__(self, path: Path, *, goes_on: bool) -> None:
        self._path = path
        self._known: dict[int, str] = {}
        self._begin = ""
        if goes_on and path.exists():
            lines = path.read_text()
            self._begin = "" if lines.endswith("\n") else "\n"  # so that no word is lost with a torn line before it
            for line in lines.splitlines():
                step, _, word = line.partition(" ")
                if step.isdigit() and len(word) == 32:  # a torn last line is none
                    self._known[int(step)] = word
        self._flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | (0 if goes_on else os.O_TRUNC)

    def see(self, step: int, total: Tensor, source: RandomSource) -> None:
        """Compare a sum with that of the same step before, or remember it.

        Raises:
            InputError: it is another one.
        """
        numbers = torch.stack([total.sum(dtype=torch.float64), torch.linalg.vector_norm(total.double())])
        key = source.seed64("witness", step).to_bytes(8, "little")
        word = hashlib.blake2b(numbers.cpu().numpy().tobytes(), key=key, digest_size=16).hexdigest()
        known = self._known.get(step)
        if known is None:
            self._known[step] = word
            with open(os.open(self._path, self._flags, 0o600), "w") as file:
                file.write(f"{self._begin}{step} {word}\n")
                file.flush()
                os.fsync(file.fileno())
            self._flags, self._begin = self._flags & ~os.O_TRUNC, ""
        elif known != word:
            raise InputError(
                f"step {step + 1} was released with another sum under the same noise; restore the loop's code, "
                "state (keep, done) and processes, or start a new run"
            )

    def forget(self) -> None:
        """The run is complete: its noise is never drawn again."""
        self._path.unlink(missing_ok=True)


# Whether a loop of one's own gives the same examples the same losses later on.
#
# What a loop remembers of examples (a mean of losses by which the next ones are weighed, a memory bank) is no part of
# the model. Nothing puts it back, and where it changes between two steps, no comparison within a step sees it. So a few
# examples go through at the first step, and again at the steps that are looked at, each time at the weights that the
# model had when the run was opened, with `done` as it was then, and, in a fresh process, with `done` as in the last
# step (a loop may read only later what it keeps from the start). If they have other losses or gradients there,
# something of the loop has changed: a schedule, which does no harm, or what follows from examples, for which no bound
# holds. The two cannot be distinguished here, so the warning names both, and the statement says which of them it is
# taken to be.


class LossDrift:
    """Losses of a few examples, now and at the first step.

    Args:
        recheck: measures.
        trained: the model.
        measure: losses and squared norms of the examples, [n] each.
        examples: how many `measure` takes.
        begun: a context in which the loop knows the step at which it began.
        last: a context in which a micro-batch looks like one of the last step.
        afresh: what some work gives in a fresh process, None where it fails there.

    Attributes:
        found: the step, from 1, at which they were others; None for none so far.
    """

    def __init__(
        self,
        recheck: Recheck,
        trained: Trainable,
        measure: Callable[[], tuple[Tensor, Tensor]],
        examples: int,
        begun: Callable[[], AbstractContextManager[None]],
        last: Callable[[], AbstractContextManager[None]],
        afresh: Callable[[Callable[[], Measured]], Measured | None],
    ) -> None:
        self.found: int | None = None
        self._recheck, self._trained, self._measure = recheck, trained, measure
        self._examples, self._begun, self._last, self._afresh = examples, begun, last, afresh
        self._first: list[Measured | None] | None = None

    def look(self, step: int, theta: Tensor, *, due: bool) -> None:
        """Before a step: measure what there is to compare with, or compare.

        Args:
            step: of the run, from 0.
            due: whether this step is looked at.
            theta: float [size], the weights of the step, which the model has again afterwards.
        """
        if self.found is not None or (self._first is not None and not due):
            return
        self._trained.load(self._trained.initial)
        try:
            late = self._afresh(lambda: self._measured_in(self._last))  # first: it begins as a step does
            now = [self._measured_in(self._begun), late]
        finally:
            self._trained.forget()
            self._trained.put_back(theta)
        if self._first is None:
            self._first = now
        elif any(
            one is not None and other is not None and self._recheck.changed(one, other)
            for one, other in zip(self._first, now, strict=True)
        ):
            self.found = step + 1
            warnings.warn(
                f"At step {self.found} the same examples and weights gave other losses or gradients; let schedules "
                "follow done or released weights, never earlier losses",
                stacklevel=2,
            )

    def _measured_in(self, when: Callable[[], AbstractContextManager[None]]) -> Measured:
        with when():
            return self._recheck.measured(range(self._examples), lambda _: self._measure())

    def assumptions(self) -> list[Assumption]:
        """What the guarantee rests on then."""
        return [] if self.found is None else [Assumption("loop_drift", {"step": self.found})]


_POOL, _PROBES = 128, 24
_LIKE = 64  # examples that a run that goes on compares
_BACK = 4  # examples that are looked at again and again
_BLOCK = 1 << 10
Ask = Callable[[Any, int, bool], Tensor]
"""From a batch, its number of examples, and whether it is the last one of a step, to one loss an example, by the
user's loop."""


class CustomContribution(GradientSum):
    """Gradients of losses that somebody else computes.

    Args:
        model: the user's module, trained in place.
        rows: the examples.
        spec: which parameters are trained.
        ask: see `Ask`.
        pause: called where the user's code may run between two micro-batches.
        at: a context in which the loop reports another number of steps as done; None reports that of the beginning.
        steps: of the whole run.
        feed: reads the batches of the steps ahead.
        keep: objects of the user's that go with the checkpoint.
        about: what the fingerprint has besides shapes and data.
        digest: whether the fingerprint covers the data, which are read for it.
        sum_digests: knows the sums of steps that an earlier process has released; None for none.
        micro_batch, memory_budget: as for `DPSGD`.
        device: of the model.

    Attributes:
        in_step: whether a micro-batch of a step goes through, and not one that is only tried.
        pretends: whether one that is only tried, in a process of its own, is to look like one of a step.
        loss_drift: whether the same examples still have the same losses.
        other_rates: whether the loop has changed settings of the optimiser between two steps.

    Raises:
        InputError: as for `ExampleContribution`.
    """

    def __init__(
        self,
        model: nn.Module,
        rows: MapRows,
        *,
        spec: str,
        ask: Ask,
        pause: Callable[[], None],
        at: Callable[[int | None], AbstractContextManager[None]],
        steps: int,
        feed: Feed,
        keep: Mapping[str, Any],
        about: str,
        digest: bool,
        sum_digests: SumDigests | None,
        micro_batch: int | None,
        memory_budget: int | None,
        device: torch.device,
    ) -> None:
        refuse_no_values(model)
        super().__init__(Trainable(model, spec, device=device, in_place=True), len(rows), device)
        self._rows, self._ask, self._pause, self._feed = rows, ask, pause, feed
        self._keep, self._about, self._with_digest = keep, about, digest
        self.in_step, self._left, self.pretends = False, 0, False
        self._sum_digests, self._at, self.other_rates = sum_digests, at, False
        covered(self.model)
        samples = rows.samples(rows.spread(_PROBES).tolist(), 0)

        def losses(places: Tensor) -> Tensor:
            self.trained.forget()  # as before each micro-batch of a step
            return ask(rows.collated([samples[place] for place in places.tolist()]), len(places), False)

        placeholders = self._placeholders(samples)
        findings = examples_first(
            self.model,
            losses,
            torch.arange(len(samples) - sum(map(len, placeholders))),
            placeholders=placeholders,
            catchable=False,
        )
        refuse_private_as_public(self.trained, self._inputs())
        self._take_reference(rows.spread(_BACK))
        samples = rows.samples(self._pool().tolist(), 0)
        check = looked_at(self.trained, losses, torch.arange(len(samples)), findings, double=False)
        self._begin(check, micro_batch=micro_batch, memory_budget=memory_budget, first=rows.spread)
        rows.refuse_changed()
        places = rows.spread(min(_BACK, self.micro_batch))
        begun, last = partial(at, None), partial(self.as_in_step, steps - 1)
        self.loss_drift = LossDrift(
            self._recheck, self.trained, lambda: self._measured(places, 0), len(places), begun, last, self._afresh
        )
        self._refuse_at_other_steps(places, steps)

    @contextmanager
    def as_in_step(self, step: int) -> Iterator[None]:
        """The loop does not see that a micro-batch is only tried: it may keep things of those that are not."""
        before, self.pretends = self.pretends, True
        try:
            with self._at(step):
                yield
        finally:
            self.pretends = before

    def later_steps(self, step: int) -> Sequence[int]:
        """This one and those that follow, in turn; before the first one, steps from all over the run."""
        if step == 0:
            return [0, *_other_steps(self.rounds)]
        return range(step, min(step + 3, self.rounds))

    def prepare(self) -> None:
        """The mode of the model is the user's affair."""

    def between(self) -> None:
        """The user's code runs on from `backward` to the next batch."""
        self._pause()

    def read(self, examples: np.ndarray, key: int) -> Any:
        """A batch, and how many examples it holds; one of a step is read ahead where there are workers."""
        batch = self._feed.next(examples, key) if self.in_step else self._rows.batch(examples.tolist(), key)
        return batch, len(examples)

    def losses_of(self, rows: Any) -> Tensor:
        """What the user's loop says of a batch."""
        batch, examples = rows
        return self._ask(batch, examples, self.in_step and self._left == 0)

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the examples' bounded gradients.

        Raises:
            InputError: somebody else has changed the model since the last step; or a step that is repeated has another
                sum than before.
        """
        theta, round, source = context.theta, context.round, context.source
        self._refuse_touched(theta)
        self.loss_drift.look(round, theta, due=due(round, self.rounds, source))
        if round:  # a loop may follow a schedule from here on, which `loss_drift` compares
            self._reference = None
        self._feed.begin(round, source, self.micro_batch)
        self._left = len(context.cohort.units)
        try:
            share = super().clipped_sum(context)
        except Coupled:
            self._rows.refuse_changed()  # it looks like a model that keeps something
            raise
        if self._sum_digests is not None:
            self._sum_digests.see(round, share.total, source)
        return share

    def settings(self) -> dict[str, Any]:
        """With what the user keeps, and whether the loop has changed."""
        seen = {"other_losses": self.loss_drift.found, "other_rates": self.other_rates}
        return {**super().settings(), "kept": saved(self._keep)[1], **seen}

    def tensors(self) -> dict[str, Tensor]:
        """Of what the user keeps."""
        return saved(self._keep)[0]

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Also into what the user keeps."""
        super().restore_settings(settings, tensors)
        restore(self._keep, tensors, settings["kept"])
        self.loss_drift.found = settings.get("other_losses")
        self.other_rates = bool(settings.get("other_rates"))

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the optimiser and the data."""
        data = self._rows.digest() if self._with_digest else ""
        return f"{self.trained.shapes()} {self._about} {len(self._rows)} {data}"

    def model_fingerprint(self) -> ModelFingerprint:
        """Losses and gradients of some examples at placeholder weights: private, as everything in a checkpoint is."""
        places = self._rows.spread(min(_LIKE, self.micro_batch))
        self.trained.load(placeholder_weights(self.trained))
        try:
            losses, norms = self._recheck.measured(
                range(len(places)), lambda some: self._measured(places[list(some)], 0)
            )
        finally:
            self.trained.put_back(self.trained.initial)
        return {"numbers": [*losses.tolist(), *norms.tolist()], "precision": "single", "draws": self._recheck.draws()}

    def _refuse_touched(self, theta: Tensor) -> None:
        touched = self.trained.touched(theta)
        if touched:
            raise InputError(
                f"{touched[0]!r} of the model was changed between two steps, not by the run; keep copies outside "
                "the model, and pass scheduled values to forward"
            )

    def _micro_batch(self, examples: np.ndarray, key: int, share: ClippedSum) -> tuple[Tensor, Tensor] | None:
        self.in_step = True
        self._left -= len(examples)
        try:
            found = super()._micro_batch(examples, key, share)
        finally:
            self.in_step = False
            self.trained.forget()  # the model is in the user's hands
        if found is None:
            self._left += len(examples)
        return found

    def _refuse_at_other_steps(self, places: np.ndarray, steps: int) -> None:
        """Refuse a loop that couples examples at a later step, where it takes the step from `done`.

        A fresh process reports some numbers of steps as done, so that what the loop does there leaves no trace here.

        Raises:
            Coupled: with the step.
        """
        if len(places) < 2:
            return

        def first_coupled() -> int:
            def measure(some: Sequence[int]) -> tuple[Tensor, Tensor]:
                return self._measured(places[list(some)], 0)

            for step in _other_steps(steps):
                with self._at(step):
                    try:
                        self._recheck.at_start(len(places), measure)
                    except Coupled:
                        return step
            return 0

        found = self._afresh(first_coupled)
        if found:
            raise Coupled(
                f"with done={found} an example's gradient changes with the rest of the batch; the loop mixes "
                f"them at that step: {COUPLED}"
            )

    def _placeholders(self, samples: list[Any]) -> list[Tensor]:
        """Put placeholders behind some examples; where they stand, batch by batch, none where an example has none."""
        found = []
        try:
            for zeros in (False, True):
                made = placeholder_sample(samples[0], zeros=zeros)
                for count in (1, 2, 8):
                    found.append(torch.arange(len(samples), len(samples) + count))
                    samples += [made] * count
        except TypeError:
            return []
        return found

    def _pool(self) -> np.ndarray:
        """Examples from all over the data that differ most, where their tensors show it."""
        places = self._rows.spread(_POOL)
        batch = self._rows.batch(places.tolist(), 0)
        leaves = [leaf for leaf in tensors_of(batch) if len(leaf) == len(places)]
        if not leaves or count_of(leaves) != len(places):
            return places[:: max(1, len(places) // _PROBES)]
        return places[probe_rows(leaves, _PROBES)]

    def _inputs(self) -> Iterator[tuple[Tensor, ...]]:
        """The first tensors of every batch, as many as the model has public inputs."""
        wanted = max((len(public_inputs_of(part) or ()) for part in self.trained.with_public_inputs()), default=0)
        for start in range(0, len(self._rows), _BLOCK):
            batch = self._rows.batch(range(start, min(start + _BLOCK, len(self._rows))), 0)
            yield tuple(leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor))[:wanted]


def _other_steps(steps: int) -> list[int]:
    """Numbers of steps that may be done: the first ones, the last one, and some between."""
    some = {1, 2, 3, 4, 5, 10, 50, 100, 130, steps // 4, steps // 3, steps // 2, 3 * steps // 4, steps - 2, steps - 1}
    return sorted(step for step in some if 0 < step < steps)


def refuse_no_device(model: nn.Module) -> torch.device:
    """The device of the model's parameters.

    Raises:
        InputError: they lie on several, or there are none.
    """
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices))) or "none"
        raise InputError(f"the model's parameters have to lie on one device, got {found}; move the model to one")
    return devices.pop()
