"""Drawing noise for a large model: a run's own normal numbers next to torch's and NumPy's, which are not cryptographic.

    python benchmarks/noise.py [--quick] [--json FILE] [--count N] [--threads T ...]

All add or write 4·10⁷ normal numbers to memory that is there already, in turns. Shown are nanoseconds for a number: the
median and the least of the wall clock, and the median of the processor's time, over all threads, which a busy machine
changes less. `SHAKE-256, words` is the hashing alone of what would be a number's share of a hashed stream. `ratio` =
ours / other, of medians of the processor's time with one thread.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sfumato._random import RandomSource

OURS = "sfumato, float64"
BLOCK = 1 << 18


def contenders(count: int, threads: list[int]) -> dict[str, Callable[[], object]]:
    """What takes part; every call draws anew."""
    double, single = np.zeros(count), torch.zeros(count)
    torch_double = torch.from_numpy(double)
    stream = RandomSource.from_os().stream("noise")
    generator = np.random.default_rng()

    def ours(number: int) -> Callable[[], object]:
        return lambda: stream.add_normal(double, threads=number)

    def hashed() -> None:
        for block in range(-(-8 * count // BLOCK)):
            hashlib.shake_256(block.to_bytes(8, "big")).digest(BLOCK)

    found: dict[str, Callable[[], object]] = {}
    for number in threads:
        found[OURS if number == 1 else f"{OURS}, {number} threads"] = ours(number)
    found["torch normal_, float32"] = lambda: single.normal_()
    found["torch normal_, float64"] = lambda: torch_double.normal_()
    found["NumPy PCG64, float64"] = lambda: generator.standard_normal(out=double)
    found["SHAKE-256, words"] = hashed
    return found


def main() -> int:
    """Run the benchmark; always 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the numbers, three turns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--count", type=int, default=40_000_000, metavar="N")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], metavar="T")
    arguments = parser.parse_args()
    count, turns = (arguments.count // 10, 3) if arguments.quick else (arguments.count, 9)
    threads = [1, *(number for number in arguments.threads if number > 1)]
    torch.set_num_threads(max(threads))
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): the wall clock means little")
    drawing = contenders(count, threads)
    wall: dict[str, list[float]] = {name: [] for name in drawing}
    work: dict[str, list[float]] = {name: [] for name in drawing}
    for turn in range(turns + 1):
        for name, draw in drawing.items():
            clock, processor = time.perf_counter(), time.process_time()
            draw()
            if turn:  # the first one touches the memory
                wall[name].append((time.perf_counter() - clock) / count * 1e9)
                work[name].append((time.process_time() - processor) / count * 1e9)
    rows = []
    print(f"{'ns for a number':28}{'wall median':>12}{'least':>8}{'processor':>11}{'ratio':>8}")
    ours = statistics.median(work[OURS])
    for name in drawing:
        other = statistics.median(work[name])
        ratio = "" if name.startswith(OURS) else f"{ours / other:.3f}"
        print(f"{name:28}{statistics.median(wall[name]):12.2f}{min(wall[name]):8.2f}{other:11.2f}{ratio:>8}")
        rows.append(
            {
                "name": "normal numbers, processor time",
                "ours": round(ours, 2),
                "other": round(other, 2),
                "other_name": name,
                "unit": "ns",
                "ratio": round(ours / other, 4),
                "goal": None,
                "met": None,
            }
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
