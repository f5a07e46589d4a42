"""One row of a benchmark's table, in the shape of all benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def row(
    name: str, ours: float, other: float, other_name: str, unit: str, goal: float | None, *, digits: int = 6
) -> Row:
    """What was measured next to something else; where the other one is a limit that was set, the goal is 1."""
    ratio = ours / other
    return {
        "name": name,
        "ours": float(f"{ours:.{digits}g}"),
        "other": float(f"{other:.{digits}g}"),
        "other_name": other_name,
        "unit": unit,
        "ratio": float(f"{ratio:.{digits}g}"),
        "goal": goal,
        "met": None if goal is None else ratio <= goal,
    }


def shown(name: str, ours: float, other: float, other_name: str, unit: str, goal: float | None) -> Row:
    """The same, printed."""
    found = row(name, ours, other, other_name, unit, goal)
    wanted = "" if goal is None else f"≤ {goal:g} {'yes' if found['met'] else 'NO'}"
    print(f"  {name:48}{ours:12.2f}{other:12.2f} {unit:8}{other_name:24}{found['ratio']:8.3f} {wanted}", flush=True)
    return found


def seconds(jobs: dict[str, Callable[[], None]], turns: int) -> dict[str, float]:
    """Median time of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(turns + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if turn:  # the first one warms up
                found[name].append(time.perf_counter() - start)
    return {name: statistics.median(each) for name, each in found.items()}
