"""Whether a step that is repeated after a crash is the same step.

A run that goes on repeats the steps since its last checkpoint, under the same noise. In a loop of one's own the sum of
such a step may be another one: a counter that began anew, an edited schedule, a batch that was put together otherwise.
Then the difference of the two steps would have no noise at all. So each step leaves a word of its sum beside the
checkpoint before its noise is added, under the run's key, and a step that finds another word is refused.
"""

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._random import RandomSource


class Witness:
    """Words of the sums of a run.

    Args:
        path: where they are kept; beside the checkpoint, which is as secret.
        goes_on: whether the run goes on; else what lies there is of another one.
    """

    def __init__(self, path: Path, *, goes_on: bool) -> None:
        self._path = path
        self._known: dict[int, str] = {}
        self._begin = ""
        if goes_on and path.exists():
            lines = path.read_text()
            self._begin = "" if lines.endswith("\n") else "\n"  # so that no word is lost with a torn line before it
            for line in lines.splitlines():
                step, _, word = line.partition(" ")
                if step.isdigit() and len(word) == 32:  # a torn last line is none
                    self._known[int(step)] = word
        self._flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | (0 if goes_on else os.O_TRUNC)

    def see(self, step: int, total: Tensor, source: RandomSource) -> None:
        """Compare a sum with that of the same step before, or remember it.

        Raises:
            InputError: it is another one.
        """
        numbers = torch.stack([total.sum(dtype=torch.float64), torch.linalg.vector_norm(total.double())])
        key = source.seed64("witness", step).to_bytes(8, "little")
        word = hashlib.blake2b(numbers.cpu().numpy().tobytes(), key=key, digest_size=16).hexdigest()
        known = self._known.get(step)
        if known is None:
            self._known[step] = word
            with open(os.open(self._path, self._flags, 0o600), "w") as file:
                file.write(f"{self._begin}{step} {word}\n")
                file.flush()
                os.fsync(file.fileno())
            self._flags, self._begin = self._flags & ~os.O_TRUNC, ""
        elif known != word:
            raise InputError(
                f"step {step + 1} was released before with another sum: the same noise would be added to both, and "
                "their difference would have none. Keep the state of the loop in keep, take the step from done, leave "
                "loop, collate function and number of processes as they were; or start a new run in another folder"
            )

    def forget(self) -> None:
        """The run is complete: its noise is never drawn again."""
        self._path.unlink(missing_ok=True)
