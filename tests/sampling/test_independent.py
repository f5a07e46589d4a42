"""Samplers whose rounds are independent: Poisson, of a fixed size, and virtual clients."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.sampling import Cohort, FixedSize, Poisson, SingleUserClients, VirtualClients
from sfumato.sampling.sampler import subset

# Poisson cohorts.

SOURCE = RandomSource.from_seed(3)


def test_every_unit_takes_part_at_the_accounted_rate():
    sampling = Poisson(size=15, population=500)
    counts = np.zeros(500)
    for index in range(1000):
        counts[sampling.draw(500, index, SOURCE)] += 1
    event = sampling.account(acc.Gaussian(1.0))
    # Binomial(1000 × 500, q): false alarm 1e-6 at a fixed seed.
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 500_000, event.sampling_rate)
    assert low <= counts.sum() <= high
    assert stats.chisquare(counts).pvalue > 1e-6


def test_cohort_sizes_vary_like_a_binomial():
    sampling = Poisson(size=20, population=200)
    sizes = np.array([len(sampling.draw(200, i, SOURCE)) for i in range(2000)])
    ratio = sizes.var() / (200 * 0.1 * 0.9)
    assert 0.85 < ratio < 1.15  # sd of the ratio is 0.032: false alarm below 1e-5


def test_a_unit_at_the_end_does_not_change_who_else_takes_part():
    sampling = Poisson(size=20000, population=100_000)
    fewer = sampling.draw(99_999, 1, SOURCE)
    more = sampling.draw(100_000, 1, SOURCE)
    assert np.array_equal(fewer, more[more < 99_999])


def test_nobody_and_everybody():
    assert len(Poisson(size=1, population=1).draw(0, 0, SOURCE)) == 0
    everybody = Poisson(size=70000, population=70_000)
    assert np.array_equal(everybody.draw(70_000, 0, SOURCE), np.arange(70_000))
    assert everybody.account(acc.Gaussian(2.0)) == acc.Gaussian(2.0)


@pytest.mark.parametrize("size", [0, -1, 11, 1.5, float("nan")])
def test_a_size_that_gives_no_probability_is_refused(size):
    with pytest.raises(InputError, match="size"):
        Poisson(size=size, population=10)


def test_a_rate_is_not_known_before_the_population():
    with pytest.raises(InputError, match="population is not known yet"):
        _ = Poisson(size=5).sampling_rate


def test_coins_alone_decide_how_often_a_unit_takes_part():
    assert Poisson(size=5, population=10).participation(100) is None


# Cohorts of a fixed size.

FIXED_SOURCE = RandomSource.from_seed(4)


def test_all_subsets_are_equally_likely():
    sampling = FixedSize(size=2, population=5)
    seen: dict[tuple[int, ...], int] = {}
    for index in range(5000):
        key = tuple(sampling.draw(5, index, FIXED_SOURCE).tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6


def floyd(size: int, whole: int, picks: np.ndarray) -> list[int]:
    """Bentley and Floyd 1987, step by step, from the same draws."""
    chosen: set[int] = set()
    for last, pick in zip(range(whole - size, whole), picks.tolist(), strict=True):
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


@pytest.mark.parametrize(("size", "whole"), [(1, 1), (5, 5), (1, 9), (7, 8), (40, 50), (64, 1000), (700, 1000)])
def test_a_subset_is_that_of_floyds_algorithm_step_by_step(size, whole):
    for index in range(40):
        picks = FIXED_SOURCE.stream("f", index).integers_below(np.arange(whole - size + 1, whole + 1, dtype=np.uint64))
        found = subset(size, whole, FIXED_SOURCE.stream("f", index))
        assert found.tolist() == floyd(size, whole, picks)
        assert found.dtype == np.int64


@pytest.mark.parametrize(("size", "subsets"), [(1, 6), (3, 20), (5, 6), (6, 1)])
def test_all_subsets_of_six_are_equally_likely(size, subsets):
    stream = FIXED_SOURCE.stream("equal", size)
    seen = Counter(tuple(subset(size, 6, stream).tolist()) for _ in range(4000))
    assert len(seen) == subsets
    if subsets > 1:
        assert stats.chisquare(list(seen.values())).pvalue > 1e-6  # the false alarm rate, at a fixed seed


def test_a_draw_has_the_size_and_no_repeats():
    draw = FixedSize(size=64, population=1000).draw(1000, 0, FIXED_SOURCE)
    assert len(np.unique(draw)) == 64
    assert draw.min() >= 0
    assert draw.max() < 1000


def test_it_is_never_accounted_as_poisson():
    fixed = FixedSize(size=10, population=1000).account(acc.Gaussian(0.8))
    poisson = acc.Gaussian(0.8).poisson(0.01)
    assert acc.guarantee(fixed * 100, "replace").epsilon(1e-6) > acc.guarantee(poisson * 100).epsilon(1e-6)


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(InputError, match="11 units a round cannot be drawn from 10"):
        FixedSize(size=11, population=10)


def test_another_number_of_users_than_planned_is_refused():
    with pytest.raises(InputError, match="planned for 10 users but 9"):
        FixedSize(size=3, population=10).draw(9, 0, FIXED_SOURCE)


def test_coins_alone_decide_how_often_a_unit_is_in_a_cohort_of_fixed_size():
    assert FixedSize(size=3, population=10).participation(100) is None


# Cohorts: arrays that say who contributes together.

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


# Virtual clients.

CLIENTS_SOURCE = RandomSource.from_seed(5)


def slots_of(cohort: Cohort) -> dict[int, int]:
    return {user: int(slot) for i, slot in enumerate(cohort.slots) for user in cohort.members(i).tolist()}


def test_one_user_more_leaves_everybody_elses_group_alone():
    users = np.arange(0, 60, 3)
    for other in (0, 30, 57):
        clients = VirtualClients(clients=7)
        whole = slots_of(clients.group(users, 2, CLIENTS_SOURCE))
        without = slots_of(clients.group(users[users != other], 2, CLIENTS_SOURCE))
        del whole[other]
        assert without == whole


def test_users_are_spread_uniformly_and_independently():
    counts = np.zeros((4, 4))
    for index in range(3000):
        slots = slots_of(VirtualClients(clients=4).group(np.array([3, 9]), index, CLIENTS_SOURCE))
        counts[slots[3], slots[9]] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-6


def test_empty_groups_are_left_out_and_nobody_is_lost():
    cohort = VirtualClients(clients=50).group(np.arange(10), 0, CLIENTS_SOURCE)
    assert (np.diff(cohort.offsets) > 0).all()
    assert (np.diff(cohort.slots) > 0).all()
    assert sorted(slots_of(cohort)) == sorted(cohort.units.tolist()) == list(range(10))
    assert len(VirtualClients(clients=3).group(np.arange(0), 0, CLIENTS_SOURCE)) == 0


def test_own_clients_are_named_by_the_user():
    assert slots_of(SingleUserClients(clients=4).group(np.array([2, 8]), 0, CLIENTS_SOURCE)) == {2: 2, 8: 8}


def test_by_how_much_one_user_moves_the_sum():
    assert SingleUserClients(clients=1).relative_sensitivity("add_remove") == 1
    assert SingleUserClients(clients=1).relative_sensitivity("replace") == 2
    assert VirtualClients(clients=1).relative_sensitivity("add_remove") == 2
    assert VirtualClients(clients=1).relative_sensitivity("replace") == 2
