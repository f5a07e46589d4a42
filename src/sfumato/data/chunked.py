"""Rows that lie in one mapped file in equal chunks, with other columns between them, read as if they were one array.

Where a row lies follows from its number, so nothing is looked up and nothing is read to open them. Rows of one chunk
are a view; those of several, or in any order, are gathered.

>>> held = np.arange(12).reshape(2, 6)                     # two chunks of four rows, and two numbers of others
>>> rows = ChunkedRows(held[:, :4], np.array([90, 91]))    # behind them a shorter one
>>> rows.shape, rows[2:9].tolist(), rows[np.array([9, 0])].tolist(), rows[:2].base is not None
((10,), [2, 3, 6, 7, 8, 9, 90], [91, 0], True)
"""

from typing import Any

import numpy as np


class ChunkedRows:
    """A column in equal chunks and a shorter one.

    Args:
        whole: [chunks, rows a chunk, …], any strides along the chunks; rows a chunk are a power of two.
        rest: [fewer rows, …].
    """

    def __init__(self, whole: np.ndarray, rest: np.ndarray) -> None:
        self._whole, self._rest = whole, rest
        self._packed, self._packed_rest = _packed(whole, 2), _packed(rest, 1)
        self._flat, self._gap = _flat(self._packed)
        self._step = whole.shape[1]
        self._bits = self._step.bit_length() - 1
        if self._step != 1 << self._bits:
            raise ValueError(f"rows a chunk must be a power of two, got {self._step}")
        self._held = whole.shape[0] * whole.shape[1]
        self.shape = (self._held + len(rest), *rest.shape[1:])
        self.dtype = rest.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The rows of a slice, a view where they lie in one chunk; or at int64 [n], from 0, a copy."""
        if not isinstance(rows, slice):
            return self._gathered(np.asarray(rows))
        start, stop, step = rows.indices(len(self))
        if step == 1 and start < stop:
            chunk = start // self._step
            if start >= self._held:
                return self._rest[start - self._held : stop - self._held]
            if stop <= min((chunk + 1) * self._step, self._held):
                return self._whole[chunk, start - chunk * self._step : stop - chunk * self._step]
        return self._gathered(np.arange(start, stop, step))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("rows in chunks are an array only as a copy")
        return np.asarray(self[0 : len(self)], dtype)

    @property
    def chunks(self) -> list[np.ndarray]:
        """Views of the chunks, in order."""
        return [*self._whole, self._rest]

    def _gathered(self, rows: np.ndarray) -> np.ndarray:
        behind = rows.astype(np.uint64, copy=False) >= self._held  # a negative position is behind everything
        if behind.all():
            return self._unpacked(self._packed_rest[rows - self._held])
        some = behind.any()
        before = np.where(behind, 0, rows) if some else rows
        chunks = before >> self._bits
        if self._flat is not None:
            found = self._flat[before + chunks * self._gap]
        else:
            found = self._packed[chunks, before & (self._step - 1)]
        if some:  # few: one copy of most, and these written over what stands in their place
            found[behind] = self._packed_rest[rows[behind] - self._held]
        return self._unpacked(found)

    def _unpacked(self, rows: np.ndarray) -> np.ndarray:
        return rows.view(self.dtype).reshape(len(rows), *self.shape[1:])


def _flat(rows: np.ndarray) -> tuple[np.ndarray | None, int]:
    """All of the memory between the first and the last of [chunks, rows], and how many places lie between chunks.

    One position a row is half of the work of two. Only for rows that fill the way from chunk to chunk exactly, as
    numbers do.
    """
    if rows.ndim != 2 or not rows.size or rows.strides[0] % rows.itemsize:
        return None, 0
    step = rows.strides[0] // rows.itemsize
    length = (len(rows) - 1) * step + rows.shape[1]
    return np.lib.stride_tricks.as_strided(rows, (length,), rows.strides[1:], writeable=False), step - rows.shape[1]


def _packed(rows: np.ndarray, places: int) -> np.ndarray:
    """Each row as one item of so many bytes, which NumPy gathers faster than rows of numbers."""
    if rows.ndim == places or not rows.size:
        return rows
    return rows.reshape(*rows.shape[:places], -1).view(f"V{rows[(0,) * places].nbytes}")[..., 0]
