"""Many strings as one block of UTF-8 bytes and offsets, read one at a time.

A Python list of 10⁶ names takes 100 MB and seconds to parse; here a name is decoded when it is asked for, and
both arrays may be memory-mapped files.

>>> names = Strings.from_list(["anna", "", "борис"])
>>> len(names), names[2], list(names[:2])
(3, 'борис', ['anna', ''])
>>> names, names[1:], Strings.from_list(map(str, range(1000)))
(['anna', '', 'борис'], ['', 'борис'], ['0', '1', '2', '3', '4', … 995 more])
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

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
        return _begun(self)

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
        return _begun(self)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Chosen": ...
    def __getitem__(self, index: int | slice) -> "str | Chosen":
        if isinstance(index, slice):
            return Chosen(self._items, self._places[index])
        return self._items[int(self._places[index])]


def _begun(strings: Sequence[str]) -> str:
    """A few of them as a list is printed: a million names would fill a terminal."""
    shown = [repr(strings[place]) for place in range(min(len(strings), _SHOWN))]
    more = len(strings) - len(shown)
    return f"[{', '.join([*shown, *([f'… {more:,} more'] if more else [])])}]"
