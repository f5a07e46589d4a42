"""One ε = 8 run on faces, read back: its ledger, its statement, and whether its noise and its cohorts are as stated.

    audit.py [--quick] [--out DIR] [--data FOLDER]

The run is that of trained.py in which the last layer is trained, m = 1, seed 0; it is made if it is not there. Noise:
the run's first round again with the same seed and no noise; what the two models differ by, divided by the server's rate
and times the divisor, is the noise of the sum. Empty: the same plan and seed where everybody's chance of taking part
is one in a million: models after one, two and three rounds differ by noise alone. Writes audit.json; see trained.md.
"""

import argparse
import dataclasses
import itertools
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import numpy as np
import torch
from faces import pictures
from scipy import stats
from trained import DELTA, FOLDER, QUICKLY, ROWS, cell, network_of, plan_of

from sfumato._files import write_json
from sfumato.data import UserDataset
from sfumato.federated import FedEmb
from sfumato.training import RunOptions

NAME = "DP-FedEmb, m = 1, ε = 8: the last layer"
TRAINED = "residual.turn.weight"
"""All that the run trains; zero at the start."""
EMPTY = 10**9
"""A public number of people at which a cohort of a thousand is empty."""


def main() -> None:
    """Make the run if it is missing, read it back, report."""
    parser = argparse.ArgumentParser(description="An ε = 8 run, read back.")
    parser.add_argument("--quick", action="store_true", help="a few pictures and rounds")
    parser.add_argument("--out", type=Path, default=Path("runs") / "fedemb_lfw-trained", help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of the shared data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out = options.out / ("quick" if options.quick else "full")
    run = cells.place_in(out, NAME, 0)
    if not (run / "faces.json").exists():
        cell(NAME, 0, run, options.quick, options.data)
    others = [cells.place_in(out, name, 0) for name, row in ROWS.items() if row.epsilon is not None]
    others = [str(other) for other in others if other != run and (other / "statement.json").exists()]
    for command in (["ledger", "verify", str(run)], *([["compare", str(run), *others]] if others else [])):
        subprocess.run([str(Path(sys.executable).with_name("sfumato")), *command], check=True)
    train, friends, _, _ = pictures(options.data, most=QUICKLY if options.quick else None)
    plan = dataclasses.replace(plan_of(ROWS[NAME], len(train), quick=options.quick), seed=0)
    found = {
        "epsilon": json.loads((run / "statement.json").read_text())["epsilon"],
        "delta": DELTA,
        **_noise(plan, train, friends, run, options.data),
        **_cohorts(plan, len(train), run),
    }
    write_json((out if options.quick or options.data else FOLDER) / "audit.json", found)
    for key, value in found.items():
        print(f"{key:42} {value}")


def _noise(plan: FedEmb, train: UserDataset, friends: UserDataset, run: Path, path: Path | None) -> dict[str, Any]:
    """Of the sum in the first round, and of rounds without people."""
    stated = _releases(run)[0]["noise_std"]
    divisor, rate = plan.cohort.size, plan.server.learning_rate
    assert rate is not None
    with tempfile.TemporaryDirectory() as folder:

        def layer(name: str, plan: FedEmb) -> np.ndarray:
            result = plan.fit(
                network_of(ROWS[NAME], path),
                train,
                out=Path(folder) / name,
                options=RunOptions(negatives=friends, prefix_cache=run.parent / "caches" / "0"),
            )
            return result.model.get_parameter(TRAINED).detach().double().flatten().numpy()

        first = dataclasses.replace(plan, rounds=1)
        drawn = layer("plain", first.replace(noise=0)) - layer("noisy", first)
        empty = dataclasses.replace(plan, population=EMPTY)
        after = [layer(f"empty-{rounds}", dataclasses.replace(empty, rounds=rounds)) for rounds in (1, 2, 3)]
    momentum, steps = plan.server.momentum, np.diff([np.zeros_like(after[0]), *after], axis=0)
    rounds = [steps[0], *(now - momentum * before for before, now in itertools.pairwise(steps))]
    correlations = np.corrcoef(rounds)
    return {
        "numbers": drawn.size,
        **_reported("noise of the first round", drawn * divisor / rate / stated),
        **_reported("noise of three rounds without people", np.concatenate(rounds) * divisor / rate / stated),
        "largest correlation between rounds": round(
            float(np.abs(correlations[~np.eye(len(correlations), dtype=bool)]).max()), 4
        ),
        "its std if they are independent": round(drawn.size**-0.5, 4),
    }


def _reported(name: str, noise: np.ndarray) -> dict[str, Any]:
    """How far draws are from the stated normal law, in which they have standard deviation 1."""
    return {
        f"{name}: std / stated std": round(float(noise.std()), 4),
        f"{name}: p of Kolmogorov-Smirnov": round(float(stats.kstest(noise, "norm").pvalue), 4),
    }


def _cohorts(plan: FedEmb, people: int, run: Path) -> dict[str, Any]:
    """How many took part in all rounds, next to what the accounted sampling says."""
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    came = sum(row["not_private"]["units"] for row in history if "not_private" in row)
    chances, rate = plan.rounds * people, plan.private_sum(people).event(1).sampling_rate
    return {
        "people in all rounds": came,
        "expected": round(chances * rate, 1),
        "p of the accounted rate": round(float(stats.binomtest(came, chances, rate).pvalue), 4),
    }


def _releases(run: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    return [entry for entry in entries if "noise_std" in entry]


if __name__ == "__main__":
    main()
