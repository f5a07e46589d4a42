"""Tar files as WebDataset writes them, and their samples as the rows of a table.

Where the samples of a tar are: members with a common key are one sample, as in WebDataset.

A member's key is its name up to the first dot behind the last slash; what follows, in lower case, is its extension:
`al/0001.left.JPG` is the `left.jpg` of the sample `al/0001`. Members without an extension, with a dot in front, or
named `__…__` belong to none. The members of a sample stand one after the other.

The index takes about 24 bytes a member and the keys, however long the contents are.

References:
    WebDataset, module `webdataset.tariterators`: `base_plus_ext`, `group_by_keys`.

>>> key_and_extension("al/0001.left.JPG"), key_and_extension("a.b/README"), key_and_extension("._0001.jpg")
(('al/0001', 'left.jpg'), None, None)

Which tar files are meant: a file, a folder of them, or a pattern with `*`, `?`, `[…]` and `{…}`.

>>> braces("faces-{000..002}.tar")
['faces-000.tar', 'faces-001.tar', 'faces-002.tar']
>>> braces("{train,test}.tar")
['train.tar', 'test.tar']
"""

import glob
import io
import os
import re
import stat
import tarfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import parse_json
from sfumato.data.files import array_in
from sfumato.data.mapped import Strings
from sfumato.data.pictures import picture_endings
from sfumato.data.records import Records, is_list, lists
from sfumato.data.safeguards import refuse_same_files, refuse_undecodable_name

# The members of a tar file: where the content of each begins and how long it is, in constant memory.
#
# A member's header is 512 bytes in front of it. The usual kinds are read here, several times faster than `tarfile` of
# the standard library does; what is unusual (long names, sizes above 8 GB, headers for all members) is left to that.
# More is refused than there: for `tarfile` a tar that was cut short, that goes on behind its end or has a damaged
# header just ends early, and samples would be missing without a word. A link is refused, too: what it points at is
# never opened.
#
# References:
#     The Open Group Base Specifications (POSIX.1-2017), pax, "ustar Interchange Format" and "pax Header Block".


BLOCK = 512
_LONGEST = 1 << 14  # bytes of one header that extends another; a path has 4,096, and parsing takes their square
_IN_A_ROW = 8  # headers that extend one member
_BEHIND = 1 << 16  # bytes behind the end that must be padding
_EXTENDS = (b"x", b"X", b"g", b"L", b"K")
_HOLES = b"GNU.sparse."
_CHANGES = (b"path=", b"size=", _HOLES, b"hdrcharset=")  # what in a pax header changes name or extent
_PACKED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}


class Member(NamedTuple):
    """A regular file in a tar.

    Attributes:
        name: with its folders, as it is written there; never used as a path.
        offset: where its content begins.
        size: bytes of content.
    """

    name: str
    offset: int
    size: int


def open_tar(path: Path) -> BinaryIO:
    """A tar file, opened without a buffer.

    Raises:
        InputError: it cannot be read, is no regular file, or is packed, so that no member can be found by its place.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)  # a pipe shall not wait
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(f"{path} is not a regular file; give a tar file")
        first = os.pread(file.fileno(), 8, 0)
        for magic, unpack in _PACKED.items():
            if first.startswith(magic):
                raise InputError(f"{path} is packed, so samples cannot be found by their place; unpack it: {unpack}")
    except BaseException:
        file.close()
        raise
    return file


def members(file: BinaryIO, path: Path | str) -> Iterator[Member]:
    """The regular files in a tar, in their order.

    Args:
        file: the tar, from `open_tar`.
        path: what messages call it.

    Raises:
        InputError: the tar is empty, damaged or cut short, or has a link, a device or a sparse file.
    """
    handle, end, at = file.fileno(), os.fstat(file.fileno()).st_size, 0
    unusual: tarfile.TarFile | None = None  # opened when it is needed
    for_all = False  # whether a header for all members came
    while True:
        header = os.pread(handle, BLOCK, at)
        if len(header) < BLOCK:
            cut = "is empty" if end == 0 else f"is cut short: it ends at byte {end:,} without the mark of an end"
            raise InputError(f"{path} {cut}; copy or write it again")
        if not header[0] and not any(header):
            _refuse_more(handle, at, path)
            return
        kind, found = header[156:157], None
        if not for_all:
            if kind in (b"0", b"\0"):
                found = _plain(header, at)
            elif kind == b"x" and _is_needless(handle, header, at):
                at += 2 * BLOCK  # of times and owners
                continue
        if found is None:
            if kind in _EXTENDS:
                for_all = _refuse_long(handle, header, at, path) or for_all
            unusual = unusual or _by_the_library(file)
            found, after = _unusual(unusual, file, at, path)
        else:
            after = found.offset + -(-found.size // BLOCK) * BLOCK
        beyond = found is not None and (found.size < 0 or found.offset + found.size > end)
        if beyond or after <= at:
            name, size = (found.name, found.size) if found else ("a member", 0)
            raise InputError(
                f"{path} is cut short or damaged: {name!r} at byte {at:,} has {size:,} bytes, {path} has {end:,}; "
                "copy or write it again"
            )
        if found is not None:
            yield found
        at = after


def _plain(header: bytes, at: int) -> Member | None:
    """A regular file whose header says all of it; None for what `tarfile` should look at."""
    field = header[124:136]
    if field[0] & 0x80:
        return None
    try:
        size = int(field.partition(b"\0")[0].strip() or b"0", 8)
        told = int(header[148:156].partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None
    if told != sum(header) - sum(header[148:156]) + 256:
        return None
    name = header[:100].partition(b"\0")[0]
    if header[345]:
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    if header[156] == 0 and name.endswith(b"/"):  # a folder, as tars of old have it
        return None
    return Member(name.decode("utf-8", "surrogateescape"), at + BLOCK, size)


def _is_needless(handle: int, header: bytes, at: int) -> bool:
    """Whether a pax header is short and changes neither name nor extent, so that the next one can be read by itself."""
    held = _plain(header, at)
    if held is None or not 0 < held.size <= BLOCK:
        return False
    content = os.pread(handle, BLOCK + 1, held.offset)[: held.size]
    return content.endswith(b"\n") and not any(word in content for word in _CHANGES)


def _by_the_library(file: BinaryIO) -> tarfile.TarFile:
    """A reader of single members; it is opened on an empty tar, as it looks for the first member at once."""
    tar = tarfile.TarFile(fileobj=io.BytesIO(bytes(2 * BLOCK)), encoding="utf-8", errors="surrogateescape")
    tar.fileobj = file
    return tar


def _refuse_long(handle: int, header: bytes, at: int, path: Path | str) -> bool:
    """Refuse headers that extend a member without end, before memory is taken; tells whether one is for all members."""
    for_all = False
    for _ in range(_IN_A_ROW):
        if header[156:157] not in _EXTENDS:
            return for_all
        for_all = for_all or header[156:157] == b"g"
        held = _plain(header, at)
        if held is None or not 0 <= held.size <= _LONGEST:
            break
        if _HOLES in os.pread(handle, held.size, held.offset):
            raise InputError(_holes(path, at))
        at = held.offset + -(-held.size // BLOCK) * BLOCK
        header = os.pread(handle, BLOCK, at)
    raise InputError(f"{path} has a damaged header at byte {at:,}; copy or write it again")


def _unusual(tar: tarfile.TarFile, file: BinaryIO, at: int, path: Path | str) -> tuple[Member | None, int]:
    """A member as `tarfile` reads it, None for a folder, and where the next one begins."""
    if os.pread(file.fileno(), BLOCK, at)[156:157] == tarfile.GNUTYPE_SPARSE:
        raise InputError(_holes(path, at))
    tar.offset = at
    file.seek(at)
    try:
        info = tarfile.TarInfo.fromtarfile(tar)
    except (tarfile.HeaderError, tarfile.ReadError, ValueError, KeyError, IndexError, RecursionError, OSError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} has a damaged header at byte {at:,} ({why}); copy or write it again") from None
    if info.isdir():
        return None, tar.offset
    if not info.isreg():
        if info.type in tarfile.SUPPORTED_TYPES:
            kind = "a link" if info.issym() or info.islnk() else "a device or pipe"
            raise InputError(
                f"{path}: {info.name!r} is {kind}, which is not followed; write the tar with --dereference "
                "--hard-dereference"
            )
        return None, tar.offset
    return Member(info.name, info.offset_data, info.size), tar.offset


def _holes(path: Path | str, at: int) -> str:
    return f"{path} has a member that is stored with holes, at byte {at:,}; write the tar without --sparse"


def _refuse_more(handle: int, at: int, path: Path | str) -> None:
    """Refuse members behind the end, as `cat a.tar b.tar` leaves them."""
    behind = os.pread(handle, _BEHIND, at)
    if len(behind) < 2 * BLOCK:
        raise InputError(f"{path} is cut short: it ends within the mark of its end; copy or write it again")
    if any(behind):
        raise InputError(f"{path} goes on behind its end; join tars with tar --concatenate, or give them one by one")


_MOST_EXTENSIONS = 256
_META = re.compile(r"__[^/]*__($|/)")


@dataclass(frozen=True, kw_only=True)
class TarIndex:
    """The samples of one tar.

    Attributes:
        path: the tar.
        state: its size and time of change when it was indexed.
        keys: of the samples.
        extensions: that occur, in the order in which they first do.
        sample: int32 [members], which sample each belongs to, ascending.
        extension: int32 [members], which of the extensions it has.
        offset: int64 [members], where its content begins.
        size: int64 [members], bytes of content.
    """

    path: Path
    state: tuple[int, int]
    keys: Strings
    extensions: tuple[str, ...]
    sample: np.ndarray
    extension: np.ndarray
    offset: np.ndarray
    size: np.ndarray

    def column(self, extension: str) -> np.ndarray:
        """Where the members with an extension are, int64 [samples, 2]: offset and size, −1 where there is none."""
        places = np.full((len(self.keys), 2), -1, np.int64)
        if extension in self.extensions:
            chosen = self.extension == self.extensions.index(extension)
            places[self.sample[chosen]] = np.stack([self.offset[chosen], self.size[chosen]], 1)
        return places

    def open(self) -> BinaryIO:
        """The tar, to read members from.

        Raises:
            InputError: it is not the file any more that was indexed.
        """
        file = open_tar(self.path)
        try:
            self.refuse_changed(file)
        except InputError:
            file.close()
            raise
        return file

    def refuse_changed(self, file: BinaryIO) -> None:
        """Refuse a tar whose size or time of change is not what it was when it was indexed."""
        _refuse_changed(file, self.path, self.state)


def index_tar(path: Path) -> TarIndex:
    """The index of a tar.

    Raises:
        InputError: as `members`; or the members of a sample do not stand together, or two have the same name.
    """
    with open_tar(path) as file:
        state = _state(file)
        found = _made(path, state, file)
        _refuse_changed(file, path, state)
        return found


def key_and_extension(name: str) -> tuple[str, str] | None:
    """The key of the sample that a member belongs to, and its extension; None if it belongs to none."""
    if name.startswith("__") and _META.match(name):
        return None
    folder = name.rfind("/") + 1
    dot = name.find(".", folder)
    return None if dot <= folder else (name[:dot], name[dot + 1 :].lower())


def _made(path: Path, state: tuple[int, int], file: BinaryIO) -> TarIndex:
    keys, ends, hashes = bytearray(), array("q", [0]), array("q")
    sample, extension, offset, size = array("i"), array("i"), array("q"), array("q")
    numbers: dict[str, int] = {}
    last: str | None = None
    held: set[str] = set()
    for member in members(file, path):
        parts = key_and_extension(member.name)
        if parts is None:
            continue
        key, kind = parts
        if key != last:
            last, held = key, set()
            keys += key.encode("utf-8", "surrogateescape")
            ends.append(len(keys))
            hashes.append(hash(key))
        if kind in held:
            raise InputError(f"{path} has {member.name!r} twice; keep one")
        held.add(kind)
        if kind not in numbers and len(numbers) == _MOST_EXTENSIONS:
            raise InputError(
                f"{path} has more than {_MOST_EXTENSIONS} extensions, as .{kind[:40]} of {member.name[:200]!r}: they "
                "begin at the first dot of a name; name members KEY.EXTENSION"
            )
        sample.append(len(hashes) - 1)
        extension.append(numbers.setdefault(kind, len(numbers)))
        offset.append(member.offset)
        size.append(member.size)
    found = TarIndex(
        path=path,
        state=state,
        keys=Strings(np.frombuffer(bytes(keys), np.uint8), np.array(ends, np.int64)),
        extensions=tuple(numbers),
        sample=np.array(sample, np.int32),
        extension=np.array(extension, np.int32),
        offset=np.array(offset, np.int64),
        size=np.array(size, np.int64),
    )
    _refuse_apart(found, np.array(hashes, np.int64))
    return found


def _refuse_apart(found: TarIndex, hashes: np.ndarray) -> None:
    """Refuse a key that comes again behind another one: its members would be two samples with a part each."""
    order = np.argsort(hashes, kind="stable")
    for place in np.flatnonzero(np.diff(hashes[order]) == 0):
        one, other = found.keys[int(order[place])], found.keys[int(order[place + 1])]
        if one == other:
            raise InputError(
                f"{found.path}: the members of the sample {one!r} do not stand together; write them one after the "
                "other (tar --sort=name)"
            )


def _state(file: BinaryIO) -> tuple[int, int]:
    told = os.fstat(file.fileno())
    return told.st_size, told.st_mtime_ns


def _refuse_changed(file: BinaryIO, path: Path, state: tuple[int, int]) -> None:
    if _state(file) != state:
        raise InputError(f"{path} changed while it was read; start again, and leave it as it is")


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
        raise InputError(f"{source} is packed, so samples cannot be found by their place; unpack it to {SUFFIX}")
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


# The samples of tar shards as the rows of a table: a column for each extension, and for each field of their JSON.
#
# What a column holds is told by the extension, as in WebDataset, and by the first hundred samples: pictures (`jpg`,
# `png`, …), whole numbers (`cls`, `index`, …), arrays (`npy`), the fields of `json` (`json.person`, `json.meta.age`),
# text for all else that is UTF-8. `__key__` is a sample's key, `__url__` its shard. Columns are read apart: whoever
# asks for users does not read pictures. Memory holds the index and a block of rows.


_JSON = ("json", "jsn")
_WHOLE = ("cls", "cls2", "class", "count", "index", "inx", "id")
_SAMPLES_LOOKED_AT = 100  # samples that tell what a column holds
_MOST_BYTES = 1 << 26  # of a block of rows
_LARGEST = 1 << 30  # bytes of one member
_DIGITS = 64  # bytes of a whole number, with blanks
Reading = Callable[[bytes], Any]
"""Turns a member into a value; raises ValueError where it cannot."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Where a column's values come from.

    Attributes:
        extension: of the members; "" for the key and the shard.
        value: turns one into a value.
        kind: the values' Arrow type.
    """

    extension: str
    value: Reading
    kind: pa.DataType


@dataclass(frozen=True)
class _Sample:
    """One sample, with the members that were asked for."""

    key: str
    shard: Path
    parts: Mapping[str, bytes | None]

    def __str__(self) -> str:
        return f"the sample {self.key!r} of {self.shard}"


def open_tars(path: Path | str) -> Records:
    """Open tar shards.

    Args:
        path: a tar, a folder of them, or a pattern.

    Raises:
        InputError: there are none, or one is damaged, packed, or not made of samples.
    """
    shards = [index_tar(one) for one in shards_of(path)]
    starts = np.cumsum([0, *(len(one.keys) for one in shards)])
    extensions = list(dict.fromkeys(kind for one in shards for kind in one.extensions))
    if not extensions:
        raise InputError(f"{path} has no samples: no member is named KEY.EXTENSION")
    found = [
        (f"{kind}.{'.'.join(names)}", (kind, names))
        for kind in extensions
        if kind.split(".")[-1] in _JSON
        for names in _fields(shards, kind)
    ]
    fields = dict(found)
    # a name that is there twice is refused where it is asked for
    names = [*extensions, *(name for name, _ in found), "__key__", "__url__"]

    @cache
    def column(name: str) -> _Column:
        if name in ("__key__", "__url__"):
            return _Column(extension="", value=_text, kind=pa.large_string())
        if name in extensions:
            return _by_extension(shards, name)
        kind, inner = fields[name]
        return _with_kind(shards, name, kind, lambda content: _field(content, inner))

    def as_text(name: str) -> _Column:
        found = column(name)
        return replace(found, value=_text, kind=pa.large_string()) if found.value is _whole else found

    def read(chosen: list[str], rows: int, of: Callable[[str], _Column] = column) -> Iterator[pa.Table]:
        columns = {name: of(name) for name in chosen}
        values: dict[str, list] = {name: [] for name in chosen}
        held: list[_Sample] = []
        for sample, size in _samples(shards, {one.extension for one in columns.values()} - {""}, rows):
            held.append(sample)
            for name, one in columns.items():
                values[name].append(_cell(sample, name, one))
            if size:
                yield _table(columns, values, held)
                values, held = {name: [] for name in chosen}, []
        if held:
            yield _table(columns, values, held)

    def place(row: int) -> str:
        shard = int(np.searchsorted(starts, row, side="right")) - 1
        return f"position {row} (sample {shards[shard].keys[row - int(starts[shard])]!r} of {shards[shard].path.name})"

    return Records(
        told=str(path),
        names=tuple(names),
        count=int(starts[-1]),
        kind=lambda name: column(name).kind,
        read=read,
        texts=lambda chosen, rows: read(chosen, rows, as_text),
        place=place,
    )


def _samples(shards: Sequence[TarIndex], extensions: set[str], rows: int) -> Iterator[tuple[_Sample, bool]]:
    """The samples with some of their members, and whether a block should end with each."""
    count = size = 0
    for shard in shards:
        places = {kind: shard.column(kind) for kind in extensions}
        with shard.open() as file:
            for row, key in enumerate(shard.keys):
                parts: dict[str, bytes | None] = {}
                for kind, where in places.items():
                    offset, length = map(int, where[row])
                    if length > _LARGEST:
                        raise InputError(
                            f"{kind} of {_Sample(key, shard.path, {})} has {length:,} bytes; 1 GiB is most"
                        )
                    parts[kind] = None if offset < 0 else os.pread(file.fileno(), length, offset)
                    size += max(length, 0)
                count += 1
                full = count == rows or size >= _MOST_BYTES
                if full:
                    count = size = 0
                    shard.refuse_changed(file)
                yield _Sample(key, shard.path, parts), full
            shard.refuse_changed(file)


def _cell(sample: _Sample, name: str, column: _Column) -> Any:
    if not column.extension:
        refuse_undecodable_name(sample.key, "sample", str(sample.shard))
        return sample.key if name == "__key__" else str(sample.shard)
    content = sample.parts[column.extension]
    try:
        return None if content is None else column.value(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} of {sample} is no {_word(column)}: {_short(error)}; correct it") from None


def _table(columns: Mapping[str, _Column], values: Mapping[str, list], samples: Sequence[_Sample]) -> pa.Table:
    return pa.table({name: _array(one, name, values[name], samples) for name, one in columns.items()})


def _array(column: _Column, name: str, values: list, samples: Sequence[_Sample]) -> pa.Array:
    """Values as Arrow; what is of another kind than the column is named by its sample."""
    if column.value is array_in:
        if all(value is not None for value in values):
            return _stacked(column, name, values, samples)
        values = [None if value is None else value.tolist() for value in values]  # which is refused further on
    try:
        return _as_kind(values, column.kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for value, sample in zip(values, samples, strict=True):
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


def _stacked(column: _Column, name: str, values: list[np.ndarray], samples: Sequence[_Sample]) -> pa.Array:
    for value, sample in zip(values, samples, strict=True):
        if (kind := _array_kind(value)) != column.kind:
            raise InputError(f"{name} of {sample} is {kind}, those before it are {column.kind}; make them equal")
    return lists(np.stack(values))


def _fields(shards: Sequence[TarIndex], extension: str) -> list[tuple[str, ...]]:
    """The names of the fields in the first JSON members, with those of the objects around them."""
    found: dict[tuple[str, ...], None] = {}

    def look(value: Any, names: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                look(inner, (*names, name))
        elif names:
            found.setdefault(names)

    for sample, content in _first(shards, extension):
        try:
            look(parse_json(content), ())
        except ValueError as error:
            raise InputError(f"{extension} of {sample} is no JSON: {_short(error)}; correct it") from None
    return list(found)


def _field(content: bytes, names: Sequence[str]) -> Any:
    value = parse_json(content)
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _by_extension(shards: Sequence[TarIndex], extension: str) -> _Column:
    last = extension.split(".")[-1]
    if f".{last}" in picture_endings():
        return _Column(extension=extension, value=bytes, kind=pa.large_binary())
    if last == "npy":
        return _with_kind(shards, extension, extension, array_in)
    if last in _WHOLE and _all(_whole, shards, extension):
        return _Column(extension=extension, value=_whole, kind=pa.int64())
    if _all(_text, shards, extension):
        return _Column(extension=extension, value=_text, kind=pa.large_string())
    return _Column(extension=extension, value=bytes, kind=pa.large_binary())


def _with_kind(shards: Sequence[TarIndex], name: str, extension: str, value: Reading) -> _Column:
    """A column whose type its first values tell."""
    found: list[Any] = []
    for sample, content in _first(shards, extension):
        found.append(
            _cell(
                _Sample(sample.key, sample.shard, {extension: content}),
                name,
                _Column(extension=extension, value=value, kind=pa.null()),
            )
        )
    if found and isinstance(found[0], np.ndarray):
        return _Column(extension=extension, value=value, kind=_array_kind(found[0]))
    try:
        kind = pa.array(found).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} of the first samples is not of one kind: {_short(error)}; convert it") from None
    return _Column(extension=extension, value=value, kind=kind)


def _first(shards: Sequence[TarIndex], extension: str) -> Iterator[tuple[_Sample, bytes]]:
    """The first members with an extension, and whose they are."""

    def found() -> Iterator[tuple[_Sample, bytes]]:
        for shard in shards:
            where = shard.column(extension)
            if not (where[:, 0] >= 0).any():
                continue
            with shard.open() as file:
                for row in np.flatnonzero(where[:, 0] >= 0)[:_SAMPLES_LOOKED_AT]:
                    offset, length = map(int, where[row])
                    content = os.pread(file.fileno(), min(length, _LARGEST), offset)
                    yield _Sample(shard.keys[int(row)], shard.path, {}), content

    return islice(found(), _SAMPLES_LOOKED_AT)


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


def _all(value: Reading, shards: Sequence[TarIndex], extension: str) -> bool:
    """Whether the first members with an extension can be read so."""
    try:
        for _, content in _first(shards, extension):
            value(content)
    except ValueError:
        return False
    return True


def _word(column: _Column) -> str:
    if column.value is _whole:
        return "whole number"
    if column.value is _text:
        return "text in UTF-8"
    return "array" if column.value is array_in else "JSON"


def _short(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
