"""Columns that lie in one mapped block: many strings, and rows in equal chunks.

**Strings** as one block of UTF-8 bytes and offsets, read one at a time. A Python list of 10⁶ names takes 100 MB and
seconds to parse; here a name is decoded when it is asked for, and both arrays may be memory-mapped files.

>>> names = Strings.from_list(["anna", "", "борис"])
>>> len(names), names[2], list(names[:2])
(3, 'борис', ['anna', ''])
>>> names, names[1:], Strings.from_list(map(str, range(1000)))
(['anna', '', 'борис'], ['', 'борис'], ['0', '1', '2', '3', '4', … 995 more])

**Rows** in equal chunks with other columns between them, read as if they were one array. Where a row lies follows from
its number, so nothing is looked up and nothing is read to open them. Rows of one chunk are a view; those of several, or
in any order, are gathered.

>>> held = np.arange(12).reshape(2, 6)                     # two chunks of four rows, and two numbers of others
>>> rows = ChunkedRows(held[:, :4], np.array([90, 91]))    # behind them a shorter one
>>> rows.shape, rows[2:9].tolist(), rows[np.array([9, 0])].tolist(), rows[:2].base is not None
((10,), [2, 3, 6, 7, 8, 9, 90], [91, 0], True)
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from sfumato._check import InputError

_BLOCK = 1 << 16  # strings looked at in one go


_SHOWN = 5  # where all are printed


class Strings(Sequence[str]):
    """A read-only sequence of strings over two arrays.

    Args:
        content: uint8 [bytes], the strings' UTF-8 bytes one after the other.
        offsets: int64 [strings + 1], where each string starts; the last one is the number of bytes.
    """

    __slots__ = ("_content", "_offsets")

    def __init__(self, content: np.ndarray, offsets: np.ndarray) -> None:
        self._content = content
        self._offsets = offsets

    @classmethod
    def from_list(cls, strings: Iterable[str]) -> "Strings":
        """Pack strings; undecodable bytes of file names survive the round trip."""
        content = bytearray()
        offsets = [0]
        for string in strings:
            content += string.encode("utf-8", "surrogateescape")
            offsets.append(len(content))
        return cls(np.frombuffer(bytes(content), np.uint8), np.array(offsets, np.int64))

    @classmethod
    def packed(cls, strings: Sequence[str]) -> "Strings":
        """The same strings, as they are where they are packed already."""
        return strings if isinstance(strings, Strings) else cls.from_list(strings)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes and the offsets."""
        return self._content, self._offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        return _abridged(self)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Strings | Chosen": ...
    def __getitem__(self, index: int | slice) -> "str | Strings | Chosen":
        if isinstance(index, slice):
            return Chosen(self, np.arange(len(self))[index])
        place = range(len(self))[index]
        content = self._content[self._offsets[place] : self._offsets[place + 1]]
        return content.tobytes().decode("utf-8", "surrogateescape")


def as_text(values: np.ndarray, what: str) -> np.ndarray:
    """Text in an array, or bytes of UTF-8, as an array of str.

    Raises:
        InputError: bytes that are not UTF-8, or numbers that are no characters.
    """
    try:
        text = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
        text.tolist()  # where a number that is no character shows
        return text.astype(str)
    except ValueError as error:
        raise InputError(f"{what} are not text in UTF-8: {' '.join(str(error).split())}; write them anew") from None


def encoded(strings: Sequence[str]) -> Iterator[bytes]:
    """The UTF-8 bytes of each string, a block at a time where they are stored as such."""
    if not isinstance(strings, Strings):
        yield from (string.encode("utf-8", "surrogateescape") for string in strings)
        return
    content, offsets = strings.arrays
    for first in range(0, len(strings), _BLOCK):
        places = np.asarray(offsets[first : first + _BLOCK + 1])
        block, ends = content[places[0] : places[-1]].tobytes(), (places - places[0]).tolist()
        yield from (block[start:end] for start, end in itertools.pairwise(ends))


class Chosen(Sequence[str]):
    """Some items of a sequence in a given order, looked up when they are asked for.

    Args:
        items: the sequence.
        places: int64 [chosen], positions in `items`.
    """

    __slots__ = ("_items", "_places")

    def __init__(self, items: Sequence[str], places: np.ndarray) -> None:
        self._items = items
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return _abridged(self)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Chosen": ...
    def __getitem__(self, index: int | slice) -> "str | Chosen":
        if isinstance(index, slice):
            return Chosen(self._items, self._places[index])
        return self._items[int(self._places[index])]


def _abridged(strings: Sequence[str]) -> str:
    """A few of them as a list is printed: a million names would fill a terminal."""
    shown = [repr(strings[place]) for place in range(min(len(strings), _SHOWN))]
    more = len(strings) - len(shown)
    return f"[{', '.join([*shown, *([f'… {more:,} more'] if more else [])])}]"


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
    def whole(self) -> np.ndarray:
        """The equal chunks, [chunks, rows a chunk, …]."""
        return self._whole

    @property
    def chunks(self) -> list[np.ndarray]:
        """Views of the chunks, in order."""
        return [*self._whole, self._rest]

    def _gathered(self, rows: np.ndarray) -> np.ndarray:
        behind = rows.astype(np.uint64, copy=False) >= self._held  # a negative position is behind everything
        if behind.all():
            return self._restored(self._packed_rest[rows - self._held])
        some = behind.any()
        before = np.where(behind, 0, rows) if some else rows
        chunks = before >> self._bits
        if self._flat is not None:
            found = self._flat[before + chunks * self._gap]
        else:
            found = self._packed[chunks, before & (self._step - 1)]
        if some:  # few: one copy of most, and these written over what stands in their place
            found[behind] = self._packed_rest[rows[behind] - self._held]
        return self._restored(found)

    def _restored(self, rows: np.ndarray) -> np.ndarray:
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
