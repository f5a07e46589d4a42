"""A fingerprint covers every record, and costs little where the records are known."""

import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import from_arrays, open_examples, open_users, write_store
from sfumato.data.digest import digest_of
from sfumato.data.store import opened
from sfumato.data.store import seal as store_room
from slow import by_profile

USERS = 30_000
INPUTS = np.random.default_rng(0).integers(0, 256, (USERS, 4), np.uint8)


def _many(inputs: np.ndarray = INPUTS, labels: np.ndarray | None = None):
    return from_arrays(inputs, np.zeros(USERS, int) if labels is None else labels, np.arange(USERS))


WHOLE = _many().fingerprint()


@settings(max_examples=by_profile(25), deadline=None)
@given(row=st.integers(0, USERS - 1), column=st.integers(0, 3), bit=st.integers(0, 7))
def test_any_bit_of_any_record_of_many_shows(row: int, column: int, bit: int) -> None:
    inputs = INPUTS.copy()
    inputs[row, column] ^= 1 << bit
    assert _many(inputs).fingerprint() != WHOLE
    labels = np.zeros(USERS, int)
    labels[row] = 1
    assert _many(labels=labels).fingerprint() != WHOLE


def test_it_reports_views_names_and_classes_separate() -> None:
    people = from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a", "b", "c", "d"])
    other_name = from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a", "b", "c", "e"])
    moved = replace(people, offsets=np.array([0, 2, 2, 3, 4]))
    views = [
        people, other_name, moved, people.subset([0, 1]), people.subset([1, 0]), people.select_classes([1]),
        people.select_classes([1], renumber=False), people.with_inputs(np.zeros((4, 3))),
    ]  # fmt: skip
    assert len({view.fingerprint() for view in views}) == len(views)
    assert people.fingerprint() == from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a", "b", "c", "d"]).fingerprint()


def test_blocks_and_threads_leave_the_order_of_rows_to_show() -> None:
    rows = np.random.default_rng(1).integers(0, 256, (3000, 5000), np.uint8)  # four blocks
    swapped = rows.copy()
    swapped[[0, 2999]] = swapped[[2999, 0]]
    assert digest_of("", rows) == digest_of("", rows.copy()) != digest_of("", swapped)
    assert digest_of("", rows) != digest_of("", rows.reshape(5000, 3000))
    assert digest_of("", rows[:, :0]) != digest_of("", rows[:0])


def test_memory_does_not_grow_with_a_mapped_array(tmp_path: Path) -> None:
    np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (50_000, 400)).flush()  # 80 MB of zeros
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    digest_of("", mapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The stores whose content was read as a whole."""
    seen: list[Path] = []
    whole = opened.content_digest
    monkeypatch.setattr(opened, "content_digest", lambda *data: (seen.append(data), whole(*data))[1])
    return seen


def test_a_store_is_read_as_a_whole_once_and_only_where_its_files_look_different(tmp_path: Path, reads: list) -> None:
    write_store(_many().subset(range(50)), tmp_path / "store")
    first = open_users(tmp_path / "store").fingerprint()
    assert not reads  # packing knew
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert open_users(tmp_path / "copy").fingerprint() == first
    assert len(reads) == 1
    assert open_users(tmp_path / "copy").fingerprint() == first
    assert len(reads) == 1
    os.utime(tmp_path / "copy" / "examples.arrow", ns=(0, 0))
    assert open_users(tmp_path / "copy").fingerprint() == first
    assert len(reads) == 2
    assert open_users(tmp_path / "copy").subset(range(49)).fingerprint() != first


def test_records_that_were_changed_in_a_store_are_refused_even_with_their_times_set_back(tmp_path: Path) -> None:
    write_store(_many(), tmp_path / "store")
    file = tmp_path / "store" / "examples.arrow"
    times = file.stat()
    content = np.fromfile(file, np.uint8)
    content[len(content) // 5 :: 7] ^= 255
    with open(file, "r+b") as opened:
        opened.write(content.tobytes())
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(InputError, match="were changed after packing; pack it again"):
        open_users(tmp_path / "store").fingerprint()


def test_a_store_that_cannot_be_written_to_is_read_each_time(tmp_path: Path, reads: list, monkeypatch) -> None:
    write_store(_many().subset(range(50)), tmp_path / "store")
    (tmp_path / "store" / "verified.json").write_text("{")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(store_room, "write_json", refuse)
    assert open_users(tmp_path / "store").fingerprint() == open_users(tmp_path / "store").fingerprint()
    assert len(reads) == 2


def test_a_store_whose_packing_was_resumed_is_read_once(flat_folder: Path, tmp_path: Path, reads: list) -> None:
    bad = flat_folder / "user5" / "5.png"
    good = bad.read_bytes()
    bad.write_bytes(good[:40])
    with pytest.raises(InputError, match=r"5\.png"):
        open_users(flat_folder, store=tmp_path / "store")
    bad.write_bytes(good)
    open_users(flat_folder, store=tmp_path / "store").fingerprint()
    assert len(reads) == 1


def test_a_folder_shows_a_changed_picture(flat_folder: Path, picture: Callable, save: Callable) -> None:
    whole, as_examples = open_users(flat_folder).fingerprint(), open_examples(flat_folder).fingerprint()
    assert open_users(flat_folder, invert=True).fingerprint() != whole
    save(flat_folder / "user5" / "3.png", picture(12345))
    assert open_users(flat_folder).fingerprint() != whole
    assert open_examples(flat_folder).fingerprint() != as_examples
