"""What is found meets its target, the next cheaper number does not, and neither takes long or much memory."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import ApproximateDP, Gaussian, InputError, NonPrivate, calibrate, guarantee
from sfumato.accounting.calibration import Search
from slow import by_profile, one_in

# What is found meets its target, the next cheaper number does not, and neither takes long or much memory.


TARGETS = [
    {"epsilon": 1.0, "delta": 1e-5},
    {"epsilon": 0.0, "delta": 1e-2},
    {"mu": 0.4},
    {"advantage": 0.1},
    {"tpr": 0.02, "fpr": 0.01},
    {"success": 0.53},
    {"success": 0.805, "prior": 0.8},
    {"rho": 0.1},
]


def value(promise, target: dict[str, float]) -> float:
    """The number that a target limits."""
    match target:
        case {"epsilon": _, "delta": delta}:
            return promise.epsilon(delta)
        case {"tpr": _, "fpr": fpr}:
            return float(promise.tpr(fpr))
        case {"success": _}:
            return promise.bayes_success(target.get("prior", 0.5))
        case {"mu": _}:
            return promise.gdp().mu
        case {"rho": _}:
            return promise.rho()
    return promise.advantage()


@settings(max_examples=by_profile(8), deadline=None, derandomize=True)
@given(st.floats(0.3, 20), st.floats(1e-8, 1e-3), st.floats(1e-3, 0.5), st.integers(1, 2000))
def test_the_noise_meets_the_budget_and_a_little_less_does_not(epsilon, delta, q, n) -> None:
    def event(z):
        return Gaussian(z).poisson(q) * n

    z = calibrate(event, epsilon=epsilon, delta=delta, method="rdp")
    assert guarantee(event(z), method="rdp").epsilon(delta) <= epsilon
    assert z == 0.05 or guarantee(event(z * (1 - 1e-5)), method="rdp").epsilon(delta) > epsilon


@pytest.mark.parametrize(("target", "q"), one_in(2, TARGETS, [0.02, 1.0]))
def test_every_target_is_met_and_by_a_little_less_noise_missed(target, q) -> None:
    def event(z):
        return Gaussian(z).poisson(q) * 50

    z = calibrate(event, **target)
    (limit, *_) = target.values()
    assert value(guarantee(event(z)), target) <= limit
    assert value(guarantee(event(z * (1 - 2e-3))), target) > limit


def test_each_adjacency_is_calibrated_for_itself() -> None:
    noise = {
        a: calibrate(lambda z: Gaussian(z) * 3, epsilon=1, delta=1e-5, adjacency=a) for a in ("replace", "zero_out")
    }
    assert noise["replace"] == pytest.approx(2 * noise["zero_out"], rel=1e-5)


@pytest.mark.parametrize(
    ("z", "q", "epsilon", "delta"), [(3.0, 0.1, 2.0, 1e-6), (1.0, 0.01, 1.0, 1e-5), (0.7, 0.3, 9.0, 1e-4)]
)
def test_steps_are_the_most_that_fit(z, q, epsilon, delta) -> None:
    def event(n):
        return Gaussian(z).poisson(q) * n

    n = calibrate(event, epsilon=epsilon, delta=delta, bracket=(1, 1e9), integer=True)
    assert isinstance(n, int)
    assert guarantee(event(n)).epsilon(delta) <= epsilon
    assert guarantee(event(n + 1)).epsilon(delta) > epsilon


def test_the_sampling_rate_is_the_largest_that_fits() -> None:
    def event(q):
        return Gaussian(1.0).poisson(q) * 100

    for method in ("rdp", "auto"):
        q = calibrate(event, epsilon=2.0, delta=1e-6, bracket=(1e-9, 1.0), method=method)
        assert guarantee(event(q), method=method).epsilon(1e-6) <= 2.0
        assert guarantee(event(q * 1.001), method=method).epsilon(1e-6) > 2.0


@pytest.mark.parametrize("method", ["auto", "rdp"])
def test_a_budget_out_of_reach_names_the_best_value(method) -> None:
    def event(z):
        return Gaussian(z).poisson(0.5) * 1000

    best = guarantee(event(10), method=method).epsilon(1e-5)
    with pytest.raises(
        InputError, match=rf"^epsilon 0.1 at delta 1e-05 is out of reach: the smallest .* is {best:.6g};"
    ):
        calibrate(event, epsilon=0.1, delta=1e-5, bracket=(0.05, 10), method=method)


@pytest.mark.parametrize("target", [{"tpr": 0.009, "fpr": 0.01}, {"success": 0.5}, {"rho": 1e-12}, {"mu": 1e-9}])
def test_what_no_noise_reaches_is_said_in_one_line(target) -> None:
    with pytest.raises(InputError, match="is out of reach: the smallest between") as refusal:
        calibrate(lambda z: Gaussian(z).poisson(0.1) * 10, **target)
    assert "\n" not in str(refusal.value)


def test_a_run_without_noise_is_out_of_reach_of_everything() -> None:
    with pytest.raises(InputError, match=r"the smallest between 0\.05 and 10000 is inf"):
        calibrate(lambda z: Gaussian(z) + NonPrivate(), epsilon=1e6, delta=1e-5)


def test_a_budget_that_everything_meets_returns_the_cheap_end() -> None:
    assert calibrate(lambda z: Gaussian(z), epsilon=1000, delta=1e-5, bracket=(1, 10)) == 1
    assert calibrate(lambda n: Gaussian(50) * n, epsilon=10, delta=1e-5, bracket=(1, 9), integer=True) == 9
    assert calibrate(lambda z: Gaussian(z).poisson(0.01) * 10_000, epsilon=1e6, delta=1e-5) == 0.05


def test_the_tight_accountant_is_asked_only_a_few_times_and_only_near_the_answer(monkeypatch) -> None:
    from sfumato.accounting.pld import PldAccountant

    asked = []
    ask = PldAccountant.epsilon

    def count(self, delta):
        asked.append(self)
        return ask(self, delta)

    monkeypatch.setattr(PldAccountant, "epsilon", count)
    z = calibrate(lambda z: Gaussian(z).poisson(0.015) * 7000, epsilon=2, delta=1e-5)
    assert 1.5 < z < 4
    assert 2 <= len(asked) <= 8


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of its memory from /proc")
def test_calibration_takes_little_time_and_memory() -> None:
    """Goal: one second and 200 MB; the clock gets a margin for a busy machine. Extremes must not cost more memory."""
    program = """
import json, time
from sfumato.accounting import Gaussian, calibrate
start = time.perf_counter()
z = calibrate(lambda z: Gaussian(z).poisson(0.01) * 10_000, epsilon=2.0, delta=1e-5)
taken = time.perf_counter() - start
calibrate(lambda n: Gaussian(0.8).poisson(1e-3) * n, epsilon=8.0, delta=1e-6, bracket=(1, 1e9), integer=True)
calibrate(lambda z: Gaussian(z).poisson(0.01) * 10_000, epsilon=1e6, delta=1e-5)
calibrate(lambda z: Gaussian(z).poisson(0.01) * 1000, tpr=0.02, fpr=0.01)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([z, taken, int(peak.split()[1]) / 1024]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    z, taken, megabytes = json.loads(done.stdout)
    assert z == pytest.approx(2.127, abs=2e-3)
    assert taken < 5.0
    assert megabytes < 200


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "give exactly one target, .*got none"),
        ({"epsilon": 1, "delta": 1e-5, "rho": 1}, "give exactly one target, .*got epsilon and rho"),
        ({"epsilon": 1}, "the target epsilon needs delta too"),
        ({"tpr": 0.1}, "the target tpr needs fpr too"),
        ({"rho": 1, "delta": 1e-5}, "delta belongs to the target epsilon"),
        ({"mu": 1, "fpr": 0.1}, "fpr belongs to the target tpr"),
        ({"mu": 1, "prior": 0.1}, "prior belongs to the target success"),
        ({"epsilon": -1, "delta": 1e-5}, "epsilon must be >= 0"),
        ({"epsilon": float("inf"), "delta": 1e-5}, "epsilon must be >= 0 and finite"),
        ({"epsilon": 1, "delta": 0}, r"delta must be in \(0, 1\)"),
        ({"epsilon": 1, "delta": 1}, r"delta must be in \(0, 1\)"),
        ({"epsilon": "1", "delta": 1e-5}, "epsilon must be a number"),
        ({"rho": 0}, "rho must be > 0"),
        ({"mu": float("nan")}, "mu must be a number"),
        ({"advantage": 1}, "advantage must be in"),
        ({"tpr": 1.1, "fpr": 0.1}, "tpr must be in"),
        ({"tpr": 0.5, "fpr": 0}, "fpr must be in"),
        ({"success": 1}, "success must be in"),
        ({"success": 0.9, "prior": 1}, "prior must be in"),
    ],
)
def test_an_unclear_target_is_refused(target, words) -> None:
    with pytest.raises(InputError, match=words):
        calibrate(lambda z: Gaussian(z), **target)


@pytest.mark.parametrize("bracket", [(2, 1), (1, 1), (0, 1), (-1, 1)])
def test_an_impossible_bracket_is_refused(bracket) -> None:
    with pytest.raises(InputError, match="bracket"):
        calibrate(lambda z: Gaussian(z), epsilon=1, delta=1e-5, bracket=bracket)


@pytest.mark.parametrize("bracket", [(1,), None, 3, "12", (1, 2, 3), ("1", "2"), (1.2, 1.8)])
def test_a_bracket_that_holds_no_answer_is_refused(bracket) -> None:
    with pytest.raises(InputError, match="bracket"):
        calibrate(lambda n: Gaussian(10) * int(n), epsilon=1, delta=1e-5, bracket=bracket, integer=True)


def test_an_extreme_budget_is_answered() -> None:
    for epsilon, delta in ((1e6, 1e-5), (2.0, 1e-300), (0.1, 0.3)):
        z = calibrate(lambda z: Gaussian(z).poisson(0.01) * 100, epsilon=epsilon, delta=delta)
        assert guarantee(Gaussian(z).poisson(0.01) * 100).epsilon(delta) <= epsilon


@pytest.mark.parametrize("target", [{"epsilon": 1.0, "delta": 1e-5}, {"tpr": 0.03, "fpr": 0.01}, {"advantage": 0.4}])
def test_claims_without_a_renyi_bound_are_calibrated_all_the_same(target) -> None:
    steps = calibrate(lambda n: ApproximateDP(0.1, 1e-7) * n, **target, bracket=(1, 10_000), integer=True)
    assert value(guarantee(ApproximateDP(0.1, 1e-7) * steps), target) <= next(iter(target.values()))
    assert value(guarantee(ApproximateDP(0.1, 1e-7) * (steps + 1)), target) > next(iter(target.values()))
    noise = calibrate(lambda z: Gaussian(z) + ApproximateDP(0.1, 1e-7), **target)
    assert value(guarantee(Gaussian(noise) + ApproximateDP(0.1, 1e-7)), target) <= next(iter(target.values()))


@pytest.mark.parametrize("method", ["auto", "rdp"])
@pytest.mark.parametrize("event", [None, 1.0, "gaussian"])
def test_a_function_that_gives_no_event_is_named(event, method) -> None:
    with pytest.raises(InputError, match="make_event must return an accounting event, got"):
        calibrate(lambda z: event, epsilon=1.0, delta=1e-5, method=method)


@pytest.mark.parametrize("wrong", [None, 3, "x", Gaussian(1.0), np.array(1.0)])
def test_what_is_no_function_is_refused(wrong) -> None:
    with pytest.raises(InputError, match="make_event must be a function"):
        calibrate(wrong, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("make", [lambda: Gaussian(1.0), lambda z, q: Gaussian(z).poisson(q), lambda *, z: Gaussian(z)])
def test_a_function_that_does_not_take_one_number_is_refused(make) -> None:
    with pytest.raises(InputError, match="make_event must take one number"):
        calibrate(make, epsilon=1.0, delta=1e-5)


def test_a_type_error_inside_the_function_is_its_own() -> None:
    def make(z: float) -> Gaussian:
        return Gaussian(z + "")  # pyright: ignore[reportOperatorIssue]

    with pytest.raises(TypeError, match="unsupported operand"):
        calibrate(make, epsilon=1.0, delta=1e-5)


# The search on costs whose answer is known.


COSTS = {
    "power": lambda x: x**-1.7,
    "wall": lambda x: math.inf if x < 3 else 1 / x,
    "plateau": lambda x: 1.0 if x < 20 else 1 / x,
    "step": lambda x: 2.0 if x < 31.4159 else 0.0,
    "steep": lambda x: math.exp(min(700.0, 50 / x)) - 1,
    "above one half": lambda x: 0.5 + 0.5 * math.exp(-x / 10),
}


def counted(cost):
    asked: list[float] = []

    def ask(number: float) -> float:
        asked.append(number)
        return cost(number)

    return ask, asked


@settings(max_examples=by_profile(60), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(COSTS)), st.floats(math.log(0.51), math.log(0.99)).map(math.exp), st.floats(0.1, 900))
def test_the_answer_is_good_and_its_neighbour_is_not(name: str, limit: float, start: float) -> None:
    ask, asked = counted(COSTS[name])
    search = Search(ask, limit, 0.05, 1e3, integer=False, tolerance=1e-6, floor=0.5 if "half" in name else 0.0)
    cheap, dear = search.ends()
    for good in (search.between(cheap, dear)[0], search.near(start, 0.0, cheap.number)):
        assert good.cost == COSTS[name](good.number) <= limit
        assert COSTS[name](good.number * (1 - 2e-6)) > limit
    assert len(asked) < 100


@settings(max_examples=by_profile(60), deadline=None, derandomize=True)
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0.3, 3))
def test_whole_numbers_are_found_exactly(answer: int, start: int, exponent: float) -> None:
    ask, asked = counted(lambda n: n**exponent)
    search = Search(ask, answer**exponent, 1, 10**9, integer=True, tolerance=1e-12)
    assert search.near(start, exponent, 1).number == answer
    cheap, dear = search.ends()
    found = dear if dear.cost <= search.limit else search.between(cheap, dear)[0]
    assert found.number == answer
    assert all(number == int(number) for number in asked)


@pytest.mark.parametrize("name", ["power", "steep"])
def test_a_smooth_cost_is_asked_few_times(name: str) -> None:
    ask, asked = counted(COSTS[name])
    search = Search(ask, 0.3, 0.05, 1e3, integer=False, tolerance=1e-6)
    (good, _) = search.between(*search.ends())
    assert len(asked) < 20
    asked.clear()
    search.near(good.number * 1.07, -1.5, 1e3)
    assert len(asked) < 8


def test_nothing_good_is_reported_by_the_cheap_end() -> None:
    search = Search(lambda x: 1 + 1 / x, 0.5, 1.0, 8.0, integer=False, tolerance=1e-6)
    found = search.near(2.0, -1.0, 8.0)
    assert found.number == 8.0
    assert found.cost > search.limit
