"""A small run that ends without a word at one operation on the disk: main(["ROOT", "OPERATION"])."""

import os
from pathlib import Path

import disk

from sfumato._random import RandomSource
from sfumato.ledger import Budget
from sfumato.runs import checkpoint, run
from small_run import work


def main(words: list[str]) -> int:
    """0 if the run has fewer operations; 9 where it died."""
    root, at = Path(words[0]), int(words[1])
    checkpoint.save_file = run.save_file = disk.save_file
    RandomSource.from_os = staticmethod(lambda: RandomSource(bytes(range(32)), "os"))
    disk.Disk._fail = lambda self, path: os._exit(9)
    with disk.Disk(root, "kill", at, Path("unused")).watched():
        work(root, budget=Budget(epsilon=3.0, delta=1e-5))
    return 0
