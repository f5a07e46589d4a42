"""The figure of docs/explanation/accountants.md: epsilon and run time against the number of steps, by accountant.

    python docs/figures/accountants.py [--quick]

Writes docs/images/accountants.svg and, with every number in it, docs/images/accountants.json. The setting is that of
the figure with which Connecting the Dots was presented: noise 0.5, sampling rate 2e-5, delta 1e-8. Every time is that
of a first call: all that sfumato remembers is forgotten before. Accountants take turns; medians of three.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "comparison"))

from comparison_accountants import BucketsAccountant, PrvAccountant

from sfumato import accounting as acc
from sfumato.cli.console import number, table
from sfumato.report import cost_curve
from sfumato.report.cost_curve import LOOKS, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).resolve().parents[1] / "images"
NOISE, RATE, DELTA = 0.5, 2e-5, 1e-8
ACCOUNTANTS: dict[str, Callable[[acc.Event], Any]] = {
    "pld": partial(acc.guarantee, method="pld"),
    "prv": PrvAccountant,
    "buckets": BucketsAccountant,
    "rdp": partial(acc.guarantee, method="rdp"),
}
METHODS: dict[str, Look] = {
    "pld": LOOKS["pld"],
    "prv": Look("PRV", "#85378a", "--"),
    "buckets": Look("privacy buckets", "#b4540a", "-."),
    "rdp": LOOKS["rdp"],
}


def measure(event: acc.Event, method: str) -> dict[str, Any]:
    """Bounds on epsilon, seconds, and the reason if there are no bounds."""
    forget()
    start = time.perf_counter()
    found: dict[str, Any] = {}
    try:
        accountant = ACCOUNTANTS[method](event)
        found = {"upper": accountant.epsilon(DELTA)}
        if method in ("pld", "prv"):
            found["lower"] = accountant.epsilon_interval(DELTA)[0]
    except acc.InputError as error:
        found = {"reason": str(error)}
    found["seconds"] = time.perf_counter() - start
    if method == "prv":
        found["estimate"] = PrvAccountant(event).estimate(DELTA)
    return found


def forget() -> None:
    """Empty every cache of the library."""
    for thing in gc.get_objects():
        if isinstance(thing, _lru_cache_wrapper) and str(getattr(thing, "__module__", "")).startswith("sfumato"):
            thing.cache_clear()


def curve(numbers: list[int], repeats: int) -> list[dict[str, Any]]:
    """Bounds and the median of the seconds for each number of steps."""
    step = acc.Gaussian(NOISE).poisson(RATE)
    measure(step, "pld")  # what is imported late is imported now
    rows = []
    for steps in numbers:
        runs = [{method: measure(step * steps, method) for method in METHODS} for _ in range(repeats)]
        row: dict[str, Any] = {"steps": steps}
        for method in METHODS:
            row[method] = runs[0][method] | {"seconds": statistics.median(run[method]["seconds"] for run in runs)}
        rows.append(row)
        print(f"{steps:,} steps", {method: round(row[method]["seconds"], 3) for method in METHODS}, flush=True)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Two panels: epsilon, and seconds."""
    points = [
        cost_curve.Point(
            row["steps"], {m: (row[m].get("lower", 0.0), row[m]["upper"]) for m in METHODS if "upper" in row[m]}
        )
        for row in rows
    ]

    def fill(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        cost_curve.lines(left, points, METHODS)
        left.set_title("ε, the smaller the better", loc="left", fontsize=10)
        left.legend(frameon=False)
        answered = {m: [(row["steps"], row[m]["seconds"]) for row in rows if "upper" in row[m]] for m in METHODS}
        times(right, answered)
        right.set_title("seconds for a first answer, one core", loc="left", fontsize=10)

    cost_curve.save(path, (9.6, 4.2), fill)


def times(axes: "Axes", seconds: dict[str, list[tuple[int, float]]]) -> None:
    """Draw what the accountants took, by number of steps, in the looks of their bounds."""
    for name, measured in seconds.items():
        look = METHODS[name]
        axes.plot(
            *zip(*measured, strict=True), color=look.colour, linestyle=look.dashes, linewidth=1.7, label=look.name
        )
    cost_curve.plain(axes)
    axes.set_ylabel("seconds")


def show(rows: list[dict[str, Any]]) -> None:
    """The same as a table."""

    def cell(found: dict[str, Any]) -> str:
        bound = number(found["upper"]) if "upper" in found else "-"
        return f"{bound} ({found['seconds']:.2f} s)"

    table(["steps", *METHODS], [[f"{row['steps']:,}", *(cell(row[method]) for method in METHODS)] for row in rows])


def main() -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(description="Draw the figure of docs/explanation/accountants.md.")
    parser.add_argument("--quick", action="store_true", help="fewer points, no repeats, nothing written")
    options = parser.parse_args()
    halves = range(0, 13, 3 if options.quick else 1)
    rows = curve([round(10 ** (half / 2)) for half in halves], 1 if options.quick else 3)
    show(rows)
    if options.quick:
        return
    setting = {"noise_multiplier": NOISE, "sampling_rate": RATE, "delta": DELTA, "adjacency": "add_remove"}
    text = json.dumps({"setting": setting, "points": rows}, indent=1, sort_keys=True)
    (IMAGES / "accountants.json").write_text(text + "\n", encoding="utf-8")
    draw(rows, IMAGES / "accountants.svg")


if __name__ == "__main__":
    main()
