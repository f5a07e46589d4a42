"""The specimens of all algorithms, found in `contract/algorithms`, their plans, and runs of them."""

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from contract.specimen import Specimen, network
from fitting import fit_plan
from sfumato.algorithms import TRAINED
from sfumato.training import Result, RunOptions

ROUNDS = 5

SPECIMENS: dict[str, Specimen] = {
    name: specimen
    for file in sorted(Path(__file__).with_name("algorithms").glob("*.py"))
    for name, specimen in importlib.import_module(f"contract.algorithms.{file.stem}").SPECIMENS.items()
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
