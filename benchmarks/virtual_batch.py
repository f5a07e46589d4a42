"""Memory of a private step against the logical batch: LeNet-5, micro-batches chosen by the plan.

    python benchmarks/virtual_batch.py [--quick] [--json FILE]

Each batch size is a fresh process that takes two steps of `DPSGD` on 80,000 pictures; its peak memory is that of the
whole process. `ratio` = peak / peak at a batch of 4,096. The goal is that it does not grow.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

GROWTH = 1.05
SMALL = 4_096

CHILD = """
import resource, sys, time, warnings
import numpy as np
from sfumato import data, models
from sfumato.central import DPSGD
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
pictures = rng.integers(0, 256, (80_000, 28, 28, 1), dtype=np.uint8)
examples = data.examples_from_arrays(pictures, rng.integers(0, 10, len(pictures)), num_classes=10)
plan = DPSGD(steps=2, cohort=int(sys.argv[1]), noise=1.0)
start = time.perf_counter()
plan.fit(models.lenet5(), examples)
print((time.perf_counter() - start) / 2, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure(batch: int) -> tuple[float, float]:
    """Seconds a step, peak MiB."""
    command = [sys.executable, "-c", CHILD, str(batch)]
    seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the largest batch is 16,384")
    parser.add_argument("--json", type=Path, help="write the rows of the table")
    options = parser.parse_args()
    _, least = measure(SMALL)
    rows = []
    for batch in (16_384,) if options.quick else (16_384, 65_536):
        seconds, peak = measure(batch)
        ratio = peak / least
        print(f"batch {batch:6,}: {peak:.0f} MiB, {ratio:.3f} of batch {SMALL:,}; {seconds:.1f} s a step")
        rows.append(
            {
                "name": f"DP-SGD, logical batch {batch:,}, peak memory",
                "ours": round(peak, 1),
                "other": round(least, 1),
                "other_name": f"logical batch {SMALL:,}",
                "unit": "MiB",
                "ratio": round(ratio, 4),
                "goal": GROWTH,
                "met": ratio <= GROWTH,
            }
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
