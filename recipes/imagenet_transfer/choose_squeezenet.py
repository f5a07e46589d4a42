"""Rates of squeezenet.py, by accuracy on pictures that are neither trained on nor in the test: one run a candidate.

    choose_squeezenet.py [--only WORDS]

ε = 2, seed 0. Held out are the last 1,000 of MNIST-M's 6,000 training digits, and the letters of drawers 15 and 16.
squeezenet_choice.json has a line for each run; one that is there is not repeated.
"""

import argparse
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from classifier_recipe import fit
from imagenet_classifier import imagenet_classifier
from squeezenet import CLASSES, COLOURS, DATA, LETTERS, ROWS, SIDE, WEIGHTS, plan_of
from tasks import LAST_DRAWERS, alphabets

from sfumato._files import read_json, write_json
from sfumato.data import ExampleDataset

FILE = Path(__file__).resolve().parent / "squeezenet_choice.json"
EPSILON = 2.0
HELD_OUT = 1_000
FIRST_HELD = LAST_DRAWERS[0] - 2
RATES = {
    "features + linear": (0.5, 2.0, 8.0),
    "features + linear, all data in a step": (1.0, 4.0, 16.0),
    "last blocks": (0.1, 0.5, 2.0),
    "all": (0.1, 0.5),
    "scratch": (0.1, 0.5),
}
"""Learning rates that are tried of each method."""


def parts(name: str) -> tuple[ExampleDataset, ExampleDataset]:
    """Pictures to train on, and to choose by."""
    if name == LETTERS:
        return alphabets(range(1, FIRST_HELD)), alphabets((FIRST_HELD, FIRST_HELD + 1))
    train, _ = DATA[name]()
    kept = len(train) - HELD_OUT
    return train.subset(range(kept)), train.subset(range(kept, len(train)))


def run(name: str, method: str, rate: float, caches: Path) -> dict[str, Any]:
    """One candidate."""
    row = replace(ROWS[f"{name}: {method}: ε = {EPSILON:g}"], rate=rate)
    train, held = parts(name)
    cache = None if row.trained == "all" else caches / f"{list(DATA).index(name)}-{row.trained}"
    with tempfile.TemporaryDirectory() as folder:
        fit(
            plan_of(row, len(train)),
            lambda: imagenet_classifier(CLASSES, SIDE, WEIGHTS if row.pretrained else None),
            train,
            held,
            seed=0,
            folder=Path(folder) / "run",
            prefix_cache=cache,
        )
        accuracy = read_json(Path(folder) / "run" / "evaluation.json")["trained"]["accuracy"]
    return {"dataset": name, "method": method, "rate": rate, "accuracy": round(accuracy, 4)}


def main() -> None:
    """Run the candidates that have not run, and print all."""
    parser = argparse.ArgumentParser(description="Rates of squeezenet.py, by validation.")
    parser.add_argument("--only", nargs="+", help="methods with these names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = read_json(FILE) if FILE.exists() else []
    done = {(row["dataset"], row["method"], row["rate"]) for row in rows}
    with tempfile.TemporaryDirectory() as caches:
        for method, rates in RATES.items():
            for name in (LETTERS, COLOURS):
                for rate in rates:
                    if (name, method, rate) in done or (options.only and method not in options.only):
                        continue
                    rows.append(run(name, method, rate, Path(caches)))
                    write_json(FILE, rows)
                    print(*rows[-1].values(), sep="; ", flush=True)


if __name__ == "__main__":
    main()
