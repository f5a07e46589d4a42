"""What all recipes share: methods × seeds, each a process and a run folder of its own, and one results.json.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--only TEXT] [--data PATH]

Every (method, seed) is one process with its share of the cores and one run folder (--quick: all in one process); a run
that was stopped goes on, a finished one is not repeated. results.json is written next to run.py; --quick, or data from
elsewhere, writes it to the output folder only.
"""

import argparse
import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch

from sfumato._files import read_json, write_json

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

Data = Literal["none", "optional", "needed"]


def main(
    folder: Path,
    methods: Sequence[str],
    cell: Callable[[str, int, Path, bool, Path | None], Any],
    table: Callable[[Callable[[str, int], Path], int, bool], list[dict[str, Any]]],
    *,
    data: Data = "none",
    results: str = "results.json",
    lone: Collection[str] = (),
) -> None:
    """Run the table, or one cell of it.

    Args:
        folder: where run.py and results.json lie.
        methods: the rows, in order.
        cell: trains (method, seed) in a run folder, or goes on there; then whether it is quick, and the path in --data.
        table: makes the rows from the run folders of (method, seed), the number of seeds and whether it is quick.
        data: whether --data may or has to name where the data lies.
        results: name of the file that is written; a second table of a recipe has another one, and its own runs.
        lone: methods that have one seed, whatever --seeds says; `table` has to know.
    """
    runs = folder.name if results == "results.json" else f"{folder.name}-{Path(results).stem}"
    parser = argparse.ArgumentParser(description=f"The table of {folder.name}.")
    parser.add_argument("--quick", action="store_true", help="a few rounds of each method, to see that it runs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds for each method")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs") / runs, help="folder of the runs")
    parser.add_argument("--only", metavar="TEXT", default="", help="methods whose name has this in it, then the table")
    parser.add_argument("--cell", nargs=2, metavar=("METHOD", "SEED"), help=argparse.SUPPRESS)
    if data != "none":
        parser.add_argument("--data", type=Path, required=data == "needed", help="where the data lies")
    options = parser.parse_args()
    if min(options.seeds, options.jobs) < 1:
        parser.error(f"--seeds and --jobs are at least 1, got {options.seeds} and {options.jobs}")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out {options.out} is a file; give a folder")
    path = getattr(options, "data", None)
    out = options.out / ("quick" if options.quick else "full")

    def place(method: str, seed: int) -> Path:
        return place_in(out, method, seed)

    if options.cell:
        method, seed = options.cell[0], int(options.cell[1])
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        cell(method, seed, place(method, seed), options.quick, path)
        return
    seeds = 1 if options.quick else options.seeds
    flags = [*(["--quick"] if options.quick else []), *(["--data", str(path)] if path else [])]

    def launch(names: tuple[str, str]) -> int:
        """One cell in a process of its own, on one thread."""
        command = [sys.executable, sys.argv[0], "--cell", *names, "--out", str(options.out), *flags]
        code = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
        print(f"{names[0]} seed {names[1]}: {'done' if code == 0 else f'failed ({code})'}", flush=True)
        return code

    chosen = [method for method in methods if options.only in method]
    if not chosen:
        parser.error(f"no method has {options.only!r} in its name (--only): {', '.join(methods)}")
    cells = [(method, seed) for seed in range(seeds) for method in chosen if not seed or method not in lone]
    if options.quick:  # a process would take longer to start than to run
        for method, seed in cells:
            cell(method, seed, place(method, seed), True, path)
        codes = []
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            codes = list(pool.map(launch, [(method, str(seed)) for method, seed in cells]))
    if any(codes):
        sys.exit("a run failed; see its message above, and start again to go on")
    try:
        rows = table(place, seeds, options.quick)
    except FileNotFoundError as error:
        if chosen == list(methods):
            raise
        sys.exit(f"no table yet: {error.filename} is missing; run without --only")
    write_json((folder if not options.quick and path is None else out) / results, rows)
    width = max(len(row["method"]) for row in rows)
    for row in rows:
        print(f"{row['method']:{width}} {row['mean']:.4f} ± {row['std']:.4f}   ε {row['epsilon']}")


def refuse_stopped(finished: bool) -> None:
    """Leave a cell whose training was stopped: what a part of it gives is not the cell's figure."""
    if not finished:
        sys.exit("stopped; start again to go on")


def kept_rows(
    results: Path | None, fields: Sequence[str] = ("dataset", "method")
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a table that was written before, by fields that no two share; none where there is no such file."""
    if results is None or not results.exists():
        return {}
    return {tuple(row.get(field) for field in fields): row for row in read_json(results)}


def row_before(
    kept: Mapping[tuple[Any, ...], dict[str, Any]], key: tuple[Any, ...], files: Iterable[Path]
) -> dict[str, Any] | None:
    """The row that a table had before, where a file that it would be made of is missing; else None."""
    return None if all(file.exists() for file in files) else kept.get(key)


@contextmanager
def loaded(folder: Path) -> Iterator[ModuleType]:
    """The run.py of a recipe as a module; what it imports of recipes is forgotten then, since names recur."""
    path, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(folder), str(folder.parent)]
    try:
        yield importlib.import_module("run")
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder.parent}{os.sep}"):
                del sys.modules[name]


def place_in(out: Path, method: str, seed: int) -> Path:
    """The run folder of a cell, among those of a table."""
    kept = "".join(c if c.isalnum() or c in "-." else "-" for c in method.lower())
    return out / f"{kept}-{seed}"


def mean_and_std(values: Sequence[float]) -> dict[str, float]:
    """The fields of a row that sum up the seeds; the standard deviation is of a sample."""
    return {
        "mean": round(float(np.mean(values)), 4),
        "std": round(float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, 4),
    }
