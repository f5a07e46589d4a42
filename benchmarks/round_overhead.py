"""What privacy costs in time: a private round against the same local training without clip, noise, ledger, checkpoint.

    python benchmarks/round_overhead.py [--quick] [--json FILE]

One run of `fit` writes its folder with a checkpoint every round. Between its rounds, inside the server's optimiser, the
same cohort trains once more without privacy: its deltas are only added up. So the two take turns in one process on the
same data. `ratio` = private / plain, of medians; `goal` is the largest ratio that meets the goal.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato import data, models
from sfumato._random import RandomSource
from sfumato.federated import FedAvg
from sfumato.training import RoundContext, RunOptions

GOAL = 1.05


class Alternating(torch.optim.SGD):
    """SGD that, after its step, lets the same cohort train without privacy, and keeps both times."""

    def __init__(self, parameters: list[torch.nn.Parameter], plain: Any) -> None:
        super().__init__(parameters, lr=1.0)
        self.private: list[float] = []
        self.plain: list[float] = []
        self._train = plain
        self._start: float | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step; note the private round that ends here; time a plain one."""
        super().step(closure)
        if self._start is not None:
            self.private.append(time.perf_counter() - self._start)
        start = time.perf_counter()
        self._train()
        self.plain.append(time.perf_counter() - start)
        self._start = time.perf_counter()


def measure(name: str, plan: FedAvg, model: torch.nn.Module, users: data.UserDataset, rounds: int) -> dict[str, Any]:
    """Medians of both kinds of rounds."""
    source = RandomSource.from_seed(0)
    cohort = plan.cohort.grouping.group(np.arange(len(users)), 0, source)
    twin = plan.contribution(model, users, "cpu", 0)
    theta = twin.trained.initial
    made: list[Alternating] = []

    def make(parameters: list[torch.nn.Parameter]) -> Alternating:
        made.append(
            Alternating(
                parameters, lambda: twin.clipped_sum(RoundContext(theta, cohort, 0, plan.clipping, None, source))
            )
        )
        return made[0]

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan.fit(model, users, out=Path(folder) / "run", options=RunOptions(optimizer=make, checkpoint_every=1))
    private = 1000 * statistics.median(made[0].private[1:])
    plain = 1000 * statistics.median(made[0].plain[1:])
    return {
        "name": f"private round, {name}",
        "ours": round(private, 2),
        "other": round(plain, 2),
        "other_name": "the same local training, deltas added up",
        "unit": "ms",
        "ratio": round(private / plain, 4),
        "goal": GOAL,
        "met": private / plain <= GOAL,
    }


def people(count: int, records: int) -> data.UserDataset:
    """Random pictures with 62 labels."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (count * records, 28, 28, 1), dtype=np.uint8)
    labels = rng.integers(0, 62, count * records)
    labels[:62] = np.arange(62)
    return data.from_arrays(pictures, labels, np.repeat(np.arange(count), records))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 6 if options.quick else 20
    common = {"noise": 1.0, "client.max_examples": None, "client.momentum": 0.0, "rounds": rounds}
    lenet = FedAvg(cohort=32, client={"batch_size": 32}, **common)
    linear = FedAvg(cohort=500, client={"batch_size": 10, "at_once": 500}, **common)
    rows = [
        measure("LeNet, 32 clients × 64", lenet, models.lenet(), people(32, 64), rounds),
        measure("linear, 500 clients × 20", linear, torch.nn.Flatten(), people(500, 20), rounds),
    ]
    for row in rows:
        print(
            f"{row['name']:40} {row['ours']:9.1f} ms  plain {row['other']:9.1f} ms  "
            f"ratio {row['ratio']:.3f}  goal {row['goal']}  {'met' if row['met'] else 'missed'}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
