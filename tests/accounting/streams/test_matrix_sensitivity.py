"""Sensitivities of strategies, against all patterns of short runs."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.patterns import patterns
from sfumato.accounting.events import sensitivity as _matrix
from sfumato.accounting.events.sensitivity import Participation
from slow import by_profile

seeds = st.integers(0, 2**32 - 1)
limits = st.builds(
    lambda rounds, most, separation: Participation(rounds=rounds, max_participations=most, min_separation=separation),
    st.integers(1, 10),
    st.one_of(st.none(), st.integers(1, 4)),
    st.integers(0, 5),
)


def by_all_patterns(matrix: np.ndarray, limits: Participation, signs: bool = False) -> float:
    """max over patterns of the squared movement by contributions of norm 1, aligned or with any signs."""
    best = 0.0
    for pattern in patterns(limits):
        columns = matrix[:, list(pattern)]
        best = max(best, float((columns.sum(axis=1) ** 2).sum()))
        for sign in np.ndindex(*([2] * len(pattern))) if signs else ():
            best = max(best, float(((columns * (1 - 2 * np.array(sign))).sum(axis=1) ** 2).sum()))
    return best


def lower_triangular_toeplitz(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    padded = np.concatenate([coefficients, np.zeros(rounds)])[:rounds]
    return np.array([[padded[t - j] if t >= j else 0.0 for j in range(rounds)] for t in range(rounds)])


def close_and_not_below(value: float, truth: float) -> bool:
    return truth * (1 - 1e-15) <= value <= truth * (1 + 1e-11)


@settings(max_examples=by_profile(150), deadline=None)
@given(limits, seeds, st.integers(1, 12))
def test_falling_coefficients_cost_evenly_spaced_rounds(limits: Participation, seed: int, length: int) -> None:
    coefficients = np.sort(np.random.default_rng(seed).exponential(size=length))[::-1]
    value, exact = _matrix.toeplitz(coefficients, limits)
    assert exact
    assert close_and_not_below(value, by_all_patterns(lower_triangular_toeplitz(coefficients, limits.rounds), limits))


@settings(max_examples=by_profile(100), deadline=None)
@given(limits, seeds, st.integers(1, 12))
def test_other_coefficients_get_a_bound_that_no_signs_exceed(limits: Participation, seed: int, length: int) -> None:
    coefficients = np.random.default_rng(seed).normal(size=length)
    value, exact = _matrix.toeplitz(coefficients, limits)
    truth = by_all_patterns(lower_triangular_toeplitz(coefficients, limits.rounds), limits, signs=True)
    assert value >= truth * (1 - 1e-15)
    assert not exact or close_and_not_below(value, truth)


@settings(max_examples=by_profile(100), deadline=None)
@given(limits, seeds)
def test_bands_that_never_meet_cost_the_heaviest_columns(limits: Participation, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bands = rng.integers(1, limits.period + 1)
    full = rng.normal(size=(limits.rounds, limits.rounds))
    matrix = np.tril(full) - np.tril(full, -bands)
    value, exact = _matrix.banded((matrix**2).sum(axis=0), limits)
    truth = by_all_patterns(matrix, limits, signs=True)
    assert exact
    assert close_and_not_below(value, truth)
    assert _matrix.general(matrix, limits) == (pytest.approx(truth, rel=1e-11), True)


@settings(max_examples=by_profile(100), deadline=None)
@given(limits, seeds, st.booleans())
def test_a_general_matrix_gets_a_bound_that_no_signs_exceed(limits: Participation, seed: int, signed: bool) -> None:
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(limits.rounds, limits.rounds)) if signed else rng.random((limits.rounds, limits.rounds))
    matrix = np.tril(full)
    value, exact = _matrix.general(matrix, limits)
    truth = by_all_patterns(matrix, limits, signs=signed)
    assert value >= truth * (1 - 1e-15)
    assert not exact or close_and_not_below(value, truth)


def test_a_general_matrix_is_exact_where_even_spacing_is_worst() -> None:
    limits = Participation(rounds=60, max_participations=4, min_separation=9)
    coefficients = 1 / np.sqrt(np.arange(1, 61))
    value, _ = _matrix.general(lower_triangular_toeplitz(coefficients, 60), limits)
    exact, _ = _matrix.toeplitz(coefficients, limits)
    assert exact * (1 - 1e-12) <= value <= 1.1 * exact


@settings(max_examples=by_profile(100), deadline=None)
@given(limits, seeds, st.integers(1, 4))
def test_buffers_are_their_toeplitz_coefficients(limits: Participation, seed: int, buffers: int) -> None:
    rng = np.random.default_rng(seed)
    scales, decays = rng.random(buffers), rng.random(buffers)
    powers = decays[:, None] ** np.arange(limits.rounds - 1)
    coefficients = np.concatenate([[1.0], scales @ powers])[: limits.rounds]
    value, exact = _matrix.buffered(scales, decays, limits)
    truth = by_all_patterns(lower_triangular_toeplitz(coefficients, limits.rounds), limits)
    assert value >= truth * (1 - 1e-15)
    assert exact == (limits.most == 1 or scales.sum() <= 1)
    if exact:
        assert close_and_not_below(value, truth)


@settings(max_examples=by_profile(100), deadline=None)
@given(limits, seeds)
def test_the_heaviest_pattern_is_found(limits: Participation, seed: int) -> None:
    weights = np.random.default_rng(seed).exponential(size=limits.rounds)
    value, exact = _matrix.heaviest(weights, limits.period, limits.most)
    assert exact
    assert value == pytest.approx(max(weights[list(pattern)].sum() for pattern in patterns(limits)), rel=1e-12)


def test_where_the_heaviest_pattern_takes_too_long_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(3).exponential(size=500)
    exact, _ = _matrix.heaviest(weights, 7, 30)
    monkeypatch.setattr(_matrix, "_MOST_WORK", 100)
    bound, is_exact = _matrix.heaviest(weights, 7, 30)
    assert not is_exact
    assert exact <= bound <= 1.5 * exact


def test_a_hundred_thousand_rounds_take_a_second() -> None:
    limits = Participation(rounds=100_000, max_participations=100, min_separation=999)
    scales, decays = np.array([0.3, 0.1, 0.02]), np.array([0.5, 0.99, 0.99999])
    start = time.perf_counter()
    buffered, _ = _matrix.buffered(scales, decays, limits)
    coefficients = np.concatenate([[1.0], scales @ decays[:, None] ** np.arange(99_999)])
    assert buffered == pytest.approx(_matrix.toeplitz(coefficients, limits)[0], rel=1e-9)
    assert time.perf_counter() - start < 1
    columns = np.zeros(100_000)
    for first in range(0, 100_000, 1000):
        columns[first:] += coefficients[: 100_000 - first]
    assert buffered == pytest.approx(columns @ columns, rel=1e-9)
