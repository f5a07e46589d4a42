"""A small seeded DP-SGD run, in a process of its own or in the test's: worker.py OUT [--resume] [--slow S]."""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resumable import Slow, outcome
from sfumato import data
from sfumato.central import DPSGD
from sfumato.training import Cadence


def main(arguments: list[str]) -> int:
    """Run as the arguments say; print one line; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--dropout", type=float, default=0.2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 8, 8, 1), dtype=np.uint8)
    examples = data.examples_from_arrays(pixels, np.arange(120) % 3, num_classes=3)
    # Dropout and augmentations, because their draws must repeat too.
    dropout = nn.Dropout(options.dropout)
    model = Slow(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), dropout, nn.Linear(144, 3))
    model.pause = options.slow
    plan = DPSGD(
        steps=12,
        batch_size=30,
        micro_batch=16,
        noise_multiplier=0.7,
        clipping="adaptive",
        adaptive_clip_count_noise=1.5,
        optimizer="adam",
        momentum=0.9,
        learning_rate=0.01,
        schedule="cosine",
        warm_up=2,
        augmentation="crop_flip",
        augmentations=2,
        ema_decay=0.9,
        seed=options.seed if options.seed >= 0 else None,
    )
    return outcome(
        lambda: plan.fit(model, examples, out=options.out, resume=options.resume, cadence=Cadence(checkpoint_every=3))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
