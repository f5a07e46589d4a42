"""What the recipes of classifiers share: a plan, a model and data for each method, and accuracy on test examples.

A recipe's run.py gives the methods and calls `main`; `cells` has the options.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import cells
import torch
from torch import nn

from sfumato._files import read_json
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.training import RunOptions

DELTA = 1e-5


class Shown(Protocol):
    """What the table has of a method in addition to its results."""

    @property
    def dataset(self) -> str:
        """Name of the data."""
        ...

    @property
    def paper(self) -> float | None:
        """The published accuracy of the same setting, in [0, 1]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table.

    Attributes:
        dataset: its name in the table.
        plan: without seed; settings may not be chosen on the test examples.
        data: gives the private examples and the test examples, from the path in --data if there is one.
        model: gives a fresh model; torch's generator is seeded before.
        paper: the published accuracy of the same setting, in [0, 1].
        epsilon: the noise is set for this budget at δ = 10⁻⁵ and the number of private examples; None takes the
            plan's noise.
    """

    dataset: str
    plan: DPSGD
    data: Callable[[Path | None], tuple[ExampleDataset, ExampleDataset]]
    model: Callable[[], nn.Module]
    paper: float | None = None
    epsilon: float | None = None


def main(folder: Path, methods: dict[str, Method], *, data: cells.Data = "none", quick_steps: int = 2) -> None:
    """Run the table, or one cell of it.

    Args:
        folder: where run.py and results.json lie.
        methods: the rows, in order.
        data: whether --data may or has to name where the data lies.
        quick_steps: steps of each method under --quick.
    """
    cells.main(
        folder,
        list(methods),
        partial(cell, methods, quick_steps=quick_steps),
        partial(table, methods, results=folder / "results.json"),
        data=data,
    )


def cell(
    methods: dict[str, Method],
    name: str,
    seed: int,
    folder: Path,
    quick: bool,
    data: Path | None,
    *,
    quick_steps: int = 2,
) -> None:
    """Train one method with one seed, or go on with it."""
    method = methods[name]
    train, test = method.data(data)
    plan = method.plan
    if method.epsilon is not None:
        plan = plan.calibrate(epsilon=method.epsilon, delta=DELTA, population=len(train))
    fit(plan, method.model, train, test, seed=seed, folder=folder, steps=quick_steps if quick else None)


def fit(
    plan: DPSGD,
    model: Callable[[], nn.Module],
    train: ExampleDataset,
    test: ExampleDataset,
    *,
    seed: int,
    folder: Path,
    steps: int | None = None,
    prefix_cache: Path | None = None,
) -> None:
    """Run a plan in a folder, or go on there; the model is drawn from torch's generator, seeded before.

    Args:
        plan: without seed.
        model: gives a fresh model.
        train: private examples.
        test: examples to measure the accuracy on.
        seed: of model and plan.
        folder: of the run.
        steps: instead of the plan's own.
        prefix_cache: folder for what frozen first layers give; it is private, as the pictures are.
    """
    plan = dataclasses.replace(plan, seed=seed)
    if steps is not None:
        plan = dataclasses.replace(plan, steps=steps, epochs=None)
    torch.manual_seed(seed)
    plan.fit(
        model(),
        train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        test=test,
        options=RunOptions(prefix_cache=prefix_cache, checkpoint_every=max(10, plan.rounds_for(len(train)) // 10)),
    )


def table(
    methods: Mapping[str, Shown],
    place: Callable[[str, int], Path],
    seeds: int,
    quick: bool,
    *,
    results: Path | None = None,
) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of the accuracy on the test examples.

    Rows whose runs are not all here, as with --only, stay as they are in `results`, if it has them.
    """
    rows: list[dict[str, Any]] = []
    kept = cells.kept_rows(None if quick else results)
    for name, method in methods.items():
        folders = [place(name, seed) for seed in range(seeds)]
        before = cells.row_before(kept, (method.dataset, name), (folder / "evaluation.json" for folder in folders))
        if before is not None:
            rows.append(before)
            continue
        statement = json.loads((folders[0] / "statement.json").read_text())
        plan = json.loads((folders[0] / "plan.json").read_text())
        private = statement["epsilon"] != "inf"
        rows.append(
            {
                "method": name,
                "dataset": method.dataset,
                "metric": "accuracy",
                **cells.mean_and_std([read_json(f / "evaluation.json")["trained"]["accuracy"] for f in folders]),
                "seeds": seeds,
                "epsilon": statement["epsilon"] if private else None,
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": plan["noise"]["noise_multiplier"] if private else None,
                "paper": method.paper,
            }
        )
    return rows
