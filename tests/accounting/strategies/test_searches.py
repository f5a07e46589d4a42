"""Strategies that were optimised: against published ones, their neighbours and finite differences."""

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfumato.accounting import InputError, Participation, strategy_search
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BufferedToeplitz,
    Independent,
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

CSV = Path(__file__).parents[3].parent / "shared" / "references" / "matrix_mechanisms.csv"
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
