"""Noise that is correlated over rounds, its time and memory next to independent noise and two peers; limited cohorts.

    python benchmarks/correlated_noise.py [--quick] [--json FILE] [--threads T] [--no-peers]

1. The noise of a round on 10⁷ numbers: a tree, 16 bands, 4 buffers, 16 inverse bands, from round 65 on. Contenders run
   in processes of their own (`peers/correlated_worker.py`), one round each in turns; those that wait are stopped. A
   figure is the median over bursts of the mean over 16 rounds in a row, so that a tree's long merges are counted.
   jax-privacy and Opake have environments of their own, which this script makes where they are missing.
2. Optimising coefficients for 2,048 rounds, 4 participations, 511 rounds between two; with nothing remembered, and
   compiling included. Errors of what was found are computed by this project for both.
3. A cohort of 1,000 that sit out for 5 rounds, of 10⁴ to 10⁷ users; and the first cohort after a resume.

`ratio` = ours / other. Where the other one is a limit that was set, the goal is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fl_round import PEERS, Contender, Worker, WorkerError, python_of
from peers.correlated_worker import BANDS, LIMITS, ROUNDS, SCALES
from rows import Row, shown

from sfumato._random import RandomSource
from sfumato.accounting import Participation, strategies, strategy_search
from sfumato.sampling import MinSeparation

OURS, INDEPENDENT = "sfumato", "independent"
PEER_KINDS = {"jax-privacy": ("banded", "BLT"), "opake": ("banded", "BLT", "BISR")}
ENVIRONMENTS = {"jax-privacy": "jax-privacy", "opake": "opake-dpftrl"}
GOALS = {"tree": 1.5, "plain tree": 1.5, "banded": 2.0, "BLT": 2.0, "BISR": None}
VECTORS = {"tree": ROUNDS.bit_length(), "plain tree": ROUNDS.bit_length(), "banded": BANDS, "BLT": len(SCALES)}
VECTORS["BISR"] = BANDS
BURST = 16
COHORT, RESTING = 1000, 5


def contender(name: str, **config: Any) -> Contender:
    """A worker, in its environment."""
    return Contender(name, "correlated_worker.py", {"contender": name, **config}, ENVIRONMENTS.get(name))


def install() -> list[str]:
    """The peers that are there, or could be installed."""
    found = []
    for peer, environment in ENVIRONMENTS.items():
        if not python_of(contender(peer)).exists():
            print(f"making the environment of {peer}", flush=True)
            subprocess.run([str(PEERS / "setup.sh"), environment], check=False)
        if python_of(contender(peer)).exists():
            found.append(peer)
        else:
            print(f"{peer} could not be installed")
    return found


def step_times(kind: str, size: int, threads: int, bursts: int, peers: list[str], logs: Path) -> list[Row]:
    """One kind of noise: ours, ours without correlation, and the peers that have it."""
    takers = [(OURS, INDEPENDENT), (OURS, kind)]
    takers += [(peer, kind) for peer in peers if kind in PEER_KINDS[peer]]
    takers += [(peer, INDEPENDENT) for peer in peers if kind == "banded"]  # once is enough
    workers: dict[tuple[str, str], Worker] = {}
    answers: dict[tuple[str, str], list[Row]] = {}
    try:
        for name, each in takers:
            worker = Worker.start(contender(name, kind=each, size=size, threads=threads), f"{name}-{each}", logs)
            try:
                worker.expect_ready()
                for _ in range(2):  # the first one compiles, or draws all rounds before again
                    worker.send("round")
                    worker.answer()
                worker.pause()
                workers[name, each], answers[name, each] = worker, []
            except (WorkerError, OSError, ValueError) as error:
                print(f"  {name}, {each}: {str(error).splitlines()[-1].strip()[:100]}")
                worker.end()
        for _ in range(bursts * BURST):
            for taker, worker in workers.items():
                answers[taker].append(_round(worker))
    finally:
        for worker in workers.values():
            worker.end()
    wall = {taker: _typical([answer["ms"] for answer in found]) for taker, found in answers.items()}
    work = {taker: _typical([answer["cpu"] for answer in found]) for taker, found in answers.items()}
    last = {taker: found[-1] for taker, found in answers.items()}
    ours, plain = (OURS, kind), (OURS, INDEPENDENT)
    rows = [shown(f"noise of a round, {kind}", wall[ours], wall[plain], INDEPENDENT, "ms", GOALS[kind])]
    rows.append(shown(f"the same, processor time, {kind}", work[ours], work[plain], INDEPENDENT, "ms", None))
    vectors = last[ours]["kept"] * 2**20 / 4 / size
    rows.append(shown(f"kept vectors, {kind}", vectors, VECTORS[kind], "limit", "", 1.0))
    for taker in wall:
        if taker[0] != OURS:
            mine = ours if taker[1] == kind else plain
            goal = 1.0 if taker[1] == kind else None
            rows.append(shown(f"noise of a round, {taker[1]}", wall[mine], wall[taker], taker[0], "ms", goal))
            rows.append(
                shown(f"peak memory, {taker[1]}", last[mine]["peak"], last[taker]["peak"], taker[0], "MiB", None)
            )
    rows.append(shown(f"peak memory, {kind}", last[ours]["peak"], last[plain]["peak"], INDEPENDENT, "MiB", None))
    return rows


def _round(worker: Worker) -> Row:
    """Wake up, do one round, stop; all that the worker says of it."""
    os.killpg(worker.process.pid, signal.SIGCONT)
    worker.send("round")
    answer: Row = worker.answer()
    worker.pause()
    return answer


def _typical(values: list[float]) -> float:
    """Median over bursts of the mean of each."""
    return statistics.median(statistics.fmean(values[at : at + BURST]) for at in range(0, len(values), BURST))


def optimising(turns: int, quick: bool, peers: list[str], logs: Path) -> list[Row]:
    """Time of the searches, and the errors of what they find."""
    orders: list[Row] = [{"bands": bands, "error": error} for bands in (16, 64) for error in ("mean", "max")]
    orders += [{"buffers": count, "error": error} for count in (2, 3, 4) for error in ("mean", "max")]
    if quick:
        orders = orders[:1]  # compiling the search for buffers takes the peer long
    orders.append({"error": "mean"})
    names = [OURS, *(peer for peer in peers if peer == "jax-privacy")]
    workers = {name: Worker.start(contender(name), f"optimise-{name}", logs) for name in names}
    rows = []
    try:
        for worker in workers.values():
            worker.expect_ready()
            worker.pause()
        for order in orders:
            answers: dict[str, list[Row]] = {name: [] for name in names}
            for _ in range(turns):
                for name in names if len(order) > 1 else [OURS]:  # no other one searches for BISR's bands
                    os.killpg(workers[name].process.pid, signal.SIGCONT)
                    workers[name].send(json.dumps(order))
                    answers[name].append(workers[name].answer())
                    workers[name].pause()
            rows += _searched(order, answers)
    except WorkerError as error:
        print(f"  {error}")
    finally:
        for worker in workers.values():
            worker.end()
    return rows


def _searched(order: Row, answers: dict[str, list[Row]]) -> list[Row]:
    error = order["error"]
    limits = Participation(**LIMITS)
    what = next((f"{order[word]} {word}" for word in ("bands", "buffers") if word in order), "BISR")
    ms = {name: statistics.median(each["ms"] for each in found) for name, found in answers.items() if found}
    rows = [shown(f"optimising {what}, {error}", ms[OURS], 3000.0, "limit", "ms", 1.0)]
    for name in ms:
        if name == OURS:
            continue
        rows.append(shown(f"optimising {what}, {error}", ms[OURS], ms[name], name, "ms", 1.0))
        if "bands" in order:
            ours: strategies.Strategy = strategy_search.optimize_banded(limits, bands=order["bands"], error=error)
        else:
            ours = strategy_search.optimize_blt(limits, buffers=order["buffers"], error=error)
        theirs = strategies.BandedToeplitz(tuple(answers[name][-1]["coefficients"]))
        pair = [strategies.root_error(each, limits, error) for each in (ours, theirs)]
        rows.append(shown(f"root error, {what}, {error}", *pair, name, "", None))
    return rows


def cohorts(quick: bool) -> list[Row]:
    """Time of a cohort next to the population, in order and after a resume."""
    populations = [10**4, 10**5, 10**6, 10**7]
    rounds, resumed = (50, 20) if quick else (400, 200)
    source = RandomSource.from_os()

    def plan(population: int) -> MinSeparation:
        return MinSeparation(size=COHORT, population=population, min_separation=RESTING, rounds=rounds)

    plans = {population: plan(population) for population in populations}
    times: dict[int, list[float]] = {population: [] for population in populations}
    for round in range(rounds):
        for population, sampling in plans.items():
            start = time.perf_counter()
            sampling.draw(population, round, source)
            if round:  # the first one makes the log
                times[population].append(1e3 * (time.perf_counter() - start))
    ms = {population: statistics.median(found) for population, found in times.items()}
    rows = []
    for population in populations:
        goal = 1.5 if population == 10**7 else None
        rows.append(shown(f"a cohort of {population:,}", ms[population], ms[10**5], "of 100,000", "ms", goal))
    for population in populations:
        start = time.perf_counter()
        plan(population).draw(population, resumed, source)
        took, again = 1e3 * (time.perf_counter() - start), (resumed + 1) * ms[population]
        name = f"first cohort after round {resumed}, of {population:,}"
        rows.append(shown(name, took, again, "these rounds in order", "ms", None))
    return rows


def main() -> int:
    """Run the benchmark; 0 whatever the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the numbers, one burst, few searches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, metavar="T")
    parser.add_argument("--no-peers", action="store_true", help="this project alone; nothing is installed")
    arguments = parser.parse_args()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): times mean little, ratios something")
    peers = [] if arguments.no_peers else install()
    quick = arguments.quick
    size, bursts, turns = (1_000_000, 1, 1) if quick else (10_000_000, 3, 3)
    rows: list[Row] = []

    def keep(found: list[Row]) -> None:
        rows.extend(found)
        if arguments.json:  # what was measured stays, whatever comes next
            arguments.json.write_text(json.dumps(rows, indent=2) + "\n")

    with tempfile.TemporaryDirectory() as logs:
        for kind in GOALS:
            print(f"{kind}: ours, other, ratio")
            keep(step_times(kind, size, arguments.threads, bursts, peers, Path(logs)))
        print("coefficients")
        keep(optimising(turns, quick, peers, Path(logs)))
    print("cohorts")
    keep(cohorts(quick))
    return 0


if __name__ == "__main__":
    sys.exit(main())
