"""The log that turns units away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.accounting import Participation
from sfumato.sampling import ParticipationLog


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


def test_a_unit_under_the_separation_is_refused_and_told_when_to_come_back():
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


def test_nobody_is_written_down_where_one_is_refused():
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
