"""The loop of the tests, in the processes of one torchrun: team_worker.py FOLDER."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from central.own.loops import net, plan, train

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    model, private = train(net(dropout=0.0), of=lambda: plan(steps=3), out=folder / "run")
    if int(os.environ["RANK"]) == 0:
        torch.save(model.state_dict(), folder / "model.pt")
