"""Rates of rows of trained.py, by recall on the people to choose by: one run a candidate.

    choose_trained.py [--out DIR]

The private row trains the last block and the last layer with m = 1 at ε = 8; its candidates are rates of the server.
The control trains the last two blocks and layer on public people alone. Seed 0. A run that was stopped goes on.
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
CANDIDATES = {
    "DP-FedEmb, m = 1, ε = 8: the last block and layer": (100.0, 30.0, 10.0, 3.0),
    "public people alone, centralized: the last two blocks and the last layer": (
        0.05,
        0.015,
        0.005,
        0.0015,
    ),
}
"""Rows, and the server's rates that are tried of each."""


def main() -> None:
    """Run the candidates that have not run, and print all."""
    parser = argparse.ArgumentParser(description="Rates of rows of trained.py, by validation.")
    parser.add_argument(
        "--out", type=Path, default=Path("runs") / "fedemb_lfw-choose_trained", help="folder of the runs"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for number, (name, rates) in enumerate(CANDIDATES.items()):
        for rate in rates:
            rows = read_json(FILE) if FILE.exists() else []
            if any((row["candidate"], row["rate"]) == (name, rate) for row in rows):
                continue
            row = dataclasses.replace(ROWS[name], plan=ROWS[name].plan.replace(server={"learning_rate": rate}))
            folder = options.out / f"{number}-{rate:g}"
            found = fitted(row, 0, folder, options.out / "caches", quick=False, path=None)
            rows.append({"candidate": name, "rate": rate, "validation": round(found["validation"], 4)})
            write_json(FILE, rows)
            print(*rows[-1].values(), sep="; ", flush=True)


if __name__ == "__main__":
    main()
