"""Labels randomised by the million: RRWithPrior with a prior for each row, bins for numbers, and whole tables.

    python benchmarks/labels.py [--quick] [--json FILE] [--labels N] [--threads T]

Each measurement of labels and tables is a fresh process that is asked for its time (without starting Python, importing
and making up the data) and for the most memory that it added. Labels come in blocks, each with priors for ten classes,
as a model would give them. `other` is a limit that was set, or the same for a tenth of the rows: memory has to stay as
it is. `ratio` = ours / other, of medians; `goal` is the largest ratio that meets the goal.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rows import Row, shown

CLASSES = 10
LIMIT_LABELS, LIMIT_BINS = 3.0, 1.0  # seconds, for 10⁷ labels and for 10³ values
GROWTH = 1.1  # of memory, from a tenth of the rows to all of them

PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
"""

LABELS = """
import sys, time
import numpy as np
from sfumato._random import RandomSource
from sfumato.labels.response import reports_of, words_of
from sfumato.labels.response import LabelResponse

count, threads, own = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "own"
block = 1 << 18
rng = np.random.default_rng(0)
rows = rng.random((block, 10))
rows /= rows.sum(axis=1, keepdims=True)
labels = rng.integers(0, 10, block)
response, words = LabelResponse(epsilon=1.0, classes=10), words_of(RandomSource.from_os())
reports_of(response, labels[:100], words, rows[:100])
before, seconds = peak(), 0.0
for start in range(0, count, block):
    here = min(block, count - start)
    started = time.perf_counter()
    reports_of(response, labels[:here], words, rows[:here] if own else rows[0], threads=threads)
    seconds += time.perf_counter() - started
print(seconds, peak() - before)
"""

TABLE = """
import sys, time
from pathlib import Path
import torch
from sfumato.labels import LabelSettings, randomize_table

torch.set_num_threads(int(sys.argv[3]))
prior = {"kind": "counted", "epsilon": 0.05, "groups": "g"}
settings = LabelSettings(label="y", epsilon=1.0, **{"domain.names": tuple("0123456789")}, prior=prior)
before, started = peak(), time.perf_counter()
randomize_table(Path(sys.argv[1]), Path(sys.argv[2]), settings)
print(time.perf_counter() - started, peak() - before)
"""


def measured(code: str, *words: object) -> tuple[float, float]:
    """Seconds and bytes of a fresh process."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK + code, *map(str, words)], capture_output=True, text=True, check=True
    )
    seconds, size = run.stdout.split()
    return float(seconds), float(size)


def labels(count: int, threads: int, turns: int) -> list[Row]:
    """Labels in memory, in blocks."""
    found = {size: [measured(LABELS, size, threads, "own") for _ in range(turns)] for size in (count, count // 10)}
    seconds, memory = (statistics.median(one[place] for one in found[count]) for place in (0, 1))
    less = statistics.median(one[1] for one in found[count // 10])
    shared = statistics.median(measured(LABELS, count, threads, "one")[0] for _ in range(turns))
    limit = LIMIT_LABELS * count / 1e7
    return [
        shown("RRWithPrior, a prior for each row", seconds, limit, "limit", "s", 1.0),
        shown("RRWithPrior, one prior", shared, limit, "limit", "s", 1.0),
        shown("memory, a prior for each row", memory / 1e6, less / 1e6, "a tenth of the labels", "MB", GROWTH),
    ]


def bins(turns: int) -> list[Row]:
    """The best bins for 1,000 values."""
    from sfumato.labels.numbers import BinnedResponse

    rng = np.random.default_rng(0)
    values, prior = np.sort(rng.random(1000)), rng.dirichlet(np.full(1000, 0.3))
    rows = []
    for loss in ("squared", "absolute", "poisson"):
        for epsilon in (1.0, 8.0):
            seconds = []
            for _ in range(turns):
                started = time.perf_counter()
                BinnedResponse.best(values, prior, epsilon=epsilon, loss=loss)
                seconds.append(time.perf_counter() - started)
            name = f"bins for 1,000 values, {loss}, epsilon {epsilon:g}"
            rows.append(shown(name, statistics.median(seconds), LIMIT_BINS, "limit", "s", 1.0))
    return rows


def tables(count: int, threads: int, turns: int) -> list[Row]:
    """Parquet files, with a prior that is counted in groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    sizes: dict[int, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (count, count // 10):
            table = Path(folder) / f"{size}.parquet"
            with pq.ParquetWriter(
                table, pa.schema([("x", pa.float64()), ("g", pa.int8()), ("y", pa.int8())])
            ) as writer:
                for start in range(0, size, 1 << 20):
                    here = min(1 << 20, size - start)
                    columns = {"x": rng.random(here), "g": rng.integers(0, 9, here), "y": rng.integers(0, 10, here)}
                    writer.write_table(pa.table(columns).cast(writer.schema))
            sizes[size] = [
                measured(TABLE, table, Path(folder) / f"{size}-{turn}.parquet", threads) for turn in range(turns)
            ]
    seconds, memory = (statistics.median(one[place] for one in sizes[count]) for place in (0, 1))
    less = [statistics.median(one[place] for one in sizes[count // 10]) for place in (0, 1)]
    return [
        shown(f"a table of {count:,} rows", seconds, 10 * less[0], "ten of a tenth", "s", None),
        shown("memory of it", memory / 1e6, less[1] / 1e6, "a tenth of the rows", "MB", GROWTH),
    ]


def main() -> int:
    """Run the benchmark; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the labels, one turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--labels", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--threads", type=int, default=2, metavar="T")
    arguments = parser.parse_args()
    count, turns = (arguments.labels // 10, 1) if arguments.quick else (arguments.labels, 3)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): times mean little")
    rows = [*labels(count, arguments.threads, turns), *bins(turns), *tables(count, arguments.threads, turns)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row["met"] is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
