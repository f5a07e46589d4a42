"""What the defaults of a command reach, next to a small search, on data that no rule was made on.

    python benchmarks/defaults.py [--quick] [--json FILE] [--out DIR] [--only NAME ...] [--epsilon E ...]

Every trial is a run folder in DIR; one that is there is not repeated, so a stopped search goes on. `tuned` is the best
of the default and of `SEARCH` on the test data themselves, so it is better than what a search with a part of its own
would find. `baseline` is the best trivial prediction. ε of 0 stands for a run without noise. `ratio` is default divided
by tuned, or the other way round where more is better; 1 is as good as the search.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import time
from pathlib import Path
from typing import Any

from rows import Row, row
from unseen import UNSEEN, DataSet

from sfumato.cli.main import main as sfumato

_SMALL_STEPS = ("--client.local.batch_size", "5", "--client.local.learning_rate", "0.1")
SEARCH: dict[str, dict[str, tuple[str, ...]]] = {
    "dpsgd": {
        "before the rules": ("--cohort", "256", "--server.learning-rate", "0.5", "--epochs", "10", "--clipping", "1"),
        "clip norm 1": ("--clipping", "1"),
        "clip norm 1, rate 0.25": ("--clipping", "1", "--server.learning-rate", "0.25"),
        "clip norm 1, rate 4": ("--clipping", "1", "--server.learning-rate", "4"),
        "clip norm 5": ("--clipping", "5"),
    },
    "fedemb": {
        "rate 0.1": ("--server.learning-rate", "0.1"),
        "client rate 0.02": ("--client.learning-rate", "0.02"),
    },
    "fedrecon": {
        "rate 1": ("--server.learning-rate", "1"),
        "50 factors without biases": ("--model", "matrix_factorization"),
        "50 steps of 5 ratings": ("--client.local.steps", "50", "--client.local.epochs", "1", *_SMALL_STEPS),
    },
}
"""Trials by command, next to that of the defaults."""

QUICK = ("wine", "diabetes")


def measured(folder: Path, words: list[str]) -> dict[str, Any] | None:
    """The evaluation of a run, which is trained if it is not there; None where the command refuses it."""
    if not (folder / "report.html").exists():
        resume = ["--resume", str(folder)] if (folder / "plan.json").exists() else None
        folder.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        log = io.StringIO()
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            code = sfumato([words[0], *(resume or [*words[1:], "--out", str(folder)])])
        Path(f"{folder}.log").write_text(log.getvalue(), "utf-8")
        if code == 2:
            return None
        if code:
            raise SystemExit(f"{folder} stopped with {code}; see {folder}.log")
        Path(f"{folder}.seconds").write_text(f"{time.monotonic() - started:.0f}\n", "utf-8")
    return json.loads((folder / "evaluation.json").read_text("utf-8"))


def value(evaluation: dict[str, Any], metric: str, higher: bool) -> float:
    """The metric of an evaluation; the worst there is for a model that gives no finite number."""
    found = evaluation.get(metric, -math.inf if higher else math.inf)
    return float(next(iter(found.values())) if isinstance(found, dict) else found)


def rows_of(each: DataSet, epsilon: float, out: Path) -> Row | None:
    """Default and search on one data set at one ε."""
    place = out / each.name.replace(" ", "-")
    if not place.exists():
        (new := place.with_suffix(".new")).mkdir(parents=True, exist_ok=True)
        each.write(new)
        new.rename(place)
    budget = ["--epsilon", f"{epsilon:g}"] if epsilon else ["--noise", "0"]
    declared = ["--public-classes"] if each.command[0] == "fedemb" else []
    words = [word.format(folder=place) for word in each.command] + budget + declared + ["--seed", "1"]
    found: dict[str, float] = {}
    baseline = float("nan")
    better = max if each.higher else min
    for name, more in {"default": (), **SEARCH[each.command[0]]}.items():
        folder = place / f"epsilon-{epsilon:g}" / name.replace(" ", "-")
        evaluation = measured(folder, words + list(more))
        if evaluation is None:
            continue
        found[name] = value(evaluation["trained"], each.metric, each.higher)
        if name == "default":
            others = [*evaluation["trained"]["baselines"].values(), evaluation["untrained"]]
            baseline = better(value(one, each.metric, each.higher) for one in others)
        print(f"{each.name} ε={epsilon:g} {name}: {found[name]:.4f} (baseline {baseline:.4f})", flush=True)
    if "default" not in found:
        return None
    best = better(found, key=lambda name: found[name])
    ours, other = found["default"], found[best]
    beats = "beats" if (ours > baseline if each.higher else ours < baseline) else "does not beat"
    where = f"ε = {epsilon:g}" if epsilon else "no noise"
    numbers = (other, ours) if each.higher else (ours, other)  # the smaller ratio is the better one
    found_row = row(f"{each.name}, {where}", *numbers, best, each.metric, 1.25)
    return {**found_row, "default": ours, "tuned": other, "baseline": baseline, "verdict": f"{beats} the baseline"}


def printed(found: Row) -> str:
    """A line of the table."""
    numbers = "".join(f"{found[name]:10.4f}" for name in ("default", "tuned", "baseline"))
    return f"{found['name']:32}{found['unit']:14}{numbers}  {found['other_name']:28}{found['verdict']}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--epsilon", nargs="*", type=float, default=[0.0, 8.0])
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = options.only or (QUICK if options.quick else tuple(UNSEEN))
    made = [rows_of(UNSEEN[name], epsilon, options.out) for name in names for epsilon in options.epsilon]
    rows = [each for each in made if each is not None]
    print(f"{'':32}{'':14}{'default':>10}{'tuned':>10}{'baseline':>10}  tuned by")
    for each in rows:
        print(printed(each))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
