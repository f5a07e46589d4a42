"""Noisy votes: Gaussian noise on every count of a vote, and on the highest count alone.

Each agent votes once for a public query: for one class (AE-DPFL), or with the label frequencies among k neighbours in
its private data (kNN-DPFL). Normal noise of one standard deviation is added to every count. The cost holds whether the
whole noisy histogram or only its argmax is released (Zhu et al. 2021; Papernot et al. 2018, Section 4.1).

The unit is an agent with all of its data, or one example of one agent. The most that a unit moves the counts, in L2
norm, w being the weight of one vote (derivations in docs/explanation/votes.md):

    level     vote                  add_remove, zero_out    replace
    agent     one class, or k-NN    1                       sqrt(2), not 2: one unit of weight changes its class
    instance  one class             sqrt(2)                 sqrt(2)     the agent may vote for any other class
    instance  k-NN                  sqrt(2)/k               sqrt(2)/k   one neighbour gives way to another

Votes for at most t attributes at once are longer by sqrt(t).

>>> query = NoisyVote(noise_std=40.0)
>>> round(query.rho("add_remove"), 7), round(query.rho("replace"), 7)
(0.0003125, 0.000625)
>>> knn = NoisyVote(noise_std=40.0, level="instance", neighbours=8)
>>> knn.rho("replace") * 8 == knn.printed_rho()          # the paper prints k where its sensitivity gives k^2
True

**Cost of the votes** that were cast, released: a Gaussian whose noise follows its smooth sensitivity. The unit is that
of the votes: an agent or one example (`level`), for neighbours of one kind (`adjacency`), since the sensitivity that
scales the noise is theirs. Two numbers are released (see `voting.data_dependent`): f + S sigma N(0, 1) and log S + beta
tau N(0, 1). f moves by at most S between neighbours, and log S by at most beta.

>>> release = VoteCostRelease(beta=0.02, cost_noise=20.0, sensitivity_noise=50.0)
>>> release.renyi(np.array([10.0, 1000.0]), "add_remove").round(6).tolist()
[0.027187, inf]
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from sfumato._check import InputError, between, one_of, positive, whole
from sfumato._types import Adjacency, Level
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.events.gaussian import GaussianEvent
from sfumato.accounting.numerics import divided, inverse_square


class _VoteEvent(GaussianEvent):
    __slots__ = ()

    noise_std: float

    def _of_group(self, units: int) -> Event:
        return replace(self, noise_std=divided(self.noise_std, units))  # pyright: ignore[reportArgumentType]

    unsampled = (
        "every query asks the same agents; where each query asks a fresh sample of the agents, "
        "account Gaussian(noise_std).poisson(rate)"
    )


@event_kind("noisy_vote")
@dataclass(frozen=True, slots=True)
class NoisyVote(_VoteEvent):
    """The answer to one query; Q queries are `NoisyVote(...) * Q`.

    Attributes:
        noise_std: standard deviation of the noise on every count, in votes, > 0: what is left of it without the shares
            of absent and colluding agents (see `honest_noise_std`).
        level: "agent" or "instance".
        neighbours: k of kNN-DPFL: an agent's vote is the number of neighbours with a label divided by k, also where it
            has fewer than k examples; None where an agent votes for one class.
        attributes: most attributes in one vote of a multi-label task (tau of the paper): entries in [0, 1] that add up
            to at most this, so the L2 norm is at most its root; with neighbours, the attributes of each neighbour must.
            None for a single label.
    """

    noise_std: float
    level: Level = "agent"
    neighbours: int | None = None
    attributes: int | None = None

    def __post_init__(self) -> None:
        _validate(self)
        if self.attributes is not None:
            whole(attributes=self.attributes)

    def sensitivity_of(self, adjacency: Adjacency) -> tuple[float, bool]:
        """The weight of the votes that one unit moves, and whether it moves them from one class to another."""
        return _sensitivity_of(self, adjacency)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Most that one unit moves the counts, in L2 norm."""
        weight, exchanged = self.sensitivity_of(adjacency)
        return weight * math.sqrt((2.0 if exchanged else 1.0) * (self.attributes or 1))

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return self.sensitivity(adjacency) / self.noise_std

    def rho(self, adjacency: Adjacency) -> float:
        weight, exchanged = self.sensitivity_of(adjacency)
        return inverse_square(self.noise_std / weight) * (1.0 if exchanged else 0.5) * (self.attributes or 1)

    def printed_rho(self) -> float:
        """rho of one query as Zhu et al. 2021 print it (their unit is added or removed).

        For kNN-DPFL at instance level that is 1/(k sigma^2), k times `rho`; elsewhere the two agree. For a statement's
        `alternatives`, not for its epsilon.

        Raises:
            Unknown: nothing is printed for several attributes.
        """
        if self.attributes is not None:
            raise Unknown("Zhu et al. print no cost of a vote with several attributes; use rho")
        if self.level == "agent":
            return 0.5 * inverse_square(self.noise_std)
        return inverse_square(self.noise_std) / (self.neighbours or 1)


@event_kind("vote_threshold")
@dataclass(frozen=True, slots=True)
class VoteThreshold(_VoteEvent):
    """Whether the highest count plus noise reaches a public threshold (Confident-GNMax, Papernot et al. 2018, 4.2).

    One number is asked for, and moving votes of weight w from one class to another moves the highest count by at most
    w. So the sensitivity is w under every adjacency: 1, or 1/k for one example under kNN-DPFL.

    Attributes:
        noise_std: standard deviation of the noise, in votes, > 0.
        level: "agent" or "instance".
        neighbours: k of kNN-DPFL, or None.
    """

    noise_std: float
    level: Level = "agent"
    neighbours: int | None = None

    def __post_init__(self) -> None:
        _validate(self)

    def sensitivity_of(self, adjacency: Adjacency) -> tuple[float, bool]:
        """The weight of the votes that one unit moves, and whether it moves them from one class to another."""
        return _sensitivity_of(self, adjacency)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """Most that one unit moves the highest count."""
        return self.sensitivity_of(adjacency)[0]

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return self.sensitivity(adjacency) / self.noise_std

    def rho(self, adjacency: Adjacency) -> float:
        return 0.5 * inverse_square(self.noise_std / self.sensitivity(adjacency))


def honest_noise_std(noise_std: float, agents: int, missing: int) -> float:
    """The noise that hides an agent when the agents add it themselves, in equal shares N(0, noise_std^2 / agents).

    An absent agent adds none, and colluding agents know their own share and subtract it. What remains of `missing` such
    agents is noise_std sqrt((agents - missing) / agents). Where the talliers add the noise nothing is lost.

    The event with this noise holds for zero_out and replace, where the agent adds its share whatever it votes. Under
    add_remove its share leaves with it, which changes the variance and reveals that it left: let the talliers add the
    noise then.

    Args:
        noise_std: standard deviation of all shares together, > 0.
        agents: how many agents the shares were made for, >= 1.
        missing: how many may be absent or colluding, 0 <= missing < agents; an agent that sees what is released
            knows its own share, so at least 1 then.

    Raises:
        InputError: no honest agent is left.

    >>> honest_noise_std(40.0, agents=100, missing=36)
    32.0
    """
    positive(noise_std=noise_std)
    whole(agents=agents)
    whole(at_least=0, missing=missing)
    if missing >= agents:
        raise InputError(f"missing must be < agents ({agents}), got {missing}; let the talliers add the noise instead")
    return noise_std * math.sqrt((agents - missing) / agents)


def _sensitivity_of(event: NoisyVote | VoteThreshold, adjacency: Adjacency) -> tuple[float, bool]:
    one_of(("add_remove", "replace", "zero_out"), adjacency=adjacency)
    if event.level == "agent":
        return 1.0, adjacency == "replace"
    return 1.0 / (event.neighbours or 1), True


def _validate(event: NoisyVote | VoteThreshold) -> None:
    positive(noise_std=event.noise_std, remedy="for votes without noise use NonPrivate()")
    one_of(("agent", "instance"), level=event.level)
    if event.neighbours is not None:
        whole(neighbours=event.neighbours)


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
    """The order from which on a noise that follows a sensitivity of this smoothness costs without limit."""
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
