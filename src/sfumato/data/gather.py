"""Records as data sets: the inputs of every row, decoded once, next to whose the row is and what it is labelled.

Rows that fit into 64 MiB are held in memory. More are written to a store while they are decoded, and trained from
there: to the one that was asked for, or to the cache (`store.cache`). Writing may be stopped at any moment (ctrl-C,
kill -9, a full disk), and the same call goes on behind the last row that was safely written: rows before it are read
and hashed, not decoded, so that records that changed in the meantime are refused, by their content.

>>> import pyarrow as pa
>>> table = pa.table({"x": [[0.5, 1.0], [2.0, 0.0], [1.0, 1.0]], "ill": ["no", "yes", "no"], "who": [7, 4, 7]})
>>> from sfumato.data.readers.tables import open_source
>>> visits = open_source(table)
>>> users_of_records(visits, user="who", input="x", label="ill", how=Reading())
UserDataset(2 users, 3 examples of (2,) float64, 2 classes)
>>> examples_of_records(visits, input="x", label="ill", how=Reading())
ExampleDataset(3 examples of (2,) float64, 2 classes)
>>> users_of_records(visits, input="x", label="ill", user="name", how=Reading())
Traceback (most recent call last):
...
sfumato._check.InputError: the table has no column 'name' for user='name'; it has x, ill, who
"""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, one_of
from sfumato._files import sibling
from sfumato._types import Assumption, stated_to_json
from sfumato.data.columns import Texts, Tokenize, assumptions, labels_of, numbers, refuse_stray_text, users_of
from sfumato.data.domain import NAMES
from sfumato.data.examples import ExampleDataset, TakenRows, examples_from_arrays
from sfumato.data.inputs import checked_inputs, to_float32
from sfumato.data.mapped import Chosen, Strings
from sfumato.data.picture_paths import (
    cells_of,
    find,
    look_at_files,
    names_addresses,
    names_files,
    refuse_folder,
    shown,
    where,
)
from sfumato.data.pictures import (
    BadImage,
    Keep,
    OnError,
    convert_notes,
    decode,
    file_bytes,
    image_size,
    refusal,
    refuse_difference,
    skip_notes,
)
from sfumato.data.records import Records, RowClasses, is_list, is_number, is_picture, is_text, listed, remedy_of
from sfumato.data.safeguards import name_notes
from sfumato.data.store.build import write_store
from sfumato.data.store.cache import Cache, bytes_in, copy_note
from sfumato.data.store.encoded import Encoded, reference_column
from sfumato.data.store.format import Column
from sfumato.data.store.opened import INPUTS, open_example_store, open_store, user_columns, write_examples
from sfumato.data.store.seal import PICTURES, partial_folder
from sfumato.data.store.writer import TARGET, StoreWriter, disk_full, refuse_full
from sfumato.data.text import Tokenizer
from sfumato.data.users import UserDataset, from_arrays

MEMORY = 1 << 26
"""Bytes of decoded rows that are held in memory where no store was asked for."""

_ROWS = 256  # cells read in one go
_AT_ONCE = 1 << 22  # bytes decoded between two points that a stop goes back to
_COMMIT_SECONDS = 2.0  # work that a kill may cost
_OF_FREE = 10  # a copy may take this part of the free disk unasked
_NAMED = 5  # examples in a note; skipped.jsonl has them all


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows are read, and where they go.

    Attributes:
        size: side or (height, width) to bring pictures to; None if all have the same.
        channels: 1 (grey) or 3 (RGB) to convert pictures to; None if all have the same.
        on_error: "refuse" or "skip" pictures that cannot be read.
        tokenize: turns texts into ids, or None.
        invert: whether black and white of pictures are exchanged.
        keep: what a store has of pictures; None has their bytes in a copy that would be too large else.
        store: a new folder to write the data set to.
        cache: where more than what memory holds is kept; None keeps everything in memory.
        on_demand: decode files of pictures when they are asked for, and only then refuse those that cannot be read.
        progress: called with (rows read, rows).
    """

    size: int | Sequence[int] | None = None
    channels: int | None = None
    on_error: OnError = "refuse"
    tokenize: Tokenize | None = None
    invert: bool = False
    keep: Keep | None = None
    store: Path | None = None
    cache: Cache | None = None
    on_demand: bool = False
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        one_of(("refuse", "skip"), on_error=self.on_error)
        if self.channels is not None:
            one_of((1, 3), channels=self.channels)
        if self.size is not None:
            image_size(self.size)
        if self.keep is not None:
            one_of(("decoded", "encoded"), keep=self.keep)


# What decodes the cells of one input's columns.


@dataclass
class Counts:
    """What decoding left out or changed; it survives a stop."""

    bad_files: int = 0
    resized: int = 0
    converted: int = 0
    bad_names: list[str] | None = None


D = TypeVar("D", UserDataset, ExampleDataset)


class Stage(Protocol):
    """Decodes some cells."""

    def rows(self, block: dict[str, pa.Array], start: int, digest: Any, *, wanted: bool) -> tuple[np.ndarray, Any]:
        """Which rows could be decoded, bool [n], and these, [kept, …]; None where none was, or they are not wanted.

        Args:
            block: columns by their names.
            start: the number of the first row.
            digest: a hash that takes the cells' content, or None.
            wanted: False only hashes.
        """
        ...


class _Numbers:
    def __init__(self, records: Records, names: Sequence[str]) -> None:
        self._records, self._names = records, names

    def rows(self, block: dict[str, pa.Array], start: int, digest: Any, *, wanted: bool) -> tuple[np.ndarray, Any]:
        title, place = self._records.title, self._records.place
        read = [numbers(block[name], f"{title}: {name}", start, place) for name in self._names]
        return _hashed(checked_inputs(np.stack(read, 1) if read[0].ndim == 1 else read[0]), digest)


class _Tokens:
    def __init__(self, records: Records, name: str, tokenize: Tokenize) -> None:
        self._name, self._texts = name, Texts(tokenize, f"{records.title}: {name}", records.place)

    def rows(self, block: dict[str, pa.Array], start: int, digest: Any, *, wanted: bool) -> tuple[np.ndarray, Any]:
        return _hashed(self._texts.ids(block[self._name], start), digest)


def _hashed(rows: np.ndarray, digest: Any) -> tuple[np.ndarray, np.ndarray]:
    if digest is not None:
        digest.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
    return np.ones(len(rows), bool), rows


class Pictures:
    """Decodes the pictures of a column, all of one shape, and counts what was changed to fit or skipped.

    Args:
        records: what has the column.
        column: of it.
        how: size, channels and what becomes of pictures that cannot be read.

    Raises:
        InputError: size, channels or on_error is none of these.
    """

    def __init__(self, records: Records, column: str, how: Reading) -> None:
        self._records, self._column, self._folder = records, column, records.pictures
        self._skip, self._invert, self.encoded = how.on_error == "skip", how.invert, False
        self.convert = None if how.size is None else image_size(how.size), how.channels
        self.counts = Counts(bad_names=[])
        self.skipped: list[tuple[str, str]] = []
        self._first: tuple[str, tuple[int, ...]] | None = None

    def rows(self, block: dict[str, pa.Array], start: int, digest: Any, *, wanted: bool) -> tuple[np.ndarray, Any]:
        """The readable pictures, uint8 [kept, height, width, channels]; or the bytes of each, if `encoded`.

        Raises:
            InputError: a picture is broken or missing, or of another size or mode than the first.
        """
        cells = cells_of(self._records, block[self._column])
        kept, found = np.zeros(len(cells), bool), []
        for i, (content, path) in enumerate(cells):
            try:
                source = self._source(content, path, digest)
                if not wanted:
                    continue
                picture = decode(io.BytesIO(source) if isinstance(source, bytes) else source, *self.convert)
            except BadImage as error:
                if wanted:
                    self._bad(start + i, path, str(error))
                continue
            named = where(self._records, self._column, start + i, path)
            self._first = self._first or (named, picture.pixels.shape)
            refuse_difference(self._first, (named, picture.pixels.shape))
            self.counts.resized += picture.size != picture.pixels.shape[:2]
            self.counts.converted += picture.channels != picture.pixels.shape[2]
            if self.encoded:
                found.append(source)
            else:
                found.append(255 - picture.pixels if self._invert else picture.pixels)
            kept[i] = True
        if self.encoded:
            return kept, np.array([*found, None], object)[:-1]
        return kept, np.stack(found) if found else None

    def _source(self, content: bytes | None, path: str | None, digest: Any) -> Path | bytes:
        """What to decode, after a hash has taken it."""
        try:
            if path is not None:
                file = self._folder / find(self._folder, path).name
                if digest is None:
                    return file
                content = file_bytes(file)
            elif content is None:
                raise BadImage("is missing (null)")
        except BadImage:
            if digest is not None:
                digest.update(b"\0none")
            raise
        if digest is not None:
            digest.update(len(content).to_bytes(8, "little") + content)
        return content

    def _bad(self, row: int, path: str | None, reason: str) -> None:
        if not self._skip:
            raise InputError(refusal(where(self._records, self._column, row, path), reason)) from None
        file = "" if self._records.files or not (path or "").strip() else shown(self._folder, str(path))
        self.leave_out(self._records.place(row), f"{file} {reason}".strip())

    def leave_out(self, what: str, reason: str) -> None:
        """Count what is left out."""
        self.skipped.append((what, reason))
        self.counts.bad_files += 1
        names = self.counts.bad_names = self.counts.bad_names or []
        if len(names) < _NAMED:
            names.append(f"{what} ({reason})")

    def shape(self) -> tuple[int, ...]:
        """Of each picture; () before the first."""
        return () if self._first is None else self._first[1]

    def decoding(self, shape: Sequence[int]) -> dict[str, Any]:
        """How pictures of a shape are decoded, for a store that keeps their bytes."""
        size, channels = self.convert
        return {"shape": list(shape), "size": size and list(size), "channels": channels, "invert": self._invert}


class _OnDemand:
    """Files of pictures that are decoded when they are asked for: uint8 [n, height, width, channels]; `MEMORY` is kept.

    Args:
        records: whose rows are files.
        column: of their paths.
        pictures: decodes them.
        first: one of them, [1, height, width, channels].
        order: int64 [n], the row of each.
    """

    def __init__(self, records: Records, column: str, pictures: Pictures, first: np.ndarray, order: np.ndarray) -> None:
        self._records, self._column, self._pictures, self._order = records, column, pictures, order
        self.shape, self.dtype = (len(order), *first.shape[1:]), first.dtype
        self._picture = functools.lru_cache(max(1, MEMORY // first.nbytes))(self._decoded)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any, /) -> np.ndarray:
        """The pictures of a slice, or at int64 [n]; errors as `Pictures.rows`."""
        asked = self._order[rows]
        found = np.empty((len(asked), *self.shape[1:]), self.dtype)
        for picture, row in zip(found, asked.tolist(), strict=True):
            picture[...] = self._picture(row)
        return found

    def _decoded(self, row: int) -> np.ndarray:
        cells = pa.array([os.fsencode(self._records.place(row))], pa.large_binary())
        return self._pictures.rows({self._column: cells}, row, None, wanted=True)[1][0]


# Where decoded rows go: memory, rows in their order next to a store, or the store itself.


class _Memory:
    """Rows in memory, each where it goes."""

    done, digest = 0, None

    def __init__(self, first: Sequence[np.ndarray], places: np.ndarray) -> None:
        self._places, self._readable, self._at = places, np.ones(len(places), bool), 0
        self._arrays = [np.empty((len(places), *row.shape[1:]), row.dtype) for row in first]

    def add(self, kept: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        here = slice(self._at, self._at + len(kept))
        for array, block in zip(self._arrays, rows, strict=True):
            array[self._places[here][kept]] = block
        self._readable[here], self._at = kept, here.stop

    def finish(self) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Which rows are kept, in their order, and these where they go."""
        if self._readable.all():
            return self._readable, tuple(self._arrays)
        there = np.zeros(len(self._readable), bool)
        there[self._places] = self._readable
        return self._readable, tuple(_closed_up(array, np.flatnonzero(there)) for array in self._arrays)

    def passed(self, done: int) -> None:
        """Nothing: no earlier run has rows."""

    def close(self) -> None:
        """Nothing: there are no files."""


def _closed_up(array: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The rows at these ascending positions, moved to the front; no second array is needed."""
    for start in range(0, len(kept), _ROWS):
        rows = kept[start : start + _ROWS]
        array[start : start + len(rows)] = array[rows]
    return array[: len(kept)]


class _Written:
    """Rows in a store in the making; what must survive a stop is in `writer.extra`.

    Args:
        writer: of the store.
        stages: their counts are kept with the rows.
        facts: a digest of whose the rows are and what they are labelled.
        source: what messages call the records.
        target: where the store will be.
    """

    def __init__(self, writer: StoreWriter, stages: Sequence[Any], facts: str, source: str, target: "_Target") -> None:
        self.writer, self.digest, self._target = writer, hashlib.sha256(), target
        self._pictures = [stage for stage in stages if isinstance(stage, Pictures)]
        self._source, self._saved, self.changed = source, time.monotonic(), False
        extra = writer.extra
        self.done = extra.get("rows", 0) if writer.resumed else 0
        if not writer.resumed:
            extra.update(
                rows=0, facts=facts, chain=self.digest.hexdigest(), own=0, empty=[0, []], counts=self._counts()
            )
            writer.mark()
        elif extra["facts"] != facts:
            raise self._changed("its rows, users or classes are not the same")
        self._chain = extra["chain"]
        if self.done:
            for stage, counts in zip(self._pictures, extra["counts"], strict=True):
                stage.counts, stage.skipped = Counts(**counts), []

    def passed(self, done: int) -> None:
        """Compare the content of the rows that an earlier run wrote."""
        if done == self.done and self.digest.hexdigest() != self._chain:
            raise self._changed("rows that are already written differ")

    def add(self, kept: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        self._put(kept, [self.writer.add_pictures(each.tolist()) if each.dtype == object else each for each in rows])
        self._target.refuse_more(self.writer.picture_bytes)
        extra = self.writer.extra
        extra["rows"] += len(kept)
        extra["chain"] = self.digest.hexdigest()
        extra["counts"] = self._counts()
        self.note_skipped()
        self.writer.mark()
        if time.monotonic() - self._saved >= _COMMIT_SECONDS:
            self.writer.commit()
            self._saved = time.monotonic()

    def _counts(self) -> list[dict[str, Any]]:
        return [vars(stage.counts) for stage in self._pictures]

    def note_skipped(self) -> None:
        """Write down what was left out since the last time."""
        for stage in self._pictures:
            for what, reason in stage.skipped:
                self.writer.skip(what, reason)
            stage.skipped.clear()

    def _put(self, kept: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        raise NotImplementedError

    def finish(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Which rows are kept, in their order, and these."""
        raise NotImplementedError

    def close(self) -> None:
        self.writer.close()

    def _changed(self, how: str) -> InputError:
        self.changed = True
        return InputError(
            f"{self._source} changed since packing stopped: {how}; delete {self.writer.folder} to pack it from the "
            "start"
        )


class _Spool(_Written):
    """Rows in the records' order next to a store, with a mark for those that were left out."""

    def __init__(self, *given: Any, order: np.ndarray) -> None:
        super().__init__(*given)
        self._order = order

    def _put(self, kept: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        whole = [kept.astype(np.uint8)]
        for each in rows:
            block = np.zeros((len(kept), *each.shape[1:]), each.dtype)
            block[kept] = each
            whole.append(block)
        self.writer.add(*whole)

    def finish(self) -> tuple[np.ndarray, tuple[TakenRows, ...]]:
        """Which rows are kept, in their order, and these where they go, mapped."""
        marks, *columns = [column.name for column in self.writer.columns]
        kept = np.asarray(self.writer.rows(marks)).astype(bool)
        wanted = self._order[kept[self._order]]
        return kept, tuple(TakenRows(self.writer.rows(name), wanted) for name in columns)

    def leave_out(self, users: Sequence[str]) -> None:
        """Note users without rows."""
        for user in users:
            self.writer.skip(user, "has no readable pictures")


def _spool_writer(
    path: Path, columns: Sequence[Column], options: dict[str, Any], private: bool, pictures: bool
) -> StoreWriter:
    """What takes the rows of a spool."""
    kept = [Column("kept", (), np.dtype(np.uint8)), *columns]
    return StoreWriter(path, kept, users=False, class_names=False, pictures=pictures, options=options, private=private)


class _Direct(_Written):
    """Rows that come user by user, straight into the store of users."""

    def __init__(self, *given: Any, users: Sequence[str], owner: np.ndarray, codes: np.ndarray, names: Any) -> None:
        super().__init__(*given)
        self._users, self._owner, self._codes, self._names = users, owner, codes, names

    def _put(self, kept: np.ndarray, rows: Sequence[np.ndarray]) -> None:
        start = self.writer.extra["rows"]
        stop = start + len(kept)
        owner = self._owner[start:stop]
        cuts = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), len(kept)]
        done = np.concatenate([[0], np.cumsum(kept)])
        for first, last in itertools.pairwise(cuts):
            here = np.flatnonzero(kept[first:last]) + start + first
            if len(here):
                self.writer.add(self._codes[here], rows[0][done[first] : done[last]])
                if self._names is not None:
                    for row in here.tolist():
                        self.writer.add_name(self._names[row])
                self.writer.extra["own"] += len(here)
            if last < len(kept) or stop == len(self._owner) or self._owner[stop] != owner[-1]:
                self._end(self._users[int(owner[first])])

    def _end(self, user: str) -> None:
        """Close a user; who has no row is left out, and noted."""
        self.note_skipped()
        extra = self.writer.extra
        if extra["own"]:
            self.writer.end_user(user)
        else:
            count, names = extra["empty"]
            extra["empty"] = [count + 1, [*names, user][:_NAMED]]
            self.writer.skip(user, "has no readable pictures")
        extra["own"] = 0

    def finish(self) -> tuple[np.ndarray, tuple[()]]:
        """Nothing that is held: the store has it."""
        return np.zeros(0, bool), ()

    def sealed(self, classes: RowClasses, notes: Sequence[str], said: Sequence[Assumption]) -> UserDataset:
        """The store, with the names of its classes; those of rows that were all left out are none."""
        assert classes.names is not None
        writer, names, groups, numbers = self.writer, classes.names, classes.groups, None
        if any(stage.counts.bad_files for stage in self._pictures) and not classes.whole:
            present = np.zeros(len(names), bool)
            for block in writer.rows(TARGET).chunks:
                present[np.unique(block)] = True
            numbers, held = np.cumsum(present) - 1, np.flatnonzero(present)
            names, groups = Chosen(names, held), None if groups is None else Chosen(groups, held)
        try:
            for place, name in enumerate(names):
                writer.add_class(name, None if groups is None else groups[place])
            facts = {"notes": list(notes), "assumptions": stated_to_json(said), "found": list(classes.found or ())}
            return open_store(writer.finish(facts, numbers, encoded=self._target.encoded(writer)))
        except OSError as error:
            raise disk_full(error, writer) or error from None
        finally:
            writer.close()


class _Ready(Exception):
    """Another process has built the copy in the meantime."""


class _Target:
    """Where rows go that memory should not hold: the store that was asked for, or a copy in the cache.

    Args:
        how: says which of them.
        looks: a digest of the files that rows name.
    """

    def __init__(self, how: Reading, looks: str) -> None:
        self._keep, self._room = how.keep, math.inf
        self._columns: dict[str, dict[str, Any]] = {}
        self._cache = how.cache if how.store is None else None
        self._path = how.store if self._cache is None else self._cache.place(*filter(None, [looks]))
        self._alone, self._started = contextlib.ExitStack(), False

    def begin(
        self, count: int, first: Sequence[np.ndarray], stages: Sequence[Any], names: Sequence[str]
    ) -> tuple[Path, bool, list[Column]]:
        """The folder, which no other process writes from now on, whether it is for its owner only, and its columns.

        Args:
            count: of the rows.
            first: the first row of each input.
            stages: what decodes each input; those of pictures learn whether they shall decode them.
            names: of the inputs in the finished store.

        Raises:
            InputError: it cannot be written, or a copy would take more than a tenth of the free disk.
            _Ready: it is there.
        """
        assert self._path is not None
        self._started = True
        if self._cache is not None and self._alone.enter_context(self._cache.building(self._path)):
            raise _Ready
        begun = [partial_folder(each) for each in (self._path, sibling(self._path, after=".rows"))]
        if self._cache is not None:
            self._room = (shutil.disk_usage(self._path.parent).free + sum(map(bytes_in, begun))) / _OF_FREE
        size = count * sum(row.nbytes for row in first)
        encoded = [isinstance(stage, Pictures) and self._keep != "decoded" for stage in stages]
        if self._keep is None:  # the same as before a stop, though the disk may have filled since
            stopped = [each for each in begun if (each / "state.json").exists()]
            large = any((each / PICTURES).exists() for each in stopped) if stopped else size > self._room
            encoded = [each and large for each in encoded]
        if not any(encoded):
            self.refuse_more(size)
        columns = []
        for name, row, stage, keeps in zip(names, first, stages, encoded, strict=True):
            columns.append(reference_column(name) if keeps else Column(name, row.shape[1:], row.dtype))
            if keeps:
                stage.encoded, self._columns[name] = True, stage.decoding(row.shape[1:])
        return self._path, self._cache is not None, columns

    @property
    def encodes(self) -> bool:
        """Whether bytes of pictures are kept."""
        return bool(self._columns)

    def refuse_more(self, size: int) -> None:
        """Refuse more bytes than a copy may take unasked."""
        if size > self._room and self._path is not None:
            raise InputError(
                f"a private copy takes {size / 1e9:.1f} GB or more in {self._path.parent}, above a tenth of the free "
                "disk; name a folder (--store FOLDER, store=), or --size"
            )

    def encoded(self, writer: StoreWriter) -> Encoded | None:
        """The pictures whose bytes a writer keeps."""
        return Encoded(writer.folder / PICTURES, self._columns) if self._columns else None

    def opened(self, reopen: Callable[[Path], D], read: Callable[[], D]) -> D:
        """The data set: a copy that is there, or what is read now."""
        if self._cache is None or self._path is None:
            return read()
        with self._alone, contextlib.suppress(_Ready):
            if not self._path.exists():
                dataset = read()
                if not self._started:
                    return dataset
        return with_copy(reopen(self._path), self._path)

    def finish(self, write: Callable[..., D], dataset: D, rows: Any) -> D:
        """Write the store from rows that lie next to it, and delete these; a data set in memory stays as it is."""
        if not isinstance(rows, _Spool):
            return dataset
        assert self._path is not None
        if self._columns:
            rows.writer.commit()
        stored = write(
            dataset,
            self._path,
            private=self._cache is not None,
            skipped=rows.writer.skipped(),
            encoded=self.encoded(rows.writer),
        )
        rows.writer.abandon()
        return stored


def with_copy(dataset: D, path: Path) -> D:
    """The data set of a copy, which says that it is one."""
    return replace(dataset, notes=(*dataset.notes, copy_note(path)))


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What was read.

    Attributes:
        arrays: one an input, [readable rows, …], in the records' order; none where they went straight into a store.
        readable: bool [rows], in the records' order; False where a picture was left out.
        pictures: what decoded those of the first column that has some, with its counts; None where none has.
        sink: what took the rows.
    """

    arrays: tuple[Any, ...]
    readable: np.ndarray
    pictures: Pictures | None
    sink: Any

    def notes(self, users: int = 0, names: Sequence[str] = ()) -> list[str]:
        """What was left out or changed.

        Args:
            users: how many have no readable picture.
            names: of some of them.
        """
        if self.pictures is None:
            return skip_notes(0, (), users, names)
        counts, shape = self.pictures.counts, self.pictures.shape()
        changed = convert_notes(counts.resized, counts.converted, shape) if shape else []
        return skip_notes(counts.bad_files, counts.bad_names or (), users, names) + changed


def _gather(
    records: Records,
    columns: Sequence[Sequence[str]],
    how: Reading,
    places: np.ndarray,
    written: Callable[[list[np.ndarray], list[Any]], _Written],
) -> Gathered:
    """Decode every row.

    Args:
        records: what is read.
        columns: of each input.
        how: how they are decoded, and where rows go.
        places: int64 [rows], where each row goes.
        written: makes what takes the rows that memory should not hold, from the first of each input and the stages.

    Raises:
        InputError: no row can be decoded, or one is refused; or the disk is full.
    """
    names = list(dict.fromkeys(name for each in columns for name in each))
    first = _first_row(records, names, _stages(records, columns, how))
    stages = _stages(records, columns, how)
    pictures = next((stage for stage in stages if isinstance(stage, Pictures)), None)
    if pictures is not None:
        for path, reason in records.strays:
            pictures.leave_out(path, reason)
    if how.on_demand and records.files and how.on_error == "refuse" and isinstance(stages[0], Pictures):
        lazy = _OnDemand(records, names[0], stages[0], first[0], np.argsort(places))
        return Gathered(arrays=(lazy,), readable=np.ones(records.count, bool), pictures=pictures, sink=None)
    size = sum(each.nbytes for each in first)
    at_once = max(1, min(_AT_ONCE // max(size, 1), _ROWS))
    to_disk = how.store is not None or (how.cache is not None and records.count * size > MEMORY)
    sink = written(first, stages) if to_disk else _Memory(first, places)
    first = [
        np.empty(1, object) if getattr(each, "encoded", False) else row for each, row in zip(stages, first, strict=True)
    ]
    done = 0
    try:
        for cells in records.blocks(names, _ROWS):
            count, at = len(next(iter(cells.values()))), 0
            while at < count:
                wanted = done >= sink.done
                step = min(count - at, at_once if wanted else sink.done - done)
                block = {name: array.slice(at, step) for name, array in cells.items()}
                read = [stage.rows(block, done, sink.digest, wanted=wanted) for stage in stages]
                at, done = at + step, done + step
                if wanted:
                    kept = np.logical_and.reduce([one for one, _ in read])
                    rows = [_common_rows(each, kept, row) for each, row in zip(read, first, strict=True)]
                    for names_, block_, row in zip(columns, rows, first, strict=True):
                        if block_.shape[1:] != row.shape[1:]:
                            raise InputError(
                                f"{records.title}: {names_[0]} at {records.place(done - step)} has the shape "
                                f"{block_.shape[1:]}, those before it {row.shape[1:]}; pad or cut them to one"
                            )
                    sink.add(kept, rows)
                    if how.progress is not None:
                        how.progress(done, records.count)
                else:
                    sink.passed(done)
        kept, arrays = sink.finish()
    except BaseException as error:
        if not isinstance(sink, _Written):
            raise
        try:
            if isinstance(error, OSError):
                raise disk_full(error, sink.writer) or error from None
            if isinstance(error, InputError | KeyboardInterrupt) and not sink.changed:
                sink.writer.commit()
            if isinstance(error, InputError) and not sink.changed:
                raise InputError(f"{error}; packing goes on from here when it is run again") from None
            raise
        finally:
            sink.close()
    return Gathered(arrays=arrays, readable=kept, pictures=pictures, sink=sink)


def _stages(records: Records, columns: Sequence[Sequence[str]], how: Reading) -> list[Any]:
    """What decodes each input."""
    stages: list[Any] = []
    for names in columns:
        kind = records.kind(names[0])
        if how.tokenize is not None and is_tokenized(records, names[0]):
            stages.append(_Tokens(records, names[0], how.tokenize))
        elif is_picture(kind) or is_text(kind):
            stages.append(Pictures(records, names[0], how))
        else:
            stages.append(_Numbers(records, names))
    for_pictures = [name for name in ("size", "channels", "keep") if getattr(how, name) is not None]
    if for_pictures and not any(isinstance(stage, Pictures) for stage in stages):
        raise InputError(
            f"{', '.join(for_pictures)}: for pictures only; {records.title} has none in {', '.join(columns[0])}"
        )
    return stages


def _first_row(records: Records, names: list[str], stages: Sequence[Any]) -> list[np.ndarray]:
    """The first row of each input, [1, …], whose pictures can all be read."""
    start, step = 0, 1 if any(isinstance(stage, Pictures) for stage in stages) else 16
    for cells in records.blocks(names, 16):
        count = len(next(iter(cells.values())))
        for at in range(0, count, step):
            block = {name: array.slice(at, step) for name, array in cells.items()}
            read = [stage.rows(block, start + at, None, wanted=True) for stage in stages]
            if all(kept.all() for kept, _ in read):
                return [rows[:1] for _, rows in read]
        start += count
    bad = next((stage.counts.bad_names for stage in stages if isinstance(stage, Pictures)), None) or []
    if records.needs:
        hint = f": {records.pictures}/{bad[0]}" if bad else ""
        raise InputError(f"{records.title} has no {records.needs[0]}{hint}; it needs {records.needs[1]}")
    if len(names) == 1:
        raise InputError(f"{records.title}: {names[0]} has no readable pictures: {', '.join(bad)}")
    raise InputError(f"{records.title} has no rows whose pictures can all be read")


def _common_rows(read: tuple[np.ndarray, Any], kept: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The rows of one input that all inputs have."""
    own, rows = read
    if rows is None:
        return np.empty((0, *like.shape[1:]), like.dtype)
    if rows.shape[1:] != like.shape[1:]:
        return rows
    return rows if own.sum() == kept.sum() else rows[kept[own]]


def input_columns(
    records: Records, named: str | Sequence[str] | None, others: Sequence[str | None], tokenize: Tokenize | None = None
) -> list[list[str]]:
    """The columns of each of the inputs: columns of single numbers are one input together, any other is its own.

    Args:
        records: the table.
        named: columns; None takes the only one with pictures, or else the only one with paths of some; where somebody
            named their folder, first the latter.
        others: columns that are something else, as the user, or None.
        tokenize: turns texts into ids, or None.

    Raises:
        InputError: a column is not there, or is none that can be an input; or it is not clear which one to take.
    """
    if named is None:
        free = [name for name in dict.fromkeys(records.names) if name not in others]
        found = [name for name in free if is_picture(records.kind(name))]
        if not found or records.folder is not None:
            texts = [name for name in free if is_text(records.kind(name))]
            found = [name for name in texts if names_files(records, name, by_ending=True)] or found
        if len(found) != 1:
            taken = [name for name in others if name in records.names and is_picture(records.kind(name))]
            kinds = f"{len(found)} columns have pictures ({listed(found)})" if found else "no column has pictures"
            if taken and not found:
                kinds = f"the pictures of {taken[0]} are the user or the label, and no other column has any"
            addresses = [] if found else [name for name in free if names_addresses(records, name)]
            if addresses:
                raise InputError(_no_addresses(records, addresses[0]))
            several = "; rows that stand alone can have several columns by a schema (--schema FILE)"
            raise InputError(
                f"{records.title}: {kinds}, so name the input: --input COLUMN or input=, of {records.has}"
                f"{'' if found or taken else several}"
            )
        return [found]
    names = [named] if isinstance(named, str) else list(named)
    if not names:
        raise InputError(f"input must name at least one column of {records.title}; it has {records.has}")
    for name in names:
        records.refuse_absent("input", name)
        kind = records.kind(name)
        if is_text(kind) and tokenize is None and not names_files(records, name):
            if names_addresses(records, name):
                raise InputError(_no_addresses(records, name))
            refuse_stray_text(records, "input", name)
            raise InputError(
                f"{records.title}: input={name!r} is text; give tokenize=data.Tokenizer(vocabulary=32768, "
                "length=128) or a function from texts to ids, or, for paths of pictures, --folder FOLDER "
                "(folder=)"
            )
        if not (is_text(kind) or is_picture(kind) or is_list(kind) or is_number(kind)):
            raise InputError(
                f"{records.title}: input={name!r} is {kind}; inputs are pictures, numbers or lists of as many numbers "
                f"in each row: {remedy_of(kind)}"
            )
    if tokenize is not None and not any(is_tokenized(records, name) for name in names):
        raise InputError(f"tokenize is for texts; {records.title} has none in {', '.join(names)}")
    if all(is_number(records.kind(name)) for name in names):
        return [names]
    return [[name] for name in names]


def is_tokenized(records: Records, name: str) -> bool:
    """Whether a column has texts to turn into ids, and not paths of pictures."""
    return is_text(records.kind(name)) and not names_files(records, name, by_ending=True)


def opens_texts(records: Records, input: str | Sequence[str] | None) -> bool:
    """Whether one of the columns that are named as inputs has texts that are no paths of pictures."""
    if records.folder is not None:
        return False
    names = [input] if isinstance(input, str) else input or ()
    texts = [name for name in names if name in records.names and is_tokenized(records, name)]
    for name in texts:
        refuse_stray_text(records, "input", name)
    return bool(texts)


def users_of_records(
    records: Records,
    *,
    user: str | None = None,
    input: str | Sequence[str] | None = None,
    label: str | None = None,
    label_names: Sequence[str] | None = None,
    how: Reading,
) -> UserDataset:
    """A data set divided by user.

    Args:
        records: rows in any order.
        user: the column of users; None where the records say whose rows are without one.
        input, label, label_names: as in `open_users`.
        how: how rows are read, and where they go.

    Raises:
        InputError: a column is not there or not of its kind, a value is missing, a file is named for two users, lists
            or pictures differ in size, or the store's folder is not empty.
    """
    _refuse_odd(records, how, user=user, label=label)
    columns = input_columns(records, input, (user, label), how.tokenize)
    if len(columns) > 1:
        named = ", ".join(name for names in columns for name in names)
        raise InputError(f"a user's examples have one input, got {named}; give one, or several columns of numbers")
    users, owner = records.owners or users_of(records, str(user))
    classes = _classes(records, label, label_names, users, owner)
    notes = name_notes(users) + (name_notes(classes.names or (), "class") if records.labelled and classes.whole else [])
    seen, looks = _looked(records, columns, how, (users, owner))
    notes += seen
    target = _Target(how, looks)

    def read() -> UserDataset:
        order = np.argsort(owner, kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        paths = _paths(records, columns)

        def written(first: list[np.ndarray], stages: list[Any]) -> _Written:
            path, private, (column,) = target.begin(records.count, first, stages, [INPUTS])
            facts = _digest(users, owner, classes.values, classes.names or ())
            options = {"shape": list(first[0].shape[1:]), **records.options}
            given = stages, facts, records.title, target
            if classes.names is None or (np.diff(owner) < 0).any() or not isinstance(stages[0], Pictures):
                spool = sibling(path, after=".rows")
                writer = _spool_writer(spool, [column], options, private, target.encodes)
                return _Spool(writer, *given, order=order)
            writer = StoreWriter(
                path,
                user_columns(column.shape, column.dtype),
                class_names=True,
                class_groups=classes.groups is not None,
                example_names=paths is not None,
                pictures=target.encodes,
                options=options,
                private=private,
            )
            return _Direct(writer, *given, users=users, owner=owner, codes=classes.values.astype(np.int64), names=paths)

        gathered = _gather(records, columns, how, places, written)
        said = assumptions(how.tokenize) if how.tokenize is not None else ()
        if isinstance(gathered.sink, _Direct):
            lost = gathered.sink.writer.extra["empty"]
            return gathered.sink.sealed(classes, notes + gathered.notes(*lost), said)
        kept = order[gathered.readable[order]]
        held, own = np.unique(owner[kept], return_inverse=True)
        lost = [str(users[place]) for place in np.setdiff1d(np.arange(len(users)), held).tolist()]
        if isinstance(gathered.sink, _Spool):
            gathered.sink.leave_out(lost)
        values, names, groups = classes.of(kept)
        dataset = from_arrays(_shaped(gathered.arrays[0]), values, own, names, groups)
        present = Strings.from_list(str(users[place]) for place in held.tolist())
        dataset = replace(
            dataset,
            inputs=dataset.inputs if isinstance(gathered.arrays[0], np.ndarray) else gathered.arrays[0],
            names=present,
            places=None if records.files else kept,
            assumptions=said,
            found=dataset.found if classes.found is None else classes.found,
            notes=(*notes, *gathered.notes(len(lost), lost)),
            example_names=None if paths is None else Chosen(paths, kept),
        )
        return target.finish(write_store, dataset, gathered.sink)

    return target.opened(open_store, read)


def examples_of_records(
    records: Records,
    *,
    input: str | Sequence[str] | None = None,
    label: str | None = None,
    classes: bool = True,
    num_classes: int | None = None,
    label_names: Sequence[str] | None = None,
    vocabulary_sizes: Sequence[int] = (),
    named: bool = False,
    how: Reading,
) -> ExampleDataset:
    """A data set whose every row stands alone; where rows belong to users, use `users_of_records`.

    Args:
        records: what is read.
        input, label, classes, num_classes, label_names, vocabulary_sizes, named: as in `open_examples`.
        how: how rows are read, and where they go.

    Raises:
        InputError: as `users_of_records`, or the targets are not finite or none of the classes.
    """
    _refuse_odd(records, how, label=label)
    columns = input_columns(records, input, (label,), how.tokenize)
    if named and any(len(names) > 1 for names in columns):
        raise InputError(
            f"named=True needs a column for each input, got {', '.join(columns[0])}, columns of single numbers, which "
            "are one input together; leave it out"
        )
    found = records.labelled
    targets = None if label is None else labels_of(records, label, declared=label_names is not None)
    notes = [] if found is None or found.names is None else name_notes(found.names, "class")
    seen, looks = _looked(records, columns, how, None)
    notes += seen
    order, target = np.arange(records.count), _Target(how, looks)

    def written(first: list[np.ndarray], stages: list[Any]) -> _Written:
        names = [INPUTS] if len(first) == 1 else [f"{INPUTS}_{place}" for place in range(len(first))]
        path, private, kept = target.begin(records.count, first, stages, names)
        options = {"shapes": [list(row.shape[1:]) for row in first], **records.options}
        writer = _spool_writer(sibling(path, after=".rows"), kept, options, private, target.encodes)
        values = () if found is None and targets is None else (targets if found is None else found.values)
        facts = _digest((), order[:0], np.asarray(values), ())
        return _Spool(writer, stages, facts, records.title, target, order=order)

    class_names = _named(records, label, label_names) if classes else label_names
    sizes = vocabulary_sizes
    if isinstance(how.tokenize, Tokenizer) and len(columns) == 1 and not sizes:
        sizes = (how.tokenize.size,)

    def read() -> ExampleDataset:
        read = _gather(records, columns, how, order, written)
        kept = np.flatnonzero(read.readable)
        arrays = tuple(map(_shaped, read.arrays))
        dataset = examples_from_arrays(
            {names[0]: array for names, array in zip(columns, arrays, strict=True)} if named else arrays,
            found.values[kept] if found is not None else None if targets is None else targets[kept],
            classes=classes,
            num_classes=num_classes,
            label_names=found.names if found is not None else class_names,
            vocabulary_sizes=sizes,
            assumptions=assumptions(how.tokenize) if how.tokenize is not None else (),
            columns=columns if any(len(names) > 1 for names in columns) else (),
            found=() if found is None else found.found or (),
            notes=(*notes, *read.notes()),
        )
        paths = _paths(records, columns)
        dataset = replace(
            dataset,
            inputs=tuple(
                array if isinstance(given, np.ndarray) else given
                for given, array in zip(read.arrays, dataset.inputs, strict=True)
            ),
            example_names=None if paths is None else Chosen(paths, kept),
        )
        return target.finish(write_examples, dataset, read.sink)

    return target.opened(open_example_store, read)


def _classes(
    records: Records,
    label: str | None,
    label_names: Sequence[str] | None,
    users: Sequence[str],
    owner: np.ndarray,
) -> RowClasses:
    """What rows are labelled; each user is a class where there is no label."""
    declared = label_names is not None
    if records.labelled is not None:
        return records.labelled
    if label is None:
        names = label_names if declared else users
        return RowClasses(values=owner, names=names, whole=declared, found=() if declared else (NAMES,))
    values = labels_of(records, label, declared=declared)
    if values.dtype.kind == "f":
        values = to_float32(values, f"{records.title}: the label {label!r}")
    if values.dtype.kind in "US" and not declared:
        found, values = np.unique(values, return_inverse=True)
        return RowClasses(values=values, names=Strings.from_list(found.tolist()), found=(NAMES,))
    return RowClasses(values=values, names=_named(records, label, label_names), whole=True, found=None)


def _refuse_odd(records: Records, how: Reading, **columns: str | None) -> None:
    """Refuse columns that are not there, a table without rows, strays, and a store that cannot be written."""
    for role, column in columns.items():
        if column is not None:
            records.refuse_absent(role, column)
    if records.strays and how.on_error == "refuse":
        path, reason = records.strays[0]
        raise InputError(refusal(records.pictures / path, reason))
    if records.count == 0:
        what, needs = records.needs or ("rows", "")
        raise InputError(f"{records.title} has no {what}" + f"; it needs {needs}" * bool(needs))
    if how.store is not None:
        if records.files and how.store.resolve().is_relative_to(records.pictures.resolve()):
            raise InputError(f"{how.store} lies inside {records.title}; choose a folder outside of the pictures")
        refuse_full(how.store)


def _looked(
    records: Records,
    columns: Sequence[Sequence[str]],
    how: Reading,
    users: tuple[Sequence[str], np.ndarray] | None,
) -> tuple[list[str], str]:
    """A look at every file that a column names, before the first one is decoded: notes, and a digest of how they look.

    Raises:
        InputError: as `look_at_files`, or a folder was named that is none, or of use to no column.
    """
    named = [names for names in columns if _of_pictures(records, names[0], how) and names_files(records, names[0])]
    if records.folder is not None:
        if not named:
            refuse_folder(records.folder, f"{records.title}: {', '.join(name for names in columns for name in names)}")
        if not records.folder.is_dir():
            what = (
                f"{records.folder} is no folder" if records.folder.exists() else f"there is no folder {records.folder}"
            )
            raise InputError(f"{what}; name the one that the paths of pictures start at")
    notes, digests = list[str](), list[str]()
    for names in named:
        found, digest = look_at_files(records, names[0], skip=how.on_error == "skip", users=users)
        notes += found
        digests.append(digest)
    return notes, " ".join(digests)


def _of_pictures(records: Records, name: str, how: Reading) -> bool:
    kind = records.kind(name)
    return is_picture(kind) or (is_text(kind) and not (how.tokenize is not None and is_tokenized(records, name)))


def _paths(records: Records, columns: Sequence[Sequence[str]]) -> Strings | None:
    """The paths of all rows' pictures, which are names of the examples; None where a picture has none."""
    name = columns[0][0]
    kind = records.kind(name)
    if (
        len(columns) > 1
        or len(columns[0]) > 1
        or not (is_text(kind) or is_picture(kind))
        or not names_files(records, name)
    ):
        return None
    paths: list[str] = []
    for block in records.blocks([name], _ROWS):
        for content, path in cells_of(records, block[name]):
            if content is not None:
                return None
            paths.append(path or "")
    return Strings.from_list(paths)


def _digest(users: Sequence[str], owner: np.ndarray, values: np.ndarray, names: Sequence[str]) -> str:
    """SHA-256 of whose rows are and what they are labelled."""
    texts = json.dumps(
        [list(users), list(names), str(values.dtype), values.tolist() if values.dtype.kind in "US" else 0]
    )
    digest = hashlib.sha256(texts.encode())
    for array in (owner, values):
        if array.dtype.kind not in "US":
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _shaped(rows: Any) -> np.ndarray:
    """Rows as they are, or in the place of those that are mapped an array of their shape without memory."""
    return rows if isinstance(rows, np.ndarray) else np.broadcast_to(np.zeros((), rows.dtype), rows.shape)


def _named(records: Records, label: str | None, given: Sequence[str] | None) -> Sequence[str] | None:
    """The names of the classes, as given or as the table has them."""
    return given if given is not None or label is None else records.classes.get(label)


def _no_addresses(records: Records, name: str) -> str:
    return (
        f"{records.title}: {name!r} holds addresses, and pictures are read from files; download them, and name a "
        "column of their paths"
    )
