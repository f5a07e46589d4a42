"""The check goes on while training: at some steps, examples of a real micro-batch are computed by themselves.

The self-check at the start looks at some rows, some sizes, and weights before training. `Recheck` looks at a full
micro-batch before the first step: all of its examples in the opposite order, two halves and a quarter of them, which
shows what has room for some, and four by themselves. While training it looks at real ones, in the first and the last
step and in others by chance (see `sfumato.guard.due`), so that nothing that begins at some step, or returns every so
many, can rely on not being seen: in the first micro-batch of such a step, in the last one and in one between, what one
example gave to the step is compared with what it gives by itself. Where the model draws random numbers the micro-batch
is computed once more, with the same numbers for all. If the loss or the gradient's norm of an example is not the same,
the run stops before the step is released. At half of these steps, fresh processes compare what some examples give
behind two halves of the micro-batch: nothing that one of them leaves behind may count.

A difference beyond round-off is confirmed before it stops a run: in double precision where the model can be run in it,
otherwise by comparison with a batch of the same size that holds nothing but copies of the examples. The micro-batch is
computed once more for this; if that gives other numbers than the step had, something was kept between the two.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from sfumato._types import Assumption
from sfumato.guard.examples import Examples, SelfCheck
from sfumato.guard.guard import Looked, histories, refuse_memory
from sfumato.guard.trial import (
    COUPLED,
    DOUBLE,
    HALF,
    SINGLE,
    Coupled,
    SameNoise,
    Tolerance,
    as_it_was,
    in_double,
    shaken,
)
from sfumato.per_example.engine import Recording
from sfumato.per_example.workspace import out_of_memory

Measure = Callable[[Sequence[int]], tuple[Tensor, Tensor]]
"""From places within a micro-batch (one may come twice) to losses [n] and squared norms [n], by a recording."""

Measured = tuple[Tensor, Tensor]
Batches = Callable[[Tensor], Iterable[Sequence[int]]]
"""From the losses of a micro-batch to places within it that are computed again as one batch."""

_GOLDEN = 0.6180339887
_PROBES = 4  # examples that go through behind two halves of a micro-batch
_FEW = 16  # of a half, in other steps
_AT_THE_START = 4  # examples of the first micro-batch that are computed by themselves


class Recheck:
    """Examples of a micro-batch, each again by itself.

    Args:
        model: the user's module, in the mode in which it is trained.
        check: what the self-check found.
    """

    def __init__(self, model: nn.Module, check: SelfCheck) -> None:
        self._model, self._check = model, check

    def at_start(self, examples: int, measure: Measure) -> None:
        """Look at a full micro-batch, at weights that are shaken a little: in other batches, and some by themselves.

        Args:
            examples: of the micro-batch; fewer are taken where memory runs out.
            measure: see `Measure`.

        Raises:
            InputError: an example's loss or gradient is another one there.
        """
        if examples > 1:
            with as_it_was(self._model), shaken(Recording(self._check.layers).parameters):
                self._refuse("in a full micro-batch", examples, measure, _batches)

    def while_training(self, step: int, had: Measured, measure: Measure) -> None:
        """Look at a real micro-batch: one of its examples by itself.

        Args:
            step: of the run, from 0.
            had: losses [n] and squared norms [n] of the micro-batch, as the step has them.
            measure: see `Measure`.

        Raises:
            InputError: as in `at_start`; the step must not be released.
        """
        examples = len(had[0])
        if examples < 2:
            return
        given = None if self.draws() else _as_numbers(had)
        with as_it_was(self._model):
            if given is not None:
                one = [_one(given[0], step)]
                if not _differ(given, self.measured(one, measure), one, self._tolerance):
                    return
            self._refuse(f"at step {step}", examples, measure, lambda losses: [[_one(losses, step)]], given)

    def refuse_memory(
        self,
        examples: int,
        measure: Measure,
        steps: Sequence[Callable[[], AbstractContextManager[None]]] = (nullcontext,),
        now: Callable[[], Tensor] | None = None,
        micro_batch: int | None = None,
    ) -> Looked | None:
        """Compare what a few examples of a real batch give behind one half of it, twice, and behind the other, twice.

        So what only a full batch leaves behind is seen, too.

        Args:
            examples: of the batch.
            measure: see `Measure`.
            steps: contexts in which a half and the few examples go through in turn, as in this step and in others; of
                the others a few examples of each half.
            now: as for `sfumato.guard.refuse_memory`.
            micro_batch: examples at once; None for all.

        Returns:
            as `sfumato.guard.refuse_memory`.

        Raises:
            Coupled: they give something else; the step must not be released.
        """
        half, most = examples // 2, micro_batch or examples
        if not half:
            found = None if now is None else histories([now])
            return None if found is None else Looked(found[0])
        probes = sorted({*range(0, examples, -(-examples // _PROBES))})

        def through(places: Sequence[int]) -> Tensor:
            """Losses and norms [n, 2] of examples, so many at once as a step takes."""
            parts = [self.measured(places[at : at + most], measure) for at in range(0, len(places), most)]
            return torch.cat([torch.stack(part, dim=1) for part in parts])

        def outcomes(before: Sequence[int]) -> Tensor:
            found = []
            for number, step in enumerate(steps):
                with step():
                    if number:  # behind the half, which was the last to go through in the step before
                        found.append(through(probes))
                    through(before[:_FEW] if number else before)
                    found.append(through(probes))
                    if number + 1 < len(steps):
                        through(before[:_FEW])
            return torch.cat(found)

        halves = [*range(half)] * 2, [*range(half, 2 * half)] * 2
        return refuse_memory(outcomes, halves, Examples.state_message, now=now)

    def draws(self) -> bool:
        """Whether a step meets random numbers that a check cannot repeat, inner dropout among them."""
        inner = (part for part in self._model.modules() if isinstance(part, (nn.RNNBase, nn.MultiheadAttention)))
        return self._check.draws or any(part.training and part.dropout > 0 for part in inner)

    @property
    def _tolerance(self) -> Tolerance:
        return HALF if self._check.half else SINGLE

    def _refuse(
        self, when: str, examples: int, measure: Measure, batches: Batches, had: Measured | None = None
    ) -> None:
        tolerance = self._tolerance
        while True:
            try:
                whole = self.measured(range(examples), measure)
                if had is not None and len(had[0]) == examples and _differ(had, whole, range(examples), tolerance):
                    raise Coupled(
                        f"{when} the same examples gave something else when computed again, so the model or the loss "
                        f"keeps state of examples: {COUPLED}"
                    )
                for batch in batches(whole[0]):
                    other = self.measured(batch, measure)
                    if _differ(whole, other, batch, tolerance) and self._confirmed(whole, batch, measure):
                        raise Coupled(
                            f"{when} an example's gradient changes with the rest of the batch; something in the model "
                            f"or the loss mixes them: {COUPLED}"
                        )
                return
            except (RuntimeError, MemoryError) as error:
                if examples < 4 or not out_of_memory(error):
                    raise
                examples //= 2

    def _confirmed(self, whole: Measured, batch: Sequence[int], measure: Measure) -> bool:
        examples = len(whole[0])
        if self._check.double:
            try:
                with in_double(self._model):
                    precise = self.measured(range(examples), measure)
                    return _differ(precise, self.measured(batch, measure), batch, DOUBLE)
            except RuntimeError as error:  # targets that the loss wants in the outputs' precision
                if out_of_memory(error):
                    raise
        copies = self.measured((list(batch) * examples)[:examples], measure)
        return _differ(whole, copies, batch, self._tolerance)

    def changed(self, before: Measured, now: Measured) -> bool:
        """Whether the same examples, in the same batch, have other losses or norms by more than round-off."""
        return _differ(before, now, range(len(before[0])), self._tolerance)

    def measured(self, places: Sequence[int], measure: Measure) -> Measured:
        """Losses and norms, float64 [n] each, where every example meets the same random numbers."""
        with SameNoise(len(places), self._check.axes, watch=self._check.draws):
            return _as_numbers(measure(places))


def _as_numbers(found: Measured) -> Measured:
    """Losses and norms, from losses and squared norms."""
    losses, squares = found
    return losses.detach().double().cpu(), squares.detach().double().cpu().sqrt()


def _differ(whole: Measured, other: Measured, batch: Sequence[int], tolerance: Tolerance) -> bool:
    """Whether an example differs between a batch and the whole one; not finite it must be in both or neither."""
    for numbers, found in zip(whole, other, strict=True):
        here, there = numbers[list(batch)], found[: len(batch)]
        finite = here.isfinite()
        scale = float(numbers.nan_to_num(0.0, 0.0, 0.0).abs().max())
        if not torch.equal(finite, there.isfinite()) or not tolerance.holds(here, there, scale):
            return True
    return False


def _batches(losses: Tensor) -> list[Sequence[int]]:
    """All in the opposite order, each half, and by themselves the smallest and the largest loss and some between."""
    count = len(losses)
    everyone, order = range(count), losses.nan_to_num().argsort()
    some = order[torch.linspace(0, count - 1, min(_AT_THE_START, count)).long()].tolist()
    parts = [everyone[: count // 4] or everyone[:1], everyone[: count // 2], everyone[count // 2 :]]
    return [everyone[::-1], *parts, *([place] for place in some)]


def _one(losses: Tensor, step: int) -> int:
    """An example by the rank of its loss; the ranks of successive steps are spread evenly."""
    return int(losses.nan_to_num().argsort()[int((step + 1) * _GOLDEN % 1 * len(losses))])


def examples_tried(steps: int) -> Assumption:
    """What was tried in a run, and what no trial sees.

    How many examples a step drew is private, and so is which steps were looked at.

    Args:
        steps: that ran, or are planned.
    """
    return Assumption("examples_tried" if steps else "examples_tried_before")
