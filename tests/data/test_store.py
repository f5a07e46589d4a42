"""Stores of users and of examples: written, opened, and refused where they were changed."""

import json
import mmap
import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sfumato._check import InputError
from sfumato.data import (
    UserDataset,
    examples_from_arrays,
    from_arrays,
    open_examples,
    open_users,
    write_examples,
    write_store,
)
from sfumato.data.store.format import batch_rows
from sfumato.data.store.opened import ExampleWriter, user_columns
from sfumato.data.store.seal import read_facts, write_facts

# A store opens without reading its inputs, and shows any damage before it is used.


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
    view = open_users(store).subset([4, 2, 7]).select_classes([1, 3])
    written = write_store(view, tmp_path / "view")
    _same(written, view)
    _same(write_store(written, tmp_path / "again"), written)
    assert open_users(tmp_path / "again", verify=True).groups == ("x", "y")


def test_reading_a_user_touches_no_other_file_content(store: Path) -> None:
    dataset = open_users(store)
    inputs, _ = dataset.examples(3)
    assert isinstance(_owner(inputs), mmap.mmap)
    with pytest.raises(ValueError, match="read-only"):
        dataset.examples(0)[0][...] = 0


def _owner(array: np.ndarray) -> object:
    """What holds the memory of a view."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


@pytest.mark.parametrize("name", ["examples", "users", "classes"])
def test_a_shorter_longer_or_lost_file_is_named(name: str, store: Path, tmp_path: Path) -> None:
    file = f"{name}.arrow"
    size = (store / file).stat().st_size
    for change in (size - 1, size + 8):
        os.truncate(store / file, change)
        with pytest.raises(InputError, match=rf"{file} has {change:,} bytes, should have {size:,}.*pack it again"):
            open_users(store)
    (store / file).unlink()
    with pytest.raises(InputError, match=f"has lost {file}"):
        open_users(store)


@pytest.mark.parametrize("name", ["users", "classes"])
def test_a_changed_index_is_noticed_at_once(name: str, store: Path) -> None:
    content = bytearray((store / f"{name}.arrow").read_bytes())
    content[len(content) // 2] ^= 1
    (store / f"{name}.arrow").write_bytes(content)
    with pytest.raises(InputError, match=r"index of the store .* was changed"):
        open_users(store)


@pytest.mark.parametrize("place", [0.6, -1, -100])  # a value, the mark at the end, the footer that others read
def test_changed_content_is_noticed_on_request(place: float, store: Path) -> None:
    open_users(store, verify=True)
    content = bytearray((store / "examples.arrow").read_bytes())
    content[int(len(content) * place) if 0 < place < 1 else int(place)] ^= 1
    (store / "examples.arrow").write_bytes(content)
    open_users(store)
    with pytest.raises(InputError, match="inputs or targets"):
        open_users(store, verify=True)


def test_an_edited_description_is_noticed(store: Path) -> None:
    file = store / "store.json"
    good = file.read_text()
    file.write_text(good.replace('"examples": 50', '"examples": 49'))
    with pytest.raises(InputError, match=r"store\.json was changed"):
        open_users(store)
    file.write_text(good[:40])
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_users(store)
    file.write_text("[]")
    with pytest.raises(InputError, match="does not describe a store"):
        open_users(store)
    for version in (1, 99):  # the one of flat files, and one to come
        file.write_text(json.dumps({**json.loads(good), "version": version}))
        with pytest.raises(InputError, match=rf"version {version}, this sfumato reads 2 and 3; pack it again"):
            open_users(store)


def test_what_is_no_store_is_distinguished(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is nothing at"):
        open_users(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is none of: a packed store"):
        open_users(tmp_path / "folder")
    shutil.move(store, tmp_path / "half.partial")
    with pytest.raises(InputError, match="not finished"):
        open_users(tmp_path / "half")


def test_a_store_is_never_overwritten(store: Path) -> None:
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    with pytest.raises(InputError, match="not empty"):
        write_store(from_arrays(np.ones((1, 1)), [0], [0]), store)
    assert {p.name: p.read_bytes() for p in store.iterdir()} == before


def test_an_abandoned_write_does_not_leak_into_the_next(store: Path, tmp_path: Path) -> None:
    def stop(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    dataset = open_users(store)
    with pytest.raises(KeyboardInterrupt):
        write_store(dataset, tmp_path / "target", progress=stop)
    other = dataset.subset([8, 1])
    _same(write_store(other, tmp_path / "target"), other)


def test_an_older_folder_of_examples_is_refused_in_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs0.npy", np.zeros((3, 2)))
    (tmp_path / "examples.json").write_text('{"format": "sfumato examples", "version": 2}')
    for read in (open_examples, open_examples, open_users):
        with pytest.raises(InputError, match=r"written by an older sfumato, as \.npy files; write it again"):
            read(tmp_path)


def _sealed_anew(store: Path, content: bytes, **other: object) -> None:
    """Another file in the place of the examples, and a description that says that it belongs there."""
    facts = read_facts(store)
    (store / "examples.arrow").write_bytes(content)
    write_facts(store, {**facts, "files": {**facts["files"], "examples.arrow": len(content)}, **other})


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", ["no arrow", "a footer first", "other columns", "fewer rows", "shorter columns"])
def test_a_foreign_file_is_refused_even_under_a_seal(kind: str, store: Path) -> None:
    frame = pa.ipc.open_stream(store / "examples.arrow").read_all()
    content = {
        "no arrow": b"PAR1" * 1000,
        "a footer first": b"ARROW1\0\0" + (store / "examples.arrow").read_bytes(),
        "other columns": _arrow(pa.table({"user": [0] * 50, "inputs": [0.5] * 50})),
        "fewer rows": _arrow(frame.slice(0, 20)),
        "shorter columns": (store / "examples.arrow").read_bytes()[:1200],
    }[kind]
    _sealed_anew(store, content)
    with pytest.raises(
        InputError, match=r"examples\.arrow is not the Arrow file of a store: .*; pack it again"
    ) as refusal:
        open_users(store)
    assert "\n" not in str(refusal.value)


def test_a_description_that_lies_takes_no_memory(store: Path) -> None:
    content = (store / "examples.arrow").read_bytes()
    _sealed_anew(store, content, examples=1 << 50, users=1 << 50)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="pack it again"):
        open_users(store)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 1 << 24


@pytest.fixture
def many(tmp_path: Path) -> UserDataset:
    """Pictures of 40 users over several batches and a shorter one, where every other user lies in two."""
    rng = np.random.default_rng(3)
    rows = 3 * batch_rows(user_columns((64, 64, 3), np.dtype(np.uint8))) + 7
    images = rng.integers(0, 256, (rows, 64, 64, 3), np.uint8)
    return from_arrays(images, rng.integers(0, 5, rows), np.arange(rows) * 40 // rows)


def test_other_programs_open_the_store_as_it_is(many: UserDataset, tmp_path: Path) -> None:
    datasets, polars = pytest.importorskip("datasets"), pytest.importorskip("polars")
    write_store(many, tmp_path / "s")
    file = tmp_path / "s" / "examples.arrow"
    columns = ["user", "target", "inputs"]
    owners = np.repeat(np.arange(40), many.sizes)
    table = datasets.Dataset.from_file(str(file))
    assert (table.column_names, len(table)) == (columns, len(owners))
    assert table.with_format("numpy")[len(owners) - 2]["inputs"].tolist() == many.inputs[-2].tolist()
    for frame in (polars.scan_ipc(file).collect(), polars.read_ipc(file), polars.read_ipc_stream(file)):
        assert frame.columns == columns
        assert frame["inputs"].dtype == polars.Array(polars.UInt8, (64, 64, 3))
        assert (frame["user"].to_numpy() == owners).all()
        assert (frame["inputs"].to_numpy() == many.inputs).all()
    with pa.memory_map(str(file)) as source:
        whole = pa.ipc.open_file(source)
        assert whole.num_record_batches == 4
        last = whole.get_batch(3)
        assert (last.column("target").to_numpy() == many.labels[-len(last) :]).all()
    pandas = pa.ipc.open_stream(file).read_pandas()
    assert (pandas["target"] == many.labels).all()
    for name in ("users", "classes"):
        if (tmp_path / "s" / f"{name}.arrow").exists():
            found = datasets.Dataset.from_file(str(tmp_path / "s" / f"{name}.arrow"))
            assert found[:]["name"] == list(many.user_ids)
    assert polars.read_ipc(tmp_path / "s" / "users.arrow")["count"].to_list() == many.sizes.tolist()


def test_users_who_lie_in_two_batches_come_back_whole(many: UserDataset, tmp_path: Path) -> None:
    stored = write_store(many, tmp_path / "s")
    _same(stored, many)
    rng = np.random.default_rng(0)
    for users in (np.arange(40), rng.permutation(40)[:11], np.array([39, 0]), np.array([39]), np.array([], np.int64)):
        for ours, theirs in zip(stored.examples_of(users), many.examples_of(users), strict=True):
            assert ours.dtype == theirs.dtype
            assert (ours == theirs).all()
    assert (np.asarray(stored.labels) == many.labels).all()


def test_the_store_of_a_few_bytes_more_than_a_batch_is_whole(tmp_path: Path) -> None:
    step = batch_rows(user_columns((9,), np.dtype(np.float64)))
    for rows in (step - 1, step, step + 1, 2 * step):
        data = from_arrays(np.arange(rows * 9, dtype=float).reshape(rows, 9), np.arange(rows) % 3, np.arange(rows) // 7)
        stored = write_store(data, tmp_path / f"s{rows}")
        assert (stored.inputs[0:rows] == data.inputs).all()
        assert (stored.examples_of(np.arange(len(data)))[1] == data.labels).all()
        assert open_users(tmp_path / f"s{rows}", verify=True).num_examples == rows


# Examples written to a store come back the same; a damaged store is refused.


def test_a_written_store_gives_the_same_records(tmp_path: Path, pictures) -> None:
    rng = np.random.default_rng(1)
    arrays = (pictures[0], rng.normal(size=(50, 2)).astype(np.float32), rng.integers(0, 9, (50, 3)))
    data = examples_from_arrays(
        arrays, pictures[1], label_names=["a", "b", "c", "ü"], vocabulary_sizes=(9, 9, 9), columns=[[], ["p"], ["q"]]
    ).subset([4, 2, 44])
    written = write_examples(data, tmp_path / "store")
    for copy in (written, open_examples(tmp_path / "store")):
        assert copy.fingerprint() == data.fingerprint()
        assert list(copy.label_names or ()) == ["a", "b", "c", "ü"]
        assert (copy.vocabulary_sizes, copy.columns) == (data.vocabulary_sizes, data.columns)
        assert copy.assumptions == data.assumptions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    with pytest.raises(InputError, match="not empty"):
        write_examples(data, tmp_path / "store")
    (tmp_path / "store" / "examples.arrow").unlink()
    with pytest.raises(InputError, match=r"has lost examples\.arrow"):
        open_examples(tmp_path / "store")


def test_a_damaged_store_is_refused_in_one_line(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    file = tmp_path / "a" / "examples.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(InputError, match="the store is damaged"):
        open_examples(tmp_path / "a")
    for place in range(200, len(whole), 300):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match=r"pack it again"):
            open_examples(tmp_path / "a")
    file.write_bytes(whole)
    open_examples(tmp_path / "a")
    (tmp_path / "a" / "store.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        open_examples(tmp_path / "a")


def test_examples_without_users_are_not_taken_for_users(tmp_path: Path, pictures) -> None:
    write_examples(examples_from_arrays(*pictures), tmp_path / "a")
    with pytest.raises(InputError, match="not divided by user; open them with open_examples"):
        open_users(tmp_path / "a")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, pictures) -> None:
    with ExampleWriter([(6, 5, 1)], [np.uint8], tmp_path / "a") as writer:
        writer.add([pictures[0][..., None]], pictures[1])
        assert [path.name for path in tmp_path.iterdir()] == ["a.partial"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("targets", [None, np.arange(40.0), np.arange(80).reshape(40, 2)])
def test_several_inputs_and_any_targets_are_columns_for_others(tmp_path: Path, targets: np.ndarray | None) -> None:
    polars = pytest.importorskip("polars")
    inputs = (np.arange(120.0).reshape(40, 3), np.arange(40 * 7).reshape(40, 7))
    data = examples_from_arrays(inputs, targets, classes=False, vocabulary_sizes=(280,))
    write_examples(data, tmp_path / "a")
    frame = polars.read_ipc(tmp_path / "a" / "examples.arrow")
    assert frame.columns == ["target"] * (targets is not None) + ["inputs_0", "inputs_1"]
    for column, array in zip(frame.columns[::-1], [*inputs[::-1], targets], strict=False):
        assert (frame[column].to_numpy() == array).all()
