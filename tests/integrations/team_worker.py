"""A run with a log, in the processes of one run: main([FOLDER])."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from test_log import Kept
from torch import nn

from sfumato.central import DPSGD
from sfumato.data import examples_from_arrays


def main(words: list[str]) -> int:
    """Train; each process writes which rounds it logged."""
    torch.set_num_threads(1)
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    records = examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64))
    log = Kept()
    DPSGD(steps=2, batch_size=16, noise_multiplier=1.0, seed=1).fit(nn.Linear(4, 2), records, callbacks=[log])
    rounds = [round for round, _ in log.rows]
    (Path(words[0]) / f"{os.environ['RANK']}.json").write_text(json.dumps(rounds))
    return 0
