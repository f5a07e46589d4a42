"""Releasing the cost of the votes that were cast, with noise: the Gaussian mechanism with smooth sensitivity (GNSS).

Released are two noisy numbers: f + S sigma N(0, 1), where f is the cost of all queries at one order and S its smooth
sensitivity, and log S + beta tau N(0, 1), without which nobody could tell how large the noise of the first is (Papernot
et al. 2018, Appendix B; the second as in Redberg, Zhu and Wang 2023). The release itself costs privacy, whatever the
votes: an ordinary guarantee, `release_renyi`, for the unit and adjacency of the sensitivity.

What may be claimed afterwards: with the stated confidence over the noise of the release, all answers and the release
together cost at most `renyi` at the stated order, at this data set and in the direction of `cost`. It is a
bound for the votes that were cast, not differential privacy; it belongs into a statement's `alternatives`, beside an
epsilon that holds for all votes. Order, beta, both noises and the confidence must not be chosen by looking at the
votes.

The cost of the first number is the exact divergence, which is sharper than the printed Theorem 23 for small beta. For
beta near 1/(2 order) the printed value is too low (see docs/explanation/votes.md).

>>> from sfumato._random import RandomSource
>>> from sfumato.accounting.events.vote import NoisyVote
>>> sensitivity = VoteSensitivity(NoisyVote(noise_std=150.0), "replace", classes=10, order=30.0)
>>> votes = np.array([[4700.0, 300.0] + [0.0] * 8] * 1000)
>>> noise = RandomSource.from_seed(0).stream("noise", "cost of votes")
>>> released = release_cost(votes, sensitivity, beta=0.005, cost_noise=50.0, sensitivity_noise=50.0, noise=noise)
>>> round(released.epsilon(1e-6), 3), round(released.epsilon_for_any_votes(1e-6), 3)
(0.341, 1.674)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from sfumato._check import between
from sfumato._random import Stream
from sfumato._types import Adjacency
from sfumato.accounting.events.vote import Level
from sfumato.accounting.events.vote_cost import VoteCostRelease, gnss_renyi
from sfumato.accounting.votes.cost import to_epsilon
from sfumato.accounting.votes.smooth_sensitivity import VoteSensitivity


@dataclass(frozen=True, kw_only=True)
class ReleasedCost:
    """What the release made public. Every field may be published.

    Attributes:
        level: whose presence it is about: "agent" or "instance".
        adjacency: how the neighbours differ.
        order: the order of all costs here.
        queries: how many answers it is about.
        noisy_cost: cost of the answers at this order with noise, an unbiased estimate; may be negative.
        noisy_log_sensitivity: logarithm of the smooth sensitivity with noise.
        cost_upper: what the cost of the answers does not exceed, with this confidence; >= 0.
        confidence: probability over the noise of the release that `cost_upper` is right.
        release_cost: Renyi cost of the release itself at this order, whatever the votes.
        worst: Renyi cost of the answers at this order, whatever the votes.
    """

    level: Level
    adjacency: Adjacency
    order: float
    queries: int
    noisy_cost: float
    noisy_log_sensitivity: float
    cost_upper: float
    confidence: float
    release_cost: float
    worst: float

    @property
    def renyi(self) -> float:
        """Cost of the answers and the release together at `order`: holds with `confidence`, at these votes."""
        return self.cost_upper + self.release_cost

    def epsilon(self, delta: float) -> float:
        """The same as epsilon at this delta; for a statement's alternatives."""
        return to_epsilon(np.array([self.renyi]), np.array([self.order]), delta)

    def epsilon_for_any_votes(self, delta: float) -> float:
        """Epsilon of the answers and the release together that holds for all votes: differential privacy."""
        return to_epsilon(np.array([self.worst + self.release_cost]), np.array([self.order]), delta)

    def alternative(self, delta: float) -> dict[str, Any]:
        """An entry for a statement's `alternatives`, with what it claims in words."""
        return {
            "name": "for the votes as they were cast, released with noise",
            "unit": "agent" if self.level == "agent" else "example",
            "epsilon": self.epsilon(delta),
            "delta": delta,
            "confidence": self.confidence,
            "claim": "a bound at this data set and in one direction, not differential privacy",
        }


def release_cost(
    votes: object,
    sensitivity: VoteSensitivity,
    *,
    beta: float,
    cost_noise: float,
    sensitivity_noise: float,
    noise: Stream,
    confidence: float = 0.95,
) -> ReleasedCost:
    """Release the cost of answered queries; append `release_renyi` of it to what the run costs.

    Args:
        votes: float [queries, classes]: the counts before noise of all answered queries.
        sensitivity: says for which event, unit, adjacency and order.
        beta: smoothness, > 0; about 0.2 / order is a good choice.
        cost_noise: sigma, std of the noise on the cost divided by S, > 0.
        sensitivity_noise: tau, std of the noise on log S divided by beta, > 0.
        noise: stream of the noise, used for nothing else.
        confidence: in (0, 1).

    Raises:
        InputError: an argument is out of range, or beta is too large for the order.
    """
    between(0, 1, ends="()", confidence=confidence)
    order = sensitivity.order
    cost = release_renyi(order, beta=beta, cost_noise=cost_noise, sensitivity_noise=sensitivity_noise)
    value, smooth = sensitivity.cost(votes), sensitivity.smooth(votes, beta)
    first, second = noise.normal(2).tolist()
    noisy_cost = value + smooth * cost_noise * first
    noisy_log = math.log(smooth) + beta * sensitivity_noise * second
    quantile = -float(scipy.special.ndtri((1.0 - confidence) / 2.0))  # half of the risk for each number
    largest = math.exp(noisy_log + quantile * beta * sensitivity_noise)
    queries = len(np.atleast_2d(np.asarray(votes)))
    worst = queries * sensitivity.worst
    return ReleasedCost(
        level=sensitivity.event.level,
        adjacency=sensitivity.adjacency,
        order=order,
        queries=queries,
        noisy_cost=noisy_cost,
        noisy_log_sensitivity=noisy_log,
        cost_upper=min(worst, max(0.0, noisy_cost + quantile * cost_noise * largest)),
        confidence=confidence,
        release_cost=cost,
        worst=worst,
    )


def release_renyi(order: float, *, beta: float, cost_noise: float, sensitivity_noise: float) -> float:
    """Renyi cost of `release_cost` at this order, whatever the votes.

    log S moves by at most beta between neighbours, so releasing it is a plain Gaussian of noise multiplier tau.
    """
    gnss_renyi(order, beta, cost_noise)  # refuses an order at which it has no bound
    event = VoteCostRelease(beta, cost_noise, sensitivity_noise)
    return float(event.renyi(np.array([order]), event.adjacency)[0])
