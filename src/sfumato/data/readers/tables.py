"""A table wherever it is: of pandas, pyarrow, polars or Hugging Face, or in files of Parquet, CSV or JSON lines.

Columns are read by their names, some rows at a time, as Arrow arrays; a Parquet file never is in memory as a whole.
Nothing here imports the program that a table comes from: a data set of Hugging Face is known by what it offers.

>>> import pyarrow as pa
>>> opened = open_source(pa.table({"age": [31, 44], "person": ["bo", "al"]}))
>>> opened.names, opened.count, [block["person"].to_pylist() for block in opened.blocks(["person"], 1)]
(('age', 'person'), 2, [['bo'], ['al']])

A folder of Parquet files: all in it, or in folders within it that are named column=value, as Spark writes them.

>>> keys_of("year=2024/city=S%C3%A3o/part-0.parquet"), keys_of("a=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
({'year': '2024', 'city': 'São'}, {'a': None})
"""

import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.readers.delimited import SUFFIXES, Delimited, is_delimited
from sfumato.data.readers.tars import PACKED, SUFFIX, is_tars, open_tars
from sfumato.data.records import COLUMNS, PICTURES, Reader, Records, position
from sfumato.data.safeguards import key_twice, refuse_same_files

PARQUET = (".parquet", ".pq")
_MISSING = "__HIVE_DEFAULT_PARTITION__"
_DELTA = "_delta_log"


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder has files of Parquet, in itself or in folders named column=value."""
    return path.is_dir() and next(_found(path), None) is not None


def parquet_files(folder: Path) -> list[tuple[Path, dict[str, str | None]]]:
    """The files of a folder in sorted order, and of each the columns that the folders around it name.

    Raises:
        InputError: it has none; files lie in folders that name no column, or different ones; or it is a table of Delta
            Lake, some of whose files hold rows that were deleted.
    """
    if (folder / _DELTA).is_dir():
        raise InputError(
            f"{folder} is a table of Delta Lake, whose files may hold deleted rows; read it with deltalake or Spark, "
            "and write its rows as Parquet"
        )
    files = sorted(_found(folder))
    keys = [keys_of(file.relative_to(folder)) for file in files]
    if not files or keys[0]:
        for file in folder.rglob("*"):
            if file.suffix.lower() in PARQUET and file.is_file() and file not in files:
                raise InputError(
                    f"{file.parent} has Parquet files, and its name is not column=value, as in year=2024; give the "
                    "folder of the files, or name it so"
                )
    for file, own in zip(files, keys, strict=True):
        if list(own) != list(keys[0]):
            raise InputError(
                f"{files[0]} lies in folders that name {_listed(keys[0])}, {file} in such that name {_listed(own)}; "
                "name the same columns for each file"
            )
    return list(zip(files, keys, strict=True))


def keys_of(path: PurePath | str) -> dict[str, str | None]:
    """The columns that the folders of a path name, with their values as text; None where it is missing."""
    pairs = [name.partition("=")[::2] for name in PurePath(path).parts[:-1]]
    return {unquote(key): None if value == _MISSING else unquote(value) for key, value in pairs}


def _found(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.suffix.lower() in PARQUET and not entry.is_dir():
            yield entry
        elif "=" in entry.name and entry.is_dir():
            yield from _found(entry)


def _listed(keys: dict[str, str | None]) -> str:
    return ", ".join(keys) or "no column"


_ROWS = 1 << 16  # of text read in one go
LINES = (".jsonl", ".ndjson")
_ZEROS_IN_FRONT = re.compile(r"[+-]?0\d")
UNDERSTOOD = (
    "a datasets.Dataset, a pandas or polars DataFrame, a pyarrow Table, or a path to .parquet (or a folder of them, "
    "also in folders column=value), "
    ".csv, .tsv, .jsonl, .ndjson or .tar (WebDataset: also a folder of them, or a pattern)"
)


def open_source(source: Any) -> Records:
    """Open a table.

    Raises:
        InputError: there is no such file, it is damaged, or the object is none of those that are understood.
    """
    if isinstance(source, str | Path):
        return _file(Path(source))
    if hasattr(source, "with_format") and hasattr(source, "features"):
        return _hugging_face(source)
    if isinstance(source, Mapping):
        names = ", ".join(map(str, source))
        raise InputError(
            f"source must be one table, got a {type(source).__name__} of {names}; give one of its parts, or "
            "pandas.DataFrame(source) where these are columns"
        )
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        return _pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _arrow(source if isinstance(source, pa.Table) else pa.table(source))
    raise InputError(f"source must be {UNDERSTOOD}, got {type(source).__name__}")


def open_rows(source: Any) -> Records:
    """Open a table as it comes: a file of text stays on the disk, and its cells stay texts.

    Raises:
        InputError: as `open_source`.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if path is not None and (is_delimited(path) or path.suffix.lower() == ".txt"):
        return Delimited(path).records()
    return open_source(source)


def is_table_file(path: Path) -> bool:
    """Whether a file's name is that of a table, tars aside, or a folder holds one in files of Parquet."""
    return path.suffix.lower() in (*PARQUET, *LINES) or is_delimited(path) or is_parquet_folder(path)


def _arrow(table: pa.Table, title: str = "the table") -> Records:
    return Records(
        title=title,
        names=tuple(table.column_names),
        count=table.num_rows,
        kind=lambda name: table.schema.field(name).type,
        read=lambda columns, rows: table.select(columns).to_batches(rows),
        classes=_classes(table.schema),
    )


def _hugging_face(dataset: Any) -> Records:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "select_columns") or not dataset.features:
        raise InputError(
            f"source must have a length and columns, got {type(dataset).__name__}; load it without streaming"
        )
    schema = dataset.features.arrow_schema

    def read(columns: list[str], rows: int) -> Iterable[pa.Table]:
        return dataset.select_columns(columns).with_format("arrow").iter(rows)

    return Records(
        title="the data set",
        names=tuple(schema.names),
        count=len(dataset),
        kind=lambda name: schema.field(name).type,
        read=read,
        classes=_classes(schema),
    )


def _pandas(frame: Any) -> Records:
    held: dict[str, pa.Array | pa.ChunkedArray] = {}
    labels = {str(name): name for name in frame.columns}

    def column(name: str) -> pa.Array | pa.ChunkedArray:
        if name not in held:
            try:
                held[name] = _series(frame[labels[name]])
            except (pa.ArrowException, TypeError, ValueError) as error:
                said = _mixed(frame[labels[name]]) or f"cannot be read: {' '.join(str(error).split())[:200]}"
                raise InputError(f"the column {name!r} of the table {said}; make them one kind") from None
        return held[name]

    def read(columns: list[str], rows: int) -> Iterable[pa.RecordBatch]:
        return pa.Table.from_arrays([column(name) for name in columns], names=columns).to_batches(rows)

    return Records(
        title="the table",
        names=tuple(str(name) for name in frame.columns),
        count=len(frame),
        kind=lambda name: column(name).type,
        read=read,
    )


def _mixed(values: Any) -> str:
    """The first two cells of a column that are of different kinds; "" where there are none."""
    import pandas  # late: only a column of pandas needs it

    first: tuple[int, Any] | None = None
    for row, cell in enumerate(values):
        if pandas.api.types.is_scalar(cell) and pandas.isna(cell):
            continue
        first = first or (row, cell)
        if isinstance(cell, str | bytes) != isinstance(first[1], str | bytes):
            return f"is {first[1]!r} at {position(first[0])} and {cell!r} at {position(row)}"
    return ""


def _series(values: Any) -> pa.Array:
    """A column of pandas; Arrow would take a NaN for a missing value, but among numbers it is one of them."""
    if values.dtype in ("float16", "float32", "float64"):
        return pa.array(values.to_numpy(), from_pandas=False)
    if values.dtype == "object":
        if any(isinstance(cell, PurePath) for cell in values):
            values = values.map(lambda cell: str(cell) if isinstance(cell, PurePath) else cell)
        try:
            return pa.array(values.to_numpy(), from_pandas=False)
        except (pa.ArrowException, TypeError):  # among texts it is missing, indeed
            pass
    return pa.Array.from_pandas(values)


def _file(path: Path) -> Records:
    if is_tars(path):
        if is_parquet_folder(path):
            raise InputError(f"{path} has both Parquet and tar files; give one kind, the tars by {path}/*.tar")
        return replace(open_tars(path), parent=path if path.is_dir() else path.parent)
    if not path.exists():
        raise InputError(f"there is nothing at {path}; give {UNDERSTOOD}")
    if path.is_dir():
        files = parquet_files(path)
        if not files:
            raise InputError(f"{path} is a folder without Parquet files; give {UNDERSTOOD}")
        return replace(_parquet(path, files), parent=path)
    if path.suffix.lower() in PARQUET:
        return replace(_parquet(path, [(path, {})]), parent=path.parent)
    if path.suffix.lower() in LINES:
        return replace(_lines(path), parent=path.parent)
    if is_delimited(path):
        return replace(_delimited(path), parent=path.parent)
    raise InputError(f"{path} is no table; give {UNDERSTOOD}")


def _parquet(path: Path, found: Sequence[tuple[Path, Mapping[str, str | None]]]) -> Records:
    """Files of Parquet with equal columns, each with values of further columns that its folders name."""
    import pyarrow.parquet  # late: arrays and pictures need none of it

    files = [file for file, _ in found]
    refuse_same_files(files)
    opened = list(_read_file(files[0], "Parquet", lambda: _facts(files)))
    schema = opened[0][0]
    for file, (other, _) in zip(files, opened, strict=True):
        if not other.equals(schema):
            raise InputError(f"{file} has other columns or types than {files[0]}; make them the same")
    # A column that stands in the files, too, as polars writes it, is read from there: it has its type.
    written = {
        name: pa.chunked_array([[own[name] for _, own in found]], pa.large_string())
        for name in found[0][1]
        if name not in schema.names
    }
    keys = {name: _as_numbers(column) for name, column in written.items()}

    def read(columns: list[str], rows: int, keys: Mapping[str, pa.ChunkedArray] = keys) -> Iterator[pa.RecordBatch]:
        for place, file in enumerate(files):
            with pyarrow.parquet.ParquetFile(file) as content:
                own = [name for name in columns if name not in keys]
                for batch in _read_file(file, "Parquet", lambda c=content, o=own: _batches(c, o, rows)):
                    arrays = [
                        pa.repeat(keys[name][place], len(batch)) if name in keys else batch.column(name)
                        for name in columns
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, columns)

    return Records(
        title=str(path),
        names=(*schema.names, *keys),
        count=sum(count for _, count in opened),
        kind=lambda name: keys[name].type if name in keys else schema.field(name).type,
        read=read,
        texts=(lambda columns, rows: read(columns, rows, written)) if keys else None,
        classes=_classes(schema),
        metadata=schema.metadata or {} if all(each.metadata == schema.metadata for each, _ in opened) else {},
    )


def _batches(content: Any, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Some rows at a time; without columns, batches that only have a length."""
    if columns:
        yield from content.iter_batches(rows, columns=columns)
        return
    count = content.metadata.num_rows
    for start in range(0, count, rows):
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * min(rows, count - start), pa.struct([])))


def _facts(files: Sequence[Path]) -> Iterator[tuple[pa.Schema, int]]:
    import pyarrow.parquet

    for file in files:
        with pyarrow.parquet.ParquetFile(file) as content:
            yield content.schema_arrow, content.metadata.num_rows


def _lines(path: Path) -> Records:
    import pyarrow.json

    (content,) = _read_file(path, "JSON lines", lambda: [pyarrow.json.read_json(path)])
    return _arrow(content, title=str(path))


def _delimited(path: Path) -> Records:
    """A table of text, with a header; an empty field is a missing value."""
    file = Delimited(path)
    names = file.names
    kinds = pa.schema([(name, pa.large_string()) for name in names])
    blocks = file.blocks(range(len(names)), _ROWS)
    table = pa.Table.from_batches((pa.RecordBatch.from_arrays(each.columns, schema=kinds) for each in blocks), kinds)
    whole = pa.Table.from_arrays([_as_numbers(column) for column in table.columns], names=names)
    lines = cache(lambda: array("Q", file.lines()))
    return replace(
        _arrow(whole, title=str(path)),
        place=lambda row: f"line {lines()[row + 1]}",
        texts=lambda columns, rows: table.select(columns).to_batches(rows),
    )


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as numbers, if all are; those with zeros in front, as names have them, stay: 007 is not 7."""
    try:
        whole = column.cast(pa.int64())
        if whole.cast(pa.large_string()).equals(column):
            return whole
    except pa.ArrowInvalid:
        pass
    try:
        numbers = column.cast(pa.float64())
        return column if any(_ZEROS_IN_FRONT.match(text) for text in column.to_pylist() if text) else numbers
    except pa.ArrowInvalid:
        return column


def _read_file(path: Path, what: str, read: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """What is read, with the errors of reading in one line."""
    try:
        yield from read()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as {what}: {key_twice(error)[:300]}") from None


def _classes(schema: pa.Schema) -> dict[str, list[str]]:
    """The names of classes that Hugging Face writes next to a schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: list(map(str, feature["names"])) for name, feature in features.items() if "names" in feature}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def is_table_source(source: Any) -> bool:
    """Whether a source is a table in memory, or a path that is named like one."""
    if isinstance(source, list | tuple):  # of files, or what `open_source` refuses
        return not all(isinstance(each, str | Path) for each in source)
    return not isinstance(source, Path) or is_tars(source) or is_table_file(source)


def _is_named(source: Any, options: Mapping[str, Any]) -> bool:
    """Whether a table's columns are named, and not described by a schema or found by their kind."""
    texts = "text" in options or "header" in options or isinstance(options.get("label"), int)
    if "schema" in options or texts or not is_table_source(source):
        return False
    named = {"input", "label", "folder", "targets", "tokenize"} & options.keys()
    return bool(named) or not isinstance(source, Path) or is_tars(source)


def _has_columns(source: Any, options: Mapping[str, Any]) -> bool:
    """Whether columns are named of a folder that has files of Parquet somewhere, so that it is refused as a table."""
    named = bool({"user", "input", "label"} & options.keys()) and isinstance(source, Path) and source.is_dir()
    return named and any(next(source.rglob(f"*{ending}"), None) is not None for ending in PARQUET)


_ENDINGS = (*PARQUET, *LINES, *SUFFIXES, SUFFIX, *PACKED)
USERS = Reader(
    name="a table",
    recognises=lambda source, options: is_table_source(source) or _has_columns(source, options),
    read=lambda source, options: open_source(source),
    endings=_ENDINGS,
    options=COLUMNS | PICTURES,
)
EXAMPLES = Reader(
    name="a table",
    recognises=_is_named,
    read=lambda source, options: open_source(source),
    endings=_ENDINGS,
    options=(COLUMNS - {"user"})
    | PICTURES
    | {"classes", "num_classes", "vocabulary_sizes", "vocabulary", "length", "named", "targets"},
)
