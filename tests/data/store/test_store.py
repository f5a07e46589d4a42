"""A store opens without reading its inputs, and shows any damage before it is used."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays, open_store, write_store
from sfumato.data.store.users import seal


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    dataset = from_arrays(
        rng.normal(size=(50, 3)).astype(np.float32),
        rng.integers(0, 4, 50),
        [f"ü{u}" for u in rng.integers(0, 9, 50)],
        label_names=["a", "b", "ć", ""],
        label_groups=["x", "x", "y", "y"],
        notes=["from a test"],
    )
    write_store(dataset, tmp_path / "store")
    return tmp_path / "store"


def _same(one: UserDataset, two: UserDataset) -> None:
    assert list(one.user_ids) == list(two.user_ids)
    assert one.label_names is None if two.label_names is None else list(one.label_names or ()) == list(two.label_names)
    assert one.groups == two.groups
    assert (one.num_classes, one.input_shape, one.dtype, one.notes) == (
        two.num_classes, two.input_shape, two.dtype, two.notes
    )  # fmt: skip
    for user in range(len(one)):
        for a, b in zip(one.examples(user), two.examples(user), strict=True):
            assert a.dtype == b.dtype
            assert (a == b).all()


@pytest.mark.parametrize(
    "inputs",
    [np.arange(6), np.ones((6, 2, 2), bool), np.ones((6, 4, 4, 3), np.uint8), np.ones((6, 5), ">f8"), np.ones((6, 0))],
)
def test_any_numbers_come_back_as_they_were(inputs: np.ndarray, tmp_path: Path) -> None:
    dataset = from_arrays(inputs, [0, 1, 5, 0, 0, 1], [3, 1, 2, 3, 1, 3])
    _same(write_store(dataset, tmp_path / "store"), dataset)


def test_a_view_is_written_as_what_it_shows(store: Path, tmp_path: Path) -> None:
    view = open_store(store).subset([4, 2, 7]).select_classes([1, 3])
    written = write_store(view, tmp_path / "view")
    _same(written, view)
    _same(write_store(written, tmp_path / "again"), written)
    assert open_store(tmp_path / "again", verify=True).groups == ("x", "y")


def test_reading_a_user_touches_no_other_file_content(store: Path) -> None:
    dataset = open_store(store)
    assert isinstance(dataset.inputs, np.memmap)
    assert isinstance(dataset.labels, np.memmap)
    assert isinstance(dataset.offsets, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        dataset.examples(0)[0][...] = 0


@pytest.mark.parametrize("name", ["inputs", "labels", "offsets", "users", "users.offsets", "classes", "groups"])
def test_a_shorter_longer_or_lost_file_is_named(name: str, store: Path, tmp_path: Path) -> None:
    file = f"{name}.bin"
    size = (store / file).stat().st_size
    for change in (size - 1, size + 8):
        os.truncate(store / file, change)
        with pytest.raises(InputError, match=rf"{file} has {change} bytes, should have {size}.*pack it again"):
            open_store(store)
    (store / file).unlink()
    with pytest.raises(InputError, match=f"has lost {file}"):
        open_store(store)


@pytest.mark.parametrize("name", ["offsets", "users", "users.offsets", "classes", "classes.offsets", "groups.offsets"])
def test_a_changed_index_is_noticed_at_once(name: str, store: Path) -> None:
    content = bytearray((store / f"{name}.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (store / f"{name}.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"index of the store .* was changed"):
        open_store(store)


@pytest.mark.parametrize("name", ["inputs", "labels"])
def test_changed_content_is_noticed_on_request(name: str, store: Path) -> None:
    open_store(store, verify=True)
    content = bytearray((store / f"{name}.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (store / f"{name}.bin").write_bytes(content)
    open_store(store)
    with pytest.raises(InputError, match="inputs or labels"):
        open_store(store, verify=True)


def test_an_edited_description_is_noticed(store: Path) -> None:
    file = store / "store.json"
    good = file.read_text()
    file.write_text(good.replace('"examples": 50', '"examples": 49'))
    with pytest.raises(InputError, match=r"store\.json was changed"):
        open_store(store)
    file.write_text(good[:40])
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_store(store)
    file.write_text("[]")
    with pytest.raises(InputError, match="does not describe a store"):
        open_store(store)
    facts = json.loads(good)
    del facts["sha256"]
    facts["version"] = 99
    file.write_text(json.dumps({**facts, "sha256": seal(facts)}))
    with pytest.raises(InputError, match="version 99, this sfumato reads 1"):
        open_store(store)


def test_what_is_no_store_is_told_apart(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no store at"):
        open_store(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is not a store"):
        open_store(tmp_path / "folder")
    shutil.move(store, tmp_path / "half.partial")
    with pytest.raises(InputError, match="not finished"):
        open_store(tmp_path / "half")


def test_a_store_is_never_overwritten(store: Path) -> None:
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    with pytest.raises(InputError, match="not empty"):
        write_store(from_arrays(np.ones((1, 1)), [0], [0]), store)
    assert {p.name: p.read_bytes() for p in store.iterdir()} == before


def test_an_abandoned_write_does_not_leak_into_the_next(store: Path, tmp_path: Path) -> None:
    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    dataset = open_store(store)
    with pytest.raises(KeyboardInterrupt):
        write_store(dataset, tmp_path / "target", progress=stop)
    other = dataset.subset([8, 1])
    _same(write_store(other, tmp_path / "target"), other)
