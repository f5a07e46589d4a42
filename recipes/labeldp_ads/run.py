"""Conversions, which alone are private, against DP-SGD, which hides the whole row. See README.md.

Logistic regression on two tables, by randomised response with and without a loss that knows it, LabelDP-Pro, and
DP-SGD. Log loss and AUC on rows that no one trained on.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
import conversions
import methods

from sfumato._files import read_json, write_json
from sfumato.report.plots import COLOURS, DASHES, save
from sfumato.training.supervised import measure

FOLDER = Path(__file__).resolve().parent
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TABLES = (conversions.ADULT, conversions.CRITEO)
CHOSEN = FOLDER / "chosen.json"
"""The settings of each method on each table at each epsilon, of choose.py."""

FLOOR = "always the share of conversions"
MEASURES = {"log_loss": "log loss", "auc": "AUC"}


def epsilons(method: str) -> tuple[float | None, ...]:
    """At which a method is run."""
    return (None,) if method == methods.PLAIN else EPSILONS


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One method with one seed, on both tables at every epsilon."""
    place = folder / "measured.json"
    if place.exists():
        return
    chosen, found = read_json(CHOSEN), []
    for data in TABLES:
        split = conversions.parts(data)
        train = split.train.subset(np.arange(0, len(split.train), 10)) if quick else split.train
        for epsilon in epsilons(name):
            settings = chosen[data][name][str(epsilon)]
            settings = {**settings, "epochs": 1} if quick else settings
            model, statement = methods.METHODS[name](train, epsilon or 0.0, seed, **settings)
            reported = (
                {"epsilon": statement.epsilon, "delta": statement.delta, "unit": statement.unit} if statement else {}
            )
            found.append({"table": data, "wanted": epsilon, **measure(model, split.test), **reported})
    folder.mkdir(parents=True, exist_ok=True)
    write_json(place, found)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Log loss and AUC of each method; draws the figure."""
    measured = {
        name: [read_json(place(name, seed) / "measured.json") for seed in range(seeds)] for name in methods.METHODS
    }
    rows = []
    for data in TABLES:
        for key in MEASURES:
            rows.append(_row(data, key, FLOOR, [_floor(data)[key]] * seeds, {}))
            for name, found in measured.items():
                for each in zip(*found, strict=True):
                    if each[0]["table"] == data:
                        rows.append(_row(data, key, name, [one[key] for one in each], each[0]))
    draw(rows, place(methods.PLAIN, 0).parent if quick else FOLDER)
    return rows


def _floor(data: str) -> dict[str, float]:
    """What the share of conversions predicts by itself."""
    split = conversions.parts(data)
    share, true = float(np.mean(split.train.targets)), float(np.mean(split.test.targets))
    return {"log_loss": -true * float(np.log(share)) - (1 - true) * float(np.log(1 - share)), "auc": 0.5}


def _row(data: str, key: str, name: str, found: list[float], reported: dict[str, Any]) -> dict[str, Any]:
    return {
        "method": name,
        "dataset": f"{data}, a fifth of the rows",
        "metric": MEASURES[key],
        **cells.mean_and_std(found),
        "seeds": len(found),
        "epsilon_wanted": reported.get("wanted"),
        "epsilon": reported.get("epsilon"),
        "delta": reported.get("delta"),
        "unit": reported.get("unit"),
        "paper": None,
    }


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """A panel for each table and measure."""

    def fill(figure: Any) -> None:
        panels = figure.subplots(len(MEASURES), len(TABLES), sharex=True)
        for line, measure_name in zip(panels, MEASURES.values(), strict=True):
            for axes, data in zip(line, TABLES, strict=True):
                own = [row for row in rows if row["dataset"].startswith(data) and row["metric"] == measure_name]
                _panel(axes, own)
                axes.set_title(f"{data}: {measure_name}", loc="left", fontsize=10)
        for axes in panels[-1]:
            axes.set_xlabel("ε")
        panels[0][-1].legend(frameon=False, fontsize=7)

    save(folder / "conversions.svg", (9.6, 6.4), fill)


def _panel(axes: Any, rows: list[dict[str, Any]]) -> None:
    by_name = {name: [row for row in rows if row["method"] == name] for name in (FLOOR, *methods.METHODS)}
    for colour, (name, own) in enumerate(by_name.items()):
        if own[0]["epsilon_wanted"] is None:
            axes.axhline(own[0]["mean"], color=COLOURS[6], linewidth=0.8, linestyle=":" if name == FLOOR else "--")
            continue
        axes.errorbar(
            [row["epsilon_wanted"] for row in own],
            [row["mean"] for row in own],
            [row["std"] for row in own],
            color=COLOURS[colour],
            linestyle=(0, tuple(map(float, DASHES[colour % 2].split()))) if DASHES[colour % 2] else "-",
            marker="o",
            markersize=3,
            capsize=2,
            label=name,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    if rows[0]["metric"] == MEASURES["log_loss"]:
        floor = by_name[FLOOR][0]["mean"]
        axes.set_ylim(0.9 * by_name[methods.PLAIN][0]["mean"], 1.5 * floor)
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    cells.main(FOLDER, list(methods.METHODS), cell, table)
