"""EHR-Safe with a guarantee of epsilon 8 for a patient, on stays in intensive care. See README.md."""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._files import write_json
from sfumato.audit.ehr import Evaluation, evaluate
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.data.ehr.schema import Column
from sfumato.report.ehr import summary_rows
from sfumato.synthesis import EHRSafe

FOLDER = Path(__file__).resolve().parent
DATA = FOLDER.parents[2] / "shared" / "data"
EPSILON = 8.0
RANGES: dict[str, tuple[float, float]] = {
    "Age": (0, 120), "Height": (50, 230), "AdmissionWeight": (20, 250), "ALP": (0, 1000), "ALT": (0, 2000),
    "AST": (0, 2000), "Albumin": (0, 6), "BUN": (0, 150), "Bilirubin": (0, 40), "Cholesterol": (0, 400),
    "Creatinine": (0, 15), "DiasABP": (0, 150), "FiO2": (0.2, 1), "GCS": (3, 15), "Glucose": (0, 600),
    "HCO3": (0, 60), "HCT": (0, 65), "HR": (0, 200), "K": (1, 10), "Lactate": (0, 20), "MAP": (0, 200), "Mg": (0, 6),
    "NIDiasABP": (0, 150), "NIMAP": (0, 200), "NISysABP": (0, 250), "Na": (100, 180), "PaCO2": (0, 120),
    "PaO2": (0, 500), "Platelets": (0, 1000), "RespRate": (0, 60), "SaO2": (50, 100), "SysABP": (0, 250),
    "Temp": (28, 43), "TroponinI": (0, 50), "TroponinT": (0, 25), "Urine": (0, 1000), "WBC": (0, 60),
    "Weight": (20, 250), "pH": (6.8, 7.8),
}  # fmt: skip
"""Round numbers, written down after percentiles of these records had been seen: they are in no ε."""

SETTINGS: dict[str, Any] = {
    "horizon": 2880.0, "max_visits": 100, "epochs": 6, "batch_size": 256, "learning_rate": 4e-3, "gan_steps": 150,
    "critic_steps": 2, "gan_batch_size": 256, "gan_hidden": 128, "gan_learning_rate": 1e-3, "average_decay": 0.95,
    "noise": 64, "latent": 32, "calibrated_on": 500,
}  # fmt: skip
QUICK: dict[str, Any] = {"epochs": 1, "gan_steps": 5, "hidden": 16, "calibrated_on": 50}


def main() -> None:
    """Learn, generate, measure; write results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: the figures mean nothing")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    records = physionet2012(DATA / "physionet2012_set_a.parquet", DATA / "physionet2012_outcomes_a.txt")

    def ranged(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple(replace(column, range=RANGES.get(column.name)) for column in columns)

    schema = replace(records.schema, static=ranged(records.schema.static), temporal=ranged(records.schema.temporal))
    told = ("The ranges of the schema were written after percentiles of the records had been seen.",)
    real, held_out = replace(records, schema=schema, assumptions=told).split(0.25, seed=0)
    found: dict[tuple[str, str], list[float]] = {}
    statement = None
    for seed in range(1, given.seeds + 1):
        plan = EHRSafe(epsilon=EPSILON, seed=seed, **{**SETTINGS, **(QUICK if given.quick else {})})
        begun = time.monotonic()
        result = plan.fit(real)
        assert result.synthesizer is not None
        statement = result.statement
        rounds = [row for row in result.history if "phase" in row]
        row = {("minutes", "learning"): (time.monotonic() - begun) / 60}
        for phase, what in (("sequences", "autoencoder"), ("gan", "critic")):
            seconds = [each["not_private"]["seconds"] for each in rounds if each["phase"] == phase]
            row["seconds of a round, median", what] = float(np.median(seconds))
        made = next(result.synthesizer.sample(len(held_out), seed=seed))
        measured = evaluate(real, held_out, made, seed=0, most=800)
        for shown in summary_rows(measured):
            print(*shown, sep=" | ", flush=True)
        row |= _figures(measured)
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    assert statement is not None
    same = {"dataset": "PhysioNet 2012, set A", "paper": None, "seeds": given.seeds}
    same |= {"epsilon": statement.epsilon, "delta": statement.delta, "unit": statement.unit}
    rows = [
        {
            **same,
            "metric": metric,
            "method": who,
            "mean": round(float(np.mean(v)), 4),
            "std": round(float(np.std(v)), 4),
        }
        for (metric, who), v in found.items()
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "results.json", rows)
    for row in rows:
        print(row["metric"], row["method"], row["mean"])


def _figures(measured: Evaluation) -> dict[tuple[str, str], float]:
    """The figures of an evaluation, by measure and by whose it is."""
    fits = [each.fit.distance for each in measured.fidelity.columns if each.cdf]
    distances = np.array([distance for distance in fits if distance is not None])
    found = {
        ("KS of numeric columns", "median"): float(np.median(distances)),
        ("KS of numeric columns", "largest"): float(distances.max()),
    }
    for model in measured.utility.models if measured.utility is not None else ():
        found["AUC of death", f"{model.model}, learned from real stays"] = model.real.value
        if model.synthetic is not None:
            found["AUC of death", f"{model.model}, learned from synthetic stays"] = model.synthetic.value
    for attack in measured.attacks:
        measure = attack.measures[0]
        found[measure.name, attack.name] = measure.found.value
        found[measure.name, f"{attack.name}, ideal"] = measure.ideal.value
    return found


if __name__ == "__main__":
    main()
