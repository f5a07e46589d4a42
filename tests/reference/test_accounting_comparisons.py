"""Published figures of the two accountants that are there for comparison."""

import json
import math
from pathlib import Path

import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant
from scipy.optimize import brentq

from sfumato.accounting import Gaussian, guarantee
from sfumato.accounting.pld import PldAccountant


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta", "error", "low", "estimate", "high"),
    [
        # computed with prv_accountant 0.2.0
        (1.0, 0.01, 10_000, 1e-5, 0.01, 6.17739, 6.187713571964049, 6.19804),
        (0.8, 5e-3, 1000, 1e-6, 0.1, 1.90395, 2.0039705566345853, 2.10399),  # the command in its README
        (1.0, 0.2, 500, 1e-5, 0.01, 38.1588, 38.170242732805704, 38.1817),
        # pytorch/opacus, accountants_test.py, test_prv_accountant
        (1.5, 0.04, 2249, 1e-5, 0.01, None, None, 6.777395712150674),
    ],
)
def test_prv_meets_the_authors_program_within_a_mesh(z, q, steps, delta, error, low, estimate, high) -> None:
    account = PrvAccountant(Gaussian(z).poisson(q) * steps, epsilon_error=error)
    own_low, own_high = account.epsilon_interval(delta)
    mesh = error / math.sqrt(steps / 2 * math.log(12 / (delta / 1000)))  # where the grid lies is up to a program
    printed = 5e-6 if low is None else 5.1e-5 if high > 10 else 5.1e-6
    assert own_high == pytest.approx(high, abs=mesh + printed)
    if low is not None:
        assert own_low == pytest.approx(low, abs=mesh + printed)
        assert account.estimate(delta) == pytest.approx(estimate, abs=mesh)


def test_buckets_against_the_fourier_accountant() -> None:
    """DPBayes/PLD-Accountant, README: (0.69808, 1.13391) with 2e7 bins on [-20, 20].

    It does not round losses: it bounds their density from both sides in every bin and so multiplies the masses of a
    step by 1 + d and 1 - d, with d the largest density times the bin. Ten thousand steps multiply delta by e^3.4 and
    e^-3.4. That explains both ends; rounding losses on the same grid costs 0.01 instead of 0.19.
    """
    steps, delta, gap, z, q = 10_000, 1e-5, 2 * 20 / 2e7, 4.0, 0.01
    event = Gaussian(z).poisson(q) * steps
    truth = PldAccountant(event)
    own_low, own_high = BucketsAccountant(event, gap=gap).epsilon_interval(delta)
    assert 0.69808 < own_low < truth.epsilon_interval(delta)[0]
    assert truth.epsilon_interval(delta)[1] < own_high < 1.1339061240664539
    assert own_high - own_low == pytest.approx(steps * gap, rel=0.01)

    def density(loss: float) -> float:
        u = z * math.log1p(math.expm1(loss) / q) + 1 / (2 * z)
        masses = (1 - q) * math.exp(-u * u / 2) + q * math.exp(-((u - 1 / z) ** 2) / 2)
        return masses / math.sqrt(2 * math.pi) * z * math.exp(loss) / (math.expm1(loss) + q)

    peak = brentq(lambda loss: density(loss + 1e-7) - density(loss - 1e-7), -0.004, 0.0)
    grown = density(peak) * gap * steps
    assert truth.epsilon(delta * math.exp(-grown)) == pytest.approx(1.13391, abs=steps * gap)
    assert truth.epsilon(delta * math.exp(grown)) == pytest.approx(0.69808, abs=steps * gap)


def test_the_figure_in_the_docs_supports_what_its_page_says() -> None:
    file = Path(__file__).parents[2] / "docs" / "images" / "accountants.json"
    drawn = json.loads(file.read_text(encoding="utf-8"))
    points = {point["steps"]: point for point in drawn["points"]}
    for steps, point in points.items():
        low, high = point["pld"]["lower"], point["pld"]["upper"]
        assert 0 < low <= high < 1.0005 * low
        assert low <= min(point["buckets"]["upper"], point["rdp"]["upper"])
        assert ("upper" in point["prv"]) is (steps < 100_000)
        if "upper" in point["prv"]:
            assert point["prv"]["lower"] < low < high < point["prv"]["upper"]
            assert point["prv"]["estimate"] == pytest.approx(high, rel=1e-3)
    million = points[1_000_000]
    assert million["rdp"]["upper"] == pytest.approx(1.39 * million["pld"]["upper"], rel=0.01)
    assert million["buckets"]["upper"] > max(2 * million["pld"]["upper"], million["rdp"]["upper"])
    assert points[100_000]["buckets"]["upper"] == pytest.approx(1.15 * points[100_000]["pld"]["upper"], rel=0.01)
    setting = drawn["setting"]
    event = Gaussian(setting["noise_multiplier"]).poisson(setting["sampling_rate"]) * 1000
    low, high = guarantee(event, method="pld").epsilon_interval(setting["delta"])
    assert low <= points[1000]["pld"]["upper"]
    assert points[1000]["pld"]["lower"] <= high
