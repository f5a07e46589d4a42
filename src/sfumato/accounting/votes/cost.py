"""What noisy votes cost on the votes that were really cast: a number that is itself private.

Guarantees, for this one data set D and the queries that were asked: no set of outcomes is likelier at D than e^epsilon
times its probability at any neighbour D', plus delta. That is weaker than differential privacy, which speaks of every
pair of neighbours in both directions, and the number tells something about the votes. So it comes wrapped in
`NotPrivate`, which is no float: a statement, a ledger and JSON refuse it. For a statement use the event itself
(`NoisyVote`, the same for all votes), and beside it the number released with noise (`release_cost`).

The queries must not depend on earlier answers; otherwise which costs are added up is an outcome itself.

Papernot et al. 2018, Theorem 6 and Appendix A; Zhu et al. 2021, Theorem 7; derivations in docs/explanation/votes.md.

>>> votes = np.tile([250] + [0] * 9, (1000, 1))                    # a thousand queries, all agents agree
>>> cost = vote_cost(votes, NoisyVote(noise_std=40.0), adjacency="replace")
>>> cost.epsilon(delta=1e-5)
<not private: computed from the votes; read .value, and never publish it>
>>> round(cost.epsilon(delta=1e-5).value, 4)
0.3618
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np
import scipy

from sfumato._check import InputError, between, non_negative, one_of, positive
from sfumato._types import Adjacency
from sfumato.accounting.accountants.rdp import ORDERS, epsilon_above_renyi
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.vote import Level, NoisyVote, VoteThreshold
from sfumato.accounting.votes import bounds
from sfumato.accounting.votes.bounds import Bound
from sfumato.accounting.votes.outcome import as_votes, log_wrong

_REFUSAL = (
    "this number is computed from private votes and is private itself; publish the epsilon of the event, or the "
    "outcome of release_cost (.value reads it for local use)"
)
Conversion = Literal["improved", "classic"]


@dataclass(frozen=True, slots=True, eq=False)
class NotPrivate:
    """A number, or an array of them, that must not leave the place where the private records are.

    Not a float on purpose: it has no arithmetic, JSON cannot write it, it prints without its value, and whatever turns
    it into a number is refused.

    Attributes:
        value: the number, for the eyes of whoever may see the votes.
    """

    value: Any = field(repr=False)

    def __float__(self) -> NoReturn:
        raise InputError(_REFUSAL)

    def __repr__(self) -> str:
        return "<not private: computed from the votes; read .value, and never publish it>"


@dataclass(frozen=True, eq=False)
class DataDependentCost:
    """The Renyi cost of queries that were answered; `+` adds further queries on the same agents.

    Attributes:
        orders: the orders, each > 1.
        level: whose presence it is about: "agent" or "instance".
        adjacency: how the neighbours differ.
        queries: how many comparisons and answers are in it.
    """

    orders: tuple[float, ...]
    level: Level
    adjacency: Adjacency
    queries: int
    _renyi: np.ndarray = field(repr=False)

    def renyi(self) -> NotPrivate:
        """The cost at each order, float [k] in `.value`."""
        return NotPrivate(self._renyi.copy())

    def epsilon(self, delta: float, conversion: Conversion = "improved") -> NotPrivate:
        """Epsilon at this delta for the votes as they were cast.

        Args:
            delta: in [0, 1].
            conversion: "improved" (Canonne, Kamath and Steinke 2020, Proposition 12) or "classic" (Mironov 2017,
                Proposition 3), with which older figures were made.
        """
        return NotPrivate(to_epsilon(self._renyi, np.array(self.orders), delta, conversion))

    def __add__(self, other: "DataDependentCost") -> "DataDependentCost":
        if not isinstance(other, DataDependentCost):
            return NotImplemented
        if (self.orders, self.level, self.adjacency) != (other.orders, other.level, other.adjacency):
            raise InputError("costs of votes add up only at the same orders, level and adjacency; compute them alike")
        total = self._renyi + other._renyi
        return DataDependentCost(self.orders, self.level, self.adjacency, self.queries + other.queries, total)

    def marker(self) -> dict[str, Any]:
        """What a statement's `alternatives` may say of it: that the number exists, and not the number."""
        return {"name": "for the votes as they were cast", "marked": "not private", "queries": self.queries}


def vote_cost(
    votes: object,
    event: NoisyVote,
    adjacency: Adjacency,
    *,
    noise_std: float | None = None,
    step: float = 0.0,
    orders: tuple[float, ...] = ORDERS,
    bound: Bound = "best",
) -> DataDependentCost:
    """What naming the winner cost, query by query, for the votes that were cast.

    Never more than the event costs for any votes. Only for the argmax: where the noisy histogram is released, its cost
    does not depend on the votes.

    Args:
        votes: float [queries, classes] or [classes]: the counts before noise, each >= 0; classes >= 2.
        event: one query, with the noise that is accounted for.
        adjacency: "add_remove", "replace" or "zero_out".
        noise_std: the noise that was added where it is more: it makes an answer less certain. None for the event's.
        step: in votes, what counts and noise are whole multiples of; 0 for noise of real numbers.
        orders: k orders, each > 1.
        bound: "best", or the bound of one paper alone: "theorem6", "theorem7", "tradeoff" (see `bounds`).

    Raises:
        InputError: the votes are no counts.
        Unknown: several attributes are released at once, so there is no single winner.
    """
    if not isinstance(event, NoisyVote):
        raise InputError(f"event must be a NoisyVote, got {event!r}")
    non_negative(step=step)
    if event.attributes is not None:
        raise Unknown(
            "a vote for several attributes has no single winner, so no cost that depends on the votes is known"
        )
    counts = as_votes(votes)
    return _cost(log_wrong(counts, added_std(event, noise_std), step), event, adjacency, orders, bound)


def threshold_cost(
    votes: object,
    threshold: float,
    event: VoteThreshold,
    adjacency: Adjacency,
    *,
    noise_std: float | None = None,
    step: float = 0.0,
    orders: tuple[float, ...] = ORDERS,
    bound: Bound = "best",
) -> DataDependentCost:
    """What telling whether the highest noisy count reached the threshold cost (Confident-GNMax), for these votes.

    Pay it for every query, and `vote_cost` for those that passed.

    Args:
        votes: float [queries, classes] or [classes]: the counts before noise.
        threshold: public, in votes.
        event: one comparison, with its own noise.
        adjacency: as in `vote_cost`.
        noise_std: as in `vote_cost`, of the comparison.
        step: as in `vote_cost`.
        orders: as in `vote_cost`.
        bound: as in `vote_cost`.

    Raises:
        InputError: the votes are no counts, or the threshold is no number.
    """
    if not isinstance(event, VoteThreshold):
        raise InputError(f"event must be a VoteThreshold, got {event!r}")
    between(-1e300, 1e300, threshold=threshold)
    non_negative(step=step)
    distance = np.maximum(np.abs(as_votes(votes).max(axis=1) - float(threshold)) - step, 0.0)
    distance = distance / added_std(event, noise_std)
    return _cost(scipy.special.log_ndtr(-distance), event, adjacency, orders, bound)


def added_std(event: NoisyVote | VoteThreshold, noise_std: float | None) -> float:
    """The noise that was added: the event's, or more.

    Raises:
        InputError: it is less than is accounted for.
    """
    if noise_std is None:
        return event.noise_std
    positive(noise_std=noise_std)
    noise_std = float(noise_std)
    if noise_std < event.noise_std * (1 - 1e-12):  # but for rounding
        raise InputError(f"noise_std must be >= the event's {event.noise_std:g}, got {noise_std:g}; account what ran")
    return max(noise_std, event.noise_std)


def to_epsilon(renyi: np.ndarray, orders: np.ndarray, delta: float, conversion: Conversion = "improved") -> float:
    """Epsilon from a Renyi curve at the best order; 0 <= epsilon <= inf."""
    between(0, 1, delta=delta)
    one_of(("improved", "classic"), conversion=conversion)
    if delta == 0.0:
        return 0.0 if not renyi.any() else math.inf
    above = epsilon_above_renyi(orders, delta) if conversion == "improved" else -np.log(delta) / (orders - 1)
    return max(0.0, float((renyi + above).min()))


def _cost(
    log_q: np.ndarray,
    event: NoisyVote | VoteThreshold,
    adjacency: Adjacency,
    orders: tuple[float, ...],
    bound: Bound,
) -> DataDependentCost:
    try:
        orders = tuple(float(order) for order in orders)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"orders must be a list of numbers > 1, got {orders!r}") from None
    order_array = np.array(orders)
    if not orders or not (order_array > 1).all() or not np.isfinite(order_array).all():
        raise InputError(f"orders must all be > 1 and finite, got {orders}; leave them out for the default ones")
    rho = event.rho(adjacency)
    total = np.zeros(len(orders))
    distinct, counts = np.unique(log_q, return_counts=True)  # queries of equal margins cost the same
    for start in range(0, len(distinct), 4096):
        part = slice(start, start + 4096)
        total += counts[part] @ bounds.renyi(distinct[part], rho, order_array, bound)
    total.setflags(write=False)
    return DataDependentCost(orders, event.level, adjacency, len(log_q), total)
