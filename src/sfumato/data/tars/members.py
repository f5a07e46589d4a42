"""The members of a tar file: where the content of each begins and how long it is, in constant memory.

A member's header is 512 bytes in front of it. The usual kinds are read here, several times faster than `tarfile` of
the standard library does; what is unusual (long names, sizes above 8 GB, headers for all members) is left to that. More
is refused than there: for `tarfile` a tar that was cut short, that goes on behind its end or has a damaged header just
ends early, and samples would be missing without a word. A link is refused, too: what it points at is never opened.

References:
    The Open Group Base Specifications (POSIX.1-2017), pax, "ustar Interchange Format" and "pax Header Block".
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sfumato._check import InputError

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
