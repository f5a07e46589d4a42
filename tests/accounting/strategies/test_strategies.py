"""What every strategy promises, against matrices that are written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.strategies.dense import matrix, prefix_variance, squared_sensitivity
from sfumato.accounting import InputError, MatrixMechanism, MinSeparation, Participation, guarantee
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BufferedToeplitz,
    Independent,
    InverseBanded,
    Strategy,
    root_error,
    square_root,
)
from sfumato.accounting.strategy_search import banded_inverse_square_root
from slow import by_profile

SCALES = tuple(1.0 + 0.3 * math.sin(t) for t in range(40))
MATRICES: dict[str, Strategy] = {
    "independent": Independent(),
    "bands": BandedToeplitz((1.0, 0.6, 0.3)),
    "bands with signs": BandedToeplitz((2.0, -0.7, 0.5)),
    "scaled bands": BandedToeplitz((1.0, 0.5), SCALES),
    "scaled diagonal": BandedToeplitz((1.5,), SCALES),
    "square root": square_root(40),
    "blt": BufferedToeplitz((0.3, 0.25), (0.9, 0.2)),
    "blt with a lasting buffer": BufferedToeplitz((0.05, 0.5, 0.0), (1.0, 0.5, 0.5)),
    "bisr": InverseBanded((1.0, -0.5, -0.125)),
    "inverse bands with signs": InverseBanded((1.0, 0.4, -0.3)),
}
every_matrix = pytest.mark.parametrize("strategy", MATRICES.values(), ids=MATRICES)


@every_matrix
def test_prefix_variances_are_squared_rows_of_the_written_out_matrix(strategy: Strategy) -> None:
    for rounds in (1, 2, 3, 7, 40):
        assert strategy.prefix_variance(rounds) == pytest.approx(prefix_variance(strategy, rounds), rel=1e-10)


@every_matrix
def test_the_sensitivity_is_the_heaviest_of_all_patterns(strategy: Strategy) -> None:
    met = 0
    for rounds in range(1, 17):
        c = matrix(strategy, rounds)
        for most in (1, 2, 3):
            for separation in range(4):
                limits = Participation(rounds=rounds, max_participations=most, min_separation=separation)
                if isinstance(strategy, BandedToeplitz) and strategy.column_scales:
                    overlap = min(len(strategy.coefficients), rounds) > limits.period and limits.most > 1
                    if overlap:
                        continue
                value, truth = strategy.squared_sensitivity(limits), squared_sensitivity(c, limits)
                assert value >= truth * (1 - 1e-14)
                event = strategy.event(1.0, limits)
                if not isinstance(event, MatrixMechanism) or event.exact:
                    assert value == pytest.approx(truth, rel=1e-9)
                    met += 1
    assert met >= 16 * 3  # one participation at least is known exactly


@every_matrix
def test_the_event_costs_what_the_sensitivity_says(strategy: Strategy) -> None:
    limits = Participation(rounds=12, max_participations=3, min_separation=3)
    squared = strategy.squared_sensitivity(limits)
    assert guarantee(strategy.event(2.0, limits), "zero_out").rho() == pytest.approx(squared / 8, rel=1e-12)


def test_independent_noise_is_accounted_round_by_round() -> None:
    event = Independent().event(2.0, Participation(rounds=12, max_participations=3, min_separation=2))
    assert isinstance(event, MinSeparation)
    assert event.participations == 3


def test_one_band_is_independent_noise() -> None:
    limits = Participation(rounds=50, max_participations=4, min_separation=7)
    for error in ("mean", "max"):
        expected = root_error(Independent(), limits, error)
        assert root_error(BandedToeplitz((1.0,)), limits, error) == pytest.approx(expected, rel=1e-12)
        assert root_error(InverseBanded((1.0,)), limits, error) == pytest.approx(expected, rel=1e-12)


def test_the_square_root_is_its_own_error() -> None:
    c = matrix(square_root(20), 20)
    assert c @ c == pytest.approx(np.tril(np.ones((20, 20))), rel=1e-12)


def test_long_series_are_inverted_as_short_ones() -> None:
    rounds = 12_000  # by transforms
    assert square_root(rounds).prefix_variance(rounds) == pytest.approx(
        np.cumsum(np.array(square_root(rounds).coefficients) ** 2), rel=1e-10
    )


def test_a_shorter_run_has_the_first_columns_only() -> None:
    scaled = BandedToeplitz((1.0, 0.5), SCALES)
    first = BandedToeplitz((1.0, 0.5), SCALES[:9])
    limits = Participation(rounds=9, max_participations=2, min_separation=2)
    assert scaled.squared_sensitivity(limits) == first.squared_sensitivity(limits)
    assert np.array_equal(scaled.prefix_variance(9), first.prefix_variance(9))
    with pytest.raises(InputError, match="column_scales are for 9 rounds, the run has 10; optimise for"):
        first.prefix_variance(10)


@settings(max_examples=by_profile(40), deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_root_errors_do_not_depend_on_the_strategys_scale(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    coefficients, scales = np.array([1.0, *rng.uniform(-0.4, 0.6, 2)]), rng.uniform(0.5, 2, 12)
    limits = Participation(rounds=12, max_participations=3, min_separation=3)
    one = BandedToeplitz(tuple(coefficients), tuple(scales))
    other = BandedToeplitz(tuple(factor * coefficients), tuple(scales))
    for error in ("mean", "max"):
        assert root_error(one, limits, error) == pytest.approx(root_error(other, limits, error), rel=1e-9)


def test_an_inverse_that_rounding_blurs_still_gets_a_bound() -> None:
    """In exact fractions: the first column of C for d = 1 - x/2 - x^2/8 - x^3/16, over 200 rounds."""
    from fractions import Fraction

    d = [Fraction(1), Fraction(-1, 2), Fraction(-1, 8), Fraction(-1, 16)]
    c: list[Fraction] = [Fraction(1)]
    for t in range(1, 200):
        c.append(-sum(d[i] * c[t - i] for i in range(1, 4) if i <= t))
    truth = sum(value * value for value in c)
    value = Fraction(InverseBanded(tuple(map(float, d))).squared_sensitivity(Participation(rounds=200)))
    assert truth <= value <= truth * (1 + Fraction(1, 10**9))


def test_strategies_with_equal_numbers_are_equal_and_hashable() -> None:
    assert BandedToeplitz((1, 0.5)) == BandedToeplitz([1.0, 0.5])  # type: ignore[arg-type]
    assert len({Independent(), Independent(), InverseBanded((1.0,)), BandedToeplitz((1.0,))}) == 3
    limits = Participation(rounds=30, max_participations=2, min_separation=9)
    assert banded_inverse_square_root(limits) is banded_inverse_square_root(limits)


WRONG = {
    "coefficients must be a list of at least one number": lambda: BandedToeplitz(()),
    "coefficients must be finite, got nan at place 1": lambda: BandedToeplitz((1.0, math.nan)),
    "the first of coefficients must be > 0, got -1.0; C has no inverse": lambda: BandedToeplitz((-1.0,)),
    "the least of column_scales must be > 0, got 0.0": lambda: BandedToeplitz((1.0,), (1.0, 0.0)),
    "output_scales and buffer_decays must be as many, got 1 and 2": lambda: BufferedToeplitz((0.5,), (0.5, 0.1)),
    "the least of output_scales must be >= 0 and finite, got -0.5": lambda: BufferedToeplitz((-0.5,), (0.5,)),
    "buffer_decays must be in [0, 1], got 1.5": lambda: BufferedToeplitz((0.5,), (1.5,)),
    "the first of inverse_coefficients must be 1, got 2.0; divide": lambda: InverseBanded((2.0, 1.0)),
    "inverse_coefficients must be numbers, got 'half'": lambda: InverseBanded("half"),  # type: ignore[arg-type]
    "error must be one of mean, max, got median": lambda: root_error(
        Independent(),
        Participation(rounds=2),
        "median",  # type: ignore[arg-type]
    ),
    "rounds must be a whole number >= 1, got 0": lambda: Independent().prefix_variance(0),
    "grows beyond what can be computed over 4000 rounds": lambda: InverseBanded((1.0, -2.0)).squared_sensitivity(
        Participation(rounds=4000)
    ),
    "bands must be <= min_separation + 1 = 1 where columns are scaled, got 2": lambda: BandedToeplitz(
        (1.0, 0.5), SCALES
    ).event(1.0, Participation(rounds=4, max_participations=2)),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_strategy_is_refused_in_one_line(message: str) -> None:
    with pytest.raises(InputError) as refused:
        WRONG[message]()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
