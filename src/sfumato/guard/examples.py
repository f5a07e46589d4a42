"""The check of a model and its loss at the start of a run: each example's gradient is its own.

The bound of an example rests on this: with any other examples in the batch, its gradient is the same. The clipped sum
moves by no more than the clip norm when an example comes or goes if the gradient of every other one stays. Two dozen
really different rows (see `placeholders`) go through the model alone, and then in batches:

- in groups of two, three, five and eight, so that each row is in one (losses only);
- all together in another order, around a row of NaN;
- all together, each with random numbers of its own, which must not be mixed either (losses only);
- one of them with 24 copies of another one, which overflows what has room for some;
- in batches of equal size that share three rows of eight and differ in all others, so that round-off hides little;
- alone again at the end, after some hundred passes, which shows what earlier ones left behind.

Each row's loss, and the norm of its gradient in every parameter, must be what they are alone; in batches of equal size,
so must the gradients themselves. Where a batch does not fit into memory, its halves are tried.

What no such trial can see is described in `sfumato.guard.recheck`.

Before anything else the model and its loss see examples in two orders in fresh processes, and placeholders here (see
`sfumato.guard.guard`). Then these things are held, in this order, and a model that breaks one is refused with the name
of the place:

1. No random number is drawn for several examples at once; see `shape_drawn`.
2. An example's loss is the same in any batch; see `Neighbours`.
3. No trained parameter is used outside its layer's forward pass (exactly: no path of the graph leads to one).
4. The gradient of one example's loss is zero at the other example, in every layer (exactly).
5. Each parameter's per-example gradients, in a batch of two and of one, are those of autograd: |engine - autograd| <=
   0.1 % of |autograd|, plus 1e-5 of the length of all gradients together (5 % and 1 % in half precision).
6. An example's gradient is the same in any batch; see `Neighbours`.
7. No parameter and no buffer changes while examples go through.

2 and 6 are in double precision wherever the model can be run in it, without autocast and half precision (`in_double`).
All of it is at weights that are shaken a little, since a layer that starts at zero would hide what is before it; where
the loss is not finite at such weights, at the weights as they are.

Random parts such as dropout stay at work: all passes meet the same numbers (`SameNoise`); the inner dropout of
recurrent layers and of attention is set to zero for the check. Weights, buffers and attributes are restored.

>>> model = nn.Linear(2, 1)
>>> check = self_check(model, lambda values: model(values).square().squeeze(1), torch.ones(2, 2))
>>> [layer.name for layer in check.layers], check.unused
([''], [])
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sfumato._check import InputError
from sfumato._torch import full_precision
from sfumato.guard.guard import Findings, at, histories, try_out
from sfumato.guard.placeholders import made_rows, placeholder_batch, probe_rows, rows_at, stacked, tensors_of, with_nan
from sfumato.guard.trial import (
    COUPLED,
    DOUBLE,
    HALF,
    SAME_SHAPE,
    SINGLE,
    Coupled,
    Losses,
    Tolerance,
    Trial,
    as_it_was,
    elsewhere,
    in_double,
    is_draw,
    on_processor,
    other_device,
    shaken,
    shape_drawn,
    to_processor,
    unchanged,
)
from sfumato.per_example.engine import Recording, covered, name_of, place_of
from sfumato.per_example.layers import ExpandRule
from sfumato.per_example.rule import Layer
from sfumato.per_example.workspace import out_of_memory

_PROBES = 12  # rows of the data; what is made comes in addition
_SIZES = (2, 3, 5, 8)
_COPIES = 24
_FIXED = (0, 3, 7)  # rows of eight that stay: of each usual pairing a partner changes
_OTHER_OUTCOMES = 2  # of the draws, tried with some rows
_ROWS_AN_OUTCOME = 3


class Neighbours:
    """Rows of the user's data, each alone and in several batches.

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
        if not self._trial.separate:  # draws of several rows an example: it is unknown whose is whose
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
        """Compare the norms of rows' gradients in a batch with those alone."""

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
        # a gradient that is tiny next to those of other examples may be round-off altogether
        least = tolerance.floor * whole + tolerance.floor**2 * whole.max()
        wrong = ~((found - expected).abs() <= tolerance.relative * expected + least)
        if bool(wrong.any()):
            self._refuse_gradient(int(wrong.any(dim=0).nonzero()[0]))

    def _refuse_change(self) -> None:
        """Compare the gradients of rows in two batches of one size that differ in all others."""
        count = len(self._rows)
        for shift in (0, 1):
            kept = [(shift + step * max(1, count // 3)) % count for step in range(len(_FIXED))]
            others = [place for place in range(count) if place not in kept] or kept
            for size in (8, 4, 2):
                try:
                    self._refuse_other_batches(kept, (others, kept if shift else others[::-1]), size)
                except (RuntimeError, MemoryError) as error:
                    if size > 2 and out_of_memory(error):
                        continue
                    raise
                break

    def _refuse_other_batches(self, kept: Sequence[int], others: Sequence[Sequence[int]], size: int) -> None:
        stay = {place: kept[index] for index, place in enumerate(_FIXED) if place < size}
        total = [torch.zeros_like(each) for each in Recording(self._trial.layers).parameters]
        lengths: list[float] = []
        for partners in others:  # the second one is taken away, so that no large table is held twice
            places = [stay.get(place, partners[place % len(partners)]) for place in range(size)]
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
    """The loss of a placeholder row; None where it does not go through the model."""
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
    """The name of the innermost such layer; None where no layer's output shows it.

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
        if not _unchanged(output, own, index, len(places), trial.tolerance):
            return name
    return None


def _outputs(trial: Trial, batch: Any) -> list[tuple[str, Tensor]]:
    """Every module's outputs in the order in which they are ready, inner modules first."""
    seen: list[tuple[str, Tensor]] = []
    handles = []
    for name, module in trial.model.named_modules():

        def watch(part: Any, inputs: Any, output: Any, name: str = name or type(module).__name__) -> None:
            if any(isinstance(each, PackedSequence) for each in (output if type(output) is tuple else (output,))):
                return  # its rows are time steps of all examples in turn: the next layers show it
            seen.extend((name, leaf.detach().clone()) for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

        handles.append(module.register_forward_hook(watch))
    try:
        with torch.no_grad():
            trial.forward(batch)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _unchanged(together: Tensor, alone: Tensor, index: int, count: int, tolerance: Tolerance) -> bool:
    """Whether an example's part of an output is its output alone; its dimension is where the sizes differ."""
    if together.shape == alone.shape:  # shared by the examples
        part = together
    else:
        differ = [axis for axis, sizes in enumerate(zip(together.shape, alone.shape)) if sizes[0] != sizes[1]]
        if together.dim() != alone.dim() or len(differ) != 1:
            return True  # padded or packed to other sizes: a later layer shows it
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


_LARGEST = 1 << 26  # numbers of a model that is tried out in double precision (512 MiB)
_PIECE = 1 << 16  # numbers of which squares are added up in the gradient's own precision
_ORDERED = 8  # rows that go through in two orders
_COMPUTED_AT_ONCE = 3  # of them in a batch
_NORMS = 4  # of every so many rows the gradient is measured, too
_LOOKED_AT = 16  # rows of which the first two with a finite loss are compared with autograd


@dataclass(frozen=True)
class SelfCheck:
    """What was found.

    Attributes:
        layers: how the model is covered, for `Recording`.
        unused: names of trained parameters that the losses do not depend on; their gradients are zero.
        largest_difference: between the engine and autograd, relative to a parameter's gradient.
        axes: of each random draw in turn, the dimension of the examples.
        draws: whether the model or the loss draws random numbers.
        double: whether the model can be run in double precision.
        half: whether the user's own run is in half precision.
        findings: what could be tried of what the first example leaves behind.
    """

    layers: list[Layer[nn.Module]]
    unused: list[str]
    largest_difference: float
    axes: Sequence[int | None] = ()
    draws: bool = True
    double: bool = False
    half: bool = False
    findings: Findings = field(default_factory=lambda: Findings(fresh=False, placeholders=False))


class Examples:
    """The `Subject` of a model and its loss: the loss of each row of a pool, and the gradient norms of some.

    Args:
        model: the user's module, in the mode in which it is trained.
        losses: gives float [B], one loss for each example of a batch; calls the model.
        pool: rows of the user's data, as `self_check` takes them.
        placeholders: batches that hold no record; None makes them from the pool's shapes and types.
        catchable: False where a failure of the user's code cannot be caught: then placeholders go through here only if
            they went through in a fresh process.
    """

    state_message = (
        "the examples are coupled: the loss of one depends on those that went through before; compute it from the "
        "example alone, or from public inputs"
    )
    tolerance: Tolerance | None = SAME_SHAPE

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        pool: Any,
        *,
        placeholders: Sequence[Any] | None = None,
        catchable: bool = True,
    ) -> None:
        self._trial = Trial(model, losses, covered(model), SINGLE)
        self._pool, self._catchable = pool, catchable
        made = [placeholder_batch(pool, rows, zeros=zeros) for zeros in (False, True) for rows in (1, 2, 8)]
        self._placeholders = made if placeholders is None else placeholders

    def placeholders(self) -> None:
        """Without gradients and with them, in the mode of the model and, where that can be caught, in the other one."""
        taken, error = False, RuntimeError("the user's code does not take placeholders")
        safe = self._catchable or histories([self._through_all]) is not None
        for batch in self._placeholders:
            if not safe and histories([partial(self._through, batch)]) is None:
                continue
            try:
                self._through(batch)
                taken = True
            except Exception as found:  # whatever the user's own forward raises where it is given what no record is
                error = RuntimeError(str(found))
        if not taken:
            raise error

    def _through_all(self) -> None:
        for batch in self._placeholders:
            self._through(batch)

    def _through(self, batch: Any) -> None:
        model = self._trial.model
        modes = [(part, part.training) for part in model.modules()]
        try:
            with as_it_was(model):
                _without_gradient(self._trial, batch)
                with self._trial.recorded(batch):
                    pass
                if self._catchable:
                    model.train(not model.training)
                    _without_gradient(self._trial, batch)
        finally:
            for part, training in modes:
                part.training = training

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """Losses and norms [n, 2] of rows, float64; the norm is 0 where it is not measured."""
        trial, pool = self._trial, self._pool
        measured = sorted(units)[::_NORMS]
        found = []
        with as_it_was(trial.model), shaken(Recording(trial.layers).parameters):
            for unit in units:  # alone first: what a rare one switches on is off for those before it
                at(unit)
                row = rows_at(pool, [unit])
                loss = _without_gradient(trial, row).double().cpu()[0]
                norm = trial.norms(row).norm() if unit in measured else torch.zeros(())
                found.append(torch.stack([loss, norm.double()]))
            for start in range(0, len(units), _COMPUTED_AT_ONCE):
                at(units[start])
                _without_gradient(trial, rows_at(pool, units[start : start + _COMPUTED_AT_ONCE]))
        at(None)
        return torch.stack(found)


def examples_first(
    model: nn.Module,
    losses: Losses,
    pool: Any,
    *,
    placeholders: Sequence[Any] | None = None,
    catchable: bool = True,
) -> Findings:
    """Compare examples in two orders, and let placeholders be the first; see `Examples` for the arguments."""
    subject = Examples(model, losses, pool, placeholders=placeholders, catchable=catchable)
    return try_out(subject, probe_rows(pool, _ORDERED))


def self_check(
    model: nn.Module, losses: Losses, batch: Any, *, double: bool = True, findings: Findings | None = None
) -> SelfCheck:
    """Check the model, the loss and the engine on rows of the user's data.

    Args:
        model: the user's module, in the mode in which it is trained.
        losses: gives float [B], one loss for each example of a batch; calls the model.
        batch: tensors with the examples in dimension 0, in any tuples, lists and dictionaries; what is no tensor is
            shared. The more rows from all over the data, the more is seen: 128 are plenty, one is enough.
        double: try whether the model can be run in double precision; False where a failure could not be caught.
        findings: of `examples_first`, where that ran before; None runs it.

    Raises:
        InputError: the model cannot be covered, couples examples, or uses a parameter where it cannot be seen.
    """
    if not tensors_of(batch) or not len(tensors_of(batch)[0]):
        raise InputError("the self-check needs an example, got an empty batch; give it training examples")
    layers = covered(model)
    if findings is None:
        findings = examples_first(model, losses, batch, catchable=double)
    with as_it_was(model), unchanged(model, buffers=False) as kept:
        trial = Trial(model, losses, layers, SINGLE)
        pair = _finite_pair(trial, batch)
        if pair is None:
            raise InputError("the loss of the first examples is not finite; look at the inputs and the initial weights")
        with shaken(Recording(layers).parameters, kept):
            if bool(_without_gradient(trial, pair).isfinite().all()):
                with unchanged(model):
                    return _checked(trial, batch, pair, double, findings)
        with unchanged(model):
            return _checked(trial, batch, pair, double, findings)


def _finite_pair(trial: Trial, batch: Any) -> Any:
    """Two rows with finite losses, the same one twice where there is only one; None if there is none."""
    finite = (
        place
        for place in probe_rows(batch, _LOOKED_AT)
        if bool(_without_gradient(trial, rows_at(batch, [place])).isfinite())
    )
    found = list(islice(finite, 2))
    return rows_at(batch, [found[0], found[-1]]) if found else None


def _without_gradient(trial: Trial, batch: Any) -> Tensor:
    with torch.no_grad():
        return trial.forward(batch)


def _checked(trial: Trial, batch: Any, pair: Any, double: bool, findings: Findings) -> SelfCheck:
    """The checks at the weights as they are."""
    model = trial.model
    axes = refuse_shared_draws(trial, rows_at(pair, [0]))
    trial.axes, trial.draws = axes or (), axes is not None
    half, wide = _in_half(trial, pair), {}
    double = double and _runs_in_double(trial, pair, wide)
    trial.tolerance = HALF if half else SINGLE
    precise = replace(trial, tolerance=DOUBLE) if double else trial
    with _precisely(model, double, wide):
        neighbours = Neighbours(precise, batch)
        neighbours.refuse_losses()
    _outside_uses(trial, pair)
    try:
        unused, difference = _compared(trial, pair)
    except (InputError, RuntimeError):
        if not any(isinstance(layer.rule, ExpandRule) for layer in trial.layers):
            raise
        trial.layers = precise.layers = covered(model, expand=False)
        unused, difference = _compared(trial, pair)
    with _precisely(model, double, wide):
        neighbours.refuse_gradients()
    findings.refuse()  # behind the checks that name a layer
    return SelfCheck(list(trial.layers), unused, difference, tuple(trial.axes), trial.draws, double, half, findings)


@contextmanager
def _precisely(model: nn.Module, double: bool, wide: dict[int, Tensor]) -> Iterator[None]:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with full_precision(device), in_double(model, wide) if double else nullcontext():
        yield


def _in_half(trial: Trial, pair: Any) -> bool:
    """Whether a module gives half precision in the user's own run."""
    seen: list[torch.dtype] = []

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        seen.extend(leaf.dtype for leaf in tree_leaves(output) if isinstance(leaf, Tensor))

    handles = [module.register_forward_hook(watch) for module in trial.model.modules()]
    try:
        _without_gradient(trial, pair)
    finally:
        for handle in handles:
            handle.remove()
    return torch.float16 in seen or torch.bfloat16 in seen


def _runs_in_double(trial: Trial, pair: Any, copies: dict[int, Tensor]) -> bool:
    """Whether the model and its loss can be run and differentiated in double precision, and give it."""
    if sum(tensor.numel() for tensor in (*trial.model.parameters(), *trial.model.buffers())) > _LARGEST:
        return False
    layers = covered(trial.model, expand=False)  # copies of parameters may not work, as is found out later
    wide = Trial(trial.model, trial.losses, layers, DOUBLE, trial.axes, trial.draws)
    try:
        with in_double(trial.model, copies):
            if _without_gradient(wide, pair).dtype != torch.float64:
                return False
            wide.norms(pair)
    except Exception:  # whatever the user's own forward raises
        return False
    return True


def _outside_uses(trial: Trial, pair: Any) -> None:
    """Refuse parameters that the losses reach past their layers: each is switched off within its layer's forward."""
    layers = trial.layers
    names = {id(layer.module.get_parameter(name)): (layer, name) for layer in layers for name in sorted(layer.wanted)}
    parameters = [layer.module.get_parameter(name) for layer, name in names.values()]
    depth = dict.fromkeys(names, 0)
    handles = []
    for layer in layers:
        own = [layer.module.get_parameter(name) for name in layer.wanted]

        def switch(step: int, own: Sequence[nn.Parameter] = own) -> Callable[..., None]:
            def turn(*_: Any) -> None:
                for parameter in own:
                    depth[id(parameter)] += step
                    parameter.requires_grad_(depth[id(parameter)] == 0)

            return turn

        handles.append(layer.module.register_forward_pre_hook(switch(1)))
        handles.append(layer.module.register_forward_hook(switch(-1), always_call=True))
    try:
        found = trial.forward(pair)
        if not found.requires_grad:
            return
        gradients = torch.autograd.grad(found.sum(), parameters, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
        for parameter in parameters:
            parameter.requires_grad_(True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            raise Coupled(
                f"parameter {name_of(layers, parameter)!r} is used outside its layer's forward pass, where no "
                "example's share shows; call the layer, or drop the loss term (weight decay: optimiser)"
            )


def _compared(trial: Trial, pair: Any) -> tuple[list[str], float]:
    """The engine's gradients of each example against autograd's, and nothing of one at the other.

    Returns:
        the parameters without a gradient, and the largest difference.
    """
    layers = trial.layers
    other_norms = []
    for index in range(2):
        with Recording(layers, examples=2) as recording:
            both = trial.forward(pair)
            recording.backward(both * torch.eye(2, dtype=both.dtype, device=both.device)[index])
        other_norms.append([recording.squared_norms([parameter])[1 - index] for parameter in recording.parameters])
    for parameter, *norms in zip(recording.parameters, *other_norms, strict=True):
        if any(norm != 0 for norm in norms):
            raise Coupled(
                f"parameter {name_of(layers, parameter)!r}: one example's loss has a gradient at another one's "
                f"input, so a later layer mixes or reorders examples: {COUPLED}"
            )
    relative, floor = trial.tolerance.relative, trial.tolerance.floor
    largest = 0.0
    # the second of two, and one in a batch of its own: sampling may leave one, and so may micro-batches
    for places, index in (([0, 1], 1), ([0], 0)):
        rows = rows_at(pair, places)
        wanted = _by_autograd(trial.forward(rows)[index], recording)
        lengths = [0.0 if gradient is None else _length(gradient) for gradient in wanted]
        differences = [
            torch.zeros_like(parameter) if gradient is None else gradient.neg()
            for parameter, gradient in zip(recording.parameters, wanted, strict=True)
        ]
        del wanted
        with Recording(layers, examples=len(places)) as recording:
            losses = trial.forward(rows)
            recording.backward(losses * (torch.arange(len(places), device=losses.device) == index))
        recording.add_to(differences, losses.new_ones(len(places)).detach())  # of an embedding the rows that occur
        whole = torch.tensor(lengths).norm().item()
        for parameter, difference, length in zip(recording.parameters, map(_length, differences), lengths, strict=True):
            if not difference <= relative * length + floor * whole:
                layer, _ = place_of(layers, parameter)
                raise InputError(
                    f"parameter {name_of(layers, parameter)!r}: its per-example gradient differs from autograd's by "
                    f"{difference:.3g} of {length:.3g} (layer {type(layer.module).__name__}, rule {layer.rule.path}); "
                    "freeze it, or use a layer of torch.nn"
                )
            if length > floor * whole:
                largest = max(largest, difference / length)
    return recording.unused(), largest


def _by_autograd(loss: Tensor, recording: Recording) -> list[Tensor | None]:
    """The gradient in each of a recording's parameters; None where there is none."""
    parameters = recording.parameters
    if not recording.without_gradients:
        return list(torch.autograd.grad(loss, parameters, allow_unused=True))
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        loss.backward()
        return [parameter.grad for parameter in parameters]
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


def _length(values: Tensor) -> float:
    """The norm; a long sum of squares in single precision falls short by parts in a thousand."""
    pieces = values.reshape(-1).split(_PIECE)
    return float(torch.stack([torch.linalg.vector_norm(piece) for piece in pieces]).double().norm())


SHARED = (
    "one number for several examples couples them; draw one for each example (torch.rand(len(inputs), 1), dropout on a "
    "tensor with a dimension of examples)"
)

_SEED = 0x5EED_0F_DA7A  # used nowhere else


class _Draws(TorchDispatchMode):
    """Notes each draw: the module in which it is made, and its shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[int, ...] | None]] = []
        self.other_generator = False  # a generator that the model brings
        self._inside: list[str] = []
        self._handles: list[Any] = []
        for name, module in model.named_modules():
            self._handles.append(module.register_forward_pre_hook(lambda *_, at=name: self._inside.append(at)))
            self._handles.append(module.register_forward_hook(lambda *_: _none(self._inside.pop()), always_call=True))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.other_generator |= kwargs.get("generator") is not None
        if is_draw(func, kwargs):
            self.found.append((self._inside[-1] if self._inside else "", shape_drawn(func, args)))
        return func(*args, **kwargs)

    def detach(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()


def refuse_shared_draws(trial: Trial, row: Any) -> list[int | None] | None:
    """Refuse a model or loss that draws for several examples at once.

    Args:
        trial: the model and its loss.
        row: a batch of one example.

    Returns:
        for each draw in turn, the dimension of the examples; an empty list where the draws differ in number from pass
        to pass, and None where there are none.

    Raises:
        InputError: names the module in which a shared number is drawn.
    """
    alone, together = (_draws_in(trial, rows_at(row, [0] * copies)) for copies in (1, 2))
    if not alone and not together:
        return None
    if len(alone) != len(together):
        return []
    axes: list[int | None] = []
    for (name, one), (_, two) in zip(alone, together, strict=True):
        grown = zip(one, two) if one is not None and two is not None and len(one) == len(two) else ()
        axis = next((at for at, (size, twice) in enumerate(grown) if size and twice == 2 * size), None)
        if axis is None:
            where = f"layer {name!r}" if name else "the model's own forward or the loss"
            what = "an order or a choice over the batch" if two is None else f"a random draw of shape {list(two)}"
            raise Coupled(f"{where}: {what} is shared by the examples of a batch: {SHARED}")
        axes.append(axis)
    return axes


def _draws_in(trial: Trial, batch: Any) -> list[tuple[str, tuple[int, ...] | None]]:
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    draws = _Draws(trial.model)
    try:
        with torch.no_grad(), torch.random.fork_rng(), draws:
            torch.manual_seed(_SEED)
            trial.losses(batch)
            seeded = torch.initial_seed() != _SEED
        drawn = random.getstate() != of_python or _differs(np.random.get_state(), of_numpy)  # noqa: NPY002
    finally:
        draws.detach()
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002
    if seeded:
        raise Coupled(
            "the model or the loss seeds torch's generator, which gives each place of a batch fixed numbers; "
            "leave out torch.manual_seed: the run seeds"
        )
    if drawn or draws.other_generator:
        raise Coupled(
            "the model or the loss draws from its own generator, numpy.random or random, which the run does "
            f"not seed; use torch's own: {SHARED}"
        )
    return draws.found


def _differs(one: Any, other: Any) -> bool:
    return one[2:] != other[2:] or not np.array_equal(one[1], other[1])


def _none(_: Any) -> None:
    return None
