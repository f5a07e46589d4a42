"""Labels become numbers and back, in every type of column; what cannot is refused by its row."""

import numpy as np
import pyarrow as pa
import pytest

from sfumato._check import InputError
from sfumato.labels.table import ClassCoding, GridCoding


@pytest.mark.parametrize(
    ("classes", "column"),
    [
        (["a", "b", "c"], pa.array(["c", "a"])),
        (["a", "b", "c"], pa.array(["c", "a"], pa.large_string())),
        (["0", "1", "5"], pa.array([5, 0])),
        (["0", "1", "5"], pa.array([5, 0], pa.int8())),
        (["0", "1", "5"], pa.array([5.0, 0.0])),
        (["false", "maybe", "true"][::2], pa.array([True, False])),
    ],
)
def test_classes_have_the_type_of_the_column(classes, column):
    coding = ClassCoding(classes, column.type)
    numbers = coding.numbers(column, "the label", 0)
    assert numbers.tolist() == [len(classes) - 1, 0]
    assert coding.column(numbers).equals(column)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array(["a", "x"]), "the label at position 11 is 'x', which is none of the classes a, b; add it to them"),
        (pa.array(["a", None]), r"the label is missing \(null\) at position 11; fill it in or drop the row"),
    ],
)
def test_a_label_that_is_no_class_is_refused_by_its_row(column, told):
    with pytest.raises(InputError, match=told):
        ClassCoding(["a", "b"], pa.string()).numbers(column, "the label", 10)


@pytest.mark.parametrize(
    ("classes", "kind", "told"),
    [
        (["a"], pa.string(), "classes must be a whole number >= 2, got 1"),
        (["a", "b", "a"], pa.string(), "got 'a' twice"),
        (["1", "01"], pa.int64(), "twice"),
        (["1", "two"], pa.int64(), "classes must be of the label's type, int64"),
        (["1", "300"], pa.int8(), "classes must be of the label's type, int8"),
    ],
)
def test_classes_that_the_column_cannot_have_are_refused(classes, kind, told):
    with pytest.raises(InputError, match=told):
        ClassCoding(classes, kind)


def test_numbers_go_to_the_nearest_value_and_not_beyond_the_ends():
    coding = GridCoding(0.5, 5.0, 10)
    cells = pa.array([0.5, 0.74, 0.76, 3.0, 99.0, -99.0, float("inf")])
    assert coding.numbers(cells, "the label", 0).tolist() == [0, 0, 1, 5, 9, 0, 9]
    assert coding.numbers(pa.array(["1", "4.5"]), "the label", 0).tolist() == [1, 8]
    assert coding.column(np.array([0.25])).to_pylist() == [0.25]


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (pa.array([1.0, float("nan")]), "the label at position 6 is nan"),
        (pa.array([1.0, None]), "missing"),
        (
            pa.array(["1", "much"]),
            "the label must be numbers where low and high are given: .*; for classes give classes",
        ),
    ],
)
def test_what_is_no_number_is_refused(cells, told):
    with pytest.raises(InputError, match=told):
        GridCoding(0.0, 1.0, 2).numbers(cells, "the label", 5)
