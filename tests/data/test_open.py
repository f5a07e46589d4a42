"""The one way in: copies of what memory does not hold, going on after a stop, and a reader of one's own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato.data import gather, open_examples, open_users, readers
from sfumato.data.mapped import ChunkedRows
from sfumato.data.readers.tables import open_source
from sfumato.data.records import Reader, Records
from sfumato.data.store.cache import copies, folder, remove


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
