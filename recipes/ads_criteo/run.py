"""Private click models on Criteo's clicks: the relative increase of the loss against ε. See README.md.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

Settings of each method and ε are those of choose.py. losses.svg is drawn next to results.json.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import clicks
from choose import CHOSEN, trials_of

from sfumato._files import read_json, write_json
from sfumato.report.plots import COLOURS, save

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
        settings.pop("validation_log_loss", None)
        model, statement = clicks.trained(train, method, epsilon, seed, **settings)
        reported = {} if epsilon is None else {"epsilon": statement.epsilon, "delta": statement.delta}
        found.append({"wanted": epsilon, **clicks.scores(model, split.test), **reported, "unit": statement.unit})
        write_json(place, found)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """All measures of each method, and the relative increase of the log loss; draws the figure."""
    measured = {name: [read_json(place(name, seed) / "measured.json") for seed in range(seeds)] for name in METHODS}
    ideal = float(np.mean([found[0]["log_loss"] for found in measured[clicks.PLAIN]]))
    rows = []
    for name, found in measured.items():
        for each in zip(*found, strict=True):
            for key, metric in MEASURES.items():
                rows.append(_row(metric, name, [one[key] for one in each], each[0]))
            increases = [100 * (one["log_loss"] / ideal - 1) for one in each]
            rows.append(_row("relative increase of the log loss, %", name, increases, each[0]))
    draw(rows, place(clicks.PLAIN, 0).parent if quick else FOLDER)
    return rows


def _row(metric: str, name: str, found: list[float], reported: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": name,
        "dataset": "Criteo AdKDD 2021, a fifth of the rows",
        "metric": metric,
        **cells.mean_and_std(found),
        "seeds": len(found),
        "epsilon_wanted": reported["wanted"],
        "epsilon": reported.get("epsilon"),
        "delta": reported.get("delta"),
        "unit": reported["unit"],
        "paper": None,
    }


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Log loss against ε, with dotted lines without privacy and of the constant."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        own = [row for row in rows if row["metric"] == MEASURES["log_loss"]]
        for colour, name in enumerate(METHODS):
            mine = [row for row in own if row["method"] == name]
            if mine[0]["epsilon_wanted"] is None:
                axes.axhline(mine[0]["mean"], color=COLOURS[5 + colour], linewidth=0.8, linestyle=":", label=name)
                continue
            x, y, spread = ([row[key] for row in mine] for key in ("epsilon_wanted", "mean", "std"))
            axes.errorbar(x, y, spread, color=COLOURS[colour], marker="o", markersize=3, capsize=2, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("ε")
        axes.set_ylabel("log loss")
        axes.legend(frameon=False, fontsize=7)

    save(folder / "losses.svg", (5.6, 3.6), fill)


if __name__ == "__main__":
    cells.main(FOLDER, METHODS, cell, table, data="optional")
