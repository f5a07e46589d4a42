"""MNIST-M with few private labels: priors from clusters of features that distinguish digits, and of others.

6,000 digits over photographs. Each set of features has randomised response and, next to it, a noisy histogram of the
labels of 30 clusters before it, and noisy gradients, on the same principal axes with the same network. SqueezeNet was
trained on ImageNet; HOG knows nothing but edges; SimCLR learned from the 6,000 pictures, without labels. The table ends
with the purity of clusters, which is not private. See README.md.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from contrastive import features, trained
from label_recipe import Method, Parts, Recipe, main
from public_features import kept, principal

from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, examples_from_arrays, to_tensor
from sfumato.labels import LPMST, clusters, label_counts
from sfumato.models.features import feature_extractor, imagenet_features

BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0)
AXES, CLUSTERS = 50, 30
COUNTED = (10, 30, 100)  # clusters whose purity is reported
HELD_OUT = 1000  # training rows that settings are chosen on
FEATURES = {"SqueezeNet": "MNIST-M, SqueezeNet's features", "HOG": "MNIST-M, HOG", "SimCLR": "MNIST-M, SimCLR"}
EPOCHS = 80  # of SimCLR


@cache
def digits(part: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, uint8 [n, 32, 32, 3], and digits, int64 [n]."""
    with np.load(SHARED / "mnist_m.npz") as found:
        pictures, labels = found[f"x_{part}"], found[f"y_{part}"].astype(np.int64)
    return (pictures[:500], labels[:500]) if quick else (pictures, labels)


@cache
def scores(kind: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Principal axes of the features of the training and of the test part."""
    name = kind.lower()
    if kind == "HOG":
        function = feature_extractor("hog", (3, 32, 32))
    elif kind == "SimCLR":
        name, function = f"simclr-{EPOCHS}", partial(contrastive_features, quick)
    else:
        function = imagenet_features(SHARED / "squeezenet1_0_imagenet.safetensors")
    train, test = (kept(name, digits(part, quick)[0], function) for part in ("train", "test"))
    return principal(name, train, test, AXES)


@cache
@torch.inference_mode(False)  # it is first called where features are computed without gradients
def contrastive(quick: bool) -> nn.Module:
    """SimCLR's encoder, from the training pictures without their labels."""
    return trained(to_tensor(digits("train", quick)[0]), epochs=1 if quick else EPOCHS, seed=0)


def contrastive_features(quick: bool, pictures: torch.Tensor) -> torch.Tensor:
    """What it says of pictures."""
    return features(contrastive(quick), pictures)


def parts(kind: str, quick: bool, choosing: bool) -> Parts:
    """Training and test part; under `choosing` 5,000 of the training rows by a public draw, and the rest."""
    (train, test), labels, of_test = scores(kind, quick), digits("train", quick)[1], digits("test", quick)[1]
    if choosing:
        order = np.random.default_rng(7).permutation(len(train))
        known, held = np.sort(order[:-HELD_OUT]), np.sort(order[-HELD_OUT:])
        train, test, labels, of_test = train[known], train[held], labels[known], labels[held]
    return Parts(
        examples_from_arrays(train, labels, num_classes=10), examples_from_arrays(test, of_test, num_classes=10), train
    )


def network(_: ExampleDataset) -> nn.Module:
    """A hidden layer on the axes: 7,818 parameters."""
    return nn.Sequential(nn.Linear(AXES, 128), nn.ReLU(), nn.Linear(128, 10))


def staged(stages: tuple[float, ...] = (1.0,), clusters: int = 0) -> LPMST:
    """A plan."""
    return LPMST(
        epsilon=1.0,  # replaced by each budget
        stages=stages,
        clusters=clusters,
        prior_epsilon=0.05,
        temperature=0.25,
        training={"epochs": 20, "batch_size": 128, "learning_rate": 0.02},
    )


DECAY = "training.weight_decay"
TRIALS = tuple({DECAY: decay} for decay in (0.003, 0.03, 0.1))
KNOWN = tuple({"targets": "likelihood", "uniform_share": share, DECAY: 0.003} for share in (0.0, 0.5, 0.9))
"""What models of clusters may learn from instead of reports: all that is known of a label."""
CORRECTED = ({"targets": "likelihood", "prior_weight": 0.0, DECAY: 0.003},)
STEPPED = ((30, 1.0), (100, 1.0), (100, 0.3))
GRADIENTS = tuple({"steps": steps, "cohort": 1000, "server.learning_rate": rate} for steps, rate in STEPPED)


def methods(kind: str) -> dict[str, Method]:
    """The lines of one set of features."""
    shared: dict[str, Any] = {"inputs": kind, "model": network}
    one, stages = "clusters, LP-1ST", (0.65, 0.35)
    gradients = DPSGD(server={"momentum": 0.9}, clipping=0.3)
    return {
        "LP-1ST (plain RR)": Method(plan=staged(), trials=TRIALS + CORRECTED, **shared),
        one: Method(plan=staged(clusters=CLUSTERS), trials=TRIALS + KNOWN, **shared),
        "clusters, LP-2ST": Method(plan=staged(stages, CLUSTERS), chosen_like=one, **shared),
        "DP-SGD": Method(plan=gradients, trials=GRADIENTS, **shared),
    }


def purity(quick: bool) -> list[dict[str, Any]]:
    """Rows: the share of training digits that are the most frequent one of their cluster. Not private, not released."""
    rows = []
    labels = digits("train", quick)[1]
    for kind in FEATURES:
        for count in COUNTED:
            groups = clusters(scores(kind, quick)[0], count=count, seed=0)
            counts = label_counts(groups, labels, groups_count=count, classes=10)
            rows.append(
                {
                    "method": kind,
                    "dataset": "MNIST-M, training digits by clusters of public features",
                    "metric": "purity, not private",
                    "clusters": count,
                    "mean": round(float(counts.max(axis=1).sum() / len(labels)), 4),
                    "std": 0.0,
                    "seeds": 1,
                    **dict.fromkeys(("epsilon", "delta", "unit", "paper")),
                }
            )
    return rows


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    methods={dataset: methods(kind) for kind, dataset in FEATURES.items()},
    budgets=BUDGETS,
    parts=parts,
    additional=purity,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(RECIPE)
