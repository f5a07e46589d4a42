"""Groups of units: exact where the noise tells, and by enumeration where the sample does."""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.accounting import (
    ZCDP,
    ApproximateDP,
    ClipCount,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Gaussian,
    InputError,
    Laplace,
    MatrixMechanism,
    NoisyVote,
    NonPrivate,
    Participation,
    PureDP,
    RandomizedResponse,
    TreeAggregation,
    Unknown,
    guarantee,
    joint,
)
from sfumato.accounting.pld import PldAccountant

SINGLES = [
    Gaussian(3.0),
    joint(Gaussian(3.0), ClipCount(9.0)),
    Gaussian(3.0).poisson(0.05),
    Laplace(4.0),
    DiscreteLaplace(0.3),
    DiscreteGaussian(5.0),
    PureDP(0.2),
    ApproximateDP(0.2, 1e-7),
    ZCDP(0.02),
    ExponentialMechanism(0.3),
    TreeAggregation(noise_multiplier=9.0, steps=30),
    MatrixMechanism.toeplitz(9.0, Participation(rounds=30), [1.0, 0.5]),
    NoisyVote(20.0),
    RandomizedResponse(0.8, 3),
]


def adjacency(event: Event) -> str:
    if isinstance(event, RandomizedResponse):
        return "replace"
    return "zero_out" if isinstance(event, TreeAggregation | MatrixMechanism) else "add_remove"


@pytest.mark.parametrize("event", SINGLES, ids=lambda event: event.kind)
def test_a_group_of_one_is_the_unit_and_a_larger_one_costs_more(event: Event) -> None:
    run = event * 5
    assert run.for_group(1) == run
    costs = [guarantee(run.for_group(units), adjacency(event)).epsilon(1e-5) for units in (1, 2, 5)]
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("event", SINGLES, ids=lambda event: event.kind)
def test_a_group_costs_no_more_than_the_basic_theorem_says(event: Event) -> None:
    """Dwork and Roth 2014, Theorem 2.2, with the sum of e^(i epsilon) for delta: (k eps, sum_i<k e^(i eps) delta)."""
    run, units = event * 3, 3
    one, group = guarantee(run, adjacency(event)), guarantee(run.for_group(units), adjacency(event))
    for epsilon in (0.5, 1.0, 2.0):
        delta = one.delta(epsilon)
        grown = delta * sum(math.exp(i * epsilon) for i in range(units))
        assert group.delta(units * epsilon) <= grown * (1 + 1e-2) + 1e-9


@pytest.mark.parametrize("units", [2, 3, 10])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_the_pair_of_a_group_in_a_poisson_sample_is_the_mixture_over_who_is_drawn(units: int, rate: float) -> None:
    z = 2.0
    event = Gaussian(z).poisson(rate).for_group(units)
    chances = np.zeros(units + 1)
    for drawn in itertools.product((0, 1), repeat=units):  # every subset of the group
        chances[sum(drawn)] += rate ** sum(drawn) * (1 - rate) ** (units - sum(drawn))
    thresholds = np.linspace(-3, 12, 1501)
    moved = sum(chance * norm.sf(thresholds - count / z) for count, chance in enumerate(chances))
    for epsilon in (0.1, 0.5, 1.5):
        best = float(np.max(moved - math.exp(epsilon) * norm.sf(thresholds)))
        assert best * (1 - 1e-9) <= PldAccountant(event).delta(epsilon) <= best * 1.01 + 1e-9
    sure = Gaussian(z).poisson(1 - 1e-12).for_group(units)
    assert guarantee(sure).epsilon(1e-5) == pytest.approx(guarantee(Gaussian(z / units)).epsilon(1e-5), rel=1e-4)


def test_an_offset_grows_as_bun_and_steinke_say() -> None:
    claim = ZCDP(0.1, xi=0.2)
    assert claim.concentrated("replace") == pytest.approx((3 * 0.2, 4 * 0.1))  # Proposition 1.9 with k = 2
    assert claim.for_group(2).concentrated("add_remove") == pytest.approx((3 * 0.2, 4 * 0.1))
    assert claim.for_group(3).concentrated("add_remove") == pytest.approx((0.2 * 3 * (1 + 1 / 2 + 1 / 3), 0.9))
    assert guarantee(claim).rho() is None
    plain = guarantee(ZCDP(0.1), method="zcdp")
    for method in ("zcdp", "rdp"):
        offset = guarantee(claim, method=method)
        assert offset.epsilon(1e-6) == pytest.approx(plain.epsilon(1e-6) + 0.2, rel=2e-3)
        assert offset.delta(3.2) == pytest.approx(plain.delta(3.0), rel=2e-2)
    with pytest.raises(InputError, match="xi must be"):
        ZCDP(0.1, xi=-1.0)


def test_what_is_not_known_of_a_group_is_refused_by_name() -> None:
    for event in (Gaussian(1.0).without_replacement(2, 9), Laplace(1.0).poisson(0.1)):
        with pytest.raises(Unknown, match="group is not known"):
            event.for_group(2)
    assert NonPrivate().for_group(7) == NonPrivate()
    assert ApproximateDP(1.0, 0.2).for_group(4) == NonPrivate()
    for units in (0, 1.5, math.nan, True):
        with pytest.raises(InputError, match="units must be"):
            Gaussian(1.0).for_group(units)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "delta", "units"),
    [
        (0.0, 1e-9, 5),
        (1e-3, 1e-9, 7),
        (1.0, 1e-12, 3),
        (150.0, 1e-200, 2),
        (300.0, 1e-300, 2),
        (400.0, 1e-200, 2),
        (699.0, 1e-305, 2),
    ],
)
def test_a_claim_for_a_group_is_never_below_the_formula_in_exact_numbers(epsilon: float, delta: float, units: int):
    """Vadhan 2017, Lemma 2.2, by rational numbers: e^epsilon from a decimal of a thousand digits."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 1000, 10**6, -(10**6)
        grown = sum((Decimal(epsilon) * i).exp() for i in range(units))
        exact = Decimal(delta) * grown
        claim = ApproximateDP(epsilon, delta).for_group(units)
        if isinstance(claim, NonPrivate):
            assert exact > Decimal("0.999999")
            return
        assert isinstance(claim, ApproximateDP)
        assert claim.epsilon == units * epsilon
        assert exact <= Decimal(claim.delta) <= exact * (1 + Decimal("1e-9"))
        if units == 2 and claim.epsilon < 400:  # larger losses have no grid
            (pair,) = ApproximateDP(epsilon, delta).pairs("replace")
            assert exact <= Decimal(pair.infinity())


@pytest.mark.parametrize("epsilon", [710.0, 800.0, 1e6])
def test_a_claim_whose_e_to_the_epsilon_is_no_double_promises_a_group_nothing(epsilon: float):
    assert ApproximateDP(epsilon, 1e-300).for_group(2) == NonPrivate()
