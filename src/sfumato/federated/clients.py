"""Whether a client's delta is its own, tried on clients of the user's data: the guard's `Subject` of local training.

The clipped sum moves by no more than the bound when a client comes or goes if all other deltas stay. So four clients of
very different sizes, and one that has as many examples as another one, are trained for a few steps before the first
round:

- one after the other in two orders, in fresh processes (see `sfumato.guard`): the deltas must be the same to the last
  bit (on a GPU to round-off), or the model remembers what it has seen, wherever it keeps that; after this, a client
  of placeholders is the first that trains in this process;
- with several clients in a batched operation, among clients of other sizes, alone and one by one: the same to
  round-off, or padding reaches the examples;
- there among clients of its own shape, and with empty slots: the same to the last bit, or the others reach them.

While the run goes on, in some rounds a client of the cohort is trained after one other client and after another one.

A model or a loss that mixes the examples of one client is no harm where clients are trained one by one.

What begins only later or with other records is not seen. Of that, what mixes a client's examples with its padding
moves this client's delta alone: padding follows from the client's own examples (`federated.batched`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sfumato._torch import full_precision
from sfumato.data import UserDataset
from sfumato.federated.batched import OTHER_ROWS, BatchedTrainer, row_tables_of
from sfumato.federated.client import Client, ClientData, ClientTrainer, gather
from sfumato.guard import Coupled
from sfumato.guard.guard import at
from sfumato.guard.placeholders import placeholder_rows
from sfumato.guard.trial import Tolerance
from sfumato.sampling import Cohort

_ROUND_OFF = 1e-4  # of the length of a delta
_OTHER_KERNELS = 1e-2  # of it, one by one against batched, in single precision

_OTHERS = (
    "with client.at_once > 1 this model's delta for a client changes (something mixes the examples of a batch, or "
    "draws random numbers); use client.at_once=1"
)

_SHORTER = (
    1,
    1,
    0,
    3,
    1,
)  # so that clients are of different lengths where all users have as many; the last one has as the second
_USERS = 64  # of a client, at most
_PLACEHOLDERS = 5  # examples of the client that is no user's

Trainer = ClientTrainer | BatchedTrainer


class Clients:
    """The clients that are tried, the `Subject` of the guard: the outcome of a client is its delta.

    Args:
        trainer: makes a trainer on a fresh copy of the model, from what a client does.
        users: the records; somebody has an example.
        local: what a client does; a few steps of it are tried.
        global_classes: heads have a row for every label of the data set.
        device: where clients are trained.
    """

    state_message = (
        "a client's delta changes when the model has trained other clients before; let forward depend on its inputs "
        "and the weights alone, and keep no state"
    )
    tolerance: Tolerance | None = None
    order = (0, 1, 3, 4, 2)  # of the clients; the first and the last have the smallest and the largest users

    def __init__(
        self,
        trainer: Callable[[Client], Trainer],
        users: UserDataset,
        local: Client,
        *,
        global_classes: bool,
        device: str = "cpu",
    ) -> None:
        self._local = local.brief()
        if device != "cpu":  # sums there are in no fixed order
            self.tolerance = Tolerance(1e-3, _ROUND_OFF)
        self._trainer, self._users, self._global_classes = trainer, users, global_classes
        size = local.batch_size or 32
        # examples: full batches and others; as many of the last as of the second, which share what is kept by a shape
        self._most = (size // 2 + 1, size + 2, 2 * size + 2, 2 * size, size + 2)
        self._clients = _clients(users.sizes, self._most)
        self._disjoint = _clients(users.sizes, self._most, disjoint=True)

    def outcomes(self, units: Sequence[int]) -> Tensor:
        """The deltas of clients in turn on one copy of the model, [n, size]."""
        busy = self._trainer(self._local)
        found = []
        for unit in units:
            at(unit)
            found += self._trained(busy, self._records([unit], self._disjoint), [unit])
        at(None)
        return torch.stack(found)

    def placeholders(self) -> None:
        """A client of placeholders, with examples of two classes."""
        users, rows = self._users, self._records([0])
        labels = np.zeros((_PLACEHOLDERS, *rows.labels.shape[1:]), rows.labels.dtype)
        labels[1::2] = 1
        classes = users.num_classes if self._global_classes else 2
        inputs = placeholder_rows(rows.inputs, _PLACEHOLDERS)
        client = ClientData(inputs, labels, np.array([0, _PLACEHOLDERS]), np.array([classes]))
        self._trained(self._trainer(self._local), client, [0])

    def refuse_shared_batch(self) -> None:
        """Refuse a model whose delta for a client changes with its padding or the others in one batched operation.

        A model that draws random numbers never comes here: no operation of several clients takes it.

        Raises:
            InputError: with what to do.
        """
        trainer = self._trainer(self._local)
        single, everybody = ClientTrainer(self._local, trainer.trained), list(range(len(self._clients)))
        equal = self._padding_keeps(trainer, single, self._records)
        if equal is None:
            raise Coupled(OTHER_ROWS)
        # Records at which training diverges enlarge round-off: others have to show that padding reaches nothing.
        if not equal and not self._same_with_placeholders(trainer, single):
            raise Coupled(_OTHERS)
        if not all(self._same_with_others(trainer, index) for index in everybody):
            raise Coupled(_OTHERS)

    def _padding_keeps(
        self, trainer: Trainer, single: ClientTrainer, records: Callable[[list[int]], ClientData]
    ) -> bool | None:
        """Whether clients come to the same with padding and without; None if only tables of rows are to blame."""

        def deltas(trainer: Trainer, indices: list[int]) -> list[Tensor]:
            return self._trained(trainer, records(indices), indices)

        everybody = list(range(len(self._clients)))
        alone, one_by_one = ([deltas(each, [index])[0] for index in everybody] for each in (trainer, single))
        together = [dict(zip(order, deltas(trainer, order), strict=True)) for order in (everybody, everybody[::-1])]
        if row_tables_of(trainer.trained) and not all(map(_close, one_by_one, alone)):
            return None
        # other kernels round in another way; a model of half precision by so much that nothing shows
        eps = torch.finfo(trainer.trained.vector.dtype).eps / torch.finfo(torch.float32).eps
        loose = _OTHER_KERNELS * max(1.0, eps)  # heads are in single precision, with a network in double
        return all(
            _close(found[index], alone[index], share)
            for found, share in ((one_by_one, loose), *((each, _ROUND_OFF) for each in together))
            for index in everybody
        )

    def _same_with_placeholders(self, trainer: Trainer, single: ClientTrainer) -> bool:
        """The same with placeholders in the records' place; no if the model does not take them, or there are none."""

        def records(indices: list[int]) -> ClientData:
            clients = self._records(indices)
            inputs = [
                placeholder_rows(clients.inputs, count, seed=index)
                for index, count in zip(indices, np.diff(clients.offsets), strict=True)
            ]
            return replace(clients, inputs=np.concatenate(inputs))

        if self._users.dtype.kind == "i":
            return False
        try:
            return bool(self._padding_keeps(trainer, single, records))
        except Exception:  # whatever the user's own forward raises where it is given placeholders
            return False

    def _same_with_others(self, trainer: Trainer, index: int) -> bool:
        """Whether a client's delta is the same, with others of its shape in the batch and without any."""
        one, place = self._records([index]), 1
        rows = np.concatenate([np.arange(len(one.labels))[::-1], np.arange(len(one.labels))] * 2)[: 3 * len(one.labels)]
        three = ClientData(
            one.inputs[rows], one.labels[rows], len(one.labels) * np.arange(4), np.repeat(one.classes, 3)
        )
        seeds = [7, index, 8]
        alone = np.where(np.arange(3) == place, place, -1)
        return _equal(*(self._trained(trainer, each, seeds)[place] for each in (three, three.of(alone))))

    def _records(self, indices: list[int], clients: Sequence[np.ndarray] | None = None) -> ClientData:
        members = [(self._clients if clients is None else clients)[index] for index in indices]
        cohort = Cohort(np.array(indices), np.concatenate(members), np.cumsum([0, *map(len, members)]))
        whole = gather(self._users, cohort, global_classes=self._global_classes)
        lengths = zip(np.diff(whole.offsets), indices, strict=True)
        counts = [max(1, min(n, self._most[i]) - _SHORTER[i]) for n, i in lengths]
        rows = np.concatenate([start + np.arange(n) for start, n in zip(whole.offsets, counts, strict=False)])
        offsets = np.cumsum([0, *counts])
        return ClientData(whole.inputs[rows], whole.labels[rows], offsets, whole.classes)

    def _trained(self, trainer: Trainer, clients: ClientData, seeds: list[int]) -> list[Tensor]:
        return deltas_of(trainer, trainer.trained.initial, clients, seeds)


def deltas_of(trainer: Trainer, theta: Tensor, clients: ClientData, seeds: list[int]) -> list[Tensor]:
    """The deltas, float [size] each, of clients in one operation, or of the one client that there is.

    Args:
        trainer: with its copy of the model, whose weights are put back.
        theta: float [size], what clients begin with.
        clients: one for each seed.
        seeds: of the clients' order and draws.
    """
    with torch.random.fork_rng(devices=[]), full_precision(theta.device):  # a batch's size decides how it rounds
        if isinstance(trainer, ClientTrainer):
            deltas = [trainer.delta(theta, clients, seeds[0])[0].clone()]
        else:
            found = trainer.deltas(theta, clients, seeds)[0]
            deltas = list(found.clone() if isinstance(found, Tensor) else found.whole(trainer.trained.layout.shapes))
    trainer.trained.put_back()
    return deltas


def _clients(sizes: np.ndarray, most: Sequence[int], *, disjoint: bool = False) -> list[np.ndarray]:
    """Clients of two users or more, as many as it takes for so many examples, beginning with the smallest users, those
    in the middle, the largest, one of each end, and those a quarter up.

    Args:
        sizes: of users, in examples.
        most: examples of each client.
        disjoint: as far as there are users, no two clients have one in common, though they may have fewer examples
            then: what one of them switches on is off for the others.
    """
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] > 0]
    by_turns = np.stack([order, order[::-1]], axis=1).reshape(-1)[: len(order)]
    found: list[np.ndarray] = []
    middle, quarter = (np.roll(order, -(len(order) // share)) for share in (2, 4))
    share = max(2, len(order) // len(most)) if disjoint else _USERS
    for users, wanted in zip((order, middle, order[::-1], by_turns, quarter), most, strict=True):
        free = users[~np.isin(users, np.concatenate([[], *found]))]
        users = free if disjoint and len(free) > 1 else users
        enough = int(np.searchsorted(np.cumsum(sizes[users]), wanted)) + 1
        found.append(np.unique(users[: min(_USERS, share, max(2, enough))]))
    return found


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.device.type != "cpu":  # sums there are in no fixed order
        return _close(one, other)
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _close(one: Tensor, other: Tensor, share: float = _ROUND_OFF) -> bool:
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    return bool((one - other).norm() <= share * other.norm() + 1e-30)
