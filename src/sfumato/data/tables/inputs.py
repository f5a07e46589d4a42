"""The inputs of a table, read once, each row put where it belongs: in memory, or in a file while a store is written.

Pictures that the table names by their paths are checked once and decoded again when they are asked for, as those of
folders are; a store gets them as they are read.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.digest import row_digest
from sfumato.data.image_files import OnError
from sfumato.data.readers.image_folder import CACHE_BYTES, LazyImages
from sfumato.data.store.writer import refuse_full
from sfumato.data.strings import Strings
from sfumato.data.tables.cells import numbers, refuse_stray_text
from sfumato.data.tables.kinds import is_list, is_number, is_text, remedy_of
from sfumato.data.tables.paths import Looked, look_at_files, names_addresses, names_files, refuse_folder
from sfumato.data.tables.pictures import Pictures, is_picture
from sfumato.data.tables.source import Source, listed
from sfumato.data.tables.texts import Texts, Tokenize

_ROWS = 256  # read in one go


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was read.

    Attributes:
        arrays: one a model's input, [kept rows, …]; of pictures in files, rows that are decoded on demand.
        columns: the names of the columns of each.
        kept: boolean [rows], in the table's order; False where a picture was skipped.
        notes: lines about what was skipped or converted, or is there several times.
    """

    arrays: tuple[np.ndarray | LazyImages, ...]
    columns: tuple[tuple[str, ...], ...]
    kept: np.ndarray
    notes: tuple[str, ...]


def input_columns(
    source: Source, given: str | Sequence[str] | None, others: Sequence[str | None], tokenize: Tokenize | None = None
) -> list[list[str]]:
    """The columns of each of the inputs: columns of single numbers are one input together, any other is its own.

    Args:
        source: the table.
        given: columns; None takes the only one with pictures, or else the only one with paths of some; where somebody
            named their folder, first the latter.
        others: columns that are something else, as the user, or None.
        tokenize: turns texts into ids, or None.

    Raises:
        InputError: a column is not there, or is none that can be an input; or it is not clear which one to take.
    """
    if given is None:
        free = [name for name in dict.fromkeys(source.names) if name not in others]
        found = [name for name in free if is_picture(source.kind(name))]
        if not found or source.folder is not None:
            texts = [name for name in free if is_text(source.kind(name))]
            found = [name for name in texts if names_files(source, name, by_ending=True)] or found
        if len(found) != 1:
            taken = [name for name in others if name in source.names and is_picture(source.kind(name))]
            kinds = f"{len(found)} columns have pictures ({listed(found)})" if found else "no column has pictures"
            if taken and not found:
                kinds = f"the pictures of {taken[0]} are the user or the label, and no other column has any"
            addresses = [] if found else [name for name in free if names_addresses(source, name)]
            if addresses:
                raise InputError(_no_addresses(source, addresses[0]))
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
        if is_text(kind) and tokenize is None and not names_files(source, name):
            if names_addresses(source, name):
                raise InputError(_no_addresses(source, name))
            refuse_stray_text(source, "input", name)
            raise InputError(
                f"{source.told}: input={name!r} is text; say in Python how it becomes ids: tokenize=data.Tokenizer("
                "vocabulary=32768, length=128), or a function from texts to lists of ids; of paths of pictures that do "
                "not end like some, name the folder: --folder FOLDER or folder="
            )
        if not (is_text(kind) or is_picture(kind) or is_list(kind) or is_number(kind)):
            raise InputError(
                f"{source.told}: input={name!r} is {kind}; inputs are pictures, numbers or lists of as many numbers "
                f"in each row: {remedy_of(kind)}"
            )
    if tokenize is not None and not any(is_tokenized(source, name) for name in names):
        raise InputError(f"tokenize is for texts; {source.told} has none in {', '.join(names)}")
    if all(is_number(source.kind(name)) for name in names):
        return [names]
    return [[name] for name in names]


def is_tokenized(source: Source, name: str) -> bool:
    """Whether a column has texts to turn into ids, and not paths of pictures."""
    return is_text(source.kind(name)) and not names_files(source, name, by_ending=True)


def read_inputs(
    source: Source,
    columns: Sequence[Sequence[str]],
    places: np.ndarray,
    *,
    people: tuple[Sequence[str], np.ndarray] | None,
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
        people: the users, and which of them each row belongs to; None where rows stand alone.
        tokenize, size, channels, on_error: as in `from_table`.
        store: where the data set is going to be written; then the arrays are files beside it, that end with them.
        progress: called with (rows read, rows).

    Raises:
        InputError: as `from_table`.
    """
    if store is not None:
        refuse_full(Path(store))
    texts = [
        Texts(tokenize, f"{source.told}: {names[0]}", source.place)
        if tokenize is not None and is_tokenized(source, names[0])
        else None
        for names in columns
    ]
    readers = [
        Pictures(source, names[0], size, channels, on_error)
        if text is None and (is_picture(source.kind(names[0])) or is_text(source.kind(names[0])))
        else None
        for names, text in zip(columns, texts, strict=True)
    ]
    if not any(readers) and (size is not None or channels is not None):
        raise InputError(f"size and channels are for pictures; {source.told} has none in {', '.join(columns[0])}")
    looked = _looked(source, columns, readers, skip=on_error == "skip", people=people)
    # Of pictures that are decoded again, what is kept is their paths and digests.
    paths = [[""] * len(places) if one is not None and one.only_files and store is None else None for one in looked]
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
            for i, picture, path in pictures.decoded(block[names[0]], done):
                row = picture.pixels
                if (known := paths[which]) is not None:
                    known[done + i], row = path, np.frombuffer(row_digest(picture.pixels), np.uint8)
                put(which, here[i : i + 1], row[None])
                good[i] = True
            kept[done : done + len(here)] &= good
        done += len(here)
        if progress is not None:
            progress(done, len(places))
    notes = [note for pictures in readers if pictures is not None for note in pictures.notes()]
    notes += [note for one in looked if one is not None for note in one.notes]
    arrays = [array for array in held if array is not None]
    rows = np.empty(len(places), np.int64)
    rows[places] = np.arange(len(places))
    if not kept.all():
        if not kept.any():
            raise InputError(f"{source.told} has no rows whose pictures can all be read")
        in_place = kept[rows]
        rows = rows[in_place]
        arrays = [_closed_up(array, np.flatnonzero(in_place)) for array in arrays]
    lazy = [
        array if known is None or pictures is None else _on_demand(source, pictures, known, rows, array)
        for array, pictures, known in zip(arrays, readers, paths, strict=True)
    ]
    return Inputs(arrays=tuple(lazy), columns=tuple(map(tuple, columns)), kept=kept, notes=tuple(notes))


def _looked(
    source: Source,
    columns: Sequence[Sequence[str]],
    readers: Sequence[Pictures | None],
    *,
    skip: bool,
    people: tuple[Sequence[str], np.ndarray] | None,
) -> list[Looked | None]:
    """A look at each column that names files; None for any other.

    Raises:
        InputError: as `look_at_files`, or a folder was named that is none, or of use to no column.
    """
    named = [pictures is not None and names_files(source, names[0]) for names, pictures in zip(columns, readers)]
    if source.folder is not None:
        if not any(named):
            refuse_folder(source.folder, f"{source.told}: {', '.join(name for names in columns for name in names)}")
        if not source.folder.is_dir():
            what = f"{source.folder} is no folder" if source.folder.exists() else f"there is no folder {source.folder}"
            raise InputError(f"{what}; name the one that the paths of pictures start at")
    return [
        look_at_files(source, names[0], skip=skip, people=people) if files else None
        for names, files in zip(columns, named, strict=True)
    ]


def _on_demand(
    source: Source, pictures: Pictures, paths: list[str], rows: np.ndarray, digests: np.ndarray
) -> LazyImages:
    """Pictures that are decoded when they are asked for.

    Args:
        source: the table.
        pictures: what has decoded them.
        paths: of all its rows.
        rows: int64 [n], those that are kept, in their order.
        digests: uint8 [n, 32], of these.
    """
    height, width, channels = pictures.shape
    kept = Strings.from_list(paths[row] for row in rows.tolist())
    return LazyImages(source.pictures, kept, (height, width, channels), pictures.convert, False, CACHE_BYTES, digests)


def _no_addresses(source: Source, name: str) -> str:
    return (
        f"{source.told}: {name!r} holds addresses, and pictures are read from files; download them, and name a column "
        "of their paths"
    )


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
