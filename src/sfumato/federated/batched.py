"""Many clients in one batched operation: `torch.func.vmap` over a stack of models.

For models so small that a step is mostly overhead. The arithmetic is that of `ClientTrainer`, client by client: the
same order of examples, the same fresh heads, the same number of steps; short batches are padded and the padding has
weight zero, a client that has finished keeps its parameters. Results agree to float rounding. A model that draws
random numbers (dropout) is refused: all in an operation would draw from one generator, and who is there decide who
gets what. Memory is two copies of what is trained (and momentum) for each client of the batch, of large
tables only the rows that it touches, and the examples of one step; what is of the same size in every step is kept,
since fresh memory costs as much as the arithmetic.

`BatchSlots` assigns clients to operations and to the slots in them. So no client decides how the numbers of another one
round: a client's delta is the same to the last bit for any other clients in the operation. A model that mixes the rows
of a batch meets a client's padding, too, which follows from the client's own number of examples. The model computes on
a copy of the weights to start from: what it writes into them is detected, and never reaches those that are released.

Large tables of which a client touches a few rows: copies, steps and deltas of those rows alone.

A copy of a whole table of items for each of a thousand clients would be gigabytes of which almost nothing changes: a
step of plain SGD moves the rows of its own batch and no other. So a client's copy holds the rows that its records
name, a step differentiates by the rows of its batch, and the delta is zero elsewhere. It is the same arithmetic: rows
that a batch names twice get both gradients.

A model declares which of its weights are such tables: its attribute `row_tables` maps the name of a weight [rows, …] to
the column of the inputs that alone gives the row of an example, as `nn.Embedding` does. Within a step the weight is
then the batch's rows, and the column counts from 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from sfumato._check import InputError, first_line
from sfumato._torch import at_least_single
from sfumato.clipping import ClippedSum
from sfumato.clipping.clipped_sum import row_norms
from sfumato.federated.client import Client, ClientData, Phase, Steps, class_widths, head_generator
from sfumato.federated.losses import Means, glorot_head
from sfumato.guard.trial import same_values
from sfumato.per_example.workspace import Workspace
from sfumato.training.trainable import Trainable

OTHER_ROWS = (
    "the model's row_tables do not name the rows of an example; name weights that are looked up by that column alone, "
    "or use client.at_once=1"
)
"""What is wrong where `row_tables` names a table that is looked up in another way."""

_NUMBERS = 1 << 22  # of weighted rows in double precision at a time


def row_tables_of(trained: Trainable) -> dict[int, int]:
    """The column of the inputs for each trained parameter, by its place, that the model declares a table of rows.

    A column that another table is looked up by, a frozen one or one of each client's own, has to go on naming its rows:
    tables of that column are trained as a whole.

    Raises:
        InputError: the model names a parameter that it does not have.
    """
    tables: dict[str, int] = getattr(trained.model, "row_tables", {})
    known = dict(trained.model.named_parameters())
    for name in tables:
        if name not in known:
            raise InputError(f"the model's row_tables name {name}, which is no parameter; it has {', '.join(known)}")
    others = {column for name, column in tables.items() if name not in trained.layout.names}
    names = enumerate(trained.layout.names)
    return {place: tables[name] for place, name in names if name in tables and tables[name] not in others}


class RowCopies:
    """Each client's copy of the rows of one table that its records name.

    Args:
        table: the weight, [rows, …].
        column: of the inputs.
        clients: their examples.
        steps: of the phase that trains the table.

    Attributes:
        rows: the copies, [clients, most, …].
    """

    def __init__(self, table: Tensor, column: int, clients: ClientData, steps: Steps) -> None:
        self._table = table
        if clients.inputs.ndim != 2 or not 0 <= column < clients.inputs.shape[1]:
            raise InputError(OTHER_ROWS)
        ids = clients.inputs[:, column].astype(np.int64)
        self._refuse_unknown(ids)
        owner = np.arange(len(clients))[:, None]
        held = np.unique((owner * len(table) + ids[steps.rows])[steps.present])
        owners, known = np.divmod(held, len(table))
        counts = np.bincount(owners, minlength=len(clients))
        place = np.arange(len(held)) - (np.cumsum(counts) - counts)[owners]
        self._ids = np.zeros((len(clients), max(1, counts.max(initial=0))), np.int64)
        self._ids[owners, place] = known
        self._held, self._place, self._rows_of, self._owner = held, place, ids, owner
        self.rows = table[torch.from_numpy(self._ids).to(table.device)]

    def _refuse_unknown(self, ids: np.ndarray) -> None:
        outside = (ids < 0) | (ids >= len(self._table))
        if outside.any():
            raise InputError(
                f"an input names row {int(ids[outside][0])} of a table of {len(self._table):,}; build the model for "
                "all items of the data"
            )

    def slots(self, steps: Steps, step: int) -> Tensor:
        """Which of its client's rows each example of a batch takes, int64 [clients, n]; 0 for what does not exist."""
        part = steps.part(step)
        keys = self._owner * len(self._table) + self._rows_of[steps.rows[:, part]]
        places = self._place[np.searchsorted(self._held, keys).clip(max=len(self._held) - 1)]
        return torch.from_numpy(np.where(steps.present[:, part], places, 0)).to(self.rows.device)

    def take(self, slots: Tensor) -> Tensor:
        """A batch's rows, [clients, n, …]."""
        return torch.gather(self.rows, 1, self._spread(slots))

    def step(self, slots: Tensor, gradients: Tensor, rate: float) -> None:
        """Move a batch's rows by their gradients [clients, n, …]."""
        self.rows.scatter_add_(1, self._spread(slots), gradients.mul_(-rate))

    def deltas(self) -> "RowDeltas":
        """How far the rows have moved."""
        ids = torch.from_numpy(self._ids).to(self.rows.device)
        return RowDeltas(ids, self._table[ids] - self.rows)

    def _spread(self, slots: Tensor) -> Tensor:
        trailing = self.rows.shape[2:]
        return slots.view(*slots.shape, *[1] * len(trailing)).expand(*slots.shape, *trailing)


@dataclass(frozen=True)
class RowDeltas:
    """Deltas of a table, zero but for a few rows of each client.

    Attributes:
        ids: int64 [clients, n], which rows; 0 for what is not used.
        values: [clients, n, …]; zero where not used.
    """

    ids: Tensor
    values: Tensor


@dataclass(frozen=True)
class PartDeltas:
    """Deltas of all trained parameters, those of tables by rows.

    Attributes:
        parts: of each parameter in the layout's order: [clients, *shape], or its rows.
    """

    parts: Sequence[Tensor | RowDeltas]

    def __len__(self) -> int:
        return len(self._values(0))

    def of(self, clients: slice | Tensor) -> "PartDeltas":
        """Those of some clients."""
        return PartDeltas([_of(part, clients) for part in self.parts])

    def _values(self, place: int) -> Tensor:
        part = self.parts[place]
        return part.values if isinstance(part, RowDeltas) else part

    def whole(self, shapes: Sequence[torch.Size]) -> Tensor:
        """As vectors, [clients, size]; for few clients."""
        found = []
        for part, shape in zip(self.parts, shapes, strict=True):
            if isinstance(part, RowDeltas):
                full = part.values.new_zeros(len(part.ids), *shape)
                for row, ids, values in zip(full, part.ids, part.values, strict=True):
                    row.index_add_(0, ids, values)
                part = full
            found.append(part.flatten(1))
        return torch.cat(found, dim=1)

    def add_to(self, share: ClippedSum) -> None:
        """Weight each client's delta and add it to a running sum, as `ClippedSum.add_rows` does."""
        each = torch.stack([_norms(part) for part in self.parts])
        norms = torch.stack([torch.linalg.vector_norm(each[group], dim=0) for group in share.groups])
        weights, totals = share.weigh(norms), share.parts()
        usable = weights[0] > 0  # zero times NaN would be NaN
        for group, weight in zip(share.groups, weights, strict=True):
            for place in group:
                _add(totals[place], self.parts[place], usable, weight[usable])


def _norms(part: Tensor | RowDeltas) -> Tensor:
    """Of each client's part; how many rows others have touched is added to none of them."""
    if not isinstance(part, RowDeltas):
        return row_norms(part.flatten(1))
    squares = row_norms(part.values.flatten(0, 1).flatten(1)).square()
    owner = torch.arange(len(part.ids), device=squares.device).repeat_interleave(part.ids.shape[1])
    return squares.new_zeros(len(part.ids)).index_add_(0, owner, squares).sqrt()  # one after the other: zeros add 0


def _of(part: Tensor | RowDeltas, clients: slice | Tensor) -> Tensor | RowDeltas:
    if isinstance(part, RowDeltas):
        return RowDeltas(part.ids[clients], part.values[clients])
    return part[clients]


def _add(total: Tensor, part: Tensor | RowDeltas, usable: Tensor, weight: Tensor) -> None:
    values = at_least_single((part.values if isinstance(part, RowDeltas) else part)[usable])
    if not len(values):
        return
    factors = weight.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
    if not isinstance(part, RowDeltas):
        total.add_((values * factors).sum(0, dtype=torch.float64))
        return
    step = max(1, _NUMBERS // values[0].numel())
    for start in range(0, len(values), step):
        here = slice(start, start + step)
        rows = (values[here] * factors[here]).double().flatten(0, 1)
        total.index_add_(0, part.ids[usable][here].flatten(), rows)


_MOVE = {
    *("_to_copy", "_unsafe_view", "alias", "arange", "cat", "clone", "copy_", "detach", "embedding", "empty"),
    *("empty_like", "expand", "fill_", "full", "full_like", "gather", "index", "lift_fresh", "new_zeros", "ones"),
    *("ones_like", "permute", "select", "select_backward", "slice", "slice_backward", "split", "split_with_sizes"),
    *("squeeze", "stack", "t", "transpose", "unbind", "unsqueeze", "view", "zero_", "zeros", "zeros_like"),
}


_ADD = {"embedding_dense_backward", "index_add_", "index_put_", "mean", "scatter_add_", "sum"}


class NumberByNumber(TorchDispatchMode):
    """Whether all that is computed within a `with` statement treats numbers one by one or adds them up in a row.

    How these round does not follow from where numbers lie in memory. Products of matrices, convolutions and whatever is
    not known here may add up in an order that does.

    >>> with NumberByNumber() as computed:
    ...     _ = torch.ones(2, 3).exp().sum(1)
    >>> computed.only
    True
    >>> with NumberByNumber() as computed:
    ...     _ = torch.ones(2, 3) @ torch.ones(3)
    >>> computed.only
    False

    Attributes:
        only: nothing else was met so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.only = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let the operation run, and keep what kind it is."""
        name = func.overloadpacket.__name__
        self.only &= func.namespace == "aten" and (torch.Tag.pointwise in func.tags or name in _MOVE | _ADD)
        return func(*args, **(kwargs or {}))


_WIDTH = 32


_OWN, _SHARED, _ROWS = range(3)  # arguments of the loss that may be differentiated


class BatchedTrainer:
    """Trains several clients at once; arguments as for `ClientTrainer`."""

    def __init__(self, local: Client, trained: Trainable) -> None:
        self.local = local
        self.trained = trained
        trains = {id(p) for p in (*trained.parameters, *trained.local_parameters.values())}
        self._fixed = {n: p.detach() for n, p in trained.model.named_parameters() if id(p) not in trains}
        self._fixed.update({name: buffer.detach() for name, buffer in trained.model.named_buffers()})
        # What has momentum goes on moving when no batch names it.
        self._tables = {} if local.momentum else row_tables_of(trained)
        self._space = Workspace()

    def deltas(
        self, theta: Tensor, clients: ClientData, seeds: Sequence[int]
    ) -> tuple[Tensor | PartDeltas, Tensor, int]:
        """Train all clients from `theta`, float [size], in one operation; see `BatchSlots.operations`.

        Returns:
            Δ float [clients, size], or its parts where the model has tables of rows, valid until the next call; the
            mean loss of each client's steps, [clients]; processed examples.

        Raises:
            InputError: the model wrote into its weights.
        """
        work = self._work(theta, clients, seeds)
        for phase in self.local.phases:
            work.run(phase)
        if not same_values(self.trained.vector, theta):
            raise InputError(
                "the model writes into its weights while it computes, which couples the clients of a batch; "
                "leave weights alone in forward, or use client.at_once=1"
            )
        return work.deltas(), work.losses(), work.examples

    def local_values(
        self, theta: Tensor, clients: ClientData, seeds: Sequence[int], phases: Sequence[Phase]
    ) -> list[Tensor]:
        """Each client's own part after some phases that leave the shared one, [clients, …] for each parameter."""
        count = len(clients)
        filled = np.concatenate(
            [np.arange(count), np.full(-count % _WIDTH, -1)]
        )  # mostly the same for any number of clients
        work = self._work(theta, clients.of(filled), [*seeds, *[0] * (len(filled) - count)])
        for phase in phases:
            work.run(phase)
        return [part[:count] for part in work.local_values]

    def outputs(self, theta: Tensor, local_values: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """What the model gives each client for inputs [clients, n, …]."""
        names = [*self.trained.local_parameters, *self.trained.layout.names]

        def one(local: Sequence[Tensor], inputs: Tensor) -> Tensor:
            values = dict(zip(names, (*local, *self.trained.views(theta)), strict=True))
            return functional_call(self.trained.model, {**self._fixed, **values}, (inputs,))

        with torch.no_grad():
            return vmap(one)(list(local_values), inputs)

    def _work(self, theta: Tensor, clients: ClientData, seeds: Sequence[int]) -> "_Work":
        self.trained.load(theta)
        self.trained.follow(theta)  # nothing refreshes statistics of public inputs within vmap
        return _Work(self, theta, clients, np.array(seeds))


class _Work:
    """Some clients on their way from `theta`."""

    def __init__(self, trainer: BatchedTrainer, theta: Tensor, clients: ClientData, seeds: np.ndarray) -> None:
        self._local, self._trained, self._space = trainer.local, trainer.trained, trainer._space
        self._fixed, self._tables = trainer._fixed, trainer._tables
        self._theta, self._clients, self._seeds = theta, clients, seeds
        self._classes = torch.from_numpy(clients.classes).to(theta.device)
        self._names = list(self._trained.layout.names)
        self._views = self._trained.views(self._trained.vector)  # and never those of theta
        self._stack: Tensor | None = None
        self._dense: list[Tensor] = []
        self._copies: dict[int, RowCopies] = {}
        self.local_values = [
            value.detach().expand(len(clients), *value.shape).clone()
            for value in (self._trained.initial_value(name) for name in self._trained.local_parameters)
        ]
        self._loss_sum = torch.zeros(len(clients), device=theta.device)
        self._steps_taken = np.zeros(len(clients), np.int64)
        self.examples = 0

    def run(self, phase: Phase) -> None:
        """All steps of a phase."""
        steps = Steps(self._clients, phase, self._local.reconstruction, self._seeds)
        self.examples += steps.examples
        self._steps_taken += steps.counts
        if not len(steps):
            return
        if phase.shared is not None:
            self._copy(steps)
        gradients_of = self._gradients(phase)
        momenta: list[Tensor] | None = None
        for step in range(len(steps)):
            inputs, labels, weights = (x.to(self._theta.device) for x in steps.batch(step))
            if self._local.head_kind == "own" and len(self.local_values) == len(self._trained.local_parameters):
                self.local_values.append(self._heads(inputs[:1, 0], steps))
            slots = {place: copies.slots(steps, step) for place, copies in self._copies.items()}
            rows = [self._copies[place].take(slots[place]) for place in slots]
            try:
                with _report_sequential():
                    gradients, loss = gradients_of(
                        self.local_values,
                        self._views if self._stack is None else self._dense,
                        rows,
                        self._renumbered(inputs),
                        labels,
                        weights.to(self._theta.dtype),
                        self._classes,
                    )
            except IndexError as error:
                if not rows:
                    raise
                raise InputError(OTHER_ROWS) from error
            active = None
            if not (step < steps.counts).all():
                active = torch.from_numpy(step < steps.counts).to(self._theta.device)
            self._loss_sum += loss if active is None else torch.where(active, loss, 0.0)
            momenta = self._step(phase, gradients, momenta, slots, active)
            del gradients  # before the next ones are made, so that these lie where those did

    def deltas(self) -> Tensor | PartDeltas:
        """How far the shared parameters of each client have moved."""
        if self._stack is None:
            return self._theta.new_zeros(len(self._clients), self._theta.numel())
        if not self._copies:
            return torch.sub(self._theta, self._stack, out=self._stack)
        dense = iter(self._dense)
        return PartDeltas(
            [
                self._copies[place].deltas()
                if place in self._copies
                else torch.sub(view, (moved := next(dense)), out=moved)
                for place, view in enumerate(self._views)
            ]
        )

    def losses(self) -> Tensor:
        """The mean loss of each client's steps."""
        counts = torch.from_numpy(np.maximum(1, self._steps_taken)).to(self._theta.device)
        return self._loss_sum / counts

    def _copy(self, steps: Steps) -> None:
        """Give each client a copy of the shared parameters, before the first step that trains them."""
        if self._stack is not None:
            if self._tables:
                raise NotImplementedError("one phase at most trains tables of rows")
            return
        whole = [place for place in range(len(self._views)) if place not in self._tables]
        sizes = [self._views[place].numel() for place in whole]
        stack = self._space.take("stack", (len(self._clients), sum(sizes)), self._theta)
        self._stack, pieces = stack, stack.split(sizes, dim=1)
        self._dense = [
            piece.view(len(stack), *self._views[place].shape).copy_(self._views[place])
            for piece, place in zip(pieces, whole, strict=True)
        ]
        for place, column in self._tables.items():
            self._copies[place] = RowCopies(self._views[place], column, self._clients, steps)

    def _renumbered(self, inputs: Tensor) -> Tensor:
        """The inputs, with columns that name rows of tables counting the examples of their batch."""
        if not self._copies:
            return inputs
        inputs = inputs.clone()
        for place in self._copies:
            inputs[:, :, self._tables[place]] = torch.arange(inputs.shape[1], device=inputs.device)
        return inputs

    def _gradients(self, phase: Phase) -> Callable[..., Any]:
        """The gradients of what the phase trains, and the loss, for all clients."""
        wanted = []
        if phase.local is not None and (self._trained.local_parameters or self._local.head_kind == "own"):
            wanted.append(_OWN)
        if phase.shared is not None:
            wanted += [_SHARED, _ROWS]
        shared = None if self._stack is None else 0
        return vmap(
            grad_and_value(self._loss, argnums=tuple(wanted)),
            in_dims=(0, shared, 0, 0, 0, 0, 0),
            randomness="error",
        )

    def _loss(
        self,
        local: list[Tensor],
        shared: list[Tensor],
        rows: list[Tensor],
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        classes: Tensor,
    ) -> Tensor:
        """Of one client's batch."""
        head = None
        if self._local.head_kind != "none":
            source = shared if self._local.head_kind == "shared" else local
            head = source[-1]
        values = dict(zip(self._trained.local_parameters, local, strict=False))  # a head comes after them
        names = [name for place, name in enumerate(self._names) if place not in self._copies]
        values |= dict(zip(names, shared, strict=True))
        values |= {self._names[place]: part for place, part in zip(self._copies, rows, strict=True)}
        values = {**self._fixed, **values}
        if self._local.head_kind == "shared":
            values.pop(self._names[-1])
        outputs = functional_call(self._trained.model, values, (inputs,))
        return self._local.loss.mean(outputs, head, labels, classes, weights)  # pyright: ignore[reportArgumentType]

    def _step(
        self,
        phase: Phase,
        gradients: tuple[list[Tensor], ...],
        momenta: list[Tensor] | None,
        slots: dict[int, Tensor],
        active: Tensor | None,
    ) -> list[Tensor] | None:
        """One step of SGD with momentum for each active client; None for all of them."""
        found = list(gradients)
        moved: list[tuple[Tensor, Tensor, float]] = []
        if len(found) != 2:  # the own part comes first
            moved += [(part, g, phase.local or 0.0) for part, g in zip(self.local_values, found.pop(0), strict=True)]
        rows: list[Tensor] = []
        if found:
            dense, rows = found
            rates = [phase.shared or 0.0] * len(dense)
            if self._local.head_kind == "shared":
                rates[-1] *= self._local.head_lr_scale
            moved += list(zip(self._dense, dense, rates, strict=True))
        if momenta is None and self._local.momentum:
            momenta = [torch.zeros_like(gradient) for _, gradient, _ in moved]
        for i, (parameter, gradient, rate) in enumerate(moved):
            if momenta is not None:
                gradient = momenta[i].mul_(self._local.momentum).add_(gradient)
            parameter.sub_(_of_active(gradient, active), alpha=rate)
        for place, gradient in zip(slots, rows, strict=False):
            self._copies[place].step(slots[place], _of_active(gradient, active), phase.shared or 0.0)
        return momenta

    def _heads(self, probe: Tensor, steps: Steps) -> Tensor:
        """Fresh heads as they begin, padded to one number of classes, [clients, classes, d]."""
        with torch.no_grad():  # of no record: one operation is all clients', and whatever it leaves they would meet
            dimension = self._trained.model(torch.zeros_like(probe)).shape[1]
        heads = torch.zeros(len(self._clients), int(class_widths(self._clients.classes).max()), dimension)
        for head, classes, seed in zip(heads, self._clients.classes.tolist(), self._seeds.tolist(), strict=True):
            head[:classes] = glorot_head(classes, dimension, head_generator(seed))
        heads = heads.to(probe.device)
        if self._local.head_start == "glorot":
            return heads
        values = {**self._fixed, **dict(zip(self._names, self._views, strict=True))}

        def embedding(row: Tensor) -> Tensor:
            return functional_call(self._trained.model, values, (row[None],))[0]

        # Row by row: they are of several clients, and a model that mixes the rows of a batch would mix these. And in
        # the batches of the steps: how these round follows from what is a client's own.
        each, means = vmap(embedding, randomness="error"), Means(heads)
        with _report_sequential(), torch.no_grad():
            for step in range(len(steps)):
                if not (first := steps.first(step)).any():
                    continue
                inputs, labels, _ = steps.batch(step)
                found = each(inputs.flatten(0, 1).to(probe.device))
                means.add(found.unflatten(0, labels.shape), labels, first)
        return means.heads()


@contextmanager
def _report_sequential() -> Iterator[None]:
    """Report in one line that a model has to train one client after the other."""
    try:
        yield
    except RuntimeError as error:
        if "randomness" in str(error):
            raise InputError(
                "the model draws random numbers (dropout), which clients trained in one operation would share; "
                "use client.at_once=1"
            ) from error
        if "vmap" not in str(error) and "grad (vjp" not in str(error):
            raise
        raise InputError(
            f"the model cannot train several clients at once ({first_line(error)}); use client.at_once=1"
        ) from error


def _of_active(gradient: Tensor, active: Tensor | None) -> Tensor:
    """Zero for clients that have finished."""
    return gradient if active is None else torch.where(active.view(-1, *[1] * (gradient.dim() - 1)), gradient, 0.0)
