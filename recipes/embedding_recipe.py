"""What the embedding recipes share: a plan for each method, and recall on identities that no one trained on.

A recipe's run.py gives the data, the model and a plan for each method, and calls `main`; `cells` has the options.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cells
import torch
from choosing import negatives_for
from torch import nn

from sfumato._files import read_json
from sfumato.data import UserDataset
from sfumato.federated import FederatedPlan, Verification
from sfumato.training import RunOptions

FAR = 1e-3


def briefly(plan: FederatedPlan) -> FederatedPlan:
    """Two rounds with few users, to see that it runs."""
    return plan.replace(rounds=2, cohort=4) if plan.private else plan.replace(rounds=2)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table.

    Attributes:
        folder: where run.py and results.json lie.
        dataset: its name in the table.
        data: gives the training users and the test identities, from the path in --data if the recipe needs one.
        model: gives a fresh backbone; torch's generator is seeded before.
        plans: a plan for each method, without seed.
        quick: makes of each a plan that ends within a minute or so.
        needs_data: the data is not at hand: --data has to name it.
        negatives: gives the public data set that plans with `client.negatives` draw classes from.
        lone: methods that have one seed, because they take long.
    """

    folder: Path
    dataset: str
    data: Callable[[Path | None], tuple[UserDataset, UserDataset]]
    model: Callable[[], nn.Module]
    plans: Mapping[str, FederatedPlan]
    quick: Callable[[FederatedPlan], FederatedPlan] = briefly
    needs_data: bool = False
    negatives: Callable[[], UserDataset] | None = None
    lone: tuple[str, ...] = ()


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    cells.main(
        recipe.folder,
        list(recipe.plans),
        partial(cell, recipe),
        partial(table, recipe),
        data="needed" if recipe.needs_data else "optional",
        lone=recipe.lone,
    )


def cell(recipe: Recipe, method: str, seed: int, folder: Path, quick: bool, data: Path | None) -> None:
    """Train one method with one seed, or go on with it."""
    plan = recipe.plans[method]
    if quick:
        plan = recipe.quick(plan)
    train, test = recipe.data(data)
    if plan.private:  # as the papers choose it
        plan = dataclasses.replace(plan, delta=plan.public_population(train) ** -1.1)
    torch.manual_seed(seed)
    dataclasses.replace(plan, seed=seed).fit(
        recipe.model(),
        train,
        out=folder,
        resume=(folder / "checkpoint" / "state.safetensors").exists(),
        validation=test,
        test=test,
        options=RunOptions(
            task=Verification(fars=(FAR,)),
            negatives=negatives_for(plan, recipe.negatives),
            evaluate_every=max(1, plan.rounds // 4),
            checkpoint_every=max(10, plan.rounds // 20),
        ),
    )


def table(recipe: Recipe, place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of recall on identities that no one trained on.

    Rows whose runs are not all here, as with --only, stay as results.json has them.
    """
    kept, rows = cells.kept_rows(None if quick else recipe.folder / "results.json"), []
    for method in ["untrained", *recipe.plans]:
        source = next(iter(recipe.plans)) if method == "untrained" else method
        recalls, statement, count = [], {}, 1 if method in recipe.lone else seeds
        folders = [place(source, seed) for seed in range(count)]
        before = cells.row_before(kept, (recipe.dataset, method), (folder / "statement.json" for folder in folders))
        if before is not None:
            rows.append(before)
            continue
        for folder in folders:
            evaluation = read_json(folder / "evaluation.json")
            which = "untrained" if method == "untrained" else "trained"
            recalls.append(evaluation[which]["recall_at_far"][f"{FAR:g}"])
            statement = json.loads((folder / "statement.json").read_text())
        private = method != "untrained" and statement["epsilon"] != "inf"
        paper = [a for a in statement["alternatives"] if a["unit"] == "virtual_client"] if private else []
        rows.append(
            {
                "method": method,
                "dataset": recipe.dataset,
                "metric": f"recall@FAR={FAR:g}",
                **cells.mean_and_std(recalls),
                "seeds": count,
                "epsilon": statement["epsilon"] if private else None,
                "epsilon_papers_convention": min((a["epsilon"] for a in paper), default=None),
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": recipe.plans[method].noise.noise_multiplier if private else None,
                "paper": None,
            }
        )
    return rows
