"""Texts: those of users as sequences of tokens, and those with a class each in a CSV or TSV file.

Of texts with a class, each row is read, turned into ids by a public rule (`Tokenizer`) and forgotten; nothing is
counted over the records.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.examples import ExampleDataset
from sfumato.data.labels import LabelCodes
from sfumato.data.readers.delimited import Delimited, is_delimited
from sfumato.data.readers.text_users import text_users
from sfumato.data.records import Reader, some
from sfumato.data.store.opened import ExampleWriter
from sfumato.data.text import Tokenizer

_BLOCK = 4096
_LABEL_NAMES = ("label", "class", "class index", "category", "target", "y")
_TEXT_NAMES = ("text", "title", "description", "content", "body", "sentence", "review", "message")


def text_csv(
    path: Path | str,
    *,
    vocabulary: int | Path | str = 1 << 15,
    length: int = 128,
    label: str | int | None = None,
    text: Sequence[str | int] | None = None,
    label_values: Sequence[object] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Read texts and their classes.

    Args:
        path: .csv or .tsv, also .gz, UTF-8.
        vocabulary, length, text, header, delimiter, store, progress: as in `open_examples`.
        label: the name or position of the class's column; None takes one named label, class, category, target or y,
            else the first.
        label_values: the classes in the order of their numbers, declared; None takes them from the records, and an
            assumption says so.

    Returns:
        inputs: token ids int64 [N, length], 0 behind the end; vocabulary_sizes (V,).

    Raises:
        InputError: the file is missing, empty or no text, a row has too few columns, a column does not exist, or a
            label is missing or none of `label_values`.
    """
    tokenizer = Tokenizer(vocabulary, length)
    codes = LabelCodes(label_values, "add it to the label values, or remove the row")
    file = Delimited(path, delimiter=delimiter)
    if not file.first:
        raise InputError(f"{path} is empty; needed is a row an example: class, text")
    one_of((True, False, None), header=header)
    named = _names_columns(file.first) if header is None else header
    names, width = file.names if named else None, len(file.first)
    place = _place(label, names, width, str(path)) if label is not None else _found_label(names)
    others = [i for i in range(width) if i != place]
    texts = others if text is None else [_place(column, names, width, str(path)) for column in text]
    if not texts or place in texts:
        raise InputError(f"{path} needs a column for the class and at least one other for text, got {width}")
    with ExampleWriter([(tokenizer.length,)], [np.int64], store) as writer:
        for block in file.blocks([place, *texts], _BLOCK, header=named, as_written=True):
            classes, *columns = (column.to_pylist() for column in block.columns)
            start = writer.count + named
            labels = [label.strip() for label in classes]
            numbers = codes.codes(labels, lambda row, first=start: f"{path} line {file.line(first + row)}")
            writer.add([tokenizer.ids(list(map(" ".join, zip(*columns, strict=True))))], numbers)
            if progress is not None:
                progress(writer.count, 0)
        order, found, said = codes.order()
        return writer.finish(
            order,
            num_classes=len(found),
            label_names=found,
            vocabulary_sizes=(tokenizer.size,),
            assumptions=tokenizer.assumptions,
            found=said,
        )


def looks_like_text(path: Path | str) -> bool:
    """Whether a CSV has the shape class, text …: few columns, and a text of several words in one that is no class.

    Raises:
        InputError: it has no rows.
    """
    file = Delimited(path)
    named = _names_columns(file.first)
    columns = range(len(file.first))
    rows = next(file.blocks(columns, 50, header=named, as_written=True), None) if columns else None
    if rows is None:
        raise InputError(f"{path} has no rows; needed is a row an example: class, text")
    place = _found_label(file.names if named else None)
    texts = [
        " ".join(cells) for cells in zip(*(rows.column(i).to_pylist() for i in columns if i != place), strict=True)
    ]
    return 2 <= len(columns) <= 4 and sum(len(text.split()) for text in texts) >= 4 * len(texts)


def _names_columns(row: Sequence[str]) -> bool:
    """Whether a first row holds names and not an example."""
    fields = [field.strip().lower() for field in row]
    return any(field in _LABEL_NAMES or field in _TEXT_NAMES for field in fields)


def _found_label(names: Sequence[str] | None) -> int:
    lowered = [name.strip().lower() for name in names or ()]
    return next((lowered.index(name) for name in _LABEL_NAMES if name in lowered), 0)


def _place(column: str | int, names: Sequence[str] | None, width: int, path: str) -> int:
    """The position of a column that is given by name or position."""
    if isinstance(column, int):
        if not 0 <= column < width:
            raise InputError(f"{path} has the columns 0 … {width - 1}, got {column}")
        return column
    if names is None:
        raise InputError(f"{path} has no header, so there is no column {column!r}; give its position, from 0")
    if column not in names:
        raise InputError(f"{path} has no column {column!r}; it has {', '.join(names)}")
    return names.index(column)


_ALWAYS = ("store", "progress")
_OF_USERS = ("text", "vocabulary", "length", "user", "input", "oov_buckets")
_SAY_TEXTS = {"text", "header", "label", "vocabulary", "length", "delimiter"}
_OF_CLASSES = ("vocabulary", "length", "label", "text", "header", "delimiter")
USERS = Reader(
    name="texts of users",
    recognises=lambda source, options: "text" in options,
    read=lambda source, options: text_users(source, **some(options, *_OF_USERS, *_ALWAYS)),
    options=frozenset(_OF_USERS),
)
EXAMPLES = Reader(
    name="texts with a class each",
    recognises=lambda source, options: (
        isinstance(source, Path)
        and is_delimited(source)
        and (bool(_SAY_TEXTS & options.keys()) or looks_like_text(source))
    ),
    read=lambda source, options: text_csv(
        source, label_values=options.get("label_names"), **some(options, *_OF_CLASSES, *_ALWAYS)
    ),
    options=frozenset((*_OF_CLASSES, "label_names")),
)
