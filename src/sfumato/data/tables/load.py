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
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.domain import NAMES
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import GatheredRows
from sfumato.data.examples.tokens import Tokenizer
from sfumato.data.image_files import OnError
from sfumato.data.readers.image_folder import LazyImages
from sfumato.data.safeguards import name_notes
from sfumato.data.singles import as_singles
from sfumato.data.store.examples import write_examples
from sfumato.data.store.pack import skip_notes
from sfumato.data.store.save import write_store
from sfumato.data.strings import Strings
from sfumato.data.tables.cells import labels_of, refuse_stray_text, users_of
from sfumato.data.tables.inputs import input_columns, is_tokenized, read_inputs
from sfumato.data.tables.open import open_source
from sfumato.data.tables.source import Source
from sfumato.data.tables.texts import Tokenize, assumptions
from sfumato.data.users.arrays import from_arrays
from sfumato.data.users.dataset import UserDataset


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


def _opened(source: Any, folder: Path | str | None, **columns: str | None) -> Source:
    opened = replace(open_source(source), folder=None if folder is None else Path(folder))
    for role, column in columns.items():
        if column is not None:
            opened.refuse_absent(role, column)
    if opened.count == 0:
        raise InputError(f"{opened.told} has no rows")
    return opened


def _named(source: Source, label: str | None, given: Sequence[str] | None) -> Sequence[str] | None:
    """The names of the classes, as given or as the table has them."""
    return given if given is not None or label is None else source.classes.get(label)
