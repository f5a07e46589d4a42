"""What a client does in a round, and the examples that it sees, in their order.

shuffle → repeat(epochs) → take(max_examples) → batch, as in federated data pipelines: the order is drawn anew each
epoch, the cap bounds *processed* examples, and a batch may straddle two epochs.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.local.heads import HeadLoss


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
        loss: turns embeddings and head into a loss.
        shared_head: the head is a part of the model.
    """

    epochs: int = 1
    batch_size: int | None = 32
    max_examples: int | None = None
    learning_rate: float = 0.01
    head_lr_scale: float = 1.0
    momentum: float = 0.0
    reconstruction_steps: int = 0
    loss: HeadLoss = field(default_factory=HeadLoss)
    shared_head: bool = False

    def __post_init__(self) -> None:
        _check.whole(epochs=self.epochs)
        _check.whole(at_least=0, reconstruction_steps=self.reconstruction_steps)
        _check.positive(learning_rate=self.learning_rate, head_lr_scale=self.head_lr_scale)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        for name in ("batch_size", "max_examples"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})


@dataclass(frozen=True)
class ClientData:
    """One client's examples.

    Attributes:
        inputs: as stored, [n, *input_shape].
        labels: int64 [n], in {0, …, classes − 1}.
        classes: rows that the client's head needs.
    """

    inputs: np.ndarray
    labels: np.ndarray
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, order: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs as a float tensor and labels of the examples named."""
        return to_tensor(self.inputs[order]), torch.from_numpy(self.labels[order])


def gather(data: UserDataset, users: np.ndarray, *, global_classes: bool) -> ClientData:
    """All examples of these users; labels renumbered to the classes present unless `global_classes`."""
    parts = [data.examples(int(user)) for user in users]
    inputs = parts[0][0] if len(parts) == 1 else np.concatenate([part[0] for part in parts])
    labels = parts[0][1] if len(parts) == 1 else np.concatenate([part[1] for part in parts])
    if global_classes:
        return ClientData(inputs, labels, data.num_classes)
    present, local = np.unique(labels, return_inverse=True)
    return ClientData(inputs, local, max(1, len(present)))


def order_generator(seed: int) -> torch.Generator:
    """Generator of a client's order of examples."""
    return torch.Generator().manual_seed(seed)


def head_generator(seed: int) -> torch.Generator:
    """Generator of a client's fresh head."""
    return torch.Generator().manual_seed(seed ^ 0x5DEECE66D)


def order_of_examples(examples: int, local: LocalTraining, generator: torch.Generator) -> np.ndarray:
    """Indices of the examples that a client processes, int64; batches are its consecutive pieces."""
    total = examples * local.epochs
    if local.max_examples is not None:
        total = min(total, local.max_examples)
    passes = -(-total // examples) if examples else 0
    orders = [torch.randperm(examples, generator=generator) for _ in range(passes)]
    if not orders:
        return np.empty(0, np.int64)
    return (orders[0] if passes == 1 else torch.cat(orders))[:total].numpy()
