"""Whether people like a film, from models of which a part never leaves, measured on people no one trained on.

See README.md. The methods are those of `fedrecon_movielens`, on ten times as many people: MovieLens-1M, of which not
the stars are at hand but whether there were four or more.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from fedrecon_recipe import Method, Study, measured

from sfumato.data import Split, UserDataset, from_arrays, split_users
from sfumato.data.readers.ratings import with_user_column
from sfumato.federated import Centralized, FedAvg, FedRecon
from sfumato.federated.tasks import Classes
from sfumato.models import Recommender, recommender

FOLDER = Path(__file__).resolve().parent
CONSTANT, RECON, ONE_STEP = "always liked", "FedRecon", "FedRecon, trained with 1 step"

# Settings were chosen on the validation people; see README.md.
FEDRECON = FedRecon(
    rounds=300,
    cohort=100,
    clipping=None,
    noise=0.0,
    client={
        "loss": "cross_entropy",
        "learning_rate": 0.5,
        "batch_size": 5,
        "max_examples": 250,
        "local": {"learning_rate": 0.1},
    },
    server={"learning_rate": 4.0},
)
BY_ONE_STEP = FEDRECON.replace(client={"local": {"steps": 1, "batch_size": 3000, "learning_rate": 4.0}})
FEDAVG = FedAvg(
    client={
        "loss": "cross_entropy",
        "learning_rate": 0.2,
        "momentum": 0.0,
        "batch_size": 5,
        "max_examples": 500,
        "at_once": 64,
    },
    rounds=300,
    cohort=100,
    clipping=None,
    noise=0.0,
    server={"learning_rate": 1.0, "momentum": 0.0},
)
POOLED = Centralized(
    client={"loss": "cross_entropy"}, rounds=10_000, cohort=500, server={"learning_rate": 4.0, "momentum": 0.0}
)
FULL = FEDRECON.client.local.steps

METHODS = {
    "centralized": Method(plan=POOLED, rebuild=FEDRECON, table=True, steps=(0, FULL)),
    "FedAvg, one vector for all": Method(plan=FEDAVG, rebuild=FEDRECON, steps=(0, FULL)),
    RECON: Method(plan=FEDRECON, rebuild=FEDRECON, steps=(0, 1, 10, FULL), seen=True),
    ONE_STEP: Method(plan=BY_ONE_STEP, rebuild=BY_ONE_STEP, steps=(0, 1, 2, 5)),
}


@cache
def people(table: bool) -> Split:
    """80 % to train on, 10 % to choose settings by, 10 % to measure on; every person is in one part."""
    rows = pq.read_table(cells.SHARED / "movielens_1m_interactions.parquet", columns=["user", "movie", "liked"])
    users, films, liked = (rows[name].to_numpy() for name in ("user", "movie", "liked"))
    places = np.searchsorted(_films(), films)
    known = liked >= 0
    found = from_arrays(places[known, None], liked[known], users[known], label_names=("not liked", "liked"))
    return split_users(with_user_column(found) if table else found, test=0.1, validation=0.1, shared_labels=True)


@cache
def _films() -> np.ndarray:
    """All films of the public list, rated or not."""
    return np.unique(pq.read_table(cells.SHARED / "movielens_1m_movies.parquet", columns=["movie"])["movie"].to_numpy())


def model(_: UserDataset, seed: int, users: int | None) -> Recommender:
    """Fresh vectors of 50 numbers, and logits of two classes with a bias for each film and person."""
    generator = torch.Generator().manual_seed(seed)
    options = {"classes": 2, "biases": True, "users": users}
    return recommender("matrix_factorization", len(_films()), generator=generator, **options)


STUDY = Study(methods=METHODS, people=people, model=model, inner=Classes())
cell = STUDY.cell


def table(place: Callable[[str, int], Path], seeds: int, _: bool) -> list[dict[str, Any]]:
    """Accuracy and log loss on people whom no one trained on."""
    rows = [_row(CONSTANT, [_constant()] * seeds)]
    for name, method in METHODS.items():
        found = measured(place, name, seeds)
        for title, steps in method.titled(name):
            rows.append(_row(title, [each["unseen"][str(steps)] for each in found], found[0]["kilobytes_sent"]))
        if method.seen:
            rows.append(_row(f"{name}, people it trained on", [each["seen"] for each in found]))
    return rows


def _row(name: str, found: list[dict[str, Any]], kilobytes: float | None = None) -> dict[str, Any]:
    return {
        "method": name,
        "dataset": "MovieLens-1M, people no one trained on",
        "metric": "accuracy",
        **cells.mean_and_std([each["accuracy"] for each in found]),
        "log_loss": cells.mean_and_std([each["log_loss"] for each in found])["mean"],
        "kilobytes_sent": kilobytes,
        "seeds": len(found),
        **dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier", "paper")),
    }


def _constant() -> dict[str, Any]:
    """What the share of likes reaches."""
    data = people(False)
    share = float(np.mean(np.concatenate([data.train.examples(user)[1] for user in range(len(data.train))])))
    liked = np.concatenate([data.test.examples(user)[1] for user in range(len(data.test))])
    losses = np.where(liked == 1, -np.log(share), -np.log(1 - share))
    return {"accuracy": float(np.mean(liked == (share > 0.5))), "log_loss": float(losses.mean())}


if __name__ == "__main__":
    cells.main(FOLDER, list(METHODS), cell, table)
