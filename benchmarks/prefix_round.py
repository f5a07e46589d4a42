"""A private round of 512 people behind a kept prefix, next to the same round with the whole network.

    python benchmarks/prefix_round.py [--quick] [--json FILE]

DP-FedEmb with SqueezeNet at 112×112: 64 virtual clients of 8 people with 2 pictures each, one local epoch in one
batch. What is trained changes from line to line; all before it is frozen, and is computed once in one case and in
every round in the other. Both rounds are the same work on the same people (their sums are compared), and take turns.
Pictures and weights are placeholders: neither changes the time. Measured is what the clients do and clip, without the
noise, which is the same for both.
The trained part goes forward and back in every round, which bounds what a cache can save: with the last block that is
about a sixth of the processor time of the whole network.

`ratio` = ours / other, of medians; the goal is a tenth.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rows import Row, shown

from sfumato import data, models
from sfumato._random import RandomSource
from sfumato.federated import FedEmb
from sfumato.federated.contribution import LocalContribution
from sfumato.training import RoundContext
from sfumato.training.frozen_features import PrefixCache, cut_for

PEOPLE, EACH, SIDE = 512, 2, 112
TRAINED = {
    "the embedding": ("last", 0),
    "LoRA of rank 4 in the last block, the embedding": ("lora|embedding", 4),
    "the last block, the embedding": ("last_blocks:1+last", 0),
}
"""What is trained: the spec, the rank of adapters (0: none)."""
GOAL = 0.1


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the people, three rounds of each")
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, help="of each, next to one to warm up; 5 unless given")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    people, rounds = (PEOPLE // 8, 3) if options.quick else (PEOPLE, 5)
    pixels = np.random.default_rng(0).integers(0, 256, (people * EACH, SIDE, SIDE, 3), np.uint8)
    owners = np.repeat(np.arange(people), EACH)
    users = data.from_arrays(pixels, owners, [f"{owner:04}" for owner in owners])
    rows = []
    for title, (spec, rank) in TRAINED.items():
        with tempfile.TemporaryDirectory() as folder:
            rows += measured(title, spec, rank, users, Path(folder), options.rounds or rounds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def measured(title: str, spec: str, rank: int, users: data.UserDataset, folder: Path, rounds: int) -> list[Row]:
    """Both rounds, and what the cache costs once."""
    model = models.squeezenet(64, generator=torch.Generator().manual_seed(0))
    if rank:
        models.add_lora(model, rank=rank, layers=r"features\.12", generator=torch.Generator().manual_seed(0))
    plan = FedEmb(
        cohort={"size": len(users) // 8, "users_per_client": 8}, client={"epochs": 1}, noise=1.0, trainable=spec
    )
    start = time.perf_counter()
    halves = cut_for(model, spec, users, "cpu")
    behind = PrefixCache(folder / "cache", halves, device="cpu").through(users, "data")
    made = time.perf_counter() - start
    size = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file())
    ways = [
        (plan.contribution(halves.rest, behind, "cpu", 0), []),
        (plan.contribution(model, users, "cpu", 0), []),
    ]
    private_sum, source = plan.private_sum(len(users)), RandomSource.from_seed(0)
    cohort = private_sum.grouping.group(np.arange(len(users)), 0, source)

    def one(contribution: LocalContribution) -> tuple[torch.Tensor, float]:
        begun = time.perf_counter()
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial.clone(), cohort, 0, private_sum.bound, 1.0, source)
        )
        return share.total, time.perf_counter() - begun

    sums = [one(contribution)[0] for contribution, _ in ways]  # also warms up
    if not (sums[0] - sums[1]).norm() <= 1e-3 * sums[1].norm():
        raise SystemExit(f"{title}: the two rounds give other sums")
    for _ in range(rounds):
        for contribution, seconds in ways:
            seconds.append(one(contribution)[1])
    ours, whole = (statistics.median(seconds) for _, seconds in ways)
    print(f"{title}: {len(users) * EACH:,} pictures made ready in {made:.1f} s, {size / 2**20:.0f} MiB, once")
    return [shown(f"{len(users)} people, {title}", ours, whole, "the whole network", "s", GOAL)]


if __name__ == "__main__":
    main()
