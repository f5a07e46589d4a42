"""Small data sets of examples, and models for them."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.data import ExampleDataset


def pictures(examples: int, *, classes: int = 3, side: int = 8, seed: int = 0) -> ExampleDataset:
    """A noisy picture for each class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, examples)
    centres = rng.integers(40, 216, (classes, side, side, 1))
    pixels = (centres[labels] + rng.normal(0, 20, (examples, side, side, 1))).clip(0, 255).astype(np.uint8)
    return ExampleDataset(inputs=(pixels,), targets=labels, num_classes=classes)


def network(seed: int = 0, *, classes: int = 3, side: int = 8) -> nn.Module:
    """A small classifier of 8×8 pictures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = 4 * (side - 2) ** 2
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(width, classes))


@pytest.fixture(name="pictures")
def _pictures():
    return pictures


@pytest.fixture(name="network")
def _network():
    return network
