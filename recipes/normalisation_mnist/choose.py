"""Learning rates at the two smallest budgets, chosen on the last 10,000 training digits, which are held out.

    choose.py [--seeds N]

choice.json has a row for each candidate and seed; a run that is in the file is not repeated. No seed of these is in the
table. ε is that of the examples that are trained on.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import refuse_stopped
from classifier_recipe import DELTA
from run import SET_ASIDE, STEPS, TITLES, lenet5, mnist

from sfumato._files import read_json, write_json
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset
from sfumato.training import RunOptions

FILE = Path(__file__).resolve().parent / "choice.json"
HELD_OUT = 10_000
FIRST_SEED = 100
RATES = {0.05: (1.0, 2.0, 4.0, 8.0, 16.0), 0.1: (2.0, 4.0, 8.0, 16.0)}
"""By ε."""


def parts(norm: str) -> tuple[ExampleDataset, ExampleDataset]:
    """Digits to train on, without those that are declared public, and those held out."""
    digits = mnist(None)[0]
    known = np.arange(len(digits) - HELD_OUT)
    if norm == "public_batch_digits":
        known = np.setdiff1d(known, SET_ASIDE)
    return digits.subset(known), digits.subset(np.arange(len(digits) - HELD_OUT, len(digits)))


def measured(norm: str, epsilon: float, rate: float, seed: int) -> dict[str, Any]:
    """One candidate with one seed."""
    train, held = parts(norm)
    batch, steps = STEPS[epsilon]
    plan = DPSGD(steps=steps, cohort=batch, server={"learning_rate": rate}, clipping=0.5, seed=seed)
    plan = plan.calibrate(epsilon=epsilon, delta=DELTA, population=len(train))
    torch.manual_seed(seed)
    result = plan.fit(lenet5(norm), train, test=held, options=RunOptions(evaluate_every=0))
    refuse_stopped(result.finished)
    accuracy = round(result.evaluation["trained"]["accuracy"], 4)
    return {"norm": norm, "epsilon": epsilon, "rate": rate, "seed": seed, "accuracy": accuracy}


def main() -> None:
    """Run the candidates that have not run; print the mean of each over the seeds, best first."""
    parser = argparse.ArgumentParser(description="Learning rates of normalisation_mnist at ε ≤ 0.1.")
    parser.add_argument("--seeds", type=int, default=2)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = read_json(FILE) if FILE.exists() else []
    done = {(row["norm"], row["epsilon"], row["rate"], row["seed"]) for row in rows}
    for candidate in [(n, e, r, s) for s in seeds for e, rates in RATES.items() for n in TITLES for r in rates]:
        if candidate not in done:
            rows.append(measured(*candidate))
            write_json(FILE, rows)
            print(*rows[-1].values(), flush=True)
    for norm in TITLES:
        for epsilon, rates in RATES.items():
            mine = [row for row in rows if (row["norm"], row["epsilon"]) == (norm, epsilon)]
            means = {rate: float(np.mean([row["accuracy"] for row in mine if row["rate"] == rate])) for rate in rates}
            best = sorted(means.items(), key=lambda each: -each[1])
            print(f"{norm}, ε {epsilon:g}: " + ", ".join(f"rate {rate:g}: {mean:.4f}" for rate, mean in best))


if __name__ == "__main__":
    main()
