"""Delimited text is read cell by cell as it is written, or refused in one line that names the row."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data.readers.delimited import Delimited, _Quotes

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
def test_the_name_or_the_first_line_tells_the_delimiter(name: str, tmp_path: Path) -> None:
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
        (b"a,b\n" + b"x" * (1 << 24) + b",1\n", "cannot be read: field larger than field limit"),
        (b'a,b\n1,"x\n2,y\n3,z\n', "line 2 opens a quote that nothing closes in its field; close it"),
        (b'\xef\xbb\xbf"a,b\n1,2\n', "line 1 opens a quote that nothing closes"),
        (b'a,b\n1,"x\n2,y\n3,"z"\n4,u\n', "line 2 opens a quote that nothing closes"),
        (b'a,b\n5" pipe,1\n1,"x\n2,y\n3,"z"\n4,u\n', "line 3 opens a quote that nothing closes"),
        (b'a,b\r\n"x""\r\n""y",1\r\n2,"a"""\r\n3,"\r\n', "line 5 opens a quote that nothing closes"),
        (b'a,b\n1,"x\n' + b"2,y\n" * (3 << 20), "line 2 opens a quote that nothing closes"),
        (b"a,b\n" + b"2,y\n" * (3 << 20) + b'1,"x\n' + b"2,y\n" * (3 << 20), f"line {2 + (3 << 20)} opens a quote"),
    ],
)
def test_bad_text_is_refused_in_one_line_with_its_row(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        _read_all(tmp_path / "rows.csv")
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


@settings(deadline=None)
@given(st.lists(st.text('"",ab \n', max_size=9), min_size=1, max_size=6), st.integers(1, 9))
def test_quotes_are_followed_alike_whatever_the_blocks(fields: list[str], size: int) -> None:
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
    with pytest.raises(InputError, match="cannot be read: Compressed file ended"):
        list(Delimited(tmp_path / "rows.csv.gz").blocks([0], 10))
