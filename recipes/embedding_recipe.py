"""What the embedding recipes share: methods × seeds, each a run of its own that can be resumed, and one table.

A recipe's run.py gives the data, the model and a plan for each method, and calls `main`:

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--data PATH]

Every (method, seed) is one process with its share of the cores and one run folder; a run that was stopped goes on, a
finished one is not repeated. results.json is written beside run.py; --quick, or data from elsewhere, writes it to the
output folder only.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sfumato._files import read_json, write_json
from sfumato.data import UserDataset
from sfumato.training import Cadence, Plan

FAR = 1e-3
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One table.

    Attributes:
        folder: where run.py and results.json lie.
        dataset: its name in the table.
        data: gives the training users and the test identities, from the path in --data if the recipe needs one.
        model: gives a fresh backbone; torch's generator is seeded before.
        plans: a plan for each method, without seed.
        quick: the same, ending within a minute or two.
        needs_data: the data is not at hand: --data has to name it.
    """

    folder: Path
    dataset: str
    data: Callable[[Path | None], tuple[UserDataset, UserDataset]]
    model: Callable[[], nn.Module]
    plans: dict[str, Plan]
    quick: dict[str, Plan]
    needs_data: bool = False


def main(recipe: Recipe) -> None:
    """Run the table, or one cell of it."""
    parser = argparse.ArgumentParser(description=f"The table of {recipe.folder.name}.")
    parser.add_argument("--quick", action="store_true", help="a few rounds of each method, to see that it runs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each method")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs") / recipe.folder.name, help="folder of the runs")
    parser.add_argument("--cell", nargs=2, metavar=("METHOD", "SEED"), help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, required=recipe.needs_data, help="where the data lies, if asked for")
    options = parser.parse_args()
    plans = recipe.quick if options.quick else recipe.plans
    out = options.out / ("quick" if options.quick else "full")
    if options.cell:
        cell(recipe, plans[options.cell[0]], int(options.cell[1]), folder_of(out, *options.cell), options.data)
        return
    seeds = range(1 if options.quick else options.seeds)
    cells = [(method, str(seed)) for seed in seeds for method in plans]
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda names: launch(names, options), cells))
    if any(codes):
        sys.exit("a run failed; see its message above, and start again to go on")
    rows = table(recipe, plans, out, len(seeds))
    kept = recipe.folder if not options.quick and options.data is None else out
    write_json(kept / "results.json", rows)
    for row in rows:
        print(f"{row['method']:12} {row['mean']:.4f} ± {row['std']:.4f}   ε {row['epsilon']}")


def folder_of(out: Path, method: str, seed: str) -> Path:
    """The run folder of a cell."""
    return out / f"{method.lower()}-{seed}"


def launch(names: tuple[str, str], options: argparse.Namespace) -> int:
    """One cell in a process of its own, on one thread."""
    command = [sys.executable, sys.argv[0], "--cell", *names, "--out", str(options.out)]
    command += ["--quick"] if options.quick else []
    command += ["--data", str(options.data)] if options.data else []
    code = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    print(f"{names[0]} seed {names[1]}: {'done' if code == 0 else f'failed ({code})'}", flush=True)
    return code


def cell(recipe: Recipe, plan: Plan, seed: int, folder: Path, data: Path | None) -> None:
    """Train one method with one seed, or go on with it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    train, test = recipe.data(data)
    torch.manual_seed(seed)
    model = recipe.model()
    resume = (folder / "checkpoint" / "state.safetensors").exists()
    seeded = dataclasses.replace(plan, seed=seed)
    every = max(1, plan.rounds // 4)
    seeded.fit(
        model,
        train,
        out=folder,
        resume=resume,
        validation=test,
        test=test,
        fars=(FAR,),
        cadence=Cadence(evaluate_every=every, checkpoint_every=max(10, plan.rounds // 20)),
    )


def table(recipe: Recipe, plans: dict[str, Plan], out: Path, seeds: int) -> list[dict]:
    """Mean and standard deviation over seeds of recall on identities that nobody trained on."""
    rows = []
    for method in ["untrained", *plans]:
        source = next(iter(plans)) if method == "untrained" else method
        recalls, statement = [], {}
        for seed in range(seeds):
            folder = folder_of(out, source, str(seed))
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
                "mean": round(float(np.mean(recalls)), 4),
                "std": round(float(np.std(recalls, ddof=1)) if seeds > 1 else 0.0, 4),
                "seeds": seeds,
                "epsilon": statement["epsilon"] if private else None,
                "epsilon_papers_convention": min((a["epsilon"] for a in paper), default=None),
                "delta": statement["delta"] if private else None,
                "unit": statement["unit"] if private else None,
                "noise_multiplier": getattr(plans.get(method), "noise_multiplier", None) or None,
                "paper": None,
            }
        )
    return rows
