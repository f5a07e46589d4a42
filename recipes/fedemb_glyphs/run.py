"""DP-FedEmb on the embedded glyphs: users are Unicode characters, a fifth of them is for testing. See README.md."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato._random import RandomSource
from sfumato.data import UserDataset, glyphs, split_users
from sfumato.federated import Centralized, FedAvg, FedEmb
from sfumato.training import TrainingPlan

POPULATION = 1840  # four fifths of the 2,300 identities
EPSILON = 8.0
FEDEMB = FedEmb(
    rounds=30,
    clients_per_round=64,
    users_per_client=4,
    local_epochs=2,
    learning_rate=0.05,
    head_lr_scale=20,
    trainable="conv.*",
    clip_norm=0.1,
    server_learning_rate=0.5,
    noise_multiplier=0,
)
FEDAVG = FedAvg(
    rounds=30,
    clients_per_round=64,
    users_per_client=4,
    local_epochs=2,
    learning_rate=0.05,
    head_lr_scale=1,
    trainable="conv.*",
    clip_norm=0.5,
    server_learning_rate=0.5,
    noise_multiplier=0,
)
NOISE = FEDEMB.calibrate(epsilon=EPSILON, delta=POPULATION**-1.1, population=POPULATION).noise_multiplier
PLANS: dict[str, TrainingPlan] = {
    "centralized": Centralized(rounds=600, batch_size=128, learning_rate=0.02),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": dataclasses.replace(FEDAVG, noise_multiplier=NOISE),
    "DP-FedEmb": dataclasses.replace(FEDEMB, noise_multiplier=NOISE),
}


def data(_: Path | None) -> tuple[UserDataset, UserDataset]:
    """Four fifths of the characters, and the rest; the names in order, shuffled once, so that it never changes."""
    characters = glyphs()
    order = RandomSource.from_seed(0).stream("split", "user").permutation(len(characters))
    parts = split_users(characters, test=order[-460:])
    return parts.train, parts.test


if __name__ == "__main__":
    main(
        Recipe(
            folder=Path(__file__).resolve().parent,
            dataset="glyphs, 460 unseen characters",
            data=data,
            model=models.lenet,
            plans=PLANS,
            quick={name: dataclasses.replace(plan, rounds=2) for name, plan in PLANS.items()},
        )
    )
