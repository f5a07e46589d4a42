"""A table with numbers and categories, in CSV or Parquet, as the two arrays that a click model reads.

Every row is turned into numbers by the schema alone (`read_schema`), which is public; nothing is counted, averaged or
ranked over the records, so reading costs no privacy. A value outside of the declared bounds or categories is clipped
or becomes "another one": never an error, which would reveal something about the record. How often that was done is
in the data set's notes, which are not private.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.columns import Codes
from sfumato.data.examples import ExampleDataset
from sfumato.data.labels import LabelCodes, Repairs, repair_notes
from sfumato.data.readers.criteo import named_schema
from sfumato.data.readers.delimited import Delimited, is_delimited
from sfumato.data.readers.tables import PARQUET, is_parquet_folder, open_source
from sfumato.data.records import Reader, Records, is_list, is_nested, remedy_of, some
from sfumato.data.safeguards import Where, name_notes
from sfumato.data.schema import Schema, TargetColumn, as_text, read_schema
from sfumato.data.store.opened import ExampleWriter

_BLOCK = 4096
_SHOWN = 20  # columns that a refusal names
Columns = Mapping[str, Sequence[Any]]
"""Some rows of a table: the values of each column, as text, or as lists where a row has several."""


def table(
    path: Path | str,
    schema: Schema | Mapping[str, Any] | Path | str,
    *,
    delimiter: str | None = None,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Read a table.

    Args:
        path: .csv, .tsv or .txt with a header, also .gz; or .parquet, or a folder of them.
        schema: what is public about each column, see `sfumato.data.schema`: a dictionary, a YAML or JSON file, or the
            name of a format (`sfumato.data.readers.criteo`), which may have no header. Every column of the table must
            be declared, be it as "drop".
        delimiter: None takes the tab for .tsv, the comma for .csv, and else the one that the first line has.
        store: a new folder to write the numbers to, so that memory does not grow with the data; None keeps them in
            memory.
        progress: called with (rows read, 0): how many there are is not known before the end.

    Returns:
        inputs: float32 [N, a] in [−1, 1] and, where the schema has categories, ids int64 [N, b]; the columns in the
        schema's order, a category of several values a row in as many columns of ids as the schema says;
        vocabulary_sizes has the number of ids of each column of categories; owners says whose each row is, where the
        schema has a user.

    Raises:
        InputError: the file is missing or unreadable, columns and schema differ, a row has too few columns, a number
            is missing without a fill or no number, a label is missing or not declared, a user is missing, or a target
            is no number.
    """
    path = Path(path)
    schema = schema if isinstance(schema, Schema) else named_schema(schema) or read_schema(schema)
    label = schema.label
    codes = label and LabelCodes(label.values, f"add it to the values of {label.name!r}, or remove the row")
    sizes = tuple(size for one in schema.categories for size in one.sizes)
    names = tuple(name for one in schema.numeric for name in one.names)
    shapes: list[tuple[int, ...]] = [(len(names),)]
    dtypes: list[type] = [np.float32]
    if sizes:
        shapes.append((len(sizes),))
        dtypes.append(np.int64)
    source = _text(path, schema, delimiter) if _is_text(path) else open_source(path)
    seen: dict[str, dict[str, int]] = {one.name: {} for one in schema.categories}
    repairs, owners = Repairs(), Codes("user", exact=True)
    with ExampleWriter(shapes, dtypes, store) as writer:
        for columns, users, where in _blocks(path, source, schema):
            rows = len(next(iter(columns.values())))
            numbers = [one.numbers(columns[one.name], where, repairs) for one in schema.numeric]
            inputs = [np.concatenate(numbers, 1) if numbers else np.empty((rows, 0), np.float32)]
            if sizes:
                ids = [one.bags(columns[one.name], seen[one.name], repairs, where) for one in schema.categories]
                inputs.append(np.concatenate(ids, 1))
            if label and codes:
                targets = codes.codes(label.texts(columns[label.name]), where)
            else:
                targets = _targets(schema.targets, columns, where)
            writer.add(inputs, targets, None if users is None else owners.add(users, where).astype(np.int64))
            if progress is not None:
                progress(writer.count, 0)
        order, found, said = codes.order() if codes else (None, [], ())
        categories = tuple(name for one in schema.categories for name in one.names)
        return writer.finish(
            order,
            num_classes=max(len(found), 1) if codes else None,
            label_names=found or None,
            vocabulary_sizes=sizes,
            columns=(names, categories) if sizes else (names,),
            assumptions=schema.assumptions(),
            found=said,
            notes=(*repair_notes(repairs, writer.count), *name_notes(owners.names)),
        )


def _targets(targets: Sequence[TargetColumn], columns: Columns, where: Where) -> np.ndarray:
    """The numbers to predict, [n], or [n, k] where there are several."""
    numbers = [one.numbers(columns[one.name], where) for one in targets]
    return numbers[0] if len(numbers) == 1 else np.stack(numbers, 1)


def is_table(path: Path) -> bool:
    """Whether a file's name is that of a table, or a folder holds one in files of Parquet."""
    return _is_text(path) or path.suffix.lower() in PARQUET or is_parquet_folder(path)


def _is_text(path: Path) -> bool:
    """Whether a file's name is that of delimited text; with a schema, .txt and .gz are, too."""
    return is_delimited(path) or path.suffix.lower() in (".txt", ".gz")


def _text(path: Path, schema: Schema, delimiter: str | None) -> Records:
    """The rows of a file of text; where it has no header, in the schema's order of columns."""
    if not schema.order:
        return Delimited(path, delimiter=delimiter).records()
    file = Delimited(path, delimiter=delimiter, quoted=False)
    if not file.first:
        raise InputError(f"{path} is empty; needed is a row an example")
    if len(file.first) != len(schema.order):
        raise InputError(
            f"{path} must have {len(schema.order)} columns divided by {file.delimiter!r}, and no header, got "
            f"{len(file.first)} in its first row; correct the file, or give another schema"
        )
    return file.records(schema.order)


def _blocks(path: Path, source: Records, schema: Schema) -> Iterator[tuple[Columns, pa.Array | None, Where]]:
    """The cells of the declared columns as text, whose the rows are, and a function that describes a row."""
    _refuse_columns(path, source.names, schema)
    wanted = [name for name in schema.names if name not in (*schema.dropped, schema.user)]
    read = wanted if schema.user is None else [*wanted, schema.user]
    several = {one.name for one in schema.categories if one.separator is not None}
    for name in wanted:
        if is_nested(kind := source.kind(name)) and not (name in several and is_list(kind)):
            raise InputError(f"{path}: the column {name!r} must hold texts or numbers, got {kind}; {remedy_of(kind)}")
        if not is_list(kind):
            several.discard(name)
    done = 0
    for block in source.blocks(read, _BLOCK):
        cells = {name: block[name].to_pylist() for name in wanted}
        columns = {name: each if name in several else [*map(as_text, each)] for name, each in cells.items()}
        users = None if schema.user is None else block[schema.user]
        yield columns, users, lambda row, first=done: f"{path} {source.place(first + row)}"
        done += len(block[wanted[0]])


def _refuse_columns(path: Path, found: Sequence[str], schema: Schema) -> None:
    """Refuse a table whose columns are not those of the schema."""
    if not set(schema.names) & set(found):
        raise InputError(
            f"{path} names no column of the schema; if its header is missing, write one above the rows "
            f"({', '.join(schema.names[:3])}, …), else give another schema"
        )
    twice = [name for i, name in enumerate(found) if name in found[:i]]
    if twice:
        raise InputError(f"{path} has the column {twice[0]!r} twice; rename one")
    if lacking := [name for name in schema.names if name not in found]:
        raise InputError(f"{path} has no column {lacking[0]!r} of the schema; it has {', '.join(found)}")
    declared = set(schema.names)
    if undeclared := [name for name in found if name not in declared]:
        some = ", ".join(map(repr, undeclared[:_SHOWN])) + (" …" if len(undeclared) > _SHOWN else "")
        columns = "the column" if len(undeclared) == 1 else f"{len(undeclared)} columns"
        raise InputError(
            f"{path} has {columns} {some}, which the schema does not declare; declare each, if only as drop"
        )


EXAMPLES = Reader(
    name="a table",
    recognises=lambda source, options: "schema" in options and (not isinstance(source, Path) or is_table(source)),
    read=lambda source, options: table(source, options["schema"], **some(options, "delimiter", "store", "progress")),
    options=frozenset({"schema", "delimiter"}),
)
