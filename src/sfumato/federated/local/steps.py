"""The batches of several clients in a phase, padded to one size: which examples each holds.

To what size a client's batches are padded follows from its own number of examples, where clients of one `width` alone
share an operation: so padding tells no client who else is there, whatever a model makes of it.

Few widths let many clients share an operation.

>>> widths(np.array([0, 1, 20, 21, 33, 500]), 32).tolist(), widths(np.array([20, 500]), None).tolist()
([0, 1, 32, 32, 64, 64], [32, 512])
"""

import numpy as np
import torch
from torch import Tensor

from sfumato.federated.local.phases import Phase, orders_of_examples
from sfumato.federated.local.reconstruction import Reconstruction
from sfumato.federated.local.work import ClientData

_FEW = 64  # up to so many examples or classes, few widths; beyond, padding would cost more than company saves
_FINE = 4  # widths between one power of two and the next, beyond


def widths(counts: np.ndarray, batch_size: int | None) -> np.ndarray:
    """Which clients may share an operation without one's padding telling of another: those of one width.

    Args:
        counts: int64 [clients], examples that each processes in a phase.
        batch_size: examples a step; None takes all at once.

    Returns:
        int64 [clients]: the size of a client's only batch with its padding; all who take several steps, each padded to
        `batch_size`, have twice that; 0 for nothing to do.
    """
    rounded = np.where(counts > 0, _rounded(counts, 1), 0)
    if batch_size is None:
        return rounded
    return np.where(counts > batch_size, 2 * batch_size, np.minimum(rounded, batch_size))


def class_widths(classes: np.ndarray) -> np.ndarray:
    """To how many rows the heads of clients with so many classes are padded, int64 [clients].

    >>> class_widths(np.array([1, 2, 17, 32, 33, 65, 1000])).tolist()
    [1, 4, 64, 64, 64, 80, 1024]
    """
    return _rounded(np.maximum(1, classes), 2)  # rows of a head cost little


def _rounded(counts: np.ndarray, every: int) -> np.ndarray:
    """Counts >= 1, rounded up: to powers of 2^every while they are few."""
    log = np.log2(np.maximum(1, counts))
    power = 1 << (np.ceil(log / every) * every).astype(np.int64)
    grain = np.maximum(1, (1 << log.astype(np.int64)) // _FINE)
    return np.where(counts <= _FEW, power, -(-counts // grain) * grain)


class Steps:
    """Some clients' batches.

    Args:
        clients: their examples.
        phase: what they do.
        rule: divides their records, where the phase is about a part of them.
        seeds: int64 [clients].

    Attributes:
        counts: int64 [clients], steps that each client takes.
        examples: processed by all of them.
        rows: int64 [clients, n], rows of `clients.inputs` in the order in which each client processes them, padded.
        present: bool [clients, n], which of these exist.
    """

    def __init__(self, clients: ClientData, phase: Phase, rule: Reconstruction | None, seeds: np.ndarray) -> None:
        order, counts = orders_of_examples(phase, np.diff(clients.offsets), seeds, rule)
        longest = int(widths(counts, phase.batch_size).max(initial=0))
        if phase.batch_size is not None and longest > phase.batch_size:
            longest = -(-int(counts.max()) // phase.batch_size) * phase.batch_size
        self._clients, self._size = clients, phase.batch_size or max(1, longest)
        self._empty = torch.from_numpy(counts == 0)
        self.present = np.arange(longest) < counts[:, None]
        self.rows = np.repeat(np.where(counts > 0, clients.offsets[:-1], 0)[:, None], longest, axis=1)
        self.rows[self.present] = order + np.repeat(clients.offsets[:-1], counts)
        self.counts = -(-counts // self._size)
        self.examples = len(order)
        self._first: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.counts.max(initial=0))

    def part(self, step: int) -> slice:
        """The columns of `rows` that a step takes."""
        return slice(step * self._size, (step + 1) * self._size)

    def first(self, step: int) -> Tensor:
        """Which examples of a batch come for the first time, bool [clients, n]."""
        if self._first is None:
            rows = np.where(self.present, self.rows, -1)
            order = np.argsort(rows, axis=1, kind="stable")
            ordered = np.take_along_axis(rows, order, axis=1)
            new = np.diff(ordered, axis=1, prepend=-1) != 0
            self._first = np.take_along_axis(new, np.argsort(order, axis=1), axis=1)
        return torch.from_numpy(self._first[:, self.part(step)])

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs [clients, n, …], labels [clients, n, …] and which of them exist, bool [clients, n].

        What does not exist is the client's own first example, with weight zero: a NaN of another one would not go away
        by that. A client without any takes no step, whatever stands in its place.
        """
        rows, present = self.rows[:, self.part(step)], torch.from_numpy(self.present[:, self.part(step)])
        inputs, labels = self._clients.take(rows.reshape(-1))
        inputs = inputs.flatten(1).view(inputs.shape)  # channel by channel: vmap copies anything else
        inputs, labels = inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(*rows.shape, *labels.shape[1:])
        labels[self._empty] = 0  # another client's might be out of range
        return inputs, labels, present
