"""Where the samples of a tar are: members with a common key are one sample, as in WebDataset.

A member's key is its name up to the first dot behind the last slash; what follows, in lower case, is its extension:
`al/0001.left.JPG` is the `left.jpg` of the sample `al/0001`. Members without an extension, with a dot in front, or
named `__…__` belong to none. The members of a sample stand one after the other.

The index takes about 24 bytes a member and the keys, however long the contents are. That of a large tar is kept beside
it, `.NAME.index`, and is taken again while it is the reader's own, and size and times of the tar and its headers at 64
places are what they were.

References:
    WebDataset, module `webdataset.tariterators`: `base_plus_ext`, `group_by_keys`.

>>> key_and_extension("al/0001.left.JPG"), key_and_extension("a.b/README"), key_and_extension("._0001.jpg")
(('al/0001', 'left.jpg'), None, None)
"""

import contextlib
import hashlib
import io
import json
import os
import re
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from sfumato._check import InputError
from sfumato._files import beside, write_atomic
from sfumato.data.numpy_files import read_npz
from sfumato.data.strings import Strings
from sfumato.data.tars.members import BLOCK, members, open_tar

_KEPT = 10_000  # members; an index of fewer is made again in a tenth of a second
_LOOKED_AT = 64  # headers compared before a kept index is taken
_MOST_EXTENSIONS = 256
_VERSION = 2
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
    """The index of a tar: the one that is kept beside it, else made, and kept if that can be done.

    Raises:
        InputError: as `members`; or the members of a sample do not stand together, or two have the same name.
    """
    with open_tar(path) as file:
        state = _state(file)
        kept = beside(path, before=".", after=".index")
        found = _read(kept, path, state, file)
        if found is None:
            found = _made(path, state, file)
            if len(found.sample) >= _KEPT:
                with contextlib.suppress(OSError):  # a place that cannot be written to costs the time again
                    write_atomic(kept, _written(found, file), private=True)
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


def _headers(offsets: np.ndarray, file: BinaryIO) -> str:
    """A digest of some headers, from the first member to the last one."""
    digest = hashlib.blake2b(digest_size=16)
    for place in np.linspace(0, max(len(offsets) - 1, 0), min(len(offsets), _LOOKED_AT)).astype(np.int64):
        digest.update(os.pread(file.fileno(), BLOCK, int(offsets[place]) - BLOCK))
    return digest.hexdigest()


def _written(found: TarIndex, file: BinaryIO) -> bytes:
    facts = {
        "version": _VERSION,
        "state": found.state,
        "extensions": found.extensions,
        "headers": _headers(found.offset, file),
        "placed": os.fstat(file.fileno()).st_ctime_ns,
    }
    content, (keys, ends) = io.BytesIO(), found.keys.arrays
    np.savez(
        content,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
        keys=keys,
        ends=ends,
        **{name: getattr(found, name) for name in ("sample", "extension", "offset", "size")},
    )
    return content.getvalue()


def _read(kept: Path, path: Path, state: tuple[int, int], file: BinaryIO) -> TarIndex | None:
    """The index that is kept, if it is one of this tar as it is now."""
    try:
        if not kept.is_file() or kept.stat().st_uid != os.geteuid():  # others would tell what is whose
            return None
        arrays = read_npz(kept)
        facts = json.loads(arrays.pop("facts").tobytes())
        keys, ends = arrays.pop("keys"), arrays.pop("ends")
        if facts["version"] != _VERSION or tuple(facts["state"]) != state:
            return None
        if facts["placed"] != os.fstat(file.fileno()).st_ctime_ns:  # a copy may keep the time of change
            return None
        found = TarIndex(
            path=path, state=state, keys=Strings(keys, ends), extensions=tuple(facts["extensions"]), **arrays
        )
        return found if _fits(found) and facts["headers"] == _headers(found.offset, file) else None
    except (InputError, ValueError, TypeError, KeyError, AttributeError, OSError):
        return None  # not ours, or damaged: it is made again


def _fits(found: TarIndex) -> bool:
    """Whether what a file says is an index: of the right kinds, and within the tar."""
    keys, ends = found.keys.arrays
    kinds = (np.int32, np.int32, np.int64, np.int64)
    held = (found.sample, found.extension, found.offset, found.size)
    if any(one.dtype != kind or one.shape != held[0].shape for one, kind in zip(held, kinds, strict=True)):
        return False
    samples = len(found.keys)
    return bool(
        (keys.dtype, ends.dtype, keys.ndim, ends.ndim) == (np.uint8, np.int64, 1, 1)
        and len(ends)
        and (ends[0], ends[-1]) == (0, len(keys))
        and (np.diff(ends) >= 0).all()
        and all(isinstance(one, str) for one in found.extensions)
        and len(held[0])
        and (np.diff(found.sample) >= 0).all()
        and (found.sample[0], found.sample[-1]) == (0, samples - 1)
        and (found.extension >= 0).all()
        and (found.extension < len(found.extensions)).all()
        and (found.offset >= BLOCK).all()
        and (found.size >= 0).all()
        and (found.offset <= found.state[0] - found.size).all()
    )
