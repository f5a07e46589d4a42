"""Every row of the collection of published values that names a mechanism which is accounted here.

The collection is `../shared/references/accounting.csv`; each row is found by its first two columns. What is published
is met at its printed digits where the same bound is computed. A published upper bound may lie above ours by its own
coarseness, never below our lower bound; for such rows the test states how coarse it is. Rows whose mechanism is not
accounted are listed by name, so that a new row cannot be passed over in silence.
"""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant

from sfumato import accounting as acc
from sfumato.accounting import (
    ZCDP,
    ApproximateDP,
    DiscreteLaplace,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    RandomizedResponse,
    TreeAggregation,
    calibrate,
    guarantee,
)
from sfumato.accounting.accountants import RdpAccountant, rdp
from sfumato.voting.data_dependent import log_union, theorem6

CSV = Path(__file__).parents[2].parent / "shared" / "references" / "accounting.csv"
OPACUS_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *(float(order) for order in range(12, 64)))
DENSE_ORDERS = tuple(1 + thousandth / 1000 for thousandth in range(1, 99_000))

Check = Callable[[str, float | None], None]


def within(event: acc.Event, adjacency="add_remove", coarse: float = 2e-4, low_by: float = 0.0) -> Check:
    """The published epsilon is an upper bound that is at most `coarse` (relative) above the truth."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        low, high = guarantee(event, adjacency).epsilon_interval(delta)
        epsilon, digit = float(printed), last_digit(printed)
        assert low <= epsilon * (1 + low_by) + digit
        assert high >= (epsilon - digit) * (1 - coarse)
        assert high <= (epsilon + digit) * (1 + 1.1e-3)  # and our own bound is no worse

    return check


def exact(event: acc.Event, adjacency="add_remove", method="auto") -> Check:
    """The published epsilon at its printed digits (twelve at most)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        epsilon = guarantee(event, adjacency, method).epsilon(delta)
        assert epsilon == pytest.approx(float(printed), rel=1e-9, abs=last_digit(printed))

    return check


def delta_at(event: acc.Event, relative: float = 0.0) -> Check:
    """The published delta (third column) at the epsilon (fourth column)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        found = guarantee(event).delta(float(printed))
        assert found == pytest.approx(delta, rel=1e-9 + relative, abs=last_digit(repr(delta)))

    return check


def by_orders(event: acc.Event, orders: tuple[float, ...] | None = None, relative: float = 1e-6) -> Check:
    """By Renyi divergences at the publisher's orders; ours are never worse."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        account = RdpAccountant(event, orders=orders) if orders else guarantee(event, method="rdp_usual_orders")
        assert account.epsilon(delta) == pytest.approx(float(printed), rel=relative, abs=last_digit(printed))
        assert guarantee(event, method="rdp").epsilon(delta) <= float(printed) * (1 + relative) + last_digit(printed)

    return check


def calibrated(make: Callable[[float], acc.Event], expected: float, relative: float, **options) -> Check:
    """The number that meets the published (epsilon, delta)."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        found = calibrate(make, epsilon=float(printed), delta=delta, **options)
        assert found == pytest.approx(expected, rel=relative)

    return check


def prv(event: acc.Event, error: float, published: str, absolute: float) -> Check:
    """A PRV figure, from the same method at the same error."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        account = PrvAccountant(event, epsilon_error=error)
        lower, upper = account.epsilon_interval(delta)
        found = {"estimate": account.estimate(delta), "upper": upper}[published]
        assert found == pytest.approx(float(printed), abs=absolute)
        low, high = guarantee(event).epsilon_interval(delta)
        assert lower <= low
        assert upper >= high * (1 - 1e-6)

    return check


def sampled(z: float, q: float, steps: int) -> acc.Event:
    return Gaussian(z).poisson(q) * steps


def last_digit(printed: str) -> float:
    """A unit of the last printed digit: some publishers round, some cut off."""
    mantissa, _, exponent = printed.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) * (1 + 1e-9)


def both(*checks: Check) -> Check:
    def check(printed: str, delta: float | None) -> None:
        for one in checks:
            one(printed, delta)

    return check


def powers(event: acc.Event, fpr: float, tpr: float, mu: float) -> Check:
    """What a test can do at a false positive rate, and the mu of the equivalent Gaussian."""

    def check(printed: str, delta: float | None) -> None:
        promise = guarantee(event)
        assert promise.tpr(fpr) == pytest.approx(tpr, rel=2e-4)
        assert promise.tpr(fpr) >= tpr * (1 - 1e-5)
        if math.isinf(mu):
            assert math.isinf(promise.gdp().mu)
        else:
            assert promise.gdp().mu == pytest.approx(mu, rel=5e-3)

    return check


def renyi_values(event: acc.Event, steps: int, orders: tuple[float, ...], relative: tuple[float, ...]) -> Check:
    """Divergences at single orders; the publisher's series is too high at fractional ones (renyi-figures.md)."""

    def check(printed: str, delta: float | None) -> None:
        values = steps * rdp(event, "add_remove", orders)
        published = [float(value) for value in printed.split(";")]
        assert len(values) == len(published)
        for value, expected, tolerance in zip(values, published, relative, strict=True):
            assert expected * (1 - tolerance) <= value <= expected * (1 + 1e-6)

    return check


def too_coarse(event: acc.Event, factor: float) -> Check:
    """A published bound that is valid but far from the truth."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        assert guarantee(event).epsilon(delta) <= float(printed.lstrip("<").split()[0]) / factor

    return check


def user_level(printed: str, delta: float | None) -> None:
    """Three examples a user, by the group privacy of a Renyi bound, at the best delta for one example.

    delta(user) = delta (e^(3 eps) - 1) / (e^eps - 1). Its noise multiplier is halved for micro-batches, whose
    mean moves by two clip norms.
    """
    assert delta is not None
    account = guarantee(sampled(2.0 / 2, 64 / 10_000, math.ceil(5 * 10_000 / 64)), method="rdp_usual_orders")
    low, high = 1e-30, delta
    for _ in range(100):
        middle = math.sqrt(low * high)
        epsilon = account.epsilon(middle)
        fits = middle * math.expm1(3 * epsilon) / math.expm1(epsilon) <= delta
        low, high = (middle, high) if fits else (low, middle)
    assert 3 * account.epsilon(low) == pytest.approx(float(printed), abs=last_digit(printed))


def fourier(printed: str, delta: float | None) -> None:
    """Rounding up on a grid of 2 L / n = 2e-6 a step: a valid bound, 0.19 above the truth."""
    assert delta is not None
    event = sampled(4.0, 0.01, 10_000)
    low, high = guarantee(event).epsilon_interval(delta)
    account = BucketsAccountant(event)
    assert account.epsilon_interval(delta)[0] <= high
    assert low <= account.epsilon(delta)
    assert float(printed) == pytest.approx(high + 10_000 * 20e-6, abs=0.02)  # T roundings of a gap of 2e-5


def tree_sensitivities(printed: str, delta: float | None) -> None:
    for participations, separation, steps, squared in (
        (1, 7, 8, 4),
        (3, 3, 9, 11),
        (3, 2, 7, 9),
        (8, 2, 24, 88),
        (200, 0, 8, 120),
    ):
        tree = TreeAggregation(
            noise_multiplier=1.0, steps=steps, max_participations=participations, min_separation=separation
        )
        assert tree.squared_sensitivity == squared


def gnmax(counts: list[float]) -> Check:
    """Theorem 6 of Papernot et al. 2018 for 1,000 equal queries, with the classic conversion."""

    def check(printed: str, delta: float | None) -> None:
        assert delta is not None
        orders = np.concatenate([np.arange(2, 101, 0.5), np.logspace(2, np.log10(500), 100)])  # the publisher's
        # one vote moves two counts by one: 1 / 40^2 an order
        (cost,) = theorem6(log_union(np.array([counts]), 40.0), 1 / 40.0**2, orders)
        costs = 1000 * cost
        epsilon = float((costs + np.log(1 / delta) / (orders - 1)).min())
        assert epsilon == pytest.approx(float(printed), rel=1e-9)

    return check


def single_order(printed: str, delta: float | None) -> None:
    """At order 1 the divergence is the limit of those above."""
    for excess in (1e-4, 1e-6):
        (value,) = rdp(ExponentialMechanism(1.0), "add_remove", (1.0 + excess,))
        assert float(printed) <= value + 1e-9 <= float(printed) + 0.2 * excess + 2e-9


CHECKS: dict[tuple[str, str], Check] = {
    ("Gaussian", "sigma=1 sens=1 add/remove"): exact(Gaussian(1.0)),
    ("Gaussian", "sigma=1"): exact(Gaussian(1.0)),
    ("Gaussian", "sigma=4"): exact(Gaussian(4.0)),
    ("Gaussian", "sigma=0.5 (= sigma 1 under REPLACE_ONE, sens 2)"): both(
        exact(Gaussian(0.5)), exact(Gaussian(1.0), "replace")
    ),
    ("Gaussian x3", "noise_multiplier=sqrt(3) composed 3x (mu=1)"): both(
        delta_at(Gaussian(3**0.5) * 3), powers(Gaussian(3**0.5) * 3, 0.1, 0.38914, 1.0)
    ),
    ("Gaussian (RDP dense orders)", "sigma=4.530877117; orders 1.000..99.999 step .001"): by_orders(
        Gaussian(4.530877117), DENSE_ORDERS, 1e-6
    ),
    ("Gaussian get_smallest_gaussian_noise", "eps=1 num_queries=1 sens=1 -> sigma=1/3"): calibrated(
        lambda z: Gaussian(z), 1 / 3, 1e-5
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 (100 epochs)"): too_coarse(sampled(4.0, 0.01, 10_000), 1.2),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000"): by_orders(sampled(4.0, 0.01, 10_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 disc=1e-4"): within(sampled(4.0, 0.01, 10_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=10000 L=20 2e7 bins"): fourier,
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=4 T=40000 h=3e-5"): within(sampled(4.0, 0.01, 40_000)),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=1 T=10000 eps_error=0.01"): prv(
        sampled(1.0, 0.01, 10_000), 0.01, "estimate", 1e-3
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=1 T=10000"): by_orders(sampled(1.0, 0.01, 10_000), relative=1e-5),
    ("Poisson-subsampled Gaussian", "q=0.04 sigma=1.5 T=2249 (int(90//0.04))"): prv(
        sampled(1.5, 0.04, 2249), 0.01, "upper", 1e-3
    ),
    ("Poisson-subsampled Gaussian", "q=0.04 sigma=1.5 T=2250 disc=1e-4"): within(sampled(1.5, 0.04, 2250)),
    ("calibration Poisson Gaussian", "q=0.04 epochs=90 target eps 8 -> sigma=1.416"): by_orders(
        sampled(1.416, 0.04, 2250), OPACUS_ORDERS, 1.5e-3
    ),
    ("calibration Poisson Gaussian", "q=0.04 steps=2000 target eps 8 -> sigma=1.3562"): by_orders(
        sampled(1.3562, 0.04, 2000), OPACUS_ORDERS, 1.5e-3
    ),
    ("calibration Poisson Gaussian", "q=0.04 steps=2000 target eps 8 -> sigma=1.2915"): calibrated(
        lambda z: sampled(z, 0.04, 2000), 1.2915, 2e-3
    ),
    ("Poisson-subsampled Gaussian", "n=60000 batch=150 sigma=1.3 epochs=15"): by_orders(
        sampled(1.3, 150 / 60_000, 6000)
    ),
    ("Poisson-subsampled Gaussian", "n=1e8 batch=1024 sigma=0.1 epochs=10"): too_coarse(
        sampled(0.1, 1024 / 1e8, 976_562), 1000
    ),
    ("Poisson-subsampled Gaussian", "q=0.01 sigma=0.7 T=120 (1.2 epochs)"): within(sampled(0.7, 0.01, 120)),
    ("Gaussian (each example once/epoch)", "sigma=0.7 x2 (1.2 epochs)"): exact(Gaussian(0.7) * 2),
    ("Gaussian (each example once/epoch)", "sigma=0.7 x2"): by_orders(Gaussian(0.7) * 2),
    ("DP-SGD statement user-level k=3", "n=10000 b=64 sigma=2 epochs=5 Poisson"): user_level,
    ("Poisson-subsampled Gaussian", "q=0.1 sigma=3 T=512"): within(sampled(3.0, 0.1, 512)),
    ("calibration iterations", "q=0.1 sigma=3 target eps 2 -> T=155"): calibrated(
        lambda steps: sampled(3.0, 0.1, int(steps)), 155, 0.0, bracket=(1, 10_000), integer=True
    ),
    ("Poisson-subsampled Gaussian x3", "q=0.2 sigma=0.5 T=3"): delta_at(sampled(0.5, 0.2, 3), 3e-4),
    ("calibration", "q=0.001 T=25 sens=6 -> sigma=3.20956502598"): calibrated(
        lambda z: sampled(z, 0.001, 25), 3.20956502598 / 6, 2e-3
    ),
    ("Poisson-subsampled Gaussian", "q=5e-3 sigma=0.8 T=1000"): prv(sampled(0.8, 5e-3, 1000), 0.1, "estimate", 1e-2),
    ("Poisson-subsampled Gaussian", "q=0.2 sigma=1 T=500"): prv(sampled(1.0, 0.2, 500), 0.0115, "estimate", 1e-2),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=1 h=1e-4"): within(
        sampled(0.5, 2e-5, 1), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=100 h=1e-4"): within(
        sampled(0.5, 2e-5, 100), coarse=2e-3
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=1000 h=1e-4"): within(
        # the publisher's prototype is 5e-6 too low here: dp-accounting's pessimistic grids of 1e-4, 3e-5 and 1e-5 give
        # .9493281, .9493262 and .9493277
        sampled(0.5, 2e-5, 1000),
        coarse=1e-3,
        low_by=5e-6,
    ),
    ("Poisson-subsampled Gaussian (blog-style curve)", "q=2e-5 sigma=0.5 T=100000 h=1e-4"): within(
        sampled(0.5, 2e-5, 100_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (numerical stress)", "q=2e-5 sigma=0.5 T=1000000"): within(
        sampled(0.5, 2e-5, 1_000_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian (numerical stress)", "q=1e-4 sigma=0.6 T=100000"): within(
        sampled(0.6, 1e-4, 100_000), coarse=1e-3
    ),
    ("Poisson-subsampled Gaussian REPLACE_ONE", "q=0.01 sigma=1 T=1000"): within(sampled(1.0, 0.01, 1000), "replace"),
    ("RDP values Poisson Gaussian", "q=0.01 sigma=2.5 T=50 orders 1.5,2.5,5,50,100"): renyi_values(
        Gaussian(2.5).poisson(0.01), 50, (1.5, 2.5, 5.0, 50.0, 100.0), (0.04, 1e-4, 1e-6, 1e-6, 1e-6)
    ),
    ("RDP value Poisson Gaussian", "q=0.01 sigma=0.25 order 2 / 4.5 / 128"): renyi_values(
        Gaussian(0.25).poisson(0.01), 1, (2.0, 4.5, 128.0), (1e-9, 1e-9, 1e-9)
    ),
    # the publisher's pair is looser: test_accounting.py composes that one
    ("Truncated Poisson Gaussian", "(n=4,p=.5,B=2,nm=1)x3 + (n=3,p=.5,B=2,nm=1)x2"): lambda printed, delta: at_most(
        Gaussian(1.0).truncated_poisson(0.5, 2, 4) * 3 + Gaussian(1.0).truncated_poisson(0.5, 2, 3) * 2,
        float(printed),
        delta,
        "replace",
    ),
    ("Poisson-subsampled Laplace", "q=0.2 b=0.5 T=3"): within(Laplace(0.5).poisson(0.2) * 3),
    ("Laplace", "b=3 sens=1 x40 disc=1e-3"): delta_at(Laplace(3.0) * 40, 2e-3),
    ("Laplace calibration", "500 queries eps=1 -> b=71.0"): calibrated(lambda b: Laplace(b) * 500, 71.0, 1e-2),
    ("Discrete Laplace calibration", "20 queries eps=1 sens 1 -> a=0.073"): calibrated(
        lambda a: DiscreteLaplace(a) * 20, 0.073, 1e-2
    ),
    ("optimal composition of (eps,delta)", "30 x (1,0.001)"): lambda printed, delta: delta_at_most(
        ApproximateDP(1.0, 1e-3) * 30, float(printed), delta
    ),
    ("(eps,delta) pair composition", "(1,0.1)+(2,0.2)"): both(
        delta_at(ApproximateDP(1.0, 0.1) + ApproximateDP(2.0, 0.2)),
        powers(ApproximateDP(1.0, 0.1) + ApproximateDP(2.0, 0.2), 0.1, 0.91938, math.inf),
    ),
    ("Randomized response", "p=4/(3+e) k=4 REPLACE_ONE"): exact(RandomizedResponse(4 / (3 + math.e), 4), "replace"),
    ("Exponential mechanism RDP", "eps=1 order 1"): single_order,
    ("Exponential mechanism", "eps=0.5 x100"): both(
        lambda printed, delta: at_most(ExponentialMechanism(0.5) * 100, float(printed), delta),
        lambda printed, delta: at_most_and_near(ExponentialMechanism(0.5) * 100, float(printed), delta),
    ),
    ("zCDP rho=0.81 as Gaussian", "rho=0.81"): lambda printed, delta: near(ZCDP(0.81), float(printed), delta),
    ("zCDP of a Gaussian mechanism", "rho=79/98"): exact(
        TreeAggregation(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313), "zero_out"
    ),
    ("MF-DP-FTRL Gboard pt-BR", "bands=1000 T=2000 nm=8.35 minsep=1428 k=2 rho=0.014342572340349278"): lambda p, d: (
        near(Gaussian((2 * 0.014342572340349278) ** -0.5), float(p), d, 1e-6)
    ),
    ("Tree single epoch (StackOverflow)", "nm=1.13 steps=1600"): lambda printed, delta: single_tree(printed, delta),
    (
        "DP-FTRL tree restarts+completion CIFAR10",
        "n=50000 b=500 100 epochs restart/20 nm=46.3 -> S2=4129",
    ): lambda printed, delta: cifar_tree(printed, delta),
    ("tree sensitivity^2", "(maxpart,minsep,T)=(1,7,8)->4;(3,3,9)->11;(3,2,7)->9;(8,2,24)->88;(200,0,8)->120"): (
        tree_sensitivities
    ),
    ("GNMax data-dependent", "counts [225,25,0x8] sigma=40 x1000"): gnmax([225, 25, *[0] * 8]),
    ("GNMax data-dependent", "counts [200,50,0x8] sigma=40 x1000"): gnmax([200, 50, *[0] * 8]),
    ("Gaussian f-DP", "sigma=1: TPR at FPR=0.01"): lambda printed, delta: tpr_is(Gaussian(1.0), 0.01, float(printed)),
    ("DP-SGD f-DP", "q=.01 sigma=1 T=1000: advantage 0.1610184; TPR@FPR.01=0.0290997"): lambda printed, delta: (
        attackers(sampled(1.0, 0.01, 1000), float(printed))
    ),
}

OUT_OF_SCOPE = {
    ("Random allocation Gaussian", "nm=2 k=10 of t=100"): "random allocation is not among the events",
}


def delta_at_most(event: acc.Event, epsilon: float, delta: float | None) -> None:
    """The published pair was rounded to whole epsilons: the bound holds there and fails half a unit below."""
    assert delta is not None
    promise = guarantee(event)
    assert promise.epsilon(delta) <= epsilon
    assert promise.epsilon(delta) > epsilon - 2.5


def near(event: acc.Event, epsilon: float, delta: float | None, relative: float = 6e-4) -> None:
    assert delta is not None
    assert guarantee(event).epsilon(delta) == pytest.approx(epsilon, rel=relative)


def at_most(event: acc.Event, epsilon: float, delta: float | None, adjacency="add_remove") -> None:
    """A published upper bound; ours is from a tighter pair or accountant."""
    assert delta is not None
    assert guarantee(event, adjacency).epsilon(delta) <= epsilon * (1 + 1e-9)


def at_most_and_near(event: acc.Event, epsilon: float, delta: float | None) -> None:
    """By Renyi accounting at the same orders; a tight divergence is at most the published one."""
    assert delta is not None
    found = guarantee(event, method="rdp_usual_orders").epsilon(delta)
    assert 0.97 * epsilon <= found <= epsilon * (1 + 1e-9)


def single_tree(printed: str, delta: float | None) -> None:
    assert delta is not None
    tree = TreeAggregation(noise_multiplier=1.13, steps=1600)
    assert guarantee(tree, "zero_out", "rdp_usual_orders").epsilon(delta) == pytest.approx(18.70961, abs=5e-6)
    assert guarantee(tree, "zero_out").epsilon(delta) == pytest.approx(17.66675, abs=5e-6)


def cifar_tree(printed: str, delta: float | None) -> None:
    assert delta is not None
    tree = TreeAggregation(
        noise_multiplier=46.3,
        steps=10_000,
        max_participations=100,
        min_separation=99,
        restart_every=2000,
        completion=True,
    )
    assert tree.squared_sensitivity == 4129
    assert guarantee(tree, "zero_out", "rdp").epsilon(delta) <= float(printed) * (1 + 1e-9)
    assert guarantee(tree, "zero_out").epsilon(delta) == pytest.approx(6.42753, abs=5e-6)


def tpr_is(event: acc.Event, fpr: float, tpr: float) -> None:
    found = guarantee(event).tpr(fpr)
    assert tpr * (1 - 1e-9) <= found <= tpr * (1 + 1e-4)


def attackers(event: acc.Event, mu: float) -> None:
    """The published mu is an estimate that covers deltas down to 4e-12 (docs/explanation/attackers.md).

    The published rate, by riskcal, is 0.14 % below the truth: dp-accounting's own curve for a removed unit converges to
    0.029139, and certified lower bounds on delta say the same (tests/accounting/test_loss.py).
    """
    promise = guarantee(event)
    assert promise.advantage() == pytest.approx(0.1610184, abs=5e-8, rel=1e-4)
    assert promise.tpr(0.01) >= 0.0290997
    assert promise.tpr(0.01) == pytest.approx(0.029139, rel=1e-4)
    assert promise.gdp(4e-12).mu == pytest.approx(mu, rel=3e-3)


def rows() -> list[dict[str, str]]:
    with CSV.open(newline="") as file:
        return list(csv.DictReader(file))


pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CSV.exists(), reason="the collection of published values is not there"),
]


def test_no_row_is_passed_over() -> None:
    keys = {(row["mechanism"], row["params"]) for row in rows()}
    assert keys == CHECKS.keys() | OUT_OF_SCOPE.keys()


@pytest.mark.parametrize(("mechanism", "params"), CHECKS)
def test_published(mechanism: str, params: str) -> None:
    found = [row for row in rows() if (row["mechanism"], row["params"]) == (mechanism, params)]
    assert found
    for row in found:
        CHECKS[mechanism, params](row["epsilon"], float(row["delta"]) if row["delta"] else None)
