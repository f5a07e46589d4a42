"""Votes: nearest records beside scikit-learn's, a tally in the clear, and what an agent uploads beside DP-FedAvg.

    python benchmarks/vote.py [--quick] [--json FILE]

- Neighbours: the votes of all agents on all queries, 100 agents x 1,000 records x 1,000 queries x 512 features, beside
  scikit-learn's `NearestNeighbors` (brute force), in turns, both on one thread and in processor time, which other
  programs on the machine hardly move. Ours compares whole numbers, so that one record exchanges at most one neighbour;
  scikit-learn's ties and roundings depend on all records. The goal is 5 s for all of it. The program fails if the two
  disagree on more than one vote in a hundred.
- Tally: 500 queries of 200 agents on 10 classes, with noise and decision; at most 50 ms.
- Upload: the ballots of one agent, two bytes a count, beside what DP-FedAvg sends in 100 rounds of a LeNet-5, four
  bytes a parameter. Both follow from the shapes.
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
from sfumato.voting.question import Question
from sfumato.voting.tally.clear import ClearTally
from sfumato.voting.voters.nearest import NearestRecords

CLASSES, K = 10, 8
LIMIT_SECONDS, LIMIT_TALLY_MS = 5.0, 50.0
ROUNDS = 100


def timed(act: Callable[[], object]) -> tuple[float, object]:
    began = time.process_time()
    found = act()
    return time.process_time() - began, found


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


def tally(repeats: int) -> list[Row]:
    """Milliseconds from ballots to answers."""
    rng = np.random.default_rng(1)
    question = Question(queries=500, classes=CLASSES, agents=200, units=16, opens="label", noise_std=25.0)
    votes = 16 * np.eye(CLASSES, dtype=np.int64)[rng.integers(0, CLASSES, (200, 500))]
    ballots = [(str(agent), votes[agent]) for agent in range(200)]
    source = RandomSource.from_seed(1)
    spent = [
        timed(lambda at=at: ClearTally().open(question, ballots, source=source.within(str(at)), token="t"))[0]
        for at in range(max(repeats, 5))
    ]
    return [shown("clear tally, 500 x 200 x 10", 1e3 * statistics.median(spent), LIMIT_TALLY_MS, "limit", "ms", 1.0)]


def upload() -> list[Row]:
    """Kilobytes of one agent."""
    size = sum(parameter.numel() for parameter in lenet5().parameters())
    ballots, updates = 2 * 500 * CLASSES / 1e3, 4 * size * ROUNDS / 1e3
    return [shown("upload of an agent, 500 queries", ballots, updates, f"DP-FedAvg, {ROUNDS} rounds", "kB", None)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Votes of nearest records, the tally and what is uploaded.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the agents, once")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    agents, repeats = (10, 1) if options.quick else (100, 3)
    rows = [*neighbours(agents, 1000, 1000, 512, repeats), *tally(repeats), *upload()]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
