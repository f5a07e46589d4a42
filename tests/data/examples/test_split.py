"""The parts of a split, and what a record more changes in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.data import ExampleDataset, examples_from_arrays, split_examples
from slow import by_profile


def numbered(count: int) -> ExampleDataset:
    return examples_from_arrays(np.arange(count, dtype=np.int64), np.zeros(count, np.int64), num_classes=2)


def members(part: ExampleDataset) -> set[int]:
    return set(part.examples(np.arange(len(part)))[0][0].tolist())


amounts = st.floats(0, 0.4)


@settings(max_examples=by_profile(60), deadline=None)
@given(count=st.integers(50, 200), test=amounts, validation=amounts, seed=st.integers(0, 2**31))
def test_one_record_more_at_the_end_moves_no_other(count, test, validation, seed) -> None:
    def split(n: int) -> list[set[int]]:
        return [members(part) for part in split_examples(numbered(n), test=test, validation=validation, seed=seed)]

    before, after = split(count), split(count + 1)
    assert set.union(*before) == set(range(count))
    assert sum(map(len, before)) == count
    assert [part - {count} for part in after] == before


def test_a_record_more_stays_alone_also_behind_the_first_block_of_the_stream() -> None:
    before, after = (members(split_examples(numbered(n), test=0.3, seed=2).train) for n in (40_000, 40_001))
    assert after - {40_000} == before


def test_shares_are_near_and_a_seed_repeats_itself() -> None:
    parts = split_examples(numbered(5000), test=0.2, validation=0.25, seed=3)
    for part, share in ((parts.test, 0.2), (parts.validation, 0.25)):
        assert abs(len(part) - 5000 * share) < 6 * np.sqrt(5000 * share * (1 - share))  # 6 standard deviations: 2e-9
    same = split_examples(numbered(5000), test=0.2, validation=0.25, seed=3)
    other = split_examples(numbered(5000), test=0.2, validation=0.25, seed=4)
    assert members(parts.train) == members(same.train) != members(other.train)


def test_a_division_by_position_is_an_assumption_of_the_training_part() -> None:
    (said,) = split_examples(numbered(100), test=0.2).train.assumptions
    assert said == Assumption("divided_by_position", {"things": "examples"})
    assert split_examples(numbered(100), test=0).train.assumptions == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": range(10)}, "10 examples cannot be split into 10 for test"),
        ({"test": 1.0}, r"test must be in \[0, 1\)"),
        ({"test": 3}, "for an exact number of examples name them"),
        ({"test": -1}, r"test must be in \[0, 1\), got -1"),
        ({"validation": True}, "validation must be a share"),
        ({"seed": -1}, "seed must be a whole number >= 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        split_examples(numbered(10), **options)
