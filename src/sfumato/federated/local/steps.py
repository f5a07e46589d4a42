"""The batches of several clients in a phase, padded to one size: which examples each holds."""

import numpy as np
import torch
from torch import Tensor

from sfumato.federated.local.phases import Phase, orders_of_examples
from sfumato.federated.local.reconstruction import Reconstruction
from sfumato.federated.local.work import ClientData


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
        longest = int(counts.max(initial=0))
        self._clients, self._size = clients, phase.batch_size or max(1, longest)
        self._empty = torch.from_numpy(counts == 0)
        self.present = np.arange(longest) < counts[:, None]
        self.rows = np.repeat(np.where(counts > 0, clients.offsets[:-1], 0)[:, None], longest, axis=1)
        self.rows[self.present] = order + np.repeat(clients.offsets[:-1], counts)
        self.counts = -(-counts // self._size)
        self.examples = len(order)

    def __len__(self) -> int:
        return int(self.counts.max(initial=0))

    def part(self, step: int) -> slice:
        """The columns of `rows` that a step takes."""
        return slice(step * self._size, (step + 1) * self._size)

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
