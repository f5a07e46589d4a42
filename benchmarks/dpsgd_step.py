"""Time and memory of one step of DP-SGD: without privacy, sfumato, Opacus with hooks and with ghost clipping, Opake.

    python benchmarks/dpsgd_step.py [--quick] [--json FILE] [--settings NAME ...] [--threads N]
    python benchmarks/dpsgd_step.py --device cuda [--times 16] …

A step is the whole of it: forward, backward, clipping, noise on every parameter, and SGD. `… (no noise)` leaves the
noise out on both sides: with an embedding of a million rows, drawing noise for every row is a cost that no clipping
engine can take away. The models are in `peers/dpsgd_models.py`; the peers need `benchmarks/peers/setup.sh opacus` and
`… opake`.

Every contender is a process of its own; steps are interleaved and only one process works at a time. Memory is the peak
of the whole process, with `--device cuda` that of the GPU, where `--times` as many examples make a batch. `ratio` =
ours / other, of medians; `goal` is the largest ratio that meets it; of the peers the fastest counts. `checks` is what
is tried before the first step and during 1,000 steps, next to these steps. `loop` is a step of a training loop of one's
own (`DPSGD.open`) with all that a run does; its ratio is loop / engine. `fit` is a step of `DPSGD.fit` on arrays. The
last loop has a process that reads ahead; its ratio is loop / fit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fl_round import OURS, Contender, Worker, WorkerError, python_of

PLAIN = "non-private"
MODES = ("Opacus hooks", "Opacus ghost", "Opake")
LOOP, FIT, LOOP_GOAL = "loop", "fit", 1.03
FED, FED_GOAL = "loop, 1 worker", 1 / 0.95
MEMORY_GOAL = 1.3
CHECKS, CHECKED_STEPS, CHECKS_GOAL = "checks", 1000, 0.02
# setting: (noise, goal against non-private, goal against the fastest peer)
SETTINGS: dict[str, tuple[bool, float, float]] = {
    "lenet": (True, 1.3, 0.5),
    "resnet20": (True, 1.25, 0.5),
    "bilstm": (True, 1.8, 0.5),
    "encoder": (True, 1.4, 0.6),
    "bert-tiny": (True, 1.3, 0.6),
    "gpt2-tiny": (True, 1.3, 0.6),
    "lora": (True, 1.3, 0.6),
    "ctr-1024": (True, 1.15, 0.2),
    "ctr-1024 (no noise)": (False, 1.15, 0.2),
    "ctr-16384": (True, 1.15, 0.2),
    "ctr-16384 (no noise)": (False, 1.15, 0.2),
}


def contenders(setting: str, threads: int, device: str, times: int) -> list[Contender]:
    """Everybody who takes part; the setting's name goes to the worker without its remark."""
    common = {"threads": threads, "device": device, "times": times}
    common |= {"noise": SETTINGS[setting][0], "setting": setting.split()[0]}
    return [
        Contender(PLAIN, "dpsgd_plain.py", common),
        Contender(OURS, "dpsgd_ours.py", common),
        Contender(LOOP, "dpsgd_loop.py", common),
        Contender(FIT, "dpsgd_fit.py", common),
        Contender(FED, "dpsgd_loop.py", {**common, "workers": 1}),
        Contender(CHECKS, "dpsgd_checks.py", common),
        Contender(MODES[0], "peer_opacus.py", {**common, "mode": "hooks"}, "opacus"),
        Contender(MODES[1], "peer_opacus.py", {**common, "mode": "ghost"}, "opacus"),
        Contender(MODES[2], "peer_opake.py", common, "opake"),
    ]


def peak(worker: Worker) -> float:
    """Peak memory of the process, or of what it holds on the GPU, in MiB."""
    if worker.contender.config["device"] != "cpu":
        os.killpg(worker.process.pid, signal.SIGCONT)
        worker.send("memory")
        return worker.answer()["MiB"]
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def run(
    setting: str, threads: int, device: str, times: int, rounds: int, seconds: float, logs: Path
) -> tuple[dict[str, list[float]], dict[str, float], dict[str, list[float]], dict[str, str]]:
    """Times in ms, peak memory, losses before and after the warm-up, and why somebody could not take part."""
    workers: list[Worker] = []
    failed: dict[str, str] = {}
    try:
        for contender in contenders(setting, threads, device, times):
            if not python_of(contender).exists():
                failed[contender.name] = f"not installed; run benchmarks/peers/setup.sh {contender.environment}"
                continue
            worker = Worker.start(contender, setting.replace(" ", "-"), logs)
            try:
                worker.expect_ready()
                warm_up = [] if contender.name == CHECKS else ["round", "round"]
                for order in ("loss", *warm_up, "loss"):
                    worker.send(order)
                answers = [worker.answer() for _ in range(2 + len(warm_up))]
                worker.losses = [answers[0]["loss"], answers[-1]["loss"]]
                worker.pause()
                workers.append(worker)
            except (WorkerError, OSError, ValueError) as error:
                failed[contender.name] = str(error).splitlines()[-1].strip()
                worker.end()
        end = time.monotonic() + seconds
        for index in range(rounds):
            if index and time.monotonic() > end:
                break
            for worker in list(workers):
                if index and worker.contender.name == CHECKS:  # once in a run, as the program is cold
                    continue
                try:
                    worker.timed_round()
                except WorkerError as error:
                    failed[worker.contender.name] = str(error).splitlines()[-1].strip()
                    workers.remove(worker)
                    worker.end()
        memory = {worker.contender.name: peak(worker) for worker in workers}
    finally:
        for worker in workers:
            worker.end()
    times = {worker.contender.name: worker.times for worker in workers}
    return times, memory, {worker.contender.name: worker.losses for worker in workers}, failed


def rows_of(setting: str, times: dict[str, list[float]], memory: dict[str, float]) -> list[dict[str, Any]]:
    """One row a comparison: time against non-private and each mode of Opacus, memory against non-private."""
    _, against_plain, against_peer = SETTINGS[setting]
    medians = {name: statistics.median(found) for name, found in times.items()}
    best = min((name for name in MODES if name in medians), key=medians.__getitem__, default=None)
    rows = []

    def row(what: str, other: str, unit: str, values: dict[str, float], goal: float | None) -> None:
        ratio = values[OURS] / values[other]
        rows.append(
            {
                "name": f"DP-SGD step, {setting}{what}",
                "ours": round(values[OURS], 2),
                "other": round(values[other], 2),
                "other_name": other,
                "unit": unit,
                "ratio": round(ratio, 4),
                "goal": goal,
                "met": None if goal is None else ratio <= goal,
            }
        )

    for other in (PLAIN, *MODES):
        if other in medians and OURS in medians:
            row("", other, "ms", medians, against_plain if other == PLAIN else against_peer if other == best else None)
    if LOOP in medians and OURS in medians:
        row(", own loop", "sfumato's engine", "ms", {OURS: medians[LOOP], "sfumato's engine": medians[OURS]}, LOOP_GOAL)
        if FIT in medians:
            row(", own loop", FIT, "ms", {OURS: medians[LOOP], FIT: medians[FIT]}, None)
    if FED in medians and FIT in medians:
        row(", own loop, 1 worker", FIT, "ms", {OURS: medians[FED], FIT: medians[FIT]}, FED_GOAL)
    if CHECKS in medians and OURS in medians:
        name, steps = f"{CHECKED_STEPS:,} steps", CHECKED_STEPS * medians[OURS]
        row(f", checks in {name}", name, "ms", {OURS: medians[CHECKS], name: steps}, CHECKS_GOAL)
    for other in (PLAIN, *MODES):
        if other in memory and OURS in memory:
            row(", peak memory", other, "MiB", memory, MEMORY_GOAL if other == PLAIN else None)
    return rows


def main() -> int:
    """Run the benchmark; 0 if everybody who took part did the same work, whatever the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="two timed steps each, the small settings only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS))
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--times", type=int, default=1, help="as many examples in a batch, and at once")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    small = [name for name in SETTINGS if not name.startswith("ctr-16384")]
    chosen = arguments.settings or (small if arguments.quick else list(SETTINGS))
    rounds, seconds = (2, 10.0) if arguments.quick else (15, 120.0)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): these times mean little")
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    print(f"{'setting':22}{'contender':16}{'median ms':>10}{'least':>9}{'MiB':>8}{'ratio':>8}{'goal':>7}  met")
    with tempfile.TemporaryDirectory() as logs:
        for setting in chosen:
            times, memory, losses, failed = run(
                setting, arguments.threads, arguments.device, arguments.times, rounds, seconds, Path(logs)
            )
            found = rows_of(setting, times, memory)
            rows += found
            by_name = {row["other_name"]: row for row in found if row["unit"] == "ms"}
            by_name[CHECKS] = by_name.pop(f"{CHECKED_STEPS:,} steps", {})
            by_name[LOOP] = by_name.pop("sfumato's engine", {})
            by_name[FED] = by_name.pop(FIT, {})  # the later of the two rows next to fit
            for name, values in times.items():
                row = by_name.get(name, {})
                ratio, goal, met = (row.get(key) for key in ("ratio", "goal", "met"))
                print(
                    f"{setting:22}{name:16}{statistics.median(values):10.1f}{min(values):9.1f}{memory[name]:8.0f}"
                    f"{'' if ratio is None else f'{ratio:.3f}':>8}{'' if goal is None else f'{goal:.2f}':>7}"
                    f"  {'' if met is None else 'yes' if met else 'NO'}"
                )
            kept = next((row for row in found if row["unit"] == "MiB" and row["other_name"] == PLAIN), None)
            if kept:
                print(
                    f"{setting:22}{'peak memory':16}{kept['ratio']:>43.3f}{kept['goal']:7.2f}  {_answer(kept['met'])}"
                )
            for name, why in failed.items():
                print(f"{setting:22}{name:16} could not run: {why[:90]}")
            after = {name: pair[1] for name, pair in losses.items() if name not in (PLAIN, FIT, CHECKS)}
            if OURS not in after:
                problems.append(f"{setting}: sfumato could not run")
            elif max(after.values()) - min(after.values()) > 0.02 * abs(after[OURS]):
                problems.append(f"{setting}: losses after two steps differ, not the same work: {after}")
            sys.stdout.flush()
            if arguments.json:  # what was measured stays, whatever comes next
                arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _answer(met: bool) -> str:
    return "yes" if met else "NO"


if __name__ == "__main__":
    sys.exit(main())
