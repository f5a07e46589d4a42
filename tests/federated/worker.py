"""A small seeded run, in a process of its own or in the test's: worker.py OUT [--resume] [--rounds N] [--slow S]."""

import argparse
import resource
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resumable import Slow, outcome
from sfumato import data
from sfumato.federated import FedEmb
from sfumato.training import Cadence


def main(arguments: list[str]) -> int:
    """Run as the arguments say; print one line; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--every", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="no file may grow beyond so many bytes")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 4)
    pixels = rng.integers(0, 256, (160, 8, 8, 1), dtype=np.uint8)
    users = data.from_arrays(pixels, labels, np.array([f"u{label // 2:02d}" for label in labels]))
    # Dropout, because its draws must repeat too.
    model = Slow(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 4))
    model.pause = options.slow
    plan = FedEmb(
        rounds=options.rounds,
        clients_per_round=3,
        users_per_client=2,
        noise_multiplier=options.noise,
        clipping="adaptive",
        adaptive_clip_count_noise=1.0,
        local_epochs=1,
        batch_size=4,
        server_learning_rate=0.5,
        ema_decay=0.9,
        seed=options.seed if options.seed >= 0 else None,
    )
    if options.limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.limit, options.limit))
    cadence = Cadence(checkpoint_every=options.every)
    return outcome(lambda: plan.fit(model, users, out=options.out, resume=options.resume, cadence=cadence))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
