"""Batches, read where they are needed, or ahead of time by other processes.

Who takes part in a step follows from the run's key and the step alone, so the batches of the coming steps are known
and can be read while the model works on this one.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from sfumato._random import RandomSource
from sfumato.central.gradients import reading_key
from sfumato.central.own.map_rows import MapRows

Cohorts = Callable[[int, RandomSource], np.ndarray]
"""From a step and the run's randomness to the places of its examples."""


class Feed:
    """Batches of the steps, in their order.

    Args:
        rows: the examples.
        workers: processes that read ahead; 0 reads here.
        steps: of the whole run.
        cohorts: who takes part.
    """

    def __init__(self, rows: MapRows, workers: int, steps: int, cohorts: Cohorts) -> None:
        self._rows, self._workers, self._steps, self._cohorts = rows, workers, steps, cohorts
        self._coming: Iterator[Any] | None = None

    def begin(self, step: int, source: RandomSource, micro_batch: int) -> None:
        """Tell where the run is; reading ahead begins anew where it has lost its place."""
        if self._workers and self._coming is None:
            self._coming = iter(
                DataLoader(
                    _Keyed(self._rows),
                    batch_size=None,
                    sampler=self._planned(step, source, micro_batch),  # pyright: ignore[reportArgumentType]
                    num_workers=self._workers,
                    collate_fn=_same,
                )
            )

    def next(self, places: np.ndarray, key: int) -> Any:
        """The next micro-batch of the step: these examples.

        Raises:
            RuntimeError: a process that reads has died; torch raises it wherever the run is just then.
        """
        if self._coming is not None:
            read_key, read_places, batch = next(self._coming)
            if read_key == key and read_places == places.tolist():
                return batch
            self._coming = None  # the micro-batch has shrunk: the rest of this step is read here
        return self._rows.batch(places.tolist(), key)

    def close(self) -> None:
        """End the processes."""
        self._coming = None

    def _planned(self, step: int, source: RandomSource, micro_batch: int) -> Iterator[tuple[int, list[int]]]:
        for coming in range(step, self._steps):
            examples, key = self._cohorts(coming, source), reading_key(source, coming)
            for start in range(0, len(examples), micro_batch):
                yield key, examples[start : start + micro_batch].tolist()


class _Keyed(Dataset[Any]):
    """Batches by key and places, for processes that read."""

    def __init__(self, rows: MapRows) -> None:
        self._rows = rows

    def __getitem__(self, at: tuple[int, list[int]]) -> tuple[int, list[int], Any]:
        key, places = at
        return key, places, self._rows.batch(places, key)


def _same(value: Any) -> Any:
    return value
