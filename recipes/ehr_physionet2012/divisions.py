"""EHR-Safe with other stays held out than those that its defaults were chosen by. See divisions.md.

    divisions.py [--quick] [--seeds N] [--jobs N] [--out DIR]

Seed s divides the stays by a hash with seed s + 1, where run.py has 0, and is the generator's. Writes divisions.json.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from ehr_baselines import joined
from ehr_recipe import HELD_OUT, METRICS, QUICK_PATIENTS, REAL, intensive_care, measured, quick_plan

from sfumato._files import read_json, write_json
from sfumato.audit.ehr import evaluate
from sfumato.audit.ehr.utility import utility
from sfumato.synthesis import EHRSafe

METHOD, MORE, TIMES = "EHR-Safe", "EHR-Safe, ten times as many", 10
PARTS = "fidelity", "utility"
"""What is tabled: what the defaults were chosen by."""


def cell(_: str, seed: int, folder: Path, quick: bool, __: Path | None) -> None:
    """Learn from the stays of a division, and measure as many stays; of ten times as many, what classifiers learn."""
    train, holdout = intensive_care(seed + 1)
    plan = EHRSafe(seed=seed)
    if quick:
        train, holdout = (side.take(np.arange(QUICK_PATIENTS)) for side in (train, holdout))
        plan = quick_plan(plan)
    made = plan.fit(train, out=folder, resume=(folder / "plan.json").exists()).synthesizer
    if made is None:
        sys.exit("stopped; start again to go on")
    synthetic = list(made.sample(TIMES * len(train), seed=1000 + seed, block=len(train)))
    found = evaluate(train, holdout, synthetic[0], seed=seed)
    more = dataclasses.replace(found, utility=utility(train, holdout, joined(synthetic), seed))
    write_json(folder / "measured.json", {METHOD: measured(found), MORE: {"utility": measured(more)["utility"]}})


def table(place: Callable[[str, int], Path], seeds: int, _: bool) -> list[dict[str, Any]]:
    """Rows of fidelity and of classifiers, real stays first."""
    divisions = [read_json(place(METHOD, seed) / "measured.json") for seed in range(seeds)]
    rows = []
    for part in PARTS:
        real = REAL if part == "utility" else HELD_OUT
        for name, method, side in ((real, METHOD, "ideal"), (METHOD, METHOD, "found"), (MORE, MORE, "found")):
            for measure in divisions[0][method].get(part, ()):
                figures = [each[method][part][measure][side] for each in divisions]
                rows.append(
                    {
                        "method": name,
                        "dataset": "PhysioNet 2012, set A, each seed with another quarter held out",
                        "metric": METRICS[part],
                        "measure": measure,
                        **cells.mean_and_std(figures),
                        "seeds": seeds,
                        **dict.fromkeys(("epsilon", "delta", "unit", "paper")),
                    }
                )
    return rows


if __name__ == "__main__":
    cells.main(Path(__file__).resolve().parent, [METHOD], cell, table, results="divisions.json")
