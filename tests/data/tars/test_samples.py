"""Members with a common key are a sample."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.data.readers.tars import is_tars, key_and_extension, open_tars, samples, shards_of

FOUR = [("0001.jpg", b"picture"), ("0001.cls", b"3"), ("al/0002.Left.JPG", b"two"), ("al/0002.cls", b"")]


def _samples(path: Path) -> dict[str, dict[str, bytes | None]]:
    """All members by their samples."""
    return {sample.key: sample.parts for sample in samples(path, lambda kind: True)}


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
    assert _samples(write_tar([*FOUR, ("README", b"text")])) == {
        "0001": {"jpg": b"picture", "cls": b"3"},
        "al/0002": {"left.jpg": b"two", "cls": b""},
    }


def test_a_sample_in_two_places_and_a_member_twice_are_refused(write_tar: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"the members of the sample '0001' do not stand together"):
        open_tars(write_tar([*FOUR, ("0001.txt", b"late")]))
    with pytest.raises(InputError, match=r"has '0001.JPG' twice; keep one"):
        open_tars(write_tar([FOUR[0], ("0001.JPG", b"again")]))


def test_names_that_are_no_extensions_are_refused(write_tar: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"more than 256 extensions, as .001256 of '2024.001256'"):
        open_tars(write_tar([(f"2024.{i:06d}", b"") for i in range(1000, 1300)]))


def test_a_tar_that_changes_after_it_was_opened_is_refused(write_tar: Callable[..., Path]) -> None:
    opened = open_tars(write_tar(FOUR))
    write_tar([*FOUR, ("3.cls", b"1" * 9000)])
    with pytest.raises(InputError, match="changed while it was read; start again"):
        list(opened.blocks(["cls"], 10))


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
