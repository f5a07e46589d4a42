"""DP-FedEmb on Omniglot: users are characters, the last five alphabets are for testing. See README.md."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from cells import SHARED
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato.data import UserDataset, from_arrays, glyphs, open_users, split_groups
from sfumato.federated import Centralized, FedAvg, FedEmb
from sfumato.training import TrainingPlan

TESTED = 5  # alphabets
NOISE = 0.02
MORE_NOISE = 0.2
COSINES: dict[str, Any] = {"loss": "cosine", "loss_scale": 20.0, "head_start": "means", "head_lr_scale": 1}
FEDEMB = FedEmb(
    rounds=30,
    clients_per_round=16,
    users_per_client=16,
    local_epochs=2,
    learning_rate=0.02,
    server_learning_rate=0.4,
    noise_multiplier=0,
    **COSINES,
)
ALONE = FedEmb(
    rounds=30,
    clients_per_round=256,
    users_per_client=1,
    negatives_per_client=3,
    local_epochs=1,
    clip_norm=0.1,
    learning_rate=0.05,
    server_learning_rate=10.0,
    noise_multiplier=0,
    **COSINES,
)
# A shared head learns fastest here from more, smaller clients and from cosines; see docs/explanation/lab-notes.md.
FEDAVG = FedAvg(
    rounds=30,
    clients_per_round=32,
    users_per_client=8,
    local_epochs=1,
    learning_rate=0.02,
    head_lr_scale=1,
    loss="cosine",
    loss_scale=10.0,
    server_learning_rate=0.05,
    noise_multiplier=0,
)
PLANS: dict[str, TrainingPlan] = {
    "centralized": Centralized(rounds=1500, batch_size=128, learning_rate=0.02),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": dataclasses.replace(FEDAVG, noise_multiplier=NOISE),
    "DP-FedEmb": dataclasses.replace(FEDEMB, noise_multiplier=NOISE),
    "DP-FedEmb, more noise": dataclasses.replace(FEDEMB, noise_multiplier=MORE_NOISE),
    "DP-FedEmb, as much noise in trees": dataclasses.replace(
        FEDEMB, noise_multiplier=MORE_NOISE, noise="tree", sampling="min_separation"
    ),
    # One person moves the sum half as far as with m > 1: the same ε.
    "DP-FedEmb, m = 1, negatives": dataclasses.replace(ALONE, noise_multiplier=NOISE / 2),
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


if __name__ == "__main__":
    main(
        Recipe(
            folder=Path(__file__).resolve().parent,
            dataset="Omniglot background, last 5 alphabets",
            data=data,
            model=models.lenet,
            plans=PLANS,
            negatives=negatives,
            lone=("DP-FedEmb, more noise", "DP-FedEmb, as much noise in trees", "DP-FedEmb, m = 1, negatives"),
        )
    )
