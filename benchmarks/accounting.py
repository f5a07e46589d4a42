"""Accounting: time, tightness and memory, next to dp-accounting and prv-accountant.

    python benchmarks/accounting.py [--quick] [--json FILE]

Each accountant works in a process of its own (`peers/accounting_worker.py`), dp-accounting and prv-accountant in an
environment of theirs (`benchmarks/peers/setup.sh accounting`). Tasks take turns (ours, other, ours, other, …); only one
process works at a time. Before each task everything that was remembered is forgotten. A missing peer is named and
skipped; dp-accounting is then taken from this environment, if it is there.

`ratio` = ours / other, of medians. Where there is nothing to compare with, other is the limit that was set, and the
goal 1. The intervals of ours are certified on both sides; dp-accounting has an upper bound, prv-accountant an estimate
with an error of 0.1.

A last table, of numbers without a goal, has the accountants of other papers as `comparison/comparison_accountants.py`
writes them down: their bounds, and milliseconds in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import rows
from comparison.comparison_accountants import BucketsAccountant, PrvAccountant
from rows import Row

from sfumato import accounting as acc

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"
PEER_PYTHON = ROOT / ".cache" / "peers" / "accounting" / "bin" / "python"
OURS, DP, PRV = "sfumato", "dp-accounting", "prv-accountant"

row = partial(rows.row, digits=7)  # epsilons differ late


@dataclass(frozen=True)
class Run:
    """A run of DP-SGD, and which peers account it."""

    name: str
    z: float
    q: float
    steps: int
    delta: float
    peers: tuple[str, ...] = (DP, PRV)
    goals: tuple[float | None, ...] = (None, None)

    def order(self) -> Row:
        return {"task": "epsilon", "z": self.z, "q": self.q, "steps": self.steps, "delta": self.delta}


RUNS = (
    Run("DP-SGD, q=.01 z=1 T=10⁴, δ=10⁻⁵", 1.0, 0.01, 10_000, 1e-5, goals=(0.1, None)),
    Run("DP-SGD, q=.04 z=1.5 T=2250, δ=10⁻⁵", 1.5, 0.04, 2250, 1e-5),
    Run("DP-SGD, q=10⁻⁴ z=.6 T=10⁵, δ=10⁻¹¹", 0.6, 1e-4, 100_000, 1e-11, (DP,), (None,)),
)


class Worker:
    """A running accountant."""

    def __init__(self, name: str, python: Path | str) -> None:
        self.name = name
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115, it lives as long as the worker
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [str(python), "accounting_worker.py", name],
            cwd=PEERS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
        )
        if self._read() != "ready":
            raise RuntimeError(f"{name} did not start")

    def ask(self, order: Row) -> Row:
        """The answer to one task."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self._read())

    def end(self) -> None:
        """Close its input and wait."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"{self.name} ended early: {self.log.read().strip().splitlines()[-1:]}")
        return line


def compare(run: Run, workers: dict[str, Worker], rounds: int) -> list[Row]:
    """Times of one run in turns, and the epsilons."""
    names = [OURS, *(peer for peer in run.peers if peer in workers)]
    answers: dict[str, list[Row]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            answers[name].append(workers[name].ask(run.order()))
    ours = answers[OURS][0]
    ours_ms = statistics.median(answer["ms"] for answer in answers[OURS])
    rows = [
        row(f"width of the interval, {run.name}", (ours["high"] - ours["low"]) / ours["high"], 1e-3, "limit", "", 1.0)
    ]
    print(f"\n{run.name}\n  {OURS:16}{ours_ms:10.1f} ms   epsilon {ours['low']:.6f} … {ours['high']:.6f}")
    for peer, goal in zip(run.peers, run.goals):
        if peer not in answers:
            continue
        answer = answers[peer][0]
        if "error" in answer:
            print(f"  {peer:16}{answer['error']}")
            continue
        ms = statistics.median(each["ms"] for each in answers[peer])
        low = "" if answer["low"] is None else f"{answer['low']:.6f} … "
        print(f"  {peer:16}{ms:10.1f} ms   epsilon {low}{answer['high']:.6f}   time × {ms / ours_ms:.1f}")
        rows.append(row(f"time, {run.name}", ours_ms, ms, peer, "ms", goal))
        if answer["high"] < ours["low"]:
            print(f"  {'':16}its epsilon is below the truth")
        else:
            rows.append(row(f"upper epsilon, {run.name}", ours["high"], answer["high"], peer, "", 1.0))
    return rows


def alone(rounds: int) -> list[Row]:
    """What only has a limit: time in one process, memory in fresh ones."""
    tasks: list[tuple[str, Row, float, float | None]] = [
        ("z=.3 T=10⁶", Run("", 0.3, 0.01, 10**6, 1e-5).order(), 2000.0, 300.0),
        ("q=2·10⁻⁵ z=.5 T=10⁶, δ=10⁻¹⁰", Run("", 0.5, 2e-5, 10**6, 1e-10).order(), 2000.0, 300.0),
        ("q=10⁻⁶ z=1 T=1000, δ=10⁻²⁰", Run("", 1.0, 1e-6, 1000, 1e-20).order(), 2000.0, 300.0),
        ("production tree, T=2000 k=6 ξ=313", {"task": "tree"}, 1000.0, None),
        ("calibration to epsilon 2, T=10⁴", {"task": "calibrate"}, 1000.0, 200.0),
        ("trade-off curve, 1000 points", {"task": "tradeoff"}, 50.0, None),
        ("epsilon after the next step, T=10⁴", {"task": "next_step"}, 0.0, None),
    ]
    rows = []
    print(f"\n{'alone':38}{'ms':>10}{'limit':>8}{'MB more':>9}")
    for name, order, limit, memory in tasks:
        answers = []
        for _ in range(rounds):
            worker = Worker(OURS, sys.executable)
            answers.append(worker.ask(dict(order)))
            worker.end()
        if "error" in answers[0]:
            print(f"{name:38}{answers[0]['error']}")
            continue
        ms = statistics.median(answer["ms"] for answer in answers)
        grown = max(answer["grown_mb"] for answer in answers)
        print(f"{name:38}{ms:10.2f}{limit or '':>8}{grown:9.0f}")
        if order["task"] == "next_step":
            anew = statistics.median(answer["anew"] for answer in answers)
            rows.append(row(name, ms, anew, "the whole run anew", "ms", None))
            continue
        rows.append(row(f"time, {name}", ms, limit, "limit", "ms", 1.0))
        if memory:
            rows.append(row(f"memory, {name}", grown, memory, "limit", "MB", 1.0))
    return rows


def other_papers() -> None:
    """Print the bounds of the accountants that are there for comparison."""
    print("\nother papers")
    for run in (*RUNS, Run("DP-SGD, q=2·10⁻⁵ z=.5 T=10⁴, δ=10⁻⁸", 0.5, 2e-5, 10_000, 1e-8)):
        event = acc.Gaussian(run.z).poisson(run.q) * run.steps
        for make in (acc.guarantee, PrvAccountant, BucketsAccountant):
            begun = time.perf_counter()
            try:
                account = make(event)
                low, high = account.epsilon_interval(run.delta)
                found = f"epsilon {low:.6f} … {high:.6f}"
            except acc.InputError as error:
                account, found = None, str(error)
            name = {acc.guarantee: OURS, PrvAccountant: "PRV", BucketsAccountant: "buckets"}[make]
            ms = 1000 * (time.perf_counter() - begun)
            estimate = f"   estimate {account.estimate(run.delta):.6f}" if isinstance(account, PrvAccountant) else ""
            print(f"{run.name:38}{name:10}{ms:10.1f} ms   {found}{estimate}")


def start() -> dict[str, Worker]:
    """The accountants that are installed."""
    workers = {OURS: Worker(OURS, sys.executable)}
    for name in (DP, PRV):
        try:
            workers[name] = Worker(name, PEER_PYTHON if PEER_PYTHON.exists() or name == PRV else sys.executable)
        except (OSError, RuntimeError):
            print(f"{name}: not installed; run benchmarks/peers/setup.sh accounting")
    return workers


def main() -> int:
    """Run the benchmark; 0 whatever the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds; ends within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    arguments = parser.parse_args()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): times mean little, ratios something")
    workers = start()
    rows: list[Row] = []
    try:
        for run in RUNS:
            rows += compare(run, workers, 3 if arguments.quick else 11)
    finally:
        for worker in workers.values():
            worker.end()
    rows += alone(1 if arguments.quick else 5)
    other_papers()
    print()
    for each in rows:
        met = {None: "", True: "yes", False: "NO"}[each["met"]]
        goal = "" if each["goal"] is None else f"≤ {each['goal']:g}"
        print(f"{each['name']:56}{each['other_name']:>20}{each['ratio']:12.4f}{goal:>8} {met}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
