"""Cohorts of units that sit out after each round."""

import copy
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from sampling.rounds import drawn, keeps_its_promise, patterns
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.sampling import MinSeparationSampling
from sfumato.sampling.limited import ParticipationLog, choose

SOURCE = RandomSource.from_seed(9)
PLAN = MinSeparationSampling(size=3, population=20, min_separation=3, max_participations=3, rounds=14)


@given(
    st.integers(1, 5), st.integers(0, 100), st.integers(0, 5), st.integers(1, 5) | st.none(), st.integers(1, 16),
    st.floats(0.05, 1.0), st.floats(0.0, 0.95), st.integers(0, 99),
)  # fmt: skip
def test_no_unit_is_in_more_rounds_than_promised_or_sooner(size, more, apart, cap, rounds, present, lost, seed):
    try:
        sampling = MinSeparationSampling(
            size=size, population=size + more, min_separation=apart, max_participations=cap, rounds=rounds,
            availability=present, drop_out=lost,
        )  # fmt: skip
    except InputError:
        assume(False)
        return
    assert keeps_its_promise(sampling, RandomSource.from_seed(seed))


def test_everybody_would_come_sooner_without_the_limits():
    free = replace(PLAN, min_separation=0, max_participations=None)
    rounds_of = patterns(drawn(free, SOURCE), 20)
    assert not all(PLAN.limits.allows(each) for each in rounds_of)


def test_cohorts_are_full_where_everybody_checks_in():
    sampling = MinSeparationSampling(size=5, population=20, min_separation=3, max_participations=None, rounds=30)
    assert all(len(cohort) == 5 for cohort in drawn(sampling, SOURCE))


def test_a_round_goes_on_with_those_who_are_there_or_with_nobody():
    sampling = replace(PLAN, availability=0.05)
    sizes = {len(cohort) for seed in range(20) for cohort in drawn(sampling, RandomSource.from_seed(seed))}
    assert 0 in sizes
    assert max(sizes) <= 3
    assert len(sizes) > 1


@pytest.mark.parametrize("availability", [1.0, 0.5])
def test_a_unit_that_did_not_report_is_charged_like_one_that_did(availability):
    """So who is chosen later on does not depend on who reported."""
    everybody = replace(PLAN, availability=availability)
    chosen = drawn(everybody, SOURCE)
    reported = drawn(replace(everybody, drop_out=0.5), SOURCE)
    assert all(np.isin(some, each).all() for some, each in zip(reported, chosen, strict=True))
    assert 0 < sum(map(len, reported)) < sum(map(len, chosen))


@pytest.mark.parametrize(("population", "availability"), [(6, 1.0), (6, 0.4), (200, 1.0), (200, 0.02)])
def test_all_subsets_of_the_eligible_are_equally_likely(population, availability):
    """By candidates and by a pass over all: units 0 and 1 have been used up."""
    log = ParticipationLog(population, acc.Participation(rounds=9, max_participations=1))
    log.admit(np.array([0, 1]), 0)
    stream, seen, sizes = SOURCE.stream("test", population), Counter(), Counter()
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


def test_nobody_is_chosen_twice_where_candidates_are_drawn_again():
    log = ParticipationLog(2000, acc.Participation(rounds=9, max_participations=1))
    for index in range(400):  # a second block of about 20, of whom 16 in 2000 were found before
        found = choose(log, 0, 20, 2000, 0.4, SOURCE.stream("again", index))
        assert len(found) == len(np.unique(found)) == 20


def test_histories_of_two_rounds_have_the_chances_that_were_worked_out():
    """One of three units a round, one round between, each there with probability 1/2, reports with 3/4."""
    sampling = MinSeparationSampling(
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
    first = drawn(sampling, SOURCE)
    other = RandomSource.from_seed(10)
    assert not all(map(np.array_equal, first, drawn(sampling, other)))
    for index in [13, 0, 5, 5, 4, 13]:
        assert np.array_equal(sampling.draw(20, index, SOURCE), first[index])
        assert np.array_equal(replace(sampling).draw(20, index, SOURCE), first[index])  # after a resume


def test_a_cohort_that_a_caller_overwrites_is_drawn_as_it_was():
    first = PLAN.draw(20, 3, SOURCE)
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(PLAN.draw(20, 3, SOURCE), kept)


def test_a_round_that_was_broken_off_is_drawn_as_if_it_had_not_been(monkeypatch):
    expected = drawn(replace(PLAN), SOURCE)
    sampling, bernoulli = replace(PLAN), Stream.bernoulli
    sampling.draw(20, 3, SOURCE)
    calls = []

    def break_off(stream, rate, count):
        calls.append(rate)
        if rate == 0.0:  # the coins of drop-outs, after the cohort was written down
            raise KeyboardInterrupt
        return bernoulli(stream, rate, count)

    monkeypatch.setattr(Stream, "bernoulli", break_off)
    with pytest.raises(KeyboardInterrupt):
        sampling.draw(20, 4, SOURCE)
    monkeypatch.undo()
    assert calls
    assert np.array_equal(sampling.draw(20, 4, SOURCE), expected[4])


def test_what_a_sampler_remembers_is_no_part_of_it():
    fresh, used = replace(PLAN), replace(PLAN)
    used.draw(20, 5, SOURCE)
    assert fresh == used
    assert hash(fresh) == hash(used)
    assert repr(fresh) == repr(used)
    assert pickle.dumps(fresh) == pickle.dumps(used)  # so no key of a run is in it
    assert copy.deepcopy(used) == used


def numbers_drawn(monkeypatch, sampling: MinSeparationSampling) -> int:
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
        sampling.draw(sampling.population, index, SOURCE)
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "uint64", words)
        patch.setattr(ParticipationLog, "eligible", asked)
        sampling.draw(sampling.population, 4, SOURCE)
    return count


@pytest.mark.parametrize("availability", [1.0, 0.1])
def test_the_work_of_a_round_does_not_grow_with_the_population(monkeypatch, availability):
    planned = MinSeparationSampling(
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
    drawn(replace(PLAN), SOURCE)
    assert made == [("check-ins", index) for index in range(14)]


def test_a_round_has_no_event_of_its_own():
    with pytest.raises(InputError, match="at most 3 of 14 rounds; account the run as a whole, by event"):
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
        ({"size": 21}, "a cohort of 21 cannot be drawn from 20 units"),
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
            "cohorts of 6 cannot be kept full: 4 rounds in a row have no unit twice and need 24 units, but population "
            "is 20; take smaller cohorts, or lower min_separation to 2",
        ),
        (
            {"max_participations": 2},
            "cohorts of 3 cannot be kept full: 14 rounds take 42 participations, but 20 units have 2 each; raise "
            "max_participations or lower rounds to 13",
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
    assert keeps_its_promise(sampling, SOURCE)


def test_what_was_not_planned_is_refused():
    with pytest.raises(InputError, match="planned for 20 units but 19 are present: a population that changes"):
        PLAN.draw(19, 0, SOURCE)
    with pytest.raises(InputError, match="planned for 14 rounds, got round 15"):
        PLAN.draw(20, 14, SOURCE)
    with pytest.raises(InputError, match="planned for 14 rounds, got 15"):
        PLAN.participation(15)


def test_the_statement_is_the_same_whoever_is_missing():
    sampling = MinSeparationSampling(
        size=100, population=539, min_separation=313, max_participations=6, rounds=2000, availability=0.2, drop_out=0.1
    )
    assert sampling.describe() == (
        "cohorts of at most 100 of 539, each unit in at most 6 rounds, 313 or more rounds between two of them"
    )
    assert replace(sampling, availability=0.9, drop_out=0.0).describe() == sampling.describe()
    assert sampling.adjacency == "zero_out"
