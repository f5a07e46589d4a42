"""EHR-Safe with a guarantee of epsilon 8 for a patient, on stays in intensive care. See README.md."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._files import write_json
from sfumato.audit.ehr import Evaluation, evaluate
from sfumato.data.ehr.physionet2012 import physionet2012
from sfumato.report.ehr import summary_rows
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
    """Learn, generate, measure; write results.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: the figures mean nothing")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    records = physionet2012(DATA / "physionet2012_set_a.parquet", DATA / "physionet2012_outcomes_a.txt")
    real, held_out = records.split(0.25, seed=0)
    found: dict[tuple[str, str], list[float]] = {}
    statement = None
    for seed in range(1, given.seeds + 1):
        plan = EHRSafe(epsilon=EPSILON, seed=seed, **{**SETTINGS, **(QUICK if given.quick else {})})
        result = plan.fit(real)
        assert result.synthesizer is not None
        statement = result.statement
        rounds = [row for row in result.history if "phase" in row]
        figures: dict[tuple[str, str], float] = {}
        for phase, what in (("sequences", "autoencoder"), ("gan", "critic")):
            seconds = [each["not_private"]["seconds"] for each in rounds if each["phase"] == phase]
            figures["seconds of a round, median", what] = float(np.median(seconds))
        made = next(result.synthesizer.sample(len(held_out), seed=seed))
        measured = evaluate(real, held_out, made, seed=0, most=800)
        for shown in summary_rows(measured):
            print(*shown, sep=" | ", flush=True)
        figures |= _figures(measured)
        for name, value in figures.items():
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
