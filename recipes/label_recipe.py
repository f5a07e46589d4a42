"""What the recipes of private labels share: methods at several budgets, settings chosen beforehand, a table, a figure.

A method is a plan and the inputs that it sees. Its settings at each budget are the best of its trials, or of those of
another method, on validation rows of the training part, one seed that is not in the table (`choose`, which writes
trials.json). That choice looks at true labels and is in no epsilon. One process runs all methods on a data set with one
seed.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cells
import numpy as np
import torch
from torch import nn

from sfumato._files import read_json, write_json
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.labels import LPMST
from sfumato.report.plots import COLOURS, save

DELTA = 1e-5
TRIAL_SEED = 100  # not one of the table's
_QUICK = (1.0,)


@dataclass(frozen=True)
class Parts:
    """What a method sees.

    Attributes:
        train: examples whose labels are private.
        test: examples to measure on.
        features: float [rows, d], public, of the training rows, to find clusters by.
    """

    train: ExampleDataset
    test: ExampleDataset
    features: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """One line of the table.

    Attributes:
        plan: whose seed and budget are replaced.
        inputs: what it sees, by name.
        model: gives a fresh model for a training part; torch's generator is seeded before.
        trials: fields of the plan to choose among at each budget.
        chosen_like: the method on the same data set whose choice it takes over; None chooses among its own trials.
        paper: the published accuracy by budget.
        budgets: of its own; None for those of the recipe.
        seeds: how many it has at most.
    """

    plan: LPMST | DPSGD
    inputs: str
    model: Callable[[ExampleDataset], nn.Module]
    trials: tuple[dict[str, Any], ...] = ({},)
    chosen_like: str | None = None
    paper: Mapping[float, float] = field(default_factory=dict)
    budgets: tuple[float, ...] | None = None
    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table, or one for each data set.

    Attributes:
        folder: where run.py, trials.json and results.json lie.
        methods: the lines by data set and name, in order.
        budgets: epsilons of one label.
        parts: gives what methods see, by the name of inputs, whether it is quick, and whether it is for a choice: then
            rows of the training part are the test.
        additional: rows of another kind for the end of the table.
    """

    folder: Path
    methods: Mapping[str, Mapping[str, Method]]
    budgets: tuple[float, ...]
    parts: Callable[[str, bool, bool], Parts]
    additional: Callable[[bool], list[dict[str, Any]]] = lambda _: []

    def budgets_of(self, method: Method, quick: bool) -> tuple[float, ...]:
        """What a method is run at."""
        return _QUICK if quick else method.budgets or self.budgets


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(recipe.folder, list(recipe.methods), partial(_cell, recipe), partial(table, recipe))


def measured(
    method: Method, fields: Mapping[str, Any], epsilon: float, seed: int, parts: Parts, *, quick: bool = False
) -> dict[str, Any]:
    """Train once; its accuracy, and what the statement says."""
    plan, order = dataclasses.replace(method.plan, seed=seed, **fields), np.random.default_rng(seed)
    rows = order.permutation(len(parts.train))  # files may have an order that follows from labels, as MNIST's has
    train, features = parts.train.subset(rows), None if parts.features is None else parts.features[rows]
    torch.manual_seed(seed)
    model = method.model(train)
    if isinstance(plan, LPMST):
        plan = dataclasses.replace(plan, epsilon=epsilon, **({"training.epochs": 1} if quick else {}))
        result = plan.fit(model, train, features=features if plan.clusters else None, test=parts.test)
        reported = {"reports_right": float((result.reports == train.targets).mean())}
    else:
        plan = plan.replace(**({"steps": 2, "cohort": 256} if quick else {}))
        plan = plan.calibrate(epsilon=epsilon, delta=DELTA, population=len(train))
        result = plan.fit(model, train, test=parts.test)
        reported = {"noise_multiplier": plan.noise.noise_multiplier}
    statement = result.statement
    return {
        "accuracy": result.evaluation["trained"]["accuracy"],
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "unit": statement.unit,
        **reported,
    }


def _cell(recipe: Recipe, dataset: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """All methods on a data set with one seed, at every budget."""
    for name, method in recipe.methods[dataset].items():
        for epsilon in recipe.budgets_of(method, quick) if seed < method.seeds else ():
            file = _place(folder, name, epsilon)
            if not file.exists():
                fields = method.trials[0] if quick else chosen(recipe, dataset, name, epsilon)
                found = measured(method, fields, epsilon, seed, recipe.parts(method.inputs, quick, False), quick=quick)
                file.parent.mkdir(parents=True, exist_ok=True)
                write_json(file, {**found, "settings": fields})


def _place(folder: Path, name: str, epsilon: float) -> Path:
    return folder / f"{''.join(c if c.isalnum() else '-' for c in name.lower())}-{epsilon:g}.json"


def table(recipe: Recipe, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each method and budget over the seeds that have run, or as it was where none has; draws the figure."""
    rows: list[dict[str, Any]] = []
    results = None if quick else recipe.folder / "results.json"
    before = cells.kept_rows(results, ("dataset", "method", "label_epsilon"))
    for dataset, methods in recipe.methods.items():
        for name, method in methods.items():
            folders = [place(dataset, seed) for seed in range(min(seeds, method.seeds))]
            for epsilon in recipe.budgets_of(method, quick):
                files = [_place(folder, name, epsilon) for folder in folders]
                found = [read_json(file) for file in files if file.exists()]
                if not found:
                    known = before.get((dataset, name, epsilon))
                    rows += [] if known is None else [known]
                    continue
                right = [each["reports_right"] for each in found if "reports_right" in each]
                rows.append(
                    {
                        "method": name,
                        "dataset": dataset,
                        "metric": "accuracy",
                        "label_epsilon": epsilon,
                        **cells.mean_and_std([each["accuracy"] for each in found]),
                        "seeds": len(found),
                        **{key: found[0][key] for key in ("epsilon", "delta", "unit", "settings")},
                        "noise_multiplier": found[0].get("noise_multiplier"),
                        "reports_right": cells.mean_and_std(right)["mean"] if right else None,
                        "paper": method.paper.get(epsilon),
                    }
                )
    if not quick:
        draw(rows, recipe.folder / "accuracy.svg")
    return rows + recipe.additional(quick)


def chosen(recipe: Recipe, dataset: str, name: str, epsilon: float) -> dict[str, Any]:
    """The settings of a method at a budget: those of its trials that were best."""
    method = recipe.methods[dataset][name]
    if method.chosen_like is not None:
        return chosen(recipe, dataset, method.chosen_like, epsilon)
    if len(method.trials) == 1:
        return method.trials[0]
    tried = read_json(recipe.folder / "trials.json")[dataset][name][f"{epsilon:g}"]
    return max(tried, key=lambda each: each["accuracy"])["settings"]


def choose(recipe: Recipe) -> None:
    """Try the settings of all methods at all budgets on validation rows; trials that are known are not repeated."""
    file = recipe.folder / "trials.json"
    found: dict[str, Any] = read_json(file) if file.exists() else {}
    for dataset, methods in recipe.methods.items():
        for name, method in methods.items():
            for epsilon in recipe.budgets_of(method, False) if len(method.trials) > 1 else ():
                tried = found.setdefault(dataset, {}).setdefault(name, {}).setdefault(f"{epsilon:g}", [])
                tried[:] = [each for each in tried if each["settings"] in method.trials]
                for fields in method.trials:
                    if not any(each["settings"] == fields for each in tried):
                        parts = recipe.parts(method.inputs, False, True)
                        reported = measured(method, fields, epsilon, TRIAL_SEED, parts)
                        tried.append({"settings": fields, "accuracy": round(reported["accuracy"], 4)})
                        write_json(file, found)
                print(f"{dataset}: {name}, ε {epsilon:g}: {[each['accuracy'] for each in tried]}", flush=True)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """The share of wrong test examples against epsilon, both logarithmic; a panel for each data set."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    names = list(dict.fromkeys(row["method"] for row in rows))

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
        lines: dict[str, Any] = {}
        for axes, dataset in zip(panels, datasets, strict=True):
            for index, name in enumerate(names):
                mine = [row for row in rows if (row["method"], row["dataset"]) == (name, dataset)]
                if mine:
                    lines[name] = axes.errorbar(
                        [row["label_epsilon"] for row in mine],
                        [1 - row["mean"] for row in mine],
                        yerr=[row["std"] for row in mine],
                        color=COLOURS[index % len(COLOURS)],
                        marker="o" if index < len(COLOURS) else "s",
                        linestyle="-" if index < len(COLOURS) else "--",
                        markersize=4,
                        linewidth=1.4,
                        gid=name,
                    )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(sorted({row["label_epsilon"] for row in rows}))
            axes.minorticks_off()
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_yticks([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0])
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            axes.set_xlabel("ε of one label")
            axes.set_title(dataset, loc="left", fontsize=9)
            axes.grid(visible=True, color="#dcd8cf", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("test digits classified wrong")
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)

    save(path, (max(7.2, 3.4 * len(datasets)), 5.0), fill)
