"""Votes: nearest records next to scikit-learn's, a tally in the clear, and what an agent uploads next to DP-FedAvg.

    python benchmarks/vote.py [--quick] [--json FILE]

- Neighbours: the votes of all agents on all queries, 100 agents x 1,000 records x 1,000 queries x 512 features, next to
  scikit-learn's `NearestNeighbors` (brute force), in turns, both on one thread. Ours compares whole numbers, so that
  one record exchanges at most one neighbour; scikit-learn's ties and roundings depend on all records. The goal is 5 s
  for all of it. The program fails if the two disagree on more than one vote in a hundred.
- Tally: 500 queries of 200 agents on 10 classes. In the clear from ballots to answers, at most 50 ms; by three
  talliers, processes of their own that are connected over loopback, from the first ballot to the answers, at most 10 s.
- Upload: the ballots of one agent, two bytes a count, and its shares for three talliers, next to what DP-FedAvg sends
  in 100 rounds of a LeNet-5, four bytes a parameter. All follow from the shapes.
"""

from __future__ import annotations

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rows import Row, shown
from sklearn.neighbors import NearestNeighbors

from sfumato._random import RandomSource
from sfumato.models import lenet5
from sfumato.voting.multi_party.shares import FIELD
from sfumato.voting.multi_party.tally import MultiPartyTally
from sfumato.voting.neighbours import NearestRecords
from sfumato.voting.question import Question
from sfumato.voting.tally import ClearTally, Tally

CLASSES, K = 10, 8
LIMIT_SECONDS, LIMIT_TALLY_MS, LIMIT_PRIVATE_SECONDS = 5.0, 50.0, 10.0
ROUNDS = 100


def timed(act: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    found = act()
    return time.perf_counter() - began, found


def neighbours(agents: int, records: int, queries: int, features: int, repeats: int) -> list[Row]:
    """Processor seconds for all agents, and ours against the limit."""
    rng = np.random.default_rng(1)
    asked = rng.standard_normal((queries, features), dtype=np.float32)
    held = rng.standard_normal((agents, records, features), dtype=np.float32)
    labels = rng.integers(0, CLASSES, (agents, records))

    def ours() -> np.ndarray:
        nearest = NearestRecords(asked, neighbours=K, classes=CLASSES)
        return np.stack([nearest.votes(held[a], labels[a]) for a in range(agents)])

    def theirs() -> np.ndarray:
        votes = []
        for a in range(agents):
            found = NearestNeighbors(n_neighbors=K, algorithm="brute").fit(held[a])
            near = labels[a][found.kneighbors(asked, return_distance=False)]
            votes.append(np.stack([(near == c).sum(axis=1) for c in range(CLASSES)], axis=1) / np.float32(K))
        return np.stack(votes)

    mine, others = [], []
    for _ in range(repeats):
        seconds, votes = timed(ours)
        other_seconds, other_votes = timed(theirs)
        mine.append(seconds)
        others.append(other_seconds)
    differ = float((np.abs(votes - other_votes).max(axis=2) > 1e-6).mean())
    if differ > 0.01:
        raise SystemExit(f"ours and scikit-learn's differ in {differ:.2%} of the votes")
    what = f"votes, {agents} x {records:,} records, {queries:,} queries, {features} features"
    spent = statistics.median(mine)
    limit = LIMIT_SECONDS * agents * records * queries * features / (100 * 1000 * 1000 * 512)
    return [
        shown(what, spent, statistics.median(others), "scikit-learn brute", "s", None),
        shown(f"{what}: limit", spent, limit, "limit", "s", 1.0),
    ]


def tally(repeats: int, talliers: int) -> list[Row]:
    """From ballots to answers, in the clear and by several parties, which must open the same kind of answers."""
    rng = np.random.default_rng(1)
    question = Question(queries=500, classes=CLASSES, agents=200, units=16, noise_std=25.0, one_hot=True)
    votes = 16 * np.eye(CLASSES, dtype=np.int64)[rng.integers(0, CLASSES, (200, 500))]
    ballots = [(str(agent), votes[agent]) for agent in range(200)]
    source = RandomSource.from_seed(1)

    def opened(by: Tally, at: int) -> float:
        return timed(lambda: by.open(question, ballots, source=source.within(str(at)), token=f"{at:032x}"))[0]

    clear = statistics.median(opened(ClearTally(), at) for at in range(max(repeats, 5)))
    with MultiPartyTally.local(talliers) as several:
        private = statistics.median(opened(several, at) for at in range(repeats))
    what = "500 x 200 x 10"
    return [
        shown(f"clear tally, {what}", 1e3 * clear, LIMIT_TALLY_MS, "limit", "ms", 1.0),
        shown(f"{talliers} talliers, {what}", private, LIMIT_PRIVATE_SECONDS, "limit", "s", 1.0),
    ]


def upload() -> list[Row]:
    """Kilobytes of one agent."""
    size = sum(parameter.numel() for parameter in lenet5().parameters())
    counts, updates = 500 * CLASSES, 4 * size * ROUNDS / 1e3
    against = f"DP-FedAvg, {ROUNDS} rounds"
    return [
        shown("ballots of an agent, 500 queries", 2 * counts / 1e3, updates, against, "kB", None),
        shown("the same as shares for 3 talliers", 3 * 4 * FIELD.limbs * counts / 1e3, updates, against, "kB", None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Votes of nearest records, the tally and what is uploaded.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the agents, once")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    agents, repeats = (10, 1) if options.quick else (100, 3)
    rows = [*neighbours(agents, 1000, 1000, 512, repeats), *tally(repeats, talliers=3), *upload()]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
