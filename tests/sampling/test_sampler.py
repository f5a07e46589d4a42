"""Samplers: rounds that are independent, whole runs with limits, and in which rounds a unit was."""

import copy
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.accounting import Participation
from sfumato.sampling import (
    Cohort,
    CyclicPoisson,
    FixedSize,
    MinSeparation,
    Poisson,
    Shuffled,
    SingleUserClients,
    VirtualClients,
)
from sfumato.sampling.limited import ParticipationLog, choose
from sfumato.sampling.sampler import subset

# Samplers whose rounds are independent: Poisson, of a fixed size, and virtual clients.

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


def test_no_one_and_everybody():
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
def test_no_one_is_an_ordinary_cohort(empty):
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


def test_empty_groups_are_left_out_and_no_one_is_lost():
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


# Samplers that limit how often a unit takes part: whole runs, and in which rounds a unit was.

# What the tests of samplers with limits share: whole runs, and in which rounds a unit was.
Limited = CyclicPoisson | MinSeparation | Shuffled


def drawn(sampler: Limited, source: RandomSource) -> list[np.ndarray]:
    """The cohorts of all rounds, in order."""
    return [sampler.draw(sampler.population, index, source) for index in range(sampler.rounds)]


def patterns(cohorts: Sequence[np.ndarray], population: int) -> list[list[int]]:
    """The rounds of each unit, ascending."""
    found: list[list[int]] = [[] for _ in range(population)]
    for index, cohort in enumerate(cohorts):
        assert cohort.dtype == np.int64
        assert (np.diff(cohort) > 0).all()
        for unit in cohort.tolist():
            found[unit].append(index)
    return found


def keeps_its_promise(sampler: Limited, source: RandomSource) -> bool:
    """Whether every unit's rounds are allowed, in the whole run and in each beginning of it."""
    rounds_of = patterns(drawn(sampler, source), sampler.population)
    for rounds in range(1, sampler.rounds + 1):
        limits = sampler.participation(rounds)
        assert limits is not None
        if not all(limits.allows([index for index in each if index < rounds]) for each in rounds_of):
            return False
    return True


# Cyclic Poisson cohorts.
CYCLIC_SOURCE = RandomSource.from_seed(7)


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 99))
def test_a_unit_is_in_the_rounds_of_one_part_only(parts, more, seed):
    sampling = CyclicPoisson(size=2, population=2 * parts + more, parts=parts, rounds=12)
    source = RandomSource.from_seed(seed)
    assert keeps_its_promise(sampling, source)
    rounds_of = patterns(drawn(sampling, source), sampling.population)
    assert all(len({index % parts for index in each}) <= 1 for each in rounds_of)


def patterns_of_everybody(sampling: CyclicPoisson) -> list[list[int]]:
    return patterns(drawn(sampling, CYCLIC_SOURCE), sampling.population)


def test_parts_are_even_and_a_unit_of_a_part_takes_part_at_the_accounted_rate():
    sampling = CyclicPoisson(size=30, population=600, parts=4, rounds=1200)
    assert sampling.sampling_rate == 0.2
    rounds_of = patterns_of_everybody(sampling)
    # 300 turns at rate 0.2: a unit is in none with probability 1e-29. False alarms 1e-6 each, at a fixed seed.
    assert stats.chisquare(np.bincount([each[0] % 4 for each in rounds_of])).pvalue > 1e-6
    counts = np.array([len(each) for each in rounds_of])
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 600 * 300, 0.2)
    assert low <= counts.sum() <= high
    assert stats.chisquare(counts).pvalue > 1e-6


def test_coins_of_two_units_of_a_part_are_independent():
    sampling = CyclicPoisson(size=1, population=8, parts=4, rounds=16_000)
    rounds_of = [set(each) for each in patterns_of_everybody(sampling)]
    part_of = [min(each) % 4 for each in rounds_of]
    first, second = next((a, b) for a in range(8) for b in range(a) if part_of[a] == part_of[b])
    turns = range(part_of[first], sampling.rounds, 4)
    seen = np.array([[t in rounds_of[first], t in rounds_of[second]] for t in turns])
    table = [[(seen == [a, b]).all(axis=1).sum() for b in (0, 1)] for a in (0, 1)]
    assert stats.chisquare(np.ravel(table)).pvalue > 1e-6  # rate 1/2: all four equally likely; false alarm 1e-6


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_a_unit_that_comes_does_not_change_the_parts_and_coins_of_others(parts):
    sampling = CyclicPoisson(size=2, population=400, parts=parts, rounds=100)
    for index in range(100):
        more = sampling.draw(400, index, CYCLIC_SOURCE)
        for present in (399, 250, 1, 0):
            assert np.array_equal(sampling.draw(present, index, CYCLIC_SOURCE), more[more < present])


def test_one_part_is_poisson_sampling():
    cyclic = CyclicPoisson(size=5, population=100, parts=1, rounds=20)
    poisson = Poisson(size=5, population=100)
    for index in range(20):
        assert np.array_equal(cyclic.draw(90, index, CYCLIC_SOURCE), poisson.draw(90, index, CYCLIC_SOURCE))
    assert cyclic.account(acc.Gaussian(1.0)) == poisson.account(acc.Gaussian(1.0))
    assert cyclic.describe() == poisson.describe()


def test_any_order_of_asking_gives_the_same_cyclic_cohorts():
    sampling = CyclicPoisson(size=5, population=100, parts=4, rounds=20)
    first = drawn(sampling, CYCLIC_SOURCE)
    other = RandomSource.from_seed(8)
    assert all(map(np.array_equal, drawn(sampling, other), drawn(replace(sampling), other)))
    assert not all(map(np.array_equal, first, drawn(sampling, other)))
    for index in [19, 0, 7, 7]:
        assert np.array_equal(sampling.draw(100, index, CYCLIC_SOURCE), first[index])
        assert np.array_equal(replace(sampling).draw(100, index, CYCLIC_SOURCE), first[index])


def test_several_parts_have_no_event_of_a_round():
    with pytest.raises(InputError, match=r"4 parts has no event of its own.*account the run by cyclic_poisson"):
        CyclicPoisson(size=5, population=100, parts=4, rounds=20).account(acc.Gaussian(1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": 4}, "4 parts of 10 units have 2.5 units each on average, got cohorts of 3; lower size or parts"),
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ({"parts": 1.5}, "parts must be a whole number >= 1, got 1.5"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"rounds": 2}, "parts must be <= rounds = 2, got 3"),
    ],
)
def test_bad_values_of_cycles_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        CyclicPoisson(**{"size": 3, "population": 10, "parts": 3, "rounds": 9, **changes})


def test_the_statement_says_parts_and_rate():
    sampling = CyclicPoisson(size=5, population=100, parts=4, rounds=20)
    assert sampling.describe() == "cyclic Poisson, 4 random parts in turn, rate 0.2 a round of a unit's part"
    assert sampling.adjacency == "add_remove"


# Cohorts of units that sit out after each round.
RUN_SOURCE = RandomSource.from_seed(9)
PLAN = MinSeparation(size=3, population=20, min_separation=3, max_participations=3, rounds=14)


@given(
    st.integers(1, 5), st.integers(0, 100), st.integers(0, 5), st.integers(1, 5) | st.none(), st.integers(1, 16),
    st.floats(0.05, 1.0), st.floats(0.0, 0.95), st.integers(0, 99),
)  # fmt: skip
def test_no_unit_is_in_more_rounds_than_promised_or_sooner(size, more, apart, cap, rounds, present, lost, seed):
    try:
        sampling = MinSeparation(
            size=size, population=size + more, min_separation=apart, max_participations=cap, rounds=rounds,
            availability=present, drop_out=lost,
        )  # fmt: skip
    except InputError:
        assume(False)
        return
    assert keeps_its_promise(sampling, RandomSource.from_seed(seed))


def test_everybody_would_come_sooner_without_the_limits():
    free = replace(PLAN, min_separation=0, max_participations=None)
    rounds_of = patterns(drawn(free, RUN_SOURCE), 20)
    assert not all(PLAN.limits.allows(each) for each in rounds_of)


def test_cohorts_are_full_where_everybody_checks_in():
    sampling = MinSeparation(size=5, population=20, min_separation=3, max_participations=None, rounds=30)
    assert all(len(cohort) == 5 for cohort in drawn(sampling, RUN_SOURCE))


def test_a_round_goes_on_with_those_who_are_there_or_with_no_one():
    sampling = replace(PLAN, availability=0.05)
    sizes = {len(cohort) for seed in range(20) for cohort in drawn(sampling, RandomSource.from_seed(seed))}
    assert 0 in sizes
    assert max(sizes) <= 3
    assert len(sizes) > 1


@pytest.mark.parametrize("availability", [1.0, 0.5])
def test_a_unit_that_did_not_report_is_charged_like_one_that_did(availability):
    """So who is chosen later on does not depend on who reported."""
    everybody = replace(PLAN, availability=availability)
    chosen = drawn(everybody, RUN_SOURCE)
    reported = drawn(replace(everybody, drop_out=0.5), RUN_SOURCE)
    assert all(np.isin(some, each).all() for some, each in zip(reported, chosen, strict=True))
    assert 0 < sum(map(len, reported)) < sum(map(len, chosen))


@pytest.mark.parametrize(("population", "availability"), [(6, 1.0), (6, 0.4), (200, 1.0), (200, 0.02)])
def test_all_subsets_of_the_eligible_are_equally_likely(population, availability):
    """By candidates and by a pass over all: units 0 and 1 have been used up."""
    log = ParticipationLog(population, acc.Participation(rounds=9, max_participations=1))
    log.admit(np.array([0, 1]), 0)
    stream, seen, sizes = RUN_SOURCE.stream("test", population), Counter(), Counter()
    for _ in range(6000):
        found = choose(log, 1, 2, population, availability, stream)
        assert len(np.unique(found)) == len(found)
        sizes[len(found)] += 1
        seen[tuple(sorted(found.tolist())) if population == 6 else ()] += 1
        seen.update(found.tolist())
    assert seen[0] == seen[1] == 0
    assert stats.chisquare([seen[unit] for unit in range(2, population)]).pvalue > 1e-6  # false alarms, a fixed seed
    # How many there are: at least two of so many coins, one, or none.
    coins = stats.binom(population - 2, availability)
    chances = [coins.pmf(0), coins.pmf(1), coins.sf(1)]
    for size, chance in enumerate(chances):
        low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 6000, chance)
        assert low <= sizes[size] <= high
    if population == 6:
        pairs = [seen[a, b] for a in range(2, 6) for b in range(a + 1, 6)]
        assert stats.chisquare(pairs).pvalue > 1e-6


def test_no_one_is_chosen_twice_where_candidates_are_drawn_again():
    log = ParticipationLog(2000, acc.Participation(rounds=9, max_participations=1))
    for index in range(400):  # a second block of about 20, of whom 16 in 2000 were found before
        found = choose(log, 0, 20, 2000, 0.4, RUN_SOURCE.stream("again", index))
        assert len(found) == len(np.unique(found)) == 20


def test_histories_of_two_rounds_have_the_chances_that_were_worked_out():
    """One of three units a round, one round between, each there with probability 1/2, reports with 3/4."""
    sampling = MinSeparation(
        size=1, population=3, min_separation=1, max_participations=None, rounds=2, availability=0.5, drop_out=0.25
    )
    seen = Counter()
    for seed in range(8000):
        first, second = drawn(sampling, RandomSource.from_seed(seed))
        seen[len(first), len(second), bool(len(first)) and bool(len(second)) and int(first[0]) == int(second[0])] += 1
    assert not any(same for _, _, same in seen)
    any_of = {units: 1 - 0.5**units for units in (2, 3)}  # somebody checked in; 2 are eligible if one was chosen
    both = any_of[3] * 0.75 * any_of[2] * 0.75
    first_only = any_of[3] * 0.75 - both
    second_only = (any_of[3] * 0.25 * any_of[2] + (1 - any_of[3]) * any_of[3]) * 0.75
    chances = {(1, 1): both, (1, 0): first_only, (0, 1): second_only, (0, 0): 1 - both - first_only - second_only}
    found = [seen[pair[0], pair[1], False] for pair in chances]
    assert stats.chisquare(found, 8000 * np.array(list(chances.values()))).pvalue > 1e-6  # false alarms 1e-6


@pytest.mark.parametrize("changes", [{}, {"availability": 0.3, "drop_out": 0.2}])
def test_any_order_of_asking_gives_the_same_cohorts(changes):
    sampling = replace(PLAN, **changes)
    first = drawn(sampling, RUN_SOURCE)
    other = RandomSource.from_seed(10)
    assert not all(map(np.array_equal, first, drawn(sampling, other)))
    for index in [13, 0, 5, 5, 4, 13]:
        assert np.array_equal(sampling.draw(20, index, RUN_SOURCE), first[index])
        assert np.array_equal(replace(sampling).draw(20, index, RUN_SOURCE), first[index])  # after a resume


def test_a_cohort_that_a_caller_overwrites_is_drawn_as_it_was():
    first = PLAN.draw(20, 3, RUN_SOURCE)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(PLAN.draw(20, 3, RUN_SOURCE), kept)


def test_a_round_that_was_broken_off_is_drawn_as_if_it_had_not_been(monkeypatch):
    expected = drawn(replace(PLAN), RUN_SOURCE)
    sampling, bernoulli = replace(PLAN), Stream.bernoulli
    sampling.draw(20, 3, RUN_SOURCE)
    calls = []

    def break_off(stream, rate, count):
        calls.append(rate)
        if rate == 0.0:  # the coins of drop-outs, after the cohort was written down
            raise KeyboardInterrupt
        return bernoulli(stream, rate, count)

    monkeypatch.setattr(Stream, "bernoulli", break_off)
    with pytest.raises(KeyboardInterrupt):
        sampling.draw(20, 4, RUN_SOURCE)
    monkeypatch.undo()
    assert calls
    assert np.array_equal(sampling.draw(20, 4, RUN_SOURCE), expected[4])


def test_what_a_sampler_remembers_is_no_part_of_it():
    fresh, used = replace(PLAN), replace(PLAN)
    used.draw(20, 5, RUN_SOURCE)
    assert fresh == used
    assert hash(fresh) == hash(used)
    assert repr(fresh) == repr(used)
    assert pickle.dumps(fresh) == pickle.dumps(used)  # so no key of a run is in it
    assert copy.deepcopy(used) == used


def numbers_drawn(monkeypatch, sampling: MinSeparation) -> int:
    """Words that the last of the rounds took, and units that the log was asked about."""
    count = 0
    uint64, eligible = Stream.uint64, ParticipationLog.eligible

    def words(stream, number):
        nonlocal count
        count += number
        return uint64(stream, number)

    def asked(log, units, round):
        nonlocal count
        found = eligible(log, units, round)
        count += len(found)
        return found

    for index in range(4):
        sampling.draw(sampling.population, index, RUN_SOURCE)
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "uint64", words)
        patch.setattr(ParticipationLog, "eligible", asked)
        sampling.draw(sampling.population, 4, RUN_SOURCE)
    return count


@pytest.mark.parametrize("availability", [1.0, 0.1])
def test_the_work_of_a_round_does_not_grow_with_the_population(monkeypatch, availability):
    planned = MinSeparation(
        size=50, population=50_000, min_separation=20, max_participations=None, rounds=100, availability=availability
    )
    larger = replace(planned, population=500_000)
    few, many = numbers_drawn(monkeypatch, planned), numbers_drawn(monkeypatch, larger)
    assert max(few, many) <= 10 * planned.size / availability  # a pass over all would take ten times as many
    assert many < 1.1 * few


def test_a_round_in_order_goes_on_from_the_one_before(monkeypatch):
    made = []
    stream = RandomSource.stream
    monkeypatch.setattr(RandomSource, "stream", lambda self, *labels: made.append(labels) or stream(self, *labels))
    drawn(replace(PLAN), RUN_SOURCE)
    assert made == [("check-ins", index) for index in range(14)]


def test_a_round_has_no_event_of_its_own():
    with pytest.raises(InputError, match=r"at most 3 of 14 rounds a unit\); account by event"):
        PLAN.account(acc.Gaussian(1.0))


def test_the_whole_run_is_accounted_by_the_promise():
    limits = PLAN.participation(14)
    assert limits == acc.Participation(rounds=14, max_participations=3, min_separation=3)
    event = acc.Gaussian(2.0).min_separation(limits.rounds, limits.min_separation, limits.max_participations)
    assert acc.guarantee(event, PLAN.adjacency).epsilon(1e-6) == pytest.approx(
        acc.guarantee(acc.Gaussian(2.0) * 3, "zero_out").epsilon(1e-6)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 21}, "21 units a round cannot be drawn from 20"),
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"min_separation": -1}, "min_separation must be a whole number >= 0, got -1"),
        ({"max_participations": 0}, "max_participations must be a whole number >= 1, got 0"),
        ({"availability": 0.0}, r"availability must be in \(0, 1\], got 0.0"),
        ({"drop_out": 1.0}, r"drop_out must be in \[0, 1\), got 1.0"),
        (
            {"max_participations": 5},
            "max_participations must be <= 4, got 5: no more fit into 14 rounds with 3 between",
        ),
        (
            {"size": 6},
            "cohorts of 6 cannot be kept full: 4 rounds in a row need 24 units, population is 20; "
            r"lower cohort.size, min_separation \(to 2\) or availability",
        ),
        (
            {"max_participations": 2},
            "cohorts of 3 cannot be kept full: 14 rounds take 42 participations, 20 units have 2 each; raise "
            r"max_participations, lower rounds \(to 13\) or availability",
        ),
    ],
)
def test_bad_values_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        replace(PLAN, **changes)


@pytest.mark.parametrize("changes", [{"max_participations": 4}, {"size": 5, "max_participations": 4}])
def test_what_just_fits_is_taken(changes):
    assert replace(PLAN, **changes).limits.most == 4


@pytest.mark.parametrize("changes", [{"size": 6}, {"max_participations": 2}, {"min_separation": 2**40}])
def test_cohorts_that_may_run_short_are_no_mistake_where_units_check_in(changes):
    sampling = replace(PLAN, availability=0.9, **{"max_participations": 1, **changes})
    assert keeps_its_promise(sampling, RUN_SOURCE)


def test_what_was_not_planned_is_refused():
    with pytest.raises(InputError, match="planned for 20 units, got 19, which would change who takes part"):
        PLAN.draw(19, 0, RUN_SOURCE)
    with pytest.raises(InputError, match="planned for 14 rounds, got round 15"):
        PLAN.draw(20, 14, RUN_SOURCE)
    with pytest.raises(InputError, match="planned for 14 rounds, got 15"):
        PLAN.participation(15)


def test_the_statement_is_the_same_anyone_who_is_missing():
    sampling = MinSeparation(
        size=100, population=539, min_separation=313, max_participations=6, rounds=2000, availability=0.2, drop_out=0.1
    )
    assert sampling.describe() == (
        "cohorts of at most 100 of 539, each unit in at most 6 rounds, 313 or more rounds between two of them"
    )
    assert replace(sampling, availability=0.9, drop_out=0.0).describe() == sampling.describe()
    assert sampling.adjacency == "zero_out"


# Shuffled epochs.
SHUFFLED_SOURCE = RandomSource.from_seed(5)


@given(st.integers(1, 6), st.integers(0, 12), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_no_unit_of_shuffled_epochs_is_in_more_rounds_than_promised_or_sooner(size, more, rounds, reshuffle, seed):
    epochs = Shuffled(size=size, population=size + more, rounds=rounds, reshuffle=reshuffle)
    assert keeps_its_promise(epochs, RandomSource.from_seed(seed))
    assert all(len(batch) == size for batch in drawn(epochs, RandomSource.from_seed(seed)))


def test_the_promise_is_no_larger_than_what_can_happen():
    assert Shuffled(size=2, population=7, rounds=7).participation(7) == acc.Participation(
        rounds=7, max_participations=3, min_separation=0
    )
    assert Shuffled(size=2, population=7, rounds=7, reshuffle=False).participation(7) == acc.Participation(
        rounds=7, max_participations=3, min_separation=2
    )
    assert Shuffled(size=2, population=7, rounds=7).participation(3) == acc.Participation(
        rounds=3, max_participations=1, min_separation=2
    )


def test_consecutive_rounds_happen_where_the_order_is_new():
    epochs = Shuffled(size=1, population=3, rounds=300)
    batches = np.concatenate(drawn(epochs, SHUFFLED_SOURCE))
    assert (batches[2:-1:3] == batches[3::3]).any()  # a third of 99 borders: none with probability 4e-18


def test_an_epoch_goes_through_every_unit_once():
    epochs = Shuffled(size=3, population=12, rounds=8)
    batches = drawn(epochs, SHUFFLED_SOURCE)
    for epoch in (batches[:4], batches[4:]):
        assert sorted(np.concatenate(epoch)) == list(range(12))


def test_other_units_are_left_out_of_each_epoch_unless_one_order_serves_all():
    new = Shuffled(size=3, population=11, rounds=60)
    used = [np.concatenate(drawn(new, SHUFFLED_SOURCE)[start : start + 3]) for start in range(0, 60, 3)]
    assert len({tuple(sorted(each)) for each in used}) > 1
    same = replace(new, reshuffle=False)
    batches = drawn(same, SHUFFLED_SOURCE)
    assert len(np.unique(np.concatenate(batches))) == 9
    assert all(np.array_equal(batch, batches[index % 3]) for index, batch in enumerate(batches))


@pytest.mark.parametrize("step", [0, 1])
def test_all_batches_are_equally_likely(step):
    epochs = Shuffled(size=2, population=5, rounds=8000)
    seen = Counter(tuple(epochs.draw(5, 2 * epoch + step, SHUFFLED_SOURCE).tolist()) for epoch in range(4000))
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6  # the false alarm rate, at a fixed seed


def test_any_order_of_asking_gives_the_same_batches():
    epochs = Shuffled(size=3, population=11, rounds=12)
    first = drawn(epochs, SHUFFLED_SOURCE)
    other = RandomSource.from_seed(6)
    assert not all(map(np.array_equal, first, drawn(epochs, other)))  # one key's order is not another's
    for index in [11, 0, 5, 5, 4]:
        assert np.array_equal(epochs.draw(11, index, SHUFFLED_SOURCE), first[index])
        assert np.array_equal(replace(epochs).draw(11, index, SHUFFLED_SOURCE), first[index])


def test_an_epoch_is_put_in_order_once(monkeypatch):
    made = []
    permutation = Stream.permutation
    monkeypatch.setattr(Stream, "permutation", lambda self, n: made.append(n) or permutation(self, n))
    drawn(Shuffled(size=2, population=20, rounds=20), SHUFFLED_SOURCE)
    assert made == [20, 20]


def test_a_round_of_an_epoch_has_no_event_of_its_own():
    epochs = Shuffled(size=2, population=10, rounds=20)
    with pytest.raises(InputError, match=r"at most 4 of 20 rounds a unit\); account by event"):
        epochs.account(acc.Gaussian(1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 11}, "11 units a round cannot be drawn from 10"),
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ({"population": 2.5}, "population must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"reshuffle": 2}, "reshuffle must be one of True, False, got 2"),
    ],
)
def test_bad_values_of_epochs_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Shuffled(**{"size": 3, "population": 10, "rounds": 9, **changes})


def test_what_was_not_planned_for_epochs_is_refused():
    epochs = Shuffled(size=3, population=10, rounds=9)
    with pytest.raises(InputError, match="planned for 10 units, got 9"):
        epochs.draw(9, 0, SHUFFLED_SOURCE)
    with pytest.raises(InputError, match="planned for 9 rounds, got round 10"):
        epochs.draw(10, 9, SHUFFLED_SOURCE)
    with pytest.raises(InputError, match="planned for 9 rounds, got 10"):
        epochs.participation(10)


def test_the_statement_says_how_often_and_who_is_left_out():
    epochs = Shuffled(size=3, population=11, rounds=9)
    assert epochs.describe() == (
        "shuffled epochs of 3 batches of 3 of 11, a new order for each, 2 left out of each, "
        "each unit in at most 3 rounds"
    )
    assert replace(epochs, reshuffle=False).describe() == (
        "shuffled epochs of 3 batches of 3 of 11, one order for all, 2 left out of all, "
        "each unit in at most 3 rounds, 2 or more rounds between two of them"
    )
    assert epochs.adjacency == "zero_out"


# The log that turns units away.
def log_of(rounds: int = 10, cap: int | None = 2, apart: int = 2, population: int = 4) -> ParticipationLog:
    return ParticipationLog(population, Participation(rounds=rounds, max_participations=cap, min_separation=apart))


@given(st.integers(1, 9), st.integers(1, 4) | st.none(), st.integers(0, 12), st.lists(st.integers(0, 8), unique=True))
def test_a_unit_gets_in_exactly_where_the_limits_allow_it(rounds, cap, apart, wanted):
    limits = Participation(rounds=rounds, max_participations=cap, min_separation=apart)
    log, taken = log_of(rounds, cap, apart), []
    for index in sorted(each for each in wanted if each < rounds):
        allowed = limits.allows([*taken, index])
        assert log.eligible(np.array([1]), index).tolist() == [allowed]
        if allowed:
            log.admit(np.array([1]), index)
            taken.append(index)
        else:
            with pytest.raises(InputError, match="unit 1 took part"):
                log.admit(np.array([1]), index)


def test_a_unit_under_the_separation_is_refused_and_reported_when_to_come_back():
    log = log_of(apart=2)
    log.admit(np.array([0, 3]), 1)
    with pytest.raises(
        InputError, match="unit 3 took part in round 2 and may not do so again before round 5, got round 4"
    ):
        log.admit(np.array([1, 3]), 3)
    log.admit(np.array([3]), 4)


def test_a_unit_over_the_cap_is_refused():
    log = log_of(apart=0, cap=2)
    log.admit(np.array([2]), 0)
    log.admit(np.array([2]), 1)
    with pytest.raises(InputError, match="unit 2 took part in 2 rounds, the most allowed, got round 10"):
        log.admit(np.array([2]), 9)


def test_no_one_is_written_down_where_one_is_refused():
    log = log_of(apart=2)
    log.admit(np.array([0]), 0)
    with pytest.raises(InputError):
        log.admit(np.array([0, 1]), 1)
    assert log.eligible(np.array([1]), 1).all()


def test_a_unit_is_in_a_round_once():
    with pytest.raises(InputError, match="round 1 has a unit twice"):
        log_of(apart=0).admit(np.array([2, 2]), 0)


def test_an_earlier_round_cannot_be_written_down_afterwards():
    log = log_of(apart=0)
    log.admit(np.array([0]), 5)
    with pytest.raises(InputError, match="took part in round 6"):
        log.admit(np.array([0]), 4)


def test_a_separation_longer_than_any_run_lets_a_unit_in_once():
    log = log_of(rounds=5, cap=None, apart=10**18)
    log.admit(np.array([0]), 0)
    assert log.eligible(slice(None), 4).tolist() == [False, True, True, True]


def test_more_rounds_than_the_log_can_count_are_refused():
    with pytest.raises(InputError, match="rounds must be <= 2147483647, got 2147483648"):
        log_of(rounds=2**31)
