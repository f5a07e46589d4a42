"""Files of labels, and what earlier releases in their folder cost."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.labels import Classes, Grid, LabelSettings, randomize_table
from sfumato.labels.files import open_label_file, refuse_other_format, values
from sfumato.labels.randomize import FOLDER, TableIdentity, run_folder
from sfumato.ledger import Ledger

# One column is exchanged, and nothing else: in every format, down to the characters where the format has any.


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


def test_statistics_in_parquet_report_reports_only(tmp_path: Path):
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


# Labels that were released once are found again whatever file, order or part they stand in, and refused or summed.

ROWS = 2000
REFUSED = "were released before, at epsilon 0.5 in all .*; use that output, or allow the sum"


def settings(**changed) -> LabelSettings:
    domain = {"domain": Classes(names=("no", "yes"))}
    return LabelSettings(**{"label": "y", "epsilon": 0.5, **domain, **changed})


def made(seed: int = 0, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": rng.permutation(10 * rows)[:rows],
            "y": rng.choice(["no", "yes"], rows),
            "age": rng.integers(18, 80, rows),
            "score": rng.normal(size=rows).round(6),
            "town": rng.choice(["Ulm", "Köln", "Bonn"], rows),
        }
    )


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        table.to_pandas().to_json(path, orient="records", lines=True, force_ascii=False)
    return path


def release(table: Path, name: str, **changed):
    names = ("total_epsilon", "record", "seed", "resume", "progress")
    given = {key: changed.pop(key) for key in names if key in changed}
    return randomize_table(table, table.parent / f"{name}{table.suffix}", settings(**changed), **given)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A table whose labels were released once, at epsilon 0.5."""
    path = write(made(), tmp_path / "t.parquet")
    release(path, "first")
    return path


ORDER = np.random.default_rng(5).permutation(ROWS)
SAME = {
    "as it is": lambda table: table,
    "in another order": lambda table: table.take(ORDER),
    "a tenth of it": lambda table: table.take(ORDER[: ROWS // 10]),
    "a few rows": lambda table: table.slice(100, 20),
    "with new rows": lambda table: pa.concat_tables([table, made(9, 5 * ROWS)]).take(
        np.random.default_rng(0).permutation(6 * ROWS)
    ),
    "without columns": lambda table: table.select(["y", "town"]),
    "the labels alone": lambda table: table.select(["y"]),
    "with another column": lambda table: table.append_column("new", pa.array(np.arange(ROWS))),
    "with another name of the label": lambda table: table.rename_columns(["id", "z", "age", "score", "town"]),
    "columns in another order": lambda table: table.select(["town", "y", "id", "score", "age"]).take(ORDER),
    "with some labels changed": lambda table: table.set_column(
        1, "y", pa.array(["no"] * 50 + table["y"].to_pylist()[50:])
    ),
}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("name", SAME)
def test_a_second_release_is_refused_whatever_the_file(name, suffix, released: Path):
    table = SAME[name](made())
    again = write(table, released.parent / f"renamed{suffix}")
    before = sorted(released.parent.rglob("*"))
    label = "z" if "z" in table.column_names else "y"
    with pytest.raises(InputError, match=REFUSED + r".*first\.parquet.*|" + REFUSED) as refusal:
        release(again, "second", label=label)
    assert "(first.parquet)" in str(refusal.value)
    assert "total_epsilon (--total-epsilon) of 1 or more" in str(refusal.value)
    assert sorted(released.parent.rglob("*")) == before


def test_other_labels_are_not_refused(released: Path):
    for seed in range(1, 20):
        release(write(made(seed), released.parent / f"other{seed}.parquet"), f"out{seed}")
    numbers = release(released, "scores", label="score", domain=Grid(low=-3.0, high=3.0))
    assert numbers.statement.epsilon == 0.5
    rng = np.random.default_rng(0)
    for day in range(5):  # few kinds of rows: those of two days are equal by chance
        kinds = pa.table({"y": rng.choice(["no", "yes"], 500), "advert": rng.integers(0, 9, 500)})
        release(write(kinds, released.parent / f"day{day}.parquet"), f"day-out{day}")
    for count in range(3):  # too few labels to be known by their order
        few = pa.table({"y": ["no", "yes", "no", "yes", "no"]})
        release(write(few, released.parent / f"few{count}.parquet"), f"few-out{count}")


def test_a_copy_in_another_folder_is_found_by_a_common_record(tmp_path: Path):
    path, record = write(made(), tmp_path / "t.parquet"), tmp_path / "record"
    release(path, "first", record=record)
    (tmp_path / "elsewhere").mkdir()
    copy = Path(shutil.copy(path, tmp_path / "elsewhere" / "copy.parquet"))
    with pytest.raises(InputError, match=REFUSED):
        release(copy, "second", record=record)
    assert not (tmp_path / FOLDER).exists()
    release(copy, "second")  # without it the statement says what is not found
    statement = release(write(made(3), tmp_path / "u.parquet"), "third").statement
    assert any("misses a table in another folder" in line for line in statement.assumptions)


def test_a_release_that_is_allowed_states_the_sum(released: Path):
    with pytest.raises(InputError, match=r"total_epsilon \(--total-epsilon\) of 1 or more"):
        release(released, "second", total_epsilon=0.9)
    assert not run_folder(released.parent / "second.parquet").exists()
    second = release(released, "second", total_epsilon=1.0)
    third = release(
        write(made().take(ORDER[:500]), released.parent / "part.parquet"), "third", prior=0.1, total_epsilon=2.0
    )
    assert (second.statement.epsilon, second.statement.delta) == (1.0, 0.0)
    assert 1.5 - 1e-9 < third.statement.epsilon <= 1.5
    assert second.statement.disclosure["other_releases"] == "1 earlier ones of the same labels are counted here."
    with Ledger.open(second.folder / "ledger.jsonl") as ledger:
        assert ledger.totals.event() == acc.PureDP(0.5, "replace") * 2


class Killed(BaseException):
    """What no code of ours catches."""


def die(done: int, rows: int) -> None:
    raise Killed


def test_a_release_counts_from_its_beginning_and_once(released: Path):
    with pytest.raises(Killed):
        release(released, "second", total_epsilon=1.0, progress=die)
    with pytest.raises(InputError, match="at epsilon 1 in all"):
        release(released, "third")
    third = release(released, "third", total_epsilon=1.5)
    second = release(released, "second", resume=True)  # what was found when it began is in its ledger
    assert (second.statement.epsilon, third.statement.epsilon) == (1.0, 1.5)
    assert len(list((released.parent / FOLDER).iterdir())) == 3


def test_the_record_is_for_its_owner_and_holds_no_label(released: Path):
    record = released.parent / FOLDER
    assert record.stat().st_mode & 0o077 == 0
    for path in record.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".npy"
    assert not any(b"yes" in path.read_bytes() for path in record.rglob("*.*") if path.is_file())


def test_a_record_that_cannot_be_read_or_written_is_one_line(released: Path, monkeypatch: pytest.MonkeyPatch):
    (place,) = released.parent.glob(f"{FOLDER}/*/release.json")
    place.write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        release(released, "second")
    place.unlink()
    (released.parent / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be .*; name another folder \(record, --record\)"):
        release(released, "second", record=released.parent / "file")
    with pytest.raises(InputError, match=r"name another folder \(record, --record\)"):
        release(released, "second", record=released.parent / "none" / "record")


def test_simulations_are_neither_recorded_nor_refused(tmp_path: Path):
    path = write(made(), tmp_path / "t.parquet")
    for name in ("one", "two"):
        release(path, name, seed=1)
    assert not (tmp_path / FOLDER).exists()
    release(path, "first")
    release(path, "three", seed=1)


def test_rows_that_are_remembered_are_limited_and_still_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from sfumato.labels import randomize as past_releases
    from sfumato.labels.files import open_label_file

    monkeypatch.setattr(past_releases, "_MOST", 500)
    whole, part, other = (
        TableIdentity.of(open_label_file(write(table, tmp_path / f"{place}.csv")), "y")
        for place, table in enumerate((made(), made().take(ORDER[:300]), made(1)))
    )
    assert 100 < len(whole.rows) <= 500
    assert whole.matches(part)
    assert part.matches(whole)
    assert not whole.matches(other)


def test_many_outputs_of_one_table_no_longer_average_the_noise_away(tmp_path: Path):
    """15 names at epsilon 0.5: what they give away without the record, and what is left with it."""
    table = made()
    true = np.array(table["y"].to_pylist()) == "yes"

    def votes(records) -> np.ndarray:
        path, found = write(table, tmp_path / "t.parquet"), []
        for number, record in enumerate(records):
            try:
                release(path, f"{record}{number}", record=tmp_path / record)
            except InputError:
                continue
            reports = pq.read_table(tmp_path / f"{record}{number}.parquet")["y"].to_pylist()
            found.append(np.array(reports) == "yes")
        return np.mean(found, axis=0) > 0.5

    separate = votes([f"record{number}" for number in range(15)])
    assert (separate == true).mean() > 0.8
    once = votes(["common"] * 15)
    right = 1 / (1 + np.exp(-0.5))
    assert (once == true).mean() == pytest.approx(right, abs=5 * (0.25 / ROWS) ** 0.5)
