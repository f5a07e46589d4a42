"""Tar files as WebDataset writes them, read from front to back, and their samples as the rows of a table.

Members with a common key are one sample, and stand one after the other. A member's key is its name up to the first dot
behind the last slash; what follows, in lower case, is its extension: `al/0001.left.JPG` is the `left.jpg` of the sample
`al/0001`. Members without an extension, with a dot in front, or named `__…__` belong to none.

A column is an extension, or a field of its JSON. Its kind follows from the extension, as in WebDataset, and from the
first hundred samples: pictures (`jpg`, `png`, …), whole numbers (`cls`, `index`, …), arrays (`npy`), the fields of
`json` (`json.person`, `json.meta.age`), text for all else that is UTF-8. `__key__` is a sample's key, `__url__` its
shard. Memory holds the keys and a block of rows.

More is refused than by `tarfile`, for which a tar that was cut short, that goes on behind its end or has a damaged
header just ends early: samples would be missing without a word. A link is refused, too: what it points at is never
opened.

>>> key_and_extension("al/0001.left.JPG"), key_and_extension("a.b/README"), key_and_extension("._0001.jpg")
(('al/0001', 'left.jpg'), None, None)

**Patterns:** a file, a folder of them, or a pattern with `*`, `?`, `[…]` and `{…}`.

>>> braces("faces-{000..002}.tar")
['faces-000.tar', 'faces-001.tar', 'faces-002.tar']
>>> braces("{train,test}.tar")
['train.tar', 'test.tar']

References:
    WebDataset, module `webdataset.tariterators`: `base_plus_ext`, `group_by_keys`.
"""

import glob
import io
import os
import re
import stat
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import parse_json
from sfumato.data.files import array_in
from sfumato.data.mapped import Strings
from sfumato.data.pictures import picture_endings
from sfumato.data.records import Records, is_list, lists
from sfumato.data.safeguards import refuse_same_files, refuse_undecodable_name

BLOCK = tarfile.BLOCKSIZE
_LONGEST = 1 << 14  # bytes of one header that extends another; a path has 4,096, and parsing takes their square
_BEHIND = 1 << 16  # bytes behind the end that must be padding
_PACKED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
_AGAIN = "copy or write it again"


class _Header(tarfile.TarInfo):
    """A header; one that extends another is short, so that its content takes little memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        extends = header.type in (
            *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
            *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
        )
        if extends and not 0 <= header.size <= _LONGEST:
            raise tarfile.HeaderError(f"a name or comment of {header.size:,} bytes")
        return header


def open_tar(path: Path) -> BinaryIO:
    """A tar file.

    Raises:
        InputError: it cannot be read, is no regular file, or is packed.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # a pipe shall not wait
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(f"{path} is not a regular file; give a tar file")
        first = file.peek(8)
        for magic, unpack in _PACKED.items():
            if first.startswith(magic):
                raise InputError(f"{path} is packed; unpack it: {unpack}")
    except BaseException:
        file.close()
        raise
    return file


def members(file: BinaryIO, path: Path | str) -> Iterator[tarfile.TarInfo]:
    """The regular files in a tar, in their order; the caller may move in the file between two of them.

    Args:
        file: the tar, from `open_tar`.
        path: what messages call it.

    Raises:
        InputError: the tar is empty, damaged or cut short, or has a link, a device or a sparse file.
    """
    end = os.fstat(file.fileno()).st_size
    # Made on an empty tar, as it looks for the first member at once; going through a TarFile would end in silence.
    tar = tarfile.TarFile(
        fileobj=io.BytesIO(bytes(2 * BLOCK)), tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
    )
    tar.fileobj, at = file, 0
    while True:
        file.seek(at)
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            cut = "is empty" if end == 0 else f"is cut short: it ends at byte {end:,} without the mark of an end"
            raise InputError(f"{path} {cut}; {_AGAIN}")
        if not any(header):
            _refuse_more(file, at, path)
            return
        file.seek(at)
        tar.offset = at
        try:
            info = _Header.fromtarfile(tar)
        except (tarfile.TarError, ValueError, KeyError, IndexError, RecursionError, OSError) as error:
            raise InputError(f"{path} has a damaged header at byte {at:,} ({_short(error)}); {_AGAIN}") from None
        if info.issparse():
            raise InputError(
                f"{path} has a member that is stored with holes, at byte {at:,}; write the tar without --sparse"
            )
        if info.type in tarfile.SUPPORTED_TYPES and not info.isreg() and not info.isdir():
            kind = "a link" if info.issym() or info.islnk() else "a device or pipe"
            raise InputError(
                f"{path}: {info.name!r} is {kind}, which is not followed; write the tar with --dereference "
                "--hard-dereference"
            )
        if tar.offset <= at or (info.isreg() and not 0 <= info.size <= end - info.offset_data):
            raise InputError(
                f"{path} is cut short or damaged: {info.name!r} at byte {at:,} has {info.size:,} bytes, {path} has "
                f"{end:,}; {_AGAIN}"
            )
        at = tar.offset
        if info.isreg():
            yield info


def _refuse_more(file: BinaryIO, at: int, path: Path | str) -> None:
    """Refuse members behind the end, as `cat a.tar b.tar` leaves them."""
    file.seek(at)
    behind = file.read(_BEHIND)
    if len(behind) < 2 * BLOCK:
        raise InputError(f"{path} is cut short: it ends within the mark of its end; {_AGAIN}")
    if any(behind):
        raise InputError(f"{path} goes on behind its end; join tars with tar --concatenate, or give them one by one")


_META = re.compile(r"__[^/]*__($|/)")


def key_and_extension(name: str) -> tuple[str, str] | None:
    """The key of the sample that a member belongs to, and its extension; None if it belongs to none."""
    if name.startswith("__") and _META.match(name):
        return None
    folder = name.rfind("/") + 1
    dot = name.find(".", folder)
    return None if dot <= folder else (name[:dot], name[dot + 1 :].lower())


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        key: of its members.
        shard: the tar.
        parts: by extension, the content of the members that were asked for, None of the others.
    """

    key: str
    shard: Path
    parts: dict[str, bytes | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"the sample {self.key!r} of {self.shard}"


State = tuple[int, int]
"""The size of a file, and when it was changed."""


def state_of(file: BinaryIO) -> State:
    """The state of an open file."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def samples(shard: Path, wanted: Callable[[str], bool], state: State | None = None) -> Iterator[Sample]:
    """The samples of a tar, in their order.

    Args:
        shard: the tar.
        wanted: whether the contents of members with an extension are read.
        state: that of the file when it was opened first; None takes today's.

    Raises:
        InputError: as `members`; the tar changed while it was read, a member is there twice or too large, or the
            members of a sample do not stand together.
    """
    with open_tar(shard) as file:
        state = state or state_of(file)
        sample, seen = None, set[str]()
        for member in members(file, shard):
            if (found := key_and_extension(member.name)) is None:
                continue
            key, kind = found
            if sample is None or key != sample.key:
                if sample is not None:
                    _refuse_changed(file, shard, state)
                    yield sample
                if key in seen:
                    raise InputError(
                        f"{shard}: the members of the sample {key!r} do not stand together; write them one after the "
                        "other (tar --sort=name)"
                    )
                seen.add(key)
                sample = Sample(key, shard)
            if kind in sample.parts:
                raise InputError(f"{shard} has {member.name!r} twice; keep one")
            sample.parts[kind] = _content(file, member, kind, sample) if wanted(kind) else None
        _refuse_changed(file, shard, state)
        if sample is not None:
            yield sample


def _content(file: BinaryIO, member: tarfile.TarInfo, kind: str, sample: Sample) -> bytes:
    if member.size > _LARGEST:
        raise InputError(f"{kind} of {sample} has {member.size:,} bytes; 1 GiB is most")
    file.seek(member.offset_data)
    return file.read(member.size)


def _refuse_changed(file: BinaryIO, shard: Path, state: State) -> None:
    if state_of(file) != state:
        raise InputError(f"{shard} changed while it was read; start again, and leave it as it is")


SUFFIX = ".tar"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_GROUP = re.compile(r"\{([^{}]*)\}")
_MOST = 1_000_000  # names that a pattern may stand for


def is_tars(source: Path | str) -> bool:
    """Whether a path means tar files: by its name, or as a folder of them that has no folders."""
    place = Path(source)
    if place.is_dir():
        entries = list(place.iterdir())
        return any(_named(entry, (SUFFIX,)) for entry in entries) and not any(entry.is_dir() for entry in entries)
    return place.name.lower().endswith((SUFFIX, *PACKED))


def shards_of(source: Path | str) -> list[Path]:
    """The tar files, in sorted order, or in that of the braces.

    Raises:
        InputError: there are none, one is missing, packed, or there twice by a link.
    """
    if _named(Path(source), PACKED):
        raise InputError(f"{source} is packed; unpack it to {SUFFIX}")
    if Path(source).is_file():
        return [Path(source)]
    if Path(source).is_dir():
        entries = sorted(Path(source).iterdir())
        for entry in entries:
            if _named(entry, PACKED):
                raise InputError(f"{entry} is packed, and its samples would be left out; unpack it, or give a pattern")
        return _each_once([entry for entry in entries if _named(entry, (SUFFIX,))])
    found: dict[Path, None] = {}
    for pattern in braces(str(source)):
        here = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not here or not Path(here[0]).exists():
            raise InputError(
                f"there is nothing at {pattern}; give the path of a {SUFFIX}, a folder of them or a pattern"
            )
        found |= dict.fromkeys(map(Path, here))
    return _each_once(list(found))


def _named(path: Path, suffixes: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(suffixes)


def _each_once(shards: list[Path]) -> list[Path]:
    refuse_same_files(shards)
    return shards


def braces(pattern: str) -> list[str]:
    """The names that a pattern with {first..last} and {one,other} stands for; groups are not within each other.

    Raises:
        InputError: a group is none of these, or there are too many names.
    """
    names = [""]
    at = 0
    for group in _GROUP.finditer(pattern):
        choices = _choices(group[1], pattern)
        if len(names) * len(choices) > _MOST:
            raise InputError(f"{pattern} stands for more than {_MOST:,} files; give fewer, or their folder")
        names = [name + pattern[at : group.start()] + one for name in names for one in choices]
        at = group.end()
    return [name + pattern[at:] for name in names]


def _choices(inner: str, pattern: str) -> list[str]:
    numbers = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", inner)
    if numbers is None:
        if "," in inner:
            return inner.split(",")
        raise InputError(f"{{{inner}}} in {pattern} must be {{first..last}} or {{one,other}}")
    first, last = int(numbers[1]), int(numbers[2])
    if last < first or last - first >= _MOST:
        raise InputError(f"{{{inner}}} in {pattern} must rise, and by less than {_MOST:,}")
    return [f"{number:0{len(numbers[1])}d}" for number in range(first, last + 1)]


# The samples of tar shards as the rows of a table.


_JSON = ("json", "jsn")
_WHOLE = ("cls", "cls2", "class", "count", "index", "inx", "id")
_SAMPLES_LOOKED_AT = 100  # samples that show what a column holds
_MOST_EXTENSIONS = 256
_MOST_BYTES = 1 << 26  # of a block of rows, and of an extension's first members
_LARGEST = 1 << 30  # bytes of one member
_DIGITS = 64  # bytes of a whole number, with blanks


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Where a column's values come from.

    Attributes:
        extension: of the members; "" for the key and the shard.
        value: turns one into a value; raises ValueError where it cannot.
        kind: the values' Arrow type.
    """

    extension: str
    value: Callable[[bytes], Any]
    kind: pa.DataType


def open_tars(path: Path | str) -> Records:
    """Open tar shards.

    Args:
        path: a tar, a folder of them, or a pattern.

    Raises:
        InputError: there are none, or one is damaged, packed, or not made of samples.
    """
    shards, states, ends = shards_of(path), list[State](), list[int]()
    first: dict[str, list[Sample]] = {}
    keys = Strings.from_list(_first_pass(shards, states, ends, first))
    if not first:
        raise InputError(f"{path} has no samples: no member is named KEY.EXTENSION")
    found = [
        (f"{kind}.{'.'.join(names)}", (kind, names))
        for kind in first
        if kind.split(".")[-1] in _JSON
        for names in _fields(first[kind], kind)
    ]
    fields = dict(found)
    # a name that is there twice is refused where it is asked for
    names = [*first, *(name for name, _ in found), "__key__", "__url__"]

    @cache
    def column(name: str) -> _Column:
        if name in ("__key__", "__url__"):
            return _Column(extension="", value=_text, kind=pa.large_string())
        if name in first:
            return _by_extension(first[name], name)
        kind, inner = fields[name]
        return _with_kind(first[kind], name, kind, lambda content: _field(content, inner))

    def as_text(name: str) -> _Column:
        found = column(name)
        return replace(found, value=_text, kind=pa.large_string()) if found.value is _whole else found

    def read(chosen: list[str], rows: int, of: Callable[[str], _Column] = column) -> Iterator[pa.Table]:
        columns = {name: of(name) for name in chosen}
        wanted = {one.extension for one in columns.values()}
        held: list[Sample] = []
        size = 0
        for shard, state in zip(shards, states, strict=True):
            for sample in samples(shard, wanted.__contains__, state):
                held.append(sample)
                size += sum(len(content) for content in sample.parts.values() if content is not None)
                if len(held) == rows or size >= _MOST_BYTES:
                    yield _table(columns, held)
                    held, size = [], 0
        if held:
            yield _table(columns, held)

    return Records(
        title=str(path),
        names=tuple(names),
        count=len(keys),
        kind=lambda name: column(name).kind,
        read=read,
        texts=lambda chosen, rows: read(chosen, rows, as_text),
        place=lambda row: f"position {row} (sample {keys[row]!r} of {shards[bisect_right(ends, row)].name})",
    )


def _first_pass(
    shards: Sequence[Path], states: list[State], ends: list[int], first: dict[str, list[Sample]]
) -> Iterator[str]:
    """The keys of all samples; collects the states of shards, how many samples each ends with, and the first ones."""
    sizes: dict[str, int] = {}

    def looked_at(kind: str) -> bool:
        few = len(first.get(kind, ())) < _SAMPLES_LOOKED_AT and sizes.get(kind, 0) < _MOST_BYTES
        return few and f".{kind.split('.')[-1]}" not in picture_endings()

    count = 0
    for shard in shards:
        with open_tar(shard) as file:
            states.append(state_of(file))
        for sample in samples(shard, looked_at, states[-1]):
            for kind, content in sample.parts.items():
                if kind not in first and len(first) == _MOST_EXTENSIONS:
                    raise InputError(
                        f"{shard} has more than {_MOST_EXTENSIONS} extensions, as .{kind[:40]} of "
                        f"{f'{sample.key}.{kind}'[:200]!r}: they begin at the first dot of a name; name members "
                        "KEY.EXTENSION"
                    )
                first.setdefault(kind, [])
                if content is not None:
                    first[kind].append(Sample(sample.key, shard, {kind: content}))
                    sizes[kind] = sizes.get(kind, 0) + len(content)
            count += 1
            yield sample.key
        ends.append(count)


def _cell(sample: Sample, name: str, column: _Column) -> Any:
    if not column.extension:
        refuse_undecodable_name(sample.key, "sample", str(sample.shard))
        return sample.key if name == "__key__" else str(sample.shard)
    content = sample.parts.get(column.extension)
    try:
        return None if content is None else column.value(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} of {sample} is no {_word(column)}: {_short(error)}; correct it") from None


def _table(columns: Mapping[str, _Column], held: Sequence[Sample]) -> pa.Table:
    return pa.table({name: _array(one, name, held) for name, one in columns.items()})


def _array(column: _Column, name: str, held: Sequence[Sample]) -> pa.Array:
    """Values as Arrow; what is of another kind than the column is named by its sample."""
    values = [_cell(sample, name, column) for sample in held]
    if column.value is array_in:
        if all(value is not None for value in values):
            return _stacked(column, name, values, held)
        values = [None if value is None else value.tolist() for value in values]  # which is refused further on
    try:
        return _as_kind(values, column.kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for value, sample in zip(values, held, strict=True):
            try:
                _as_kind([value], column.kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"{name} of {sample} is no {column.kind}, as those before it are: {_short(error)}; convert it"
                ) from None
        raise


def _as_kind(values: list, kind: pa.DataType) -> pa.Array:
    """Values as Arrow, numbers as those of another kind only where that changes none: 2.0 is 2, and 0.5 is refused."""
    found = pa.array(values)
    if not values or pa.types.is_null(found.type):
        return pa.nulls(len(values), kind)
    (depth, inner), (wanted_depth, wanted) = _leaf(found.type), _leaf(kind)
    numbers = all(pa.types.is_integer(one) or pa.types.is_floating(one) for one in (inner, wanted))
    texts = pa.types.is_string(inner) and pa.types.is_large_string(wanted)
    bytes_ = pa.types.is_binary(inner) and pa.types.is_large_binary(wanted)
    if depth != wanted_depth or not (inner == wanted or pa.types.is_null(inner) or numbers or texts or bytes_):
        raise ValueError(f"it is {found.type}")
    return found.cast(kind)


def _leaf(kind: pa.DataType) -> tuple[int, pa.DataType]:
    """How many lists are within each other, and what the innermost one holds."""
    depth = 0
    while is_list(kind):
        kind, depth = kind.value_type, depth + 1
    return depth, kind


def _stacked(column: _Column, name: str, values: list[np.ndarray], held: Sequence[Sample]) -> pa.Array:
    for value, sample in zip(values, held, strict=True):
        if (kind := _array_kind(value)) != column.kind:
            raise InputError(f"{name} of {sample} is {kind}, those before it are {column.kind}; make them equal")
    return lists(np.stack(values))


def _fields(first: Sequence[Sample], extension: str) -> list[tuple[str, ...]]:
    """The names of the fields in the first JSON members, with those of the objects around them."""
    found: dict[tuple[str, ...], None] = {}

    def look(value: Any, names: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                look(inner, (*names, name))
        elif names:
            found.setdefault(names)

    parsed = _Column(extension=extension, value=parse_json, kind=pa.null())
    for sample in first:
        look(_cell(sample, extension, parsed), ())
    return list(found)


def _field(content: bytes, names: Sequence[str]) -> Any:
    value = parse_json(content)
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _by_extension(first: Sequence[Sample], extension: str) -> _Column:
    last = extension.split(".")[-1]
    if f".{last}" in picture_endings():
        return _Column(extension=extension, value=bytes, kind=pa.large_binary())
    if last == "npy":
        return _with_kind(first, extension, extension, array_in)
    for value, kind in ((_whole, pa.int64()), (_text, pa.large_string())):
        column = _Column(extension=extension, value=value, kind=kind)
        if (value is _text or last in _WHOLE) and _fits(column, first):
            return column
    return _Column(extension=extension, value=bytes, kind=pa.large_binary())


def _fits(column: _Column, first: Sequence[Sample]) -> bool:
    """Whether the first members can be read so."""
    try:
        return all(column.value(sample.parts[column.extension]) is not None for sample in first)  # type: ignore[arg-type]
    except ValueError:
        return False


def _with_kind(first: Sequence[Sample], name: str, extension: str, value: Callable[[bytes], Any]) -> _Column:
    """A column whose type its first values show."""
    untyped = _Column(extension=extension, value=value, kind=pa.null())
    found = [_cell(sample, name, untyped) for sample in first]
    if found and isinstance(found[0], np.ndarray):
        return replace(untyped, kind=_array_kind(found[0]))
    try:
        return replace(untyped, kind=pa.array(found).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} of the first samples is not of one kind: {_short(error)}; convert it") from None


def _array_kind(value: np.ndarray) -> pa.DataType:
    try:
        kind = pa.from_numpy_dtype(value.dtype)
    except pa.ArrowException:
        raise InputError(f"an npy of {value.dtype} is no array of numbers; convert it") from None
    if 0 in value.shape:
        raise InputError(f"an npy of the shape {value.shape} holds nothing; give numbers")
    for side in reversed(value.shape):
        kind = pa.list_(kind, side)
    return kind


def _text(content: bytes) -> str:
    text = content.decode("utf-8-sig").strip()
    if "\0" in text:
        raise ValueError("it has a zero byte")
    return text


def _whole(content: bytes) -> int:
    if len(content) > _DIGITS:
        raise ValueError(f"it has {len(content):,} bytes")
    return int(content)


def _word(column: _Column) -> str:
    if column.value is _whole:
        return "whole number"
    if column.value is _text:
        return "text in UTF-8"
    return "array" if column.value is array_in else "JSON"


def _short(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
