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

from sfumato import data
from sfumato.algorithms import TRAINED
from sfumato.training import Cadence, Result

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


_PRIVATE = {"clip_norm": 0.5, "noise_multiplier": 0.8}
_LOCAL = {**_PRIVATE, "batch_size": 2, "learning_rate": 0.1, "momentum": 0.5, "local_epochs": 1}

SPECIMENS: dict[str, Specimen] = {
    "fedemb": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"clients_per_round": units // 2, "users_per_client": 2},
        variants=({}, {"clients_at_once": 3}, {"head_classes": "global"}, {"reconstruction_steps": 1}),
        command=_user_command,
    ),
    "fedavg": Specimen(
        records=users,
        fields=_LOCAL,
        cohort=lambda units: {"clients_per_round": units},
        variants=(
            {},
            {"clients_at_once": 3},
            {"loss": "cosface"},
            {
                "clients_per_round": 2,
                "users_per_client": 3,
                "clients_at_once": 3,
                "local_epochs": 2,
                "learning_rate": 0.5,
            },
        ),
        command=_user_command,
    ),
    "fedsgd": Specimen(
        records=users,
        fields=_PRIVATE,
        cohort=lambda units: {"clients_per_round": units // 2, "users_per_client": 2},
        command=_user_command,
    ),
    "fedrecon": Specimen(
        records=users,
        fields={
            **_PRIVATE,
            "loss": "cross_entropy",
            "local_parameters": r".*bias",
            "clients_at_once": 1,
            "batch_size": 2,
            "learning_rate": 0.1,
            "momentum": 0.5,
        },
        cohort=lambda units: {"clients_per_round": units},
        variants=({}, {"clients_at_once": 3}, {"joint": True}, {"support_order": "first", "reconstruction_steps": 2}),
        command=_ratings_command,
    ),
    "centralized": Specimen(
        records=partial(users, each=1),  # its unit is an example
        cohort=lambda units: {"batch_size": units},
        command=_user_command,
        guarantee=False,  # no bound, no noise: sensitivity, noise and what leaves without noise are not asked
    ),
    "dpsgd": Specimen(
        records=examples,
        fields={**_PRIVATE, "micro_batch": 3, "optimizer": "adam", "learning_rate": 0.01},
        rounds="steps",
        cohort=lambda units: {"batch_size": units},
        variants=({}, {"micro_batch": 1}, {"micro_batch": 16}),
        command=_example_command,
    ),
    "labeldp_pro": Specimen(
        records=examples,
        fields={**_PRIVATE, "micro_batch": 3, "public_batch": 4, "projection_steps": 3},
        rounds="steps",
        cohort=lambda units: {"batch_size": units},
        variants=({}, {"micro_batch": 16, "averaging": 0.9, "projection": "hull"}),
        command=_example_command,
        bare={"public_batch": 0, "averaging": 0.0},
        limited=False,
    ),
}

_SEPARATED = {"sampling": "min_separation"}
_CORRELATED: dict[str, dict[str, Any]] = {
    "tree": {**_SEPARATED, "noise": "tree", "tree_restart": 3, "tree_completion": True},
    "banded": {**_SEPARATED, "noise": "banded"},
    "blt": {"sampling": "shuffled", "noise": "blt"},
    "bisr": {**_SEPARATED, "noise": "bisr", "drop_out": 0.5},
    "cyclic": {"sampling": "cyclic", "parts": 2, "noise": "banded"},
}
CORRELATED = ["dpsgd+tree", "fedavg+banded", "fedemb+blt", "fedsgd+bisr", "fedavg+tree", "dpsgd+cyclic"]
"""Runs whose rounds share noise, or limit who takes part: an algorithm of the registry and more fields of its plan."""

_STATEFUL: dict[str, dict[str, Any]] = {
    "averaged": {"clipping": "adaptive", "adaptive_clip_count_noise": 1.0, "ema_decay": 0.9},
    "scheduled": {
        "clipping": "adaptive",
        "adaptive_clip_count_noise": 1.5,
        "momentum": 0.9,
        "schedule": "cosine",
        "warm_up": 2,
        "ema_decay": 0.9,
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
    return plan.fit(model or network(), records, out=out, cadence=Cadence(checkpoint_every=2), **options)
