"""Federated Reconstruction of tiny users: many in one batched operation, next to a loop over users in plain torch.

    python benchmarks/fedrecon.py [--quick] [--json FILE] [--threads T]

Users as MovieLens-1M has them: 20 to 300 ratings of 3,706 items, 50 factors; at most 50 steps of five ratings rebuild a
user's vector, and as many update the items' (Singhal et al. 2021). All times are medians of turns, one contender after
the other. The loop has sparse gradients, so that a step of it moves the rows of its batch and no other.

1. Users a second, rebuilt and updated, with deltas clipped and added up; next to the loop, and next to the goal.
2. People a second who are served: their vector is rebuilt from all their ratings, and all items are predicted.
3. Peak memory of a round of ten times as many users.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rows import Row, seconds, shown
from torch import Tensor, nn

from sfumato._random import RandomSource
from sfumato.clipping import Flat
from sfumato.data import UserDataset, from_arrays
from sfumato.federated import FedRecon
from sfumato.models import recommender
from sfumato.sampling import Cohort
from sfumato.training import RoundContext

ITEMS, FACTORS = 3706, 50
UPDATED, SERVED, FASTER = 2000.0, 5000.0, 20.0  # users a second, people a second, times the loop
BATCH, STEPS, REBUILDING, UPDATING = 5, 50, 0.1, 0.5


def ratings(users: int) -> UserDataset:
    """Ratings of placeholder users, of about the lengths of MovieLens-1M's, which are at most 300 here."""
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(4.6, 1.0, users), 20, 300).astype(np.int64)
    items = np.concatenate([rng.choice(ITEMS, size, replace=False) for size in sizes])
    values = rng.integers(1, 6, len(items)).astype(np.float32)
    return from_arrays(items[:, None], values, np.repeat(np.arange(users), sizes))


def plan(at_once: int) -> FedRecon:
    """The paper's local work."""
    return FedRecon(
        rounds=1,
        clipping=1.0,
        noise=0.0,
        cohort=at_once,
        client={
            "at_once": at_once,
            "batch_size": BATCH,
            "learning_rate": UPDATING,
            "max_examples": BATCH * STEPS,
            "local": {"steps": STEPS, "batch_size": BATCH, "learning_rate": REBUILDING},
        },
    )


def ours(data: UserDataset, at_once: int) -> Callable[[], None]:
    """A round of everybody."""
    model = recommender("matrix_factorization", ITEMS, factors=FACTORS)
    contribution = plan(at_once).contribution(model, data, "cpu", 0)
    cohort, bound = Cohort.of_single_units(np.arange(len(data))), Flat(norm=1.0)
    theta, source = contribution.trained.initial, RandomSource.from_seed(0)
    total: Tensor | None = None

    def one() -> None:
        nonlocal total
        share = contribution.clipped_sum(RoundContext(theta, cohort, 0, bound, 1.0, source, total))
        total = share.total

    return one


def loop(data: UserDataset) -> Callable[[], None]:
    """The same arithmetic, user by user."""
    items = nn.Embedding(ITEMS, FACTORS, sparse=True)
    nn.init.normal_(items.weight, std=0.1)
    began = items.weight.detach().clone()
    total = torch.zeros_like(began, dtype=torch.float64)

    def steps(rows: np.ndarray, inputs: Tensor, values: Tensor, vector: Tensor, trained: nn.Parameter | Tensor) -> None:
        rate = UPDATING if trained is items.weight else REBUILDING
        optimizer = torch.optim.SGD([trained], rate)
        for start in range(0, min(len(rows), BATCH * STEPS), BATCH):
            part = rows[start : start + BATCH]
            optimizer.zero_grad()
            loss = (((items(inputs[part]) * vector).sum(1) - values[part]) ** 2).mean()
            loss.backward()
            optimizer.step()

    def one() -> None:
        rng = np.random.default_rng(0)
        for user in range(len(data)):
            ids, labels = data.examples(user)
            inputs, values = torch.from_numpy(ids[:, 0].copy()), torch.from_numpy(labels)
            order = rng.permutation(len(values))
            vector = nn.Parameter(torch.full((FACTORS,), 0.1))
            items.weight.requires_grad_(False)
            steps(order[: len(order) // 2], inputs, values, vector, vector)
            items.weight.requires_grad_(True)
            rest = order[len(order) // 2 :]
            steps(rest, inputs, values, vector.detach(), items.weight)
            with torch.no_grad():
                touched = inputs[rest].unique()
                delta = began[touched] - items.weight[touched]
                total.index_add_(0, touched, (delta * min(1.0, 1.0 / float(delta.norm()))).double())
                items.weight[touched] = began[touched]

    return one


def serving(data: UserDataset, at_once: int) -> Callable[[], None]:
    """Everybody's vector, and what it predicts of all items."""
    model = recommender("matrix_factorization", ITEMS, factors=FACTORS)
    chosen = plan(at_once)

    def one() -> None:
        personal = chosen.personalise(model, data)
        vectors = next(iter(personal.local_parameters.values()))
        weight = model.get_parameter("item_factors.weight").detach()
        for part in vectors.split(256):
            _ = part @ weight.T

    return one


def peak(users: int, at_once: int) -> float:
    """MiB that a round adds to a process that already holds the data."""
    command = [sys.executable, __file__, "--memory", str(users), str(at_once)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _memory(users: int, at_once: int) -> None:
    job = ours(ratings(users), at_once)
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = _resident("VmRSS")
    job()
    print(max(1.0, _resident("VmHWM") - before))


def _resident(what: str) -> float:
    """MiB of this process, now (VmRSS) or at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def main() -> int:
    """Run the benchmark; 0 whatever the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the users, one turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows of the table")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, metavar="T")
    parser.add_argument("--at-once", type=int, default=512, help="users in one batched operation")
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    at_once = arguments.at_once
    if arguments.memory:
        _memory(*map(int, arguments.memory))
        return 0
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.25 * cores:
        print(f"the machine is busy (load average {load:.1f}, {cores} cores): times mean little, ratios something")
    count, turns = (512, 1) if arguments.quick else (2048, 5)
    few = count // 32
    data = ratings(count)
    small = data.subset(np.arange(few))
    times = seconds({"ours": ours(data, at_once), "loop": loop(small), "serving": serving(data, at_once)}, turns)
    rates = {"ours": count / times["ours"], "loop": few / times["loop"], "serving": count / times["serving"]}
    rows: list[Row] = [
        shown("a user rebuilt and updated", 1e3 / rates["ours"], 1e3 / UPDATED, "limit", "ms", 1.0),
        shown(
            "a user rebuilt and updated", 1e3 / rates["ours"], 1e3 / rates["loop"], "loop in torch", "ms", 1 / FASTER
        ),
        shown("a person served", 1e3 / rates["serving"], 1e3 / SERVED, "limit", "ms", 1.0),
    ]
    print(f"  users a second: {rates['ours']:,.0f}, loop {rates['loop']:,.0f}; people served {rates['serving']:,.0f}")
    fewer, more = 4 * count, 40 * count
    name = f"memory of a round, {more:,} users"
    rows.append(shown(name, peak(more, at_once), peak(fewer, at_once), f"{fewer:,} users", "MiB", 1.25))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
