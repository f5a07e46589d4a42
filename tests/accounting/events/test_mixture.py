import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    Composition,
    Gaussian,
    InputError,
    MixtureOfGaussians,
    Unknown,
    event_from_json,
    guarantee,
)
from sfumato.accounting.pld import PldAccountant
from slow import by_profile

HALF = MixtureOfGaussians(2.0, (0.0, 1.0, 3.0), (0.5, 0.3, 0.2))


@st.composite
def mixtures(draw) -> MixtureOfGaussians:
    amounts = draw(st.lists(st.just(0.0) | st.floats(1e-200, 5), min_size=1, max_size=5).filter(any))
    chances = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(amounts), max_size=len(amounts))))
    return MixtureOfGaussians(draw(st.floats(0.5, 20)), tuple(amounts), tuple((chances / chances.sum()).tolist()))


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 2.5), (1e-4, 0.6)])
def test_a_poisson_sample_is_the_special_case(rate: float, noise: float) -> None:
    mixture = MixtureOfGaussians(2 * noise, (0.0, 2.0), (1 - rate, rate)) * 100
    sampled = Gaussian(noise).poisson(rate) * 100
    for method in ("pld", "rdp"):
        ours, theirs = (guarantee(event, method=method).epsilon(1e-6) for event in (mixture, sampled))  # pyright: ignore[reportArgumentType]
        assert ours == pytest.approx(theirs, rel=1e-6)
    low, high = PldAccountant(mixture).epsilon_interval(1e-6)
    assert 0 < low < high < 1.001 * low


def test_a_poisson_sample_of_a_mixture_is_a_mixture() -> None:
    plain = MixtureOfGaussians(2.0, (3.0,), (1.0,))
    sampled = plain.poisson(0.02) * 50
    assert guarantee(sampled).epsilon(1e-6) == pytest.approx(
        guarantee(Gaussian(2 / 3).poisson(0.02) * 50).epsilon(1e-6), rel=1e-6
    )
    twice, once = (
        event.renyi(np.array([3.0]), "add_remove") for event in (HALF.poisson(0.5).poisson(0.5), HALF.poisson(0.25))
    )
    assert twice == pytest.approx(once, rel=1e-9)
    assert HALF.poisson(1.0) == HALF
    assert HALF.poisson(0.0) == Composition(())
    with pytest.raises(Unknown, match="MixtureOfGaussians is not known"):
        (HALF * 2).poisson(0.5)
    with pytest.raises(Unknown, match="a mixture again"):
        HALF.without_replacement(5, 50)
    with pytest.raises(InputError, match="sampling_rate"):
        HALF.poisson(math.nan)


def test_one_sure_sensitivity_is_a_gaussian() -> None:
    event = MixtureOfGaussians(3.0, (1.0, 9.0, 1.0), (0.4, 0.0, 0.6))
    for adjacency in ("add_remove", "replace", "zero_out"):
        shift = event.gaussian_shift(adjacency)  # pyright: ignore[reportArgumentType]
        assert shift == pytest.approx(Gaussian(3.0).gaussian_shift(adjacency), rel=1e-15)  # pyright: ignore[reportArgumentType]
    assert guarantee(event).method == "gaussian"


def test_moving_in_different_directions_shows_no_more_than_moving_in_one() -> None:
    """In the plane, by integration on a grid: v_1 and v_2 of lengths 1 and 1.5 at an angle, and shorter ones."""
    axis = np.linspace(-9, 9, 1201)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    cell = (axis[1] - axis[0]) ** 2

    def normal(mean_x: float, mean_y: float) -> np.ndarray:
        return np.exp(-((x - mean_x) ** 2 + (y - mean_y) ** 2) / 2) / (2 * np.pi)

    event = MixtureOfGaussians(1.0, (0.0, 1.0, 1.5), (0.3, 0.4, 0.3))
    remove, add = event.pairs("add_remove")
    still = normal(0, 0)
    for angle, length in ((0.0, 1.0), (0.7, 1.0), (math.pi / 2, 1.0), (math.pi, 1.0), (0.0, 0.5)):
        second = (1.5 * length * math.cos(angle), 1.5 * length * math.sin(angle))
        mixed = 0.3 * still + 0.4 * normal(1.0, 0.0) + 0.3 * normal(*second)
        for epsilon in (0.0, 0.3, 1.0):
            edges = np.array([epsilon, np.inf])
            for pair, p, q in ((remove, mixed, still), (add, still, mixed)):
                upper, lower, _ = pair.cells(edges)
                bound = upper[0] - np.exp(epsilon) * lower[0]
                found = np.maximum(p - np.exp(epsilon) * q, 0).sum() * cell
                assert found <= bound + 2e-5
                if (angle, length) == (0.0, 1.0):
                    assert found == pytest.approx(bound, abs=2e-5)


def test_replacing_is_bounded_by_who_is_told_the_amount() -> None:
    """v_i = s_i and -s_i: the bound is the mean over i, and above the curve of who does not see i."""
    u = np.linspace(-14, 14, 8001)
    shifts, weights = HALF._cases()
    (pair,) = HALF.pairs("replace")

    def normal(mean: float) -> np.ndarray:
        return np.exp(-((u - mean) ** 2) / 2) / np.sqrt(2 * np.pi)

    p = sum(weight * normal(shift) for shift, weight in zip(shifts, weights))
    q = sum(weight * normal(-shift) for shift, weight in zip(shifts, weights))
    for epsilon in (0.0, 0.5, 1.5):
        upper, lower, _ = pair.cells(np.array([epsilon, np.inf]))
        bound = upper[0] - np.exp(epsilon) * lower[0]
        told = [np.trapezoid(np.maximum(normal(s) - np.exp(epsilon) * normal(-s), 0), u) for s in shifts]
        assert bound == pytest.approx(np.dot(weights, told), abs=1e-6)
        assert np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0), u) <= bound + 1e-6


@settings(max_examples=by_profile(40), deadline=None)
@given(mixtures())
def test_an_event_survives_json_and_counts(event: MixtureOfGaussians) -> None:
    again = event_from_json(json.loads(json.dumps(event.to_json())))
    assert again == event
    assert hash(again) == hash(event)
    assert event + event == event * 2
    assert event_from_json((event * 3).to_json()) == event * 3


@settings(max_examples=by_profile(12), deadline=None)
@given(mixtures(), st.sampled_from(["add_remove", "replace", "zero_out"]))
def test_accountants_agree_in_order(event: MixtureOfGaussians, adjacency: str) -> None:
    run = event * 20
    promise = guarantee(run, adjacency)  # pyright: ignore[reportArgumentType]
    of_pairs = getattr(promise.accountants[0], "epsilon_interval", promise.epsilon_interval)
    low, high = of_pairs(1e-6)
    assert 0 <= low <= high == promise.epsilon(1e-6) < math.inf
    assert high - low <= 2e-3 * high + 1e-9
    assert high <= guarantee(run, adjacency, "rdp").epsilon(1e-6) * (1 + 1e-9)  # pyright: ignore[reportArgumentType]
    assert high <= guarantee(run, adjacency, "zcdp").epsilon(1e-6) * (1 + 1e-9)  # pyright: ignore[reportArgumentType]
    if adjacency != "replace":
        most = max(amount for amount in event.sensitivities) / event.noise_std
        assert high <= guarantee(Gaussian(1 / most) * 20).epsilon(1e-6) * (1 + 1e-3)


def test_a_larger_sensitivity_or_a_likelier_one_costs_more() -> None:
    def epsilon(sensitivities: tuple[float, ...], probabilities: tuple[float, ...]) -> float:
        return guarantee(MixtureOfGaussians(2.0, sensitivities, probabilities) * 50).epsilon(1e-6)

    base = epsilon((0.0, 1.0, 2.0), (0.8, 0.1, 0.1))
    assert epsilon((0.0, 1.0, 2.1), (0.8, 0.1, 0.1)) > base
    assert epsilon((0.0, 1.0, 2.0), (0.8, 0.09, 0.11)) > base
    assert epsilon((0.1, 1.0, 2.0), (0.8, 0.1, 0.1)) > base


def test_amounts_of_any_size_are_priced_or_refused_in_one_line() -> None:
    for size in (1e-300, 1e-12, 1e-3, 30.0, 1e4, 1e200, 1e307):
        for adjacency in ("add_remove", "replace"):
            event = MixtureOfGaussians(1.0, (0.0, size), (0.9, 0.1)) * 10
            epsilon = guarantee(event, adjacency).epsilon(1e-8)  # pyright: ignore[reportArgumentType]
            assert epsilon >= 0
    with pytest.raises(Unknown, match="too little noise"):
        guarantee(MixtureOfGaussians(1.0, (0.0, 30.0), (0.9, 0.1)), method="pld")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, (1.0,), (1.0,)), "noise_std must be > 0"),
        ((float("nan"), (1.0,), (1.0,)), "noise_std must be a number"),
        ((1.0, (), ()), "sensitivities must have at least one number"),
        ((1.0, 1.0, 1.0), "sensitivities must be a tuple"),
        ((1.0, "abc", (1.0,)), "sensitivities must be a tuple"),
        ((1.0, ("a",), (1.0,)), "sensitivities must be a number"),
        ((1.0, (-1.0,), (1.0,)), "sensitivities must be >= 0"),
        ((1.0, (math.inf,), (1.0,)), "sensitivities must be >= 0 and finite"),
        ((1.0, (math.nan,), (1.0,)), "sensitivities must be a number, got nan"),
        ((1.0, (1.0,), (0.5,)), "probabilities must sum to 1"),
        ((1.0, (1.0, 0.0), (1.5, -0.5)), "probabilities must be in"),
        ((1.0, (1.0, 0.0), (math.nan, 1.0)), "probabilities must be a number"),
        ((1.0, (1.0,), (0.5, 0.5)), "of one length"),
        ((1.0, (0.0, 1.0), (1.0, 0.0)), "moves nothing"),
        ((1e-10, (1e308,), (1.0,)), "too small"),
    ],
)
def test_bad_values_are_refused_in_one_line(arguments: tuple, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        MixtureOfGaussians(*arguments)
    assert "\n" not in str(raised.value)


def test_the_published_shape_of_a_sampled_matrix_mechanism() -> None:
    """A column (1, 1/2) of a matrix whose rounds sample with rate 1/4: 0, 1/2, 1, 3/2 with their products."""
    chances = (0.75 * 0.75, 0.75 * 0.25, 0.25 * 0.75, 0.25 * 0.25)
    event = MixtureOfGaussians(1.5, (0.0, 0.5, 1.0, 1.5), chances)
    orders = np.array([2.0])
    closed = sum(
        p * r * math.exp(s * t / 1.5**2)
        for s, p in zip(event.sensitivities, chances)
        for t, r in zip(event.sensitivities, chances)
    )
    assert event.renyi(orders, "add_remove")[0] == pytest.approx(math.log(closed), rel=1e-10)


STEP = Gaussian(1.0).poisson(0.1)


def test_a_mixture_has_no_lower_bound_above_the_poisson_sample_that_it_is():
    told = MixtureOfGaussians(1.0, (0.0, 1.0), (0.9, 0.1))  # the cost of somebody who is told whether it is drawn
    low, high = guarantee(told, "replace").epsilon_interval(1e-5)
    _, truth = guarantee(STEP, "replace").epsilon_interval(1e-5)  # the same release
    assert low <= truth < high
    assert guarantee(told).epsilon_interval(1e-5)[0] > 0  # adding and removing are attained


def test_unequal_mixtures_take_little_memory() -> None:
    """A hundred shifts at once, and shifts of the most different sizes composed; 300 MB hold NumPy and SciPy, too."""
    code = """
from sfumato.accounting import Composition, MixtureOfGaussians, guarantee
wide = MixtureOfGaussians(1.0, tuple(i / 10 for i in range(100)), (0.01,) * 100) * 20
far = MixtureOfGaussians(1.0, (0.0, 20.0), (0.5, 0.5)) * 50 + MixtureOfGaussians(1.0, (0.0, 1e-4), (0.5, 0.5)) * 5000
several = sum((MixtureOfGaussians(1.0, (0.0, 0.5, 3 + i / 2), (0.5, 0.3, 0.2)) * 3 for i in range(8)), Composition(()))
for run in (wide, far, several):
    low, high = guarantee(run).epsilon_interval(1e-6)
    assert 0 < low <= high < 1.001 * low
    guarantee(run).delta(1.0)
guarantee(far).gdp()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300
