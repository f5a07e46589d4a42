"""DP-FedEmb on the embedded glyphs: users are Unicode characters, a fifth of them is for testing. See README.md."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from embedding_recipe import Recipe, main

from sfumato import models
from sfumato.data import UserDataset, glyphs, open_users, split_users
from sfumato.federated import Centralized, FedAvg, FedEmb, FederatedPlan

FOLDER = Path(__file__).resolve().parent
POPULATION = 1840  # four fifths of the 2,300 identities
EPSILON = 8.0
SHARED_SETTINGS: dict[str, Any] = {  # as in demo.yaml
    "rounds": 8,
    "cohort.size": 345,
    "cohort.users_per_client": 4,
    "client.epochs": 1,
    "client.learning_rate": 0.05,
    "trainable": "conv.*",
    "clipping": 0.03,
    "server.learning_rate": 40,
    "server.momentum": 0.5,
    "noise": 0,
}
COSINES: dict[str, Any] = {
    "client.loss": "cosine",
    "client.loss.scale": 20.0,
    "client.head.start": "means",
    "client.head_lr_scale": 1,
}
FEDEMB = FedEmb(**COSINES, **SHARED_SETTINGS)
ALONE = FEDEMB.replace(cohort={"size": 1380, "users_per_client": 1}, client={"negatives": 3})
# A shared head needs no groups, and gains nothing from more trained layers or longer steps here; see choice.json.
FEDAVG = FedAvg(
    client={"head_lr_scale": 1},
    **{**SHARED_SETTINGS, "trainable": "conv1.*", "cohort.users_per_client": 1, "cohort.size": 1380},
)


def private(plan: FedEmb | FedAvg) -> FedEmb | FedAvg:
    """With the noise at which one character gets ε."""
    return plan.calibrate(epsilon=EPSILON, delta=POPULATION**-1.1, population=POPULATION)


PLANS: dict[str, FederatedPlan] = {
    "centralized": Centralized(rounds=600, cohort=128, server={"learning_rate": 0.02}),
    "FedAvg": FEDAVG,
    "FedEmb": FEDEMB,
    "DP-FedAvg": private(FEDAVG),
    "DP-FedEmb": private(FEDEMB),
    "DP-FedEmb, m = 1, negatives": private(ALONE),
}


def data(_: Path | None) -> tuple[UserDataset, UserDataset]:
    """All characters but those of test.txt, and these: as in `make demo`."""
    parts = split_users(glyphs(), test=(FOLDER / "test.txt").read_text().split())
    return parts.train, parts.test


def negatives() -> UserDataset:
    """Public classes for clients of one character: Omniglot's, with white ink as here."""
    return open_users(SHARED / "omniglot_background.npz", invert=True)


RECIPE = Recipe(
    folder=FOLDER,
    dataset="glyphs, 460 unseen characters",
    data=data,
    model=models.lenet,
    plans=PLANS,
    negatives=negatives,
    lone=("DP-FedEmb, m = 1, negatives",),
)

if __name__ == "__main__":
    main(RECIPE)
