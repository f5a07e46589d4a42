"""Private click models where tables are huge compared with the data: loss and size of gradients. See README.md.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT]

Settings of each method and ε are those of choose.py. losses.svg is drawn next to results.json.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import clicks
from ads_recipe import Table
from choose import CHOSEN, TRIALS

from sfumato._files import read_json, write_json

FOLDER = Path(__file__).resolve().parent
CONSTANT, PLANTED = "always the share of clicks", "planted truth"
METHODS = [CONSTANT, PLANTED, *clicks.METHODS]
MEASURES = {
    "log_loss": "log loss",
    "auc_loss": "1 − AUC",
    "calibration": "clicks predicted / clicks",
    "rows": "rows of tables in the gradient of a step",
}


def cell(method: str, seed: int, run: Path, quick: bool, data: Path | None) -> None:
    """One method with one seed at every ε; those that are done are not repeated."""
    place, split = run / "measured.json", clicks.parts(quick)
    found = read_json(place) if place.exists() else []
    chosen = read_json(CHOSEN) if CHOSEN.exists() else {}
    run.mkdir(parents=True, exist_ok=True)
    if method in (CONSTANT, PLANTED):
        measured = clicks.constant(split) if method == CONSTANT else clicks.planted(split.test)
        write_json(place, [{"wanted": None, "unit": "example", **measured}])
        return
    for epsilon in clicks.epsilons(method)[len(found) :]:
        settings = dict({**TRIALS[method][0], "cohort": 500} if quick else chosen[method][str(epsilon)])
        for of_choice in ("validation_log_loss", "tried"):
            settings.pop(of_choice, None)
        trained = clicks.trained(split.train, method, epsilon, seed, **settings)
        statement = trained.statement
        reported = {} if epsilon is None else {"epsilon": statement.epsilon, "delta": statement.delta}
        found.append({"wanted": epsilon, **clicks.measured(trained, split.test), **reported, "unit": statement.unit})
        write_json(place, found)


TABLE = Table(
    folder=FOLDER,
    file="losses.svg",
    dataset="generated clicks, a fifth of the rows",
    methods=METHODS,
    plain=clicks.PLAIN,
    measures=MEASURES,
    increase="relative increase of the log loss, %",
    axis="log loss",
)

if __name__ == "__main__":
    cells.main(FOLDER, METHODS, cell, TABLE)
