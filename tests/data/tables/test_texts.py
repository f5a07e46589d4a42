"""Texts become ids by a rule that is given, and ids that are there already pass if they are equally many."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import Tokenizer, open_examples, open_users

NOTES = ["It rains.", "no", "it is late", "NO no"]
WHO = ["al", "bo", "al", "cy"]


def _refusal(source: Any, **columns: Any) -> str:
    with pytest.raises(InputError) as refusal:
        open_examples(source, **columns)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("kind", [pa.table, pl.DataFrame, datasets.Dataset.from_dict])
def test_texts_become_the_ids_of_the_tokenizer(kind: Any) -> None:
    tokenizer = Tokenizer(vocabulary=500, length=5)
    table = kind({"note": NOTES, "y": [0, 1, 0, 1]})
    dataset = open_examples(table, input="note", label="y", tokenize=tokenizer)
    assert (dataset.inputs[0][:] == tokenizer.ids(NOTES)).all()
    assert dataset.vocabulary_sizes == (500,)


def test_a_function_tokenizes_and_the_statement_says_what_it_is_taken_to_be(tmp_path: Path) -> None:
    table = pa.table({"note": NOTES, "who": WHO})

    def ids(texts: list[str]) -> list[list[int]]:
        return [[len(text), ord(text[0])] for text in texts]

    for store in (None, tmp_path / "store"):
        people = open_users(table, input="note", user="who", tokenize=ids, store=store)
        assert people.examples(0)[0].tolist() == [[9, ord("I")], [10, ord("i")]]
        assert people.assumptions[0] == Assumption("tokenizer_public")
    assert open_users(tmp_path / "store").assumptions == people.assumptions
    assert open_examples(table, input="note", tokenize=ids).assumptions == people.assumptions


def test_what_is_no_list_of_ids_a_text_is_refused() -> None:
    table = pa.table({"note": NOTES, "x": [1, 2, 3, 4]})
    for rule, told in [
        (
            lambda texts: [[1] * len(text) for text in texts],
            "gave 9 ids at position 0 and 2 at position 1; pad",
        ),
        (lambda texts: {"input_ids": texts}, "tokenize gave 1 lists of ids for 4 texts"),
        (lambda texts: [1.5] * 4, "tokenize must give whole numbers [texts, length], got float64 (4,)"),
        (lambda texts: [["a"]] * 4, "tokenize must give whole numbers"),
        (7, "tokenize must be a data.Tokenizer or a function from texts to ids, got int"),
    ]:
        assert told in _refusal(table, input="note", tokenize=rule)
    assert "is text; give tokenize=" in _refusal(table, input="note")
    assert "tokenize is for texts; the table has none in x" in _refusal(table, input="x", tokenize=len)
    missing = pa.table({"note": ["a", None]})
    assert "note is missing (null) at position 1" in _refusal(missing, input="note", tokenize=len)


def test_ids_of_hugging_face_pass_if_they_are_equally_many() -> None:
    rows = {"input_ids": [[5, 6, 0], [7, 0, 0]], "attention_mask": [[1, 1, 0], [1, 0, 0]], "label": ["b", "a"]}
    dataset = open_examples(
        datasets.Dataset.from_dict(rows), input=("input_ids", "attention_mask"), label="label", vocabulary_sizes=(9,)
    )
    assert [one[:].tolist() for one in dataset.inputs] == [rows["input_ids"], rows["attention_mask"]]
    assert dataset.targets.tolist() == [1, 0]
    ragged = datasets.Dataset.from_dict({"input_ids": [[5, 6, 0], [7]]})
    told = _refusal(ragged, input="input_ids")
    assert "input_ids at position 1 has 1 values, those before it have 3; pad or cut them to one length" in told


@pytest.mark.parametrize("in_file", [False, True])
def test_tensors_of_one_shape_keep_it(in_file: bool, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((5, 2, 3, 4)).astype(np.float32)
    table = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values), "y": np.arange(5.0)})
    turned = pa.fixed_shape_tensor(pa.float32(), (2, 3), permutation=[1, 0])
    cells = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(30, dtype=np.float32)), 6)
    table = table.append_column("turned", pa.ExtensionArray.from_storage(turned, cells))
    source: Any = table.slice(1)
    if in_file:
        pq.write_table(source, tmp_path / "x.parquet")
        source = tmp_path / "x.parquet"
    dataset = open_examples(source, input=("x", "turned"), label="y")
    assert (dataset.inputs[0][:] == values[1:]).all()
    assert (dataset.inputs[1][:] == np.arange(30).reshape(5, 2, 3).transpose(0, 2, 1)[1:]).all()


def test_a_tensor_that_lacks_a_value_is_refused() -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2,))
    for cells, at in (([1.0, 2.0, 3.0, None], 1), ([1.0, None, 3.0, 4.0], 0)):
        storage = pa.FixedSizeListArray.from_arrays(pa.array(cells, pa.float32()), 2)
        table = pa.table({"x": pa.ExtensionArray.from_storage(kind, storage)})
        assert f"x is missing (null) at position {at}" in _refusal(table, input="x")


def test_a_csv_file_is_a_table_whose_names_keep_their_zeros(tmp_path: Path) -> None:
    lines = ['who,age,dose,note,code\n007,31,0.5,"a, b",1\n7,44,2,c,01.5\n007,5,1e-3,d,2\n']
    (tmp_path / "rows.csv").write_text(lines[0])
    (tmp_path / "rows.tsv").write_text(lines[0].replace('"a, b"', "a b").replace(",", "\t"))
    for name in ("rows.csv", "rows.tsv"):
        people = open_users(tmp_path / name, user="who", input=("age", "dose"), label="note")
        assert list(people.user_ids) == ["007", "7"]
        assert people.examples(0)[0].tolist() == [[31.0, 0.5], [5.0, 0.001]]
        assert list(people.label_names)[1:] == ["c", "d"]
    assert "code" in _refusal(tmp_path / "rows.csv", input="code")
    (tmp_path / "rows.csv").write_text("who,age\nal,3\n,4\n")
    with pytest.raises(InputError, match=r"the user 'who' is missing \(null, NaN, empty or blank\) at line 3"):
        open_users(tmp_path / "rows.csv", user="who", input="age")
    (tmp_path / "rows.csv").write_text("who,age\nal\n")
    assert "line 2 has 1 columns, the first row has 2" in _refusal(tmp_path / "rows.csv", input="age")
    (tmp_path / "rows.csv").write_text("who,age\n")
    assert "has no rows" in _refusal(tmp_path / "rows.csv", input="age")


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_row_of_a_blank_user_is_refused(blank: str) -> None:
    with pytest.raises(InputError, match=r"the user 'who' is missing \(null, NaN, empty or blank\) at position 2"):
        open_users(pa.table({"x": [1, 2, 3], "who": ["al", "bo", blank]}), user="who", input="x")
