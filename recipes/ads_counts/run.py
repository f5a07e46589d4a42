"""Private models of counts on insurance claims: the relative increase of the deviance against ε. See README.md.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

Each method, ε and seed takes the settings of `TRIALS` that have the lowest deviance on the validation rows.
deviance.svg is drawn next to results.json.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from ads_recipe import Table

from sfumato._files import read_json, write_json
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, Split, open_examples, split_examples
from sfumato.models import classifier
from sfumato.statement import Statement
from sfumato.training import RunOptions

FOLDER = Path(__file__).resolve().parent
FILE = "beMTPL97.parquet"
PLAIN, PRIVATE, CONSTANT = "without privacy", "DP-SGD, deferred noise", "one rate for all"
EPSILONS = (0.5, 1.0, 3.0, 5.0, 10.0, 30.0)
TRIALS: tuple[dict[str, Any], ...] = tuple(
    {"epochs": 3, "server.learning_rate": rate, "clipping": 8.0} for rate in (0.5, 1.0)
)
MEASURES = {
    "deviance": "mean Poisson deviance",
    "explained": "deviance explained",
    "calibration": "claims predicted / claims",
}
SCHEMA: dict[str, Any] = {
    "expo": {"kind": "numeric", "low": 0, "high": 1},  # years; first, since `Rates` reads it
    "nclaims": {"kind": "count"},
    "ageph": {"kind": "numeric", "low": 18, "high": 95},
    "bm": {"kind": "numeric", "low": 0, "high": 22},
    "power": {"kind": "numeric", "low": 10, "high": 250},
    "agec": {"kind": "numeric", "low": 0, "high": 50},
    "coverage": {"kind": "category", "values": ["TPL", "TPL+", "TPL++"]},
    "sex": {"kind": "category", "values": ["female", "male"]},
    "fuel": {"kind": "category", "values": ["gasoline", "diesel"]},
    "use": {"kind": "category", "values": ["private", "work"]},
    "fleet": {"kind": "category", "values": ["0", "1"]},
    "postcode": {"kind": "category", "buckets": 2000},
    **dict.fromkeys(("id", "claim", "amount", "average", "long", "lat"), "drop"),
}


@cache
def parts(folder: Path | None) -> Split[ExampleDataset]:
    """Policies to train on, to choose settings by, and to measure on; always the same ones."""
    return split_examples(
        open_examples((folder or cells.SHARED) / FILE, schema=SCHEMA), test=0.2, validation=0.1, seed=0
    )


class Rates(nn.Module):
    """The click model of a policy and a year; its logarithm of a rate has that of the exposure added.

    Args:
        model: maps numbers [n, a] and ids [n, b] to [n, 1].
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Logarithms of the expected claims, [n, 1]."""
        years = ((numbers[:, :1] + 1) / 2).clamp(min=1 / 365)
        return self.model(numbers[:, 1:], ids) + years.log()


def network(data: ExampleDataset, seed: int) -> nn.Module:
    """With small first embeddings, and a public guess of one claim in ten years."""
    (numbers,), ids = data.input_shapes
    generator = torch.Generator().manual_seed(seed)
    sizes = data.vocabulary_sizes
    model = classifier("ctr", 1, [(numbers - 1,), ids], vocabulary_sizes=sizes, hidden=(32, 32), generator=generator)
    with torch.no_grad():
        for table in model.tables:  # type: ignore[union-attr]
            table.weight.mul_(0.05)
        model.classifier.weight.mul_(0.05)  # type: ignore[union-attr]
        model.classifier.bias.fill_(float(np.log(0.1)))  # type: ignore[union-attr]
    return Rates(model)


def planned(epsilon: float | None, seed: int, population: int, *, epochs: float, **settings: Any) -> DPSGD:
    """The plan for so many policies; `settings` are its fields."""
    settings = settings if epsilon is not None else {**settings, "clipping": None}
    plan = DPSGD(task="counts", epochs=epochs, cohort=2048, tables="deferred", seed=seed, **settings)
    return plan.replace(noise=0.0) if epsilon is None else plan.calibrate(epsilon=epsilon, population=population)


def trained(train: ExampleDataset, epsilon: float | None, seed: int, **settings: Any) -> tuple[nn.Module, Statement]:
    """A model of the counts; `settings` are those of `planned`."""
    plan = planned(epsilon, seed, len(train), **settings)
    result = plan.fit(network(train, seed), train, options=RunOptions(evaluate_every=0))
    cells.refuse_stopped(result.finished)
    return result.model, result.statement


def expected(model: nn.Module, data: ExampleDataset) -> tuple[np.ndarray, np.ndarray]:
    """Expected and true counts, float64 [n]."""
    inputs, counts = data.examples(np.arange(len(data)))
    with torch.inference_mode():
        rates = model(*map(torch.from_numpy, inputs))[:, 0].double().exp().numpy()
    return rates, np.asarray(counts, np.float64)


def deviance(rates: np.ndarray, counts: np.ndarray) -> float:
    """The mean of 2 (y log(y / μ) − y + μ)."""
    logs = np.where(counts > 0, counts * np.log(np.maximum(counts, 1) / rates), 0.0)
    return float(2 * (logs - counts + rates).mean())


def years(data: ExampleDataset) -> np.ndarray:
    """The exposure of policies, float64 [n]."""
    return np.maximum((data.examples(np.arange(len(data)))[0][0][:, 0].astype(np.float64) + 1) / 2, 1 / 365)


def scores(rates: np.ndarray, counts: np.ndarray, constant: np.ndarray) -> dict[str, float]:
    """All measures; `constant` are the expected counts of one rate for all policies."""
    mean = deviance(rates, counts)
    return {
        "deviance": mean,
        "explained": 1 - mean / deviance(constant, counts),
        "calibration": float(rates.sum() / counts.sum()),
    }


def cell(method: str, seed: int, run: Path, quick: bool, data: Path | None) -> None:
    """One method with one seed at every ε; those that are done are not repeated."""
    place, split = run / "measured.json", parts(data)
    found = read_json(place) if place.exists() else []
    train = split.train.subset(np.arange(0, len(split.train), 20)) if quick else split.train
    run.mkdir(parents=True, exist_ok=True)
    rate = np.asarray(train.targets).sum() / years(train).sum()
    if method == CONSTANT and not found:
        constant = rate * years(split.test)
        write_json(
            place, [{"wanted": None, "unit": "example", **scores(constant, expected_counts(split.test), constant)}]
        )
        return
    for epsilon in (None,) if method == PLAIN else EPSILONS if method == PRIVATE else ():
        if any(one["wanted"] == epsilon for one in found):
            continue
        best: dict[str, Any] | None = None
        for settings in TRIALS[:1] if quick else TRIALS:
            model, statement = trained(train, epsilon, seed, **settings)
            chosen_by = deviance(*expected(model, split.validation))
            if best is None or chosen_by < best["validation"]:
                reported = {} if epsilon is None else {"epsilon": statement.epsilon, "delta": statement.delta}
                measured = scores(*expected(model, split.test), rate * years(split.test))
                best = {"wanted": epsilon, "unit": statement.unit, "validation": chosen_by, **settings}
                best |= measured | reported
        found.append(best)
        write_json(place, found)


def expected_counts(data: ExampleDataset) -> np.ndarray:
    """The true counts, float64 [n]."""
    return np.asarray(data.targets, np.float64)


TABLE = Table(
    folder=FOLDER,
    file="deviance.svg",
    dataset="Belgian motor insurance 1997, a fifth of the policies",
    methods=(CONSTANT, PLAIN, PRIVATE),
    plain=PLAIN,
    measures=MEASURES,
    increase="relative increase of the deviance, %",
    axis="mean Poisson deviance",
)

if __name__ == "__main__":
    cells.main(FOLDER, TABLE.methods, cell, TABLE, data="optional")
