"""What a bound for each example rests on, tried out: whoever else is in the batch, an example's gradient is the same.

The clipped sum moves by no more than the clip norm when an example comes or goes if the gradient of every other one
stays. Two dozen really different rows (see `rows`) go through the model alone, and then in company:

- in groups of two, three, five and eight, so that each row is in one (losses only);
- all together in another order, around a row of NaN;
- all together, each with random numbers of its own, which must not be mixed either (losses only);
- one of them beside 24 copies of another one, which overflows what has room for some;
- in batches of equal size that share three rows of eight and differ in all others, so that round-off hides little;
- alone again at the end, after some hundred passes, which shows what earlier ones left behind.

Each row's loss, and the norm of its gradient in every parameter, must be what they are alone; in batches of equal size,
so must the gradients themselves. Where a batch does not fit into memory, its halves are tried.

What no such trial can see is said in `sfumato.guard.recheck`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves

from sfumato.guard.placeholders import made_rows, probe_rows, rows_at, stacked, with_nan
from sfumato.guard.trial import (
    COUPLED,
    SAME_SHAPE,
    Coupled,
    Tolerance,
    Trial,
    elsewhere,
    on_processor,
    other_device,
    to_processor,
)
from sfumato.per_example.coverage import name_of
from sfumato.per_example.engine import Recording
from sfumato.per_example.workspace import out_of_memory

_PROBES = 12  # rows of the data; what is made comes in addition
_SIZES = (2, 3, 5, 8)
_COPIES = 24
_KEPT = (0, 3, 7)  # rows of eight that stay: of each usual pairing a partner changes
_OTHER_OUTCOMES = 2  # of the draws, tried with some rows
_ROWS_AN_OUTCOME = 3


class Neighbours:
    """Rows of the user's data, each alone and in several companies.

    Args:
        trial: the model and its loss.
        pool: rows of the user's data, the more the better.
    """

    def __init__(self, trial: Trial, pool: Any) -> None:
        self._trial = trial
        given = [rows_at(pool, [place]) for place in probe_rows(pool, _PROBES)]
        tried = [(row, _alone(trial, row)) for row in given]
        tried += [(row, loss) for row in made_rows(pool) if (loss := _alone_if_it_runs(trial, row)) is not None]
        finite = [(row, loss) for row, loss in tried if bool(loss.isfinite())]
        self._rows = [row for row, _ in finite]
        self._losses = torch.stack([loss for _, loss in finite])
        everyone = list(range(len(finite)))
        nan = with_nan(self._rows[0])
        if _alone_if_it_runs(trial, nan) is not None:  # its place is behind all that are compared
            everyone.append(len(finite))
        self._batch = stacked([*self._rows, nan])
        last = len(finite) - 1
        self._groups = list(_groups(len(finite)))
        self._large = [everyone[1::2] + everyone[::2], [last, *([0] * _COPIES)]]

    def refuse_losses(self) -> None:
        """Refuse a model in which an example's loss depends on who else is in the batch.

        Raises:
            InputError: names the layer where the batch shows.
        """
        for places in (*self._groups, *self._large, [0, *([len(self._rows) - 1] * _COPIES)]):
            _in_memory(lambda some: self._compare_losses(some, self._losses), places)
        if self._trial.axes:
            own = torch.stack([_alone(self._trial, row, 1 + place) for place, row in enumerate(self._rows)])
            for places in (self._large[0], self._large[0][::-1]):
                _in_memory(lambda some: self._compare_losses(some, own, [1 + place for place in some]), places)

    def _compare_losses(self, places: Sequence[int], alone: Tensor, outcome: int | Sequence[int] = 0) -> None:
        with torch.no_grad():
            found = self._trial.forward(rows_at(self._batch, places), outcome=outcome).double().cpu()
        if not self._trial.apart:  # draws of several rows an example: whose is whose, nobody knows
            return
        scale = float(alone.nan_to_num(0.0, 0.0, 0.0).abs().max())
        for index, place in enumerate(places):
            if place < len(alone) and not self._trial.tolerance.holds(found[index], alone[place], scale):
                if outcome:
                    raise Coupled(
                        "the random numbers of an example reach others of the batch (by an order, a rank or a sum over "
                        f"them): {COUPLED}"
                    )
                self._refuse_loss(places, index)

    def refuse_gradients(self) -> None:
        """Refuse a model in which an example's gradient does.

        Raises:
            InputError: names a parameter whose gradient changed.
        """
        last = len(self._rows) - 1
        norms = self._in_groups()
        by_themselves = {place: self._trial.norms(self._rows[place]) for place in (0, last // 2, last)}
        for place, alone in by_themselves.items():
            self._refuse_differing(norms[place : place + 1], alone, self._trial.tolerance)
        for places in self._large:
            self._refuse_norms(norms, places)
        some = self._rows[:_ROWS_AN_OUTCOME]
        for outcome in range(1, 1 + _OTHER_OUTCOMES if self._trial.axes else 1):
            own = torch.cat([self._trial.norms(row, outcome=outcome) for row in some])
            self._refuse_norms(own, list(range(len(some))), outcome)
        self._refuse_change()
        self._refuse_differing(self._trial.norms(self._rows[0]), by_themselves[0], SAME_SHAPE)

    def _in_groups(self) -> Tensor:
        """The norms of each row's gradients in one of the small groups, float64 [rows, parameters]."""
        found: dict[int, Tensor] = {}

        def measure(some: Sequence[int]) -> None:
            found.update(zip(some, self._trial.norms(rows_at(self._batch, some)), strict=True))

        for places in self._groups:
            _in_memory(measure, places)
        return torch.stack([found[place] for place in range(len(self._rows))])

    def _refuse_norms(self, expected: Tensor, places: Sequence[int], outcome: int = 0) -> None:
        """Compare the norms of rows' gradients in a company with those alone."""

        def compare(some: Sequence[int]) -> None:
            found = self._trial.norms(rows_at(self._batch, some), outcome=outcome)
            own = [index for index, place in enumerate(some) if place < len(expected)]
            self._refuse_differing(found[own], expected[[some[index] for index in own]], self._trial.tolerance)

        _in_memory(compare, places)

    def _refuse_differing(self, found: Tensor, expected: Tensor, tolerance: Tolerance) -> None:
        """Refuse norms [n, parameters] that are not what they are alone."""
        usable = expected.isfinite().all(dim=1)
        if not torch.equal(found.isfinite().all(dim=1), usable):
            self._refuse_gradient(int((found.isfinite() != expected.isfinite()).any(dim=0).nonzero()[0]))
        if not bool(usable.any()):
            return
        found, expected = found[usable], expected[usable]
        whole = expected.norm(dim=1, keepdim=True)
        # a gradient that is nothing beside those of other examples may be round-off altogether
        least = tolerance.floor * whole + tolerance.floor**2 * whole.max()
        wrong = ~((found - expected).abs() <= tolerance.relative * expected + least)
        if bool(wrong.any()):
            self._refuse_gradient(int(wrong.any(dim=0).nonzero()[0]))

    def _refuse_change(self) -> None:
        """Compare the gradients of rows in two batches of one size that differ in all others."""
        count = len(self._rows)
        for shift in (0, 1):
            kept = [(shift + step * max(1, count // 3)) % count for step in range(len(_KEPT))]
            others = [place for place in range(count) if place not in kept] or kept
            for size in (8, 4, 2):
                try:
                    self._refuse_other_company(kept, (others, kept if shift else others[::-1]), size)
                except (RuntimeError, MemoryError) as error:
                    if size > 2 and out_of_memory(error):
                        continue
                    raise
                break

    def _refuse_other_company(self, kept: Sequence[int], companies: Sequence[Sequence[int]], size: int) -> None:
        stay = {place: kept[index] for index, place in enumerate(_KEPT) if place < size}
        total = [torch.zeros_like(each) for each in Recording(self._trial.layers).parameters]
        lengths: list[float] = []
        for company in companies:  # the second one is taken away, so that no large table is held twice
            places = [stay.get(place, company[place % len(company)]) for place in range(size)]
            with self._trial.recorded(rows_at(self._batch, places)) as recording:
                weights = torch.zeros(size, dtype=torch.float64, device=recording.parameters[0].device)
                for place in stay:
                    weights[place] = 1.0 / (1 + place)  # different ones, so that changes do not cancel
                weights[~recording.squared_norms().to(weights.device).isfinite()] = 0.0
                recording.add_to(total, -weights if lengths else weights)
            if not lengths:
                lengths = [float(torch.linalg.vector_norm(gradient)) for gradient in total]
        whole = torch.tensor(lengths, dtype=torch.float64).norm().item()
        for index, (difference, length) in enumerate(zip(total, lengths, strict=True)):
            allowed = SAME_SHAPE.relative * length + SAME_SHAPE.floor * whole
            if not float(torch.linalg.vector_norm(difference)) <= allowed:
                self._refuse_gradient(index)

    def _refuse_gradient(self, index: int) -> None:
        name = name_of(self._trial.layers, Recording(self._trial.layers).parameters[index])
        raise Coupled(
            f"parameter {name!r}: an example's gradient changes with the rest of the batch; something in the model or "
            f"the loss mixes them: {COUPLED}"
        )

    def _refuse_loss(self, places: Sequence[int], index: int) -> None:
        name = changed_layer(self._trial, self._batch, places, index)
        if name is not None:
            raise Coupled(f"layer {name!r}: its output for an example changes with the batch: {COUPLED}")
        raise Coupled(
            f"the loss of an example changes with the batch, and no layer's output does: {COUPLED} "
            "(look at the loss and at the model's own forward)"
        )


def _alone(trial: Trial, row: Any, outcome: int = 0) -> Tensor:
    with torch.no_grad():
        return trial.forward(row, outcome=outcome)[0].double().cpu()


def _alone_if_it_runs(trial: Trial, row: Any) -> Tensor | None:
    """The loss of a row that nobody gave; None where it does not go through the model."""
    if elsewhere(row):
        try:
            with on_processor(trial.model):
                _alone(trial, to_processor(row))
        except Exception as error:  # whatever the user's own forward raises
            if not other_device(error):
                return None
    try:
        return _alone(trial, row)
    except Exception:  # whatever the user's own forward raises
        return None


def _groups(count: int) -> Iterator[list[int]]:
    """Places of the rows that go together, by the batch."""
    start = turn = 0
    while start < count:
        size = _SIZES[turn % len(_SIZES)]
        yield [(start + step) % count for step in range(size)]
        start, turn = start + size, turn + 1


def _in_memory(compare: Callable[[Sequence[int]], None], places: Sequence[int]) -> None:
    """Compare all at once, or where memory runs out in halves."""
    try:
        compare(places)
    except (RuntimeError, MemoryError) as error:
        if len(places) < 3 or not out_of_memory(error):
            raise
        half = len(places) // 2
        _in_memory(compare, places[:half])
        _in_memory(compare, places[half:])


def changed_layer(trial: Trial, batch: Any, places: Sequence[int], index: int) -> str | None:
    """The name of the innermost such layer; None where no layer's output tells.

    Args:
        trial: the model and its loss.
        batch: rows.
        places: of the rows that go together.
        index: of the row among them.
    """
    together = _outputs(trial, rows_at(batch, places))
    alone = _outputs(trial, rows_at(batch, [places[index]]))
    if [name for name, _ in together] != [name for name, _ in alone]:
        return None
    for (name, output), (_, own) in zip(together, alone, strict=True):
        if not _alike(output, own, index, len(places), trial.tolerance):
            return name
    return None


def _outputs(trial: Trial, batch: Any) -> list[tuple[str, Tensor]]:
    """Every module's outputs in the order in which they are ready, inner modules first."""
    seen: list[tuple[str, Tensor]] = []
    handles = []
    for name, module in trial.model.named_modules():

        def watch(part: Any, inputs: Any, output: Any, name: str = name or type(module).__name__) -> None:
            if any(isinstance(each, PackedSequence) for each in (output if type(output) is tuple else (output,))):
                return  # its rows are time steps of all examples in turn: the next layers tell
            seen.extend((name, leaf.detach().clone()) for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

        handles.append(module.register_forward_hook(watch))
    try:
        with torch.no_grad():
            trial.forward(batch)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _alike(together: Tensor, alone: Tensor, index: int, count: int, tolerance: Tolerance) -> bool:
    """Whether an example's part of an output is its output alone; its dimension is where the sizes differ."""
    if together.shape == alone.shape:  # shared by the examples
        part = together
    else:
        differ = [axis for axis, sizes in enumerate(zip(together.shape, alone.shape)) if sizes[0] != sizes[1]]
        if together.dim() != alone.dim() or len(differ) != 1:
            return True  # padded or packed to other sizes: a later layer tells
        axis = differ[0]
        rows = alone.shape[axis]
        if together.shape[axis] != count * rows:
            return True
        part = together.narrow(axis, index * rows, rows)
    if not alone.is_floating_point():
        return True
    part, alone = part.double().nan_to_num(), alone.double().nan_to_num()
    scale = alone.abs().max() if alone.numel() else 0.0
    return bool(((part - alone).abs() <= tolerance.relative * scale + 1e-30).all())
