"""What the recipes of voting share: AE-DPFL and DP-FedAvg for the same agents, their costs, and a figure.

A row is a plan and its agents; all rows of a recipe share the server's pool and test. Next to results.json it draws
bytes.svg: accuracy against what an agent sends. Agents train in one thread, one after the other.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cells
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._files import read_json, write_json
from sfumato.data import ExampleDataset, UserDataset
from sfumato.federated import FedAvg
from sfumato.report.plots import COLOURS, save
from sfumato.training import RunOptions
from sfumato.training.supervised import measure
from sfumato.voting import AEDPFL, VotingResult
from sfumato.voting.multi_party.shares import FIELD

DELTA = 1e-3
TALLIERS, SHARE_BYTES, WEIGHT_BYTES = 3, 4 * FIELD.limbs, 4
_MEASURED = "measured.json"


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row.

    Attributes:
        dataset: who votes, as the table names it.
        agents: gives the agents of a seed, and how many of them under --quick.
        plan: of the vote with its noise, or of federated averaging.
        epsilon: what federated averaging may cost an agent; None for a run without noise.
        paper: the published accuracy of the like setting, in [0, 1].
        seeds: how many seeds it has at most.
    """

    dataset: str
    agents: Callable[[int, bool], UserDataset]
    plan: AEDPFL | FedAvg
    epsilon: float | None = None
    paper: float | None = None
    seeds: int = 3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table.

    Attributes:
        folder: where run.py and results.json lie.
        methods: the rows, in order.
        pool: public examples; their labels are compared with the answers and never trained on.
        test: labelled examples of the server that nothing was chosen on.
        model: a fresh model of an agent or a student; torch's generator is seeded before.
        shared: the same without batch norm, whose statistics no clip norm bounds, for federated averaging.
    """

    folder: Path
    methods: Mapping[str, Method]
    pool: Callable[[], ExampleDataset]
    test: Callable[[], ExampleDataset]
    model: Callable[[], nn.Module]
    shared: Callable[[], nn.Module]


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(recipe.folder, list(recipe.methods), partial(cell, recipe), partial(table, recipe))


def cell(recipe: Recipe, name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One row with one seed, or go on with it."""
    method = recipe.methods[name]
    if seed >= method.seeds or (folder / _MEASURED).exists():
        return
    agents = method.agents(seed, quick)
    torch.manual_seed(seed)
    run = vote if isinstance(method.plan, AEDPFL) else average
    found = run(recipe, method, agents, seed, folder, quick)
    if found is None:
        sys.exit(f"{name}, seed {seed} was stopped; start again to go on")
    write_json(folder / _MEASURED, found)


def vote(
    recipe: Recipe, method: Method, agents: UserDataset, seed: int, folder: Path, quick: bool
) -> dict[str, Any] | None:
    """What a vote gives and costs; None where it was stopped."""
    assert isinstance(method.plan, AEDPFL)
    fast = {"training.epochs": 1, "student.epochs": 2, "queries": 40} if quick else {}
    plan = method.plan.replace(seed=seed, selection_seed=seed, delta=DELTA, **fast)
    result = plan.fit(
        agents,
        recipe.pool(),
        recipe.model(),
        student=recipe.model(),
        test=recipe.test(),
        out=folder,
        resume=_begun(folder),
        threads=1,
    )
    if not result.finished:
        return None
    return {
        "accuracy": result.evaluation["trained"]["accuracy"],
        "answers": result.evaluation["answers"]["accuracy"],
        "epsilon_votes": cost_of_votes(result),
        "kilobytes": plan.queries * agents.num_classes * SHARE_BYTES * TALLIERS / 1000,
        "epsilon": result.statement.epsilon,
        "unit": result.statement.unit,
    }


def cost_of_votes(result: VotingResult) -> float | None:
    """ε* of the votes as they were cast, which is private itself; None where it is that of all votes, or is lost."""
    try:
        return result.cost().epsilon(DELTA).value
    except InputError:  # all counts were opened, or another process counted the votes
        return None


def average(
    recipe: Recipe, method: Method, agents: UserDataset, seed: int, folder: Path, quick: bool
) -> dict[str, Any] | None:
    """What federated averaging gives and costs; None where it was stopped."""
    assert isinstance(method.plan, FedAvg)
    plan = method.plan.replace(seed=seed)
    if quick:
        plan = plan.replace(rounds=2, cohort=5, client={"max_examples": 8})
    if method.epsilon is None:
        plan = plan.replace(noise=0.0)
    else:
        plan = plan.calibrate(epsilon=method.epsilon, delta=DELTA, population=len(agents))
    result = plan.fit(
        recipe.shared(), agents, out=folder, resume=_begun(folder), options=RunOptions(checkpoint_every=20)
    )
    if not result.finished:
        return None
    weights = sum(parameter.numel() for parameter in result.model.parameters())
    return {
        "accuracy": measure(result.model, recipe.test())["accuracy"],
        "answers": None,
        "epsilon_votes": None,
        "kilobytes": weights * WEIGHT_BYTES * plan.rounds * plan.cohort.size / len(agents) / 1000,
        "epsilon": None if method.epsilon is None else result.statement.epsilon,
        "unit": None if method.epsilon is None else result.statement.unit,
    }


def _begun(folder: Path) -> bool:
    return (folder / "checkpoint" / "state.safetensors").exists()


def table(recipe: Recipe, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of the accuracy on the server's test; draws the figure."""
    rows = []
    for name, method in recipe.methods.items():
        found = [read_json(place(name, seed) / _MEASURED) for seed in range(min(seeds, method.seeds))]
        first = found[0]
        rows.append(
            {
                "method": name,
                "dataset": method.dataset,
                "metric": "accuracy",
                **cells.mean_and_std([each["accuracy"] for each in found]),
                "answers": _mean([each["answers"] for each in found]),
                "seeds": len(found),
                "epsilon": first["epsilon"],
                "delta": None if first["epsilon"] is None else DELTA,
                "unit": first["unit"],
                "epsilon_votes": _mean([each["epsilon_votes"] for each in found]),
                "kilobytes": round(first["kilobytes"], 1),
                "paper": method.paper,
            }
        )
    draw(rows, (place(next(iter(recipe.methods)), 0).parent if quick else recipe.folder) / "bytes.svg")
    return rows


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if len(known) == len(values) else None


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy against what an agent sends, a point a row; circles vote, squares average, hollow is not private."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for index, row in enumerate(rows):
            colour = COLOURS[index % len(COLOURS)]
            axes.errorbar(
                row["kilobytes"],
                row["mean"],
                row["std"] if row["seeds"] > 1 else None,
                color=colour,
                marker="s" if row["answers"] is None else "o",
                markerfacecolor=colour if row["epsilon"] is not None else "none",
                linestyle="none",
                capsize=2,
                label=row["method"],
            )
        axes.set_xscale("log")
        for scale in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            scale(lambda value, _: f"{value:g}")
        axes.set_xlabel("kB that an agent sends")
        axes.set_title("accuracy on the server's test", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)

    save(path, (7.2, 5.4), fill)
