"""PrivacyFace on real faces, trained: what a backbone gains from the clusters of other clients.

    trained.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

It writes trained.json, for the page trained.md, and accuracy.svg. The clients are those of run.py without some people,
whom no one trains on. One linear layer behind MobileFaceNet's frozen features is trained. Fails if no private cluster
was released.
"""

import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import clients
import figures
import numpy as np
import torch
from clients import CLIENTS, PUBLIC, Client
from privacyface_recipe import People, Recipe, Row, main, rows
from torch import nn

from sfumato import data
from sfumato.data import UserDataset
from sfumato.federated.losses import CosFace

FOLDER = Path(__file__).resolve().parent
TEST_SHARE = 30
"""Of 100 identities with two pictures or more, by a hash of their names, no one trains on so many."""

PRIVATE = {
    "rounds": 10,
    "cohort": {"size": 60, "users_per_client": 8},
    "clipping": {"norm": 0.3},
    "noise": 1.0,  # before it is calibrated
    "server": {"learning_rate": 0.1},
}
"""A backbone that is trained under noise."""

CLUSTERS = {
    "radius": figures.PLAN.radius,
    "threshold": figures.PLAN.threshold,
    "groups": figures.GROUPS,
    "dimensions": figures.DIMENSIONS,
}
ROWS = rows(
    CLUSTERS,
    figures.PLAN.epsilon,
    CLIENTS,
    PRIVATE,
    epsilons=[each for each in figures.EPSILONS if each != figures.PLAN.epsilon],
    radii=[each for each in figures.RADII if each != figures.PLAN.radius],
)


@cache
def faces(folder: Path | None, quick: bool) -> People:
    """The clients' identities in two parts, and the public people, as features."""
    everyone = clients.clients(folder, quick)
    held = {name: unseen(everyone[name]) for name in CLIENTS}
    return People(
        silos={name: _users(everyone[name], ~held[name]) for name in CLIENTS},
        public=_users(everyone[PUBLIC], np.ones(len(everyone[PUBLIC].identities), bool)),
        unseen={name: _users(everyone[name], held[name]) for name in CLIENTS},
    )


def unseen(client: Client) -> np.ndarray:
    """The identities on whom no one trains, bool [identities]: some of those with two pictures or more."""
    drawn = np.array([clients.draw("unseen", name) % 100 < TEST_SHARE for name in client.identities.tolist()])
    return drawn & (np.bincount(client.owners) > 1)


def _users(client: Client, kept: np.ndarray) -> UserDataset:
    rows = kept[client.owners]
    names = client.identities[client.owners[rows]]
    return data.from_arrays(client.features[rows], names, names)


def backbone() -> nn.Linear:
    """The layer that is trained."""
    return nn.Linear(512, 128)


def started(row: Row, seed: int, folder: Path | None, quick: bool) -> nn.Linear:
    """The layer before the clients train."""
    if row.start == "strong":
        return clients.network(folder).embedding
    torch.manual_seed(seed)
    layer = backbone()
    public = clients.clients(folder, quick)[PUBLIC]
    rows, owners = torch.from_numpy(public.features), torch.from_numpy(public.owners)
    head = nn.Parameter(torch.randn(len(public.identities), 128))
    optimizer = torch.optim.SGD([*layer.parameters(), head], lr=0.02, momentum=0.9)
    for _ in range(2 if quick else 20):
        for some in torch.randperm(len(rows)).split(32):
            optimizer.zero_grad()
            CosFace().mean(layer(rows[some]), head, owners[some]).backward()
            optimizer.step()
    return layer


RECIPE = Recipe(
    folder=FOLDER,
    dataset="four clients of real faces",
    rows=ROWS,
    people=faces,
    started=started,
    settings={
        "strong": {"rounds": 5, "client.learning_rate": 0.003},
        "weak": {"rounds": 5, "client.learning_rate": 0.01},
    },
    quick={
        "rounds": 2,
        "cohort": {"size": 4, "users_per_client": 8},
        "sharing.threshold": CLUSTERS["threshold"] // figures.QUICK,
    },
    base={"ε": figures.PLAN.epsilon, "ρ": figures.PLAN.radius},
    results="trained.json",
)

if __name__ == "__main__":
    main(RECIPE)
