"""EHR-Safe with a guarantee of epsilon 8 for a patient, on stays in intensive care. See README.md."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import numpy as np
from cells import mean_and_std

from sfumato._files import read_json, write_json
from sfumato.audit.ehr import Evaluation, evaluate
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.report.ehr_page import summary_rows
from sfumato.synthesis import EHRSafe

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER.parents[2] / "shared" / "data"
EPSILON = 8.0
SETTINGS: dict[str, Any] = {
    "horizon": 2880.0, "max_visits": 100, "epochs": 6, "batch_size": 256, "learning_rate": 4e-3, "gan_steps": 150,
    "critic_steps": 2, "gan_batch_size": 256, "gan_hidden": 128, "gan_learning_rate": 1e-3, "average_decay": 0.95,
    "noise": 64, "latent": 32, "calibrated_on": 500,
}  # fmt: skip
QUICK: dict[str, Any] = {"epochs": 1, "gan_steps": 5, "hidden": 16, "calibrated_on": 50}


def main() -> None:
    """Learn, generate, measure, for each seed that has no cell yet; write results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: the figures mean nothing")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of results.json and the cells")
    given = parser.parse_args()
    out = given.out / "quick" if given.quick else given.out
    records = physionet2012(DATA / "physionet2012_set_a.parquet", DATA / "physionet2012_outcomes_a.txt")
    real, held_out = records.split(0.25, seed=0)
    kept = []
    for seed in range(1, (1 if given.quick else given.seeds) + 1):
        place = out / "cells" / f"{seed}.json"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, cell(real, held_out, seed, quick=given.quick))
        kept.append(read_json(place))
    found = rows(kept)
    write_json(out / "results.json", found)
    for row in found:
        print(f"{row['metric']}, {row['method']}: {row['mean']:.4f} ± {row['std']:.4f}")


def cell(real: EHRDataset, held_out: EHRDataset, seed: int, *, quick: bool) -> dict[str, Any]:
    """What one seed cost and gave."""
    result = EHRSafe(epsilon=EPSILON, seed=seed, **{**SETTINGS, **(QUICK if quick else {})}).fit(real)
    if result.synthesizer is None:
        sys.exit("stopped; the seeds that are done are kept: start again to go on")
    rounds = [row for row in result.history if "phase" in row]
    figures: list[tuple[str, str, float]] = []
    for phase, what in (("sequences", "autoencoder"), ("gan", "critic")):
        seconds = [each["not_private"]["seconds"] for each in rounds if each["phase"] == phase]
        figures.append(("seconds of a round, median", what, float(np.median(seconds))))
    made = next(result.synthesizer.sample(len(held_out), seed=seed))
    measured = evaluate(real, held_out, made, seed=0, most=100 if quick else 800)
    for shown in summary_rows(measured):
        print(*shown, sep=" | ", flush=True)
    figures += _figures(measured)
    reported = result.statement
    return {"epsilon": reported.epsilon, "delta": reported.delta, "unit": reported.unit, "figures": figures}


def rows(kept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the cells of all seeds."""
    same = {"dataset": "PhysioNet 2012, set A", "paper": None, "seeds": len(kept)}
    same |= {name: kept[0][name] for name in ("epsilon", "delta", "unit")}
    values: dict[tuple[str, str], list[float]] = {}
    for each in kept:
        for metric, method, value in each["figures"]:
            values.setdefault((metric, method), []).append(value)
    return [
        {**same, "metric": metric, "method": method, **mean_and_std(found)}
        for (metric, method), found in values.items()
    ]


def _figures(measured: Evaluation) -> list[tuple[str, str, float]]:
    """The figures of an evaluation: measure, whose it is, value."""
    fits = [each.fit.distance for each in measured.fidelity.columns if each.cdf]
    distances = np.array([distance for distance in fits if distance is not None])
    found = [
        ("KS of numeric columns", "median", float(np.median(distances))),
        ("KS of numeric columns", "largest", float(distances.max())),
    ]
    for model in measured.utility.models if measured.utility is not None else ():
        found.append(("AUC of death", f"{model.model}, learned from real stays", model.real.value))
        if model.synthetic is not None:
            found.append(("AUC of death", f"{model.model}, learned from synthetic stays", model.synthetic.value))
    for attack in measured.attacks:
        measure = attack.measures[0]
        found.append((measure.name, attack.name, measure.found.value))
        found.append((measure.name, f"{attack.name}, ideal", measure.ideal.value))
    return found


if __name__ == "__main__":
    main()
