"""Tars: their members, the samples of WebDataset, and these as tables."""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import gather as inputs
from sfumato.data import open_examples, open_users
from sfumato.data.readers import tars
from sfumato.data.readers.tables import open_source
from sfumato.data.readers.tars import (
    BLOCK,
    is_tars,
    key_and_extension,
    members,
    open_tar,
    open_tars,
    samples,
    shards_of,
)

# What Python's tarfile finds in a whole tar is found here, and what it passes over is refused in one line.

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


# Members with a common key are a sample.

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


# Tar shards as WebDataset writes them are a table: extensions and fields of JSON are its columns.


@pytest.fixture
def shards(album: dict[str, list], tmp_path: Path) -> Callable[..., str]:
    """The album in two shards; a sample's parts may be replaced, or left out by None."""

    def write(changed: dict[int, dict[str, bytes | None]] | None = None) -> str:
        for name, rows in (("a-0.tar", range(4)), ("a-1.tar", range(4, 9))):
            with tarfile.open(tmp_path / name, "w") as tar:
                for i in rows:
                    person, mood = album["person"][i], album["mood"][i]
                    parts: dict[str, bytes | None] = {
                        "PNG": album["image"][i]["bytes"],
                        "cls": b"%d\n" % (mood == "sad"),
                        "json": json.dumps({"person": person, "at": {"hour": i, "place": [0.5, i]}}).encode(),
                        "person": f"{person}\n".encode(),
                        "npy": _npy(np.full((2, 3), i, np.float32)),
                    }
                    for kind, content in {**parts, **(changed or {}).get(i, {})}.items():
                        if content is not None:
                            info = tarfile.TarInfo(f"d/{i:04d}.{kind}")
                            info.size = len(content)
                            tar.addfile(info, io.BytesIO(content))
        return str(tmp_path / "a-*.tar")

    return write


def _npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def _refused(source: Any, read: Callable = open_users, **columns: Any) -> str:
    with pytest.raises(InputError) as refusal:
        read(source, **columns)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("user", ["json.person", "person"])
@pytest.mark.parametrize("stored", [False, True])
def test_each_user_has_the_pictures_of_their_samples(
    user: str,
    stored: bool,
    shards: Callable,
    album: dict[str, list],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs, "_ROWS", 3)
    store = tmp_path / "store" if stored else None
    dataset = open_users(shards(), user=user, input="png", label="cls", store=store)
    assert list(dataset.user_ids) == ["al", "bo", "cy", "dee"]
    if stored:
        dataset = open_users(tmp_path / "store", verify=True)
    for number, name in enumerate(dataset.user_ids):
        rows = [i for i in range(9) if album["person"][i] == name]
        found, labels = dataset.examples(number)
        assert (found == np.stack([album["pixels"][i] for i in rows])).all()
        assert labels.tolist() == [int(album["mood"][i] == "sad") for i in rows]


def test_columns_are_reported_by_extensions_and_fields(shards: Callable, tmp_path: Path) -> None:
    opened = open_source(shards())
    assert opened.names == (
        *("png", "cls", "json", "person", "npy"),
        *("json.person", "json.at.hour", "json.at.place", "__key__", "__url__"),
    )
    kinds = {name: str(opened.kind(name)) for name in opened.names}
    assert (kinds["png"], kinds["cls"], kinds["person"]) == ("large_binary", "int64", "large_string")
    (block,) = opened.blocks(["__key__", "__url__"], 100)
    assert block["__key__"].to_pylist() == [f"d/{i:04d}" for i in range(9)]
    assert block["__url__"].to_pylist()[3:5] == [str(tmp_path / "a-0.tar"), str(tmp_path / "a-1.tar")]
    several = open_examples(str(tmp_path), input=("npy", "json.at.place"), label="json.at.hour", classes=False)
    assert several.inputs[0][:].tolist() == [np.full((2, 3), i).tolist() for i in range(9)]
    assert several.inputs[1][:].tolist() == [[0.5, i] for i in range(9)]
    assert several.targets.tolist() == list(range(9))


def test_one_door_takes_shards(shards: Callable, tmp_path: Path) -> None:
    pattern = shards()
    for place in (pattern, tmp_path, tmp_path / "a-{0..1}.tar"):
        assert open_users(place, user="person", input="png").sizes.tolist() == [3, 2, 3, 1]
    assert "say whose each row is, --user COLUMN or user=, of png, cls" in _refused(pattern, open_users)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"PNG": None}, "png at position 5 (sample 'd/0005' of a-1.tar) is missing (null)"),
        ({"PNG": b"no picture"}, "png at position 5 (sample 'd/0005' of a-1.tar) is not a picture"),
        (
            {"person": None},
            "is missing (null, NaN, empty or blank) at position 5 (sample 'd/0005' of a-1.tar)",
        ),
        (
            {"person": b" \n"},
            "is missing (null, NaN, empty or blank) at position 5 (sample 'd/0005' of a-1.tar)",
        ),
        ({"cls": None}, "the label 'cls' is missing (null) at position 5 (sample 'd/0005' of a-1.tar)"),
    ],
)
def test_a_part_that_is_missing_or_empty_is_named_by_its_sample(parts: dict, told: str, shards: Callable) -> None:
    assert told in _refused(shards({5: parts}), user="person", input="png", label="cls")


def test_later_samples_are_of_the_kind_of_the_first(shards: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "_SAMPLES_LOOKED_AT", 2)

    def refused(column: str, **parts: bytes) -> str:
        return _refused(shards({5: parts}), open_examples, input=column)

    assert "cls of the sample 'd/0005' of " in refused("cls", cls=b"cat")
    assert "is no whole number" in refused("cls", cls=b"")
    assert "is no whole number: it has 100 bytes" in refused("cls", cls=b"1" * 100)
    assert "json.at.place of the sample" in refused("json.at.place", json=b'{"at": {"place": "here"}}')
    assert "is no JSON" in refused("json.at.hour", json=b"{")
    assert "is no int64, as those before it are" in refused("json.at.hour", json=b'{"at": {"hour": 0.5}}')
    assert "json.at.hour is missing (null) at position 5" in refused("json.at.hour", json=b'{"at": 3}')
    assert "those before it are fixed_size_list" in refused("npy", npy=_npy(np.zeros((3, 2), np.float32)))
    assert "is no array" in refused("npy", npy=_npy(np.array([{}], object)))
    assert "person of the sample 'd/0005' of" in _refused(
        shards({5: {"person": b"\xff"}}), user="person", input="png", label="cls"
    )


def test_labels_that_are_words_are_classes(shards: Callable) -> None:
    words = {i: {"cls": b"cat" if i % 2 else b"ant"} for i in range(9)}
    assert list(open_users(shards(words), user="person", input="png", label="cls").label_names) == ["ant", "cat"]


def test_fields_are_named_from_the_first_samples(shards: Callable) -> None:
    told = _refused(shards(), user="json.persons", input="png")
    assert "no column 'json.persons' for user='json.persons' (did you mean json.person?)" in told


def test_a_tar_that_changes_while_it_is_read_is_refused(shards: Callable, tmp_path: Path) -> None:
    opened = open_source(shards())
    blocks = opened.blocks(["person"], 2)
    next(blocks)
    os.utime(tmp_path / "a-0.tar", ns=(0, 1))
    with pytest.raises(InputError, match=r"a-0\.tar changed while it was read"):
        next(blocks)


def test_a_block_of_large_members_ends_early(shards: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "_MOST_BYTES", 1000)
    lengths = [len(block["png"]) for block in open_source(shards()).blocks(["png"], 100)]
    assert sum(lengths) == 9
    assert max(lengths) < 9


def test_what_are_no_samples_is_refused(tmp_path: Path, shards: Callable) -> None:
    with tarfile.open(tmp_path / "none.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("README"))
    assert "has no samples: no member is named KEY.EXTENSION" in _refused(tmp_path / "none.tar", user="person")
    assert "there is nothing at" in _refused(str(tmp_path / "b-*.tar"), user="person")
    shards()
    (tmp_path / "c.parquet").write_text("")
    assert "has both Parquet and tar files" in _refused(tmp_path, user="person")


def test_a_field_that_is_there_twice_is_refused_where_it_is_asked_for(shards: Callable) -> None:
    twice = {i: {"json": b'{"person": "al", "person": "bo"}'} for i in range(9)}
    assert "'person' is there twice in an object" in _refused(shards(twice), user="json.person", input="png")
    alike = {i: {"json": b'{"at.hour": 1, "at": {"hour": 2}, "person": "al"}'} for i in range(9)}
    source = shards(alike)
    assert "has the column 'json.at.hour' twice" in _refused(source, user="json.at.hour", input="png")
    assert len(open_users(source, user="json.person", input="png")) == 1
    assert "has the column 'json.person' twice" in _refused(
        shards({i: {"json.person": b"cy"} for i in range(9)}), user="json.person", input="png"
    )
