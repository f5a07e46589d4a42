"""Settings of run.py, by recall on five validation alphabets, the last but the test's. See README.md."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from choosing import Choice, main
from run import ALONE, FEDAVG, FEDEMB, NOISE, TESTED, negatives

from sfumato import models
from sfumato.data import UserDataset, open_users, split_groups
from sfumato.federated import FedAvg, FedEmb

INNER = {
    "client.loss": "softmax",
    "client.head.start": "glorot",
    "client.head_lr_scale": 20.0,
    "server.learning_rate": 0.2,
}
"""FedEmb as the paper has it, with the server's rate that this recipe had at first."""
FIRST_FEDAVG = FEDAVG.replace(
    cohort={"size": 32, "users_per_client": 8},
    client={"epochs": 1, "loss": {"kind": "cosine", "scale": 10.0}},
    server={"learning_rate": 0.05},
)
"""FedAvg as this recipe had it at first: more and smaller clients, for a shared head."""


def at(rate: float) -> dict[str, Any]:
    """A plan's change of the server's rate."""
    return {"server.learning_rate": rate}


LARGE = {"cohort.users_per_client": 16, "cohort.size": 16, "client.epochs": 2, "client.loss.scale": 20.0}
"""FedEmb's clients, as run.py has them now."""
FREE: dict[str, dict] = {  # without noise
    "server rate 0.4": at(0.4),
    "server rate 0.4, heads 10 times": {**at(0.4), "client.head_lr_scale": 10},
    "m = 16, server rate 0.4": {**LARGE, **at(0.4)},
    "m = 16, server rate 0.4, heads 10 times": {**LARGE, **at(0.4), "client.head_lr_scale": 10},
    "m = 16, server rate 1, heads 10 times, local rate 0.05": {
        **LARGE,
        **at(1.0),
        "client.head_lr_scale": 10,
        "client.learning_rate": 0.05,
    },
    "m = 16, server rate 0.4, heads 50 times": {**LARGE, **at(0.4), "client.head_lr_scale": 50},
    "m = 16, server rate 1": {**LARGE, **at(1.0)},
    "m = 16, server rate 2": {**LARGE, **at(2.0)},
    "m = 16, server rate 4": {**LARGE, **at(4.0)},
    "m = 16, server rate 0.4, local rate 0.05": {**LARGE, **at(0.4), "client.learning_rate": 0.05},
    "m = 64, server rate 1": {**LARGE, **at(1.0), "cohort.users_per_client": 64, "cohort.size": 4},
}
NOISY = tuple(f"m = 16, server rate {rate}" for rate in ("0.4", "1", "2", "4"))
"""Of these, what is tried with the noise, too."""
CHANGES: dict[str, tuple[FedEmb | FedAvg, dict]] = {
    "DP-FedEmb": (FEDEMB, INNER),
    "DP-FedEmb, server rate 0.1": (FEDEMB, {**INNER, **at(0.1)}),
    "DP-FedEmb, server rate 0.4": (FEDEMB, {**INNER, **at(0.4)}),
    "DP-FedEmb, local rate 0.05": (FEDEMB, {**INNER, "client.learning_rate": 0.05}),
    "DP-FedEmb, heads from means, cosine": (FEDEMB, at(0.2)),
    "DP-FedEmb, heads from means, cosine, server rate 0.4": (FEDEMB, at(0.4)),
    "DP-FedEmb, heads from means, cosine, server rate 0.8": (FEDEMB, at(0.8)),
    "DP-FedEmb, m = 1, negatives": (ALONE, at(2.0)),
    "DP-FedEmb, m = 1, negatives, server rate 5": (ALONE, at(5.0)),
    "DP-FedEmb, m = 1, negatives, server rate 10": (ALONE, at(10.0)),
    "DP-FedAvg": (FIRST_FEDAVG, at(0.1)),
    "DP-FedAvg, server rate 0.02": (FIRST_FEDAVG, at(0.02)),
    "DP-FedAvg, server rate 0.05": (FIRST_FEDAVG, at(0.05)),
    "DP-FedAvg, server rate 0.2": (FIRST_FEDAVG, at(0.2)),
    "DP-FedAvg, local rate 0.05": (FIRST_FEDAVG, {**at(0.1), "client.learning_rate": 0.05}),
    **{f"DP-FedAvg, {name}": (FIRST_FEDAVG, FREE[name]) for name in NOISY},
    **{f"FedAvg, {name}": (FIRST_FEDAVG, changes) for name, changes in FREE.items()},
}


def data() -> tuple[UserDataset, UserDataset]:
    """Characters of all alphabets but the last ten, and those of the first five of these."""
    characters = open_users(SHARED / "omniglot_background.npz")
    groups = characters.groups
    parts = split_groups(characters, test=groups[-TESTED:], validation=groups[-2 * TESTED : -TESTED])
    return parts.train, parts.validation


def noise_of(name: str, plan: FedEmb | FedAvg) -> float:
    """The noise multiplier of a candidate."""
    if not name.startswith("DP-"):
        return 0.0
    return NOISE / 2 if plan is ALONE else NOISE


if __name__ == "__main__":
    candidates = {
        name: plan.replace(noise=noise_of(name, plan), **changes) for name, (plan, changes) in CHANGES.items()
    }
    main(
        Choice(
            folder=Path(__file__).resolve().parent,
            data=data,
            model=models.lenet,
            candidates=candidates,
            negatives=negatives,
        )
    )
