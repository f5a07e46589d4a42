"""Tar shards as WebDataset writes them are a table: extensions and fields of JSON are its columns."""

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import gather as inputs
from sfumato.data import open_examples, open_users
from sfumato.data.readers import tars
from sfumato.data.readers.tables import open_source


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


def _refusal(source: Any, read: Callable = open_users, **columns: Any) -> str:
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


def test_columns_are_told_by_extensions_and_fields(shards: Callable, tmp_path: Path) -> None:
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
    assert "say whose each row is, --user COLUMN or user=, of png, cls" in _refusal(pattern, open_users)


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
    assert told in _refusal(shards({5: parts}), user="person", input="png", label="cls")


def test_later_samples_are_of_the_kind_of_the_first(shards: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tars, "_SAMPLES_LOOKED_AT", 2)

    def refused(column: str, **parts: bytes) -> str:
        return _refusal(shards({5: parts}), open_examples, input=column)

    assert "cls of the sample 'd/0005' of " in refused("cls", cls=b"cat")
    assert "is no whole number" in refused("cls", cls=b"")
    assert "is no whole number: it has 100 bytes" in refused("cls", cls=b"1" * 100)
    assert "json.at.place of the sample" in refused("json.at.place", json=b'{"at": {"place": "here"}}')
    assert "is no JSON" in refused("json.at.hour", json=b"{")
    assert "is no int64, as those before it are" in refused("json.at.hour", json=b'{"at": {"hour": 0.5}}')
    assert "json.at.hour is missing (null) at position 5" in refused("json.at.hour", json=b'{"at": 3}')
    assert "those before it are fixed_size_list" in refused("npy", npy=_npy(np.zeros((3, 2), np.float32)))
    assert "is no array" in refused("npy", npy=_npy(np.array([{}], object)))
    assert "person of the sample 'd/0005' of" in _refusal(
        shards({5: {"person": b"\xff"}}), user="person", input="png", label="cls"
    )


def test_labels_that_are_words_are_classes(shards: Callable) -> None:
    words = {i: {"cls": b"cat" if i % 2 else b"ant"} for i in range(9)}
    assert list(open_users(shards(words), user="person", input="png", label="cls").label_names) == ["ant", "cat"]


def test_fields_are_named_from_the_first_samples(shards: Callable) -> None:
    told = _refusal(shards(), user="json.persons", input="png")
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
    assert "has no samples: no member is named KEY.EXTENSION" in _refusal(tmp_path / "none.tar", user="person")
    assert "there is nothing at" in _refusal(str(tmp_path / "b-*.tar"), user="person")
    shards()
    (tmp_path / "c.parquet").write_text("")
    assert "has both Parquet and tar files" in _refusal(tmp_path, user="person")


def test_a_field_that_is_there_twice_is_refused_where_it_is_asked_for(shards: Callable) -> None:
    twice = {i: {"json": b'{"person": "al", "person": "bo"}'} for i in range(9)}
    assert "'person' is there twice in an object" in _refusal(shards(twice), user="json.person", input="png")
    alike = {i: {"json": b'{"at.hour": 1, "at": {"hour": 2}, "person": "al"}'} for i in range(9)}
    source = shards(alike)
    assert "has the column 'json.at.hour' twice" in _refusal(source, user="json.at.hour", input="png")
    assert len(open_users(source, user="json.person", input="png")) == 1
    assert "has the column 'json.person' twice" in _refusal(
        shards({i: {"json.person": b"cy"} for i in range(9)}), user="json.person", input="png"
    )
