"""PrivacyFace on real faces: private clusters of class centres, what they give away, and what they cost.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data FOLDER]

--data is the folder of shared data; it is read, never copied. Rows of the table come from `figures` (centres only).
cosine.svg and occupancy.svg are drawn next to results.json. Fails if no private cluster was released. The pictures that
a decoder makes stay in the folder of the run, as inverted.png: they are private.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import figures
import numpy as np
from clients import CLIENTS

from sfumato._files import read_json, write_json
from sfumato.federated.clustering import cap_share
from sfumato.report.plots import COLOURS, save

FOLDER = Path(__file__).resolve().parent
COSINES, IDENTIFICATION, INVERSION = "cosines", "identification", "inversion"
LONE = (INVERSION,)
RUNS, QUICK_RUNS = 334, 2
"""Releases of each setting and client, for each seed: with three seeds a thousand."""

MEASURED = {
    "released": "clusters that reach the threshold",
    "cosine": "cosine of p and p̂, in the noise's 32 dimensions",
    "whole": "cosine of p and p̂, in all 128 dimensions",
}
CHANCE = "three identities at random"
SPACES, ANGLES = (16, 32, 64, 128, 512), np.linspace(1.0, 1.57, 115).round(3).tolist()
"""Dimensions and radii of the figure of caps."""
FIELD = {"ρ": "radius", "ε": "epsilon", "Q": "releases"}


def cell(method: str, seed: int, run: Path, quick: bool, data: Path | None) -> None:
    """Measure one figure with one seed; one that is done is not repeated."""
    if (run / "measured.json").exists():
        return
    run.mkdir(parents=True, exist_ok=True)
    runs = QUICK_RUNS if quick else RUNS
    if method == COSINES:
        found = figures.cosines(seed, runs, quick, data)
    elif method == IDENTIFICATION:
        found = figures.identification(seed, runs, quick, data)
    else:
        found = figures.inversion(seed, quick, data, run)
    write_json(run / "measured.json", found)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of all figures; draws the first."""
    found = {
        method: [read_json(place(method, seed) / "measured.json") for seed in range(1 if method in LONE else seeds)]
        for method in (COSINES, IDENTIFICATION, INVERSION)
    }
    rows = []
    for key, metric in MEASURED.items():
        for title, plan in figures.settings(quick).items():
            for name in CLIENTS:
                measured = [each[title][name] for each in found[COSINES]]
                values = [each[key] for each in measured if each[key] is not None]
                if values:
                    delta = measured[0]["delta"]
                    rows.append(_row(f"clusters, {title}", name, metric, values, plan.epsilon, delta))
    if not any(row["mean"] for row in rows if row["metric"] == MEASURED["released"]):
        sys.exit("no private cluster was released: take a larger radius, a lower threshold or a larger epsilon")
    for method, metric in ((IDENTIFICATION, "identities found"), (INVERSION, "identities found by inverted pictures")):
        rates = found[method][0][CLIENTS[0]]["rates"]
        budgets = {figures.noisy(epsilon): figures.budget(epsilon, quick) for epsilon in figures.ATTACKED}
        kinds = ("w", *map(figures.exact, figures.ATTACKED), *budgets)
        for kind in (*(kind for kind in kinds if kind in rates), CHANCE):
            epsilon = budgets.get(kind)
            for name in CLIENTS:
                measured = [each[name] for each in found[method]]
                values = [each["chance"] if kind == CHANCE else each["rates"][kind] for each in measured]
                values = [value for value in values if value is not None]
                delta = measured[0]["delta"] if epsilon else None
                if values:
                    rows.append(_row(kind, name, metric, values, epsilon, delta))
    folder = place(COSINES, 0).parent if quick else FOLDER
    draw(rows, folder)
    draw_occupancy(folder)
    return rows


def _row(
    method: str, client: str, metric: str, values: list[float], epsilon: float | None, delta: float | None
) -> dict[str, Any]:
    return {
        "method": method,
        "dataset": "four clients of real faces",
        "metric": metric,
        "measure": client,
        **cells.mean_and_std(values),
        "seeds": len(values),
        "epsilon": epsilon,
        "delta": None if delta is None else float(f"{delta:.3g}"),
        "unit": None if epsilon is None else "identity",
        "paper": None,
    }


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Three panels: the cosine over ρ, over ε and over Q, a line for each client."""
    titles = figures.settings(False)
    base = figures.PLAN
    by_name = {(row["method"], row["measure"]): row for row in rows if row["metric"] == MEASURED["cosine"]}

    def fill(figure: Any) -> None:
        panels = figure.subplots(1, 3, sharey=True)
        for axes, (symbol, field) in zip(panels, FIELD.items(), strict=True):
            for place, name in enumerate(CLIENTS):
                points = []
                for title, plan in titles.items():
                    fixed = all(
                        getattr(plan, other) == getattr(base, other) for other in FIELD.values() if other != field
                    )
                    row = by_name.get((f"clusters, {title}", name))
                    if fixed and row is not None:
                        points.append((getattr(plan, field), row["mean"]))
                axes.plot(
                    *zip(*sorted(points), strict=True), marker="o", markersize=3, color=COLOURS[place], label=name
                )
            axes.set_xlabel(symbol)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("cosine of p and p̂")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)

    save(folder / "cosine.svg", (9.6, 3.6), fill)


def occupancy() -> dict[int, list[tuple[float, float]]]:
    """The share of the sphere in a cap, as pairs of ρ and share, by dimensions."""
    return {space: [(angle, cap_share(space, angle)) for angle in ANGLES] for space in SPACES}


def draw_occupancy(folder: Path) -> None:
    """How much of the sphere a cap holds: what share of centres without any clusters it would."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for place, (space, points) in enumerate(occupancy().items()):
            axes.plot(*zip(*points, strict=True), color=COLOURS[place], label=f"{space} dimensions")
        axes.axvline(figures.PLAN.radius, color=COLOURS[6], linewidth=0.8, linestyle=":")
        axes.set_yscale("log")
        axes.set_ylim(1e-10, 1)
        axes.set_xlabel("ρ")
        axes.set_ylabel("share of the sphere in a cap")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)

    save(folder / "occupancy.svg", (4.8, 3.8), fill)


def main() -> None:
    """Run the table."""
    cells.main(FOLDER, (COSINES, IDENTIFICATION, INVERSION), cell, table, data="optional", lone=LONE)


if __name__ == "__main__":
    main()
