"""A table of paths gives what a folder of the same pictures gives, and what a table of their bytes does."""

import json
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

from sfumato.data import UserDataset, open_examples, open_users, order_of_content, split_examples
from sfumato.data import gather as inputs

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


def test_a_table_that_has_pictures_beside_their_paths_gives_the_pictures(album: dict[str, list]) -> None:
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


def test_a_file_that_one_user_names_twice_counts_twice_and_is_told(flat_folder: Path, listed: dict[str, list]) -> None:
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
