"""DP-FedEmb on federated EMNIST with the authors' settings. See README.md; the data has to be brought (--data)."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato.data import UserDataset, open_users
from sfumato.federated import Centralized, FedAvg, FedEmb, FederatedPlan

NOISE = 0.62
# Xu et al. 2022: K=32 virtual clients of m=8 writers, 200 rounds, 8 local epochs of at most 2,048 examples.
FEDEMB = FedEmb(
    rounds=200,
    cohort={"size": 32, "users_per_client": 8},
    client={
        "epochs": 8,
        "batch_size": 32,
        "max_examples": 2048,
        "learning_rate": 5e-3,
        "head_lr_scale": 100,
        "momentum": 0.9,
    },
    server={"learning_rate": 0.02, "momentum": 0.9},
    clipping=1.0,
    noise=0,
)
FEDAVG = FedAvg(
    **{field.name: getattr(FEDEMB, field.name) for field in dataclasses.fields(FedAvg)}, **{"client.head": "shared"}
)
PLANS: dict[str, FederatedPlan] = {
    "centralized": Centralized(rounds=20_000, cohort=128, server={"learning_rate": 0.05}),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": FEDAVG.replace(noise=NOISE),
    "DP-FedEmb": FEDEMB.replace(noise=NOISE),
}


def data(path: Path | None) -> tuple[UserDataset, UserDataset]:
    """Classes 0–35 for training, 36–61 for testing; a writer's two parts are one user."""
    assert path is not None
    return open_users(path, classes=range(36)), open_users(path, classes=range(36, 62))


def quick(plan: FederatedPlan) -> FederatedPlan:
    """Two rounds of a few writers."""
    if isinstance(plan, Centralized):
        return plan.replace(rounds=2)
    return plan.replace(rounds=2, cohort={"size": 2, "users_per_client": 2}, client={"max_examples": 16})


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
