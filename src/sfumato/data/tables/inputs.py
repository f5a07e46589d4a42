"""The inputs of a table, read once, each row put where it belongs: in memory, or in a file while a store is written."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.image_files import SUFFIXES, OnError
from sfumato.data.store.writer import refuse_full
from sfumato.data.tables.cells import is_list, is_number, is_text, numbers
from sfumato.data.tables.pictures import Pictures, is_picture
from sfumato.data.tables.source import Source
from sfumato.data.tables.texts import Texts, Tokenize

_ROWS = 256  # read in one go


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was read.

    Attributes:
        arrays: one a model's input, [kept rows, …].
        columns: the names of the columns of each.
        kept: boolean [rows], in the table's order; False where a picture was skipped.
        notes: lines about what was skipped or converted.
    """

    arrays: tuple[np.ndarray, ...]
    columns: tuple[tuple[str, ...], ...]
    kept: np.ndarray
    notes: tuple[str, ...]


def input_columns(
    source: Source, given: str | Sequence[str] | None, others: Sequence[str | None], tokenize: Tokenize | None = None
) -> list[list[str]]:
    """The columns of each of the inputs: columns of single numbers are one input together, any other is its own.

    Args:
        source: the table.
        given: columns; None takes the only one with pictures.
        others: columns that are something else, as the user, or None.
        tokenize: turns texts into ids, or None.

    Raises:
        InputError: a column is not there, or is none that can be an input; or it is not clear which one to take.
    """
    if given is None:
        found = [name for name in dict.fromkeys(source.names) if name not in others and is_picture(source.kind(name))]
        if len(found) != 1:
            taken = [name for name in others if name in source.names and is_picture(source.kind(name))]
            kinds = f"{len(found)} columns have pictures" if found else "no column has pictures"
            if taken and not found:
                kinds = f"the pictures of {taken[0]} are the user or the label, and no other column has any"
            paths = next((name for name in source.names if name not in others and _has_paths(source, name)), None)
            if paths is not None and not found:
                raise InputError(_no_paths(source, paths))
            several = "; rows that stand alone can have several columns by a schema (--schema FILE)"
            raise InputError(
                f"{source.told}: {kinds}, so name the input: --input COLUMN or input=, of {source.has}"
                f"{'' if found or taken else several}"
            )
        return [found]
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise InputError(f"input must name at least one column of {source.told}; it has {source.has}")
    for name in names:
        source.refuse_absent("input", name)
        kind = source.kind(name)
        if is_text(kind) and tokenize is None:
            if _has_paths(source, name):
                raise InputError(_no_paths(source, name))
            raise InputError(
                f"{source.told}: input={name!r} is text; say in Python how it becomes ids: tokenize=data.Tokenizer("
                "vocabulary=32768, length=128), or a function from texts to lists of ids"
            )
        if not (is_text(kind) or is_picture(kind) or is_list(_storage(kind)) or is_number(kind)):
            raise InputError(
                f"{source.told}: input={name!r} is {kind}; inputs are pictures, numbers or lists of as many numbers "
                "in each row"
            )
    if tokenize is not None and not any(is_text(source.kind(name)) for name in names):
        raise InputError(f"tokenize is for texts; {source.told} has none in {', '.join(names)}")
    if all(is_number(source.kind(name)) for name in names):
        return [names]
    return [[name] for name in names]


def read_inputs(
    source: Source,
    columns: Sequence[Sequence[str]],
    places: np.ndarray,
    *,
    tokenize: Tokenize | None,
    size: int | Sequence[int] | None,
    channels: int | None,
    on_error: OnError,
    store: Path | str | None,
    progress: Callable[[int, int], None] | None,
) -> Inputs:
    """Read the inputs.

    Args:
        source: the table.
        columns: of each input.
        places: int64 [rows], where each row goes.
        tokenize, size, channels, on_error: as in `from_table`.
        store: where the data set is going to be written; then the arrays are files beside it, that end with them.
        progress: called with (rows read, rows).

    Raises:
        InputError: as `from_table`.
    """
    if store is not None:
        refuse_full(Path(store))
    readers = [
        Pictures(f"{source.told}: {names[0]}", size, channels, on_error, source.place)
        if is_picture(source.kind(names[0]))
        else None
        for names in columns
    ]
    texts = [
        Texts(tokenize, f"{source.told}: {names[0]}", source.place)
        if tokenize is not None and is_text(source.kind(names[0]))
        else None
        for names in columns
    ]
    if not any(readers) and (size is not None or channels is not None):
        raise InputError(f"size and channels are for pictures; {source.told} has none in {', '.join(columns[0])}")
    held: list[np.ndarray | None] = [None] * len(columns)
    kept = np.ones(len(places), bool)
    done = 0

    def put(which: int, rows: np.ndarray, block: np.ndarray) -> None:
        array = held[which]
        if array is None:
            array = held[which] = _empty((len(places), *block.shape[1:]), block.dtype, store)
        if array.shape[1:] != block.shape[1:]:
            raise InputError(
                f"{source.told}: {columns[which][0]} at {source.place(done)} has the shape {block.shape[1:]}, those "
                f"before it {array.shape[1:]}; pad or cut them to one"
            )
        array[rows] = block

    for block in source.blocks([name for names in columns for name in names], _ROWS):
        here = places[done : done + len(next(iter(block.values())))]
        for which, (names, pictures, text) in enumerate(zip(columns, readers, texts, strict=True)):
            if text is not None:
                put(which, here, text.ids(block[names[0]], done))
                continue
            if pictures is None:
                read = [numbers(block[name], f"{source.told}: {name}", done, source.place) for name in names]
                put(which, here, np.stack(read, 1) if read[0].ndim == 1 else read[0])
                continue
            good = np.zeros(len(here), bool)
            for i, picture in pictures.decoded(block[names[0]], done):
                put(which, here[i : i + 1], picture.pixels[None])
                good[i] = True
            kept[done : done + len(here)] &= good
        done += len(here)
        if progress is not None:
            progress(done, len(places))
    notes = [note for pictures in readers if pictures is not None for note in pictures.notes()]
    arrays = [array for array in held if array is not None]
    if not kept.all():
        if not kept.any():
            raise InputError(f"{source.told} has no rows whose pictures can all be read")
        in_place = np.empty(len(places), bool)
        in_place[places] = kept
        arrays = [_closed_up(array, np.flatnonzero(in_place)) for array in arrays]
    return Inputs(arrays=tuple(arrays), columns=tuple(map(tuple, columns)), kept=kept, notes=tuple(notes))


def _has_paths(source: Source, name: str) -> bool:
    """Whether a column's first text is the path of a picture."""
    if not is_text(source.kind(name)):
        return False
    first = next(iter(source.blocks([name], 1)), None)
    text = first[name][0].as_py() if first is not None and len(first[name]) else None
    return isinstance(text, str) and Path(text).suffix.lower() in SUFFIXES


def _no_paths(source: Source, name: str) -> str:
    return (
        f"{source.told}: {name!r} holds paths of pictures, and pictures are read from folders "
        "(FOLDER/<user>/<picture>), from tar shards, or from a column of their bytes (.parquet); make one of these of "
        "the files, or a store of such a folder by sfumato data pack"
    )


def _storage(kind: object) -> object:
    return getattr(kind, "storage_type", kind)


def _empty(shape: tuple[int, ...], dtype: np.dtype, store: Path | str | None) -> np.ndarray:
    """Room for rows: in memory, or in a file without a name beside the store."""
    if store is None:
        return np.empty(shape, dtype)
    folder = Path(store).absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            # All of it now: a full disk would otherwise end the process when a page is written.
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * dtype.itemsize)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; make room or choose another folder") from None


def _closed_up(array: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The rows at these ascending positions, moved to the front; no second array is needed."""
    for start in range(0, len(kept), _ROWS):
        rows = kept[start : start + _ROWS]
        array[start : start + len(rows)] = array[rows]
    return array[: len(kept)]
