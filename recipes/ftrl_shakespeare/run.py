"""The next character of 250 speaking roles of Shakespeare, under privacy for a role with all that it says.

DP-FedAvg of a small LSTM. At equal (ε, δ): correlated noise (DP-FTRL) and independent noise under limited
participation, where no sampling is trusted; and independent and banded noise that Poisson sampling amplifies, where it
is. Measured on 49 roles that no one trained on. See README.md.
"""

import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from ftrl_recipe import Noise, Recipe, main
from torch import nn

from sfumato.data import Split, UserDataset, open_users, split_users
from sfumato.federated import FedAvg
from sfumato.models import lstm

QUICK_TEST_ROLES = 6
_SEPARATED = {"cohort": "min_separation"}


@cache
def roles() -> Split:
    """250 roles to train on, 49 to measure on, as sequences of 80 characters; chosen by a public seed."""
    return split_users(open_users(SHARED / "shakespeare.txt", text="characters"), test=0.2, seed=0)


def data(quick: bool) -> tuple[UserDataset, UserDataset]:
    """Roles to train on, and others; a few of these under --quick."""
    test = roles().test
    return roles().train, test.subset(range(QUICK_TEST_ROLES)) if quick else test


def model(train: UserDataset) -> nn.Module:
    """Embedding 8, one LSTM of 64, 100 logits: 26,244 parameters. Noise grows with the root of their number."""
    return lstm(vocabulary_size=train.num_classes, hidden=64, layers=1)


RECIPE = Recipe(
    folder=Path(__file__).resolve().parent,
    dataset="Shakespeare by role",
    data=data,
    model=model,
    # Chosen on roles of the training part, held out; see README.md.
    plan=FedAvg(
        client={"loss": "next_token", "max_examples": 16, "batch_size": 4, "learning_rate": 2.0, "momentum": 0.0},
        rounds=60,
        cohort=30,
        server={"momentum": 0.9},
        clipping=0.3,
    ),
    quick={"rounds": 12, "client.max_examples": 2},
    noises={
        "banded": Noise(fields={**_SEPARATED, "noise": "banded"}),
        "BLT": Noise(fields={**_SEPARATED, "noise": "blt"}),
        "tree": Noise(fields={**_SEPARATED, "noise": "tree"}),
        "independent": Noise(fields=_SEPARATED),
        "independent, Poisson sampling": Noise(fields={"cohort": "poisson"}),
        "banded, cyclic Poisson sampling": Noise(
            fields={"cohort": "cyclic_poisson", "noise": "banded"}, parts=(2, 3, 4, 5, 6, 7, 8)
        ),
    },
    epsilons=(2.0, 8.0, 20.0),
    rate_times_error=0.16,
    highest_rate=2.5,
)

if __name__ == "__main__":
    main(RECIPE)
