"""One table gives one data set, wherever it is kept, and each row goes to the user that its column names."""

import json
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

from sfumato._check import InputError
from sfumato.data import ExampleDataset, UserDataset, open_examples, open_users
from sfumato.data import gather as load
from sfumato.data.domain import NAMES

KINDS = ("pyarrow", "pandas", "polars", "datasets", "datasets-chosen", "parquet", "parquet-folder")


def _kept_as(kind: str, columns: dict[str, list], folder: Path) -> Any:
    table = pa.table(columns)
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "polars":
        return pl.from_arrow(table)
    if kind == "datasets":
        return datasets.Dataset(table)
    if kind == "datasets-chosen":  # rows are found through a list of indices
        twice = datasets.Dataset(pa.concat_tables([table.slice(0, 2), table]))
        return twice.select(range(2, len(twice)))
    if kind == "parquet":
        pq.write_table(table, folder / "rows.parquet", row_group_size=2)
        return folder / "rows.parquet"
    if kind == "parquet-folder":
        pq.write_table(table.slice(0, 5), folder / "part-0.parquet")
        pq.write_table(table.slice(5), folder / "part-1.parquet")
        return str(folder)
    return table


def _content(dataset: UserDataset) -> dict[str, list[tuple[bytes, str]]]:
    """Each user's inputs and names of labels, in their order."""
    found = {}
    for user, name in enumerate(dataset.user_ids):
        rows, labels = dataset.examples(user)
        found[name] = [(row.tobytes(), dataset.label_names[label]) for row, label in zip(rows, labels, strict=True)]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", [False, True])
def test_each_user_has_the_pictures_of_their_rows(
    kind: str, stored: bool, album: dict[str, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_ROWS", 4)  # several blocks
    pixels = album.pop("pixels")
    store = tmp_path / "store" if stored else None
    dataset = open_users(_kept_as(kind, album, tmp_path), user="person", label="mood", store=store)
    expected: dict[str, list[tuple[bytes, str]]] = {}
    for person, mood, one in zip(album["person"], album["mood"], pixels, strict=True):
        expected.setdefault(person, []).append((one.tobytes(), mood))
    assert _content(dataset) == expected
    assert list(dataset.user_ids) == sorted(expected)
    assert dataset.input_shape == (8, 8, 3)
    if stored:
        assert _content(open_users(tmp_path / "store", verify=True)) == expected
        assert [path.name for path in (tmp_path).glob("*tmp*")] == []


def test_without_a_label_each_user_is_a_class(album: dict[str, list]) -> None:
    dataset = open_users(pa.table({name: album[name] for name in ("image", "person")}), user="person")
    assert list(dataset.label_names) == list(dataset.user_ids) == ["al", "bo", "cy", "dee"]
    assert [dataset.examples(user)[1].tolist() for user in range(4)] == [[0] * 3, [1] * 2, [2] * 3, [3]]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_stand_alone_keep_their_order(kind: str, album: dict[str, list], tmp_path: Path) -> None:
    pixels = album.pop("pixels")
    dataset = open_examples(_kept_as(kind, album, tmp_path), label="mood")
    assert isinstance(dataset, ExampleDataset)
    assert (dataset.inputs[0][:] == np.stack(pixels)).all()
    assert [dataset.label_names[label] for label in dataset.targets] == album["mood"]
    assert dataset.found == (NAMES,)


@pytest.mark.parametrize("kind", [*KINDS, "lines"])
def test_vectors_and_numbers_are_the_same_from_everywhere(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "x": rng.random((7, 3)).tolist(),
        "board": rng.integers(0, 9, (7, 2, 2)).tolist(),
        "age": rng.integers(0, 90, 7).tolist(),
        "dose": rng.random(7).tolist(),
        "who": [30, 4, 30, 100, 4, 4, 30],
    }
    if kind == "lines":
        source: Any = tmp_path / "rows.jsonl"
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        source = _kept_as(kind, columns, tmp_path)
    dataset = open_users(source, input="x", label="age", user="who")
    assert list(dataset.user_ids) == ["4", "30", "100"]  # in the order of numbers
    for user, rows in enumerate([[1, 4, 5], [0, 2, 6], [3]]):
        found, labels = dataset.examples(user)
        np.testing.assert_array_equal(found, np.array(columns["x"])[rows])
        assert labels.tolist() == np.array(columns["age"])[rows].tolist()
    several = open_examples(source, input=("x", "board"), label="dose")
    np.testing.assert_array_equal(several.inputs[0][:], columns["x"])
    np.testing.assert_array_equal(several.inputs[1][:], columns["board"])
    np.testing.assert_allclose(several.targets, columns["dose"], rtol=1e-6)
    joined = open_examples(source, input=("age", "dose"), label="x")
    np.testing.assert_array_equal(joined.inputs[0][:], np.stack([columns["age"], columns["dose"]], 1))
    assert joined.columns == (("age", "dose"),)
    assert joined.targets.shape == (7, 3)


def test_names_of_classes_that_hugging_face_keeps_are_taken(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "x": datasets.Array2D((2, 2), "float32"),
            "label": datasets.ClassLabel(names=["cat", "dog", "eel"]),
            "who": datasets.ClassLabel(names=["zoe", "al"]),
        }
    )
    rows = {"x": [[[1.0, 2.0], [3.0, 4.0]]] * 3, "label": [1, 0, 1], "who": [0, 1, 0]}
    made = datasets.Dataset.from_dict(rows, features)
    made.to_parquet(tmp_path / "rows.parquet")
    for source in (made, tmp_path / "rows.parquet"):
        dataset = open_users(source, input="x", label="label", user="who")
        assert (list(dataset.label_names), dataset.num_classes) == (["cat", "dog", "eel"], 3)
        assert dict(zip(dataset.user_ids, dataset.sizes.tolist(), strict=True)) == {"al": 1, "zoe": 2}
        assert dataset.examples(0)[0].tolist() == [[[1.0, 2.0], [3.0, 4.0]]]
        assert [dataset.label_names[one] for one in dataset.examples(0)[1]] == ["cat"]
        assert list(open_examples(source, input="x", label="label").label_names) == ["cat", "dog", "eel"]


def test_pictures_are_brought_to_one_size_and_mode_where_it_is_asked_for(
    album: dict[str, list], picture: Callable, encoded: Callable, tmp_path: Path
) -> None:
    album["image"][4] = {"bytes": encoded(picture(1, 16, 12)), "path": None}
    picture(5)
    table = pa.table({name: album[name] for name in ("image", "person")})
    dataset = open_users(table, user="person", size=6, channels=1)
    assert dataset.input_shape == (6, 6, 1)
    assert dataset.notes == ("brought 9 pictures to 6×6", "turned 8 pictures to grey")


def test_a_picture_that_is_kept_by_its_path_is_read(album: dict[str, list], tmp_path: Path) -> None:
    files = []
    for i, one in enumerate(album["image"]):
        files.append({"bytes": None, "path": str(tmp_path / f"{i}.png")})
        (tmp_path / f"{i}.png").write_bytes(one["bytes"])
    dataset = open_examples(pa.table({"image": files}))
    assert (dataset.inputs[0][:] == np.stack(album["pixels"])).all()


@pytest.mark.parametrize("stored", [False, True])
def test_a_row_whose_picture_is_broken_can_be_skipped(
    stored: bool, album: dict[str, list], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_ROWS", 2)
    album["image"][0] = {"bytes": b"no picture", "path": None}
    album["image"][4] = None  # dee's only one
    table = pa.table({name: album[name] for name in ("image", "person", "mood")})
    store = tmp_path / "store" if stored else None
    dataset = open_users(table, user="person", label="mood", on_error="skip", store=store)
    expected: dict[str, list[tuple[bytes, str]]] = {}
    for i in (1, 2, 3, 5, 6, 7, 8):
        expected.setdefault(album["person"][i], []).append((album["pixels"][i].tobytes(), album["mood"][i]))
    assert _content(dataset) == expected
    told = "skipped 2 files: position 0 (is not a picture), position 4 (is missing (null))"
    assert dataset.notes == (told, "skipped 1 user without readable pictures: dee")


def test_progress_ends_at_the_last_row(album: dict[str, list]) -> None:
    seen: list[tuple[int, int]] = []
    open_examples(pa.table({"image": album["image"]}), progress=lambda *told: seen.append(told))
    assert seen[-1] == (9, 9)


def test_users_whose_names_look_alike_are_counted_in_the_summary() -> None:
    def said(*users: str) -> str:
        table = pa.table({"user": list(users), "x": [float(i) for i in range(len(users))]})
        return "\n".join(open_users(table, user="user", input="x").summary())

    assert "differ only" not in said("ann", "bo", "7", "8")
    for one, other in [("Ann", "ann"), ("ann", "ann "), ("ann", "\u200bann"), ("\u00e9ve", "e\u0301ve"), ("007", "7")]:
        told = said("bo", one, other)
        assert "2 of 3 users have names that differ only" in told
        assert ascii(one) in told
        assert ascii(other) in told
        assert told.isascii()


def test_a_parquet_file_under_two_names_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": ["ann", "bo"], "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"b\.parquet and .*a\.parquet are the same file"):
        open_users(tmp_path, user="user", input="x")
