"""Large tables of which a client touches a few rows: copies, steps and deltas of those rows alone.

A copy of a whole table of items for each of a thousand clients would be gigabytes of which almost nothing changes: a
step of plain SGD moves the rows of its own batch and no other. So a client's copy holds the rows that its records
name, a step differentiates by the rows of its batch, and the delta is zero elsewhere. It is the same arithmetic: rows
that a batch names twice get both gradients.

A model says which of its weights are such tables: its attribute `row_tables` maps the name of a weight [rows, …] to the
column of the inputs that alone says which row an example takes, as `nn.Embedding` does. Within a step the weight is
then the batch's rows, and the column counts from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._precision import at_least_single
from sfumato.clipping import ClippedSum
from sfumato.clipping.clipped_sum import row_norms
from sfumato.federated.client import ClientData, Steps
from sfumato.training.trainable import Trainable

OTHER_ROWS = (
    "the model's row_tables do not say which rows an example takes: a client's delta is another one when whole tables "
    "are trained; name weights that are looked up by that column of the inputs alone, or use clients_at_once=1"
)
"""What is wrong with a model that says so of a table that is looked up otherwise."""


_NUMBERS = 1 << 22  # of weighted rows in double precision at a time


def row_tables_of(trained: Trainable) -> dict[int, int]:
    """The column of the inputs for each trained parameter, by its place, that the model says is a table of rows.

    A column that another table is looked up by, a frozen one or one of each client's own, has to go on naming its rows:
    tables of that column are trained as a whole.

    Raises:
        InputError: the model names a parameter that it does not have.
    """
    told: dict[str, int] = getattr(trained.model, "row_tables", {})
    known = dict(trained.model.named_parameters())
    for name in told:
        if name not in known:
            raise InputError(f"the model's row_tables name {name}, which is no parameter; it has {', '.join(known)}")
    others = {column for name, column in told.items() if name not in trained.layout.names}
    names = enumerate(trained.layout.names)
    return {place: told[name] for place, name in names if name in told and told[name] not in others}


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
        ids: int64 [clients, n], which rows; what is not used says 0.
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
