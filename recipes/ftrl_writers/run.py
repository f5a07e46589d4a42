"""Digits of 539 real writers, learned under user-level privacy with noise that is correlated over the rounds.

DP-FedAvg; a user is a writer. At equal (ε, δ): correlated noise (DP-FTRL) and independent noise under limited
participation, where no sampling is trusted; and independent and banded noise that Poisson sampling amplifies, where it
is. The same model, clients and rounds for all. One row loses 30 % of every cohort at random; its statement has to be
the same to the byte as that of the full cohort. Measured on writers whom no one trained on. See README.md.
"""

import dataclasses
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from ftrl_recipe import Method, Noise, Recipe, main

from sfumato.central.tasks import Classification
from sfumato.data import UserDataset, examples_from_users, from_arrays
from sfumato.federated import FedAvg
from sfumato.training import Result

FULL = Method(noise="banded", epsilon=8.0)
MISSING = dataclasses.replace(FULL, drop_out=0.3)
_SEPARATED = {"cohort": "min_separation"}


@cache
def writers() -> tuple[UserDataset, UserDataset]:
    """The 539 writers of the training part, and the 297 others of the test part."""
    digits, names = (np.load(SHARED / name) for name in ("mnist.npz", "mnist_writers.npz"))
    train, test = (
        from_arrays(digits[f"x_{part}"], digits[f"y_{part}"], names[f"writer_{part}"]) for part in ("train", "test")
    )
    return train, test


def model(_: UserDataset) -> nn.Module:
    """Two convolutions, 3,424 parameters; the shared head has 2,560 more. Noise grows with the root of their number."""
    layers = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers)


def accuracy(result: Result, people: UserDataset) -> dict[str, float]:
    """Share of these people's digits that model and head together classify rightly."""
    assert result.head is not None
    head = nn.Linear(result.head.shape[1], result.head.shape[0], bias=False)
    head.load_state_dict({"weight": result.head})
    whole = nn.Sequential(result.model, head)
    found = Classification().measure(whole, examples_from_users(people), curve=False, device="cpu")
    return {"accuracy": found["accuracy"]}


def same_statements(place: Callable[[str, int], Path], seeds: int) -> None:
    """Those of the row with missing writers and of the full one."""
    for seed in range(seeds):
        refuse_difference(place(FULL.title, seed), place(MISSING.title, seed))


def refuse_difference(full: Path, missing: Path) -> None:
    """Stop if two statements are not the same to the byte: who was missing must not show in what is promised."""
    one, other = ((folder / "statement.json").read_bytes() for folder in (full, missing))
    if one != other:
        raise SystemExit(f"the statements of {full} and {missing} differ")


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="MNIST by writer",
    data=lambda quick: writers(),
    model=model,
    # Chosen on writers of the training part, held out; see README.md.
    plan=FedAvg(
        rounds=60,
        cohort=49,
        client={"max_examples": 64, "batch_size": 32, "learning_rate": 0.3, "momentum": 0.0, "at_once": 32},
        server={"momentum": 0.9},
        clipping=0.3,
    ),
    quick={"rounds": 12, "client.max_examples": 8},
    noises={
        "banded": Noise(fields={**_SEPARATED, "noise": "banded"}),
        "BLT": Noise(fields={**_SEPARATED, "noise": "blt"}),
        "BISR": Noise(fields={**_SEPARATED, "noise": "bisr"}),
        "tree": Noise(fields={**_SEPARATED, "noise": "tree"}),
        "independent": Noise(fields=_SEPARATED),
        "independent, Poisson sampling": Noise(fields={"cohort": "poisson"}),
        "banded, cyclic Poisson sampling": Noise(
            fields={"cohort": "cyclic_poisson", "noise": "banded"}, parts=(2, 4, 6, 8, 11)
        ),
    },
    epsilons=(1.0, 2.0, 8.0, 20.0),
    rate_times_error=0.04,
    highest_rate=0.8,
    more=(MISSING,),
    measure=accuracy,
    constant=False,
    check=same_statements,
)

if __name__ == "__main__":
    main(RECIPE)
