"""The parts of a split, and what a record more changes in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import ExampleDataset, examples_from_arrays, split_examples


def numbered(count: int) -> ExampleDataset:
    return examples_from_arrays(np.arange(count, dtype=np.int64), np.zeros(count, np.int64), num_classes=2)


def members(part: ExampleDataset) -> set[int]:
    return set(part.examples(np.arange(len(part)))[0][0].tolist())


amounts = st.one_of(st.integers(0, 20), st.floats(0, 0.4))


@settings(max_examples=60, deadline=None)
@given(count=st.integers(50, 200), test=amounts, validation=amounts, seed=st.integers(0, 2**31))
def test_one_record_more_moves_at_most_one_record_into_training(count, test, validation, seed) -> None:
    def split(n: int) -> list[set[int]]:
        return [members(part) for part in split_examples(numbered(n), test=test, validation=validation, seed=seed)]

    before, after = split(count), split(count + 1)
    assert set.union(*before) == set(range(count))
    assert sum(map(len, before)) == count
    assert before[0] <= after[0], "no record leaves the training part"
    assert len(after[0] - before[0]) <= 1


def test_a_record_more_stays_alone_also_behind_the_first_block_of_the_stream() -> None:
    before, after = (members(split_examples(numbered(n), test=0.3, seed=2).train) for n in (40_000, 40_001))
    assert after - {40_000} == before


def test_counts_are_exact_and_shares_are_near() -> None:
    parts = split_examples(numbered(5000), test=1000, validation=0.25, seed=3)
    assert len(parts.test) == 1000
    assert abs(len(parts.validation) - 1000) < 6 * np.sqrt(4000 * 0.25 * 0.75)  # six standard deviations: 2e-9
    same = split_examples(numbered(5000), test=1000, validation=0.25, seed=3)
    other = split_examples(numbered(5000), test=1000, validation=0.25, seed=4)
    assert members(parts.train) == members(same.train) != members(other.train)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 10}, "10 examples cannot be divided"),
        ({"test": 1.0}, r"test must be in \[0, 1\)"),
        ({"test": -1}, "test must be a whole number >= 0"),
        ({"validation": True}, "validation must be a whole number"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_examples(numbered(10), **options)
