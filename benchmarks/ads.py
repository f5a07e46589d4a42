"""Time and memory of a step of a click model: plain with sparse gradients, ours with three kinds of tables, Opacus.

    python benchmarks/ads.py [--quick] [--json FILE] [--settings 1024 16384 rows memory batch]

A step is the whole of it: a Poisson batch, forward, backward, clipping, noise, SGD. The model has 26 tables, 13 numbers
and four layers of 598 units. V is the number of rows of all tables together. Every contender is a process of its own;
steps are interleaved and only one process works at a time. `ratio` = ours / other, of medians; `goal` is the largest
ratio that meets it. Each of the first 128 steps of a private run also computes what the run has cost so far, later
ones seldom do: with 1,024 examples steps are timed after these. The last step of a run, which draws the noise of all
rows that were not read, is not timed here. Tables train in place. "memory" and "batch" show the peak of a process with
10⁷ rows of 112 numbers, and with one batch of 500,000 examples.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
from pathlib import Path

from fl_round import Contender, Worker, WorkerError
from rows import Row, shown

PLAIN, DEFERRED, ADAFEST, DENSE = "plain", "deferred", "adafest", "dense"
OPACUS = ("opacus ghost",)


GB = 1e9 / 2**20  # in MiB
MEASURED = ["1024", "16384", "rows", "memory", "batch"]
COSTLY_STEPS = 129


def contender(mode: str, *, rows: int, batch: int, width: int = 28, records: int = 200_000) -> Contender:
    """A process of one mode."""
    settings = {"mode": mode, "rows": rows, "batch": batch, "width": width, "records": records, "threads": 2}
    return Contender(f"{mode} V={rows:.0e} B={batch}", "ads_step.py", settings)


def medians(
    contenders: list[Contender], steps: int, logs: Path, *, first: int = 2
) -> dict[tuple[str, int], tuple[float, float]]:
    """Milliseconds of a step and MiB at the peak, of those that work; in turns, private ones after `first` steps."""
    workers: list[Worker] = []
    for each in contenders:
        worker = Worker.start(each, "ads", logs)
        try:
            worker.expect_ready()
            for _ in range(first if each.config["mode"] in (DEFERRED, ADAFEST, DENSE) else min(first, 2)):
                worker.send("round")
                worker.answer()
            worker.pause()
            workers.append(worker)
        except WorkerError as error:
            print(f"  left out: {error}", flush=True)
    for _ in range(steps):
        for worker in workers:
            worker.timed_round()
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for worker in workers:
        os.killpg(worker.process.pid, signal.SIGCONT)
        worker.send("loss")
        memory = worker.answer()["loss"]
        found[worker.contender.config["mode"], worker.contender.config["rows"]] = (
            statistics.median(worker.times),
            memory,
        )
        worker.end()
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps, and no table of 10⁷ rows")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--settings", nargs="*", default=MEASURED, choices=MEASURED)
    options = parser.parse_args()
    steps, rows = 5 if options.quick else 21, []
    first = 2 if options.quick else COSTLY_STEPS
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        for batch, goal in ((1024, 1.5), (16384, 1.2)):
            if str(batch) not in options.settings:
                continue
            every = [PLAIN, DEFERRED, ADAFEST, DENSE, *(OPACUS if batch == 1024 else ())]
            several = [contender(mode, rows=10**6, batch=batch) for mode in every]
            found = medians(several, steps, logs, first=first if batch == 1024 else 2)
            times = {mode: each for (mode, _), each in found.items()}
            rows += compared(f"V=10⁶, B={batch:,}", times, goal)
        if "rows" in options.settings:
            sizes = (10**5, 10**6 if options.quick else 10**7)
            several = [contender(mode, rows=size, batch=1024) for mode in (DEFERRED, ADAFEST) for size in sizes]
            found = medians(several, steps, logs, first=first)
            for mode in (DEFERRED, ADAFEST):
                small, large = (found[mode, size] for size in sizes)
                rows.append(
                    shown(f"{mode}: V={sizes[1]:.0e}, B=1,024", large[0], small[0], f"V={sizes[0]:.0e}", "ms", 1.1)
                )
                print(f"  {mode}: {large[1]:,.0f} MiB at V={sizes[1]:.0e}")
        for name, size, batch, width in (("memory", 10**7, 1024, 112), ("batch", 10**6, 500_000, 28)):
            if name not in options.settings or options.quick:
                continue
            alone = contender(DEFERRED, rows=size, batch=batch, width=width, records=max(200_000, 4 * batch))
            times, peak = medians([alone], 3 if name == "memory" else 1, logs, first=2 if name == "memory" else 0)[
                DEFERRED, size
            ]
            title = f"V={size:.0e}, d={width}, B={batch:,}, a step of {times / 1e3:.1f} s"
            rows.append(shown(f"deferred: {title}", peak / GB, 8.0, "8 GB", "GB", 1.0))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def compared(title: str, times: dict[str, tuple[float, float]], goal: float) -> list[Row]:
    """Rows of one setting."""
    rows = []
    for mode in (DEFERRED, ADAFEST, DENSE):
        if mode in times and PLAIN in times:
            wanted = goal if mode != DENSE else None
            rows.append(shown(f"{mode}: {title}", times[mode][0], times[PLAIN][0], "plain, sparse", "ms", wanted))
    for peer in OPACUS:
        if peer in times:
            rows.append(shown(f"deferred: {title}", times[DEFERRED][0], times[peer][0], peer, "ms", 0.1))
            rows.append(shown(f"deferred: {title}, peak memory", times[DEFERRED][1], times[peer][1], peer, "MiB", None))
    return rows


if __name__ == "__main__":
    main()
