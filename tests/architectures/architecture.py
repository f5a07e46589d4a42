"""A network, tiny records for it, and the loss that it is trained by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.central import DPSGD, cross_entropy
from sfumato.data import ExampleDataset, to_tensor

COUPLED = "BatchNorm2d couples the examples"
EXAMPLES, WORDS, LENGTH, CLASSES, SIDE = 8, 32, 6, 3, 16


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How a network is built and tried.

    Attributes:
        name: as the table shows it.
        build: gives the network, from torch's generator as it stands.
        inputs: of `EXAMPLES` records, one array for each argument of the network.
        targets: of the records.
        loss: one number an example.
        task: of DP-SGD.
        library: where it comes from.
        refused: words of the refusal of a network that no bound holds for as it is; empty for all others.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[np.ndarray, ...]
    targets: np.ndarray
    loss: Callable[[Any, Any], Tensor] = cross_entropy
    task: Literal["classes", "regression", "counts", "own"] = "classes"
    library: Literal["transformers", "torch"] = "transformers"
    refused: str = ""

    def model(self) -> nn.Module:
        """The network, always the same; in training mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().train()

    def data(self) -> ExampleDataset:
        """The records."""
        classes = CLASSES if self.task == "classes" else None
        return ExampleDataset(inputs=self.inputs, targets=self.targets, num_classes=classes)

    def batch(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """All records as the network and the loss get them."""
        inputs, targets = self.data().examples(np.arange(EXAMPLES))
        return tuple(to_tensor(each) for each in inputs), torch.from_numpy(targets)

    def losses(self, model: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """One number an example."""
        return self.loss(model(*inputs), targets)

    def plan(self) -> DPSGD:
        """Two steps."""
        return DPSGD(task=self.task, steps=2, batch_size=4, noise_multiplier=1.0, clip_norm=1.0, seed=1)


def ids(length: int = LENGTH, *, shift: int = 0) -> np.ndarray:
    """Numbers of words, int64 [examples, length]; 0 and 1 are not among them."""
    return np.random.default_rng(1 + shift).integers(2, WORDS, (EXAMPLES, length))


def mask(length: int = LENGTH) -> np.ndarray:
    """Which words are there, of documents of several lengths, int64 [examples, length]."""
    lengths = 2 + np.arange(EXAMPLES) % (length - 1)
    return (np.arange(length) < lengths[:, None]).astype(np.int64)


def pictures(channels: int = 3) -> np.ndarray:
    """uint8 [examples, side, side, channels]."""
    return np.random.default_rng(2).integers(0, 256, (EXAMPLES, SIDE, SIDE, channels), np.uint8)


def numbers(*shape: int) -> np.ndarray:
    """float32 [examples, *shape]."""
    return np.random.default_rng(3).standard_normal((EXAMPLES, *shape)).astype(np.float32)


def classes() -> np.ndarray:
    """int64 [examples]."""
    return np.arange(EXAMPLES) % CLASSES
