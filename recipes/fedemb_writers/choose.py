"""Settings of run.py, by recall on small letters of validation hands. See README.md."""

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from choosing import Choice, main
from run import FEDAVG, FEDEMB, FOLDER, VALIDATION, Plan, calibrated, data

from sfumato import models

POPULATION, EPSILON = 100_000, 8.0
SHORT = {"rounds": 6}
CHANGES: dict[str, tuple[Plan, dict]] = {
    "DP-FedEmb, server rate 5": (FEDEMB, {"server_learning_rate": 5}),
    "DP-FedEmb, server rate 15": (FEDEMB, {"server_learning_rate": 15}),
    "DP-FedEmb, all layers": (FEDEMB, {"trainable": "all"}),
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
