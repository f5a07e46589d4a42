"""One column is exchanged, and nothing else: in every format, down to the characters where the format has any."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato._check import InputError
from sfumato.labels.files import open_label_file, refuse_other_format, values


def copied(path: Path, out: Path, report: pa.Scalar) -> None:
    """The file with this report in each row."""
    file = open_label_file(path)
    assert file.kind("y") is not None
    file.copy(out, ["y"], "y", lambda cells: pa.array([report.as_py()] * len(cells["y"]), report.type))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())],
)
def test_parquet_keeps_types_metadata_and_all_other_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind):
    monkeypatch.setattr("sfumato.labels.files._PARQUET_ROWS", 3)
    columns = {
        "list": pa.array([[1, 2], None, [], [3], [4], [5], [6]]),
        "y": pa.array(["a", "b", "a", "a", "b", "a", "b"]).cast(kind),
        "time": pa.array(range(7), pa.timestamp("us", "UTC")),
        "nested": pa.array([{"a": None}] * 7, pa.struct([("a", pa.float16())])),
    }
    pq.write_table(pa.table(columns).replace_schema_metadata({"who": "us"}), tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    copied(tmp_path / "t.parquet", tmp_path / "o.parquet", pa.scalar("b", pa.string()))
    found = pq.read_table(tmp_path / "o.parquet")
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.drop(["y"]).equals(table.drop(["y"]))
    assert found["y"].to_pylist() == ["b"] * 7


def test_a_number_in_parquet_makes_the_column_one_of_doubles(tmp_path: Path):
    pq.write_table(pa.table({"y": [1, 2], "z": [3, 4]}), tmp_path / "t.parquet")
    copied(tmp_path / "t.parquet", tmp_path / "o.parquet", pa.scalar(1.25))
    assert pq.read_table(tmp_path / "o.parquet").to_pydict() == {"y": [1.25, 1.25], "z": [3, 4]}


def test_identifiers_in_binary_are_written_as_the_text_that_they_are_read_as(tmp_path: Path):
    stored = pa.array([bytes(15) + bytes([number % 2]) for number in range(4)], pa.binary(16))
    column = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    pq.write_table(pa.table({"y": column}), tmp_path / "t.parquet")
    file = open_label_file(tmp_path / "t.parquet")
    (cells,) = file.cells(["y"])
    file.copy(tmp_path / "o.parquet", ["y"], "y", lambda cells: cells["y"])
    assert pq.read_table(tmp_path / "o.parquet")["y"].to_pylist() == cells["y"].to_pylist()
    assert cells["y"][1].as_py() == "00000000-0000-0000-0000-000000000001"


def test_statistics_in_parquet_tell_reports_only(tmp_path: Path):
    pq.write_table(pa.table({"y": ["rare", "b"]}), tmp_path / "t.parquet")
    copied(tmp_path / "t.parquet", tmp_path / "o.parquet", pa.scalar("b"))
    assert b"rare" not in (tmp_path / "o.parquet").read_bytes()


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_delimited_text_keeps_every_other_field(tmp_path: Path, name: str):
    mark = "\t" if "tsv" in name else ","
    rows = [
        ["n", "y", "text"], ["007", "a", '"one, ""two"" and\tthree"'], ["1e3", " b ", "x"],
        ["", "a", " blank"], ["½", "b", '"a\nb"'],
    ]  # fmt: skip
    text = "".join(mark.join(row) + "\n" for row in rows)
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    out = tmp_path / f"out-{name}"
    copied(tmp_path / name, out, pa.scalar("c"))
    found = gzip.decompress(out.read_bytes()) if name.endswith("gz") else out.read_bytes()
    for row in rows[1:]:
        row[1] = "c"
    expected = "".join(mark.join(row) + "\n" for row in rows)
    assert found.decode() == expected
    cells = next(iter(open_label_file(tmp_path / name).cells(["y", "n"])))
    assert cells["y"].to_pylist() == ["a", "b", "a", "b"]
    assert cells["n"].to_pylist() == ["007", "1e3", None, "½"]


def test_lines_keep_every_other_character(tmp_path: Path):
    lines = [
        '{"y":  "a" , "x": 1.500, "u": "\\u00e9"}\n',
        "\n",
        '  { "x": 10000000000000000000000.1, "deep": {"y": "not this", "l": [1, {}]}, "y": "b" }\r\n',
        '{"y": "a\\"b"}',
    ]
    (tmp_path / "t.jsonl").write_bytes("".join(lines).encode())
    copied(tmp_path / "t.jsonl", tmp_path / "o.jsonl", pa.scalar("ç"))
    expected = [
        lines[0].replace('"a"', '"ç"'),
        lines[2].replace('"b"', '"ç"'),
        '{"y": "ç"}',
    ]
    assert (tmp_path / "o.jsonl").read_bytes().decode() == "".join(expected)


@pytest.mark.parametrize(
    "line",
    ["[1]", "{", '{"a": 1', '{"a" 1}', '{"a": 1}}', '{"a": 1} x', "{a: 1}", '{"a": 1,}', '{"a": 1, "a": 2}', "", "5"],
)
def test_what_is_no_object_is_refused(line: str):
    with pytest.raises(ValueError, match=r"."):
        values(line)


def test_values_of_an_object_are_those_of_the_json_module():
    rng = np.random.default_rng(0)
    for _ in range(50):
        made = {f"k{i} ": [None, True, 'a\n"é', 1.5e-9, [1, {"k0 ": 2}], {}][int(rng.integers(6))] for i in range(4)}
        line = json.dumps(made, indent=int(rng.integers(3)) or None, ensure_ascii=bool(rng.integers(2)))
        found = values(line)
        assert {name: each.value for name, each in found.items()} == made
        assert all(json.loads(line[each.start : each.end]) == each.value for each in found.values())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"y": "a"}\n{"y": 1}\n', r"several types, str \(line 1\) and int \(line 2\)"),
        ('{"y": "a"}\n{"x": 1}\n', "line 2 has no 'y'"),
        ('{"y": ["a"]}\n', "must be a text or a number, got a list"),
        ('{"y": "a"}\n{"y": \n', "line 2 is no JSON object"),
        ('{"y": 99999999999999999999}\n', "cannot be read"),
    ],
)
def test_lines_of_no_use_are_refused(tmp_path: Path, content: str, told: str):
    (tmp_path / "t.jsonl").write_text(content)
    file = open_label_file(tmp_path / "t.jsonl")
    with pytest.raises(InputError, match=told):
        list(file.cells(["y"]))


def test_whole_and_broken_numbers_are_numbers(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"y": 1}\n{"y": 2.5}\n{"y": null}\n')
    file = open_label_file(tmp_path / "t.jsonl")
    assert next(iter(file.cells(["y"])))["y"].to_pylist() == [1.0, 2.5, None]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("t.parquet", b"PAR1PAR1", "cannot be read as Parquet"),
        ("t.csv", b"", "is empty"),
        ("t.csv", b"y,x\n1\n", "line 2 has 1 columns, the first row has 2"),
        ("t.csv", b"x,z\n1,2\n", "has no column 'y'"),
        ("t.txt", b"y\n", "is no table that can be copied"),
        ("t.csv", b"y,y\n1,2\n", "has the column 'y' twice"),
        ("t.csv.gz", b"no", "cannot be read"),
    ],
)
def test_files_of_no_use_are_refused(tmp_path: Path, name: str, content: bytes, told: str):
    (tmp_path / name).write_bytes(content)

    def read() -> None:
        file = open_label_file(tmp_path / name)
        file.kind("y")
        list(file.cells(["y"]))

    with pytest.raises(InputError, match=told):
        read()


def test_a_file_that_is_not_there_and_another_format_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="there is no file"):
        open_label_file(tmp_path / "none.csv")
    (tmp_path / "t.csv").write_text("y\n1\n")
    with pytest.raises(InputError, match=r"must be of the table's format: let its name end in \.csv or"):
        refuse_other_format(open_label_file(tmp_path / "t.csv"), tmp_path / "o.parquet")
    pq.write_table(pa.table({"y": [[1]]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="must hold texts or numbers, got list"):
        open_label_file(tmp_path / "t.parquet").kind("y")
