"""Renyi divergence of one noisy vote whose outcome is nearly certain: three bounds, and the least of them.

Guarantees for the votes as they were cast, that is for one data set D: D_a(M(D) || M(D')) <= bound for every
neighbour D'. That is one direction at one data set. It is no differential privacy guarantee, and it is computed from
private votes: see `cost`. M is one Gaussian release of zCDP `rho`, followed by any choice of an outcome that is wrong
with probability at most q at D.

All bounds are at most the data-independent a rho. Proofs are in docs/explanation/votes.md.

>>> log_q = np.log([1e-3, 1e-9])
>>> orders = np.array([4.0, 16.0])
>>> (theorem6(log_q, 1 / 1600, orders) * 1e6).round(2).tolist()
[[301.64, 554.03], [0.0, 0.0]]
>>> (tradeoff(log_q, 1 / 1600, orders) * 1e6).round(2).tolist()
[[269.84, 463.1], [0.0, 0.0]]
"""

from typing import Literal, get_args

import numpy as np
import scipy

from sfumato._check import one_of
from sfumato.accounting.doubles import EPS

Bound = Literal["best", "theorem6", "theorem7", "tradeoff"]
"""Which bound on the divergence: the least of all, or one by name."""


def renyi(log_q: np.ndarray, rho: float, orders: np.ndarray, bound: Bound = "best") -> np.ndarray:
    """The bound of this name, or the least of all.

    Args:
        log_q: float [queries], < 0; log of a bound on the probability of any other outcome than the likeliest.
        rho: zCDP of the Gaussian release behind the outcome, for the unit and adjacency at hand, > 0.
        orders: float [k], each > 1.
        bound: "best", "theorem6", "theorem7" or "tradeoff".

    Returns:
        float [queries, k], >= 0.
    """
    one_of(get_args(Bound), bound=bound)
    if bound == "best":
        return np.minimum.reduce([f(log_q, rho, orders) for f in (theorem6, theorem7, tradeoff)])
    return {"theorem6": theorem6, "theorem7": theorem7, "tradeoff": tradeoff}[bound](log_q, rho, orders)


def theorem6(log_q: np.ndarray, rho: float, orders: np.ndarray) -> np.ndarray:
    """Papernot et al. 2018, Theorem 6, with the two higher orders of Proposition 10; float [queries, k]."""
    log_q, orders = np.asarray(log_q, dtype=np.float64)[:, None], np.asarray(orders, dtype=np.float64)
    independent = np.broadcast_to(orders * rho, np.broadcast_shapes(log_q.shape, orders.shape))
    order2 = np.sqrt(-log_q / rho)  # the order that makes B smallest
    order1 = order2 + 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon1, epsilon2 = order1 * rho, order2 * rho
        increasing = log_q <= (order2 - 1) * epsilon2 - order2 * (
            np.log1p(1 / (order1 - 1)) + np.log1p(1 / (order2 - 1))
        )
        valid = (orders < order1) & (order2 > 1) & (log_q + epsilon2 < 0) & increasing
        stays = _log1mexp(log_q)
        log_a = stays - _log1mexp((log_q + epsilon2) * (1 - 1 / order2))
        log_b = epsilon1 - log_q / (order1 - 1)
        first = stays + (orders - 1) * log_a
        second = log_q + (orders - 1) * log_b
        values = np.logaddexp(first, second + 16 * EPS * (1 - log_q + orders * epsilon1)) / (orders - 1)
    return np.minimum(independent, np.where(valid, np.maximum(values, 0.0), np.inf))


def theorem7(
    log_q: np.ndarray, rho: float, orders: np.ndarray, log_q_neighbour: np.ndarray | None = None
) -> np.ndarray:
    """Zhu et al. 2021, Theorem 7, with the square root that its Lemma 15 has; float [queries, k].

    -log(1 - q') + log(1 + sqrt(q) e^((a-1)(2a-1) rho)) / (a - 1), where q' bounds the same probability at any
    neighbour. With the paper's q = C exp(-N^2 gamma^2 / (8 sigma^2)) the exponent is -N^2 gamma^2 / (16 sigma^2) +
    log(C) / 2, not the printed -N^2 gamma^2 / (8 sigma^2) + log C.

    Args:
        log_q: float [queries].
        rho: as in `renyi`.
        orders: float [k].
        log_q_neighbour: float [queries]; log q', by default what the Gaussian trade-off curve makes of q.
    """
    log_q, orders = np.asarray(log_q, dtype=np.float64)[:, None], np.asarray(orders, dtype=np.float64)
    if log_q_neighbour is None:
        stays = scipy.special.log_ndtr(-scipy.special.ndtri_exp(log_q) - np.sqrt(2 * rho))
    else:
        stays = _log1mexp(np.minimum(np.asarray(log_q_neighbour, dtype=np.float64)[:, None], -1e-300))
    leaves = 0.5 * log_q + (orders - 1) * (2 * orders - 1) * rho
    values = -stays + np.logaddexp(0.0, leaves + 16 * EPS * (np.abs(leaves) - log_q)) / (orders - 1)
    return np.minimum(orders * rho, values)


def tradeoff(log_q: np.ndarray, rho: float, orders: np.ndarray) -> np.ndarray:
    """The likely and the unlikely outcomes each bounded by the Gaussian trade-off curve; float [queries, k].

    With mu = sqrt(2 rho) and q = Phi(-z): log[Phi(z)^a Phi(z - mu)^(1-a) + e^(a(a-1) rho) Phi((a-1) mu - z)] / (a-1).
    The first term bounds the likely outcome, whose probability at a neighbour is at least Phi(z - mu); the second is
    the part of the Gaussian's own moment that probability q can hold. The sum grows with q up to 1/2, so a q that is
    too large is safe; above 1/2 the data-independent bound stands.
    """
    orders, log_q = np.asarray(orders, dtype=np.float64), np.asarray(log_q, dtype=np.float64)
    mu = np.sqrt(2 * rho)
    z = -scipy.special.ndtri_exp(np.minimum(log_q, -np.log(2.0)))[:, None]
    here, there = scipy.special.log_ndtr(z), scipy.special.log_ndtr(z - mu)
    first = orders * here - (orders - 1) * there - 8 * EPS * (orders * here + (orders - 1) * there)
    moment = orders * (orders - 1) * rho
    tail = scipy.special.log_ndtr((orders - 1) * mu - z)
    second = moment + tail + 16 * EPS * (1 + moment - tail + np.square(z))
    values = np.logaddexp(first, second) / (orders - 1)
    usable = log_q[:, None] <= -np.log(2.0)
    return np.minimum(orders * rho, np.where(usable, np.maximum(values, 0.0), np.inf))


def _log1mexp(x: np.ndarray) -> np.ndarray:
    """log(1 - e^x) for x < 0, without cancellation at either end."""
    return np.where(x > -np.log(2.0), np.log(-np.expm1(np.minimum(x, -1e-300))), np.log1p(-np.exp(np.minimum(x, 0.0))))
