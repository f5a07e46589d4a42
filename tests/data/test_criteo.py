"""Criteo's display log and attribution log, read by the schemas of that name."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.data import criteo_schema, open_examples
from sfumato.data.text import hashed_id

COUNTS = ["1", "-2", "", "0", "1382", "4", "15", "2", "181", "1", "2", "", "2000000"]
HASHES = [f"{1 << 27 | column:08x}" for column in range(26)]
ATTRIBUTION = [
    *("timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id", "attribution", "click"),
    *("click_pos", "click_nb", "cost", "cpo", "time_since_last_click", *(f"cat{i}" for i in range(1, 10))),
]


def display(*rows: list[str]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("name", ["train.txt", "day_0.gz", "clicks.tsv", "clicks.tsv.gz"])
def test_a_display_log_is_read_without_a_header(name: str, tmp_path: Path) -> None:
    content = display(["0", *COUNTS, *HASHES], ["1", *[""] * 13, *[""] * 26])
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    data = open_examples(tmp_path / name, schema="criteo:100")
    assert list(data.targets) == [0, 1]  # type: ignore[arg-type]
    assert data.vocabulary_sizes == (101,) * 26
    (numbers, ids), _ = data.examples([0, 1])
    assert ids.tolist() == [[hashed_id(value, 101) for value in HASHES], [0] * 26]
    clipped = np.array([min(max(float(value or 0), 0), 1e6) for value in COUNTS])
    np.testing.assert_allclose(numbers[0, ::2], 2 * np.log1p(clipped) / np.log1p(1e6) - 1, atol=1e-6)
    assert numbers[0, 1::2].tolist() == [1.0 if value == "" else -1.0 for value in COUNTS]
    assert (numbers[1, 1::2] == 1).all()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "2", "line 2: the label '2' is none of 0, 1"),
        (0, "", "line 2: the label '' is none of 0, 1"),
        (1, "x", "line 2: 'I1' is numeric, got 'x'"),
        (14, "xyz", "line 2: 'C1' must be at most 8 hexadecimal digits, got 'xyz'"),
        (39, "0123456789", "line 2: 'C26' must be at most 8 hexadecimal digits, got '0123456789'"),
        (39, None, "line 2 has 39 columns, the first row has 40"),
    ],
)
def test_a_row_that_is_not_in_the_format_is_named(place: int, value: str | None, message: str, tmp_path: Path) -> None:
    row = ["1", *COUNTS, *HASHES]
    wrong = [*row[:place], *([] if value is None else [value]), *row[place + 1 :]]
    (tmp_path / "train.txt").write_bytes(display(row, wrong))
    with pytest.raises(InputError, match=message) as caught:
        open_examples(tmp_path / "train.txt", schema="criteo")
    assert "\n" not in str(caught.value)


def test_a_file_of_other_columns_is_no_display_log(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(display(["1", *COUNTS]))
    with pytest.raises(InputError, match=r"must have 40 columns divided by .*, got 14 in its first row"):
        open_examples(tmp_path / "train.txt", schema="criteo")
    (tmp_path / "train.txt").write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        open_examples(tmp_path / "train.txt", schema="criteo")


@pytest.mark.parametrize("label", ["click", "conversion"])
def test_an_attribution_log_is_read_by_its_header(label: Any, tmp_path: Path) -> None:
    row = dict.fromkeys(ATTRIBUTION, "5") | {"click": "1", "conversion": "0", "time_since_last_click": "-1"}
    lines = ["\t".join(ATTRIBUTION), "\t".join(row.values())]
    (tmp_path / "log.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    data = open_examples(tmp_path / "log.tsv.gz", schema=criteo_schema("attribution", buckets=50, label=label))
    assert list(data.targets) == [int(label == "click")]  # type: ignore[arg-type]
    assert data.num_users == 1
    assert data.columns[1] == ("campaign", *(f"cat{i}" for i in range(1, 10)))
    assert data.inputs[0][0].tolist() == [-1.0, -1.0]
    (tmp_path / "short.tsv").write_text("\n".join(line.rpartition("\t")[0] for line in lines))
    with pytest.raises(InputError, match="has no column 'cat9' of the schema"):
        open_examples(tmp_path / "short.tsv", schema="criteo-attribution")


def test_an_attribution_log_without_its_header_is_refused_by_that(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("\n".join(["\t".join(["5"] * len(ATTRIBUTION))] * 2))
    with pytest.raises(InputError, match=r"if its header is missing, write one above the rows \(.*, …\)") as caught:
        open_examples(tmp_path / "log.tsv", schema="criteo-attribution")
    assert "'5'" not in str(caught.value)  # the first line is a record


def test_blocks_of_rows_are_one_log_and_a_store_holds_it(tmp_path: Path) -> None:
    rows = [[str(i % 2), *COUNTS, *HASHES[:25], f"{i:08x}"] for i in range(5000)]
    (tmp_path / "train.txt").write_bytes(display(*rows))
    data = open_examples(tmp_path / "train.txt", schema="criteo")
    assert data.inputs[1][4999][25] == hashed_id(f"{4999:08x}", 10_001)
    stored = open_examples(tmp_path / "train.txt", schema="criteo", store=tmp_path / "store")
    assert stored.fingerprint() == data.fingerprint()
    rows[4500][39] = "-7"
    (tmp_path / "train.txt").write_bytes(display(*rows))
    with pytest.raises(InputError, match="line 4501: 'C26' must be"):
        open_examples(tmp_path / "train.txt", schema="criteo")


@pytest.mark.parametrize("name", ["criteo:", "criteo:0", "criteo-attribution:-1", "criteo:many"])
def test_a_format_takes_a_number_of_buckets(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(display(["1", *COUNTS, *HASHES]))
    with pytest.raises(InputError, match="BUCKETS needs a whole number >= 1"):
        open_examples(tmp_path / "train.txt", schema=name)


def test_the_display_log_has_clicks_only() -> None:
    with pytest.raises(InputError, match="has clicks only, got label='conversion'"):
        criteo_schema(label="conversion")


@pytest.mark.shared
def test_a_sample_of_the_display_log_is_read_and_its_copy_without_trailing_tabs_is_refused(
    shared: Path, tmp_path: Path
) -> None:
    lines = [line.split("\t") for line in (shared / "criteo_sample" / "train_1000.txt").read_text().splitlines()]
    assert {len(line) for line in lines} == {37, 38, 40}
    with pytest.raises(InputError, match="line 3 has 38 columns, the first row has 40"):
        open_examples(shared / "criteo_sample" / "train_1000.txt", schema="criteo")
    rows = [[*line, *[""] * (40 - len(line))] for line in lines]
    (tmp_path / "whole.txt").write_bytes(display(*rows))
    data = open_examples(tmp_path / "whole.txt", schema="criteo")
    assert list(data.targets) == [int(row[0]) for row in rows]  # type: ignore[arg-type]
    assert ((data.inputs[1][:] == 0) == [[cell == "" for cell in row[14:]] for row in rows]).all()
