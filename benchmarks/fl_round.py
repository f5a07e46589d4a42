"""Time of one private federated round: sfumato, a bare torch loop, pfl-research and Flower, side by side.

    python benchmarks/fl_round.py [--quick] [--json FILE] [--settings lenet linear]

All contenders do the work that `peers/workload.py` describes, each in its own process (peers in their own environment:
`benchmarks/peers/setup.sh pfl`, `… flower`). Rounds are interleaved (ours, other, ours, other, …); only one process
works at a time, the others are stopped. A missing peer is named and skipped.

`ratio` = ours / other, of medians. `goal` is the largest ratio that meets the goal: 1.05 times the bare loop and 1.15
times faster than pfl with LeNet, 10 times faster than pfl and at most twice the batched
arithmetic alone with the linear model, 5 times faster than Flower with both, 1.3 times faster than pfl on what is
trained behind a kept prefix ("features").
Losses before and after the warm-up rounds show that all contenders do the same work; the program fails if they do not.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"
OURS, BARE = "sfumato", "bare torch loop"


@dataclass(frozen=True)
class Contender:
    """A worker script, the environment it needs (None: this one), and its best configuration (found by trying)."""

    name: str
    script: str
    config: dict[str, Any]
    environment: str | None = None
    goal: float | None = None


SETTINGS: dict[str, list[Contender]] = {
    # 32 clients × 64 images 28×28×1, batch 32
    "lenet": [
        Contender(OURS, "ours.py", {"threads": 2}),
        Contender(BARE, "bare.py", {"threads": 2}, goal=1.05),
        Contender("bare, channels_last", "bare.py", {"threads": 2, "channels_last": True}),
        Contender("pfl", "peer_pfl.py", {"threads": 2}, "pfl", goal=1 / 1.15),
        Contender("Flower", "peer_flower.py", {"threads": 1, "actors": 2}, "flower", goal=1 / 5),
    ],
    # 784 → 10, 500 clients × 20 images, batch 10
    "linear": [
        Contender(OURS, "ours.py", {"threads": 2, "at_once": 500}),
        Contender(BARE, "bare.py", {"threads": 1}),
        Contender("bare torch.func.vmap", "bare.py", {"threads": 2, "batched": True}, goal=2.0),
        Contender("pfl", "peer_pfl.py", {"threads": 1}, "pfl", goal=1 / 10),
        Contender("Flower", "peer_flower.py", {"threads": 1, "actors": 2}, "flower", goal=1 / 5),
    ],
    # 512 → 64 → 128, 512 clients × 2 rows: what a round trains behind a kept prefix
    "features": [
        Contender(OURS, "ours.py", {"threads": 2, "at_once": 128}),
        Contender(BARE, "bare.py", {"threads": 1}),
        Contender("pfl", "peer_pfl.py", {"threads": 1}, "pfl", goal=1 / 1.3),
    ],
}


class WorkerError(Exception):
    """A worker ended or answered nonsense; the message has the end of its log."""


@dataclass
class Worker:
    """A running contender; stopped (SIGSTOP) unless it is its turn, since an idle simulation still uses the cores."""

    contender: Contender
    process: subprocess.Popen[str]
    log: Path
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, contender: Contender, setting: str, logs: Path) -> Worker:
        """Start it; `expect_ready` waits for it."""
        log = logs / f"{setting}-{contender.name.replace(' ', '-')}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [str(python_of(contender)), contender.script, json.dumps({"setting": setting, **contender.config})],
                cwd=PEERS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        return cls(contender, process, log)

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            last = "\n    ".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise WorkerError(f"{self.contender.name} ended early; the end of its log:\n    {last}")
        return line

    def send(self, order: str) -> None:
        """Give an order without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, float]:
        """The answer to the oldest order."""
        return json.loads(self._read())

    def expect_ready(self) -> None:
        """Wait until it is prepared."""
        if (line := self._read()) != "ready":
            raise WorkerError(f"{self.contender.name} said {line!r} instead of 'ready'")

    def pause(self) -> None:
        """Stop the whole process group."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def timed_round(self) -> None:
        """Wake up, do one round, stop."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.send("round")
        self.times.append(self.answer()["ms"])
        self.pause()

    def end(self) -> None:
        """End it in an orderly way; kill the group if it does not listen."""
        try:
            os.killpg(self.process.pid, signal.SIGCONT)
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


def python_of(contender: Contender) -> Path:
    """The interpreter of a contender's environment."""
    if contender.environment is None:
        return Path(sys.executable)
    return ROOT / ".cache" / "peers" / contender.environment / "bin" / "python"


def warm_up(groups: dict[str, list[Worker]], rounds: int) -> list[str]:
    """Untimed rounds, one worker after the other; losses before and after. Takes out those that fail, says why."""
    problems = []
    for workers in groups.values():
        for worker in list(workers):
            try:
                worker.expect_ready()
                for order in ("loss", *["round"] * rounds, "loss"):
                    worker.send(order)
                answers = [worker.answer() for _ in range(rounds + 2)]
                worker.losses = [answers[0]["loss"], answers[-1]["loss"]]
                worker.pause()
            except (WorkerError, OSError, ValueError) as error:
                problems.append(str(error))
                worker.end()
                workers.remove(worker)
    return problems


def measure(workers: list[Worker], rounds: int, seconds: float) -> None:
    """Timed rounds, interleaved: ours before each of the others. Every pair has one, however long it takes."""
    end = time.monotonic() + seconds
    ours = [w for w in workers if w.contender.name == OURS]
    others = [w for w in workers if w.contender.name != OURS]
    for _ in range(rounds):
        for other in others:
            if other.times and time.monotonic() > end:
                return
            for worker in (*ours, other):
                worker.timed_round()


def same_work(workers: list[Worker]) -> list[str]:
    """Contenders whose loss did not fall as the bare loop's did (by 20 % more or less)."""
    falls = {w.contender.name: w.losses[0] - w.losses[1] for w in workers}
    expected = falls.get(BARE, 0.0)
    if expected <= 0:
        return [f"the loss of the {BARE} did not fall, or is missing"]
    return [
        f"the loss of {name} fell by {fall:.4f}, that of the {BARE} by {expected:.4f}: not the same work"
        for name, fall in falls.items()
        if abs(fall - expected) > 0.2 * expected
    ]


def rows_of(setting: str, workers: list[Worker]) -> list[dict[str, Any]]:
    """One row for each pair of ours and another contender."""
    medians = {w.contender.name: statistics.median(w.times) for w in workers}
    ours = medians.get(OURS)
    rows = []
    for worker in workers:
        contender = worker.contender
        if contender.name == OURS:
            continue
        ratio = None if ours is None else ours / medians[contender.name]
        rows.append(
            {
                "name": f"private federated round, {setting}",
                "ours": None if ours is None else round(ours, 2),
                "other": round(medians[contender.name], 2),
                "other_name": contender.name,
                "unit": "ms",
                "ratio": None if ratio is None else round(ratio, 4),
                "goal": None if contender.goal is None else round(contender.goal, 4),
                "met": None if ratio is None or contender.goal is None else ratio <= contender.goal,
            }
        )
    return rows


def print_table(setting: str, workers: list[Worker], rows: list[dict[str, Any]]) -> None:
    """Times and ratios of a setting."""
    print(f"\n{setting}: milliseconds a round")
    print(f"  {'':22}{'median':>9}{'least':>9}{'rounds':>8}{'ratio':>8}{'goal':>8}  met   loss before → after")
    by_name = {row["other_name"]: row for row in rows}
    for worker in workers:
        row = by_name.get(worker.contender.name, {})
        ratio, goal, met = (row.get(key) for key in ("ratio", "goal", "met"))
        print(
            f"  {worker.contender.name:22}{statistics.median(worker.times):9.1f}{min(worker.times):9.1f}"
            f"{len(worker.times):8}{'' if ratio is None else f'{ratio:.3f}':>8}"
            f"{'' if goal is None else f'{goal:.3f}':>8}  {'' if met is None else 'yes' if met else 'NO':6}"
            f"{worker.losses[0]:.4f} → {worker.losses[1]:.4f}"
        )


def main() -> int:
    """Run the benchmark; 0 if every contender worked and did the same work, whatever the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="at most two timed rounds each; ends within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    arguments = parser.parse_args()
    warm, rounds, seconds = (1, 2, 12.0) if arguments.quick else (3, 9, 600.0)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        # OpenMP's threads wait by spinning: where others want the cores too, two threads are far slower than one.
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): these times mean little")
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    groups: dict[str, list[Worker]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as logs:
        try:
            for setting in arguments.settings:
                groups[setting] = []
                for contender in SETTINGS[setting]:
                    if python_of(contender).exists():
                        groups[setting].append(Worker.start(contender, setting, Path(logs)))
                    else:
                        run = f"benchmarks/peers/setup.sh {contender.environment}"
                        print(f"{contender.name}: not installed; run {run}")
            problems += warm_up(groups, warm)
            for setting, workers in groups.items():
                measure(workers, rounds, seconds)
                found = rows_of(setting, workers)
                print_table(setting, workers, found)
                rows += found
                problems += [f"{setting}: {problem}" for problem in same_work(workers)]
        except WorkerError as error:
            problems.append(str(error))
        finally:
            for workers in groups.values():
                for worker in workers:
                    worker.end()
    print(f"\n{time.monotonic() - began:.0f} s in all")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
