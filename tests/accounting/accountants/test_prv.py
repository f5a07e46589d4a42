"""What is peculiar to PRV: the mean of the rounded losses, its interval, and the limits of a plain transform."""

import itertools
import math

import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant, _nearest, reach
from scipy import integrate, stats

from sfumato.accounting import ApproximateDP, Gaussian, InputError
from sfumato.accounting.pld import PldAccountant
from sfumato.accounting.sampled_pair import SampledGaussian


def mean_loss(rate: float, shift: float, direction: str) -> float:
    """E_P[log(P/Q)] by integration over the observation."""

    def loss(u):
        return np.log1p(rate * np.expm1(shift * u - shift * shift / 2))

    def density(u):
        base = stats.norm.pdf(u)
        return base if direction == "add" else (1 - rate) * base + rate * stats.norm.pdf(u - shift)

    sign = -1 if direction == "add" else 1
    points = (-12, -6, -2, 0, 2, 6, 12, 24)
    parts = [
        integrate.quad(lambda u: sign * loss(u) * density(u), a, b, epsabs=1e-16, epsrel=1e-12, limit=400)[0]
        for a, b in itertools.pairwise(points)
    ]
    return math.fsum(parts)


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize(("rate", "shift"), [(0.01, 1.0), (0.3, 0.7), (1e-4, 2.0), (1.0, 1.5)])
@pytest.mark.parametrize("gap", [0.3, 1e-2, 1e-4])
def test_rounding_keeps_the_mean(rate: float, shift: float, direction, gap: float) -> None:
    rounded = _nearest(SampledGaussian(direction, rate, shift), gap, 1e-20, 1e-9)
    truth = mean_loss(rate, shift, direction)
    mean = float(rounded.masses.values @ rounded.masses.losses) / float(rounded.masses.values.sum())
    assert abs(mean - truth) <= rounded.distance <= 1.1e-9
    assert rounded.missing <= 1e-20


def test_no_loss_moves_by_more_than_half_a_gap_before_the_mean_is_restored() -> None:
    pair, gap = SampledGaussian("remove", 0.2, 1.0), 0.05
    masses = _nearest(pair, gap, 1e-20, 1e-10).masses
    for loss in (-0.1, 0.0, 0.31, 1.4):
        beyond = float(masses.values[masses.losses - masses.offset > loss + 1e-12].sum())
        early, late = pair.cells(np.array([loss, np.inf]))[0][0], pair.cells(np.array([loss + gap, np.inf]))[0][0]
        assert late - 1e-14 <= beyond <= early + 1e-14


def test_the_part_that_is_cut_off_is_counted() -> None:
    pair = SampledGaussian("remove", 0.1, 1.0)
    low, high, missing = reach(pair, 1e-6)
    inside = float(pair.cells(np.array([low, high]))[0][0])
    assert 1 - inside == pytest.approx(missing, abs=1e-12)
    assert 0 < missing <= 1e-6


@pytest.mark.parametrize("epsilon_error", [0.3, 0.1, 0.01])
def test_the_interval_is_as_wide_as_asked_for_and_holds_the_estimate(epsilon_error: float) -> None:
    event = Gaussian(0.8).poisson(5e-3) * 1000
    account = PrvAccountant(event, epsilon_error=epsilon_error)
    low, high = account.epsilon_interval(1e-6)
    true_low, true_high = PldAccountant(event).epsilon_interval(1e-6)
    assert low < true_low < true_high < high
    assert low < account.estimate(1e-6) < high
    assert 2 * epsilon_error < high - low < 2.02 * epsilon_error + 1e-3


def test_the_estimate_converges_to_the_truth() -> None:
    event = Gaussian(0.8).poisson(5e-3) * 1000
    true_low, true_high = PldAccountant(event).epsilon_interval(1e-6)
    estimate = PrvAccountant(event, epsilon_error=0.003).estimate(1e-6)
    assert true_low * (1 - 1e-6) <= estimate <= true_high * (1 + 1e-6)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"),
    [(0.5, 2e-5, 1_000_000, 1e-10), (0.5, 2e-5, 100_000, 1e-11), (1.0, 0.01, 1000, 1e-15), (1.0, 1.0, 1, 1e-300)],
)
def test_a_delta_below_the_round_off_is_refused_in_one_line(z, q, steps, delta) -> None:
    with pytest.raises(InputError, match=r'cannot certify delta .*; use "pld"') as refused:
        PrvAccountant(Gaussian(z).poisson(q) * steps).epsilon(delta)
    assert "\n" not in str(refused.value)


def test_round_off_is_paid_for_before_it_drowns_the_answer() -> None:
    event = Gaussian(0.5).poisson(2e-5) * 100_000
    low, high = PldAccountant(event).epsilon_interval(3e-8)
    own_low, own_high = PrvAccountant(event).epsilon_interval(3e-8)
    assert own_low < low < high < own_high
    assert own_high - own_low > 0.03  # more than twice the mesh's error, as the rest is round-off


@pytest.mark.slow
def test_a_long_run_has_a_coarser_mesh_and_still_a_bound() -> None:
    event = Gaussian(1.0).poisson(0.01) * 10_000_000
    low, high = PldAccountant(event).epsilon_interval(1e-5)
    own_low, own_high = PrvAccountant(event).epsilon_interval(1e-5)
    assert own_low <= low <= high <= own_high < 1.02 * high


@pytest.mark.parametrize("error", [0.0, -0.1, math.nan, math.inf])
def test_an_error_that_is_none_is_refused(error: float) -> None:
    with pytest.raises(InputError, match="epsilon_error must be"):
        PrvAccountant(Gaussian(1.0), epsilon_error=error)


@pytest.mark.parametrize("kind", [PrvAccountant, BucketsAccountant])
def test_an_event_without_a_finite_loss_is_refused_by_name(kind) -> None:
    with pytest.raises(InputError, match="infinite losses only"):
        kind(ApproximateDP(2.0, 0.7), "replace")
