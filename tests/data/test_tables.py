"""Tables of any kind as data sets: pictures, numbers, texts, and what is refused."""

import datetime
import decimal
import io
import json
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import (
    ExampleDataset,
    MissingPart,
    Tokenizer,
    UserDataset,
    ehr_from_tables,
    open_examples,
    open_users,
    to_tensor,
)
from sfumato.data import gather as load
from sfumato.data.domain import NAMES
from sfumato.labels.files import open_label_file

# One table gives one data set, wherever it is kept, and each row goes to the user that its column names.

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


def test_users_whose_names_look_similar_are_counted_in_the_summary() -> None:
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


# Types of Arrow that other tools write: each is read, or refused with its column, by one rule for all tables.

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


# Texts become ids by a rule that is given, and ids that are there already pass if they are equally many.

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


# `open_examples` takes a table whose columns are named, where no schema says what is public about it.


def test_columns_of_a_table_are_named_in_place_of_a_schema(album: dict[str, list], tmp_path: Path) -> None:
    pixels = album.pop("pixels")
    pq.write_table(pa.table(album), tmp_path / "rows.parquet")
    with tarfile.open(tmp_path / "rows.tar", "w") as tar:
        for i, picture in enumerate(album["image"]):
            for kind, content in (("png", picture["bytes"]), ("mood", album["mood"][i].encode())):
                info = tarfile.TarInfo(f"{i}.{kind}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    for name in ("rows.parquet", "rows.tar"):
        dataset = open_examples(tmp_path / name, label="mood")
        assert [(row == one).all() for row, one in zip(dataset.inputs[0][:], pixels, strict=True)] == [True] * 9
        assert [dataset.label_names[one] for one in dataset.targets] == album["mood"]
        with pytest.raises(MissingPart):
            open_examples(tmp_path / name, "test", label="mood")
        names = open_examples(tmp_path / name, label="mood", label_names=["sad", "glad"]).label_names
        assert list(names) == ["sad", "glad"]
    texts = open_examples(tmp_path / "rows.tar", input="mood", vocabulary=50, length=3)
    assert (texts.inputs[0][:] == Tokenizer(50, 3).ids(album["mood"])).all()


def test_columns_without_a_table_and_next_to_a_schema_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [0]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"give a schema for .* or input and label, not both"):
        open_examples(tmp_path / "rows.parquet", label="y", schema={"x": "drop"})
    with pytest.raises(InputError, match="give a schema"):
        open_examples(tmp_path / "rows.parquet")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"input='x' is for tables .* is a folder of pictures; leave it out"):
        open_examples(tmp_path / "folder", input="x")


# What a table can be wrong in is refused in one line that says where, and nothing is left on the disk.

X = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
PEOPLE = ["al", "bo", "al"]


def _refused(source: Any, read: Callable = open_users, **columns: Any) -> str:
    with pytest.raises(InputError) as refusal:
        read(source, **columns)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    table = pa.table({"x": X, "person": PEOPLE, "mood": [0, 1, 0]})
    for column, role in (("persons", "user"), ("moo", "label"), ("y", "input")):
        columns = {"input": "x", "user": "person", "label": "mood", role: column}
        told = _refused(table, **columns)
        assert f"no column {column!r} for {role}=" in told
        assert told.endswith("it has x, person, mood")
    assert "did you mean person?" in _refused(table, input="x", user="persons")
    twice = pa.Table.from_arrays([pa.array(X), pa.array(PEOPLE), pa.array(PEOPLE)], names=["x", "who", "who"])
    assert "the column 'who' twice" in _refused(twice, input="x", user="who")


def test_labels_and_users_cannot_be_swapped_by_their_places() -> None:
    with pytest.raises(TypeError):
        open_users(pa.table({"x": X, "person": PEOPLE}), "person")  # type: ignore[misc]


@pytest.mark.parametrize("people", [["al", None, "bo"], [3, None, 4], [3.0, float("nan"), 4.0]])
@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame, datasets.Dataset.from_dict])
def test_a_row_of_no_one_is_refused(kind: Callable, people: list) -> None:
    told = _refused(kind({"x": X, "who": people}), input="x", user="who")
    assert "the user 'who' is missing (" in told
    assert "at position 1; fill it in or drop the row" in told


def test_users_are_whole_numbers_or_text() -> None:
    assert "must be whole numbers or text, got double" in _refused(
        pa.table({"x": X, "who": [1.5, 2.5, 3.5]}), input="x", user="who"
    )


def test_one_user_alone_is_read_and_reported() -> None:
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
    pq.write_table(pa.table({"x": cells, "who": PEOPLE}), tmp_path / "rows.parquet")
    for source in (pa.table({"x": cells, "who": PEOPLE}), tmp_path / "rows.parquet"):
        assert told in _refused(source, input="x", user="who")
        if not (isinstance(source, Path) and "tokenize" in told):  # texts of a file are hashed
            assert told in _refused(source, open_examples, input="x")


def test_lists_that_differ_between_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.data import gather as load

    monkeypatch.setattr(load, "_ROWS", 2)
    told = _refused(pa.table({"x": [[1.0], [2.0], [3.0, 4.0]], "who": PEOPLE}), input="x", user="who")
    assert "x at position 2 has 2 values, those before it have 1" in told


@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame])
def test_nan_among_inputs_passes_and_is_left_to_the_training(kind: Callable) -> None:
    cells = [[1.0, float("nan")], [3.0, 4.0], [5.0, 6.0]]
    dataset = open_users(kind({"x": cells, "who": PEOPLE, "y": [1.0, float("nan"), 0.0]}), input="x", user="who")
    assert np.isnan(dataset.examples(0)[0][0, 1])
    assert to_tensor(dataset.examples(0)[0]).isnan().sum() == 1
    assert np.isnan(open_examples(kind({"y": [1.0, float("nan"), 0.0]}), input="y").inputs[0][1, 0])
    told = _refused(kind({"x": X, "y": [1.0, float("nan"), 0.0]}), open_examples, input="x", label="y")
    assert "targets must be finite in single precision, got nan in example 1" in told


def test_labels_are_classes() -> None:
    table = {"x": X, "who": PEOPLE}
    made = open_users(pa.table({**table, "y": ["cat", "ant", "cat"]}), input="x", user="who", label="y")
    assert list(made.label_names) == ["ant", "cat"]
    assert "the label 'y' is missing (null) at position 1" in _refused(
        pa.table({**table, "y": ["cat", None, "ant"]}), input="x", user="who", label="y"
    )
    assert "the label 'y' must be finite in single precision, got nan in example 1" in _refused(
        pa.table({**table, "y": [0.5, float("nan"), 0.0]}), input="x", user="who", label="y"
    )
    assert "labels must be >= 0, got -1" in _refused(
        pa.table({**table, "y": [0, -1, 0]}), input="x", user="who", label="y"
    )


def test_a_damaged_picture_is_named_by_its_row(album: dict[str, list], tmp_path: Path) -> None:
    album["image"][5] = {"bytes": album["image"][5]["bytes"][:60], "path": "5.png"}
    pq.write_table(pa.table({name: album[name] for name in ("image", "person")}), tmp_path / "rows.parquet")
    told = _refused(tmp_path / "rows.parquet", user="person", store=tmp_path / "store")
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
        said = _refused(pa.table({"image": cells}), open_examples)
        assert "image at position 0 is " in said
        assert f"image at position 3 {told}" in said


def test_which_column_is_the_input_is_asked_where_it_is_not_clear(album: dict[str, list]) -> None:
    two = pa.table({"a": album["image"], "b": album["image"], "person": album["person"]})
    several = "2 columns have pictures (a, b), so name the input: --input COLUMN or input=, of a, b, person"
    assert several in _refused(two, user="person")
    none = pa.table({"x": X, "who": PEOPLE})
    said = _refused(none, user="who")
    assert "no column has pictures, so name the input" in said
    assert "several columns by a schema (--schema FILE)" in said
    only = pa.table({"a": album["image"]})
    assert "the pictures of a are the user or the label, and no other column has any" in _refused(only, user="a")
    assert "a user's examples have one input, got a, b" in _refused(two, input=("a", "b"), user="person")
    assert "size: for pictures only" in _refused(none, input="x", user="who", size=8)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "lines.jsonl").write_text('{"x": [1, 2]}\n{"x": [1, \n')
    (tmp_path / "rows.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"x": X[:0], "who": PEOPLE[:0]}), tmp_path / "none.parquet")
    rows = datasets.Dataset.from_dict({"x": X, "who": PEOPLE})
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
        ([X, PEOPLE], "source must be a datasets.Dataset"),
    ]:
        assert told in _refused(source, input="x", user="who"), source


def test_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": X, "who": PEOPLE}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": X, "who": [1, 2, 3]}), tmp_path / "b.parquet")
    assert "has other columns or types than" in _refused(tmp_path, input="x", user="who")


def test_a_store_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").write_text("")
    assert "is not empty" in _refused(
        pa.table({"x": X, "who": PEOPLE}), input="x", user="who", store=tmp_path / "store"
    )
