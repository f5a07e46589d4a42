"""DP-FedEmb on Omniglot: users are characters, the last five alphabets are for testing. See README.md."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from cells import SHARED
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato.data import UserDataset, from_arrays, glyphs, open_users, split_groups
from sfumato.federated import Centralized, FedAvg, FedEmb, FederatedPlan

TESTED = 5  # alphabets
NOISE = 0.02
MORE_NOISE = 0.2
COSINES: dict[str, Any] = {
    "client.loss": "cosine",
    "client.loss.scale": 20.0,
    "client.head.start": "means",
    "client.head_lr_scale": 1,
}
FEDEMB = FedEmb(
    rounds=30,
    cohort={"size": 16, "users_per_client": 16},
    client={"epochs": 2, "learning_rate": 0.02},
    server={"learning_rate": 0.4},
    noise=0,
    **COSINES,
)
ALONE = FedEmb(
    rounds=30,
    cohort={"size": 256, "users_per_client": 1},
    client={"negatives": 3, "epochs": 1, "learning_rate": 0.05},
    clipping=0.1,
    server={"learning_rate": 10.0},
    noise=0,
    **COSINES,
)
FEDAVG = FedAvg(
    rounds=30,
    cohort={"size": 16, "users_per_client": 16},
    client={"epochs": 2, "learning_rate": 0.02, "head_lr_scale": 1, "loss": {"kind": "cosine", "scale": 20.0}},
    server={"learning_rate": 2.0},
    noise=0,
)
PLANS: dict[str, FederatedPlan] = {
    "centralized": Centralized(rounds=1500, cohort=128, server={"learning_rate": 0.02}),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": FEDAVG.replace(noise=NOISE),
    "DP-FedEmb": FEDEMB.replace(noise=NOISE),
    "DP-FedEmb, more noise": FEDEMB.replace(noise=MORE_NOISE),
    "DP-FedEmb, as much noise in trees": FEDEMB.replace(
        noise={"kind": "tree", "noise_multiplier": MORE_NOISE}, cohort="min_separation"
    ),
    # One person moves the sum half as far as with m > 1: the same ε.
    "DP-FedEmb, m = 1, negatives": ALONE.replace(noise=NOISE / 2),
}


def data(_: Path | None) -> tuple[UserDataset, UserDataset]:
    """Characters of all alphabets but the last five, and those of the last five."""
    characters = open_users(SHARED / "omniglot_background.npz")
    parts = split_groups(characters, test=characters.groups[-TESTED:])
    return parts.train, parts.test


def negatives() -> UserDataset:
    """Public classes for clients of one character: glyphs, with black ink as here."""
    characters = glyphs()
    pictures, labels, _ = characters.examples_of(np.arange(len(characters)))
    return from_arrays(255 - pictures, labels, labels.astype(str))


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="Omniglot background, last 5 alphabets",
    data=data,
    model=models.lenet,
    plans=PLANS,
    negatives=negatives,
    lone=("DP-FedEmb, more noise", "DP-FedEmb, as much noise in trees", "DP-FedEmb, m = 1, negatives"),
)

if __name__ == "__main__":
    main(RECIPE)
