"""The work that every contender of `fl_round.py` does, and the protocol that starts it.

One *round* of private federated averaging: every client copies the global parameters, runs plain local SGD over its
own records in order, and returns the change of its parameters; the change is flattened, clipped to an L2 norm of
`clip_norm`, and summed; Gaussian noise with a standard deviation of `noise_multiplier * clip_norm` is added; the sum is
divided by the planned cohort and added to the global parameters (server SGD, learning rate 1).

Data, initial weights and the order of the records are the same for everybody, and the noise is small, so the loss after
a number of rounds shows whether two contenders did the same work.

This file runs in the environment of each peer: it needs NumPy and PyTorch only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes and arithmetic of one round; `image` is the shape of one record, [C, H, W] or [features]."""

    clients: int
    records: int
    batch: int
    image: tuple[int, ...]
    classes: int
    learning_rate: float
    epochs: int = 1
    clip_norm: float = 1.0
    noise_multiplier: float = 0.01

    @property
    def steps(self) -> int:
        """Local SGD steps of one client in one round."""
        return self.epochs * -(-self.records // self.batch)


SETTINGS = {
    "lenet": Setting(clients=32, records=64, batch=32, image=(1, 28, 28), classes=62, learning_rate=0.1),
    "linear": Setting(clients=500, records=20, batch=10, image=(784,), classes=10, learning_rate=0.01),
    # What is left of a round of 512 people behind a kept prefix: pooled channels to an embedding, and a head.
    "features": Setting(clients=512, records=2, batch=2, image=(512,), classes=128, learning_rate=0.01),
}

EMBEDDING = 64
"""Dimensions, of "features"."""


class LeNet(nn.Module):
    """The network of `sfumato.models.lenets` and a linear head without a bias, in one module for every contender."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.dense = nn.Linear(64 * 7 * 7, 128)
        self.head = nn.Linear(128, classes, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Map images [n, 1, 28, 28] to logits [n, classes]."""
        # Pooling before the activation gives the same numbers with a quarter of the work, as in sfumato's LeNet.
        x = nn.functional.relu(nn.functional.max_pool2d(self.conv1(images), 2))
        x = nn.functional.relu(nn.functional.max_pool2d(self.conv2(x), 2))
        return self.head(self.dense(x.flatten(1)))


def network(name: str) -> nn.Module:
    """The network of a setting, with the same initial weights on every call."""
    torch.manual_seed(0)
    setting = SETTINGS[name]
    if name == "lenet":
        return LeNet(setting.classes)
    if name == "features":
        return nn.Sequential(nn.Linear(setting.image[0], EMBEDDING), nn.Linear(EMBEDDING, setting.classes, bias=False))
    return nn.Linear(setting.image[0], setting.classes, bias=False)


def raw_data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Seeded random pictures, half of each its class's: uint8 [clients, records, *image], int64 [clients, records]."""
    setting = SETTINGS[name]
    rng = np.random.default_rng(0)
    prototypes = rng.integers(0, 256, (setting.classes, *setting.image), dtype=np.uint8)
    labels = rng.integers(0, setting.classes, (setting.clients, setting.records))
    grain = rng.integers(0, 256, (setting.clients, setting.records, *setting.image), dtype=np.uint8)
    return prototypes[labels] // 2 + grain // 2, labels


def tensors(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The same data as float32 in [−1, 1) and int64."""
    inputs, labels = raw_data(name)
    return (torch.from_numpy(inputs).float() - 128) / 128, torch.from_numpy(labels)


def mean_loss(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """Cross-entropy of the global model over at most 2,000 records."""
    with torch.no_grad():
        flat = inputs.flatten(0, 1)[:2000]
        return float(nn.functional.cross_entropy(model(flat), labels.flatten()[:2000]))


class Gate:
    """Stands between two rounds: reports the one that ended, waits for the order to start the next.

    On standard input, a line `round` starts a round and is answered with `{"ms": …}`; a line `loss` is answered with
    `{"loss": …}`, a line `memory` with the peak of a GPU's memory, `{"MiB": …}`; the end of the input ends the worker.
    The first thing written is the line `ready`.

    A framework whose rounds cannot be called one by one calls `wait` from a callback between two of them.
    """

    def __init__(self, loss: Callable[[], float] | None = None) -> None:
        self.loss = loss
        self._started: float | None = None
        # Frameworks log to standard output; the protocol keeps the real one and sends everything else to stderr.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def wait(self) -> bool:
        """Return True when another round is wanted, False when there will be none."""
        if self._started is None:
            self._say("ready")
        else:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self._say(json.dumps({"ms": (time.perf_counter() - self._started) * 1000}))
        for line in sys.stdin:
            if line.strip() == "loss":
                self._say(json.dumps({"loss": self.loss() if self.loss else None}))
            elif line.strip() == "memory":
                self._say(json.dumps({"MiB": torch.cuda.max_memory_allocated() / 2**20}))
            elif line.strip() == "round":
                self._started = time.perf_counter()
                return True
        return False


def config() -> dict[str, Any]:
    """The worker's configuration, from its only argument; sets the number of threads."""
    given = {
        "setting": "lenet",
        "threads": 2,
        "device": "cpu",
        "times": 1,
        **json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}"),
    }
    torch.set_num_threads(given["threads"])
    return given
