"""A specimen of every algorithm: a tiny plan, tiny records and a tiny model, on which the battery tries its properties.

A new algorithm of the registry needs one entry here. What the battery does not ask of it, the entry says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fitting import fit_plan
from sfumato import data
from sfumato.algorithms import TRAINED
from sfumato.training import Result, RunOptions

UNITS, FEATURES, CLASSES, ROUNDS = 8, 8, 4, 5


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """How the battery meets an algorithm.

    Attributes:
        records: from a seed, and from what the last unit's numbers are multiplied with and a seed of its own: a data
            set of `UNITS` units that are alike but for the last.
        cohort: the plan's fields for so many planned units a round, an even number.
        fields: more fields of the plan.
        rounds: the field that says how often the server steps.
        variants: fields that change how contributions are computed.
        command: words of a command that trains for a moment on data that it writes into a folder.
        guarantee: whether it adds noise. What needs noise or a bound is not asked of one that does not.
        bare: fields that leave the noisy mean as it is, where a plan works on it with what is public.
        limited: whether it takes samplings that limit how often a unit takes part.
    """

    records: Callable[..., Any]
    cohort: Callable[[int], dict[str, Any]]
    command: Callable[[Path], list[Any]]
    fields: dict[str, Any] = field(default_factory=dict)
    rounds: str = "rounds"
    variants: tuple[dict[str, Any], ...] = ({},)
    guarantee: bool = True
    bare: dict[str, Any] = field(default_factory=dict)
    limited: bool = True


def users(seed: int = 0, *, wild: float = 1.0, last: int = 0, each: int = CLASSES) -> data.UserDataset:
    """Users with so many examples each, of different classes."""
    inputs = _inputs(seed, (UNITS, each), wild, last).reshape(-1, FEATURES)
    labels, owners = np.arange(len(inputs)) % CLASSES, np.arange(len(inputs)) // each
    return data.from_arrays(inputs, labels, owners)


def examples(seed: int = 0, *, wild: float = 1.0, last: int = 0) -> data.ExampleDataset:
    """Single examples."""
    labels = np.arange(UNITS) % CLASSES
    return data.examples_from_arrays(_inputs(seed, (UNITS,), wild, last), labels, num_classes=CLASSES)


def vectors(seed: int = 0, *, wild: float = 1.0, last: int = 0) -> np.ndarray:
    """Bare numbers, for the toy; long, so that their noise can be measured."""
    return _inputs(seed, (UNITS,), wild, last, features=200)


def _inputs(seed: int, shape: tuple[int, ...], wild: float, last: int, features: int = FEATURES) -> np.ndarray:
    inputs = np.random.default_rng(seed).normal(size=(*shape, features))
    inputs[-1] = np.random.default_rng([seed, last]).normal(size=inputs[-1].shape) * wild
    return inputs.astype(np.float32)


def network(*, width: int = 16, dropout: float = 0.0) -> nn.Module:
    """From features to classes or embeddings; its gradients grow with its inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drop = [nn.Dropout(dropout)] if dropout else []
        return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), *drop, nn.Linear(width, CLASSES))


def _user_command(folder: Path) -> list[Any]:
    rng = np.random.default_rng(0)
    pictures, owners = rng.integers(0, 256, (24, 12, 12), dtype=np.uint8), np.arange(24) // 3
    np.savez(folder / "users.npz", images=pictures, users=owners, labels=owners)
    return ["--data", folder / "users.npz", "--embedding-dim", 4, "--test-share", 0]


def _ratings_command(folder: Path) -> list[Any]:
    rows = [f"{user},{item},{(user + item) % 5 + 1}" for user in range(8) for item in range(user % 3, 12)]
    (folder / "ratings.csv").write_text("\n".join(["user,item,value", *rows]))
    columns = ["--user", "user", "--item", "item", "--value", "value"]
    return ["--data", folder / "ratings.csv", *columns, "--model", "matrix_factorization", "--test-share", 0]


def _example_command(folder: Path) -> list[Any]:
    pictures = np.random.default_rng(0).integers(0, 256, (24, 8, 8), dtype=np.uint8)
    np.savez(folder / "examples.npz", x=pictures, y=np.arange(24) % 3)
    return ["--data", folder / "examples.npz", "--model", "lenet300_100", "--test-share", 0]


_PRIVATE = {"clipping.norm": 0.5, "noise.noise_multiplier": 0.8}
_CLIENT = {"client.batch_size": 2, "client.learning_rate": 0.1, "client.momentum": 0.5}
_LOCAL = {**_PRIVATE, **_CLIENT, "client.epochs": 1}

SPECIMENS: dict[str, Specimen] = {
    "fedemb": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"cohort.size": units // 2, "cohort.users_per_client": 2},
        variants=({}, {"client.at_once": 3}, {"client.head.classes": "global"}, {"client.head.steps_alone": 1}),
        command=_user_command,
    ),
    "fedavg": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"cohort.size": units},
        variants=(
            {},
            {"client.at_once": 3},
            {"client.loss": "cosface"},
            {
                "cohort.size": 2,
                "cohort.users_per_client": 3,
                "client.at_once": 3,
                "client.epochs": 2,
                "client.learning_rate": 0.5,
            },
        ),
        command=_user_command,
    ),
    "fedsgd": Specimen(
        records=users,
        fields=_PRIVATE,
        cohort=lambda units: {"cohort.size": units // 2, "cohort.users_per_client": 2},
        command=_user_command,
    ),
    "fedrecon": Specimen(
        records=users,
        fields={
            **_PRIVATE,
            **_CLIENT,
            "client.loss": "cross_entropy",
            "client.local.parameters": r".*bias",
            "client.at_once": 1,
        },
        cohort=lambda units: {"cohort.size": units},
        variants=(
            {},
            {"client.at_once": 3},
            {"client.local.joint": True},
            {"client.local.support_order": "first", "client.local.steps": 2},
        ),
        command=_ratings_command,
    ),
    "centralized": Specimen(
        records=partial(users, each=1),  # its unit is an example
        cohort=lambda units: {"cohort.size": units},
        command=_user_command,
        guarantee=False,  # no bound, no noise: sensitivity, noise and what leaves without noise are not asked
    ),
    "dpsgd": Specimen(
        records=examples,
        fields={**_PRIVATE, "examples.micro_batch": 3, "server.name": "adam", "server.learning_rate": 0.01},
        rounds="steps",
        cohort=lambda units: {"cohort.size": units},
        variants=({}, {"examples.micro_batch": 1}, {"examples.micro_batch": 16}),
        command=_example_command,
    ),
    "labeldp_pro": Specimen(
        records=examples,
        fields={**_PRIVATE, "examples.micro_batch": 3, "public_batch": 4, "projection_steps": 3},
        rounds="steps",
        cohort=lambda units: {"cohort.size": units},
        variants=({}, {"examples.micro_batch": 16, "averaging": 0.9, "projection": "hull"}),
        command=_example_command,
        bare={"public_batch": 0, "averaging": 0.0},
        limited=False,
    ),
}

_SEPARATED = {"cohort": "min_separation"}
_CORRELATED: dict[str, dict[str, Any]] = {
    "tree": {**_SEPARATED, "noise": "tree", "noise.restart": 3, "noise.completion": True},
    "banded": {**_SEPARATED, "noise": "banded"},
    "blt": {"cohort": "shuffled", "noise": "blt"},
    "bisr": {**_SEPARATED, "noise": "bisr", "cohort.drop_out": 0.5},
    "cyclic": {"cohort": "cyclic_poisson", "cohort.parts": 2, "noise": "banded"},
}
CORRELATED = ["dpsgd+tree", "fedavg+banded", "fedemb+blt", "fedsgd+bisr", "fedavg+tree", "dpsgd+cyclic"]
"""Runs whose rounds share noise, or limit who takes part: an algorithm of the registry and more fields of its plan."""

_STATEFUL: dict[str, dict[str, Any]] = {
    "averaged": {"clipping": "adaptive", "clipping.count_noise": 1.0, "server.ema_decay": 0.9},
    "scheduled": {
        "clipping": "adaptive",
        "clipping.count_noise": 1.5,
        "server.momentum": 0.9,
        "server.schedule": "cosine",
        "server.warm_up": 2,
        "server.ema_decay": 0.9,
    },
}
STATEFUL = ["fedemb+averaged", "dpsgd+scheduled"]
"""Runs that keep more from round to round: a clip norm, a moving average, moments, the place in a schedule."""

RELEASED = ["fedemb+released", "dpsgd+released"]
"""Runs that draw a key of their own."""

NAMES = list(TRAINED)
PRIVATE = [name for name in NAMES if name not in SPECIMENS or SPECIMENS[name].guarantee]
LIMITABLE = [name for name in PRIVATE if name not in SPECIMENS or SPECIMENS[name].limited]


def plan_of(name: str, *, units: int = 4, rounds: int = ROUNDS, **changes: Any) -> Any:
    """The specimen's plan, with so many planned units a round."""
    algorithm, _, noise = name.partition("+")
    specimen, more = SPECIMENS[algorithm], {**_CORRELATED, **_STATEFUL}.get(noise, {})
    fields = {**specimen.fields, specimen.rounds: rounds, **specimen.cohort(units), **more}
    return TRAINED[algorithm].load()(**{**fields, **changes})


def fit(name: str, out: Path | None, *, model: nn.Module | None = None, **changes: Any) -> Result:
    """A run of the specimen; seeded unless it is one of `RELEASED`, or `seed` is given as None."""
    options = {key: changes.pop(key) for key in ("resume", "contribution", "budget", "callbacks") if key in changes}
    records = changes.pop("records", None)
    plan = plan_of(name, **{"seed": None if name in RELEASED else 3, **changes})
    records = SPECIMENS[name.partition("+")[0]].records() if records is None else records
    return fit_plan(plan, model or network(), records, out=out, options=RunOptions(checkpoint_every=2), **options)
