"""Recall at a false accept rate over all pairs: time, peak memory, and the plain ways to compute it next to ours.

    python benchmarks/recall_at_far.py [--quick] [--json FILE]

Every measurement is a process of its own: peak memory is that of the whole process (`ru_maxrss`, so Python, torch
and the embeddings are in it), time is that of the call alone. Contenders are interleaved (ours, other, ours, other).

- NumPy: the matrix of similarities, the pairs above its diagonal, `np.partition` of the impostors.
- scikit-learn: `roc_curve` over the same pairs.

Both hold every pair in memory, so they run on 6,000 embeddings (18 million pairs). The goals for 100,000 x 128
(5 billion pairs) on two cores are at most 90 s and 1 GB. `ratio` = ours / other; `goal` is the largest ratio that
meets the goal (none is set next to the others, whose memory grows with the pairs). The program fails if the
contenders disagree on recall or threshold by more than the grid allows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import row

DIMENSIONS, PER_CLASS, FAR = 128, 10, 1e-3
OURS, OTHERS = "sfumato", ("NumPy", "scikit-learn")


def embeddings_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy copies of random class centres, float32 [count, 128], ten to a class."""
    random = np.random.default_rng(0)
    labels = np.arange(count) // PER_CLASS
    rows = random.standard_normal((count, DIMENSIONS), dtype=np.float32) * 1.5
    centres = random.standard_normal((count // PER_CLASS + 1, DIMENSIONS), dtype=np.float32)
    for start in range(0, count, 10_000):
        rows[start : start + 10_000] += centres[labels[start : start + 10_000]]
    return rows, labels


def ours(rows: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Recall and threshold by sfumato."""
    from sfumato.metrics import recall_at_far

    result = recall_at_far(rows, labels, (FAR,))
    return result.recall[FAR], result.threshold[FAR]


def pairs(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Similarity of every pair and whether it is genuine."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    above = np.triu_indices(len(rows), 1)
    return (unit @ unit.T)[above], labels[above[0]] == labels[above[1]]


def plain_numpy(rows: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Recall and threshold by selecting the (1 - FAR) quantile of all impostor pairs."""
    similarity, same = pairs(rows, labels)
    impostor = similarity[~same]
    at = len(impostor) - 1 - int(FAR * len(impostor))
    threshold = np.partition(impostor, at)[at]
    return float((similarity[same] > threshold).mean()), float(threshold)


def scikit_learn(rows: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Recall and threshold read off the whole ROC curve."""
    from sklearn.metrics import roc_curve

    similarity, same = pairs(rows, labels)
    fpr, tpr, thresholds = roc_curve(same, similarity, drop_intermediate=False)
    at = int(np.searchsorted(fpr, FAR, side="right")) - 1
    return float(tpr[at]), float(thresholds[at])


_VERDICT = {True: "yes", False: "NO", None: "-"}
CONTENDERS = {OURS: ours, "NumPy": plain_numpy, "scikit-learn": scikit_learn}


def child(name: str, count: int) -> None:
    """Measure one contender and print the result as JSON; a first small call loads what it loads lazily."""
    rows, labels = embeddings_of(count)
    CONTENDERS[name](rows[:200], labels[:200])
    began = time.perf_counter()
    recall, threshold = CONTENDERS[name](rows, labels)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "recall": recall, "threshold": threshold}))


def measured(name: str, count: int) -> dict[str, float]:
    """Run one contender in a process of its own."""
    command = [sys.executable, __file__, "--child", name, str(count)]
    threads = {"OMP_NUM_THREADS": str(os.cpu_count()), "MKL_NUM_THREADS": str(os.cpu_count())}
    done = subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(count: int, repeats: int) -> list[dict[str, Any]]:
    """Ours and the others on a size that the others can hold."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(repeats):
        for other in OTHERS:
            for name in (OURS, other):
                runs[name].append(measured(name, count))
    what = f"recall@FAR, all pairs of {count:,} x {DIMENSIONS}"
    rows = []
    for other in OTHERS:
        for key, unit, title in (("seconds", "s", "time"), ("peak", "MB", "peak memory")):
            mine, theirs = (statistics.median(run[key] for run in runs[name]) for name in (OURS, other))
            rows.append(row(f"{what}: {title}", mine, theirs, other, unit, None))
        for key, allowed in (("threshold", 2e-6), ("recall", 1e-4)):
            gap = abs(runs[OURS][0][key] - runs[other][0][key])
            # scikit-learn names the last accepted similarity, ours the first rejected one.
            allowed += 1e-4 if (other, key) == ("scikit-learn", "threshold") else 0
            if gap > allowed:
                raise SystemExit(f"error: {key} differs from {other}'s by {gap:.2e}: not the same work")
    return rows


def main() -> int:
    """Run the benchmark and print the table; 0 unless the contenders disagree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the size; ends within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], int(arguments.child[1]))
        return 0
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): these times mean little")
    # The work grows with the square of the size; so does the limit of the smaller run.
    full = 20_000 if arguments.quick else 100_000
    limit = 90 * (full / 100_000) ** 2
    run = measured(OURS, full)
    what = f"recall@FAR, all pairs of {full:,} x {DIMENSIONS}"
    rows = [
        row(f"{what}: time", run["seconds"], limit, "limit", "s", 1.0),
        row(f"{what}: peak memory", run["peak"], 1024, "limit", "MB", 1.0),
    ]
    rows += compare(3_000 if arguments.quick else 6_000, 1 if arguments.quick else 3)
    print(f"{'':58}{'ours':>10}{'other':>10}  {'':13}{'ratio':>7}  goal met")
    for line in rows:
        print(
            f"{line['name']:58}{line['ours']:>10.2f}{line['other']:>10.2f}  {line['other_name']:13}"
            f"{line['ratio']:>7.3f}  {_VERDICT[line['met']]:4} ({line['unit']})"
        )
    pairs_each = full * (full - 1) / 2 / run["seconds"] / 1e6
    print(f"recall {run['recall']:.4f} at similarity {run['threshold']:.4f}; {pairs_each:,.0f} million pairs a second")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
