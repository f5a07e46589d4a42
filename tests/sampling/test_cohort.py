"""Cohorts: arrays that say who contributes together."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.sampling import Cohort

SLICES = [slice(None), slice(0, 0), slice(1, 3), slice(2, None), slice(0, None, 2), slice(1, None, 3), slice(9, 12)]


def cohort_of(groups: list[list[int]]) -> Cohort:
    units = np.array([unit for group in groups for unit in group], np.int64)
    offsets = np.cumsum([0, *(len(group) for group in groups)])
    return Cohort(np.arange(len(groups)) * 3, units, offsets)


def told(cohort: Cohort) -> list[tuple[int, list[int]]]:
    return [(int(cohort.slots[i]), cohort.members(i).tolist()) for i in range(len(cohort))]


@given(sizes=st.lists(st.integers(1, 4), max_size=7), part=st.sampled_from(SLICES))
def test_a_part_of_a_cohort_is_that_part_of_its_contributors(sizes, part):
    ends = np.cumsum([0, *sizes])
    groups = [list(range(start, end)) for start, end in pairwise(ends)]
    assert told(cohort_of(groups).take(part)) == told(cohort_of(groups))[part]
    assert cohort_of(groups).take(part).units.tolist() == [unit for group in groups[part] for unit in group]


@given(sizes=st.lists(st.integers(1, 4), max_size=7), parts=st.integers(1, 4))
def test_what_a_team_shares_out_is_the_whole_cohort_once(sizes, parts):
    ends = np.cumsum([0, *sizes])
    whole = cohort_of([list(range(start, end)) for start, end in pairwise(ends)])
    shared = [row for rank in range(parts) for row in told(whole.take(slice(rank, None, parts)))]
    assert sorted(shared) == told(whole)


@pytest.mark.parametrize("part", SLICES, ids=str)
def test_single_units_are_their_own_slots_also_in_parts(part):
    units = np.array([2, 5, 6, 9, 30])
    assert told(Cohort.of_single_units(units).take(part)) == [(unit, [unit]) for unit in units[part].tolist()]


@pytest.mark.parametrize(
    "empty", [Cohort.of_single_units(np.empty(0, np.int64)), cohort_of([])], ids=["single", "several"]
)
def test_nobody_is_an_ordinary_cohort(empty):
    assert len(empty) == 0
    assert told(empty.take(slice(1, None, 2))) == []
