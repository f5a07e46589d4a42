"""Memory of a round against the cohort and the population, and the time to the first round with 10⁶ users.

    python benchmarks/round_memory.py [--quick] [--json FILE]

Each measurement is a fresh process that opens a packed store and runs two rounds of private FedAvg. Memory is the
process's own (RssAnon, looked at every 2 ms): pages of the mapped store are the system's cache and can be dropped at
any time. `ratio` = peak with the larger cohort or population / peak with the smaller one; the goal is that it does not
grow. The start is the time from opening the store to the beginning of the first client's training, Python's imports
(torch._dynamo among them, which torch's optimisers load) done before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from store import build

GROWTH, START = 1.05, 2.0

CHILD = """
import sys, threading, time, warnings
import torch
import torch._dynamo
from torch import nn
from sfumato import data
from sfumato.federated import FedAvg
warnings.simplefilter("ignore")
torch.set_num_threads(1)
path, cohort = sys.argv[1], int(sys.argv[2])
peak = 0
def watch():
    global peak
    while True:
        with open("/proc/self/status") as file:
            peak = max(peak, next(int(line.split()[1]) for line in file if line.startswith("RssAnon")))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
start = time.perf_counter()
class Backbone(nn.Sequential):
    calls = 0
    def forward(self, x):
        if self.training and torch.is_grad_enabled() and not Backbone.calls:
            Backbone.calls = time.perf_counter() - start
        return super().forward(x)
users = data.open_users(path)
model = Backbone(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 64))
FedAvg(rounds=2, cohort=cohort, noise=1.0, client={"threads": 1}).fit(model, users)
print(Backbone.calls, peak * 1024)
"""


def measure(path: Path, cohort: int) -> tuple[float, float]:
    """Seconds to the first client, peak bytes."""
    command = [sys.executable, "-c", CHILD, str(path), str(cohort)]
    seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    many, few = (100_000, 2_000) if options.quick else (1_000_000, 2_000)
    rows = []

    def row(name: str, ours: float, other: float, other_name: str, unit: str, goal: float) -> None:
        ratio = ours / other
        rows.append(
            {"name": name, "ours": round(ours, 3), "other": round(other, 3), "other_name": other_name, "unit": unit,
             "ratio": round(ratio, 3), "goal": goal, "met": ratio <= goal}
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "few", few)
        build(Path(folder) / "many", many)
        _, small = measure(Path(folder) / "few", 20)
        _, large = measure(Path(folder) / "few", 1000)
        start, population = measure(Path(folder) / "many", 20)
    mib = 2**20
    row("peak memory, cohort of 1,000", large / mib, small / mib, "cohort of 20", "MiB", GROWTH)
    row(f"peak memory, {many:,} users", population / mib, small / mib, f"{few:,} users", "MiB", GROWTH)
    row(f"start with {many:,} users", start, START, "limit", "s", 1.0)
    for line in rows:
        print(
            f"{line['name']:34} {line['ours']:9.2f} {line['unit']:4} {line['other_name']}: {line['other']:9.2f}  "
            f"ratio {line['ratio']:.3f}  goal {line['goal']}  {'met' if line['met'] else 'missed'}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
