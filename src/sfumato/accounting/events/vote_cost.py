"""Releasing what noisy votes cost on the votes that were cast: a Gaussian whose noise follows its smooth sensitivity.

The unit is that of the votes: an agent or one example (`level`), for neighbours of one kind (`adjacency`), since the
sensitivity that scales the noise is theirs. Two numbers are released (see `accounting.votes.release`):
f + S sigma N(0, 1) and log S + beta tau N(0, 1). f moves by at most S between neighbours, and log S by at most beta.

>>> release = VoteCostRelease(beta=0.02, cost_noise=20.0, sensitivity_noise=50.0)
>>> release.renyi(np.array([10.0, 1000.0]), "add_remove").round(6).tolist()
[0.027187, inf]
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, one_of, positive
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.events.vote import Level


@event_kind("vote_cost_release")
@dataclass(frozen=True, slots=True)
class VoteCostRelease(Event):
    """The release of the cost of all answers, once.

    Attributes:
        beta: smoothness of the sensitivity, > 0.
        cost_noise: sigma, std of the noise on the cost divided by S, > 0.
        sensitivity_noise: tau, std of the noise on log S divided by beta, > 0.
        level: "agent" or "instance": whose the sensitivity is.
        adjacency: how the neighbours differ that the sensitivity was computed for.
    """

    beta: float
    cost_noise: float
    sensitivity_noise: float
    level: Level = "agent"
    adjacency: Adjacency = "add_remove"

    unsampled = "the cost is one of all answers of all agents"

    def __post_init__(self) -> None:
        positive(beta=self.beta, cost_noise=self.cost_noise, sensitivity_noise=self.sensitivity_noise)
        one_of(("agent", "instance"), level=self.level)
        one_of(("add_remove", "replace", "zero_out"), adjacency=self.adjacency)
        for name in ("beta", "cost_noise", "sensitivity_noise"):
            object.__setattr__(self, name, float(getattr(self, name)))

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        if adjacency != self.adjacency:
            raise Unknown(f"the cost of votes was released for neighbours by {self.adjacency}, not by {adjacency}")
        orders = np.asarray(orders, dtype=np.float64)
        values = [
            gnss_renyi(order, self.beta, self.cost_noise) if order < largest_order(self.beta) else math.inf
            for order in orders.tolist()
        ]
        return np.array(values) + orders / (2 * self.sensitivity_noise**2)

    def rho(self, adjacency: Adjacency) -> float:
        """Infinite: from some order on the divergence is."""
        return math.inf


def largest_order(beta: float) -> float:
    """The order from which on a noise that follows a sensitivity of this smoothness tells without limit."""
    return 1.0 + 1.0 / math.expm1(2.0 * beta)


def gnss_renyi(order: float, beta: float, cost_noise: float) -> float:
    """Renyi divergence of f + S sigma N(0, 1) at the worst neighbours, exactly.

    With w = 1 - (a - 1)(e^(2 beta) - 1): a / (2 sigma^2 w) - beta - log(w) / (2 (a - 1)). It is reached where S falls
    by e^-beta and f changes by all of the smaller S.

    Args:
        order: a > 1.
        beta: smoothness, > 0, with w > 0.
        cost_noise: sigma > 0.

    Raises:
        InputError: w <= 0: the divergence is infinite.

    >>> round(gnss_renyi(10.0, 0.02, 20.0), 6)
    0.025187
    """
    between(1, math.inf, ends="()", order=order)
    positive(beta=beta, cost_noise=cost_noise)
    largest = 0.5 * math.log1p(1.0 / (order - 1.0))
    if beta >= largest:
        raise InputError(f"beta must be < {largest:.6g} at order {order:g}, got {beta:g}; take 0.2 / order")
    room = 1.0 - (order - 1.0) * math.expm1(2.0 * beta)
    if room <= 0.0:
        return math.inf
    value = order / (2.0 * cost_noise**2 * room) - beta - math.log(room) / (2.0 * (order - 1.0))
    return value * (1.0 + 1e-12)
