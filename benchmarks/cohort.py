"""Drawing a cohort and keeping its books: 500,000 units out of 5,000,000, Poisson and of a fixed size.

    python benchmarks/cohort.py [--quick] [--json FILE]

A round's draw, its grouping (every unit a client, and virtual clients) and the half that one of two processes takes.
Next to it NumPy's own draw without replacement, from a generator that is not cryptographic. Memory is the largest
resident size of a process of its own beyond what it had before the draw. `goal` is the largest value that meets it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._random import RandomSource
from sfumato.sampling import FixedSize, Poisson, SingleUserClients, VirtualClients

MOST_SECONDS, MOST_MIB = 0.3, 200


def work(kind: str, grouping: str, cohort: int, population: int) -> Callable[[int], None]:
    """What is timed, for a round."""
    if kind == "numpy":
        rng = np.random.default_rng(0)
        return lambda round: rng.choice(population, cohort, replace=False).sort()
    sampler = (Poisson if kind == "poisson" else FixedSize)(size=cohort, population=population)
    groups = SingleUserClients(clients=cohort) if grouping == "own" else VirtualClients(clients=cohort // 8)
    source = RandomSource.from_os()

    def one(round: int) -> None:
        units = sampler.draw(population, round, source)
        part = groups.group(units, round, source).take(slice(0, None, 2))
        assert len(part.units)

    return one


def peak_kib() -> int:
    """The largest resident size of this process so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def peak_mib(arguments: list[str]) -> float:
    """Memory of one round in a fresh process, MiB beyond the start."""
    command = [sys.executable, __file__, "--memory", *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Time, print a table, write rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, three rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--memory", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory:
        kind, grouping, cohort, population = given.memory
        one = work(kind, grouping, int(cohort), int(population))
        before = peak_kib()
        one(0)
        print((peak_kib() - before) / 1024)
        return
    scale, rounds = (10, 3) if given.quick else (1, 15)
    cohort, population = 500_000 // scale, 5_000_000 // scale
    cases = [("poisson", "own"), ("poisson", "virtual"), ("fixed", "own"), ("fixed", "virtual")]
    timed: dict[tuple[str, str], list[float]] = {case: [] for case in [*cases, ("numpy", "own")]}
    jobs = {case: work(*case, cohort, population) for case in timed}
    for round in range(rounds):
        for case, one in jobs.items():
            start = time.perf_counter()
            one(round)
            timed[case].append(time.perf_counter() - start)
    other = statistics.median(timed[("numpy", "own")])
    rows: list[dict[str, Any]] = []
    print(f"{cohort:,} of {population:,}: medians of {rounds} rounds; NumPy draws in {other * 1000:.0f} ms")
    for case in cases:
        seconds = statistics.median(timed[case])
        mib = peak_mib([*case, str(cohort), str(population)])
        met = seconds <= MOST_SECONDS and mib <= MOST_MIB
        print(f"  {case[0]:8} {case[1]:8} {seconds * 1000:7.0f} ms  {mib:6.0f} MiB  {'met' if met else 'NOT met'}")
        name = f"cohort of {cohort:,} of {population:,}, {case[0]}, {case[1]} clients"
        rows.append(
            {
                "name": name,
                "ours": round_to(seconds),
                "other": round_to(other),
                "other_name": "numpy choice without replacement",
                "unit": "s",
                "ratio": round_to(seconds / other),
                "goal": round_to(MOST_SECONDS / other),
                "met": seconds <= MOST_SECONDS,
            }
        )
        rows.append(
            {
                "name": f"{name}: memory",
                "ours": round_to(mib),
                "other": MOST_MIB,
                "other_name": "limit",
                "unit": "MiB",
                "ratio": round_to(mib / MOST_MIB),
                "goal": 1.0,
                "met": mib <= MOST_MIB,
            }
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


def round_to(value: float) -> float:
    """Four digits behind the point are more than a shared machine can resolve."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
