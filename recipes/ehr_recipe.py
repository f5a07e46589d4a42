"""What the recipes of health records share: generators × seeds, each measured once, and the tables of it.

    run.py [--quick] [--seeds N] [--only METHOD …] [--threads N] [--out DIR]

Every (method, seed) is a cell: it learns in a run folder of its own, which goes on where it was stopped, generates as
many patients as it learned from, and is measured by `sfumato.audit.ehr.evaluate` next to held-out patients. What was
measured is kept as JSON, and a cell that has it is not run again. results.json has the rows of all cells there are.
--quick takes a few steps of each method on a few patients, into the output folder only.
"""

import argparse
import dataclasses
import gc
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
from ehr_baselines import BaselinePlan, Copies, joined

from sfumato._files import read_json, write_json
from sfumato.audit.ehr import Evaluation, evaluate
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe, IndependentColumns

HELD_OUT, REAL = "real patients, held out", "trained on real patients"
QUICK_PATIENTS = 60
_FEW = {
    "category_steps": 3,
    "epochs": 1,
    "gan_steps": 3,
    "calibrated_on": 50,
    "steps": 2,
    "embedding_steps": 2,
    "supervised_steps": 2,
    "pretraining_steps": 2,
}

Generator = EHRSafe | BaselinePlan | type[Copies] | type[IndependentColumns]
"""A plan, or a control that needs none."""

CONTROLS: dict[str, Generator] = {"copies of patients": Copies, "independent columns": IndependentColumns}
"""What the attacks have to find, and what the detector and the classifiers have to."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """One data set and its generators.

    Attributes:
        folder: where run.py, cells/ and results.json lie.
        dataset: its name, for the table.
        parts: gives the patients to learn from and those held out.
        methods: by name, in order.
    """

    folder: Path
    dataset: str
    parts: Callable[[], tuple[EHRDataset, EHRDataset]]
    methods: Mapping[str, Generator]


def main(recipe: Recipe) -> None:
    """Run the cells that are missing, and write the rows."""
    parser = argparse.ArgumentParser(description=f"The tables of {recipe.folder.name}.")
    parser.add_argument("--quick", action="store_true", help="a few steps of each method, to see that it runs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each method")
    parser.add_argument("--only", nargs="+", metavar="METHOD", choices=list(recipe.methods), help="these methods")
    parser.add_argument("--threads", type=int, default=1, help="of each cell; the figures are those of one thread")
    parser.add_argument("--out", type=Path, default=Path("runs") / recipe.folder.name, help="folder of the runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    out = options.out / ("quick" if options.quick else "full")
    kept = out if options.quick else recipe.folder
    parts = recipe.parts()
    if options.quick:
        few = np.arange(QUICK_PATIENTS)
        parts = parts[0].take(few), parts[1].take(few)
    for seed in range(1 if options.quick else options.seeds):
        for name in options.only or recipe.methods:
            path = place(kept, name, seed)
            if not path.exists():
                found = cell(recipe, name, seed, parts, out / "runs" / path.stem, quick=options.quick)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, found)
                print(f"{name}, seed {seed}: measured", flush=True)
            write_json(kept / "results.json", rows(recipe, kept))
            gc.collect()


def place(folder: Path, method: str, seed: int) -> Path:
    """The file of a cell."""
    return folder / "cells" / f"{''.join(c if c.isalnum() else '-' for c in method.lower())}-{seed}.json"


def cell(
    recipe: Recipe, name: str, seed: int, parts: tuple[EHRDataset, EHRDataset], folder: Path, *, quick: bool
) -> dict[str, Any]:
    """Learn, generate, measure."""
    train, holdout = parts
    generator, resumed, started = recipe.methods[name], (folder / "plan.json").exists(), perf_counter()
    if isinstance(generator, type):
        made = generator(train)
    else:
        few = {field.name: _FEW[field.name] for field in dataclasses.fields(generator) if field.name in _FEW}
        plan = dataclasses.replace(generator, seed=seed, **(few if quick else {}))
        made = plan.fit(train, out=folder, resume=resumed).synthesizer
        if made is None:
            sys.exit("stopped; start again to go on")
    fitted = perf_counter()
    synthetic = joined(list(made.sample(len(train), seed=1000 + seed, block=len(train))))
    sampled = perf_counter()
    found = evaluate(train, holdout, synthetic, seed=seed)
    return {
        "method": name,
        "seed": seed,
        "patients": {"learned from": len(train), "held out": len(holdout)},
        "fit_seconds": None if resumed else round(fitted - started, 1),
        "sample_seconds": round(sampled - fitted, 1),
        **measured(found),
    }


def measured(found: Evaluation) -> dict[str, Any]:
    """The figures of an evaluation that the tables show, each next to its ideal."""
    fidelity: dict[str, dict[str, float | None]] = {}
    mine, ideal = found.fidelity.synthetic, found.fidelity.ideal
    for place_of, limit in enumerate((0.03, 0.05)):
        fidelity[f"columns with KS < {limit}"] = {"found": mine.good[place_of], "ideal": ideal.good[place_of]}
    fidelity["error of missing rates"] = {"found": mine.missing_error, "ideal": ideal.missing_error}
    for column in found.fidelity.columns[-2:]:
        what = "KS of visits" if column.name == "visits" else "KS of times between"
        fidelity[what] = {"found": column.fit.distance, "ideal": column.ideal}
    fidelity["gap of correlations"] = {"found": mine.correlation.mean, "ideal": ideal.correlation.mean}
    fidelity["detector's AUC"] = {
        "found": mine.detector.value if mine.detector else None,
        "ideal": ideal.detector.value if ideal.detector else None,
    }
    classifiers = {}
    if found.utility is not None:
        for model in found.utility.models:
            made = None if model.synthetic is None else model.synthetic.value
            classifiers[model.model] = {"found": made, "ideal": model.real.value}
        known = [each["found"] for each in classifiers.values() if each["found"] is not None]
        real = max(each["ideal"] for each in classifiers.values())
        classifiers["the best of them"] = {"found": max(known, default=None), "ideal": real}
    attacks = {}
    for attack in found.attacks:
        for measure in attack.measures[: 2 if attack.name == "membership inference" else 1]:
            attacks[f"{attack.name}: {measure.name}"] = {
                "found": measure.found.value,
                "ideal": measure.ideal.value,
                "excess": dataclasses.asdict(measure.excess),
            }
    return {"fidelity": fidelity, "utility": classifiers, "attacks": attacks}


METRICS = {"fidelity": "fidelity", "utility": "AUC on held-out patients", "attacks": "attack finds"}
EXCESS = "attack finds more than its ideal"


def rows(recipe: Recipe, kept: Path) -> list[dict[str, Any]]:
    """Rows of the tables, of the cells that there are."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for name in recipe.methods:
        paths = sorted(kept.glob(f"cells/{place(kept, name, 0).stem[:-1]}[0-9].json"))
        found = [read_json(path) for path in paths]
        if found:
            by_method[name] = found
    first = {each["seed"]: each for found in reversed(by_method.values()) for each in found}
    reported = []
    for part, metric in METRICS.items():
        sides = {REAL if part == "utility" else HELD_OUT: (list(first.values()), "ideal")}
        sides |= {name: (found, "found") for name, found in by_method.items()}
        for name, (found, side) in sides.items():
            for measure in found[0][part] if found else ():
                values = [each[part][measure][side] for each in found]
                if None not in values:
                    reported.append(_row(recipe, name, metric, measure, values))
    for name, found in by_method.items():
        for measure in found[0]["attacks"]:
            excesses = [each["attacks"][measure]["excess"] for each in found]
            row = _row(recipe, name, EXCESS, measure, [each["value"] for each in excesses])
            ends = {end: round(float(np.mean([each[end] for each in excesses])), 4) for end in ("low", "high")}
            reported.append({**row, **ends})
    return reported


def _row(recipe: Recipe, method: str, metric: str, measure: str, values: list[float]) -> dict[str, Any]:
    return {
        "method": method,
        "dataset": recipe.dataset,
        "metric": metric,
        "measure": measure,
        **cells.mean_and_std(values),
        "seeds": len(values),
        "epsilon": None,
        "delta": None,
        "unit": None,
        "paper": None,
    }
