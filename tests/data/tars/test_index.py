"""Members with a common key are a sample, and an index that is kept is taken only for the tar that it was made of."""

import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data.readers import tars
from sfumato.data.readers.tars import TarIndex, index_tar, is_tars, key_and_extension, shards_of

FOUR = [("0001.jpg", b"picture"), ("0001.cls", b"3"), ("al/0002.Left.JPG", b"two"), ("al/0002.cls", b"")]


def _samples(found: TarIndex) -> dict[str, dict[str, bytes]]:
    """All members by the index, read by their places."""
    content = found.path.read_bytes()
    samples: dict[str, dict[str, bytes]] = {key: {} for key in found.keys}
    for kind in found.extensions:
        for key, (offset, size) in zip(found.keys, found.column(kind), strict=True):
            if offset >= 0:
                samples[key][kind] = content[offset : offset + size]
    return samples


def test_a_key_ends_at_the_first_dot_of_the_name() -> None:
    for name, parts in {
        "0001.jpg": ("0001", "jpg"),
        "a.b/c/0001.seg.PNG": ("a.b/c/0001", "seg.png"),
        "../0001.jpg": ("../0001", "jpg"),
        "a.b/README": None,
        "d/.hidden": None,
        "._0001.jpg": None,
        "__meta__": None,
        "__meta__/0001.jpg": None,
        "0001.": ("0001", ""),
    }.items():
        assert key_and_extension(name) == parts, name


def test_members_of_a_key_are_a_sample(write_tar: Callable[..., Path]) -> None:
    assert _samples(index_tar(write_tar([*FOUR, ("README", b"text")]))) == {
        "0001": {"jpg": b"picture", "cls": b"3"},
        "al/0002": {"left.jpg": b"two", "cls": b""},
    }


def test_a_sample_in_two_places_and_a_member_twice_are_refused(write_tar: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"the members of the sample '0001' do not stand together"):
        index_tar(write_tar([*FOUR, ("0001.txt", b"late")]))
    with pytest.raises(InputError, match=r"has '0001.JPG' twice; keep one"):
        index_tar(write_tar([FOUR[0], ("0001.JPG", b"again")]))


def test_names_that_are_no_extensions_are_refused(write_tar: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"more than 256 extensions, as .001256 of '2024.001256'"):
        index_tar(write_tar([(f"2024.{i:06d}", b"") for i in range(1000, 1300)]))


def test_an_index_is_kept_beside_a_large_tar_for_its_owner(
    write_tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tar(FOUR)
    index_tar(path)
    assert not (path.parent / ".a.tar.index").exists()
    monkeypatch.setattr(tars, "_KEPT", 4)
    made = index_tar(path)
    assert (path.parent / ".a.tar.index").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(tars, "members", None)  # it is not read again
    again = index_tar(path)
    assert _samples(again) == _samples(made)
    assert (again.extensions, again.state) == (made.extensions, made.state)


@pytest.mark.parametrize("change", ["time", "size", "headers", "cut", "other", "beyond"])
def test_an_index_of_another_tar_is_made_again(
    change: str, write_tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tars, "_KEPT", 4)
    path = write_tar(FOUR)
    kept = path.parent / ".a.tar.index"
    before = index_tar(path)
    told = path.stat()
    other = [("0009.png", b"PICTURE"), *FOUR[1:]] if change == "headers" else [*FOUR, ("3.cls", b"1" * 9000)]
    if change in ("size", "headers"):
        write_tar([("9999.txt", b"nine"), *FOUR[2:], ("0003.txt", b"x")] if change == "headers" else other)
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
        assert (path.stat().st_size == told.st_size) == (change == "headers")
    elif change == "time":
        content = path.read_bytes().replace(b"picture", b"PICTURE")
        path.write_bytes(content)
        os.utime(path, ns=(0, told.st_mtime_ns + 1))
    elif change == "cut":
        kept.write_bytes(kept.read_bytes()[:-30])
    elif change == "other":
        kept.write_text("no index")
    else:
        arrays = dict(np.load(kept))
        arrays["size"] = arrays["size"] + (1 << 40)
        with open(kept, "wb") as file:
            np.savez(file, **arrays)
    found = index_tar(path)
    with tarfile.open(path) as tar:
        members = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    held = {f"{key}.{kind}": content for key, parts in _samples(found).items() for kind, content in parts.items()}
    assert held == {name.lower(): content for name, content in members.items()}
    assert (found.state == before.state) == (change not in ("time", "size"))


def test_a_place_that_cannot_be_written_to_costs_time_only(
    write_tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tars, "_KEPT", 4)
    path = write_tar(FOUR)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(tars, "write_atomic", refused)
    assert len(index_tar(path).keys) == 2


def test_a_tar_that_changes_behind_its_index_is_refused(write_tar: Callable[..., Path]) -> None:
    found = index_tar(write_tar(FOUR))
    write_tar([*FOUR, ("3.cls", b"1" * 9000)])
    with pytest.raises(InputError, match="changed while it was read; start again"):
        found.open()


def test_shards_are_a_file_a_folder_or_a_pattern(write_tar: Callable[..., Path], tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write_tar(FOUR, f"s-{number:03d}.tar")
    three = [tmp_path / f"s-{number:03d}.tar" for number in range(3)]
    for pattern in (tmp_path, tmp_path / "s-*.tar", tmp_path / "s-{000..002}.tar", tmp_path / "s-00{0,1,2}.tar"):
        assert is_tars(pattern)
        assert shards_of(str(pattern)) == three
    assert shards_of(three[1]) == [three[1]]
    for pattern, told in {
        "s-{000..003}.tar": "there is nothing at .*s-003.tar",
        "t-*.tar": r"there is nothing at .*t-\*.tar",
        "s-{5..2}.tar": "must rise",
        "s-{000..002..2}.tar": "must be {first..last} or {one,other}",
        "s-{0..99999}{0..99999}.tar": "stands for more than 1,000,000 files",
        "s.tar.gz": "s.tar.gz is packed",
    }.items():
        with pytest.raises(InputError, match=told):
            shards_of(tmp_path / pattern)


def test_a_shard_under_two_names_and_a_packed_one_in_a_folder_are_refused(
    write_tar: Callable[..., Path], tmp_path: Path
) -> None:
    one = write_tar(FOUR, "s-000.tar")
    write_tar(FOUR, "s-001.TAR")
    assert [path.name for path in shards_of(tmp_path)] == ["s-000.tar", "s-001.TAR"]
    link = tmp_path / "latest.tar"
    for make in (os.symlink, os.link):
        make(one, link)
        for pattern in (tmp_path, tmp_path / "*.tar", tmp_path / "{s-000,latest}.tar"):
            with pytest.raises(InputError, match="are the same file, and its records would count twice"):
                shards_of(str(pattern))
        link.unlink()
    (tmp_path / "s-002.tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"s-002\.tar\.gz is packed, and its samples would be left out"):
        shards_of(tmp_path)


def test_the_index_of_a_tar_that_was_put_in_its_place_is_made_again(
    write_tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tars, "_KEPT", 4)
    monkeypatch.setattr(tars, "_LOOKED_AT", 1)
    path = write_tar(FOUR)
    told = path.stat()
    assert list(index_tar(path).keys) == ["0001", "al/0002"]
    time.sleep(0.05)  # a file system's clock may be that coarse
    write_tar([*FOUR[:2], *((name.replace("0002", "0009"), content) for name, content in FOUR[2:])])
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (told.st_size, told.st_mtime_ns)
    assert list(index_tar(path).keys) == ["0001", "al/0009"]


def test_an_index_of_somebody_else_is_not_taken(
    write_tar: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tars, "_KEPT", 4)
    path = write_tar(FOUR)
    index_tar(path)
    kept = path.parent / ".a.tar.index"
    arrays = dict(np.load(kept))
    arrays["size"] = arrays["size"] * 0
    with open(kept, "wb") as file:
        np.savez(file, **arrays)
    assert not index_tar(path).size.any()  # one's own is believed
    monkeypatch.setattr(tars.os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert index_tar(path).size.any()
