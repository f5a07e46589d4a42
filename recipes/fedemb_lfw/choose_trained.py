"""The server's rate of a private row of trained.py, by recall on the people to choose by: one run a candidate.

    choose_trained.py [--rates RATE ...] [--out DIR]

The row trains the last block and the last layer with m = 1 at ε = 8, seed 0. A run that was stopped goes on.
trained_choice.json has a line for each; one that is there is not repeated.
"""

import argparse
import dataclasses
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
from trained import ROWS, fitted

from sfumato._files import read_json, write_json

FILE = Path(__file__).resolve().parent / "trained_choice.json"
NAME = "DP-FedEmb, m = 1, ε = 8: the last block and layer"


def main() -> None:
    """Run the candidates that have not run, and print all."""
    parser = argparse.ArgumentParser(description="The server's rate of a row of trained.py, by validation.")
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 30.0, 10.0, 3.0])
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / "fedemb_lfw-choose_trained", help="folder of the runs"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for rate in options.rates:
        rows = read_json(FILE) if FILE.exists() else []
        if any(row["rate"] == rate for row in rows):
            continue
        plan = dataclasses.replace(ROWS[NAME].plan, server_learning_rate=rate)
        row, folder = dataclasses.replace(ROWS[NAME], plan=plan), options.out / f"{rate:g}"
        found = fitted(row, 0, folder, options.out / "caches", quick=False, path=None)
        rows.append({"candidate": NAME, "rate": rate, "validation": round(found["validation"], 4)})
        write_json(FILE, sorted(rows, key=lambda row: -row["rate"]))
        print(*rows[-1].values(), sep="; ", flush=True)


if __name__ == "__main__":
    main()
