"""The slots of clients in an operation that several share, so that no one else decides how their numbers round.

How an operation rounds follows from its shape and from the place in it. If these followed from who else takes part, so
would the last bits of a client's delta, and local training that diverges enlarges last bits to anything. So they are a
client's own:

- The shape follows from the client's own number of examples and of classes, to which it is padded, and from how many
  places an operation has; only clients of one shape share one, and places without a client stay empty.
- In its own slot, a client stands at a place of the full width that follows from a draw of its own.
- Elsewhere it may stand only where the same bits come out: at places of one kind, in operations of full width or less.

What is of one kind rests on how processors compute, and on a trial:

- An operation has a multiple of 32 places (64 in half precision), and one thread does all of it. The processor's
  vectors take so many numbers at a time; nothing is left over that other code would take, which approximates functions
  in another way.
- Places at a distance of 16 (32 in half precision) lie in memory in the same way, whatever is stored for a client:
  where numbers lie decides how small products of matrices are added up. Where there are such, other places are of
  another kind.
- Where else sums are in another order, nearly every number shows it: at the edges of large products, and in operations
  of less than full width. One placeholder client is trained at all places at once, for every shape, and places are of
  one kind only where it comes to the same delta, to the last bit. Nothing in it is anybody's.

Where no place is like another (operations of another number of places, a model that does not take placeholders, sums
in no fixed order), every client takes its own slot, in as many operations as it takes: slower, and as true. Slots that
clients have drawn come in turn, so where operations have as many places as a round has clients there is one for each
shape.
"""

import hashlib
from collections.abc import Iterator
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from sfumato.federated.batched import BatchedTrainer, NumberByNumber, PartDeltas, RowDeltas
from sfumato.federated.client import Client, ClientData, class_widths, counts_of_examples, widths
from sfumato.federated.losses import OutputLoss
from sfumato.guard.placeholders import placeholder_rows
from sfumato.training.contribution import placeholder_weights

_NOWHERE = -1
_UNIT = 32
_BYTES = 4 * _UNIT  # of the numbers that the processor's vectors take at a time, at most
_LINE = 64  # bytes, after which places in memory are equivalent
Shape = tuple[int, ...]
"""Examples of a client in each phase, with padding, and rows of its head."""


class BatchSlots:
    """The slots, called places, of operations.

    Args:
        wanted: of an operation at its full width, >= 2; from 32 on (64 in half precision) the next multiple of that.
        trainer: on a copy of the model that nothing else uses.

    Attributes:
        most: of an operation at its full width.
    """

    def __init__(self, wanted: int, trainer: BatchedTrainer) -> None:
        size = trainer.trained.vector.element_size()
        self._unit, self._period = _BYTES // size, _LINE // size
        self.most = wanted if wanted < self._unit else -(-wanted // self._unit) * self._unit
        self._trainer = trainer
        self._kinds: dict[tuple[Shape, int], np.ndarray] = {}
        self._numbers: dict[tuple[Shape, int, bytes], int] = {}
        self._lock = Lock()

    def for_client(self, local: Client) -> "BatchSlots":
        """The same slots for clients that do something else: what was found of their arithmetic is tried again."""
        return BatchSlots(self.most, BatchedTrainer(local, self._trainer.trained))

    def operations(self, clients: ClientData, draws: np.ndarray) -> Iterator[np.ndarray]:
        """How the clients share operations.

        Args:
            clients: any number; those next to each other come into one operation where they can.
            draws: int64 [clients], of each client's own: neither others nor their number play a part.

        Returns:
            int64 [places] of each operation: which client stands there, -1 where none does.
        """
        slots = draws % self.most
        shapes, group = np.unique(shapes_of(self._trainer.local, clients), axis=0, return_inverse=True)
        for number, shape in enumerate(shapes.tolist()):
            members = np.flatnonzero(group.reshape(-1) == number)
            for standing in self._standing(tuple(shape), slots[members], clients.of(members[:1])):
                yield np.where(standing == _NOWHERE, _NOWHERE, members[standing])

    def _standing(self, shape: Shape, slots: np.ndarray, like: ClientData) -> Iterator[np.ndarray]:
        """Who of some clients of one shape stands where."""
        kinds, left = self._kinds_of(shape, self.most, like)[slots], np.arange(len(slots))
        while len(left):
            for width in self._widths(len(left)):
                standing = _filled(self._kinds_of(shape, width, like), kinds[left], left)
                if width == self.most or (standing != _NOWHERE).sum() == len(left):
                    break
            yield standing
            left = np.setdiff1d(left, standing, assume_unique=True)

    def _widths(self, count: int) -> Iterator[int]:
        """Of operations that hold so many, ascending: the full one, half of it, and so on."""
        found, half = [self.most], self._half(self.most)
        while not self.fixed_slots and count <= half < found[-1]:
            found.append(half)
            half = self._half(half)
        return reversed(found)

    def _half(self, width: int) -> int:
        return -(-width // (2 * self._unit)) * self._unit

    def _kinds_of(self, shape: Shape, width: int, like: ClientData) -> np.ndarray:
        """The kind of every place, int64 [width]; `like` is a client of this shape, of which no value is read."""
        with self._lock:
            if (shape, width) not in self._kinds:
                self._kinds[shape, width] = self._tried(shape, width, like)
            return self._kinds[shape, width]

    @property
    def fixed_slots(self) -> bool:
        """Whether every client takes its own slot, whatever a trial would find."""
        return self.most % self._unit > 0

    def _tried(self, shape: Shape, width: int, like: ClientData) -> np.ndarray:
        local, trained = self._trainer.local, self._trainer.trained
        if not any(phase.shared and count for phase, count in zip(local.phases, shape, strict=False)):
            return np.zeros(width, np.int64)  # nothing is trained that leaves
        if self.fixed_slots:
            return np.arange(width)
        digests, period = [b""] * width, self._period
        try:
            clients, theta = _placeholder_clients(shape, width, like, local), placeholder_weights(trained)
            with torch.random.fork_rng(devices=[]), NumberByNumber() as computed:
                deltas, _, _ = self._trainer.deltas(theta, clients, [0] * width)
            digests = list(_digests(deltas, width))
            period = 1 if computed.only else self._period
        except Exception:  # whatever the user's own forward raises where it is given placeholders
            pass
        finally:
            trained.put_back()
            trained.forget()
        if not all(digests):
            if width < self.most:
                return np.full(width, _NOWHERE - 1)
            digests = [b"home %d" % place for place in range(width)]
        keys = [(shape, place % period, each) for place, each in enumerate(digests)]
        return np.array([self._numbers.setdefault(each, len(self._numbers)) for each in keys])


def batch_slots_for(clients: int, *, drawn: bool) -> int:
    """How many places are of use to so many clients a round; with slots that they have drawn, a place is each one's."""
    return clients if drawn else -(-clients // _UNIT) * _UNIT


def shapes_of(local: Client, clients: ClientData) -> np.ndarray:
    """The shape of each client in an operation, int64 [clients, phases + 1]."""
    return np.column_stack([_padded(local, np.diff(clients.offsets)), class_widths(clients.classes)])


def _padded(local: Client, sizes: np.ndarray) -> np.ndarray:
    """Examples with padding of clients of these sizes, int64 [clients, phases]."""
    counts = [(counts_of_examples(phase, sizes, local.reconstruction), phase.batch_size) for phase in local.phases]
    return np.stack([widths(*each) for each in counts], axis=1)


def present(standing: np.ndarray) -> slice | Tensor:
    """Where somebody stands, to index results with: without a copy where they are the first."""
    there = standing >= 0
    count = int(there.sum())
    return slice(count) if there[:count].all() else torch.from_numpy(there)


def _filled(offered: np.ndarray, wanted: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Who stands where, with as many as there are places of the kind that each wants."""
    standing = np.full(len(offered), _NOWHERE)
    for kind in np.unique(wanted):
        there, those = np.flatnonzero(offered == kind), who[wanted == kind]
        standing[there[: len(those)]] = those[: len(there)]
    return standing


def _placeholder_clients(shape: Shape, width: int, like: ClientData, local: Client) -> ClientData:
    """One client of this shape, so many times."""
    sizes = np.arange(1, int(np.diff(like.offsets)[0]) + 1)
    count = int(sizes[(_padded(local, sizes) == shape[:-1]).all(axis=1)][0])  # the smallest: no client's own
    numbers = np.arange(1, shape[-1] + 1)
    classes = int(numbers[class_widths(numbers) == shape[-1]][0])
    inputs = placeholder_rows(like.inputs, count)
    if isinstance(local.loss, OutputLoss):
        labels = local.loss.labels_like(torch.from_numpy(inputs)).numpy().astype(like.labels.dtype)
    else:
        labels = np.arange(count) % classes
    return ClientData(
        np.concatenate([inputs] * width),
        np.concatenate([labels] * width),
        np.arange(width + 1) * count,
        np.full(width, classes),
    )


def _digests(deltas: Tensor | PartDeltas, width: int) -> Iterator[bytes]:
    """Of each client's delta; none where it shows nothing, as it is zero or not finite."""
    parts = [deltas] if isinstance(deltas, Tensor) else [_rows(part) for part in deltas.parts]
    for place in range(width):
        found, changed = hashlib.blake2b(digest_size=16), False
        for part in parts:
            values = part[place] + 0.0  # of zeros there are two
            if not torch.isfinite(values).all():
                changed = False
                break
            changed = changed or bool(values.any())
            found.update(values.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        yield found.digest() if changed else b""


def _rows(part: Tensor | RowDeltas) -> Tensor:
    return part.values if isinstance(part, RowDeltas) else part
