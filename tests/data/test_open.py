"""The one way in: which reader opens what, copies of what memory does not hold, and going on after a stop."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import from_arrays, gather, glyphs, open_examples, open_users, readers, write_store
from sfumato.data.mapped import ChunkedRows
from sfumato.data.readers.tables import open_source
from sfumato.data.records import Reader, Records
from sfumato.data.store.cache import Cache, _alone, copies, folder, remove


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Next to nothing fits into memory, and copies go to a folder of this test."""
    monkeypatch.setattr(gather, "MEMORY", 100)
    monkeypatch.setattr(gather, "_AT_ONCE", 1)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table(flat_folder: Path, tmp_path: Path) -> Path:
    """rows.parquet: the pictures of a folder, in an order that mixes the users."""
    files = sorted(flat_folder.glob("*/*.png"))
    order = np.random.default_rng(0).permutation(len(files)).tolist()
    rows = {"who": [files[i].parent.name for i in order], "image": [files[i].read_bytes() for i in order]}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def _same(one, other) -> None:
    assert list(one.user_ids) == list(other.user_ids)
    for user in range(len(one)):
        for ours, theirs in zip(one.examples(user), other.examples(user), strict=True):
            np.testing.assert_array_equal(ours, theirs)


SOURCES: dict[str, Callable[[Path, Path], tuple[Path, dict]]] = {
    "folder": lambda photos, rows: (photos, {}),
    "table": lambda photos, rows: (rows, {"user": "who"}),
    "arrays": lambda photos, rows: (_npz(rows.with_name("a.npz")), {}),
}


def _npz(path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(path, inputs=rng.normal(size=(40, 3)), users=rng.integers(0, 5, 40), labels=rng.integers(0, 2, 40))
    return path


@pytest.mark.parametrize("kind", SOURCES)
def test_a_copy_is_made_once_named_private_and_the_same(
    kind: str, flat_folder: Path, table: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, options = SOURCES[kind](flat_folder, table)
    first = open_users(source, **options)
    (copy,) = copies()
    assert first.notes[-1].endswith(f"sfumato data stores --remove {copy.key} removes it")
    assert str(copy.path) in first.notes[-1]
    assert isinstance(first.inputs, ChunkedRows)
    assert copy.path.stat().st_mode & 0o777 == 0o700
    assert (copy.source, copy.finished, copy.users) == (str(source), True, len(first))
    before = {file: file.stat().st_mtime_ns for file in copy.path.iterdir()}
    again = open_users(source, **options)
    assert again.notes == first.notes
    assert again.fingerprint() == first.fingerprint()
    assert {file: file.stat().st_mtime_ns for file in copy.path.iterdir()} == before
    monkeypatch.setattr(gather, "MEMORY", 1 << 26)
    remove(copy.key)
    assert copies() == []
    _same(first, open_users(source, **options))
    assert copies() == []


def test_a_changed_picture_or_another_option_makes_a_copy_of_its_own(
    flat_folder: Path, small: None, picture: Callable, save: Callable
) -> None:
    first = open_users(flat_folder)
    assert open_users(flat_folder, size=8).input_shape == (8, 8, 1)
    assert len(copies()) == 2
    save(flat_folder / "user5" / "3.png", picture(12345))
    assert open_users(flat_folder).fingerprint() != first.fingerprint()
    assert len(copies()) == 3


def test_single_examples_are_copied_with_their_names(class_folder: Path, small: None) -> None:
    kinds = class_folder / "cy"
    first, again = open_examples(kinds), open_examples(kinds)
    assert list(first.example_names or ()) == list(again.example_names or ()) == sorted(first.example_names or ())
    assert again.notes == first.notes
    assert again.targets is not None
    assert again.targets.tolist() == [0, 0, 1, 1, 1]


def test_a_cache_that_cannot_be_written_names_the_option(
    flat_folder: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="--store FOLDER"):
        open_users(flat_folder)
    assert len(open_users(flat_folder, store=tmp_path / "named")) == 6


def test_a_copy_takes_no_more_than_a_tenth_of_the_free_disk_unasked(
    flat_folder: Path, small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=21 * 256 * 10 - 1))
    with pytest.raises(InputError, match=r"above a tenth of the free disk; .*--store FOLDER"):
        open_users(flat_folder, keep="decoded")
    assert len(open_users(flat_folder, store=tmp_path / "named")) == 6
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=21 * 256 * 10))
    assert len(open_users(flat_folder, keep="decoded")) == 6


def test_a_source_that_changes_while_it_is_read_is_read_anew(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the copy of the new file would hold the old one's records."""
    path = _npz(tmp_path / "a.npz")
    read = readers.arrays.read_npz

    def replaced(file: Path) -> Any:
        found = read(file)
        np.savez(tmp_path / "b.npz", inputs=np.zeros((40, 3)), users=np.arange(40) % 5, labels=np.arange(40) % 2)
        (tmp_path / "b.npz").replace(path)
        return found

    monkeypatch.setattr(readers.arrays, "read_npz", replaced)
    assert np.abs(open_users(path).examples(0)[0]).max() > 0
    monkeypatch.setattr(readers.arrays, "read_npz", read)
    assert np.abs(open_users(path).examples(0)[0]).max() == 0


def test_what_others_keep_in_the_folder_of_copies_is_no_copy(flat_folder: Path, small: None) -> None:
    open_users(flat_folder)
    for name in ("photos", ".Trash"):
        (folder() / name).mkdir()
    assert [each.source for each in copies()] == [str(flat_folder)]
    for name in ("photos", ".Trash", "", ".", ".."):
        with pytest.raises(InputError, match="there is no copy"):
            remove(name)
    assert (folder() / "photos").is_dir()


def test_a_copy_that_is_being_written_is_not_removed(flat_folder: Path, small: None) -> None:
    open_users(flat_folder)
    (copy,) = copies()
    cache = Cache((), flat_folder, lambda: ())
    with cache.building(copy.path) as there:
        assert there
        with pytest.raises(InputError, match=f"the copy {copy.key} of .* is being written by another process"):
            remove(copy.key)
    assert remove(copy.key).key == copy.key
    assert copies() == []


def test_who_waited_for_a_lock_that_was_removed_is_alone_with_the_new_one(tmp_path: Path) -> None:
    lock, held = tmp_path / "x.lock", list[int]()

    def other_process() -> None:  # removes the copy while this one waits, and a third begins
        lock.unlink()
        os.close(held.pop())
        held.append(_alone(lock))

    held.append(_alone(lock))
    calls = iter([other_process, lambda: os.close(held.pop())])
    mine = _alone(lock, lambda: next(calls)())
    assert os.path.samestat(os.fstat(mine), os.stat(lock))
    assert next(calls, None) is None
    os.close(mine)


def test_a_name_that_is_no_text_is_a_source_like_any(flat_folder: Path, small: None) -> None:
    odd = flat_folder.rename(Path(os.fsdecode(os.fsencode(flat_folder) + b"\xff")))
    assert len(open_users(odd)) == 6
    assert [each.source for each in copies()] == [str(odd)]


def test_a_copy_that_is_not_there_is_not_removed(small: None) -> None:
    with pytest.raises(InputError, match=f"there is no copy 'abc' in {folder()}; it has none"):
        remove("abc")


_OPEN = """
import os, signal, sys
from sfumato.data import gather, open_users
gather.MEMORY, gather._AT_ONCE, gather._COMMIT_SECONDS = 100, 1, 0.0
stop = int(sys.argv[1])
def progress(done, total):
    if done == stop:
        os.kill(os.getpid(), signal.SIGKILL)
users = open_users(sys.argv[2], user=sys.argv[3] or None, progress=progress)
print(users.fingerprint())
"""


def _open(stop: int, source: Path, user: str) -> subprocess.Popen:
    words = [sys.executable, "-c", _OPEN, str(stop), str(source), user]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=dict(os.environ))


@pytest.mark.parametrize(("kind", "user"), [("folder", ""), ("table", "who")])
def test_reading_that_was_killed_goes_on_from_there(
    kind: str, user: str, flat_folder: Path, table: Path, small: None
) -> None:
    source, options = SOURCES[kind](flat_folder, table)
    process = _open(13, source, user)
    assert process.wait() == -signal.SIGKILL
    assert [copy.finished for copy in copies()] == [False]
    done: list[int] = []
    found = open_users(source, **options, progress=lambda rows, _: done.append(rows))
    assert done[0] in (13, 14)
    assert [copy.finished for copy in copies()] == [True]
    remove(copies()[0].key)
    assert open_users(source, **options).fingerprint() == found.fingerprint()


def test_two_processes_that_read_the_same_wait_for_each_other(flat_folder: Path, small: None) -> None:
    both = [_open(-1, flat_folder, "") for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert len(copies()) == 1


def _pairs(path: Path, options: object) -> Records:
    rows = [line.split("=") for line in path.read_text().split()]
    return open_source(pa.table({"who": [who for who, _ in rows], "x": [float(number) for _, number in rows]}))


PAIRS = Reader(
    name="a file of pairs",
    recognises=lambda source, options: getattr(source, "suffix", "") == ".pairs",
    read=_pairs,
    options=frozenset({"user", "input"}),
)


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sfumato.data.open.USERS", (PAIRS, *readers.USERS))
    (tmp_path / "a.pairs").write_text("bo=1.5\nal=2.5\nbo=0.5\n")
    return tmp_path / "a.pairs"


def test_a_reader_is_one_function_and_one_line(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_users(pairs, user="who", input="x")
    assert list(found.user_ids) == ["al", "bo"]
    assert found.examples(1)[0].tolist() == [[1.5], [0.5]]
    _same(found, open_users(pairs, user="who", input="x", store=tmp_path / "store"))
    with pytest.raises(InputError, match=r"size=8 is for .*, .*a.pairs is a file of pairs; leave it out"):
        open_users(pairs, user="who", input="x", size=8)
    monkeypatch.setattr(gather, "MEMORY", 1)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    _same(found, open_users(pairs, user="who", input="x"))
    assert [copy.source for copy in copies()] == [str(pairs)]


def test_folders_stores_and_arrays_are_distinguished(flat_folder: Path, class_folder: Path, tmp_path: Path) -> None:
    assert open_users(flat_folder).input_shape == (16, 16, 1)
    assert open_users(class_folder, size=8, channels=1, labels="per_user").num_classes == 6
    packed = open_users(flat_folder, store=tmp_path / "store", size=16)
    assert list(open_users(tmp_path / "store").user_ids) == list(packed.user_ids)
    assert open_users(str(tmp_path / "store"), size=16, channels=1).input_shape == (16, 16, 1)
    with pytest.raises(InputError, match=r"packed as 16×16×1, asked for 8×8×1.*--size 8 --channels 1"):
        open_users(tmp_path / "store", size=8)
    np.savez(tmp_path / "a.npz", inputs=np.ones((2, 3)), users=[0, 1], labels=[0, 1])
    assert len(open_users(tmp_path / "a.npz")) == 2


def test_omniglot_is_recognised_in_both_forms(tmp_path: Path) -> None:
    images = np.zeros((4, 9, 9), np.uint8)
    np.savez(
        tmp_path / "o.npz", images=images, character=[0, 0, 1, 1], alphabet=[0, 0, 1, 1], drawer=[1, 2, 1, 2],
        alphabet_names=["Greek", "Latin"],
    )  # fmt: skip
    assert open_users(tmp_path / "o.npz", size=5).groups == ("Greek", "Latin")
    folder = tmp_path / "images_background" / "Greek" / "character01"
    folder.mkdir(parents=True)
    Image.fromarray(images[0]).save(folder / "0001_01.png")
    dataset = open_users(tmp_path / "images_background", channels=3)
    assert list(dataset.user_ids) == ["Greek/character01"]
    assert dataset.input_shape == (9, 9, 3)


def test_emnist_is_recognised_in_both_forms(tmp_path: Path) -> None:
    data = {"x": [[1.0] * 784], "y": [3]}
    (tmp_path / "leaf" / "train").mkdir(parents=True)
    (tmp_path / "leaf" / "train" / "a.json").write_text(json.dumps({"user_data": {"w": data}}))
    assert open_users(tmp_path / "leaf", size=14).input_shape == (14, 14, 1)
    h5py = pytest.importorskip("h5py")
    (tmp_path / "tff").mkdir()
    with h5py.File(tmp_path / "tff" / "fed_emnist_train.h5", "w") as file:
        file["examples/w/pixels"] = np.ones((1, 28, 28), np.float32)
        file["examples/w/label"] = [3]
    for path in (tmp_path / "tff", tmp_path / "tff" / "fed_emnist_train.h5"):
        assert open_users(path).examples(0)[0].min() == 255


def test_the_embedded_data_have_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path))
    monkeypatch.setattr("sfumato.data.readers.arrays.glyphs", partial(glyphs, images_per_identity=1))
    calls: list[tuple[int, int]] = []
    assert len(open_users("glyphs", progress=lambda *c: calls.append(c))) == 2300
    assert calls[-1] == (2300, 2300)


@pytest.mark.parametrize("kind", ["absent", "empty folder", "files only", "text file", "unfinished"])
def test_an_unknown_thing_gets_one_line_that_lists_what_is_understood(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "files only":
        path.mkdir()
        (path / "a.txt").write_text("")
    elif kind == "text file":
        path.write_text("")
    elif kind == "unfinished":
        (tmp_path / "thing.partial").mkdir()
    message = "not finished" if kind == "unfinished" else "thing .*packed store, .*Omniglot.*npz.*EMNIST.*glyphs"
    with pytest.raises(InputError, match=message) as refusal:
        open_users(path)
    assert "\n" not in str(refusal.value)


def test_stores_by_user_are_read_as_examples_and_the_rest_is_refused(tmp_path: Path) -> None:
    users = from_arrays(np.zeros((4, 3, 3), np.uint8), [0, 1, 1, 2], ["b", "a", "b", "c"])
    write_store(users, tmp_path / "users")
    assert open_examples(tmp_path / "users").targets.tolist() == [1, 0, 1, 2]
    for name, content, message in [
        ("a.txt", b"", "is none of: a folder"),
        ("a.npz", b"zip?", "cannot be read as npz"),
        ("a.parquet", b"", "give a schema"),
        ("b.csv", b"age,sex,label\n3,m,1\n", "give a schema"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            open_examples(tmp_path / name)
    with pytest.raises(InputError, match="there is nothing at"):
        open_examples(tmp_path / "none")
    with pytest.raises(InputError, match="part must be one of train, test"):
        open_examples(tmp_path / "users", "valid")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not divided into train and test"):
        open_examples(tmp_path / "users", "test")


def test_what_the_data_have_no_use_for_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 8, 8), np.uint8), y=[0, 1, 0, 1])
    write_store(from_arrays(np.zeros((2, 3, 3), np.uint8), [0, 1], ["b", "a"]), tmp_path / "users")
    (tmp_path / "texts.csv").write_text("label,text\na,some words of this\nb,more words of that\n")
    for place, option, name in [
        ("a.npz", {"size": 28}, "size"),
        ("a.npz", {"channels": 1}, "channels"),
        ("a.npz", {"schema": {"x": {"kind": "target"}}}, "schema"),
        ("users", {"size": (4, 4)}, "size"),
        ("texts.csv", {"channels": 3}, "channels"),
    ]:
        with pytest.raises(InputError, match=f"{name}=.* is for .*{place} is .*; leave it out"):
            open_examples(tmp_path / place, **option)


def test_a_folder_of_pictures_an_array_and_a_column_have_no_labels(tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for shade in range(3):
        Image.new("L", (6, 4), 40 * shade).save(pictures / f"{shade}.png")
    np.save(tmp_path / "x.npy", np.ones((5, 2), np.float32))
    np.savez(tmp_path / "x.npz", inputs=np.ones((5, 2), np.float32), other=np.zeros(3))
    pd.DataFrame({"v": [[0.5, 1.5], [2.5, 3.5]], "name": ["a", "b"]}).to_parquet(tmp_path / "x.parquet")
    found = open_examples(pictures, targets=False)
    assert found.input_shapes == ((4, 6, 1),)
    assert found.examples([2, 0])[0][0][:, 0, 0, 0].tolist() == [80, 0]
    assert found.targets is None
    for name, count in (("x.npy", 5), ("x.npz", 5)):
        assert (
            len(open_examples(tmp_path / name, targets=False)),
            open_examples(tmp_path / name, targets=False).targets,
        ) == (count, None)
    rows = open_examples(tmp_path / "x.parquet", targets=False, input="v")
    assert rows.targets is None
    assert rows.examples([1])[0][0].tolist() == [[2.5, 3.5]]


def test_a_file_that_is_no_picture_is_named_or_skipped_and_counted(tmp_path):
    Image.new("L", (6, 4)).save(tmp_path / "a.png")
    (tmp_path / "b.txt").write_text("words")
    with pytest.raises(InputError, match=r"b\.txt"):
        open_examples(tmp_path, targets=False)
    found = open_examples(tmp_path, targets=False, on_error="skip")
    assert len(found) == 1
    assert "skipped 1 file: b.txt (is not a picture)" in found.notes[0]


@pytest.mark.parametrize("name", ["nothing.npz", "words.txt", "empty", "odd.npz"])
def test_what_holds_no_inputs_is_refused(name, tmp_path):
    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "odd.npz", weights=np.zeros(3))
    with pytest.raises(InputError):
        open_examples(tmp_path / name, targets=False)
