"""PrivacyFace on generated identities, trained: what a backbone gains from the clusters of other clients.

    trained.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT]

It writes trained.json, for the page trained.md. Clients are those of run.py with 400 of their identities each. A whole
network is trained, once by federated averaging, and once in joint steps. Fails if no private cluster was released.
"""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import clients
import numpy as np
from clients import CLIENTS, FULL, PUBLIC, QUICK, UNSEEN
from privacyface_recipe import CONTROL, People, Recipe, Row, by_name, main, methods
from torch import nn

from sfumato.data import UserDataset

FOLDER = Path(__file__).resolve().parent
SIZE = replace(FULL, private=100)
EPSILON = 2.0
CLUSTERS = {"radius": 1.3, "threshold": 40, "groups": 16, "dimensions": 32}
METHODS = methods(CLUSTERS, EPSILON, CLIENTS)
JOINT: dict[str, Any] = {"scheme": "fedsgd", "steps": 50, "client.learning_rate": 0.005}
"""Joint steps: 50 batches are one pass over 400 identities."""

START = "public"
NTH, TESTED = 8, 60
"""Candidates are made of every 8th public identity; all of them have trained the start. So many unseen characters."""


def _rows() -> list[Row]:
    rows = [Row(start=START, method=method, plan=plan) for method, plan in METHODS.items() if method != "FedFace"]
    control = f"joint steps: {CONTROL.replace('Avg', 'SGD')}"
    for name in ("FedSGD", "+ p̂, ε = 2", "+ p"):
        plan = {**(METHODS[CONTROL if name == "FedSGD" else name] or {}), **JOINT}
        rows.append(Row(start=START, method=f"joint steps: {name}", plan=plan, control=control))
    return rows


ROWS = by_name(_rows())


@cache
def people(_: Path | None, quick: bool) -> People:
    """The clients, some public identities, and unseen ones by family."""
    size = QUICK if quick else SIZE
    unseen, public = clients.users(UNSEEN, size), clients.users(PUBLIC, size)

    def of(family: str) -> UserDataset:
        inside = [place for place, name in enumerate(unseen.user_ids) if f" {family} " in str(name)]
        return unseen.subset(inside[: TESTED * len(clients.STYLES)])

    return People(
        silos={name: clients.users(name, size) for name in CLIENTS},
        public=public.subset(np.arange(0, len(public), NTH)),
        unseen={name: of(name) for name in CLIENTS},
    )


def started(_: Row, seed: int, __: Path | None, quick: bool) -> nn.Module:
    """The network that public identities have trained, which is the same for all rows of a seed."""
    return clients.started(seed, QUICK if quick else SIZE)


RECIPE = Recipe(
    folder=FOLDER,
    dataset="four clients of generated identities",
    rows=ROWS,
    people=people,
    started=started,
    settings={START: {"rounds": 2, "client.learning_rate": 0.005, "client.batch_size": 32}},
    quick={"rounds": 1, "sharing.threshold": 20},
    data="none",
    results="trained.json",
)

if __name__ == "__main__":
    main(RECIPE)
