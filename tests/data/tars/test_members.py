"""What Python's tarfile finds in a whole tar is found here, and what it passes over is refused in one line."""

import io
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data.readers.tars import BLOCK, members, open_tar

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
LONG = st.integers(90, 300).map(lambda length: "d/" + "n" * length + ".txt")
MEMBER = st.tuples(
    NAMES | LONG,
    st.binary(max_size=1200),
    st.sampled_from([tarfile.REGTYPE, tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE]),
    st.sampled_from([0, 1.5, 1_700_000_000]),
    st.sampled_from(["", "anna", "борис"]),
)


def _found(path: Path) -> list[tuple[str, int, int]]:
    with open_tar(path) as file:
        return [(info.name, info.offset_data, info.size) for info in members(file, path)]


def _refusal(path: Path) -> str:
    with pytest.raises(InputError) as refusal:
        _found(path)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@given(
    written=st.lists(MEMBER, min_size=1, max_size=6),
    format=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    for_all=st.sampled_from([{}, {}, {"comment": "all"}, {"path": "k.txt"}]),
)
def test_members_are_those_of_tarfile(written: list, format: int, for_all: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar"
        headers = for_all if format == tarfile.PAX_FORMAT else None
        with tarfile.open(path, "w", format=format, pax_headers=headers) as tar:
            for name, content, kind, time, owner in written:
                info = tarfile.TarInfo(name)
                info.type, info.mtime, info.uname = kind, time, owner
                folder_like = kind == tarfile.DIRTYPE or name.endswith("/")  # as tars of old have folders
                info.size = 0 if folder_like else len(content)
                tar.addfile(info, io.BytesIO(content[: info.size]))
        with tarfile.open(path) as tar:
            expected = [(info.name, info.offset_data, info.size) for info in tar if info.isreg()]
        assert _found(path) == expected


def test_a_name_in_two_fields_and_a_size_in_binary_are_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("folder/" * 20 + "0001.cls")
    info.size = 1
    ustar = info.tobuf(tarfile.USTAR_FORMAT)
    wide = bytearray(tarfile.TarInfo("0002.cls").tobuf(tarfile.GNU_FORMAT))
    wide[124:136] = bytes([0x80, *bytes(10), 1])
    wide[148:156] = b"%06o\0 " % (sum(wide) - sum(wide[148:156]) + 8 * 32)
    path = tmp_path / "a.tar"
    path.write_bytes(ustar + b"7".ljust(BLOCK, b"\0") + bytes(wide) + b"8".ljust(BLOCK, b"\0") + bytes(2 * BLOCK))
    assert _found(path) == [(info.name, 512, 1), ("0002.cls", 1536, 1)]


def test_a_tar_that_was_cut_anywhere_is_refused(write_tar: Callable[..., Path]) -> None:
    path = write_tar([("0001.txt", b"x" * 700), ("0001.cls", b"1"), ("n" * 200 + ".txt", b"y" * 600)])
    content = path.read_bytes()
    end = len(content.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK
    assert content[end : end + 2 * BLOCK] == bytes(2 * BLOCK)
    for length in range(0, end + 2 * BLOCK, 64):
        path.write_bytes(content[:length])
        said = _refusal(path)
        assert "is empty" in said if length == 0 else "cut short" in said or "damaged" in said, (length, said)


def test_a_damaged_header_is_refused_where_tarfile_would_end(write_tar: Callable[..., Path]) -> None:
    path = write_tar([("0001.cls", b"1"), ("0002.cls", b"2")])
    content = bytearray(path.read_bytes())
    content[2 * BLOCK] ^= 1
    path.write_bytes(content)
    with tarfile.open(path) as tar:
        assert len(tar.getnames()) == 1
    assert "has a damaged header at byte 1,024" in _refusal(path)


def test_what_is_behind_the_end_is_refused(write_tar: Callable[..., Path]) -> None:
    first, second = write_tar([("0001.cls", b"1")]), write_tar([("0002.cls", b"2")], "b.tar")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert "goes on behind its end" in _refusal(first)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (tarfile.SYMTYPE, "'0001.jpg' is a link, which is not followed; write the tar with --dereference"),
        (tarfile.LNKTYPE, "'0001.jpg' is a link"),
        (tarfile.CHRTYPE, "'0001.jpg' is a device or pipe"),
        (tarfile.FIFOTYPE, "'0001.jpg' is a device or pipe"),
        (tarfile.GNUTYPE_SPARSE, "stored with holes, at byte 0; write the tar without --sparse"),
    ],
)
def test_links_devices_and_holes_are_refused(kind: bytes, told: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("0001.jpg")
        info.type, info.linkname = kind, "/etc/hostname"
        tar.addfile(info)
    assert told in _refusal(tmp_path / "a.tar")


def test_holes_in_the_pax_way_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("0001.jpg")
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
        content = b"1\n0\n9\n".ljust(BLOCK, b"\0") + b"123456789"
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    assert "stored with holes" in _refusal(tmp_path / "a.tar")


def test_headers_that_extend_each_other_for_ever_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 8
    one = info.tobuf(tarfile.GNU_FORMAT) + b"longname".ljust(BLOCK, b"\0")
    (tmp_path / "a.tar").write_bytes(one * 5000 + bytes(2 * BLOCK))
    assert "damaged header" in _refusal(tmp_path / "a.tar")
    info.size = 1 << 40
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(4 * BLOCK))
    assert "damaged header" in _refusal(tmp_path / "a.tar")


def test_what_is_packed_or_no_file_is_refused(write_tar: Callable[..., Path], tmp_path: Path) -> None:
    write_tar([("0001.cls", b"1")])
    with tarfile.open(tmp_path / "b.tar", "w:gz") as tar:
        tar.add(tmp_path / "a.tar", "a.cls")
    assert "is packed; unpack it: gunzip" in _refusal(tmp_path / "b.tar")
    os.mkfifo(tmp_path / "c.tar")
    assert "is not a regular file" in _refusal(tmp_path / "c.tar")
