"""Cyclic Poisson cohorts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sampling.rounds import drawn, keeps_its_promise, patterns
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.sampling import CyclicPoissonSampling, PoissonSampling

SOURCE = RandomSource.from_seed(7)


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 99))
def test_a_unit_is_in_the_rounds_of_one_part_only(parts, more, seed):
    sampling = CyclicPoissonSampling(size=2, population=2 * parts + more, parts=parts, rounds=12)
    source = RandomSource.from_seed(seed)
    assert keeps_its_promise(sampling, source)
    rounds_of = patterns(drawn(sampling, source), sampling.population)
    assert all(len({index % parts for index in each}) <= 1 for each in rounds_of)


def patterns_of_everybody(sampling: CyclicPoissonSampling) -> list[list[int]]:
    return patterns(drawn(sampling, SOURCE), sampling.population)


def test_parts_are_even_and_a_unit_of_a_part_takes_part_at_the_accounted_rate():
    sampling = CyclicPoissonSampling(size=30, population=600, parts=4, rounds=1200)
    assert sampling.sampling_rate == 0.2
    rounds_of = patterns_of_everybody(sampling)
    # 300 turns at rate 0.2: a unit is in none with probability 1e-29. False alarms 1e-6 each, at a fixed seed.
    assert stats.chisquare(np.bincount([each[0] % 4 for each in rounds_of])).pvalue > 1e-6
    counts = np.array([len(each) for each in rounds_of])
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], 600 * 300, 0.2)
    assert low <= counts.sum() <= high
    assert stats.chisquare(counts).pvalue > 1e-6


def test_coins_of_two_units_of_a_part_are_independent():
    sampling = CyclicPoissonSampling(size=1, population=8, parts=4, rounds=16_000)
    rounds_of = [set(each) for each in patterns_of_everybody(sampling)]
    part_of = [min(each) % 4 for each in rounds_of]
    first, second = next((a, b) for a in range(8) for b in range(a) if part_of[a] == part_of[b])
    turns = range(part_of[first], sampling.rounds, 4)
    seen = np.array([[t in rounds_of[first], t in rounds_of[second]] for t in turns])
    table = [[(seen == [a, b]).all(axis=1).sum() for b in (0, 1)] for a in (0, 1)]
    assert stats.chisquare(np.ravel(table)).pvalue > 1e-6  # rate 1/2: all four equally likely; false alarm 1e-6


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_a_unit_that_comes_does_not_change_the_parts_and_coins_of_others(parts):
    sampling = CyclicPoissonSampling(size=2, population=400, parts=parts, rounds=100)
    for index in range(100):
        more = sampling.draw(400, index, SOURCE)
        for present in (399, 250, 1, 0):
            assert np.array_equal(sampling.draw(present, index, SOURCE), more[more < present])


def test_one_part_is_poisson_sampling():
    cyclic = CyclicPoissonSampling(size=5, population=100, parts=1, rounds=20)
    poisson = PoissonSampling(sampling_rate=0.05, population=100)
    for index in range(20):
        assert np.array_equal(cyclic.draw(90, index, SOURCE), poisson.draw(90, index, SOURCE))
    assert cyclic.account(acc.Gaussian(1.0)) == poisson.account(acc.Gaussian(1.0))
    assert cyclic.describe() == poisson.describe()


def test_any_order_of_asking_gives_the_same_cohorts():
    sampling = CyclicPoissonSampling(size=5, population=100, parts=4, rounds=20)
    first = drawn(sampling, SOURCE)
    other = RandomSource.from_seed(8)
    assert all(map(np.array_equal, drawn(sampling, other), drawn(replace(sampling), other)))
    assert not all(map(np.array_equal, first, drawn(sampling, other)))
    for index in [19, 0, 7, 7]:
        assert np.array_equal(sampling.draw(100, index, SOURCE), first[index])
        assert np.array_equal(replace(sampling).draw(100, index, SOURCE), first[index])


def test_several_parts_have_no_event_of_a_round():
    with pytest.raises(InputError, match=r"4 parts has no event of its own.*account the run by cyclic_poisson"):
        CyclicPoissonSampling(size=5, population=100, parts=4, rounds=20).account(acc.Gaussian(1.0))


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
def test_bad_values_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        CyclicPoissonSampling(**{"size": 3, "population": 10, "parts": 3, "rounds": 9, **changes})


def test_the_statement_says_parts_and_rate():
    sampling = CyclicPoissonSampling(size=5, population=100, parts=4, rounds=20)
    assert sampling.describe() == "cyclic Poisson, 4 random parts in turn, rate 0.2 a round of a unit's part"
    assert sampling.adjacency == "add_remove"
