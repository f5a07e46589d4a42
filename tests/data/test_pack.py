"""A packed store equals the folder, whatever interrupts the packing, in memory that does not grow."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import open_users
from sfumato.data.store.format import batch_rows
from sfumato.data.store.opened import user_columns
from sfumato.data.store.writer import StoreWriter

_KILLED = """
import os, signal, sys
from sfumato.data import gather, open_users
gather._COMMIT_SECONDS, gather._AT_ONCE = float(sys.argv[4]), 1
stop = int(sys.argv[3])
def progress(done, total):
    if done == stop:
        os.kill(os.getpid(), getattr(signal, sys.argv[5]))
how = dict(size=(12, 10), channels=1, on_error="skip", labels=sys.argv[6], progress=progress)
open_users(sys.argv[1], store=sys.argv[2], **how)
"""


def _killed(source: Path, target: Path, stop: int, commit: float, name: str, labels: str) -> int:
    arguments = [sys.executable, "-c", _KILLED, str(source), str(target), str(stop), str(commit), name, labels]
    return subprocess.run(arguments, capture_output=True, check=False).returncode


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop goes back to the last picture, as it does with large ones."""
    monkeypatch.setattr("sfumato.data.gather._AT_ONCE", 1)


def _content(folder: Path) -> dict[str, bytes]:
    """All but the note of how the files looked to the system when they were verified."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "verified.json"}


@pytest.mark.parametrize("labels", ["shared", "per_user"])
@pytest.mark.parametrize("folder", ["flat_folder", "class_folder"])
def test_a_store_holds_what_the_folder_holds(
    folder: str, labels: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(folder)
    calls: list[tuple[int, int]] = []
    packed = open_users(
        root, store=tmp_path / "store", size=(12, 10), channels=3, labels=labels, progress=lambda *c: calls.append(c)
    )  # type: ignore[arg-type]
    lazy = open_users(root, size=(12, 10), channels=3, labels=labels)  # type: ignore[arg-type]
    for dataset in (packed, open_users(tmp_path / "store", verify=True)):
        assert list(dataset.user_ids) == list(lazy.user_ids)
        assert list(dataset.label_names or ()) == list(lazy.label_names or ())
        assert dataset.num_classes == lazy.num_classes
        assert dataset.notes == lazy.notes
        assert dataset.input_shape == (12, 10, 3)
        for user in range(len(lazy)):
            for ours, theirs in zip(dataset.examples(user), lazy.examples(user)):
                assert ours.dtype == theirs.dtype
                assert (ours == theirs).all()
    total = lazy.num_examples
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert not (tmp_path / "store.partial").exists()


@pytest.mark.parametrize("labels", ["shared", "per_user"])
@pytest.mark.parametrize("folder", ["flat_folder", "class_folder"])
def test_a_pack_that_was_stopped_three_times_ends_byte_identical(
    folder: str, labels: str, tmp_path: Path, request: pytest.FixtureRequest, sigint: Callable[[bool], None]
) -> None:
    root = request.getfixturevalue(folder)
    spoiled = sorted(p for p in root.rglob("*.*"))[0]  # a bad file before the stop is not forgotten
    spoiled.write_text("not a picture")
    (root / "a user without pictures").mkdir()
    open_users(root, store=tmp_path / "whole", size=(12, 10), channels=1, on_error="skip", labels=labels)  # type: ignore[arg-type]
    target = tmp_path / "resumed"
    assert _killed(root, target, 6, 0.0, "SIGKILL", labels) == -signal.SIGKILL
    state = json.loads((tmp_path / "resumed.partial" / "state.json").read_text())
    assert 0 < state["extra"]["rows"] <= 6
    with pytest.raises(InputError, match="not finished; run the same pack command again"):
        open_users(target)
    assert _killed(root, target, 9, 0.0, "SIGINT", labels) != 0
    again = json.loads((tmp_path / "resumed.partial" / "state.json").read_text())
    assert again["extra"]["rows"] > state["extra"]["rows"]
    sigint(False)  # in the background, the other way to ask still works
    assert _killed(root, target, 13, 0.0, "SIGTERM", labels) == -signal.SIGTERM
    later = json.loads((tmp_path / "resumed.partial" / "state.json").read_text())
    assert later["extra"]["rows"] > again["extra"]["rows"]
    first: list[int] = []
    open_users(
        root,
        store=target,
        size=(12, 10),
        channels=1,
        on_error="skip",
        labels=labels,
        progress=lambda d, _: first.append(d),
    )  # type: ignore[arg-type]
    assert first[0] == later["extra"]["rows"] + 1  # it went on, it did not start again
    assert _content(target) == _content(tmp_path / "whole")


def test_a_kill_before_the_first_commit_costs_only_time(flat_folder: Path, tmp_path: Path) -> None:
    open_users(flat_folder, store=tmp_path / "whole", size=(12, 10))
    assert _killed(flat_folder, tmp_path / "again", 7, 60.0, "SIGKILL", "shared") == -signal.SIGKILL
    open_users(flat_folder, store=tmp_path / "again", size=(12, 10))
    assert _content(tmp_path / "again") == _content(tmp_path / "whole")


def test_a_refused_file_keeps_what_was_packed_and_can_be_mended(
    flat_folder: Path, tmp_path: Path, picture: Callable, save: Callable
) -> None:
    path = flat_folder / "user4" / "1.png"
    good = path.read_bytes()
    path.write_bytes(good[:50])
    with pytest.raises(InputError, match=r"user4/1\.png is broken: .*goes on from here"):
        open_users(flat_folder, store=tmp_path / "store", size=16)
    path.write_bytes(good)
    calls: list[int] = []
    open_users(flat_folder, store=tmp_path / "store", size=16, progress=lambda done, _: calls.append(done))
    assert calls[0] == 12  # users 0 to 3 have 1 + 2 + 3 + 4 pictures, and user 4 a good one in front
    open_users(flat_folder, store=tmp_path / "whole", size=16)
    assert _content(tmp_path / "store") == _content(tmp_path / "whole")


def test_after_a_refusal_skipping_goes_on_from_there(flat_folder: Path, tmp_path: Path) -> None:
    (flat_folder / "user4" / "1.png").write_text("")
    with pytest.raises(InputError, match="user4"):
        open_users(flat_folder, store=tmp_path / "store", size=16)
    dataset = open_users(flat_folder, store=tmp_path / "store", size=16, on_error="skip")
    assert dataset.sizes.tolist() == [1, 2, 3, 4, 4, 6]
    assert dataset.notes == ("skipped 1 file: user4/1.png (is not a picture)",)
    lines = (tmp_path / "store" / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"what": "user4/1.png", "reason": "is not a picture"}]


def test_a_stray_picture_at_the_root_is_refused_before_anything_is_packed(
    flat_folder: Path, tmp_path: Path, picture: Callable, save: Callable
) -> None:
    save(flat_folder / "lost.png", picture(0))
    for _ in range(2):
        with pytest.raises(InputError, match=r"lost\.png is not in a user's folder"):
            open_users(flat_folder, store=tmp_path / "store", size=16)
    assert len(open_users(flat_folder, store=tmp_path / "store", size=16, on_error="skip")) == 6


@pytest.mark.parametrize("change", ["new user", "new file", "other content", "fewer", "other class"])
def test_a_source_that_changed_where_it_was_packed_is_refused(
    change: str, class_folder: Path, tmp_path: Path, picture: Callable, save: Callable
) -> None:
    (class_folder / "dan" / "ant" / "1.jpg").write_text("")
    with pytest.raises(InputError, match="dan"):
        open_users(class_folder, store=tmp_path / "store", size=16)
    if change == "new user":
        save(class_folder / "aaa" / "ant" / "0.jpg", picture(1, 20, 16, 3))
    elif change == "new file":
        save(class_folder / "bob" / "dog" / "9.jpg", picture(1, 20, 16, 3))
    elif change == "other content":
        save(class_folder / "bob" / "dog" / "0.jpg", picture(77, 20, 16, 3))
    elif change == "fewer":
        for path in (*class_folder.glob("bob/*/*"), *class_folder.glob("cy/*/*")):
            path.unlink()
    else:
        save(class_folder / "dan" / "bee" / "0.jpg", picture(77, 20, 16, 3))
    with pytest.raises(InputError, match=r"changed since packing stopped: .*delete .*store\.partial"):
        open_users(class_folder, store=tmp_path / "store", size=16, on_error="skip")


def test_other_options_do_not_mix_into_an_unfinished_store(flat_folder: Path, tmp_path: Path) -> None:
    (flat_folder / "user4" / "1.png").write_text("")
    with pytest.raises(InputError, match="user4"):
        open_users(flat_folder, store=tmp_path / "store", size=16)
    with pytest.raises(InputError, match=r"other options \(shape=\[16, 16, 1\] then, \[8, 8, 1\] now\)"):
        open_users(flat_folder, store=tmp_path / "store", size=8)


@pytest.mark.parametrize("damage", ["state", "short"])
def test_a_damaged_unfinished_store_is_refused(damage: str, flat_folder: Path, tmp_path: Path) -> None:
    (flat_folder / "user4" / "1.png").write_text("")
    with pytest.raises(InputError, match="user4"):
        open_users(flat_folder, store=tmp_path / "store", size=16)
    partial = tmp_path / "store.partial"
    if damage == "state":
        (partial / "state.json").write_text("{")
    else:
        os.truncate(partial / "ends.bin", 8)
    with pytest.raises(InputError, match=r"damaged; delete .*store\.partial to start again"):
        open_users(flat_folder, store=tmp_path / "store", size=16, on_error="skip")


def test_destinations_that_hold_something_are_refused(flat_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("keep me")
    with pytest.raises(InputError, match="not empty"):
        open_users(flat_folder, store=tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        open_users(flat_folder, store=tmp_path / "file")
    with pytest.raises(InputError, match="lies inside"):
        open_users(flat_folder, store=flat_folder / "store")
    (tmp_path / "empty").mkdir()
    assert len(open_users(flat_folder, store=tmp_path / "empty")) == 6


def test_two_processes_cannot_write_one_store(flat_folder: Path, tmp_path: Path) -> None:
    shape, kind = (16, 16, 1), np.dtype(np.uint8)
    options = {"shape": list(shape), "labels": "shared"}
    writer = StoreWriter(tmp_path / "store", user_columns(shape, kind), class_names=True, options=options)
    with pytest.raises(InputError, match="another process is writing"):
        open_users(flat_folder, store=tmp_path / "store")
    writer.close()
    assert len(open_users(flat_folder, store=tmp_path / "store")) == 6


def test_users_without_any_picture_are_no_users(tmp_path: Path) -> None:
    (tmp_path / "photos" / "ann").mkdir(parents=True)
    with pytest.raises(InputError, match="no users"):
        open_users(tmp_path / "photos", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_full_disk_is_one_line_and_packing_goes_on_later(
    flat_folder: Path, tmp_path: Path, picture: Callable, save: Callable
) -> None:
    for user in range(30):
        save(flat_folder / f"user{user:02}" / "x.png", picture(user))
    code = (
        "import resource, signal, sys; from sfumato.data import gather, open_users;"
        "gather._COMMIT_SECONDS, gather._AT_ONCE = 0.0, 1; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"  # the kernel refuses longer files
        "open_users(sys.argv[1], store=sys.argv[2], size=100)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(flat_folder), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "InputError: no space left for" in run.stderr.splitlines()[-1]
    assert "run the same command again" in run.stderr.splitlines()[-1]
    open_users(flat_folder, store=tmp_path / "store", size=100)
    open_users(flat_folder, store=tmp_path / "whole", size=100)
    assert _content(tmp_path / "store") == _content(tmp_path / "whole")


_PEAK = """
import resource, sys
from sfumato.data import open_users
open_users(sys.argv[1], store=sys.argv[2], size=64, channels=3, keep=sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["decoded", "encoded"])
def test_memory_does_not_grow_with_the_pictures(keep: str, tmp_path: Path, picture: Callable, save: Callable) -> None:
    peaks = []
    for count in (2, 60):
        root = tmp_path / f"photos{count}"
        save(root / "model.jpg", picture(1, 64, 64, 3))
        for user in range(count):
            (root / f"u{user}").mkdir()
            for n in range(50):
                shutil.copy(root / "model.jpg", root / f"u{user}" / f"{n}.jpg")
        (root / "model.jpg").unlink()
        run = subprocess.run(
            [sys.executable, "-c", _PEAK, str(root), str(tmp_path / f"store{count}"), keep],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(run.stdout) / 1024)
    packed = (tmp_path / "store60" / "examples.arrow").stat().st_size / 2**20
    assert (packed > 30) == (keep == "decoded")
    assert peaks[1] - peaks[0] < 8  # MiB, while the store grew by 34


@pytest.mark.parametrize(("folder", "shape"), [("flat_folder", (16, 16, 1)), ("class_folder", (20, 16, 3))])
def test_pictures_keep_their_size_and_colour(
    folder: str, shape: tuple[int, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(folder)
    packed, lazy = open_users(root, store=tmp_path / "store"), open_users(root)
    assert packed.input_shape == lazy.input_shape == shape
    for user in range(len(lazy)):
        assert (packed.examples(user)[0] == lazy.examples(user)[0]).all()
    assert packed.notes == ()


def test_pictures_that_differ_are_refused(flat_folder: Path, tmp_path: Path, picture: Callable, save: Callable) -> None:
    save(flat_folder / "user3" / "0.png", picture(5, 16, 20, 1))
    with pytest.raises(InputError, match=r"user0/0\.png is 16×16 and .*user3/0\.png is 16×20; .*--size 16,"):
        open_users(flat_folder, store=tmp_path / "store")
    assert open_users(flat_folder, store=tmp_path / "sized", size=16).input_shape == (16, 16, 1)
    save(flat_folder / "user3" / "0.png", picture(5, 16, 16, 3))
    with pytest.raises(InputError, match=r"user0/0\.png is grey and .*user3/0\.png is RGB; .*--channels"):
        open_users(flat_folder, store=tmp_path / "other", size=16)
    assert open_users(flat_folder, store=tmp_path / "grey", channels=3).input_shape == (16, 16, 3)


def test_packing_goes_on_in_the_middle_of_a_batch_and_of_a_user(
    tmp_path: Path, picture: Callable, save: Callable
) -> None:
    root = tmp_path / "photos"
    columns = user_columns((64, 64, 3), np.dtype(np.uint8))
    count = 2 * batch_rows(columns) + 9
    for user, share in enumerate((0.2, 0.7, 0.1)):
        save(root / f"u{user}" / "0.jpg", picture(user, 64, 64, 3))
        for n in range(1, int(count * share)):
            os.link(root / f"u{user}" / "0.jpg", root / f"u{user}" / f"{n}.jpg")
    (root / "u2" / "0.jpg").unlink()
    (root / "u2" / "0.jpg").write_text("no picture")
    with pytest.raises(InputError, match=r"u2/0\.jpg is not a picture"):
        open_users(root, store=tmp_path / "store", size=64, channels=3)
    state = json.loads((tmp_path / "store.partial" / "state.json").read_text())
    assert state["users"] == 2
    assert state["examples"] % batch_rows(columns)
    for target in ("store", "whole"):
        open_users(root, store=tmp_path / target, size=64, channels=3, on_error="skip")
    assert _content(tmp_path / "store") == _content(tmp_path / "whole")
    waiting = open_users(tmp_path / "store", verify=True)
    assert waiting.num_examples == state["examples"] + int(count * 0.1) - 1


def test_the_mark_of_a_user_survives_a_batch_that_was_filled_behind_it(tmp_path: Path) -> None:
    columns = user_columns((1024,), np.dtype(np.float64))
    step, rng = batch_rows(columns), np.random.default_rng(0)
    first, second = rng.normal(size=(step - 3, 1024)), rng.normal(size=(9, 1024))

    def write(target: Path, stop: bool) -> StoreWriter:
        writer = StoreWriter(target, columns, class_names=False, options={})
        if not writer.resumed:
            writer.add(np.zeros(len(first), int), first)
            writer.end_user("a")
            writer.mark()
        if stop:
            writer.add(np.ones(5, int), -second[:5])  # fills the batch, and is of a user who is not finished
            writer.commit()
            writer.close()
            return writer
        writer.add(np.ones(len(second), int), second)
        writer.end_user("b")
        writer.finish({"notes": []})
        return writer

    write(tmp_path / "whole", stop=False)
    write(tmp_path / "again", stop=True)
    assert write(tmp_path / "again", stop=False).resumed
    assert _content(tmp_path / "again") == _content(tmp_path / "whole")
