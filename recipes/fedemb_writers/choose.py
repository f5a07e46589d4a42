"""Settings of run.py, by recall on small letters of validation hands. See README.md."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from choosing import Choice, main
from run import FEDAVG, FEDEMB, FOLDER, VALIDATION, Plan, calibrated, data

from sfumato import models

POPULATION, EPSILON = 100_000, 8.0
START: dict[str, Any] = {"rounds": 6, "client.learning_rate": 0.05, "server.learning_rate": 5}
INNER: dict[str, Any] = {"client.loss": "softmax", "client.head.start": "glorot", "client.head_lr_scale": 20}
COSINE: dict[str, Any] = {"client.loss": "cosine", "client.loss.scale": 20.0}
MEANS: dict[str, Any] = {"client.head.start": "means", "client.head_lr_scale": 1}
FAST: dict[str, Any] = {"client.learning_rate": 0.2, "client.head_lr_scale": 5}
EMB: dict[str, dict[str, Any]] = {
    "server rate 5": INNER,
    "server rate 15": {**INNER, "server.learning_rate": 15},
    "all layers": {**INNER, "trainable": "all"},
    "heads from means": {**INNER, **MEANS},
    "heads from means, cosine": {**COSINE, **MEANS},
    "cosine, server rate 10": {**COSINE, **MEANS, "server.learning_rate": 10},
    "cosine, server rate 20": {**COSINE, **MEANS, "server.learning_rate": 20},
    "cosine, server rate 10, 2 local epochs": {**COSINE, **MEANS, "server.learning_rate": 10, "client.epochs": 2},
    "cosine, 2 local epochs": {**COSINE, **MEANS, "client.epochs": 2},
    "cosine, local rate 0.2": {**COSINE, **MEANS, "client.learning_rate": 0.2},
    "cosine, local rate 0.2, heads 5 times": {**COSINE, **MEANS, **FAST},
    "cosine, all layers": {**COSINE, **MEANS, "trainable": "all"},
    "cosine, scale 10": {**COSINE, **MEANS, "client.loss.scale": 10.0},
}
AVG: dict[str, dict[str, Any]] = {
    "server rate 5": {},
    "server rate 15": {"server.learning_rate": 15},
    "local rate 0.2": {"client.learning_rate": 0.2},
    "local rate 0.5": {"client.learning_rate": 0.5},
    "heads 5 times": FAST,
    "heads 5 times, server rate 10": {**FAST, "server.learning_rate": 10},
    "heads 20 times": {**FAST, "client.head_lr_scale": 20},
    "cosine, local rate 0.2": {**COSINE, "client.learning_rate": 0.2},
    "cosine, local rate 0.5": {**COSINE, "client.learning_rate": 0.5},
    "cosine, local rate 0.2, heads 5 times": {**COSINE, **FAST},
}


def candidates() -> dict[str, Plan]:
    """Shorter than the final run, with the noise of ε among the largest population."""
    both = [("DP-FedEmb", FEDEMB, {}, EMB), ("DP-FedAvg", FEDAVG, {"client.head_lr_scale": 1}, AVG)]
    return {
        f"{name}, {reported}": calibrated(
            dataclasses.replace(plan, **{**START, **first, **changes}, delta=POPULATION**-1.1), EPSILON, POPULATION
        )
        for name, plan, first, trials in both
        for reported, changes in trials.items()
    }


if __name__ == "__main__":
    main(
        Choice(
            folder=FOLDER,
            data=lambda: data(POPULATION, 120, VALIDATION),
            model=models.lenet,
            candidates=candidates(),
        )
    )
