"""What a table can be wrong in is refused in one line that says where, and nothing is left on the disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato.data import open_examples, open_users, to_tensor

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
WHO = ["al", "bo", "al"]


def _refusal(source: Any, read: Callable = open_users, **columns: Any) -> str:
    with pytest.raises(InputError) as refusal:
        read(source, **columns)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    table = pa.table({"x": X, "person": WHO, "mood": [0, 1, 0]})
    for column, role in (("persons", "user"), ("moo", "label"), ("y", "input")):
        columns = {"input": "x", "user": "person", "label": "mood", role: column}
        told = _refusal(table, **columns)
        assert f"no column {column!r} for {role}=" in told
        assert told.endswith("it has x, person, mood")
    assert "did you mean person?" in _refusal(table, input="x", user="persons")
    twice = pa.Table.from_arrays([pa.array(X), pa.array(WHO), pa.array(WHO)], names=["x", "who", "who"])
    assert "the column 'who' twice" in _refusal(twice, input="x", user="who")


def test_labels_and_users_cannot_be_swapped_by_their_places() -> None:
    with pytest.raises(TypeError):
        open_users(pa.table({"x": X, "person": WHO}), "person")  # type: ignore[misc]


@pytest.mark.parametrize("people", [["al", None, "bo"], [3, None, 4], [3.0, float("nan"), 4.0]])
@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame, datasets.Dataset.from_dict])
def test_a_row_of_nobody_is_refused(kind: Callable, people: list) -> None:
    told = _refusal(kind({"x": X, "who": people}), input="x", user="who")
    assert "the user 'who' is missing (" in told
    assert "at position 1; fill it in or drop the row" in told


def test_users_are_whole_numbers_or_text() -> None:
    assert "must be whole numbers or text, got double" in _refusal(
        pa.table({"x": X, "who": [1.5, 2.5, 3.5]}), input="x", user="who"
    )


def test_one_user_alone_is_read_and_told() -> None:
    dataset = open_users(pa.table({"x": X, "who": ["al"] * 3}), input="x", user="who")
    assert "only one user: no other user can hide this one's contribution" in dataset.summary()


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([[1.0, 2.0], [3.0], [5.0, 6.0]], "x at position 1 has 1 values, those before it have 2"),
        ([[1.0, 2.0], None, [5.0, 6.0]], r"x is missing (null) at position 1"),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, None]], r"x is missing (null) at position 2"),
        ([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], None]], r"x is missing (null) at position 2"),
        ([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0, 7.0]]], "x at position 2 has 2 values, those before it have 1"),
        ([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0]]], "x at position 2 has 1 values, those before it have 2"),
        ([[], [], []], "x at position 0 is an empty list"),
        ([1.0, 2.0, None], r"x is missing (null) at position 2"),
        ([["a"], ["b"], ["c"]], "x must be numbers or lists of them, got string"),
        (["a", "b", "c"], "input='x' is text; give tokenize=data.Tokenizer("),
    ],
)
def test_lists_are_of_one_shape_and_whole(cells: list, told: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": cells, "who": WHO}), tmp_path / "rows.parquet")
    for source in (pa.table({"x": cells, "who": WHO}), tmp_path / "rows.parquet"):
        assert told in _refusal(source, input="x", user="who")
        if not (isinstance(source, Path) and "tokenize" in told):  # texts of a file are hashed
            assert told in _refusal(source, open_examples, input="x")


def test_lists_that_differ_between_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.data import gather as load

    monkeypatch.setattr(load, "_ROWS", 2)
    told = _refusal(pa.table({"x": [[1.0], [2.0], [3.0, 4.0]], "who": WHO}), input="x", user="who")
    assert "x at position 2 has 2 values, those before it have 1" in told


@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame])
def test_nan_among_inputs_passes_and_is_left_to_the_training(kind: Callable) -> None:
    cells = [[1.0, float("nan")], [3.0, 4.0], [5.0, 6.0]]
    dataset = open_users(kind({"x": cells, "who": WHO, "y": [1.0, float("nan"), 0.0]}), input="x", user="who")
    assert np.isnan(dataset.examples(0)[0][0, 1])
    assert to_tensor(dataset.examples(0)[0]).isnan().sum() == 1
    assert np.isnan(open_examples(kind({"y": [1.0, float("nan"), 0.0]}), input="y").inputs[0][1, 0])
    told = _refusal(kind({"x": X, "y": [1.0, float("nan"), 0.0]}), open_examples, input="x", label="y")
    assert "targets must be finite in single precision, got nan in example 1" in told


def test_labels_are_classes() -> None:
    table = {"x": X, "who": WHO}
    made = open_users(pa.table({**table, "y": ["cat", "ant", "cat"]}), input="x", user="who", label="y")
    assert list(made.label_names) == ["ant", "cat"]
    assert "the label 'y' is missing (null) at position 1" in _refusal(
        pa.table({**table, "y": ["cat", None, "ant"]}), input="x", user="who", label="y"
    )
    assert "the label 'y' must be finite in single precision, got nan in example 1" in _refusal(
        pa.table({**table, "y": [0.5, float("nan"), 0.0]}), input="x", user="who", label="y"
    )
    assert "labels must be >= 0, got -1" in _refusal(
        pa.table({**table, "y": [0, -1, 0]}), input="x", user="who", label="y"
    )


def test_a_damaged_picture_is_named_by_its_row(album: dict[str, list], tmp_path: Path) -> None:
    album["image"][5] = {"bytes": album["image"][5]["bytes"][:60], "path": "5.png"}
    pq.write_table(pa.table({name: album[name] for name in ("image", "person")}), tmp_path / "rows.parquet")
    told = _refusal(tmp_path / "rows.parquet", user="person", store=tmp_path / "store")
    assert told.startswith(f"{tmp_path / 'rows.parquet'}: image at position 5 is broken")
    assert told.endswith("packing goes on from here when it is run again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "store.rows.partial"]


def test_pictures_of_two_sizes_or_modes_ask_for_one(
    album: dict[str, list], picture: Callable, encoded: Callable
) -> None:
    for other, told in (
        (picture(0, 9, 8, 3), "is 9×8; bring all to one size"),
        (picture(0, 8, 8), "is grey; bring all to one of the two"),
    ):
        cells = [*album["image"][:3], {"bytes": encoded(other), "path": None}]
        said = _refusal(pa.table({"image": cells}), open_examples)
        assert "image at position 0 is " in said
        assert f"image at position 3 {told}" in said


def test_which_column_is_the_input_is_asked_where_it_is_not_clear(album: dict[str, list]) -> None:
    two = pa.table({"a": album["image"], "b": album["image"], "person": album["person"]})
    several = "2 columns have pictures (a, b), so name the input: --input COLUMN or input=, of a, b, person"
    assert several in _refusal(two, user="person")
    none = pa.table({"x": X, "who": WHO})
    said = _refusal(none, user="who")
    assert "no column has pictures, so name the input" in said
    assert "several columns by a schema (--schema FILE)" in said
    only = pa.table({"a": album["image"]})
    assert "the pictures of a are the user or the label, and no other column has any" in _refusal(only, user="a")
    assert "a user's examples have one input, got a, b" in _refusal(two, input=("a", "b"), user="person")
    assert "size: for pictures only" in _refusal(none, input="x", user="who", size=8)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "lines.jsonl").write_text('{"x": [1, 2]}\n{"x": [1, \n')
    (tmp_path / "rows.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"x": X[:0], "who": WHO[:0]}), tmp_path / "none.parquet")
    rows = datasets.Dataset.from_dict({"x": X, "who": WHO})
    for source, told in [
        (tmp_path / "absent.parquet", "there is nothing at"),
        (tmp_path / "cut.parquet", "cannot be read as Parquet"),
        (tmp_path / "lines.jsonl", "cannot be read as JSON lines"),
        (tmp_path / "rows.txt", "is none of: "),
        (tmp_path / "empty", "is none of: "),
        (tmp_path / "none.parquet", "has no rows"),
        (
            datasets.DatasetDict({"train": rows, "test": rows}),
            r"must be one table, got a DatasetDict of train, test; give one",
        ),
        (rows.to_iterable_dataset(), "load it without streaming"),
        ([X, WHO], "source must be a datasets.Dataset"),
    ]:
        assert told in _refusal(source, input="x", user="who"), source


def test_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": X, "who": WHO}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": X, "who": [1, 2, 3]}), tmp_path / "b.parquet")
    assert "has other columns or types than" in _refusal(tmp_path, input="x", user="who")


def test_a_store_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").write_text("")
    assert "is not empty" in _refusal(pa.table({"x": X, "who": WHO}), input="x", user="who", store=tmp_path / "store")
