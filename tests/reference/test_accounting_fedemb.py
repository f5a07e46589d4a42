"""The figures of the authors' EMNIST run of DP-FedEmb (Xu et al. 2022), and what they extrapolate to.

32 virtual clients of 8 users a round, 200 rounds, noise multiplier 0.62, delta = N^-1.1, Poisson sampling, the paper's
convention. The Renyi figures were computed with dp-accounting 0.6 and its default orders: our denser orders may only
be below them, and with its orders we meet them, except where its series for fractional orders overshoots the integral
of the definition (the first row, by 1.5 %).
"""

import pytest

from sfumato.accounting import Gaussian, extrapolate, guarantee
from sfumato.accounting.accountants import RdpAccountant

THEIR_ORDERS = tuple([1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512, 1024])


def run(population: float, factor: float = 1.0):
    return Gaussian(0.62 * factor).poisson(factor * 256 / population) * 200, population**-1.1


@pytest.mark.parametrize(
    ("population", "factor", "epsilon", "tolerance"),
    [
        (3400, 1, 20.35, 0.016),
        (6800, 1, 11.32, 0.002),
        (3e6, 1, 2.10, 0.0025),
        (3e6, 2, 0.486, 0.001),
        (1e7, 1, 1.98, 0.0025),
        (1e7, 2, 0.460, 0.001),
    ],
)
def test_the_renyi_figures(population: float, factor: float, epsilon: float, tolerance: float) -> None:
    event, delta = run(population, factor)
    with_their_orders = RdpAccountant(event, orders=THEIR_ORDERS).epsilon(delta)
    assert with_their_orders == pytest.approx(epsilon, rel=tolerance)
    ours = guarantee(event, method="rdp").epsilon(delta)
    assert 0.97 * epsilon < ours <= max(epsilon * 1.0025, with_their_orders)


def test_the_extrapolation_gives_the_same_rows() -> None:
    rows = extrapolate(
        noise_multiplier=0.62,
        rounds=200,
        clients_per_round=32,
        users_per_client=8,
        populations=[3_000_000, 10_000_000],
        multipliers=[1, 2],
        methods=["rdp"],
    )
    for row in rows:
        event, delta = run(row.population, row.multiplier)
        assert row.epsilon["rdp"] == pytest.approx(guarantee(event, method="rdp").epsilon(delta), rel=1e-9)
