"""A text file whose columns are divided by another mark than its name says, and numbers with a comma."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.data import ehr_from_events, ehr_from_tables, open_examples, open_users
from sfumato.labels.files import open_label_file

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
