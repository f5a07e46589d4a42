"""A table as a data set: columns are named as inputs, labels and users, by keyword, so that none takes another's place.

>>> import pyarrow as pa
>>> visits = pa.table({"x": [[0.5, 1.0], [2.0, 0.0], [1.0, 1.0]], "ill": ["no", "yes", "no"], "who": [7, 4, 7]})
>>> from_table(visits, input="x", label="ill", user="who")
UserDataset(2 users, 3 examples of (2,) float64, 2 classes)
>>> examples_from_table(visits, input="x", label="ill")
ExampleDataset(3 examples of (2,) float64, 2 classes)
>>> from_table(visits, input="x", label="ill", user="name")
Traceback (most recent call last):
...
sfumato._check.InputError: the table has no column 'name' for user='name'; it has x, ill, who

The inputs of a table, read once, each row put where it belongs: in memory, or in a file while a store is written.

Pictures that the table names by their paths are checked once and decoded again when they are asked for, as those of
folders are; a store gets them as they are read.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.columns import (
    Pictures,
    Texts,
    Tokenize,
    assumptions,
    is_picture,
    labels_of,
    numbers,
    refuse_stray_text,
    users_of,
)
from sfumato.data.digest import row_digest
from sfumato.data.domain import NAMES
from sfumato.data.examples import ExampleDataset, GatheredRows, examples_from_arrays
from sfumato.data.inputs import as_singles
from sfumato.data.mapped import Strings
from sfumato.data.picture_paths import Looked, look_at_files, names_addresses, names_files, refuse_folder
from sfumato.data.pictures import OnError
from sfumato.data.readers.folders import CACHE_BYTES, LazyImages
from sfumato.data.readers.tables import open_source
from sfumato.data.records import Records, is_list, is_number, is_text, listed, remedy_of
from sfumato.data.safeguards import name_notes
from sfumato.data.store.build import skip_notes, write_store
from sfumato.data.store.opened import write_examples
from sfumato.data.store.writer import refuse_full
from sfumato.data.text import Tokenizer
from sfumato.data.users import UserDataset, from_arrays

# The inputs of a table, read once, each row put where it belongs: in memory, or in a file while a store is written.
#
# Pictures that the table names by their paths are checked once and decoded again when they are asked for, as those of
# folders are; a store gets them as they are read.


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
    source: Records, given: str | Sequence[str] | None, others: Sequence[str | None], tokenize: Tokenize | None = None
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


def is_tokenized(source: Records, name: str) -> bool:
    """Whether a column has texts to turn into ids, and not paths of pictures."""
    return is_text(source.kind(name)) and not names_files(source, name, by_ending=True)


def read_inputs(
    source: Records,
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
    source: Records,
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
    source: Records, pictures: Pictures, paths: list[str], rows: np.ndarray, digests: np.ndarray
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


def _no_addresses(source: Records, name: str) -> str:
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


def from_table(
    source: Any,
    *,
    user: str,
    input: str | Sequence[str] | None = None,
    label: str | None = None,
    folder: Path | str | None = None,
    label_names: Sequence[str] | None = None,
    tokenize: Tokenize | None = None,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> UserDataset:
    """A data set divided by user, from a table in which a column says whose each row is.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, one picture's file
    under two users, one part of the table twice by a link, and a key twice in an object. Counted in `notes`: names that
    differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one, and a
    picture's file twice for one user. The rule is that of all readers, `sfumato.data.safeguards`. Users in a file of
    text are texts: `7` and `007` are two.

    Args:
        source: a `datasets.Dataset`, a pandas or polars DataFrame, a pyarrow Table, or a path to .parquet (or a folder
            of them), .csv, .tsv, .jsonl, .ndjson or .tar: WebDataset's shards, also a folder of them or a pattern as
            "faces-*.tar" or "faces-{000..012}.tar", whose columns are extensions and fields of JSON, as "json.person".
            Rows in any order.
        user: the column of users, whole numbers or text. They are numbered in sorted order; each one's rows keep
            theirs.
        input: the column of inputs: pictures (bytes, paths of files, or Hugging Face's struct of both), numbers, lists
            of equally many numbers, or texts with `tokenize`; or several columns of single numbers. None takes the only
            column of pictures, or without any the only one whose first text ends like one, as in "ann/1.jpg".
            Pictures in files are decoded when they are asked for, as `image_folder` does.
        label: the column of classes, whole numbers ≥ 0 or text, or of values, numbers with a point; without it each
            user is a class.
        folder: where relative paths of pictures start; None for the folder of the table's file, or the working
            directory for a table in memory. With it and `input`, paths need not end like pictures: "ann/1" is then read
            as the only picture of that name.
        label_names: a name for each class; None takes those that Hugging Face keeps beside a column, if any.
        tokenize: for texts: a `Tokenizer`, or a function from a list of texts to equally many lists of ids, all of one
            length, as `lambda texts: hf(texts, padding="max_length", truncation=True, max_length=64)["input_ids"]`. It
            must look at each text by itself.
        size: side or (height, width) to bring pictures to; None if all have the same.
        channels: 1 (grey) or 3 (RGB) to convert pictures to; None if all have the same.
        on_error: "refuse" names the first picture that cannot be read; "skip" leaves such rows out and counts them. A
            file that rows of two users name is refused by both.
        store: a new folder to write the data to, so that memory does not grow with them; None keeps them in memory,
            and pictures in files where they are. While it is written, the disk holds them twice.
        progress: called with (rows read, rows).

    Raises:
        InputError: the source is damaged or none of these, a column is not there or not of its kind, a value is
            missing, a file is named for two users, lists or pictures differ in size, or the store's folder is not
            empty.
    """
    opened = _opened(source, folder, user=user, label=label)
    columns = input_columns(opened, input, (user, label), tokenize)
    if len(columns) > 1:
        named = ", ".join(name for names in columns for name in names)
        raise InputError(f"a user's examples have one input, got {named}; give one, or several columns of numbers")
    users, owner = users_of(opened, user)
    labels = None if label is None else labels_of(opened, label, declared=label_names is not None)
    if labels is not None and labels.dtype.kind == "f":
        labels = as_singles(labels, f"{opened.told}: the label {label!r}")
    order = np.argsort(owner, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    read = read_inputs(
        opened,
        columns,
        places,
        people=(users, owner),
        tokenize=tokenize,
        size=size,
        channels=channels,
        on_error=on_error,
        store=store,
        progress=progress,
    )
    order = order[read.kept[order]]
    held, owner = np.unique(owner[order], return_inverse=True)
    present = [users[i] for i in held.tolist()]
    names = Strings.from_list(present)
    lost = [users[i] for i in np.setdiff1d(np.arange(len(users)), held).tolist()]
    notes = (*name_notes(present), *read.notes, *skip_notes(0, (), len(lost), lost))
    declared = label_names is not None
    if labels is None:
        labels, label_names = owner, names if label_names is None else label_names
    else:
        labels, label_names = labels[order], _named(opened, label, label_names)
    dataset = from_arrays(_shaped(read.arrays[0]), labels, owner, label_names=label_names, notes=notes)
    dataset = replace(
        dataset,
        inputs=read.arrays[0] if isinstance(read.arrays[0], LazyImages) else dataset.inputs,
        names=names,
        places=order,
        assumptions=assumptions(tokenize) if tokenize is not None else (),
        found=(NAMES,) if label is None and not declared else dataset.found,
    )
    return dataset if store is None else write_store(dataset, store)


def examples_from_table(
    source: Any,
    *,
    input: str | Sequence[str] | None = None,
    label: str | None = None,
    folder: Path | str | None = None,
    classes: bool = True,
    num_classes: int | None = None,
    label_names: Sequence[str] | None = None,
    vocabulary_sizes: Sequence[int] = (),
    named: bool = False,
    tokenize: Tokenize | None = None,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """A data set whose every row stands alone, from a table; where rows belong to people, use `from_table`.

    Args:
        source: as in `from_table`.
        input: as in `from_table`; several columns that are not all of single numbers are an input each.
        label: the column of targets: classes (whole numbers or text), numbers, or lists of equally many numbers; None
            for no targets.
        classes: whether whole numbers are classes; False takes them as numbers.
        num_classes: number of classes, declared.
        label_names: as in `from_table`.
        vocabulary_sizes: how many ids there are, for ids; with a `Tokenizer` it is known.
        named: whether the model gets each input by the name of its column, input_ids=… for example; False calls it by
            position.
        tokenize, size, channels, on_error, store, progress: as in `from_table`.

    Raises:
        InputError: as `from_table`, or the targets are not finite or none of the classes.
    """
    opened = _opened(source, folder, label=label)
    columns = input_columns(opened, input, (label,), tokenize)
    if named and any(len(names) > 1 for names in columns):
        raise InputError(
            f"named=True needs a column for each input, got {', '.join(columns[0])}, columns of single numbers, which "
            "are one input together; leave it out"
        )
    targets = None if label is None else labels_of(opened, label, declared=label_names is not None)
    read = read_inputs(
        opened,
        columns,
        np.arange(opened.count),
        people=None,
        tokenize=tokenize,
        size=size,
        channels=channels,
        on_error=on_error,
        store=store,
        progress=progress,
    )
    if isinstance(tokenize, Tokenizer) and len(columns) == 1 and not vocabulary_sizes:
        vocabulary_sizes = (tokenize.size,)
    arrays = tuple(map(_shaped, read.arrays))
    dataset = examples_from_arrays(
        {names[0]: array for names, array in zip(read.columns, arrays, strict=True)} if named else arrays,
        None if targets is None else targets[read.kept],
        classes=classes,
        num_classes=num_classes,
        label_names=_named(opened, label, label_names) if classes else label_names,
        vocabulary_sizes=vocabulary_sizes,
        assumptions=assumptions(tokenize) if tokenize is not None else (),
        columns=read.columns if any(len(names) > 1 for names in read.columns) else (),
        notes=read.notes,
    )
    rows = [
        GatheredRows(lazy) if isinstance(lazy, LazyImages) else array
        for lazy, array in zip(read.arrays, dataset.inputs, strict=True)
    ]
    dataset = replace(dataset, inputs=tuple(rows))
    return dataset if store is None else write_examples(dataset, store)


def opens_texts(source: Any, input: str | Sequence[str] | None, folder: Path | str | None = None) -> bool:
    """Whether one of the columns that are named as inputs has texts that are no paths of pictures.

    Args:
        source, input: as in `from_table`.
        folder: where somebody says that pictures are; then all texts are paths of some.
    """
    if folder is not None:
        return False
    opened = open_source(source)
    names = [input] if isinstance(input, str) else input or ()
    texts = [name for name in names if name in opened.names and is_tokenized(opened, name)]
    for name in texts:
        refuse_stray_text(opened, "input", name)
    return bool(texts)


def _shaped(rows: np.ndarray | LazyImages) -> np.ndarray:
    """Rows as they are, or in the place of those that are decoded on demand an array of their shape without memory."""
    return rows if isinstance(rows, np.ndarray) else np.broadcast_to(np.zeros((), rows.dtype), rows.shape)


def _opened(source: Any, folder: Path | str | None, **columns: str | None) -> Records:
    opened = replace(open_source(source), folder=None if folder is None else Path(folder))
    for role, column in columns.items():
        if column is not None:
            opened.refuse_absent(role, column)
    if opened.count == 0:
        raise InputError(f"{opened.told} has no rows")
    return opened


def _named(source: Records, label: str | None, given: Sequence[str] | None) -> Sequence[str] | None:
    """The names of the classes, as given or as the table has them."""
    return given if given is not None or label is None else source.classes.get(label)
