"""Settings of run.py, by recall on small letters of validation hands. See README.md."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from choosing import Choice, main
from run import FEDAVG, FEDEMB, FOLDER, VALIDATION, Plan, calibrated, data

from sfumato import models

POPULATION, EPSILON = 100_000, 8.0
COSINE = {"loss": "cosine", "loss_scale": 20.0}
SHORT = {"rounds": 6}
CHANGES: dict[str, tuple[Plan, dict]] = {
    "DP-FedEmb, server rate 5": (FEDEMB, {"server_learning_rate": 5}),
    "DP-FedEmb, server rate 15": (FEDEMB, {"server_learning_rate": 15}),
    "DP-FedEmb, all layers": (FEDEMB, {"trainable": "all"}),
    "DP-FedEmb, heads from means": (FEDEMB, {"head_start": "means", "head_lr_scale": 1}),
    "DP-FedEmb, heads from means, cosine": (
        FEDEMB,
        {"head_start": "means", "head_lr_scale": 1, "loss": "cosine", "loss_scale": 20.0},
    ),
    "DP-FedEmb, local rate 0.2": (FEDEMB, {"learning_rate": 0.2, "head_lr_scale": 5}),
    "DP-FedAvg, local rate 0.5": (FEDAVG, {"learning_rate": 0.5}),
    "DP-FedAvg, heads 5 times": (FEDAVG, {"learning_rate": 0.2, "head_lr_scale": 5}),
    **{
        f"DP-FedEmb, cosine, {told}": (FEDEMB, {**COSINE, "head_start": "means", "head_lr_scale": 1, **changes})
        for told, changes in {
            "server rate 10": {"server_learning_rate": 10},
            "local rate 0.2": {"learning_rate": 0.2},
            "local rate 0.2, heads 5 times": {"learning_rate": 0.2, "head_lr_scale": 5},
            "2 local epochs": {"local_epochs": 2},
            "all layers": {"trainable": "all"},
            "scale 10": {"loss_scale": 10.0},
            "server rate 20": {"server_learning_rate": 20},
            "server rate 10, 2 local epochs": {"server_learning_rate": 10, "local_epochs": 2},
        }.items()
    },
    **{
        f"DP-FedAvg, cosine, {told}": (FEDAVG, {**COSINE, **changes})
        for told, changes in {
            "local rate 0.2": {"learning_rate": 0.2},
            "local rate 0.5": {"learning_rate": 0.5},
            "local rate 0.2, heads 5 times": {"learning_rate": 0.2, "head_lr_scale": 5},
        }.items()
    },
    "DP-FedAvg, heads 5 times, server rate 10": (
        FEDAVG,
        {"learning_rate": 0.2, "head_lr_scale": 5, "server_learning_rate": 10},
    ),
    "DP-FedAvg, heads 20 times": (FEDAVG, {"learning_rate": 0.2, "head_lr_scale": 20}),
    "DP-FedEmb, server rate 8": (FEDEMB, {"server_learning_rate": 8}),
    "DP-FedEmb, 4 local epochs": (FEDEMB, {"local_epochs": 4}),
    "DP-FedAvg, server rate 5": (FEDAVG, {"server_learning_rate": 5}),
    "DP-FedAvg, server rate 15": (FEDAVG, {"server_learning_rate": 15}),
    "DP-FedAvg, local rate 0.2": (FEDAVG, {"learning_rate": 0.2}),
}


def noisy(plan: Plan, changes: dict) -> Plan:
    """A candidate, shorter than the final run, with the noise of ε among the largest population."""
    plan = dataclasses.replace(plan, **SHORT, **changes, delta=POPULATION**-1.1)
    return calibrated(plan, EPSILON, POPULATION)


if __name__ == "__main__":
    main(
        Choice(
            folder=FOLDER,
            data=lambda: data(POPULATION, 120, VALIDATION),
            model=models.lenet,
            candidates={name: noisy(*change) for name, change in CHANGES.items()},
        )
    )
