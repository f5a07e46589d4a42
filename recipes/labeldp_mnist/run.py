"""MNIST whose labels are private: randomised response in stages and by clusters next to noisy gradients.

All methods of labels see the same public features: 200 principal axes of scattering, found on the inputs of all rows.
DP-SGD hides the picture, too, so its features come from each picture by itself; a second row has the public ones. The
settings are those of choose.py. See README.md.
"""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from label_recipe import Method, Parts, Recipe, main
from public_features import kept, principal

from sfumato.central import DPSGD, LabelDPPro
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.labels import LPMST
from sfumato.models import scatternet_linear
from sfumato.models.scatternet import ScatterLinear

BUDGETS = (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
AXES, CLUSTERED, CLUSTERS = 200, 50, 100
HELD_OUT = 10_000  # training rows that settings are chosen on


@cache
def pictures(part: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, uint8 [n, 28, 28, 1], and digits, int64 [n]."""
    with np.load(SHARED / "mnist.npz") as digits:
        found, labels = digits[f"x_{part}"][..., None], digits[f"y_{part}"].astype(np.int64)
    return (found[:2000], labels[:2000]) if quick else (found, labels)


@cache
def inputs(kind: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """What models see of the training and of the test part."""
    (train, _), (test, _) = pictures("train", quick), pictures("test", quick)
    if kind == "pixels":
        return train, test
    train, test = (kept("scattering", part, scattering().features) for part in (train, test))
    if kind == "own":
        return kept("pooled", train, pooled), kept("pooled", test, pooled)
    return principal("scattering", train, test, AXES, channels=scattering().transform.feature_shape[0])


@cache
def scattering() -> ScatterLinear:
    """The features, which are not trained; its linear layer is not used."""
    return scatternet_linear()


def pooled(features: torch.Tensor) -> torch.Tensor:
    """Group norm of each picture's features, and means of 2x2 places: [n, 81 · 7 · 7] to [n, 81, 4, 4]."""
    places = features.unflatten(1, scattering().transform.feature_shape)
    return functional.avg_pool2d(scattering().norm(places), 2, ceil_mode=True)


def parts(kind: str, quick: bool, choosing: bool) -> Parts:
    """Training and test part; under `choosing` 50,000 of the training rows by a public draw, and the rest."""
    (train, test), labels, of_test = inputs(kind, quick), pictures("train", quick)[1], pictures("test", quick)[1]
    if choosing:
        order = np.random.default_rng(7).permutation(len(train))
        known, held = np.sort(order[:-HELD_OUT]), np.sort(order[-HELD_OUT:])
        train, test, labels, of_test = train[known], train[held], labels[known], labels[held]
    features = train[:, :CLUSTERED] if kind == "public" else None
    return Parts(
        examples_from_arrays(train, labels, num_classes=10),
        examples_from_arrays(test, of_test, num_classes=10),
        features,
    )


def network(_: ExampleDataset) -> nn.Module:
    """A hidden layer on the public features: 27,018 parameters."""
    return nn.Sequential(nn.Linear(AXES, 128), nn.ReLU(), nn.Linear(128, 10))


def linear(train: ExampleDataset) -> nn.Module:
    """A linear layer."""
    return nn.Linear(int(np.prod(train.inputs[0].shape[1:])), 10)


def convolutions(_: ExampleDataset) -> nn.Module:
    """Two convolutions and a hidden layer on pixels: 207,178 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


STAGES = {1: (1.0,), 2: (0.65, 0.35), 3: (0.6, 0.2, 0.2)}
DECAYS = tuple({"training.weight_decay": decay} for decay in (0.001, 0.003, 0.01, 0.03))
DECAY = "training.weight_decay"
CORRECTED = tuple({"targets": "likelihood", "prior_weight": 0.0, DECAY: decay} for decay in (0.0003, 0.001))
KNOWN = (
    *({"targets": "posterior", "uniform_share": share, DECAY: 0.01} for share in (0.0, 0.5)),
    *({"targets": "likelihood", "uniform_share": share, DECAY: 0.001} for share in (0.0, 0.5, 0.9)),
)
"""What models of clusters learn from instead of reports: all that is known of a label."""

GRADIENTS = (
    {"steps": 100, "cohort": 4096, "server.learning_rate": 4.0},
    {"steps": 60, "cohort": 8192, "server.learning_rate": 2.0},
)
PROJECTIONS = (
    {"projection": "hull", "averaging": 0.9, "server.learning_rate": 6.0},
    {"projection": "span", "server.learning_rate": 6.0},
    {"projection": "span", "averaging": 0.9, "server.learning_rate": 2.0},
    {"public_batch": 0, "server.learning_rate": 4.0},
)
PAPER = {  # Ghazi et al. 2021, LP-2ST with a residual network on pixels
    "LP-2ST": {1.0: 0.9582, 2.0: 0.9878, 3.0: 0.9914, 4.0: 0.9924},
    # Ghazi et al. 2024, table 5; a small convolutional network on pixels
    "RR of 2024": {0.1: 0.073, 0.5: 0.104, 1.0: 0.513, 2.0: 0.967},
    "DP-SGD": {0.1: 0.856, 0.5: 0.909, 1.0: 0.928, 2.0: 0.938},
    "LabelDP-Pro": {0.1: 0.911, 0.5: 0.941, 1.0: 0.943, 2.0: 0.954},
}


def staged(stages: int, clusters: int = 0, **fields) -> LPMST:
    """A plan in so many stages."""
    training = {"epochs": 10, "batch_size": 512, "learning_rate": 0.05, **fields}
    shared = {"temperature": 0.25, "training": training}
    return LPMST(epsilon=1.0, stages=STAGES[stages], clusters=clusters, **shared)  # epsilon is that of each budget


def gradients(**fields) -> DPSGD:
    """Noisy gradients of a linear layer."""
    return DPSGD(server={"momentum": 0.9}, clipping=0.1, **fields)


PRO = LabelDPPro(steps=60, cohort=8192, clipping=1.0)
ONE, CLUSTERED_ONE, PUBLIC = "LP-1ST (plain RR)", "clusters, LP-1ST", "DP-SGD on public features"
PIXELS = {"inputs": "pixels", "model": convolutions, "budgets": (1.0, 2.0), "seeds": 1}
METHODS = {
    ONE: Method(plan=staged(1), inputs="public", model=network, trials=DECAYS + CORRECTED, paper=PAPER["RR of 2024"]),
    "LP-2ST": Method(plan=staged(2), inputs="public", model=network, trials=DECAYS, paper=PAPER["LP-2ST"]),
    "LP-3ST": Method(plan=staged(3), inputs="public", model=network, chosen_like="LP-2ST"),
    CLUSTERED_ONE: Method(plan=staged(1, CLUSTERS), inputs="public", model=network, trials=DECAYS + KNOWN),
    "clusters, LP-2ST": Method(plan=staged(2, CLUSTERS), inputs="public", model=network, chosen_like=CLUSTERED_ONE),
    PUBLIC: Method(plan=gradients(), inputs="public", model=linear, trials=GRADIENTS),
    "LabelDP-Pro": Method(plan=PRO, inputs="public", model=linear, trials=PROJECTIONS, paper=PAPER["LabelDP-Pro"]),
    "DP-SGD, pictures hidden, too": Method(
        plan=gradients(), inputs="own", model=linear, chosen_like=PUBLIC, paper=PAPER["DP-SGD"], seeds=1
    ),
    "LP-1ST, convolutions on pixels": Method(plan=staged(1, weight_decay=0.005), **PIXELS),
    "LP-2ST, convolutions on pixels": Method(plan=staged(2, weight_decay=0.005), **PIXELS),
}

RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    methods={"MNIST, 60,000 private labels": METHODS},
    budgets=BUDGETS,
    parts=parts,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(RECIPE)
