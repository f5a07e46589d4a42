"""Tables of paths: which file a cell names, and that none is named for two people."""

import errno
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sfumato import models
from sfumato._check import InputError
from sfumato.data import UserDataset, open_examples, open_users, order_of_content, split_examples
from sfumato.data import gather as inputs
from sfumato.federated import FedEmb

# A table of paths gives what a folder of the same pictures gives, and what a table of their bytes does.

KINDS = ("csv", "csv.gz", "tsv", "jsonl", "parquet", "parquet-folder", "tar")


def _kept_as(kind: str, columns: dict[str, list], folder: Path) -> Path:
    """A table in a file of this folder."""
    frame, file = pd.DataFrame(columns), folder / f"rows.{kind}"
    if kind.startswith(("csv", "tsv")):
        frame.to_csv(file, sep="\t" if kind == "tsv" else ",", index=False)
    elif kind == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    elif kind == "parquet":
        frame.to_parquet(file)
    elif kind == "parquet-folder":
        frame[:4].to_parquet(folder / "part-0.parquet")
        frame[4:].to_parquet(folder / "part-1.parquet")
        return folder
    else:
        with tarfile.open(file, "w") as tar:
            for i, row in enumerate(frame.to_dict("records")):
                (folder / "row").write_text(json.dumps(row))
                tar.add(folder / "row", f"{i:04d}.json")
        (folder / "row").unlink()
    return file


def _same(one: UserDataset, other: UserDataset) -> None:
    assert list(one.user_ids) == list(other.user_ids)
    assert list(one.label_names) == list(other.label_names)
    for user in range(len(other)):
        for ours, theirs in zip(one.examples(user), other.examples(user), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_paths_start_at_the_folder_of_the_tables_file(
    kind: str, flat_folder: Path, listed: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_ROWS", 4)  # several blocks
    before = "json." if kind == "tar" else ""
    expected = open_users(flat_folder)
    table = _kept_as(kind, listed, flat_folder)
    found = open_users(table, user=f"{before}person")
    _same(found, expected)
    assert found.fingerprint() == expected.fingerprint()  # a run that knows one knows the other
    if kind != "parquet-folder":
        _same(open_users(table, user=f"{before}person", input=f"{before}file"), expected)


@pytest.mark.parametrize("kind", ["pandas", "pandas-paths", "polars", "pyarrow", "datasets", "datasets-images"])
@pytest.mark.parametrize("given", ["folder", "working directory", "whole"])
def test_paths_in_memory_start_at_the_folder_that_is_named_or_at_the_working_directory(
    kind: str, given: str, flat_folder: Path, listed: dict[str, list], monkeypatch: pytest.MonkeyPatch
) -> None:
    if given == "working directory":
        monkeypatch.chdir(flat_folder)
    if given == "whole":
        listed = {**listed, "file": [str(flat_folder / file) for file in listed["file"]]}
    source: Any = pa.table(listed)
    if kind.startswith("pandas"):
        source = pd.DataFrame(listed)
        source["file"] = source["file"].map(Path if kind == "pandas-paths" else str)
    elif kind == "polars":
        source = pl.from_arrow(source)
    elif kind.startswith("datasets"):
        source = datasets.Dataset(source)
        if kind == "datasets-images":
            source = source.cast_column("file", datasets.Image())
    found = open_users(source, user="person", folder=flat_folder if given == "folder" else None)
    _same(found, open_users(flat_folder))


def test_pictures_turned_resized_and_of_any_mode_are_those_of_a_folder_and_of_their_bytes(
    tmp_path: Path, picture: Callable, save: Callable
) -> None:
    root = tmp_path / "photos"
    save(root / "al" / "grey.png", picture(0, 9, 12))
    save(root / "al" / "wide.jpg", picture(1, 8, 30, 3))
    save(root / "bo" / "clear.png", picture(2, 8, 8, 4))
    (root / "bo" / "lying.jpg").parent.mkdir(exist_ok=True)
    lying = Image.Exif()
    lying[0x0112] = 6
    Image.fromarray(picture(3, 20, 10, 3)).save(root / "bo" / "lying.jpg", exif=lying)
    files = sorted(root.glob("*/*"))
    paths = pa.table({"file": [str(file) for file in files], "person": [file.parent.name for file in files]})
    pq.write_table(
        pa.table({"image": [file.read_bytes() for file in files], "person": paths["person"]}),
        tmp_path / "bytes.parquet",
    )
    for fit in ({"size": 6, "channels": 3}, {"size": (5, 7), "channels": 1}):
        expected = open_users(root, **fit)
        for source in (paths, tmp_path / "bytes.parquet"):
            found = open_users(source, user="person", **fit)
            _same(found, expected)
            assert found.notes == expected.notes
            assert found.notes


def test_a_store_holds_what_a_folders_store_holds(
    flat_folder: Path, listed: dict[str, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_ROWS", 4)
    mixed = pd.DataFrame(listed).sample(frac=1, random_state=0)
    open_users(mixed, user="person", folder=flat_folder, store=tmp_path / "store")
    kept = mixed.sort_values("person", kind="stable").reset_index(drop=True)
    packed, folder = open_users(tmp_path / "store", verify=True), open_users(flat_folder, store=tmp_path / "other")
    assert list(packed.user_ids) == list(folder.user_ids)
    for user, name in enumerate(folder.user_ids):
        places = [int(Path(file).stem) for file in kept["file"][kept["person"] == name]]
        assert (packed.examples(user)[0] == folder.examples(user)[0][places]).all()
    assert [path.name for path in tmp_path.glob("*tmp*")] == []


def test_each_row_has_its_label_and_users_keep_the_order_of_their_rows(
    flat_folder: Path, listed: dict[str, list]
) -> None:
    rows = pd.DataFrame(listed).sample(frac=1, random_state=1)
    rows["mood"] = [("glad", "sad", "shy")[i % 3] for i in range(len(rows))]
    found = open_users(rows, user="person", label="mood", folder=flat_folder)
    for user, name in enumerate(found.user_ids):
        own = rows[rows["person"] == name]
        pictures, labels = found.examples(user)
        assert [found.label_names[label] for label in labels] == own["mood"].tolist()
        for one, file in zip(pictures, own["file"], strict=True):
            assert (one[..., 0] == np.asarray(Image.open(flat_folder / file))).all()


def test_rows_that_stand_alone_are_the_pictures_of_class_folders(flat_folder: Path, listed: dict[str, list]) -> None:
    pd.DataFrame(listed).to_csv(flat_folder / "rows.csv", index=False)
    expected = open_examples(flat_folder)
    for found in (
        open_examples(flat_folder / "rows.csv", label="person"),
        open_examples(flat_folder / "rows.csv", label="person", input="file"),
        open_examples(flat_folder / "rows.csv", label="person", folder=flat_folder),
    ):
        assert found.fingerprint() == expected.fingerprint()
        assert list(found.label_names) == list(expected.label_names)
        assert (found.examples(range(21))[0][0] == expected.examples(range(21))[0][0]).all()
        assert (order_of_content(found) == order_of_content(expected)).all()  # as private labels need it
        parts = split_examples(found, test=0.3)
        assert parts.places.tolist() == split_examples(expected, test=0.3).places.tolist()
        ids = [said.id for said in parts.train.assumptions]
        assert "divided_by_position" not in ids  # each picture has a name of its own
    assert open_examples(flat_folder / "rows.csv", targets=False, input="file").inputs[0].shape == (21, 16, 16, 1)


def test_pictures_by_their_paths_and_numbers_are_two_inputs(flat_folder: Path, listed: dict[str, list]) -> None:
    table = pa.table({**listed, "age": list(range(21)), "note": ["so so"] * 21})
    found = open_examples(table, input=("file", "age"), folder=flat_folder, named=True)
    assert (found.input_names, found.input_shapes) == (("file", "age"), ((16, 16, 1), (1,)))
    texts = open_examples(
        table, input=("file", "note"), folder=flat_folder, tokenize=lambda texts: [[1, 2] for _ in texts]
    )
    assert texts.input_shapes == ((16, 16, 1), (2,))


def test_a_table_that_has_pictures_next_to_their_paths_gives_the_pictures(album: dict[str, list]) -> None:
    table = pa.table({"image": album["image"], "file": [f"{i}.png" for i in range(9)], "person": album["person"]})
    assert open_users(table, user="person").input_shape == (8, 8, 3)  # no file is there


@pytest.mark.parametrize("write", [lambda path: path.replace("/", "\\"), lambda path: path.removesuffix(".png")])
def test_other_spellings_of_a_path_are_read(write: Callable, flat_folder: Path, listed: dict[str, list]) -> None:
    rows = pa.table({**listed, "file": [write(path) for path in listed["file"]]})
    _same(open_users(rows, user="person", input="file", folder=flat_folder), open_users(flat_folder))


def test_cells_of_bytes_and_of_paths_go_together(album: dict[str, list], tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(album["image"][0]["bytes"])
    (tmp_path / "4.png").write_bytes(album["image"][4]["bytes"])
    for places in ((0, 4), (4,)):  # the first cell is a path, or has bytes
        cells = [
            {"bytes": None if i in places else one["bytes"], "path": one["path"]}
            for i, one in enumerate(album["image"])
        ]
        pq.write_table(pa.table({"image": cells}), tmp_path / "rows.parquet")
        found = open_examples(tmp_path / "rows.parquet", input="image")
        assert (found.inputs[0][:] == np.stack(album["pixels"])).all()


def test_a_picture_that_changes_on_the_disk_changes_the_fingerprint(
    flat_folder: Path, listed: dict[str, list], picture: Callable, save: Callable
) -> None:
    rows = pa.table(listed)
    held = open_users(rows, user="person", folder=flat_folder)
    save(flat_folder / "user5" / "3.png", picture(12345))
    assert open_users(rows, user="person", folder=flat_folder).fingerprint() != held.fingerprint()


def test_progress_ends_at_the_last_row(flat_folder: Path, listed: dict[str, list]) -> None:
    seen: list[tuple[int, int]] = []
    open_users(pa.table(listed), user="person", folder=flat_folder, progress=lambda *told: seen.append(told))
    assert seen[-1] == (21, 21)
    assert seen == sorted(seen)


def test_a_file_that_one_user_names_twice_counts_twice_and_is_reported(
    flat_folder: Path, listed: dict[str, list]
) -> None:
    (flat_folder / "user3" / "again.png").symlink_to(flat_folder / "user3" / "1.png")
    files = [*listed["file"], "user3/again.png", "user3/./0.png"]
    people = [*listed["person"], "user3", "user3"]
    found = open_users(pa.table({"file": files, "person": people}), user="person", folder=flat_folder)
    assert found.sizes.tolist() == [1, 2, 3, 6, 5, 6]
    told = "2 rows name a file that a row before names, position 21 that of position 7 for example"
    assert found.notes == (f"{told}: each counts as a picture of that user",)
    assert found.notes[0] in found.summary()
    alone = open_examples(pa.table({"file": files}), folder=flat_folder)
    assert alone.notes == (f"{told}: each is an example of its own",)


# What a cell of paths can be wrong in is one line with its row, its path and what to do, or is skipped and counted.

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


def test_a_failing_disk_is_not_reported_as_a_bad_picture(
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


# Labeled Faces in the Wild as people in one line, from Hugging Face and from the path, and trained on.


@pytest.mark.slow
@pytest.mark.shared
def test_faces_of_a_parquet_file_are_people_to_train_on(shared: Path, tmp_path: Path) -> None:
    file = shared / "lfw_112.parquet"
    rows = datasets.Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))

    people = open_users(file, user="person", size=28)
    first = open_users(rows.select(range(2000)), user="person", size=28)  # decoding takes nearly all of the time

    assert (len(people), people.num_examples, people.input_shape) == (5749, 13233, (28, 28, 3))
    place = {name: user for user, name in enumerate(people.user_ids)}
    for user, name in enumerate(list(first.user_ids)[:-1]):  # the last one may go on behind row 2000
        assert (first.examples(user)[0] == people.examples(place[name])[0]).all()
    held = rows.select_columns("person").to_pandas()["person"].value_counts()
    assert people.sizes.tolist() == [held[name] for name in people.user_ids]
    some = people.subset(np.flatnonzero(people.sizes == 5)[:12]).compact_labels()
    plan = FedEmb(
        rounds=2,
        cohort={"size": 2, "users_per_client": 3},
        noise=1.0,
        client={"epochs": 1},
        seed=1,
    )
    result = plan.fit(models.lenet(embedding_dim=8, in_channels=3), some, out=tmp_path / "run")
    assert result.finished
    assert (result.statement.unit, len(some)) == ("user", 12)
