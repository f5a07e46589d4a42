"""Delimited text: cell by cell as it is written, by the mark that divides it, and under a schema."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import ehr_from_events, ehr_from_tables, open_examples, open_users, read_schema
from sfumato.data.domain import NAMES
from sfumato.data.readers.delimited import Delimited, _Quotes
from sfumato.data.schema import column
from sfumato.data.text import hashed_id
from sfumato.labels.files import open_label_file
from slow import by_profile

# Delimited text is read cell by cell as it is written, or refused in one line that names the row.

CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=6)
CELLS |= st.text(' "a,\n', max_size=6)


def _rows(file: Delimited) -> list[list[str]]:
    blocks = file.blocks(range(len(file.first)), 3, header=False, as_written=True)
    return [
        list(row) for block in blocks for row in zip(*(column.to_pylist() for column in block.columns), strict=True)
    ]


def _read_all(path: Path) -> None:
    table = Delimited(path).records()
    list(table.read(list(table.names), 10))


@settings(deadline=None)
@example([["a", ' "b" ', ' "']], False)
@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8), st.booleans())
def test_what_the_csv_module_writes_is_read_cell_by_cell(rows: list[list[str]], mark: bool) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows(rows)
    content = text.getvalue().encode("utf-8-sig" if mark else "utf-8")
    file = Delimited("rows.csv", open=lambda: io.BytesIO(content))
    assert _rows(file) == rows
    assert len(list(file.lines())) == len(rows)


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.csv.gz", "rows.txt"])
def test_the_name_or_the_first_line_reports_the_delimiter(name: str, tmp_path: Path) -> None:
    text = "who,n\n007,\n\n7,2\n".replace(",", "," if ".csv" in name else "\t").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    table = Delimited(tmp_path / name).records()
    (block,) = table.blocks(["n", "who"], 10)
    assert {name: cells.to_pylist() for name, cells in block.items()} == {"n": [None, "2"], "who": ["007", "7"]}
    assert [table.place(row) for row in range(2)] == ["line 2", "line 4"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a,b\n1,2\n\n3\n", "line 4 has 1 columns, the first row has 2; complete or remove the row"),
        (b'a,b\n"1\n2",3\n4,5,6\n', "line 4 has 3 columns, the first row has 2"),
        (b'a,b\n1, "al"\n', "line 2 has blanks in front of the quote of ' \"al\"'; remove them"),
        (b"a,b\n1,2\n3,\xff\n", "is not UTF-8 at line 3; convert it to UTF-8"),
        (b"\xffa,b\n1,2\n", "is not UTF-8 at line 1"),
        (b"a;b\n1;2\n", "has columns that are divided by ';'"),
        (b"", "is empty; needed are a header and a row an example"),
        (lambda: b"a,b\n" + b"x" * (1 << 24) + b",1\n", "cannot be read: field larger than field limit"),
        (b'a,b\n1,"x\n2,y\n3,z\n', "line 2 opens a quote that nothing closes in its field; close it"),
        (b'\xef\xbb\xbf"a,b\n1,2\n', "line 1 opens a quote that nothing closes"),
        (b'a,b\n1,"x\n2,y\n3,"z"\n4,u\n', "line 2 opens a quote that nothing closes"),
        (b'a,b\n5" pipe,1\n1,"x\n2,y\n3,"z"\n4,u\n', "line 3 opens a quote that nothing closes"),
        (b'a,b\r\n"x""\r\n""y",1\r\n2,"a"""\r\n3,"\r\n', "line 5 opens a quote that nothing closes"),
        (lambda: b'a,b\n1,"x\n' + b"2,y\n" * (3 << 20), "line 2 opens a quote that nothing closes"),
        (
            lambda: b"a,b\n" + b"2,y\n" * (3 << 20) + b'1,"x\n' + b"2,y\n" * (3 << 20),
            f"line {2 + (3 << 20)} opens a quote",
        ),
    ],
)
def test_bad_text_is_refused_in_one_line_with_its_row(
    content: bytes | Callable[[], bytes], told: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_bytes(content() if callable(content) else content)
    with pytest.raises(InputError) as refusal:
        _read_all(tmp_path / "rows.csv")
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


@settings(deadline=None)
@given(st.lists(st.text('"",ab \n', max_size=9), min_size=1, max_size=6), st.integers(1, 9))
def test_quotes_are_followed_similar_whatever_the_blocks(fields: list[str], size: int) -> None:
    content = ",".join(fields).encode()

    def swallows(size: int) -> int | None:
        quotes = _Quotes(io.BytesIO(content), ",")
        while quotes.read(size):
            pass
        return quotes.swallows

    assert swallows(size) == swallows(1 << 20)
    told = ""
    try:
        list(csv.reader(io.StringIO(content.decode(), newline=""), strict=True))
    except csv.Error as error:
        told = str(error)
    if not told or "unexpected end" in told:
        assert (swallows(size) is None) == (not told)


def test_a_file_that_is_missing_or_badly_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        Delimited(tmp_path / "none.csv")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 999)[:-20])
    with pytest.raises(InputError, match=r"cannot be read: Compressed file ended .*; copy or download it again"):
        list(Delimited(tmp_path / "rows.csv.gz").blocks([0], 10))


# A text file whose columns are divided by another mark than its name says, and numbers with a comma.

ROWS = [["who", "day", "bili"], ["al", "0", "1.5"], ["al", "3", "2.5"], ["bo", "0", "1.0"]]
SCHEMA = {"who": "drop", "day": {"kind": "numeric", "low": 0, "high": 9}, "bili": {"kind": "target"}}
READERS: dict[str, Callable[[Path], object]] = {
    "ehr_from_tables": lambda path: ehr_from_tables(path, id="who", time="day"),
    "ehr_from_events": lambda path: ehr_from_events(path, id="who", time="day", code="day", value="bili"),
    "from_table": lambda path: open_users(path, user="who", input="day", label="bili"),
    "examples_from_table": lambda path: open_examples(path, input="day", label="bili"),
    "table": lambda path: open_examples(path, schema=SCHEMA),
    "ratings": lambda path: open_users(path, user="who", item="day", value="bili"),
    "load": lambda path: open_users(path, user="who", input="day", label="bili"),
    "label_file": lambda path: open_label_file(path).kind("bili"),
}


def _refusal(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(InputError) as refusal:
        read(path)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("mark", "ending"), [(";", ".csv"), ("|", ".csv"), (";", ".tsv"), (",", ".tsv")])
@pytest.mark.parametrize("comma", [False, True])
def test_another_mark_is_named_by_every_reader(reader: str, mark: str, ending: str, comma: bool, tmp_path: Path):
    rows = [[cell.replace(".", ",") if comma and mark != "," else cell for cell in row] for row in ROWS]
    (path := tmp_path / f"visits{ending}").write_text("\n".join(mark.join(row) for row in rows))
    said = _refusal(READERS[reader], path)
    assert f"has columns that are divided by {mark!r}" in said
    assert f"sep={mark!r}" in said
    assert ("decimal=','" in said) == (mark == ";")


@pytest.mark.parametrize("reader", ["from_table", "examples_from_table", "table", "load", "label_file"])
def test_another_mark_is_named_where_a_name_has_a_comma(reader: str, tmp_path: Path):
    (path := tmp_path / "visits.csv").write_text("who;day, from 0;bili\nal;0;1.5\n")
    assert "divided by ';'" in _refusal(READERS[reader], path)


def test_marks_within_cells_are_no_dividers(tmp_path: Path):
    (path := tmp_path / "visits.csv").write_text('who,day,"bili;1|2"\nal,0,a;b\nbo,1,c|d\n')
    assert len(open_users(path, user="who", input="day", label="bili;1|2")) == 2


# Tables: what the schema declares is all that is known about a record.

DECLARED = {
    "age": {"kind": "numeric", "low": 20, "high": 60},
    "income": {"kind": "numeric", "low": 0, "high": 1000, "log": True, "fill": 0},
    "job": {"kind": "category", "buckets": 50},
    "sex": {"kind": "category", "values": ["f", "m"]},
    "note": "drop",
    "bought": {"kind": "label", "values": ["no", "yes"]},
}
PEOPLE = [
    {"age": "30", "income": "10", "job": "cook", "sex": "m", "note": "x", "bought": "yes"},
    {"age": "99", "income": "?", "job": "?", "sex": "d", "note": "", "bought": "no"},
    {"age": "-5", "income": "1000", "job": "Cook", "sex": "", "note": "", "bought": "no"},
]

ADULT = {
    "age": {"kind": "numeric", "low": 17, "high": 90},
    "workclass": {"kind": "category", "buckets": 16},
    "fnlwgt": "drop",
    "education": {"kind": "category", "buckets": 32},
    "education-num": {"kind": "numeric", "low": 1, "high": 16},
    "marital-status": {"kind": "category", "buckets": 16},
    "occupation": {"kind": "category", "buckets": 32},
    "relationship": {"kind": "category", "buckets": 16},
    "race": {"kind": "category", "buckets": 16},
    "sex": {"kind": "category", "values": ["Female", "Male"]},
    "capital-gain": {"kind": "numeric", "low": 0, "high": 100_000, "log": True},
    "capital-loss": {"kind": "numeric", "low": 0, "high": 5_000, "log": True},
    "hours-per-week": {"kind": "numeric", "low": 0, "high": 100},
    "native-country": {"kind": "category", "buckets": 64},
    "Salary": {"kind": "label", "values": ["<=50K", ">50K"]},
}


def write(path: Path, rows: list[dict[str, str]], separator: str = ",") -> Path:
    lines = [separator.join(rows[0])] + [separator.join(row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_row_becomes_what_the_schema_says(tmp_path: Path) -> None:
    data = open_examples(write(tmp_path / "t.csv", PEOPLE, ", "), schema=DECLARED)
    (numbers, ids), labels = data.examples([0, 1, 2])
    log = 2 * np.log1p(10) / np.log1p(1000) - 1
    np.testing.assert_allclose(numbers, [[-0.5, log, -1], [1, -1, 1], [-1, 1, -1]], rtol=1e-6)
    cook, capital = hashed_id("cook", 51), hashed_id("Cook", 51)
    np.testing.assert_array_equal(ids, [[cook, 3], [0, 1], [capital, 0]])
    assert labels.tolist() == [1, 0, 0]
    assert data.vocabulary_sizes == (51, 4)
    assert data.columns == (("age", "income", "income is missing"), ("job", "sex"))
    assert list(data.label_names or ()) == ["no", "yes"]
    assert numbers.dtype == np.float32
    assert ids.dtype == np.int64


def test_a_record_is_read_similar_whatever_the_others_are(tmp_path: Path) -> None:
    """The heart of the promise: no statistic of other records enters, so one record cannot change another's inputs."""
    whole = open_examples(write(tmp_path / "a.csv", PEOPLE), schema=DECLARED)
    for place, row in enumerate(PEOPLE):
        alone = open_examples(write(tmp_path / f"{place}.csv", [row]), schema=DECLARED)
        for one, many in zip(alone.examples([0])[0], whole.examples([place])[0], strict=True):
            np.testing.assert_array_equal(one, many)
        assert alone.num_classes == whole.num_classes
        assert alone.assumptions == whole.assumptions


@settings(max_examples=by_profile(100), deadline=None)
@given(
    low=st.floats(-1e9, 1e9),
    width=st.floats(1e-3, 1e9),
    log=st.booleans(),
    values=st.lists(st.floats(allow_nan=False), min_size=1),
)
def test_numbers_stay_within_one_and_keep_their_order(low, width, log, values) -> None:
    one = column("x", {"kind": "numeric", "low": low, "high": low + width, "log": log})
    values = sorted(values)
    scaled = one.numbers([repr(value) for value in values], str)[:, 0]  # type: ignore[union-attr]
    assert np.abs(scaled).max() <= 1
    assert (np.diff(scaled) >= -1e-6).all()


def test_parquet_gives_the_same_as_csv(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{**row, "age": float(row["age"])} for row in PEOPLE]
    rows[1] = {**rows[1], "income": None, "job": None}
    rows[2] = {**rows[2], "sex": None}
    frame = pandas.DataFrame(rows)
    frame["income"] = pandas.to_numeric(frame["income"])
    frame.to_parquet(tmp_path / "t.parquet")
    csv = open_examples(write(tmp_path / "t.csv", PEOPLE), schema=DECLARED)
    assert open_examples(tmp_path / "t.parquet", schema=DECLARED).fingerprint() == csv.fingerprint()
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_examples(tmp_path / "t.parquet", schema=DECLARED)
    with pytest.raises(InputError, match="there is nothing at"):
        open_examples(tmp_path / "none.parquet", schema=DECLARED)


def test_schemas_come_from_files_too(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(DECLARED))
    (tmp_path / "s.yaml").write_text("a: {kind: numeric, low: 0, high: 1.5}\nb: drop\ny: {kind: label}\n")
    assert read_schema(tmp_path / "s.json") == read_schema(DECLARED)
    assert read_schema(tmp_path / "s.yaml").numeric[0].high == 1.5
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n")
    assert len(open_examples(tmp_path / "t.csv", schema=tmp_path / "s.yaml")) == 1


def test_classes_that_are_not_declared_were_found(tmp_path: Path) -> None:
    assert len(open_examples(write(tmp_path / "t.csv", PEOPLE), schema=DECLARED).assumptions) == 1
    data = open_examples(tmp_path / "t.csv", schema={**DECLARED, "bought": {"kind": "label"}})
    assert data.assumptions[0].id == "schema_public"
    assert data.found == (NAMES,)
    assert data.targets.tolist() == [1, 0, 0]


def test_a_table_of_categories_alone_has_an_empty_array_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\nu,1\nv,0\n")
    schema = {"a": {"kind": "category", "values": ["u"]}, "y": {"kind": "label"}}
    data = open_examples(tmp_path / "t.csv", schema=schema)
    (numbers, ids), _ = data.examples([0, 1])
    assert numbers.shape == (2, 0)
    assert ids.tolist() == [[2], [1]]
    assert open_examples(tmp_path / "t.csv", schema=schema, store=tmp_path / "s").fingerprint() == data.fingerprint()
    assert open_examples(tmp_path / "s").fingerprint() == data.fingerprint()
    only = open_examples(
        write(tmp_path / "n.csv", [{"x": "1", "y": "0"}]), schema={"x": DECLARED["age"], "y": {"kind": "label"}}
    )
    assert only.input_shapes == ((1,),)
    assert only.vocabulary_sizes == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": ""}, "line 3: 'age' is missing; declare a public fill"),
        ({"age": "old"}, "line 3: 'age' is numeric, got 'old'"),
        ({"bought": "maybe"}, "line 3: the label 'maybe' is none of no, yes; add it to the values of 'bought'"),
        ({"note": "a,b"}, "line 3 has 7 columns, the first row has 6"),
    ],
)
def test_a_bad_row_is_named_in_one_line(tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_examples(write(tmp_path / "t.csv", [PEOPLE[0], {**PEOPLE[1], **change}]), schema=DECLARED)
    assert "\n" not in str(caught.value)


def test_a_row_with_a_missing_column_is_named(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", PEOPLE)
    with open(tmp_path / "t.csv", "a") as file:
        file.write("1,2\n")
    with pytest.raises(InputError, match="line 5 has 2 columns, the first row has 6"):
        open_examples(tmp_path / "t.csv", schema=DECLARED)


def test_table_and_schema_must_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", PEOPLE)
    with pytest.raises(InputError, match="has the column 'note', which the schema does not declare; declare each"):
        open_examples(tmp_path / "t.csv", schema={name: facts for name, facts in DECLARED.items() if name != "note"})
    with pytest.raises(InputError, match="no column 'town' of the schema"):
        open_examples(tmp_path / "t.csv", schema={**DECLARED, "town": "drop"})
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match="column 'a' twice"):
        open_examples(tmp_path / "t.csv", schema={"a": DECLARED["age"], "y": {"kind": "label"}})
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(InputError, match="is empty"):
        open_examples(tmp_path / "t.csv", schema=DECLARED)
    (tmp_path / "t.csv").write_text("age,income,job,sex,note,bought\n")
    with pytest.raises(InputError, match="no examples"):
        open_examples(tmp_path / "t.csv", schema=DECLARED)


TAGS = {"a": {"kind": "category", "values": ["u", "v"]}, "y": {"kind": "label", "values": [0, 1]}}


def test_a_category_of_several_values_a_row_becomes_its_first_ids(tmp_path: Path) -> None:
    cells = ["red|blue", " red ||NA| green", "", "|".join(map(str, range(10_000)))]
    (tmp_path / "t.csv").write_text("tags,a,y\n" + "".join(f"{cell},u,1\n" for cell in cells))
    schema = {"tags": {"kind": "category", "buckets": 50, "most": 3}, **TAGS}
    data = open_examples(tmp_path / "t.csv", schema=schema)
    expected = [["red", "blue"], ["red", "green"], [], ["0", "1", "2"]]
    ids = [[hashed_id(value, 51) for value in row] + [0] * (3 - len(row)) for row in expected]
    assert data.inputs[1][:][:, :3].tolist() == ids
    assert data.inputs[1][:][:, 3].tolist() == [2] * 4
    assert data.vocabulary_sizes == (51, 0, 0, 4)
    assert data.columns[1] == ("tags", "tags 2", "tags 3", "a")
    parts = "categories and numbers of buckets, numbers of values a row, classes"
    assert data.assumptions == (Assumption("schema_public", {"parts": parts}),)
    assert data.notes == ("cut to the declared number of values: tags 1 of 4 rows (these counts are not private)",)
    stored = open_examples(tmp_path / "t.csv", schema=schema, store=tmp_path / "store")
    assert stored.fingerprint() == open_examples(tmp_path / "store").fingerprint() == data.fingerprint()


def test_several_values_are_a_list_in_parquet_or_have_another_mark(tmp_path: Path) -> None:
    rows = [["red", "blue"], [], ["red", None, "u"]]
    pq.write_table(pa.table({"tags": rows, "a": ["u"] * 3, "y": [0, 1, 1]}), tmp_path / "t.parquet")
    text = "".join(f"{';'.join(filter(None, row))},u,{y}\n" for row, y in zip(rows, [0, 1, 1], strict=True))
    (tmp_path / "t.csv").write_text("tags,a,y\n" + text)
    tags = {"kind": "category", "values": ["blue", "red"], "most": 2}
    found = open_examples(tmp_path / "t.parquet", schema={"tags": tags, **TAGS})
    assert found.inputs[1][:][:, :2].tolist() == [[3, 2], [0, 0], [3, 1]]
    other = open_examples(tmp_path / "t.csv", schema={"tags": {**tags, "separator": ";"}, **TAGS})
    assert other.fingerprint() == found.fingerprint()
    with pytest.raises(InputError, match="'tags' must hold texts or numbers, got list"):
        open_examples(tmp_path / "t.parquet", schema={"tags": {"kind": "category", "buckets": 9}, **TAGS})
    (tmp_path / "t.csv").write_text("tags,a,y\nff,u,0\n12;zz,u,0\n")
    hashes = {"kind": "category", "buckets": 9, "most": 2, "separator": ";", "hex": True}
    with pytest.raises(InputError, match="line 3: 'tags' must be at most 8 hexadecimal digits, got 'zz'"):
        open_examples(tmp_path / "t.csv", schema={"tags": hashes, **TAGS})


USERS = {"who": "user", "x": {"kind": "numeric", "low": 0, "high": 9}, "y": {"kind": "label", "values": [0, 1]}}


def test_a_column_says_whose_each_row_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,who,y\n1,bo,0\n2,7,1\n3,bo,1\n4,007,0\n")
    data = open_examples(tmp_path / "t.csv", schema=USERS)
    assert (data.owners.tolist(), data.num_users) == ([0, 1, 0, 2], 3)  # 7 and 007 are two
    assert repr(data).startswith("ExampleDataset(4 examples of 3 users of (1,) float32")
    assert len(data.notes) == 1
    stored = open_examples(tmp_path / "t.csv", schema=USERS, store=tmp_path / "store")
    assert stored.fingerprint() == open_examples(tmp_path / "store").fingerprint() == data.fingerprint()
    pq.write_table(pa.table({"x": [1, 2, 3, 4], "who": ["bo", "7", "bo", "007"], "y": [0, 1, 1, 0]}), tmp_path / "p.pq")
    assert open_examples(tmp_path / "p.pq", schema=USERS).fingerprint() == data.fingerprint()
    assert open_examples(tmp_path / "t.csv", schema={**USERS, "who": "drop"}).fingerprint() != data.fingerprint()
    (tmp_path / "t.csv").write_text("x,who,y\n1,bo,0\n2,,1\n")
    with pytest.raises(InputError, match=r"t\.csv line 3"):
        open_examples(tmp_path / "t.csv", schema=USERS)
    with pytest.raises(InputError, match="at most one user, got 'who' and 'y'; drop one"):
        read_schema({**USERS, "y": "user", "z": {"kind": "label"}})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"kind": "numeric"}, "needs low to be a finite number"),
        ({"kind": "numeric", "low": 0, "high": float("inf")}, "needs high to be a finite number"),
        ({"kind": "numeric", "low": 3, "high": 3}, "needs low < high, got low=3, high=3"),
        ({"kind": "numeric", "low": "0", "high": 3}, "needs low to be a finite number .*got '0'"),
        ({"kind": "numeric", "low": 0, "high": 3, "fill": 4}, "fill between its bounds 0 and 3, got 4"),
        ({"kind": "numeric", "low": 0, "high": 3, "log": 1}, "log to be true or false"),
        ({"kind": "numeric", "low": 0, "high": 3, "mean": 1}, "is numeric and has no 'mean'"),
        ({"kind": "category"}, "needs either buckets or values"),
        ({"kind": "category", "buckets": 3, "values": ["a"]}, "needs either buckets or values"),
        ({"kind": "category", "buckets": 0}, "buckets to be a whole number >= 1, got 0"),
        ({"kind": "category", "values": ["a"], "hex": True}, "hex to be true or false, with buckets"),
        ({"kind": "category", "buckets": 3, "most": 0}, "most to be a whole number >= 1, got 0"),
        ({"kind": "category", "buckets": 3, "most": True}, "most to be a whole number >= 1, got True"),
        ({"kind": "category", "buckets": 3, "most": 2, "separator": ""}, "separator to be a text, got ''"),
        ({"kind": "category", "buckets": 3, "separator": ","}, "has a separator and needs most"),
        ({"kind": "category", "values": "ab"}, "needs a list of values"),
        ({"kind": "category", "values": ["a", "a"]}, "declares the value 'a' twice"),
        ({"kind": "category", "values": [None]}, "write it in quotes"),
        ({"kind": "category", "values": [True, "True"]}, "declares the value 'True' twice"),
        ("keep", "must be one of numeric"),
        (7, "must be one of numeric"),
        ({"low": 1}, "must be one of numeric"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declared: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_schema({"x": declared, "y": {"kind": "label"}})
    assert str(caught.value).startswith("column 'x'")


def test_schemas_need_one_label_and_something_to_learn_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"one column of .*label.*; got 0 labels, 0 targets"):
        read_schema({"x": DECLARED["age"]})
    with pytest.raises(InputError, match="at least one numeric or category column"):
        read_schema({"y": {"kind": "label"}})
    with pytest.raises(InputError, match="there is no schema"):
        read_schema(tmp_path / "none.yaml")
    (tmp_path / "s.yaml").write_text("a: [")
    with pytest.raises(InputError, match="cannot be read") as caught:
        read_schema(tmp_path / "s.yaml")
    assert "\n" not in str(caught.value)
    (tmp_path / "s.yaml").write_text("- a")
    with pytest.raises(InputError, match="must map each column"):
        read_schema(tmp_path / "s.yaml")


@pytest.mark.shared
def test_the_census_table_is_read_row_for_row(shared: Path) -> None:
    data = open_examples(shared / "adult.csv.gz", schema=ADULT)
    with gzip.open(shared / "adult.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file, skipinitialspace=True) if row["age"]]
    assert len(data) == len(rows) == 32_561
    assert data.class_counts().tolist() == [24_720, 7_841]  # UCI: 24.08 % above 50K
    (numbers, ids), _ = data.examples(np.arange(len(data)))
    age = np.array([float(row["age"]) for row in rows])
    np.testing.assert_allclose(numbers[:, 0], 2 * (age - 17) / 73 - 1, atol=1e-6)
    jobs = data.columns[1].index("occupation")
    assert (ids[:, jobs] == 0).sum() == sum(row["occupation"] == "?" for row in rows) == 1843
    assert ids.min() == 0
    assert (ids.max(0) < np.array(data.vocabulary_sizes)).all()
