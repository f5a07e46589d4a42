"""What specimens of algorithms are made of: tiny records, a tiny model, and commands on data of a moment.

Those of algorithms are in `contract/algorithms`. What the battery does not ask of one, its specimen says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sfumato import data

UNITS, FEATURES, CLASSES = 8, 8, 4


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """How the battery meets an algorithm.

    Attributes:
        records: from a seed, and from what the last unit's numbers are multiplied with and a seed of its own: a data
            set of `UNITS` units that are alike but for the last.
        cohort: the plan's fields for so many planned units a round, an even number.
        fields: more fields of the plan.
        rounds: the field that says how often the server steps.
        variants: fields that change how contributions are computed.
        command: words of a command that trains for a moment on data that it writes into a folder.
        guarantee: whether it adds noise. What needs noise or a bound is not asked of one that does not.
        bare: fields that leave the noisy mean as it is, where a plan works on it with what is public.
        limited: whether it takes samplings that limit how often a unit takes part.
    """

    records: Callable[..., Any]
    cohort: Callable[[int], dict[str, Any]]
    command: Callable[[Path], list[Any]]
    fields: dict[str, Any] = field(default_factory=dict)
    rounds: str = "rounds"
    variants: tuple[dict[str, Any], ...] = ({},)
    guarantee: bool = True
    bare: dict[str, Any] = field(default_factory=dict)
    limited: bool = True


def users(seed: int = 0, *, wild: float = 1.0, last: int = 0, each: int = CLASSES) -> data.UserDataset:
    """Users with so many examples each, of different classes."""
    inputs = _inputs(seed, (UNITS, each), wild, last).reshape(-1, FEATURES)
    labels, owners = np.arange(len(inputs)) % CLASSES, np.arange(len(inputs)) // each
    return data.from_arrays(inputs, labels, owners)


def examples(seed: int = 0, *, wild: float = 1.0, last: int = 0) -> data.ExampleDataset:
    """Single examples."""
    labels = np.arange(UNITS) % CLASSES
    return data.examples_from_arrays(_inputs(seed, (UNITS,), wild, last), labels, num_classes=CLASSES)


def vectors(seed: int = 0, *, wild: float = 1.0, last: int = 0) -> np.ndarray:
    """Bare numbers, for the toy; long, so that their noise can be measured."""
    return _inputs(seed, (UNITS,), wild, last, features=200)


def _inputs(seed: int, shape: tuple[int, ...], wild: float, last: int, features: int = FEATURES) -> np.ndarray:
    inputs = np.random.default_rng(seed).normal(size=(*shape, features))
    inputs[-1] = np.random.default_rng([seed, last]).normal(size=inputs[-1].shape) * wild
    return inputs.astype(np.float32)


def network(*, width: int = 16, dropout: float = 0.0) -> nn.Module:
    """From features to classes or embeddings; its gradients grow with its inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drop = [nn.Dropout(dropout)] if dropout else []
        return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), *drop, nn.Linear(width, CLASSES))


def user_command(folder: Path) -> list[Any]:
    """Words that train on pictures of users."""
    rng = np.random.default_rng(0)
    pictures, owners = rng.integers(0, 256, (24, 12, 12), dtype=np.uint8), np.arange(24) // 3
    np.savez(folder / "users.npz", images=pictures, users=owners, labels=owners)
    return ["--data", folder / "users.npz", "--embedding-dim", 4, "--test-share", 0]


def ratings_command(folder: Path) -> list[Any]:
    """Words that train on ratings."""
    rows = [f"{user},{item},{(user + item) % 5 + 1}" for user in range(8) for item in range(user % 3, 12)]
    (folder / "ratings.csv").write_text("\n".join(["user,item,value", *rows]))
    columns = ["--user", "user", "--item", "item", "--value", "value"]
    return ["--data", folder / "ratings.csv", *columns, "--model", "matrix_factorization", "--test-share", 0]


def example_command(folder: Path) -> list[Any]:
    """Words that train on single pictures."""
    pictures = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    np.savez(folder / "examples.npz", x=pictures, y=np.arange(24) % 3)
    return ["--data", folder / "examples.npz", "--model", "lenet300_100", "--test-share", 0]


PRIVATE = {"clipping.norm": 0.5, "noise.noise_multiplier": 0.8}
"""A bound, and noise, of a plan with a guarantee."""
