"""Ratings of films whose values alone are private, against epsilon. See README.md.

Who rated what is public. Each value, one of ten from 0.5 to 5, is randomised once: by bins that are best for a noisy
histogram of all values (RR on bins), by Laplace noise, or by randomised response on all ten. Matrix factorisation with
biases learns from the reports, or from numbers with the right mean in place of them. LP-MST takes the ten values for
classes: the same model gives each a probability, by its distance from the prediction, and learns from the likelihood of
the reports; with two stages the first one's model is the prior of the others' reports. Noisy gradients, with δ > 0 and
a trainer who sees the values, stand next to them.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, Split, examples_from_arrays, open_examples, split_examples
from sfumato.labels import LPMST, RROnBins
from sfumato.models import matrix_factorization
from sfumato.report.plots import COLOURS, save
from sfumato.training.supervised import outputs

FOLDER = Path(__file__).resolve().parent
DATASET = "MovieLens latest-small, a tenth of the ratings"
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LOW, HIGH, VALUES = 0.5, 5.0, 10
CENTRE = 3.5
FACTORS = 8
PLAIN, CONSTANT, MEANS = "without privacy", "always the mean", "the person's and the film's mean"

# Chosen once for all rows by choose.py.
PLAN = RROnBins(
    shuffle=True,  # ratings stand by user, and users differ in what they give
    epsilon=1.0,
    low=LOW,
    high=HIGH,
    values=VALUES,
    training={"epochs": 8, "batch_size": 1000, "optimizer": "adam", "learning_rate": 0.01, "weight_decay": 3e-4},
)


LIKELIHOOD = LPMST(
    shuffle=True, epsilon=1.0, stages=(1.0,), targets="likelihood", prior_weight=0.0, training=PLAN.training
)


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is reported, and what the model is trained on."""

    method: Literal["best", "rr", "laplace"]
    unbiased: bool = False


DELTA = 1e-5
GRADIENTS = DPSGD(
    steps=60, cohort=8192, server={"learning_rate": 5.0, "momentum": 0.9}, clipping=0.5, task="regression", delta=DELTA
)
LONGER_STEPS = (2.0, 15.0)  # from this ε on; the rate

METHODS: dict[str, Method | LPMST | DPSGD] = {
    "RR on bins": Method(method="best"),
    "Laplace": Method(method="laplace"),
    "RR": Method(method="rr"),
    "RR on bins, unbiased": Method(method="best", unbiased=True),
    "Laplace, unbiased": Method(method="laplace", unbiased=True),
    "RR, unbiased": Method(method="rr", unbiased=True),
    "LP-1ST": LIKELIHOOD,
    "LP-2ST": replace(LIKELIHOOD, stages=(0.65, 0.35), temperature=1.0),
    "DP-SGD": GRADIENTS,
}


class Graded(nn.Module):
    """Logits of the ten values: minus half the squared distance from the prediction, in a unit that is learned.

    A bias for each value is added, since whole stars are more frequent than halves.
    """

    def __init__(self, value: nn.Module) -> None:
        super().__init__()
        self.value = value
        self.log_precision = nn.Parameter(torch.zeros(()))
        self.frequency = nn.Parameter(torch.zeros(VALUES))
        self.register_buffer("values", torch.linspace(LOW, HIGH, VALUES))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Of pairs [n, 2], float [n, 10]."""
        distances = self.value(pairs).view(-1, 1) - self.values
        return self.frequency - distances.square() * self.log_precision.exp() / 2


@cache
def parts() -> Split[ExampleDataset]:
    """A tenth to measure on, a tenth to choose settings by; neither is trained on."""
    return split_examples(open_examples(cells.SHARED / "movielens_latest_small"), test=0.1, validation=0.1)


def model(data: ExampleDataset, seed: int) -> nn.Module:
    """Fresh vectors and biases."""
    items, users = data.vocabulary_sizes
    generator = torch.Generator().manual_seed(seed)
    return matrix_factorization(items, users=users, factors=FACTORS, biases=True, offset=CENTRE, generator=generator)


def trained(
    plan: RROnBins, method: Method | LPMST | DPSGD | None, epsilon: float, data: ExampleDataset
) -> tuple[nn.Module, Any]:
    """A model and its statement; without a method one that sees the values, and none."""
    assert plan.seed is not None
    start = model(data, plan.seed)
    if method is None:
        (inputs,), values = data.examples(np.arange(len(data)))
        assert values is not None
        return plan.supervised.fit(start, inputs, values, source=RandomSource.from_seed(plan.seed)), None
    if isinstance(method, DPSGD):
        noisy = method.replace(seed=plan.seed, cohort=min(method.cohort.size, len(data)))
        result = noisy.calibrate(epsilon=epsilon, delta=DELTA, population=len(data)).fit(start, data)
        return result.model, result.statement
    if isinstance(method, LPMST):
        (inputs,), values = data.examples(np.arange(len(data)))
        classes = np.rint((np.asarray(values) - LOW) / (HIGH - LOW) * (VALUES - 1)).astype(np.int64)
        ordered = replace(method, epsilon=epsilon, seed=plan.seed, training=plan.training)
        result = ordered.fit(Graded(start), examples_from_arrays(inputs, classes, num_classes=VALUES))
        return result.model, result.statement
    plan = replace(plan, epsilon=epsilon, method=method.method, unbiased=method.unbiased)
    result = plan.fit(start, data)
    return result.model, result.statement


def rmse(found: np.ndarray, data: ExampleDataset) -> float:
    """Of predictions that are moved into the public range."""
    assert data.targets is not None
    return float(np.sqrt(np.mean((np.clip(found, LOW, HIGH) - np.asarray(data.targets)) ** 2)))


def error(network: nn.Module, data: ExampleDataset) -> float:
    """The same of a model."""
    (inputs,), _ = data.examples(np.arange(len(data)))
    found = outputs(network, inputs)
    if found.ndim == 2:  # the mean by the probabilities of the values
        found = torch.softmax(torch.from_numpy(found), 1).numpy() @ np.linspace(LOW, HIGH, VALUES)
    return rmse(found, data)


def means(data: ExampleDataset, wanted: ExampleDataset) -> tuple[np.ndarray, np.ndarray]:
    """What two tables without a model predict: the mean of all values, and the person's plus the film's less that."""
    (inputs,), values = data.examples(np.arange(len(data)))
    (asked,), _ = wanted.examples(np.arange(len(wanted)))
    assert values is not None
    overall, reported = float(values.mean()), np.full(len(wanted), -float(values.mean()))
    for column, size in enumerate(data.vocabulary_sizes):
        count = np.bincount(inputs[:, column], minlength=size)
        total = np.bincount(inputs[:, column], values, minlength=size)
        reported += np.where(count > 0, total / np.maximum(count, 1), overall)[asked[:, column]]
    return np.full(len(wanted), overall), reported


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One row with one seed, at every epsilon."""
    place = folder / "measured.json"
    if place.exists():
        return
    plan, data = replace(PLAN, seed=seed), parts().train
    if quick:
        plan, data = replace(plan, **{"training.epochs": 1}), data.subset(np.arange(0, len(data), 20))
    found = []
    for epsilon in (None,) if name == PLAIN else EPSILONS:
        method = METHODS.get(name)
        if isinstance(method, DPSGD) and epsilon is not None and epsilon >= LONGER_STEPS[0]:
            method = method.replace(**{"server.learning_rate": LONGER_STEPS[1]})
        network, statement = trained(plan, method, epsilon or 0.0, data)
        reported = statement and {
            "epsilon": statement.epsilon,
            "delta": statement.delta or None,
            "unit": statement.unit,
        }
        found.append({"rmse": error(network, parts().test), "wanted": epsilon, **(reported or {})})
    folder.mkdir(parents=True, exist_ok=True)
    write_json(place, found)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Root mean squared error of each row at each epsilon; draws the figure."""
    split, rows = parts(), []
    for name, reported in zip((CONSTANT, MEANS), means(split.train, split.test), strict=True):
        rows.append(_row(name, [rmse(reported, split.test)] * seeds, {}))
    for name in (PLAIN, *METHODS):
        measured = [read_json(place(name, seed) / "measured.json") for seed in range(seeds)]
        for each in zip(*measured, strict=True):
            rows.append(_row(name, [one["rmse"] for one in each], each[0]))
    draw(rows, place(PLAIN, 0).parent if quick else FOLDER)
    return rows


def _row(name: str, found: list[float], reported: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": name,
        "dataset": DATASET,
        "metric": "RMSE",
        **cells.mean_and_std(found),
        "seeds": len(found),
        "epsilon_wanted": reported.get("wanted"),
        "epsilon": reported.get("epsilon"),
        "delta": reported.get("delta"),
        "unit": reported.get("unit"),
        "paper": None,
    }


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """The error against epsilon, a panel for each kind of training."""
    reported = ("RR on bins", "Laplace", "RR")
    lines = {
        "trained on reports": reported,
        "unbiased": tuple(f"{name}, unbiased" for name in reported),
        "likelihoods, and gradients": ("LP-1ST", "LP-2ST", "DP-SGD"),
    }

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, len(lines), sharey=True)
        for axes, (title, names) in zip(panels, lines.items(), strict=True):
            for colour, name in enumerate(names):
                own = [row for row in rows if row["method"] == name]
                axes.errorbar(
                    [row["epsilon_wanted"] for row in own],
                    [row["mean"] for row in own],
                    [row["std"] for row in own],
                    color=COLOURS[colour],
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=name,
                )
            for row, dashes in zip(rows, (":", "--", "-"), strict=False):
                axes.axhline(row["mean"], color=COLOURS[6], linewidth=0.8, linestyle=dashes, label=row["method"])
            axes.set_xscale("log", base=2)
            axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
            axes.set_xlabel("ε for one rating")
            axes.set_title(f"RMSE, {title}", loc="left", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)

    save(folder / "error.svg", (12.6, 4.2), fill)


if __name__ == "__main__":
    cells.main(FOLDER, [PLAIN, *METHODS], cell, table)
