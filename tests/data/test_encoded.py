"""Pictures that are kept as the bytes of their files: the same pixels, users and notes, in less room."""

import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.data import gather, open_examples, open_users, write_store
from sfumato.data.store import encoded
from sfumato.data.store.cache import copies
from sfumato.data.store.encoded import EncodedRows
from sfumato.federated import FedAvg

PICTURES = "pictures.bin"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Next to nothing fits into memory, and copies go to a folder of this test."""
    monkeypatch.setattr(gather, "MEMORY", 100)
    monkeypatch.setattr(gather, "_AT_ONCE", 1)
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def table(class_folder: Path, tmp_path: Path) -> Path:
    """rows.parquet: the pictures of a folder, in an order that mixes the users; one is no picture."""
    files = sorted(class_folder.glob("*/*/*.jpg"))
    order = np.random.default_rng(0).permutation(len(files)).tolist()
    rows = {
        "who": [files[i].parent.parent.name for i in order],
        "kind": [files[i].parent.name for i in order],
        "image": [files[i].read_bytes() for i in order],
    }
    rows["image"][3] = b"no picture"
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


BY_TABLE = {"user": "who", "label": "kind", "on_error": "skip"}
SOURCES: dict[str, Callable[[Path, Path], tuple[Path, dict[str, Any]]]] = {
    "as they are": lambda photos, rows: (photos, {}),
    "inverted, grey, small": lambda photos, rows: (photos, {"size": (9, 7), "channels": 1, "invert": True}),
    "rows in any order": lambda photos, rows: (rows, {**BY_TABLE, "size": 8}),
}


def test_pictures_on_demand_are_the_same_and_no_more_than_those_asked_for_are_decoded(
    small: None, class_folder: Path, save: Callable, picture: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, decoded, decode = open_users(class_folder), list[object](), gather.decode
    monkeypatch.setattr(gather, "decode", lambda *given: decoded.append(given) or decode(*given))
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "none"))
    lazy = open_users(class_folder, on_demand=True)
    assert (repr(lazy), list(lazy.user_ids), len(decoded)) == (repr(whole), list(whole.user_ids), 1)
    for ours, theirs in zip(whole.examples(2), lazy.examples(2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(decoded) == 1 + len(whole.examples(2)[0])
    assert not copies()
    save(class_folder / "ann" / "cat" / "0.jpg", picture(0, 9, 9, 3))
    with pytest.raises(InputError, match="is 9×9"):
        lazy.examples(0)


@pytest.mark.parametrize("kind", SOURCES)
def test_users_are_the_same_to_the_last_bit(kind: str, class_folder: Path, table: Path, tmp_path: Path) -> None:
    source, options = SOURCES[kind](class_folder, table)
    one = open_users(source, **options, store=tmp_path / "one")
    other = open_users(source, **options, store=tmp_path / "other", keep="encoded")
    assert isinstance(other.inputs, EncodedRows)
    assert (repr(other), other.notes, list(other.user_ids)) == (repr(one), one.notes, list(one.user_ids))
    assert list(other.label_names or ()) == list(one.label_names or ())
    assert list(other.example_names or ()) == list(one.example_names or ())
    for user in range(len(one)):
        for ours, theirs in zip(one.examples(user), other.examples(user), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    every = np.arange(len(one))
    np.testing.assert_array_equal(one.examples_of(every[::-1])[0], other.examples_of(every[::-1])[0])
    again = open_users(tmp_path / "other", verify=True)
    assert again.fingerprint() == other.fingerprint() != one.fingerprint()
    held = {name: (tmp_path / name / PICTURES).exists() for name in ("one", "other")}
    assert held == {"one": False, "other": True}
    assert write_store(other, tmp_path / "third").whole_digest() == one.whole_digest()


def test_single_examples_are_the_same_to_the_last_bit(class_folder: Path, table: Path, tmp_path: Path) -> None:
    rows = pq.read_table(table)
    rows = rows.append_column("x", pa.array(np.arange(2.0 * len(rows)).reshape(-1, 2).tolist()))
    both: dict[str, Any] = {"input": ["image", "x"], "label": "kind", "on_error": "skip"}
    for place, (source, options) in enumerate([(class_folder / "cy", {"size": 8}), (rows, both)]):
        one = open_examples(source, **options, store=tmp_path / f"one{place}")
        other = open_examples(source, **options, store=tmp_path / f"other{place}", keep="encoded")
        assert isinstance(other.inputs[0], EncodedRows)
        assert (repr(other), other.notes, other.fingerprint()) == (repr(one), one.notes, one.fingerprint())
        assert list(other.example_names or ()) == list(one.example_names or ())
    by_user = open_users(table, **BY_TABLE, store=tmp_path / "users", keep="encoded")
    assert len(open_examples(tmp_path / "users")) == by_user.num_examples


@pytest.mark.parametrize("unit", ["example", "user"])
def test_training_on_them_gives_the_same_model(unit: str, flat_folder: Path, tmp_path: Path) -> None:
    def trained(keep: Any) -> list[torch.Tensor]:
        users = open_users(flat_folder, store=tmp_path / str(keep), keep=keep).with_classes(None)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 6))
        if unit == "user":
            fitted = FedAvg(rounds=2, cohort=3, delta=1e-3, noise=1.0, seed=1).fit(model, users).model
        else:
            examples = open_examples(tmp_path / str(keep)).with_classes(None)
            fitted = DPSGD(steps=3, cohort=8, delta=1e-3, clipping=1.0, noise=1.0, seed=0).fit(model, examples).model
        return list(fitted.parameters())

    for one, other in zip(trained("decoded"), trained("encoded"), strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def large(save: Callable, picture: Callable, tmp_path: Path) -> Path:
    """large/<user>/<n>.jpg: 8 pictures of 64×64 that take much less room than their pixels."""
    for n in range(8):
        save(tmp_path / "large" / f"user{n % 3}" / f"{n}.jpg", picture(n, 64, 64, 3))
    return tmp_path / "large"


def test_a_copy_that_would_take_a_tenth_of_the_free_disk_has_the_files_as_they_are(
    large: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, files = 8 * 64 * 64 * 3, sum(file.stat().st_size for file in large.rglob("*.jpg"))
    assert files < pixels / 2
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10 * pixels - 1))
    with pytest.raises(InputError, match=r"above a tenth of the free disk; .*--store FOLDER"):
        open_users(large, keep="decoded")
    found = open_users(large)
    assert isinstance(found.inputs, EncodedRows)
    (copy,) = copies()
    assert copy.path.stat().st_mode & 0o777 == 0o700
    assert f"--remove {copy.key}" in found.notes[-1]
    assert "decoded each time they are read" in found.notes[-1]
    assert isinstance(open_users(large).inputs, EncodedRows)


def test_a_copy_of_files_takes_no_more_than_a_tenth_either(
    large: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sum(file.stat().st_size for file in large.rglob("*.jpg"))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5 * files))
    with pytest.raises(InputError, match=r"above a tenth of the free disk; .*--store FOLDER"):
        open_users(large)


_OPEN = """
import os, signal, sys
from sfumato.data import gather, open_users
gather._AT_ONCE, gather._COMMIT_SECONDS = 1, 0.0
def progress(done, total):
    if done == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
options = eval(sys.argv[4])
open_users(sys.argv[2], store=sys.argv[3], keep="encoded", progress=progress, **options)
"""


@pytest.mark.parametrize("kind", ["as they are", "rows in any order"])
def test_packing_that_was_killed_goes_on_from_there(
    kind: str, class_folder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, options = SOURCES[kind](class_folder, table)
    words = [sys.executable, "-c", _OPEN, "7", str(source), str(tmp_path / "a"), repr(options)]
    assert subprocess.run(words, env=dict(os.environ), check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr(gather, "_AT_ONCE", 1)
    done: list[int] = []
    open_users(source, **options, store=tmp_path / "a", keep="encoded", progress=lambda rows, _: done.append(rows))
    assert done[0] in (7, 8)
    open_users(source, **options, store=tmp_path / "b", keep="encoded")
    for name in {file.name for file in (tmp_path / "b").iterdir()} - {"verified.json"}:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} >= {"a", "b"}
    assert not list(tmp_path.glob("*.partial"))


def test_a_picture_that_was_changed_is_refused(class_folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    open_users(class_folder, store=store, keep="encoded")
    with open(store / PICTURES, "r+b") as file:
        file.seek(40)
        byte = file.read(1)[0]
        file.seek(40)
        file.write(bytes([byte ^ 1]))
    found = open_users(store)
    with pytest.raises(InputError, match="was changed after packing; pack the store again"):
        found.examples(0)
    for read in (found.fingerprint, lambda: open_users(store, verify=True)):
        with pytest.raises(InputError, match="were changed after packing; pack it again"):
            read()
    facts = json.loads((store / "store.json").read_text())
    assert facts["version"] == 3  # a reader of version 2 would take references for inputs


def test_another_pillow_is_another_fingerprint(
    class_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_users(class_folder, store=tmp_path / "store", keep="encoded").fingerprint()
    monkeypatch.setattr("PIL.__version__", "0")
    assert open_users(tmp_path / "store").fingerprint() != before


def test_memory_holds_no_more_than_what_is_kept(
    save: Callable, picture: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        save(tmp_path / "photos" / f"user{n % 4}" / f"{n}.png", picture(n, 64, 64, 3))
    rows = open_users(tmp_path / "photos", store=tmp_path / "store", keep="encoded").inputs
    monkeypatch.setattr(encoded, "_KEPT", 5 * 64 * 64 * 3)
    rows[0:3]
    tracemalloc.start()
    for place in range(40):
        rows[place : place + 1]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 7 * 64 * 64 * 3


def test_what_has_no_pictures_keeps_none(tmp_path: Path) -> None:
    rows = pa.table({"who": [1, 2], "x": [0.5, 1.5]})
    with pytest.raises(InputError, match="keep: for pictures only"):
        open_users(rows, user="who", input="x", keep="encoded")
    np.savez(tmp_path / "a.npz", inputs=np.ones((2, 3)), users=[0, 1], labels=[0, 1])
    with pytest.raises(InputError, match="keep='encoded' is for pictures in folders and tables"):
        open_users(tmp_path / "a.npz", keep="encoded")
