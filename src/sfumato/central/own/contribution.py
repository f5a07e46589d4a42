"""Gradients of examples whose losses come from a loop of the user's own.

Unit: an example, one place of the data set. The sum, its bound and the checks while training are those of
`GradientSum`; what differs is who computes the losses. The self-check at the start runs through the user's loop too, on
real examples and in the precision of the run: what it can try without being able to catch a failure. It does not make
up rows or go to double precision, which `DPSGD.fit` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.first_look import looked_at
from sfumato.central.gradients import GradientSum
from sfumato.central.own.feed import Feed
from sfumato.central.own.kept import restore, saved
from sfumato.central.own.looking_back import LookingBack
from sfumato.central.own.map_rows import MapRows
from sfumato.central.own.witness import Witness
from sfumato.clipping import ClippedSum, NormBound
from sfumato.guard import Coupled, due, examples_first
from sfumato.guard.placeholders import placeholder_sample
from sfumato.guard.rows import count_of, probe_rows, tensors_of
from sfumato.guard.trial import COUPLED
from sfumato.models import refuse_no_values
from sfumato.models.public_batch_norm import public_inputs_of
from sfumato.per_example import covered
from sfumato.sampling import Cohort
from sfumato.training import Trainable
from sfumato.training.behaviour import Behaviour, placeholder_weights
from sfumato.training.public_inputs import refuse_private_as_public

_POOL, _PROBES = 128, 24
_LIKE = 64  # examples that a run that goes on compares
_BACK = 4  # examples that are looked at again and again
_BLOCK = 1 << 10

Ask = Callable[[Any, int, bool], Tensor]
"""From a batch, its number of examples, and whether it is the last one of a step, to one loss an example, by the
user's loop."""


class OwnContribution(GradientSum):
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
        about: what the fingerprint tells beside shapes and data.
        digest: whether the fingerprint covers the data, which are read for it.
        witness: knows the sums of steps that an earlier process has released; None for none.
        micro_batch, memory_budget: as for `DPSGD`, the latter in bytes.
        device: of the model.

    Attributes:
        in_step: whether a micro-batch of a step goes through, and not one that is only tried.
        pretends: whether one that is only tried, in a process of its own, is to look like one of a step.
        looking_back: whether the same examples still have the same losses.
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
        witness: Witness | None,
        micro_batch: int | None,
        memory_budget: int | None,
        device: torch.device,
    ) -> None:
        refuse_no_values(model)
        super().__init__(Trainable(model, spec, device=device, in_place=True), len(rows), device)
        self._rows, self._ask, self._pause, self._feed = rows, ask, pause, feed
        self._keep, self._about, self._with_digest = keep, about, digest
        self.in_step, self._left, self.pretends = False, 0, False
        self._witness, self._at, self.other_rates = witness, at, False
        covered(self.model)
        samples = rows.samples(rows.spread(_PROBES).tolist(), 0)

        def losses(places: Tensor) -> Tensor:
            self.trained.forget()  # as before each micro-batch of a step
            return ask(rows.together([samples[place] for place in places.tolist()]), len(places), False)

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
        self.looking_back = LookingBack(
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

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """The sum of the examples' bounded gradients.

        Raises:
            InputError: somebody else has changed the model since the last step; or a step that is repeated has another
                sum than before.
        """
        self._refuse_touched(theta)
        self.looking_back.look(round, theta, due=due(round, self.rounds, source))
        if round:  # a loop may follow a schedule from here on, which `looking_back` compares
            self._reference = None
        self._feed.begin(round, source, self.micro_batch)
        self._left = len(cohort.units)
        try:
            share = super().clipped_sum(theta, cohort, round, bound, clip_norm, source, out)
        except Coupled:
            self._rows.refuse_changed()  # it looks like a model that keeps something
            raise
        if self._witness is not None:
            self._witness.see(round, share.total, source)
        return share

    def settings(self) -> dict[str, Any]:
        """With what the user keeps, and whether the loop has changed."""
        seen = {"other_losses": self.looking_back.found, "other_rates": self.other_rates}
        return {**super().settings(), "kept": saved(self._keep)[1], **seen}

    def tensors(self) -> dict[str, Tensor]:
        """Of what the user keeps."""
        return saved(self._keep)[0]

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Also into what the user keeps."""
        super().restore_settings(settings, tensors)
        restore(self._keep, tensors, settings["kept"])
        self.looking_back.found = settings.get("other_losses")
        self.other_rates = bool(settings.get("other_rates"))

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes, the optimiser and the data."""
        data = self._rows.digest() if self._with_digest else ""
        return f"{self.trained.shapes()} {self._about} {len(self._rows)} {data}"

    def behaviour(self) -> Behaviour:
        """Losses and gradients of some examples at made-up weights: private, as everything in a checkpoint is."""
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
                f"{touched[0]!r} of the model was changed between two steps by something else than the run, which "
                "cannot know whether that was private; keep averages and copies outside of the model, and give what "
                "follows a schedule to the forward pass as an argument (done tells the step)"
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
        """Examples from all over the data that differ most, where their tensors tell."""
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
        told = ", ".join(sorted(map(str, devices))) or "none"
        raise InputError(f"the model's parameters have to lie on one device, got {told}; move the model to one")
    return devices.pop()
