"""What the recipes of correlated noise share: DP-FedAvg at equal (ε, δ) for each kind of noise, and a figure.

Every row has the same clients, rounds and model. What differs is the noise, the sampling that it is accounted with, and
the server's rate, which follows from the noise by one rule. A recipe's run.py gives data, model and plan and calls
`main`; `cells` has the options. Next to results.json it draws accuracy.svg: accuracy against ε, and the noise that
public numbers predict.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import cells
import numpy as np
import torch
from torch import nn

from sfumato._files import read_json, write_json
from sfumato.data import UserDataset
from sfumato.federated import FedAvg
from sfumato.report.plots import COLOURS, save
from sfumato.training import Result, RunOptions
from sfumato.training.plan import prefix_error

PREDICTED = (0.5, 1.0, 2.0, 4.0, 8.0, 20.0)
"""Budgets at which the noise is predicted; no one trains for that."""
WITHOUT = "not private"
CONSTANT = "always the most frequent"
_MEASURED = "measured.json"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A kind of noise and the sampling that it is accounted with.

    Attributes:
        fields: of the plan.
        parts: of cyclic sampling, to choose from by the predicted error; (None,) for other sampling.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[int | None, ...] = (None,)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        noise: title in the recipe's `noises`; None for a run without noise.
        epsilon: budget of one user; None likewise.
        drop_out: share of each cohort that is missing, at random; None for no one.
    """

    noise: str | None = None
    epsilon: float | None = None
    drop_out: float | None = None

    @property
    def title(self) -> str:
        """What the table calls it."""
        if self.noise is None:
            return WITHOUT
        missing = f", {self.drop_out:.0%} of each cohort missing" if self.drop_out else ""
        return f"{self.noise}, ε {self.epsilon:g}{missing}"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table.

    Attributes:
        folder: where run.py and results.json lie.
        dataset: its name in the table.
        data: gives the training users and the test users; whether it is quick.
        model: gives a fresh model for the training users; torch's generator is seeded before.
        plan: what all rows share; settings may not be chosen on the test users.
        quick: fields of the plan under --quick.
        noises: by title.
        epsilons: budgets of one user.
        rate_times_error: the server's rate is this divided by the predicted error, so one number is chosen for all
            kinds of noise.
        highest_rate: of the server, whatever the noise; that of the run without noise.
        more: rows next to every noise at every budget.
        measure: of what was trained and the test users, with an "accuracy"; None where the plan's own task has one.
        constant: whether the first row is the share of the most frequent label.
        check: looks at the run folders of (method, seed) and the number of seeds before the table is written.
    """

    folder: Path
    dataset: str
    data: Callable[[bool], tuple[UserDataset, UserDataset]]
    model: Callable[[UserDataset], nn.Module]
    plan: FedAvg
    quick: Mapping[str, Any]
    noises: Mapping[str, Noise]
    epsilons: tuple[float, ...]
    rate_times_error: float
    highest_rate: float
    more: tuple[Method, ...] = ()
    measure: Callable[[Result, UserDataset], dict[str, float]] | None = None
    constant: bool = True
    check: Callable[[Callable[[str, int], Path], int], None] | None = None

    @property
    def methods(self) -> dict[str, Method]:
        """The rows, in the order of the table."""
        private = [Method(noise=noise, epsilon=epsilon) for epsilon in self.epsilons for noise in self.noises]
        return {row.title: row for row in (Method(), *private, *self.more)}

    def planned(self, method: Method, population: int, quick: bool) -> FedAvg:
        """The plan of a row: noise that meets its budget, and the server's rate that this noise allows.

        Args:
            method: the row.
            population: the public number of users.
            quick: whether it is quick.
        """
        base = self.plan.replace(**self.quick) if quick else self.plan
        if method.noise is None or method.epsilon is None:
            return base.replace(cohort="min_separation", noise=0, server={"learning_rate": self.highest_rate})
        noise = self.noises[method.noise]
        parts = [{} if number is None else {"cohort.parts": number} for number in noise.parts]
        choices = [base.replace(**noise.fields, **chosen) for chosen in parts]
        met = [_calibrated(plan, method.epsilon, population) for plan in choices]
        best = min(met, key=partial(predicted_error, population=population))
        rate = min(self.highest_rate, round(self.rate_times_error / predicted_error(best, population), 3))
        missing = {"cohort.drop_out": method.drop_out} if method.drop_out else {}
        return best.replace(server={"learning_rate": rate}, **missing)


@cache
def _calibrated(plan: FedAvg, epsilon: float, population: int) -> FedAvg:
    """With its noise; cells, table and figure ask for the same."""
    return plan.calibrate(epsilon=epsilon, population=population)


def predicted_error(plan: FedAvg, population: int) -> float:
    """Root mean square, over the rounds, of the noise on a coordinate of the sum of all means so far; in clip norms."""
    return prefix_error(plan.private_sum(population).mechanism, plan.rounds, "mean") / plan.cohort.size


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(recipe.folder, list(recipe.methods), partial(cell, recipe), partial(table, recipe))


def cell(recipe: Recipe, name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    if (folder / _MEASURED).exists():
        return
    train, test = recipe.data(quick)
    plan = recipe.planned(recipe.methods[name], len(train), quick)
    torch.manual_seed(seed)
    result = dataclasses.replace(plan, seed=seed).fit(
        recipe.model(train),
        train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        test=test if recipe.measure is None else None,
        options=RunOptions(checkpoint_every=20),
    )
    if not result.finished:
        sys.exit(f"{name}, seed {seed} was stopped; start again to go on")
    write_json(folder / _MEASURED, recipe.measure(result, test) if recipe.measure else result.evaluation["trained"])


def table(recipe: Recipe, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of the accuracy on users that no one trained on; draws the figure."""
    train, test = recipe.data(quick)
    rows = [_constant(recipe, test, seeds)] if recipe.constant else []
    if recipe.check is not None:
        recipe.check(place, seeds)
    for name, method in recipe.methods.items():
        folders = [place(name, seed) for seed in range(seeds)]
        statement, plan = (json.loads((folders[0] / file).read_text()) for file in ("statement.json", "plan.json"))
        measured = [read_json(folder / _MEASURED) for folder in folders]
        reported = {}
        if "perplexity" in measured[0]:
            reported["perplexity"] = cells.mean_and_std([row["perplexity"] for row in measured])["mean"]
        private = method.noise is not None
        error = predicted_error(recipe.planned(method, statement["population"], quick), statement["population"])
        rows.append(
            {
                "method": name,
                "dataset": recipe.dataset,
                "metric": "accuracy",
                **cells.mean_and_std([row["accuracy"] for row in measured]),
                **reported,
                "seeds": seeds,
                "epsilon": statement["epsilon"] if private else None,
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": plan["noise"]["noise_multiplier"] if private else None,
                "predicted_error": round(error, 4) if private else None,
                "server_learning_rate": plan["server"]["learning_rate"],
                "parts": plan["cohort"].get("parts"),
                "paper": None,
            }
        )
    predicted = predictions(recipe, len(train), quick)
    draw(recipe, rows, predicted, place(WITHOUT, 0).parent if quick else recipe.folder)
    return rows


def _constant(recipe: Recipe, test: UserDataset, seeds: int) -> dict[str, Any]:
    """The row that trains nothing."""
    unknown = dict.fromkeys(("epsilon", "delta", "unit", "noise_multiplier", "predicted_error", "perplexity", "paper"))
    shown = {"method": CONSTANT, "dataset": recipe.dataset, "metric": "accuracy", "seeds": seeds}
    return {**unknown, **shown, **cells.mean_and_std([most_frequent(test)])}


def most_frequent(users: UserDataset) -> float:
    """Share of the label that these users hold most often; of sequences, padding is not counted."""
    counts = np.zeros(users.num_classes, np.int64)
    for user in range(len(users)):
        counts += np.bincount(users.examples(user)[1].ravel(), minlength=len(counts))
    if users.of_sequences:
        counts[0] = 0
    return float(counts.max() / counts.sum())


def predictions(recipe: Recipe, population: int, quick: bool) -> dict[str, list[float]]:
    """For each kind of noise the predicted errors at all of `PREDICTED`; printed as well."""
    found = {
        noise: [
            predicted_error(recipe.planned(Method(noise=noise, epsilon=epsilon), population, quick), population)
            for epsilon in PREDICTED
        ]
        for noise in recipe.noises
    }
    print(f"{'predicted error at ε':32}" + "".join(f"{epsilon:8g}" for epsilon in PREDICTED))
    for noise, errors in found.items():
        print(f"{noise:32}" + "".join(f"{error:8.3f}" for error in errors))
    return found


def draw(recipe: Recipe, rows: list[dict[str, Any]], predicted: Mapping[str, list[float]], folder: Path) -> None:
    """Two panels against ε, a line for each kind of noise: accuracy, and the predicted error. Dashed: sampled."""
    by_name = {row["method"]: row for row in rows}
    unit = next(row["unit"] for row in rows if row["unit"])

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for index, (title, noise) in enumerate(recipe.noises.items()):
            reported = [by_name[Method(noise=title, epsilon=epsilon).title] for epsilon in recipe.epsilons]
            dashes = "-" if noise.fields.get("cohort") == "min_separation" else "--"
            style: Any = {"color": COLOURS[index], "linestyle": dashes, "marker": "o", "markersize": 3}
            means, spreads = ([row[key] for row in reported] for key in ("mean", "std"))
            left.errorbar(recipe.epsilons, means, spreads, label=title, capsize=2, **style)
            right.plot(PREDICTED, predicted[title], **style)
        for title, look in ((WITHOUT, ":"), (CONSTANT, "-.")) if recipe.constant else ((WITHOUT, ":"),):
            left.axhline(by_name[title]["mean"], color=COLOURS[6], linewidth=0.8, linestyle=look, label=title)
        left.set_title("accuracy on others", loc="left", fontsize=10)
        right.set_title("predicted noise on sums of means, clip norms", loc="left", fontsize=10)
        right.set_yscale("log")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.yaxis.set_minor_formatter(lambda value, _: "")
        for axes, budgets in ((left, recipe.epsilons), (right, PREDICTED)):
            axes.set_xscale("log")
            axes.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
            axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
            axes.set_xlabel(f"ε for one {unit}")
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)

    save(folder / "accuracy.svg", (9.6, 4.6), fill)
