"""Rows whose order tells their labels are refused, whoever randomises them; an order by chance is not."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import nn

from sfumato._check import InputError
from sfumato.data import examples_from_arrays
from sfumato.labels import LPMST, LabelSettings, RROnBins, randomize_table
from sfumato.labels.row_order import RowOrder

SORTED = np.repeat([0, 1, 2], 40)


def look(labels: np.ndarray, pieces: int = 1, classes: int = 3) -> None:
    order = RowOrder(classes)
    for piece in np.array_split(labels, pieces):
        order.add(piece)
    order.refuse_telling("the rows")


@pytest.mark.parametrize("labels", [SORTED, SORTED[::-1], np.repeat([1, 2, 0], 40)])
@pytest.mark.parametrize("pieces", [1, 7, 120])
def test_classes_in_one_block_each_are_refused(labels, pieces):
    with pytest.raises(InputError, match="the rows: rows of one label stand side by side"):
        look(labels, pieces)


@pytest.mark.parametrize("pieces", [1, 7])
def test_one_row_in_another_place_passes(pieces):
    look(np.concatenate([SORTED, [0]]), pieces)


def test_what_happens_by_chance_passes():
    for labels in ([0, 0, 1, 1], [2] * 500, [0] * 500 + [1], [0, 1, 2]):
        look(np.array(labels))


def test_numbers_that_only_rise_are_refused_and_others_pass():
    numbers = np.arange(30)
    with pytest.raises(InputError, match="side by side"):
        look(numbers, classes=30)
    look(np.random.default_rng(0).permutation(numbers), classes=30)


def test_no_report_is_drawn_of_sorted_rows(tmp_path: Path):
    inputs, out = np.random.default_rng(0).standard_normal((120, 2)).astype(np.float32), tmp_path / "run"
    pq.write_table(pa.table({"y": SORTED}), tmp_path / "t.parquet")
    settings = LabelSettings(label="y", epsilon=1.0, classes=("0", "1", "2"))
    numbers = RROnBins(epsilon=1.0, low=0.0, high=2.0, values=3)
    with pytest.raises(InputError, match="order of rows is public"):
        LPMST(epsilon=1.0).fit(nn.Linear(2, 3), examples_from_arrays(inputs, SORTED), out=out)
    with pytest.raises(InputError, match="order of rows is public"):
        numbers.fit(nn.Linear(2, 1), examples_from_arrays(inputs, SORTED.astype(np.float32)), out=out)
    with pytest.raises(InputError, match="the label 'y': rows of one label"):
        randomize_table(tmp_path / "t.parquet", tmp_path / "o.parquet", settings)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
