"""The loop of the tests, in the processes of one run: main([FOLDER])."""

import os
from pathlib import Path

import torch

from central.own.loops import net, plan, train


def main(words: list[str]) -> int:
    """Train; the first process keeps the model."""
    torch.set_num_threads(1)
    folder = Path(words[0])
    model, _ = train(net(dropout=0.0), of=lambda: plan(steps=3), out=folder / "run")
    if int(os.environ["RANK"]) == 0:
        torch.save(model.state_dict(), folder / "model.pt")
    return 0
