"""What a client does in a round, and the examples that it sees, in their order.

shuffle → repeat(epochs) → take(max_examples) → batch, as in federated data pipelines: the order is drawn anew each
epoch, the cap bounds *processed* examples, and a batch may straddle two epochs. An example's place follows from a hash
of the client's seed, the epoch and its number, so that any number of clients is put in order at once.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._mixing import mixed_bits
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.local.heads import HeadLoss
from sfumato.federated.local.losses import NextTokenLoss
from sfumato.sampling import Cohort


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What a client does in a round.

    Attributes:
        epochs: passes over the client's examples.
        batch_size: examples a step; None takes all at once.
        max_examples: processed examples a client and round, at most; None for no cap.
        learning_rate: SGD rate of the backbone.
        head_lr_scale: the head's rate is this times the backbone's.
        momentum: SGD momentum of both, in [0, 1).
        reconstruction_steps: train the head alone for so many steps, then the backbone alone; 0 trains both.
        loss: turns embeddings and head, or the model's own logits, into a loss.
        head: "shared" is trained with the model, "own" is drawn anew by each client and thrown away, "none" where the
            model gives the logits itself, which is so for the next token.
    """

    epochs: int = 1
    batch_size: int | None = 32
    max_examples: int | None = None
    learning_rate: float = 0.01
    head_lr_scale: float = 1.0
    momentum: float = 0.0
    reconstruction_steps: int = 0
    loss: HeadLoss | NextTokenLoss = field(default_factory=HeadLoss)
    head: Literal["shared", "own", "none"] = "own"

    def __post_init__(self) -> None:
        if (self.head == "none") != isinstance(self.loss, NextTokenLoss):
            raise InputError(f"head must be none for the next token, and for nothing else, got {self.head}")
        _check.whole(epochs=self.epochs)
        _check.whole(at_least=0, reconstruction_steps=self.reconstruction_steps)
        _check.positive(learning_rate=self.learning_rate, head_lr_scale=self.head_lr_scale)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        for name in ("batch_size", "max_examples"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})


@dataclass(frozen=True)
class ClientData:
    """Some clients' examples, one client after the other.

    Attributes:
        inputs: as stored, [n, *input_shape].
        labels: int64 [n], or [n, length] of sequences, in {0, …, classes − 1} of each client.
        offsets: int64 [clients + 1]: client i has the examples offsets[i] … offsets[i + 1] − 1.
        classes: int64 [clients], rows that each client's head needs.
    """

    inputs: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.classes)

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs as a tensor and labels of the examples at these rows."""
        return to_tensor(self.inputs[rows]), torch.from_numpy(self.labels[rows])


def gather(data: UserDataset, cohort: Cohort, *, global_classes: bool) -> ClientData:
    """All examples of a cohort; labels renumbered to the classes that a client holds unless `global_classes`."""
    inputs, labels, sizes = data.examples_of(cohort.units)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = ends[cohort.offsets]
    if global_classes:
        return ClientData(inputs, labels, offsets, np.full(len(cohort), data.num_classes))
    owner = np.repeat(np.arange(len(cohort)), np.diff(offsets))
    held, number = np.unique(owner * data.num_classes + labels, return_inverse=True)
    first = np.searchsorted(held, np.arange(len(cohort) + 1) * data.num_classes)
    return ClientData(inputs, number - first[owner], offsets, np.maximum(1, np.diff(first)))


def head_generator(seed: int) -> torch.Generator:
    """Generator of a client's fresh head."""
    return torch.Generator().manual_seed(seed ^ 0x5DEECE66D)


def orders_of_examples(sizes: np.ndarray, local: LocalTraining, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which examples each client processes, in their order; batches are consecutive pieces.

    Args:
        sizes: int64 [clients], examples that each has.
        local: epochs and the cap.
        seeds: int64 [clients]; nothing else decides a client's order.

    Returns:
        int64 [n], numbers of examples from 0 within a client, one client after the other; and how many each processes,
        int64 [clients].
    """
    epochs = np.repeat(sizes, local.epochs)  # one entry an epoch of a client
    ends = np.cumsum(epochs)
    entry = np.repeat(np.arange(len(epochs)), epochs)
    number = np.arange(len(entry)) - (ends - epochs)[entry]
    client, epoch = np.divmod(entry, local.epochs)
    keys = mixed_bits(number, seeds[client].astype(np.uint64), epoch)
    by_key = np.argsort(keys)  # keys of an entry differ; then by entry, in two bytes where they do, which is fastest
    order = number[by_key[np.argsort(entry[by_key].astype(np.min_scalar_type(len(epochs))), kind="stable")]]
    counts = sizes * local.epochs
    if local.max_examples is None or (counts <= local.max_examples).all():
        return order, counts
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[client]
    return order[place < local.max_examples], np.minimum(counts, local.max_examples)
