"""Types of Arrow that other tools write: each is read, or refused with its column, by one rule for all tables."""

import datetime
import decimal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato.data import ehr_from_tables, open_examples, open_users
from sfumato.labels.files import open_label_file

polars = pytest.importorskip("polars")

TEXTS = ["a", "b", "a", "b"]
NUMBERS = [1, 2, 1, 2]


def _coded(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int8()), values.slice(0, 2))


def _runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), values)


DECIMALS = [decimal.Decimal(each) for each in NUMBERS]
AS_TEXT = {
    "string_view": pa.array(TEXTS, pa.string_view()),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "dictionary": _coded(pa.array(TEXTS)),
    "dictionary of views": _coded(pa.array(TEXTS, pa.string_view())),
    "dictionary of large texts": _coded(pa.array(TEXTS, pa.large_string())),
    "run ends": _runs(pa.array(TEXTS)),
    "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(TEXTS)),
}
AS_NUMBER = {
    **{kind: pa.array(NUMBERS, getattr(pa, kind)()) for kind in ("int8", "uint8", "uint16", "uint32", "uint64")},
    "float16": pa.array(np.array(NUMBERS, np.float16)),
    "decimal128": pa.array(DECIMALS, pa.decimal128(38, 0)),
    "decimal256": pa.array(DECIMALS, pa.decimal256(60, 0)),
    "decimal with digits": pa.array(DECIMALS, pa.decimal128(10, 3)),
    "dictionary of numbers": _coded(pa.array(NUMBERS)),
    "run ends of numbers": _runs(pa.array(NUMBERS)),
}
WHOLE = {name for name in AS_NUMBER if name not in ("float16", "decimal with digits")}
REFUSED = {
    "zoned": pa.array([datetime.datetime(2024, 1, 1)] * 4, pa.timestamp("us", "Europe/Zurich")),
    "timestamp": pa.array([datetime.datetime(2024, 1, 1)] * 4, pa.timestamp("ns")),
    "date": pa.array([datetime.date(2024, 1, 1)] * 4),
    "time": pa.array([datetime.time(1)] * 4),
    "duration": pa.array([1] * 4, pa.duration("s")),
    "null": pa.nulls(4),
    "struct": pa.array([{"a": 1}] * 4),
    "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    "period": pa.array(pd.Series(pd.period_range("2024-01", periods=4, freq="M"))),
}


def _parquet(table: pa.Table, folder: Path) -> Any:
    pq.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def _pandas(table: pa.Table, folder: Path) -> Any:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


PLACES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "arrow": lambda table, folder: table,
    "parquet": _parquet,
    "pandas": _pandas,
    "polars": lambda table, folder: polars.from_arrow(table),
}
CANNOT = {  # what the other tool cannot hold, or turns into another type before we see it
    "parquet": {"dictionary of views", "run ends", "run ends of numbers", "period"},
    "pandas": {"period"},
    "polars": {"decimal256", "run ends", "run ends of numbers", "map", "json", "period"},
}


def _placed(place: str, name: str, column: pa.Array, folder: Path, **others: list) -> Any:
    if name in CANNOT.get(place, ()):
        pytest.skip(f"{place} has no {name}")
    return PLACES[place](pa.table({"x": column, **others}), folder)


def _people(source: Any) -> list[tuple]:
    read = open_users(source, user="who", input="n", label="x")
    return [(list(read.names), read.labels.tolist(), list(read.label_names or ()))]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", AS_TEXT)
def test_texts_are_users_labels_and_categories_however_they_are_written(place: str, name: str, tmp_path: Path):
    others = {"n": [1.0, 2.0, 3.0, 4.0], "who": ["p", "p", "q", "q"], "day": [0, 1, 0, 1]}
    source = _placed(place, name, AS_TEXT[name], tmp_path, **others)
    plain = pa.table({"x": TEXTS, **others})
    assert _people(source) == _people(plain)
    assert list(open_users(source, user="x", input="n").names) == ["a", "b"]
    one, other = (ehr_from_tables(each, id="who", time="day") for each in (source, plain))
    assert one.schema == other.schema
    assert one.codes.tolist() == other.codes.tolist()
    for each in (source, plain):
        assert len(open_users(each, user="who", item="x", value="n", duplicates="last").names) == 2


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", AS_NUMBER)
def test_numbers_are_inputs_labels_values_and_ids_however_they_are_written(place: str, name: str, tmp_path: Path):
    others = {"n": [1.0, 2.0, 3.0, 4.0], "who": ["p", "p", "q", "q"], "day": [0, 1, 0, 1]}
    source = _placed(place, name, AS_NUMBER[name], tmp_path, **others)
    plain = pa.table({"x": NUMBERS, **others})
    rows = open_examples(source, input="x", label="n").inputs[0]
    assert np.asarray(rows).ravel().tolist() == NUMBERS
    assert rows.dtype not in (np.float16, object)
    assert open_examples(source, input="n", label="x").targets.tolist() == NUMBERS
    kept = [open_users(each, user="who", item="day", value="x").labels.tolist() for each in (source, plain)]
    assert kept[0] == kept[1]
    assert ehr_from_tables(source, id="who", time="day", drop=["n"]).codes.tolist() == [[0], [1], [0], [1]]
    if name in WHOLE:
        assert list(open_users(source, user="x", input="n").names) == ["1", "2"]
    else:
        with pytest.raises(InputError, match=r"user 'x' must be whole numbers or text, got (half|float|Dec|dec)"):
            open_users(source, user="x", input="n")


@pytest.mark.parametrize("place", PLACES)
def test_booleans_are_the_classes_and_numbers_that_a_text_file_of_them_has(place: str, tmp_path: Path):
    others = {"n": [1.0, 2.0, 3.0, 4.0], "who": ["p", "p", "q", "q"], "day": [0, 1, 0, 1]}
    flags = [True, False, False, True]
    source = _placed(place, "bool", pa.array(flags), tmp_path, **others)
    (csv := tmp_path / "t.csv").write_text(pd.DataFrame({"x": flags, **others}).to_csv(index=False))
    assert _people(source) == _people(csv)
    one, other = (ehr_from_tables(each, id="who", time="day") for each in (source, csv))
    assert (one.schema, one.codes.tolist()) == (other.schema, other.codes.tolist())
    read = [open_examples(each, input="n", label="x") for each in (source, csv)]
    assert [list(each.label_names or ()) for each in read] == [["False", "True"]] * 2
    if place == "parquet":
        schema = {"x": "label", "n": {"kind": "numeric", "low": 0, "high": 9}, "who": "drop", "day": "drop"}
        assert open_examples(source, schema=schema).fingerprint() == open_examples(csv, schema=schema).fingerprint()
        assert open_label_file(source).kind("x") == pa.bool_()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_and_no_text_is_refused_with_its_column_and_a_remedy(place: str, name: str, tmp_path: Path):
    others = {"n": [1.0, 2.0, 3.0, 4.0], "who": ["p", "p", "q", "q"], "day": [0, 1, 0, 1]}
    source = _placed(place, name, REFUSED[name], tmp_path, **others)
    reads: list[Callable[[], object]] = [
        lambda: open_examples(source, input="x", label="n"),
        lambda: open_examples(source, input="n", label="x"),
        lambda: open_users(source, user="x", input="n"),
        lambda: ehr_from_tables(source, id="who", time="day"),
    ]
    for read in reads:
        with pytest.raises(InputError) as refusal:
            read()
        said = str(refusal.value)
        assert "\n" not in said
        assert "'x'" in said or "label x" in said
        assert any(word in said for word in ("leave the column out", "cast it", "fill it in", "name it in drop"))
    for column in ("value", "time"):
        if (name, column) in {("zoned", "time"), ("timestamp", "time"), ("date", "time")}:
            continue
        roles = {"user": "who", "item": "day", "value": "n", column: "x"}
        with pytest.raises(InputError, match=r"value|time"):
            open_users(source, **roles)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["zoned", "timestamp", "date"])
def test_dates_are_times(place: str, name: str, tmp_path: Path):
    start = datetime.datetime(2024, 1, 31)
    days = [start + datetime.timedelta(days=each) for each in (0, 1, 0, 40)]
    column = pa.array(days).cast(pa.date32() if name == "date" else REFUSED[name].type, safe=False)
    others = {"who": ["p", "p", "q", "q"], "bili": [1.0, 2.0, 3.0, 4.5], "item": [5, 6, 5, 6]}
    source = _placed(place, name, column, tmp_path, **others)
    assert ehr_from_tables(source, id="who", time="x", drop=["item"]).times.tolist() == [0, 1, 0, 40]
    assert len(open_users(source, user="who", item="item", value="bili", time="x")) == 2


def test_a_decimal_is_the_nearest_number_and_one_beyond_64_bits_is_refused():
    random = np.random.default_rng(0)
    exact = [decimal.Decimal(int(each)).scaleb(-5) for each in random.integers(-(2**62), 2**62, 1000)]
    rows = open_examples(pa.table({"x": pa.array(exact, pa.decimal128(38, 5)), "y": range(1000)}), input="x")
    assert np.asarray(rows.inputs[0]).ravel().tolist() == [float(each) for each in exact]
    large = pa.array([decimal.Decimal(10**30)], pa.decimal128(38, 0))
    with pytest.raises(InputError, match=r"column 'x' is decimal128\(38, 0\) and has a number that int64 cannot hold"):
        open_examples(pa.table({"x": large}), input="x")


def test_lists_hold_numbers_of_any_kind():
    for kind in (pa.decimal128(9, 1), pa.float16(), pa.uint16()):
        values = pa.array([1, 2, 3, 4]).cast(pa.float32()).cast(kind, safe=False)
        for outer in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
            column = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), values)
            if outer(kind) != column.type:
                column = pa.array(column.to_pylist(), outer(kind))
            rows = np.asarray(open_examples(pa.table({"x": column}), input="x").inputs[0])
            assert rows.tolist() == [[1, 2], [3, 4]]


def test_identifiers_of_16_bytes_are_texts():
    ids = [uuid.UUID(int=each) for each in (2, 1, 2)]
    column = pa.array([each.bytes for each in ids], pa.uuid())
    people = open_users(pa.table({"x": column, "n": [1.0, 2.0, 3.0]}), user="x", input="n")
    assert list(people.names) == sorted({str(each) for each in ids})


def test_a_column_of_a_frame_that_mixes_kinds_names_two_of_its_rows():
    frame = pd.DataFrame({"x": [1.5, None, "NA", 2.0], "who": list("abab")})
    with pytest.raises(InputError, match=r"'x' .* 1.5 at position 0 and 'NA' at position 2; make them one kind"):
        open_users(frame, user="who", input="x")


ROWS = {
    "who": ["007", "b", "São/1", "b"],
    "year": [2023, 2024, 2024, 2023],
    "n": [1.0, 2.0, 3.0, 4.0],
    "ill": ["a", "b", "b", "a"],
}


def _folder(rows: dict, folder: Path, keys: list[str]) -> Path:
    whole = pa.table(rows)
    schema = pa.schema([whole.schema.field(key) for key in keys])
    ds.write_dataset(whole, folder, format="parquet", partitioning=ds.partitioning(schema, flavor="hive"))
    return folder


@pytest.mark.parametrize("keys", [["who"], ["year"], ["year", "who"]])
def test_a_folder_that_is_divided_by_columns_is_read_as_one_file(keys: list[str], tmp_path: Path):
    folder = _folder(ROWS, tmp_path / "rows", keys)
    read = [
        [
            open_users(each, user="who", input=["n", "year"], label="ill"),
            open_users(each, user="who", input="n", label="ill"),
        ]
        for each in (folder, _parquet(pa.table(ROWS), tmp_path))
    ]
    for one, other in zip(*read, strict=True):
        assert list(one.names) == list(other.names)
        for user in range(len(one)):
            ours, theirs = (sorted(map(tuple, np.asarray(each.examples(user)[0]).tolist())) for each in (one, other))
            assert ours == theirs
    schema = {"n": {"kind": "numeric", "low": 0, "high": 9}, "ill": "label", "who": "drop", "year": "drop"}
    assert len(open_examples(folder, schema=schema)) == 4
    assert len(open_examples(folder, input="n", label="ill")) == 4
    assert len(ehr_from_tables(folder, id="who", time="n", unsorted="sort")) == 3


def test_folders_whose_names_are_columns_are_read_as_other_tools_write_them(tmp_path: Path):
    frame = polars.DataFrame({key: value for key, value in ROWS.items() if key != "year"})
    frame.write_parquet(polars.PartitionBy(tmp_path / "kept", key="ill", include_key=True), mkdir=True)
    assert open_users(tmp_path / "kept", user="who", input="n", label="ill").num_classes == 2
    missing = {**ROWS, "ill": ["a", None, "a", "b"]}
    folder = _folder(missing, tmp_path / "missing", ["ill"])
    with pytest.raises(InputError, match=r"the label 'ill' is missing \(null\) at position"):
        open_users(folder, user="who", input="n", label="ill")


def test_folders_that_would_be_read_in_part_or_not_as_meant_are_refused(tmp_path: Path):
    folder = _folder(ROWS, tmp_path / "rows", ["year"])
    mixed = pa.table({key: value for key, value in ROWS.items() if key != "year"})
    pq.write_table(mixed, folder / "more.parquet")
    with pytest.raises(InputError, match="name the same columns for each file"):
        open_users(folder, user="who", input="n")
    (folder / "more.parquet").unlink()
    (folder / "2022").mkdir()
    pq.write_table(mixed, folder / "2022" / "part.parquet")
    with pytest.raises(InputError, match=r"2022 has Parquet files, and its name is not column=value"):
        open_users(folder, user="who", input="n")
    (tmp_path / "only" / "2022").mkdir(parents=True)
    pq.write_table(mixed, tmp_path / "only" / "2022" / "part.parquet")
    with pytest.raises(InputError, match=r"2022 has Parquet files, and its name is not column=value"):
        open_users(tmp_path / "only", user="who", input="n")
    (folder / "2022" / "part.parquet").unlink()
    (folder / "_delta_log").mkdir()
    with pytest.raises(InputError, match="is a table of Delta Lake, whose files may hold deleted rows"):
        open_users(folder, user="who", input="n")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1.5", "NA", "4.5"], "'NA' at line 3, but a number in 2 rows"),
        (["1", "low", "4"], "'low' at line 3, but a number in 2 rows"),
        (["1.5", '"3,5"', "4.5"], "'3,5' at line 3, a number with a comma"),
        (['"1,5"', '"3,5"', '"4,5"'], "'1,5' at line 2, a number with a comma"),
        (["12", '"1,250"', "7"], "'1,250' at line 3, a number with a comma"),
        (["12", "13", "014"], "'014' at line 4, but a number in 2 rows"),
    ],
)
def test_a_text_among_numbers_is_named_with_its_row(cells: list[str], said: str, tmp_path: Path):
    (path := tmp_path / "t.csv").write_text(
        "who,x,ill\n" + "".join(f"{who},{cell},{ill}\n" for who, cell, ill in zip("abc", cells, "yny", strict=True))
    )
    for read in (
        lambda: open_users(path, user="who", input="x", label="ill"),
        lambda: open_examples(path, input="x", label="ill"),
        lambda: open_examples(path, input="x", label="ill"),  # which would take texts for words
    ):
        with pytest.raises(InputError) as refusal:
            read()
        assert f"t.csv: input='x' is {said}" in str(refusal.value)


@pytest.mark.parametrize(
    ("cells", "wrong"), [("1.5 NA 2.5", True), ("0 1 NA", True), ("3 3a 4", False), ("a b NA", False)]
)
def test_a_label_of_numbers_with_a_text_among_them_is_no_class(cells: str, wrong: bool, tmp_path: Path):
    (path := tmp_path / "t.csv").write_text(
        "who,n,x\n" + "".join(f"{who},1,{cell}\n" for who, cell in zip("abc", cells.split(), strict=True))
    )
    if not wrong:
        assert open_users(path, user="who", input="n", label="x").num_classes == 3
        return
    with pytest.raises(InputError, match=r"label='x' is 'NA' at line \d, but a number in 2 rows"):
        open_users(path, user="who", input="n", label="x")
    with pytest.raises(InputError, match=r"label='x' is 'NA' at line \d, but a number in 2 rows"):
        open_examples(path, input="n", label="x")
