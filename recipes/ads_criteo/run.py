"""Private click models on Criteo's clicks: the relative increase of the loss against ε. See README.md.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

Settings of each method and ε are those of choose.py. losses.svg is drawn next to results.json.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import clicks
from ads_recipe import Table
from choose import CHOSEN, trials_of

from sfumato._files import read_json, write_json

FOLDER = Path(__file__).resolve().parent
CONSTANT = "always the share of clicks"
METHODS = [CONSTANT, *clicks.TABLES]
MEASURES = {"log_loss": "log loss", "auc_loss": "1 − AUC", "calibration": "clicks predicted / clicks"}


def cell(method: str, seed: int, run: Path, quick: bool, data: Path | None) -> None:
    """One method with one seed at every ε; those that are done are not repeated."""
    place, split = run / "measured.json", clicks.parts(data)
    found = read_json(place) if place.exists() else []
    train = split.train.subset(np.arange(0, len(split.train), 10)) if quick else split.train
    chosen = read_json(CHOSEN) if CHOSEN.exists() else {}
    run.mkdir(parents=True, exist_ok=True)
    if method == CONSTANT:
        write_json(place, [{"wanted": None, "unit": "example", **clicks.constant(data)}])
        return
    for epsilon in clicks.epsilons(method)[len(found) :]:
        settings = dict(trials_of(method)[0] if quick else chosen[method][str(epsilon)])
        for of_choice in ("validation_log_loss", "tried"):
            settings.pop(of_choice, None)
        model, statement = clicks.trained(train, method, epsilon, seed, **settings)
        reported = {} if epsilon is None else {"epsilon": statement.epsilon, "delta": statement.delta}
        found.append({"wanted": epsilon, **clicks.scores(model, split.test), **reported, "unit": statement.unit})
        write_json(place, found)


TABLE = Table(
    folder=FOLDER,
    file="losses.svg",
    dataset="Criteo AdKDD 2021, a fifth of the rows",
    methods=METHODS,
    plain=clicks.PLAIN,
    measures=MEASURES,
    increase="relative increase of the log loss, %",
    axis="log loss",
)

if __name__ == "__main__":
    cells.main(FOLDER, METHODS, cell, TABLE, data="optional")
