"""What the recipes of health records share: generators × seeds, each measured once, and the tables of it.

    run.py [--quick] [--seeds N] [--only METHOD …] [--threads N] [--out DIR]

Every (method, seed) is a cell: it learns in a run folder of its own, which goes on where it was stopped, generates as
many patients as it learned from, or several times as many, and is measured by `sfumato.audit.ehr.evaluate` next to
held-out patients. What was measured is kept as JSON, and a cell that has it is not run again. results.json has the rows
of all cells there are.
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

from sfumato import data
from sfumato._files import read_json, write_json
from sfumato.audit.ehr import Evaluation, evaluate
from sfumato.audit.ehr.utility import utility
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe, IndependentColumns

HELD_OUT, REAL = "real patients, held out", "trained on real patients"
QUICK_PATIENTS = 60
_FEW = {
    "batch_size": 16,
    "gan_batch_size": 16,
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
        more: rows that take another one's run and generate so many times as many patients as it learned from, by name.
    """

    folder: Path
    dataset: str
    parts: Callable[[], tuple[EHRDataset, EHRDataset]]
    methods: Mapping[str, Generator]
    more: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict[str, tuple[str, int]])

    @property
    def names(self) -> list[str]:
        """Of the rows, in order: more of a method's patients come behind the method."""
        behind = {name: [other for other, (of, _) in self.more.items() if of == name] for name in self.methods}
        return [each for name, others in behind.items() for each in (name, *others)]


def intensive_care(seed: int = 0) -> tuple[EHRDataset, EHRDataset]:
    """Stays of PhysioNet 2012 to learn from, and a quarter held out by a hash with this seed."""
    shared = cells.SHARED
    stays = data.physionet2012(shared / "physionet2012_set_a.parquet", shared / "physionet2012_outcomes_a.txt")
    return stays.split(0.25, seed=seed)


def quick_plan(plan: Any) -> Any:
    """A plan with a few steps of each kind that it has."""
    few = {field.name: _FEW[field.name] for field in dataclasses.fields(plan) if field.name in _FEW}
    return dataclasses.replace(plan, **few)


def main(recipe: Recipe) -> None:
    """Run the cells that are missing, and write the rows."""
    parser = argparse.ArgumentParser(description=f"The tables of {recipe.folder.name}.")
    parser.add_argument("--quick", action="store_true", help="a few steps of each method, to see that it runs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each method")
    parser.add_argument("--only", nargs="+", metavar="METHOD", choices=recipe.names, help="these methods")
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
        for name in options.only or recipe.names:
            path = place(kept, name, seed)
            if not path.exists():
                of, _ = recipe.more.get(name, (name, 1))
                found = cell(recipe, name, seed, parts, out / "runs" / place(kept, of, seed).stem, quick=options.quick)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, found)
                print(f"{name}, seed {seed}: measured", flush=True)
            write_json(kept / "results.json", rows(recipe, kept))
            gc.collect()


def place(folder: Path, method: str, seed: int) -> Path:
    """The file of a cell."""
    return (
        folder / "cells" / f"{''.join(c if c.isascii() and c.isalnum() else '-' for c in method.lower())}-{seed}.json"
    )


def cell(
    recipe: Recipe, name: str, seed: int, parts: tuple[EHRDataset, EHRDataset], folder: Path, *, quick: bool
) -> dict[str, Any]:
    """Learn, generate, measure."""
    train, holdout = parts
    of, times = recipe.more.get(name, (name, 1))
    generator, resumed, started = recipe.methods[of], (folder / "plan.json").exists(), perf_counter()
    cost = None
    if isinstance(generator, type):
        made = generator(train)
    else:
        plan = dataclasses.replace(quick_plan(generator) if quick else generator, seed=seed)
        result = plan.fit(train, out=folder, resume=resumed)
        made = result.synthesizer
        if made is None:
            sys.exit("stopped; start again to go on")
        if isinstance(plan, EHRSafe) and plan.epsilon is not None:
            cost = {name: getattr(result.statement, name) for name in ("epsilon", "delta", "unit")}
    fitted = perf_counter()
    synthetic = joined(list(made.sample(times * len(train), seed=1000 + seed, block=len(train))))
    sampled = perf_counter()
    found = evaluate(train, holdout, synthetic, seed=seed)
    if times > 1:  # classifiers learn from all of them, and not from so many by chance
        found = dataclasses.replace(found, utility=utility(train, holdout, synthetic, seed))
    return {
        "method": name,
        "seed": seed,
        "patients": {"learned from": len(train), "held out": len(holdout), "generated": len(synthetic)},
        "cost": cost,
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
    for name in recipe.names:
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
                    cost = found[0].get("cost") if side == "found" else None
                    reported.append(_row(recipe, name, metric, measure, values, cost))
    for name, found in by_method.items():
        for measure in found[0]["attacks"]:
            excesses = [each["attacks"][measure]["excess"] for each in found]
            row = _row(recipe, name, EXCESS, measure, [each["value"] for each in excesses], found[0].get("cost"))
            ends = {end: round(float(np.mean([each[end] for each in excesses])), 4) for end in ("low", "high")}
            reported.append({**row, **ends})
    return reported


def _row(
    recipe: Recipe, method: str, metric: str, measure: str, values: list[float], cost: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "method": method,
        "dataset": recipe.dataset,
        "metric": metric,
        "measure": measure,
        **cells.mean_and_std(values),
        "seeds": len(values),
        **(cost or dict.fromkeys(("epsilon", "delta", "unit"))),
        "paper": None,
    }
