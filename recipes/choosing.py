"""Settings chosen on identities that are neither trained on nor in the test: one run a candidate, all of them kept.

A recipe's choose.py names its candidates and calls `main`. choice.json, next to it, says of each what it was and what
recall it gave, so that a README's "chosen in so many runs" can be counted. A run that is in the file is not repeated.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfumato._files import write_json
from sfumato.data import UserDataset
from sfumato.federated import FederatedPlan, Verification
from sfumato.training import RunOptions

FAR = 1e-3


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is chosen from.

    Attributes:
        folder: of the recipe.
        data: gives the users to train on and the validation identities.
        model: gives a fresh backbone; torch's generator is seeded before.
        candidates: a plan for each name, with the noise of the final run and without a seed.
        negatives: gives the public data set that plans with `client.negatives` draw classes from.
    """

    folder: Path
    data: Callable[[], tuple[UserDataset, UserDataset]]
    model: Callable[[], nn.Module]
    candidates: Mapping[str, FederatedPlan]
    negatives: Callable[[], UserDataset] | None = None


def main(choice: Choice) -> None:
    """Run the candidates that have not run, and print all, best first."""
    parser = argparse.ArgumentParser(description=f"Settings of {choice.folder.name}, by validation.")
    parser.add_argument("--only", nargs="+", help="the candidates whose names begin so")
    parser.add_argument("--seed", type=int, default=0, help="of weights, sampling and noise")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    file = choice.folder / "choice.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    done = {(row["candidate"], row["seed"]) for row in rows}
    wanted = [name for name in choice.candidates if not options.only or name.startswith(tuple(options.only))]
    train, validation = choice.data()
    for name in wanted:
        if (name, options.seed) in done:
            continue
        rows.append(run(choice, name, options.seed, train, validation))
        write_json(file, rows)
        print(reported(rows[-1]), flush=True)
    print(f"\nall {len(rows)}, best first:")
    for row in sorted(rows, key=lambda row: -(row["trained"] or 0)):
        print(reported(row))


def run(choice: Choice, name: str, seed: int, train: UserDataset, validation: UserDataset) -> dict[str, Any]:
    """One candidate."""
    torch.manual_seed(seed)
    plan = replace(choice.candidates[name], seed=seed)
    task, negatives = Verification(fars=(FAR,)), negatives_for(plan, choice.negatives)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = plan.fit(
            choice.model(), train, out=out, test=validation, options=RunOptions(task=task, negatives=negatives)
        )
    if not result.finished:
        raise SystemExit(f"stopped in {name}; what was measured before is in choice.json")
    measured = result.evaluation
    before, after = (
        round(measured[which]["recall_at_far"][f"{FAR:g}"], 4) if which in measured else None  # it diverged
        for which in ("untrained", "trained")
    )
    return {"candidate": name, "seed": seed, "untrained": before, "trained": after}


def negatives_for(plan: FederatedPlan, negatives: Callable[[], UserDataset] | None) -> UserDataset | None:
    """The public data set, for a plan that draws from it."""
    return negatives() if negatives is not None and getattr(plan.client, "negatives", 0) else None


def reported(row: dict[str, Any]) -> str:
    """One candidate in a line."""
    after = "diverged" if row["trained"] is None else f"{row['trained']:.4f}"
    return f"{row['candidate']}, seed {row['seed']}: recall {row['untrained']:.4f} → {after}"
