"""What the tests of stopped and divided runs share: a slow network, a worker's end, and how two results compare."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from sfumato._check import InputError
from sfumato.training import Result


class Slow(nn.Sequential):
    """Slow on request, so that a test can stop it between two checkpoints."""

    pause = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and self.pause:
            time.sleep(self.pause)
        return super().forward(x)


def outcome(fit: Callable[[], Result]) -> int:
    """Run a worker's plan; print one line; return the exit code."""
    try:
        result = fit()
    except InputError as error:
        print(error)
        return 2
    if int(os.environ.get("RANK", "0")) == 0:
        print("finished" if result.finished else f"stopped after {len(result.history)}", flush=True)
    return 0


def assert_equal_up_to_rounding(one: Path, two: Path) -> None:
    """The models of two run folders differ by round-off, and their ledgers hold the same events."""
    ours, theirs = load_file(one / "model.safetensors"), load_file(two / "model.safetensors")
    for name, tensor in ours.items():
        assert_close(theirs[name], tensor, atol=1e-5, rtol=1e-4)
    ledgers = [(folder / "ledger.jsonl").read_text().splitlines() for folder in (one, two)]
    events = [[json.loads(line).get("event") for line in lines] for lines in ledgers]
    assert events[0] == events[1]
