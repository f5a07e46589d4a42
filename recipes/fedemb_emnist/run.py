"""DP-FedEmb on federated EMNIST with the authors' settings. See README.md; the data has to be brought (--data)."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato.data import UserDataset, open_users
from sfumato.federated import Centralized, FedAvg, FedEmb
from sfumato.training import TrainingPlan

NOISE = 0.62
# Xu et al. 2022: K=32 virtual clients of m=8 writers, 200 rounds, 8 local epochs of at most 2,048 examples.
FEDEMB = FedEmb(
    rounds=200,
    clients_per_round=32,
    users_per_client=8,
    local_epochs=8,
    batch_size=32,
    max_examples=2048,
    learning_rate=5e-3,
    head_lr_scale=100,
    momentum=0.9,
    server_learning_rate=0.02,
    server_momentum=0.9,
    clip_norm=1.0,
    noise_multiplier=0,
)
FEDAVG = FedAvg(**{field.name: getattr(FEDEMB, field.name) for field in dataclasses.fields(FedAvg)})
PLANS: dict[str, TrainingPlan] = {
    "centralized": Centralized(rounds=20_000, batch_size=128, learning_rate=0.05),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": dataclasses.replace(FEDAVG, noise_multiplier=NOISE),
    "DP-FedEmb": dataclasses.replace(FEDEMB, noise_multiplier=NOISE),
}


def data(path: Path | None) -> tuple[UserDataset, UserDataset]:
    """Classes 0–35 for training, 36–61 for testing; a writer's two parts are one user."""
    assert path is not None
    return open_users(path, classes=range(36)), open_users(path, classes=range(36, 62))


def quick(plan: TrainingPlan) -> TrainingPlan:
    """Two rounds of a few writers."""
    if isinstance(plan, Centralized):
        return dataclasses.replace(plan, rounds=2)
    return dataclasses.replace(plan, rounds=2, clients_per_round=2, users_per_client=2, max_examples=16)


if __name__ == "__main__":
    main(
        Recipe(
            folder=Path(__file__).resolve().parent,
            dataset="EMNIST, classes 36–61",
            data=data,
            model=models.lenet,
            plans=PLANS,
            quick=quick,
            needs_data=True,
        )
    )
