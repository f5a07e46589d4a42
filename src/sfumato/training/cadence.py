"""What a run is asked for besides its plan, in numbers and words: the part of `RunOptions` that commands have, too."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """When to look and when to save.

    Attributes:
        evaluate_every: rounds between measurements on the validation data; 0 for never, None for ten during the run.
        checkpoint_every: rounds between checkpoints; 0 leaves it to the clock.
        checkpoint_minutes: save at the latest after so many minutes.
    """

    evaluate_every: int | None = 0
    checkpoint_every: int = 10
    checkpoint_minutes: float = 5.0


@dataclass(frozen=True, kw_only=True)
class RunSettings(Cadence):
    """Where a run is computed, with what it keeps; fields with those of `Cadence`.

    Attributes:
        device: where to train: cpu, cuda, or cuda:1.
        prefix_cache: a folder for what the frozen first layers make of the records: computed once, so that a round
            costs what is trained. It is as private as the records, and is used again by other runs with the same
            layers and records.
    """

    device: str = "cpu"
    prefix_cache: str | Path | None = None
