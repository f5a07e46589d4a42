"""Small votes for tests: two blobs for each of three classes, and agents that hold some of each."""

import numpy as np
import torch
from torch import nn

from sfumato.data import ExampleDataset, UserDataset, examples_from_arrays, from_arrays

CLASSES = 3
CENTRES = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]], np.float32)


def blobs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 2] and their classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return (CENTRES[labels] + 0.5 * rng.standard_normal((count, 2))).astype(np.float32), labels


def agents(count: int = 6, each: int = 9, seed: int = 0) -> UserDataset:
    inputs, labels = blobs(count * each, seed)
    return from_arrays(inputs, labels=labels, users=[f"agent {row // each}" for row in range(count * each)])


def pool(count: int = 40, seed: int = 1) -> ExampleDataset:
    inputs, labels = blobs(count, seed)
    return examples_from_arrays(inputs, labels, num_classes=CLASSES)


def model(seed: int = 0, outputs: int = CLASSES) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(2, outputs)
