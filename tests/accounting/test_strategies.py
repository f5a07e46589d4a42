"""Strategies of correlated noise: what each promises, its sensitivity against all patterns, and the best of a kind."""

import csv
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accounting.dense import matrix, nodes, patterns, prefix_variance, squared_sensitivity
from sfumato.accounting import (
    InputError,
    MatrixMechanism,
    MinSeparation,
    Participation,
    TreeAggregation,
    guarantee,
    strategy_search,
)
from sfumato.accounting.events import sensitivity as _matrix
from sfumato.accounting.events.sensitivity import Forest, _level_bound
from sfumato.accounting.events.sensitivity import squared_sensitivity as tree_sensitivity
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    Independent,
    InverseBanded,
    Strategy,
    root_error,
    square_root,
)
from sfumato.accounting.strategy_search import (
    Stepped,
    banded_inverse_square_root,
    optimize_banded,
    optimize_blt,
    power_mean,
)
from slow import by_profile

# What every strategy promises, against matrices that are written out.


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


# Trees' estimators, against least squares over the released nodes.


def least_variance(below: np.ndarray) -> float:
    """Variance of the best unbiased estimate of the sum of all rounds, from nodes with noise of variance 1."""
    ones = np.ones(below.shape[1])
    return float(ones @ np.linalg.solve(below.T @ below, ones))


def test_the_plain_estimator_adds_one_node_for_each_binary_digit() -> None:
    expected = [(t + 1).bit_count() for t in range(100)]
    assert BinaryTree("plain").prefix_variance(100).tolist() == expected


def test_the_efficient_estimator_is_the_best_from_all_nodes_so_far() -> None:
    expected = [least_variance(nodes(t + 1)) for t in range(40)]
    assert BinaryTree("efficient").prefix_variance(40) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", range(1, 12))
def test_a_completed_root_is_the_best_estimate_that_knows_empty_rounds_are_zero(length: int) -> None:
    whole = 1 << (length - 1).bit_length()
    best = least_variance(nodes(whole, real=length))
    within = BinaryTree("efficient").prefix_variance(length)
    for estimator, last in (("efficient", best), ("plain", 1.0)):
        run = BinaryTree(estimator, restart_every=length, completion=True).prefix_variance(3 * length)
        assert run[length - 1] == pytest.approx(last, rel=1e-12)
        assert run[2 * length - 1] == pytest.approx(2 * last, rel=1e-12)
        unfinished = BinaryTree(estimator).prefix_variance(length)[-1]  # no tree follows the last one
        assert run[-1] == pytest.approx(2 * last + unfinished, rel=1e-12)
    efficient = BinaryTree("efficient", restart_every=length, completion=True).prefix_variance(3 * length)
    assert efficient[length : 2 * length - 1] == pytest.approx(best + within[:-1], rel=1e-12)


def test_restarts_keep_the_noise_of_the_trees_before() -> None:
    run = BinaryTree("plain", restart_every=6).prefix_variance(15)
    assert run.tolist() == [1, 1, 2, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6]


@settings(max_examples=by_profile(200), deadline=None)
@given(st.integers(1, 300), st.one_of(st.none(), st.integers(1, 40)), st.booleans())
def test_the_efficient_estimator_is_never_worse_than_the_plain_one(rounds, restart, completion) -> None:
    trees = {"restart_every": restart, "completion": completion and restart is not None}
    plain, efficient = (BinaryTree(e, **trees).prefix_variance(rounds) for e in ("plain", "efficient"))
    assert len(efficient) == rounds
    assert np.all(efficient <= plain * (1 + 1e-12))
    assert np.all(efficient > 0)


def test_the_sensitivity_of_a_tree_is_the_heaviest_of_all_patterns() -> None:
    for rounds in range(1, 17):
        for most in (1, 2, 3):
            for separation in range(4):
                limits = Participation(rounds=rounds, max_participations=most, min_separation=separation)
                truth = squared_sensitivity(nodes(rounds), limits)
                assert BinaryTree().squared_sensitivity(limits) == pytest.approx(truth, rel=1e-12)


def test_the_event_has_the_same_trees() -> None:
    limits = Participation(rounds=50, max_participations=3, min_separation=9)
    strategy = BinaryTree("plain", restart_every=20, completion=True)
    event = strategy.event(7.0, limits)
    assert event == TreeAggregation(
        noise_multiplier=7.0, steps=50, max_participations=3, min_separation=9, restart_every=20, completion=True
    )
    assert isinstance(event, TreeAggregation)
    assert strategy.squared_sensitivity(limits) == event.squared_sensitivity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "honaker"}, "estimator must be one of plain, efficient, got honaker"),
        ({"restart_every": 0}, "restart_every must be a whole number >= 1, got 0; None for a single tree"),
        ({"completion": True}, "a single tree is never completed"),
    ],
)
def test_trees_that_cannot_be_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        BinaryTree(**options)


# Strategies that were optimised: against published ones, their neighbours and finite differences.


CSV = Path(__file__).parents[2].parent / "shared" / "references" / "matrix_mechanisms.csv"
BOTH = ("mean", "max")


def rows() -> list[dict[str, str]]:
    """The published strategies, if they are there."""
    if not CSV.is_file():
        return []
    lines = [line for line in CSV.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def of_row(row: dict[str, str], limits: Participation) -> Strategy:
    """Our strategy of the same kind and size."""
    size = int(row["parameter"].partition("=")[2] or 0)
    made: dict[str, Callable[[], Strategy]] = {
        "independent": Independent,
        "square_root": lambda: square_root(limits.rounds),
        "banded": lambda: optimize_banded(limits, bands=size, error=row["error"]),  # type: ignore[arg-type]
        "blt": lambda: optimize_blt(limits, buffers=size, error=row["error"]),  # type: ignore[arg-type]
    }
    return made[row["mechanism"]]()


@pytest.mark.shared
@pytest.mark.parametrize("row", rows(), ids=lambda row: "-".join(row.values()))
def test_no_published_strategy_of_the_same_kind_is_better(row: dict[str, str]) -> None:
    """Published are strategies that were optimised for these limits, but banded ones for one participation."""
    rounds, most, period = (int(row[name]) for name in ("steps", "participations", "min_separation"))
    limits = Participation(rounds=rounds, max_participations=most, min_separation=period - 1)
    published, kind = float(row["root_loss"]), row["mechanism"]
    digit = 10.0 ** -len(row["root_loss"].partition(".")[2])
    start = time.process_time()
    ours = root_error(of_row(row, limits), limits, row["error"])  # type: ignore[arg-type]
    assert time.process_time() - start < 3
    if kind in ("independent", "square_root"):
        assert ours == pytest.approx(published, abs=digit)
    elif kind == "blt":
        assert ours < published + digit
    else:
        assert ours < published - digit  # columns of equal length alone are better than a plain Toeplitz matrix


LIMITS = {
    "one participation": Participation(rounds=60),
    "one in each turn": Participation(rounds=60, max_participations=None, min_separation=14),
    "fewer than turns": Participation(rounds=70, max_participations=3, min_separation=9),
    "more turns than norms": Participation(rounds=90, max_participations=None, min_separation=2),
}
every_limit = pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)


@every_limit
def test_no_neighbour_of_an_optimal_blt_is_better(limits: Participation) -> None:
    rng = np.random.default_rng(3)
    for error in BOTH:
        best = optimize_blt(limits, buffers=2, error=error)
        least = root_error(best, limits, error)
        scales, decays = np.array(best.output_scales), np.array(best.buffer_decays)
        assert scales.sum() <= 1
        for _ in range(30):
            near = BufferedToeplitz(
                tuple(scales * np.exp(rng.normal(size=2) * 0.02)),
                tuple(np.clip(decays + rng.normal(size=2) * 0.02, 0, 1)),
            )
            assert root_error(near, limits, error) >= least * (1 - 1e-7)


@every_limit
def test_no_neighbour_of_an_optimal_banded_strategy_is_much_better(limits: Participation) -> None:
    """Coefficients and columns' scales in turn: what the search leaves out is less than 0.1 % each."""
    rng = np.random.default_rng(4)
    for error in BOTH:
        best = optimize_banded(limits, bands=3, error=error)
        least = root_error(best, limits, error)
        assert best.column_scales is not None
        for _ in range(20):
            c = np.array(best.coefficients) * np.exp(rng.normal(size=3) * 0.01)
            d = np.array(best.column_scales) * np.exp(rng.normal(size=limits.rounds) * 0.003)
            assert root_error(BandedToeplitz(tuple(c), best.column_scales), limits, error) >= least * (1 - 1e-3)
            assert root_error(BandedToeplitz(best.coefficients, tuple(d)), limits, error) >= least * (1 - 1e-3)


@every_limit
def test_scaled_columns_are_better_than_the_best_plain_bands_and_more_bands_are_better_still(limits) -> None:
    for error in BOTH:
        best = optimize_banded(limits, bands=2, error=error)
        plain = min(root_error(BandedToeplitz((1.0, c)), limits, error) for c in np.linspace(0, 1, 101))
        assert root_error(best, limits, error) < plain
        assert root_error(optimize_banded(limits, bands=3, error=error), limits, error) < root_error(
            best, limits, error
        )


def test_one_participation_cannot_cost_less_than_the_singular_values_allow() -> None:
    """||A||_* <= ||B||_F ||C||_F for A = B C, so the root of the mean error is at least ||A||_* / rounds for S = 1."""
    limits = Participation(rounds=64)
    bound = float(np.linalg.svd(np.tril(np.ones((64, 64))), compute_uv=False).sum()) / 64
    for error in BOTH:
        assert root_error(optimize_banded(limits, bands=64, error=error), limits, error) > bound
    assert root_error(optimize_banded(limits, bands=64), limits, "mean") < 1.05 * bound


def test_early_rounds_get_more_of_the_sensitivity_for_the_mean_error() -> None:
    limits = Participation(rounds=400, max_participations=4, min_separation=99)
    best = optimize_banded(limits, bands=4)
    norms = best.column_norms(400)
    assert np.all(np.diff(norms[50::100]) < 0)
    assert best.squared_sensitivity(limits) == pytest.approx((norms[50::100] ** 2).sum(), rel=1e-9)


def test_the_diagonal_of_independent_noise_falls_as_a_fourth_root() -> None:
    """For bands = 1 and turns of one round, (T - t) / nu under sum nu fixed is least for nu ~ (T - t)^(1/2)."""
    limits = Participation(rounds=16, max_participations=None)
    best = optimize_banded(limits, bands=1)
    assert best.column_scales is not None
    squared = np.array(best.column_scales) ** 2
    assert squared / squared[0] == pytest.approx(np.sqrt(np.arange(16, 0, -1) / 16), rel=1e-4)


@every_limit
def test_bisr_finds_the_best_number_of_bands(limits: Participation) -> None:
    for error in BOTH:
        found = root_error(banded_inverse_square_root(limits, error=error), limits, error)
        every = [
            root_error(banded_inverse_square_root(limits, bands=bands), limits, error)
            for bands in range(1, limits.rounds + 1)
        ]
        assert found <= min(every) * 1.001


def test_bisr_with_all_bands_is_the_square_root() -> None:
    limits = Participation(rounds=50, max_participations=3, min_separation=9)
    all_bands = banded_inverse_square_root(limits, bands=50)
    for error in BOTH:
        expected = root_error(square_root(50), limits, error)
        assert root_error(all_bands, limits, error) == pytest.approx(expected, rel=1e-9)


def differences(function: Callable[[np.ndarray], float], point: np.ndarray) -> np.ndarray:
    steps = np.eye(len(point)) * 1e-6
    return np.array([(function(point + step) - function(point - step)) / 2e-6 for step in steps])


@pytest.mark.parametrize("starts", [(0,), (0, 7), (0, 1, 7, 12)])
def test_stepped_variances_and_gradients_are_right(starts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    rounds, c, eps = 20, np.array([1.0, 0.5, -0.3, 0.2]), rng.uniform(0.5, 2, len(starts))
    stepped = Stepped.of(c, eps, starts, rounds)
    scales = 1 / np.repeat(eps, np.diff((*starts, rounds)))
    strategy = BandedToeplitz(tuple(c), tuple(scales))
    assert stepped.variance == pytest.approx(strategy.prefix_variance(rounds), rel=1e-10)
    weights = rng.random(rounds)
    to_c, to_eps = stepped.pull_back(weights)
    by_c = differences(lambda x: float(weights @ Stepped.of(x, eps, starts, rounds).variance), c)
    by_eps = differences(lambda x: float(weights @ Stepped.of(c, x, starts, rounds).variance), eps)
    assert to_c == pytest.approx(by_c, rel=1e-6)
    assert to_eps == pytest.approx(by_eps, rel=1e-6)


@every_limit
@pytest.mark.parametrize("error", BOTH)
def test_the_gradient_of_a_blts_error_is_right(limits: Participation, error) -> None:
    point = np.array([-1.0, -2.0, -0.5, 2.0, 0.5, -1.0])
    _, gradient = strategy_search.log_error_of_blt(point, limits, error)
    assert gradient == pytest.approx(
        differences(lambda x: strategy_search.log_error_of_blt(x, limits, error)[0], point), rel=1e-5, abs=1e-9
    )


@every_limit
@pytest.mark.parametrize("error", BOTH)
def test_the_gradient_of_a_banded_strategys_error_is_right(limits: Participation, error) -> None:
    turns = strategy_search.Turns.of(limits)
    point = np.concatenate([[0.6, -0.1], np.random.default_rng(6).uniform(0, 0.3, len(turns.starts) - 1)])
    _, gradient = strategy_search.log_error_of_banded(point, turns, limits.rounds, error)
    expected = differences(lambda x: strategy_search.log_error_of_banded(x, turns, limits.rounds, error)[0], point)
    assert gradient == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_columns_that_the_end_cuts_short_are_as_long_as_the_others_and_best_so() -> None:
    for error in BOTH:
        limits = Participation(rounds=60)
        best = optimize_banded(limits, bands=8, error=error)
        assert best.column_norms(60) == pytest.approx(np.full(60, best.column_norms(60)[0]), rel=1e-12)
        assert best.column_scales is not None
        for place in range(53, 60):
            shorter = np.array(best.column_scales)
            shorter[place] *= 0.99  # longer ones would cost more
            worse = BandedToeplitz(best.coefficients, tuple(shorter))
            assert root_error(worse, limits, error) >= root_error(best, limits, error)


def test_a_power_mean_lies_between_mean_and_maximum_and_has_the_right_gradient() -> None:
    values = np.array([1.0, 2.0, 4.0, 3.0])
    assert np.exp(power_mean(values, 1.0)[0]) == pytest.approx(2.5)
    assert np.exp(power_mean(values, 2000.0)[0]) == pytest.approx(4.0, rel=1e-3)
    expected = differences(lambda x: power_mean(x, 5.0)[0], values)
    assert power_mean(values, 5.0)[1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (lambda limits: optimize_banded(limits, bands=0), "bands must be a whole number >= 1"),
        (lambda limits: optimize_banded(limits, bands=65), r"bands must be in \[1, 64\], got 65; a run has"),
        (lambda limits: optimize_banded(limits, bands=9), r"bands must be <= min_separation \+ 1 = 8 .* got 9"),
        (lambda limits: optimize_banded(limits, bands=2, error="worst"), "error must be one of mean, max"),
        (lambda limits: optimize_blt(limits, buffers=11), r"buffers must be in \[1, 10\], got 11; two to four"),
        (lambda limits: banded_inverse_square_root(limits, bands=65), r"bands must be in \[1, 64\], got 65"),
    ],
)
def test_sizes_that_do_not_fit_the_run_are_refused(search, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(Participation(rounds=64, max_participations=2, min_separation=7))


@pytest.mark.parametrize(
    "search",
    [
        lambda limits: optimize_banded(limits, bands=2),
        lambda limits: optimize_blt(limits, buffers=2),
        lambda limits: banded_inverse_square_root(limits),
        lambda limits: banded_inverse_square_root(limits, bands=2).squared_sensitivity(limits),
        lambda limits: Independent().prefix_variance(limits.rounds),
    ],
)
def test_runs_beyond_all_memory_are_refused_before_it_is_taken(search) -> None:
    with pytest.raises(InputError, match=r"rounds must be in \[1, 1e\+07\], got 1000000000000; .* take a shorter run"):
        search(Participation(rounds=10**12))


# Sensitivities of strategies, against all patterns of short runs.


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


# The search over participation patterns, against all patterns of short runs and against closed forms.


tree_limits = st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.integers(0, 6))


def forest(most: int | None, separation: int, rounds: int, **trees: object) -> Forest:
    tree_limits = Participation(rounds=rounds, max_participations=most, min_separation=separation)
    return Forest(tree_limits, **trees)  # type: ignore[arg-type]


def nodes_below(rounds: int, tree_rounds: int | None, completed: bool) -> np.ndarray:
    """0/1 matrix [nodes, rounds], as the mechanism releases them: which rounds each node adds up."""
    rows: list[np.ndarray] = []
    length = tree_rounds or rounds
    starts = range(0, rounds, length)
    for start in starts:
        leaves = min(length, rounds - start)
        if completed and start != starts[-1]:
            leaves = next(2**m for m in range(30) if 2**m >= leaves)
        for size in (2**m for m in range(leaves.bit_length())):
            for first in range(0, leaves - size + 1, size):
                row = np.zeros(start + leaves)
                row[start + first : start + first + size] = 1
                row[start + length :] = 0  # rounds that only complete the tree
                rows.append(np.pad(row, (0, rounds))[:rounds])
    return np.array(rows)


def tree_by_all_patterns(forest: Forest) -> int:
    tree_limits = forest.participation
    nodes = nodes_below(tree_limits.rounds, forest.tree_rounds, forest.completed)
    length = forest.tree_rounds or tree_limits.rounds
    best = 0.0
    for pattern in patterns(tree_limits):
        trees = [position // length for position in pattern]
        if forest.most_per_tree and any(trees.count(tree) > forest.most_per_tree for tree in trees):
            continue
        best = max(best, float((nodes[:, list(pattern)].sum(axis=1) ** 2).sum()))
    return int(best)


def test_patterns_are_those_that_keep_the_distance_and_the_number() -> None:
    tree_limits = Participation(rounds=9, max_participations=3, min_separation=2)
    found = list(patterns(tree_limits))
    subsets = itertools.chain.from_iterable(itertools.combinations(range(9), k) for k in range(10))
    expected = [s for s in subsets if len(s) <= 3 and all(y - x - 1 >= 2 for x, y in itertools.pairwise(s))]
    assert sorted(found) == sorted(expected)
    assert all(tree_limits.allows(pattern) for pattern in found)
    assert not tree_limits.allows([0, 2])
    assert not tree_limits.allows([0, 9])
    assert tree_limits.period == 3


@pytest.mark.parametrize(
    ("most", "separation", "rounds", "expected"),
    [  # tensorflow/privacy, tree_aggregation_accountant_test.py; the last one: the DP-FTRL blog post's production run
        (1, 7, 8, 4),
        (3, 3, 9, 11),
        (3, 2, 7, 9),
        (8, 2, 24, 88),
        (200, 0, 8, 120),
        (6, 313, 2000, 79),
    ],
)
def test_published_squared_sensitivities(most: int, separation: int, rounds: int, expected: int) -> None:
    assert tree_sensitivity(forest(most, separation, rounds)) == (expected, True)


@settings(max_examples=by_profile(150), deadline=None)
@given(tree_limits, st.integers(1, 13))
def test_one_tree_costs_its_worst_pattern(tree_limits: tuple[int | None, int], rounds: int) -> None:
    single = forest(*tree_limits, rounds)
    assert tree_sensitivity(single) == (tree_by_all_patterns(single), True)


@settings(max_examples=by_profile(150), deadline=None)
@given(tree_limits, st.integers(1, 12), st.integers(1, 7), st.booleans(), st.one_of(st.none(), st.integers(1, 3)))
def test_several_trees_cost_their_worst_pattern(
    tree_limits: tuple[int | None, int], rounds: int, length: int, completed: bool, per_tree: int | None
) -> None:
    several = forest(*tree_limits, rounds, tree_rounds=length, completed=completed, most_per_tree=per_tree)
    assert tree_sensitivity(several) == (tree_by_all_patterns(several), True)
    assert _level_bound(several) >= tree_by_all_patterns(several)


@given(st.integers(1, 10**9), st.integers(0, 100))
def test_one_participation_costs_the_depth_of_the_tree(rounds: int, separation: int) -> None:
    assert tree_sensitivity(forest(1, separation, rounds)) == (
        rounds.bit_length(),
        True,
    )  # = ceil(log2(T + 1))


@given(st.integers(1, 10**6))
def test_a_unit_in_every_round_fills_every_node(rounds: int) -> None:
    full = sum(4**m * (rounds >> m) for m in range(rounds.bit_length()))
    assert tree_sensitivity(forest(None, 0, rounds)) == (full, True)


@given(st.integers(1, 300), st.integers(1, 20))
def test_a_tree_an_epoch_costs_a_depth_an_epoch(length: int, epochs: int) -> None:
    several = forest(None, 0, length * epochs, tree_rounds=length, most_per_tree=1)
    assert tree_sensitivity(several) == (epochs * length.bit_length(), True)


@settings(max_examples=by_profile(60), deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(1, 400), st.data())
def test_more_freedom_never_costs_less(most: int, separation: int, rounds: int, data: st.DataObject) -> None:
    base = tree_sensitivity(forest(most, separation, rounds)).value
    assert tree_sensitivity(forest(most + 1, separation, rounds)).value >= base
    assert tree_sensitivity(forest(most, separation, rounds + 1)).value >= base
    if separation:
        assert tree_sensitivity(forest(most, separation - 1, rounds)).value >= base
    length = data.draw(st.integers(1, rounds))
    restarted = tree_sensitivity(forest(most, separation, rounds, tree_rounds=length)).value
    assert tree_sensitivity(forest(most, separation, rounds, tree_rounds=length, completed=True)).value >= restarted


@settings(max_examples=by_profile(40), deadline=None)
@given(st.integers(1, 60), st.integers(0, 30), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_no_pattern_of_a_long_run_moves_more(most: int, separation: int, rounds: int, seed: int) -> None:
    run = forest(most, separation, rounds)
    period = run.participation.period
    gaps = np.random.default_rng(seed).geometric(0.3, size=most) - 1 + period
    gaps[0] -= period
    pattern = np.cumsum(gaps)
    pattern = pattern[pattern < rounds]
    assume(len(pattern))
    blocks = (np.unique(pattern[pattern >> m < rounds >> m] >> m, return_counts=True)[1] for m in range(12))
    assert sum(int((counts**2).sum()) for counts in blocks) <= tree_sensitivity(run).value <= _level_bound(run)


def test_where_the_search_is_too_long_the_bound_is_above_evenly_spaced_participations() -> None:
    value, exact = tree_sensitivity(forest(1000, 99, 100_000))
    pattern = np.arange(1000) * 100
    blocks = (np.unique(pattern[pattern >> m < 100_000 >> m] >> m, return_counts=True)[1] for m in range(17))
    spaced = sum(int((counts**2).sum()) for counts in blocks)
    assert not exact
    assert spaced <= value <= 1.01 * spaced


def test_the_production_run_takes_less_than_a_second() -> None:
    start = time.perf_counter()
    tree_sensitivity.__wrapped__(forest(6, 313, 2000))
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("field", ["rounds", "max_participations", "min_separation"])
@pytest.mark.parametrize("value", [-1, 2.5, "3", float("nan"), float("inf")])
def test_what_is_no_number_of_rounds_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Participation(**{"rounds": 10, field: value})  # type: ignore[arg-type]
