"""Clients that train in one batched operation, next to the same clients one after the other.

    python benchmarks/clients_at_once.py [--quick] [--json FILE]

A client's delta is the same to the last bit whatever other clients share the operation (docs/explanation/virtual-
clients.md): places stay empty for it, and padding follows from few sizes. What sharing gains is measured here, for
rounds in the shape of recipes: most people with one picture, each a client next to 16 public classes; 64 groups of 16
people; a shared head of 4,600 people; and a network of convolutions. All times are medians of turns, one contender
after the other.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rows import Row, seconds, shown
from torch import nn

from sfumato import models
from sfumato._random import RandomSource
from sfumato.data import UserDataset, from_arrays
from sfumato.federated import FedAvg, FedEmb, FederatedPlan
from sfumato.training import RoundContext

PEOPLE, PUBLIC, FEATURES, DIMENSION = 4600, 600, 512, 32
COSINES = {
    "client.loss": "cosine",
    "client.loss.scale": 20.0,
    "client.epochs": 1,
    "client.batch_size": 64,
    "client.learning_rate": 0.05,
}
GROUPS = FedEmb(cohort={"size": 64, "users_per_client": 16}, client={"head": {"start": "means"}}, noise=1.0, **COSINES)
ALONE = FedEmb(
    cohort={"size": 1024, "users_per_client": 1},
    client={"negatives": 16, "head": {"start": "means"}},
    noise=1.0,
    **COSINES,
)
SHARED = FedAvg(cohort=256, noise=1.0, **COSINES)
CONVOLUTIONS = FedEmb(cohort={"size": 32, "users_per_client": 2}, client={"epochs": 1, "batch_size": 16}, noise=1.0)
AT_ONCE = {"one by one": 1, "32 at once": 32, "64 at once": 64, "256 at once": 256}


def features(people: int, seed: int) -> UserDataset:
    """What a frozen network makes of pictures: most people have one, some many."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(people), np.minimum(30, rng.zipf(2.2, people)))
    return from_arrays(rng.normal(size=(len(owners), FEATURES)).astype(np.float32), owners, np.char.mod("%d", owners))


def characters() -> UserDataset:
    """Twenty characters of each of 400 people."""
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(400), 20)
    return from_arrays(rng.integers(0, 256, (len(owners), 28, 28, 1), np.uint8), np.tile(np.arange(20), 400), owners)


def projection() -> nn.Module:
    """The trained part behind a frozen network."""
    return nn.Sequential(nn.Linear(FEATURES, DIMENSION, bias=False))


def rounds(
    plan: FederatedPlan, model: Callable[[], nn.Module], users: UserDataset, public: UserDataset | None
) -> Callable[[], None]:
    """The same round again and again."""
    more = {} if public is None else {"negatives": plan.with_negatives(public, users)}
    contribution = plan.contribution(model(), users, "cpu", 0, **more)
    private_sum, source = plan.private_sum(len(users)), RandomSource.from_seed(0)
    rate = plan.cohort.units / len(users)
    present = np.flatnonzero(np.random.default_rng(0).random(len(users)) < rate)
    cohort = private_sum.grouping.group(present, 0, source)

    def one() -> None:
        contribution.clipped_sum(RoundContext(contribution.trained.initial, cohort, 0, plan.clipping, 1.0, source))

    return one


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two turns of each")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    people, public = features(PEOPLE, 0), features(PUBLIC, 1)
    cases: dict[str, tuple[FederatedPlan, Callable[[], nn.Module], UserDataset, UserDataset | None]] = {
        "1,024 people next to public classes": (ALONE, projection, people, public),
        "64 groups of 16 people": (GROUPS, projection, people, None),
        "256 people, a shared head": (SHARED, projection, people, None),
        "32 groups, convolutions": (CONVOLUTIONS, models.lenet, characters(), None),
    }
    rows: list[Row] = []
    for name, (plan, model, users, negatives) in cases.items():
        jobs = {
            label: rounds(plan.replace(client={"at_once": count}), model, users, negatives)
            for label, count in AT_ONCE.items()
        }
        times = {label: 1e3 * each for label, each in seconds(jobs, 2 if arguments.quick else 9).items()}
        alone = times.pop("one by one")
        rows += [shown(f"{name}, {label}", each, alone, "one by one", "ms", None) for label, each in times.items()]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
