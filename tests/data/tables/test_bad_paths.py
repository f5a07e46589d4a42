"""What a cell of paths can be wrong in is one line with its row, its path and what to do, or is skipped and counted."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from sfumato._check import InputError
from sfumato.data import gather as inputs
from sfumato.data import open_examples, open_users

ADDRESSES = ("address", 0)  # the first cell tells what the column holds
ELSEWHERE = "where the pictures lie elsewhere, name their folder: --folder FOLDER or folder="


def _refusal(read: Callable, *given: Any, **columns: Any) -> str:
    with pytest.raises(InputError) as refusal:
        read(*given, **columns)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def _cut(file: Path) -> None:
    Image.effect_noise((16, 16), 90).save(file)
    file.write_bytes(file.read_bytes()[:100])


BAD = {
    "missing": ("none.png", lambda file: None, "cannot be read: No such file or directory"),
    "folder": ("folder.png", Path.mkdir, "is a folder"),
    "pipe": ("pipe.png", os.mkfifo, "is not a regular file"),
    "truncated": ("cut.png", _cut, "is broken: image file is truncated"),
    "text": ("text.png", lambda file: file.write_text("no picture"), "is not a picture"),
    "empty file": ("empty.png", Path.touch, "is not a picture"),
    "loop": ("loop.png", lambda file: file.symlink_to(file), "cannot be read: Too many levels of symbolic links"),
    "long": ("n" * 300 + ".png", lambda file: None, "cannot be read: File name too long"),
    "no name": ("a\0b.png", lambda file: None, "is broken: embedded null byte"),
    "below a file": ("user0/0.png/0.png", lambda file: None, "cannot be read: Not a directory"),
    "two of a name": ("user5/twice", lambda file: None, "can be twice.jpg or twice.png; write the ending, too"),
    "address": ("https://x.org/1.png", lambda file: None, "is an address; download the picture, and name its file"),
    "Windows": (r"C:\me\1.png", lambda file: None, "is a path of Windows, not of this machine"),
}


@pytest.mark.parametrize(
    ("bad", "place"), [(bad, place) for bad in BAD for place in (0, 9) if (bad, place) != ADDRESSES]
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_cell_without_a_readable_picture_is_named_or_skipped_and_counted(
    bad: str, place: int, stored: bool, flat_folder: Path, listed: dict[str, list], tmp_path: Path
) -> None:
    path, make, reason = BAD[bad]
    whole = open_users(flat_folder)
    for ending in (".png", ".jpg"):
        Image.new("L", (16, 16)).save(flat_folder / f"user5/twice{ending}")
    make(flat_folder / path)
    listed["file"][place] = path
    rows = pa.table(listed)
    how = {"user": "person", "input": "file", "folder": flat_folder, "store": tmp_path / "store" if stored else None}
    told = _refusal(open_users, rows, **how)
    seen = path if bad in ("address", "Windows") else f"{flat_folder / path}"
    assert told.startswith(f"the table: file at position {place} ({seen[:200]}")
    assert reason in told
    assert "remove it, or leave out such files with on_error=skip" in told
    assert (f"; paths start at {flat_folder}, as --folder (folder=) says" in told) == (bad == "missing")
    assert not (tmp_path / "store").exists()
    found = open_users(rows, on_error="skip", **how)
    assert found.notes[0].startswith(f"skipped 1 file: position {place} ({seen[:200]}")
    assert reason in found.notes[0]
    assert found.num_examples == 20
    lost = listed["person"][place]
    if place == 0:  # user0 has no other
        assert found.notes[1:] == ("skipped 1 user without readable pictures: user0",)
        assert lost not in found.user_ids
    for user, name in enumerate(found.user_ids):
        count = len(found.examples(user)[0])
        assert count == (3 if name == lost else int(name[-1]) + 1)
        if name not in (lost, "user5"):
            assert (found.examples(user)[0] == whole.examples(list(whole.user_ids).index(name))[0]).all()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "pandas", "blank", "struct"])
def test_an_empty_cell_is_named_or_skipped(kind: str, flat_folder: Path, listed: dict[str, list]) -> None:
    for place in (0, 5):
        columns = {"file": list(listed["file"]), "person": ["user5"] * 21}
        columns["file"][place] = "  " if kind == "blank" else None
        source: Any = pd.DataFrame(columns)
        if kind == "csv":
            source.to_csv(flat_folder / "rows.csv", index=False)
            source = flat_folder / "rows.csv"
        elif kind == "jsonl":
            source.to_json(flat_folder / "rows.jsonl", orient="records", lines=True)
            source = flat_folder / "rows.jsonl"
        elif kind == "struct":
            columns["file"] = [{"bytes": None, "path": path} for path in columns["file"]]
            source = pa.table(columns)
        told = _refusal(open_users, source, user="person", folder=flat_folder)
        where = f"line {place + 2}" if kind == "csv" else f"position {place}"
        assert f"file at {where} is {'empty' if kind == 'blank' else 'missing (null)'}; remove it" in told
        found = open_users(source, user="person", folder=flat_folder, on_error="skip")
        assert found.num_examples == 20
        assert f"skipped 1 file: {where} (is " in found.notes[0]


def test_all_files_are_looked_for_before_one_is_decoded(
    flat_folder: Path, listed: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed["file"][20] = "none.png"
    monkeypatch.setattr(inputs, "decode", None)
    assert "position 20" in _refusal(open_users, pa.table(listed), user="person", folder=flat_folder)


def test_a_table_of_which_no_picture_is_there_says_so(flat_folder: Path, listed: dict[str, list]) -> None:
    rows = pa.table(listed)
    assert ELSEWHERE in _refusal(open_users, rows, user="person")
    told = _refusal(open_users, rows, user="person", on_error="skip")
    assert "the table: file has no readable pictures: position 0 (user0/0.png cannot be read: No such file" in told


@pytest.mark.parametrize("name", ["same", "other spelling", "symbolic link", "hard link"])
@pytest.mark.parametrize("on_error", ["refuse", "skip"])
@pytest.mark.parametrize("kind", ["text", "struct"])
def test_a_file_of_two_users_is_refused_whatever_becomes_of_bad_ones(
    name: str, on_error: str, kind: str, flat_folder: Path, listed: dict[str, list]
) -> None:
    shared, new = flat_folder / "user1" / "0.png", flat_folder / "user4" / "new.png"
    path = {"same": "user1/0.png", "other spelling": "user4/../user1/./0.png"}.get(name, "user4/new.png")
    if name == "symbolic link":
        new.symlink_to(shared)
    elif name == "hard link":
        os.link(shared, new)
    listed["file"][12] = path
    cells = listed["file"] if kind == "text" else [{"bytes": None, "path": path} for path in listed["file"]]
    rows = pa.table({"file": cells, "person": listed["person"]})
    told = _refusal(open_users, rows, user="person", folder=flat_folder, on_error=on_error)
    one, other = f"{flat_folder / 'user1/0.png'}, user 'user1'", f"{flat_folder / path}, user 'user4'"
    assert told.startswith(f"the table: file at position 12 ({other}) names the same file as position 1 ({one}): ")
    assert told.endswith("keep it for one of them, or for none")


def test_a_copy_of_a_file_is_another_file(flat_folder: Path, listed: dict[str, list]) -> None:
    shutil.copy(flat_folder / "user1" / "0.png", flat_folder / "user4" / "0.png")
    assert len(open_users(pa.table(listed), user="person", folder=flat_folder)) == 6


def test_pictures_of_two_sizes_or_modes_ask_for_one_as_in_a_folder(
    flat_folder: Path, listed: dict[str, list], picture: Callable, save: Callable
) -> None:
    rows = pa.table(listed)
    for other, told in (
        (picture(0, 9, 16), "9×16; bring all to one size"),
        (picture(0, 16, 16, 3), "is RGB; bring all"),
    ):
        save(flat_folder / "user2" / "1.png", other)
        said = _refusal(open_users, rows, user="person", folder=flat_folder)
        assert told in said
        assert told in _refusal(open_users, flat_folder)
        assert f"file at position 4 ({flat_folder / 'user2/1.png'})" in said
    assert open_users(rows, user="person", folder=flat_folder, size=8, channels=1).notes == (
        "brought 21 pictures to 8×8",
        "turned 1 picture to grey",
    )


def test_which_column_of_paths_is_the_input_is_asked_where_it_is_not_clear(
    flat_folder: Path, listed: dict[str, list]
) -> None:
    two = pa.table({"front": listed["file"], "side": listed["file"], "person": listed["person"]})
    told = _refusal(open_users, two, user="person", folder=flat_folder)
    assert "2 columns have pictures (front, side), so name the input: --input COLUMN or input=" in told
    assert open_users(two, user="person", input="side", folder=flat_folder).num_examples == 21
    urls = pa.table({"url": [f"https://x.org/{file}" for file in listed["file"]], "person": listed["person"]})
    for columns in ({}, {"input": "url"}, {"input": "url", "folder": flat_folder}):
        told = _refusal(open_users, urls, user="person", **columns)
        assert "'url' holds addresses, and pictures are read from files; download them, and name a column" in told
    both = pa.table({"url": urls["url"], **listed})
    assert open_users(both, user="person", folder=flat_folder).num_examples == 21


def test_paths_that_do_not_end_like_pictures_need_their_folder(flat_folder: Path, listed: dict[str, list]) -> None:
    rows = pa.table({**listed, "file": [path.removesuffix(".png") for path in listed["file"]]})
    assert "no column has pictures" in _refusal(open_users, rows, user="person", folder=flat_folder)
    told = _refusal(open_users, rows, user="person", input="file")
    assert "for paths of pictures, --folder FOLDER (folder=)" in told


def test_a_folder_is_refused_where_no_paths_start_at_it(flat_folder: Path, listed: dict[str, list]) -> None:
    rows = pa.table({**listed, "age": list(range(21))})
    assert f"there is no folder {flat_folder / 'none'}; name the one" in _refusal(
        open_users, rows, user="person", folder=flat_folder / "none"
    )
    file = flat_folder / listed["file"][0]
    assert f"{file} is no folder; name the one" in _refusal(open_users, rows, user="person", folder=file)
    told = f"folder='{flat_folder}' is for paths of pictures in a table, the table: age has none; leave it out"
    assert told in _refusal(open_users, rows, user="person", input="age", folder=flat_folder)
    for read in (open_users, open_examples):
        told = _refusal(read, flat_folder, folder=flat_folder)
        assert f"is for paths of pictures in a table, {flat_folder} is a folder of pictures; leave it out" in told


def test_texts_that_are_paths_are_not_tokenized(flat_folder: Path, listed: dict[str, list]) -> None:
    told = _refusal(open_examples, pa.table(listed), input="file", tokenize=len)
    assert "tokenize is for texts; the table has none in file" in told


def test_a_failing_disk_is_not_told_as_a_bad_picture(
    flat_folder: Path, listed: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "stat", fail)
    told = _refusal(open_users, pa.table(listed), user="person", input="file", on_error="skip")
    assert "reading user0/0.png failed: Input/output error; run the same command again later" in told


def test_a_picture_that_is_gone_between_the_look_and_its_turn_is_named(
    flat_folder: Path, listed: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = inputs.look_at_files

    def gone(*given: Any, **how: Any) -> Any:
        looked = look(*given, **how)
        (flat_folder / "user2" / "0.png").unlink()
        return looked

    monkeypatch.setattr(inputs, "look_at_files", gone)
    told = _refusal(open_users, pa.table(listed), user="person", folder=flat_folder)
    assert f"file at position 3 ({flat_folder / 'user2/0.png'}) cannot be read: No such file" in told
