"""What noisy votes cost on the votes that were cast: not for publishing, unless released with noise.

How likely a noisy vote is to name another class than the one with the most votes.

Guarantees an upper bound on that probability, in logarithms, so that a clear vote does not round to certainty. The
number is computed from private votes and is private itself.

>>> votes = np.array([[250.0] + [0.0] * 9, [120.0, 120.0] + [0.0] * 8])
>>> np.exp(log_wrong(votes, noise_std=40.0)).round(8).tolist()
[4.454e-05, 0.63557941]

Renyi divergence of one noisy vote whose outcome is nearly certain: three bounds, and the least of them.

Guarantees for the votes as they were cast, that is for one data set D: D_a(M(D) || M(D')) <= bound for every
neighbour D'. That is one direction at one data set. It is no differential privacy guarantee, and it is computed from
private votes: see `vote_cost`. M is one Gaussian release of zCDP `rho`, followed by any choice of an outcome that is
wrong with probability at most q at D.

All bounds are at most the data-independent a rho. Proofs are in docs/explanation/votes.md.

>>> log_q = np.log([1e-3, 1e-9])
>>> orders = np.array([4.0, 16.0])
>>> (theorem6(log_q, 1 / 1600, orders) * 1e6).round(2).tolist()
[[301.64, 554.03], [0.0, 0.0]]
>>> (tradeoff(log_q, 1 / 1600, orders) * 1e6).round(2).tolist()
[[269.84, 463.1], [0.0, 0.0]]

What noisy votes cost on the votes that were really cast: a number that is itself private.

Guarantees, for this one data set D and the queries that were asked: no set of outcomes is likelier at D than e^epsilon
times its probability at any neighbour D', plus delta. That is weaker than differential privacy, which speaks of every
pair of neighbours in both directions, and the number reveals something about the votes. So it comes wrapped in
`NotPrivate`, which is no float: a statement, a ledger and JSON refuse it. For a statement use the event itself
(`NoisyVote`, the same for all votes), and next to it the number released with noise (`release_cost`).

The queries must not depend on earlier answers; otherwise which costs are added up is an outcome itself.

Papernot et al. 2018, Theorem 6 and Appendix A; Zhu et al. 2021, Theorem 7; derivations in docs/explanation/votes.md.

>>> votes = np.tile([250] + [0] * 9, (1000, 1))                    # a thousand queries, all agents agree
>>> cost = vote_cost(votes, NoisyVote(noise_std=40.0), adjacency="replace")
>>> cost.epsilon(delta=1e-5)
<not private: computed from the votes; read .value, and never publish it>
>>> round(cost.epsilon(delta=1e-5).value, 4)
0.3618

How much the data-dependent cost of votes can change when few units change: its smooth sensitivity.

Guarantees an upper bound S(D) on the change of the cost f between D and any neighbour, with S(D) <= e^beta S(D') for
all neighbours: what noise must be scaled by when f is released (Nissim, Raskhodnikova and Smith 2007, Definition 2.2;
for votes Papernot et al. 2018, Appendix B). S depends on the votes and is private too.

The cost of a query depends on its votes through one number, the score z (see `margin_score`), and one unit
moves z by at most a constant s. So f is made a non-increasing step function on a grid of z that divides s, the change
to a neighbour is read off the grid exactly, and its largest value over all votes within d units is a maximum over an
interval of z. No condition on the shape of f has to be checked (the paper's C5 and C6). Derivation:
docs/explanation/votes.md.

>>> sensitivity = VoteSensitivity(NoisyVote(noise_std=40.0), "replace", classes=10, order=20.0)
>>> votes = np.array([[250.0] + [0.0] * 9] * 1000)
>>> round(sensitivity.cost(votes), 5), round(sensitivity.smooth(votes, beta=0.01), 5)
(0.04361, 0.34294)

Releasing the cost of the votes that were cast, with noise: the Gaussian mechanism with smooth sensitivity (GNSS).

Released are two noisy numbers: f + S sigma N(0, 1), where f is the cost of all queries at one order and S its smooth
sensitivity, and log S + beta tau N(0, 1), without which no one would know how large the noise of the first is (Papernot
et al. 2018, Appendix B; the second as in Redberg, Zhu and Wang 2023). The release itself costs privacy, whatever the
votes: an ordinary guarantee, `release_renyi`, for the unit and adjacency of the sensitivity.

What may be claimed afterwards: with the stated confidence over the noise of the release, all answers and the release
together cost at most `renyi` at the stated order, at this data set and in the direction of `vote_cost`. It is a
bound for the votes that were cast, not differential privacy; it belongs into a statement's `alternatives`, next to an
epsilon that holds for all votes. Order, beta, both noises and the confidence must not be chosen by looking at the
votes.

The cost of the first number is the exact divergence, which is sharper than the printed Theorem 23 for small beta. For
beta near 1/(2 order) the printed value is too low (see docs/explanation/votes.md).

>>> from sfumato._random import RandomSource
>>> from sfumato.accounting.events.votes import NoisyVote
>>> sensitivity = VoteSensitivity(NoisyVote(noise_std=150.0), "replace", classes=10, order=30.0)
>>> votes = np.array([[4700.0, 300.0] + [0.0] * 8] * 1000)
>>> noise = RandomSource.from_seed(0).stream("noise", "cost of votes")
>>> released = release_cost(votes, sensitivity, beta=0.005, cost_noise=50.0, sensitivity_noise=50.0, noise=noise)
>>> round(released.epsilon(1e-6), 3), round(released.epsilon_for_any_votes(1e-6), 3)
(0.341, 1.674)
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from sfumato._check import InputError, between, non_negative, one_of, positive, whole
from sfumato._lazy import scipy
from sfumato._random import Stream
from sfumato._types import Adjacency
from sfumato.accounting.accountants import ORDERS, epsilon_above_renyi
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.votes import Level, NoisyVote, VoteCostRelease, VoteThreshold, gnss_renyi
from sfumato.accounting.numerics import EPS


def as_votes(votes: object) -> np.ndarray:
    """Votes as float [queries, classes].

    Raises:
        InputError: not numbers, negative, not finite, or fewer than two classes.
    """
    try:
        array = np.asarray(votes, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"votes must be counts [queries, classes], up to 1.8e308 each, got {type(votes).__name__}"
        ) from None
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(f"votes must be counts [queries, classes >= 2], got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("votes must be finite and >= 0; some are not")
    return array


def log_wrong(votes: np.ndarray, noise_std: float, step: float = 0.0) -> np.ndarray:
    """log of a bound on Pr[the winner is not the class with the most votes].

    A union bound over the other classes (Papernot et al. 2018, Proposition 7), and never above 1 - 1/classes, as no
    class is likelier to win than the one with the most votes.

    Args:
        votes: float [queries, classes].
        noise_std: standard deviation of the noise on every count, in votes.
        step: in votes, what counts and noise are whole multiples of; 0 for noise of real numbers.

    Returns:
        float [queries], < 0.
    """
    return np.minimum(log_union(votes, noise_std, step), np.log1p(-1.0 / votes.shape[1]))


def log_union(votes: np.ndarray, noise_std: float, step: float = 0.0) -> np.ndarray:
    """log of the union bound itself, at most log((classes - 1) / 2) for a step of 0; float [queries].

    A discrete Gaussian reaches m >= 1 steps at most as often as the Gaussian of its parameter reaches m - 1: a sum of
    falling terms is below the integral that begins a step earlier, and what it is divided by is at least the integral
    over all (Poisson summation). The difference of two is one again.
    """
    ordered = np.sort(votes, axis=1)
    gaps = ordered[:, -1:] - ordered[:, :-1] - step
    return np.asarray(scipy.special.logsumexp(scipy.special.log_ndtr(-gaps / (np.sqrt(2.0) * noise_std)), axis=1))


def margin_score(log_union: np.ndarray, classes: int) -> np.ndarray:
    """The z at which classes - 1 equally strong rivals would give this union bound: (classes - 1) Phi(-z); >= 0.

    One unit that moves every gap by at most c moves z by at most c / (sqrt(2) noise_std): Phi(Phi^-1(p) + s) is concave
    in p, so the bound grows most where all rivals are equal (Papernot et al. 2018, Proposition 13).
    """
    return np.maximum(0.0, -scipy.special.ndtri_exp(np.minimum(log_union - np.log(classes - 1), -np.log(2.0))))


def log_wrong_from_score(score: np.ndarray, classes: int) -> np.ndarray:
    """The inverse of `margin_score`, cut off at log(1 - 1/classes)."""
    return np.minimum(np.log(classes - 1) + scipy.special.log_ndtr(-score), np.log1p(-1.0 / classes))


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


_REFUSAL = (
    "this number is computed from private votes and is private itself; publish the event's epsilon, or the outcome of "
    "release_cost (.value: local use)"
)
Conversion = Literal["improved", "classic"]


@dataclass(frozen=True, slots=True, eq=False)
class NotPrivate:
    """A number, or an array of them, that must not leave the place where the private records are.

    Not a float on purpose: it has no arithmetic, JSON cannot write it, it prints without its value, and whatever turns
    it into a number is refused.

    Attributes:
        value: the number, for the eyes of those who may see the votes.
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
            raise InputError("costs of votes add up only at the same orders, level and adjacency; use the same for all")
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
        total += counts[part] @ renyi(distinct[part], rho, order_array, bound)
    total.setflags(write=False)
    return DataDependentCost(orders, event.level, adjacency, len(log_q), total)


_CELLS = 1 << 16  # cells of the grid that are aimed at
_MOST = 1 << 19  # cells that are too many
_FLOOR = 1e-18  # share of the data-independent cost below which a query's cost is not followed further
_FADED = 1e-12  # factor below which far-away votes count with the largest change possible
_BLOCK = 256  # distances computed at a time
_ROUNDING = 1e-10  # widening for each unit of distance: more than a score's relative error, so that intervals nest


class VoteSensitivity:
    """The cost of answered queries at one order as a step function, and its sensitivity. Holds no votes.

    Args:
        event: one query.
        adjacency: "add_remove", "replace" or "zero_out".
        classes: number of classes, >= 2; public.
        order: the order of the Renyi cost, > 1; public, so not chosen by looking at the votes.
        bound: which bound is stepped, see `bounds`.
        noise_std: the noise that was added where it is more than the event's, as in `vote_cost`.
        step: in votes, what counts and noise are whole multiples of, as in `vote_cost`.

    Raises:
        InputError: an argument is out of range, or the noise is so large that votes hardly matter.
    """

    def __init__(
        self,
        event: NoisyVote,
        adjacency: Adjacency,
        *,
        classes: int,
        order: float,
        bound: Bound = "best",
        noise_std: float | None = None,
        step: float = 0.0,
    ) -> None:
        whole(at_least=2, classes=classes)
        between(1, 1e6, ends="()", order=order)
        non_negative(step=step)
        if not isinstance(event, NoisyVote):
            raise InputError(f"event must be a NoisyVote, got {event!r}")
        if event.attributes is not None:
            raise Unknown("a vote for several attributes has no single winner, so it has no cost that depends on votes")
        self.event, self.classes, self.order = event, int(classes), float(order)
        self.adjacency: Adjacency = adjacency
        self.bound: Bound = bound
        self.worst = self.order * event.rho(adjacency)
        """Most that one query can cost, whatever the votes."""
        self._weight, self._exchanged = event.sensitivity_of(adjacency)
        self._std, self._step = added_std(event, noise_std), step
        shift = (2.0 if self._exchanged else 1.0) * self._weight / (math.sqrt(2.0) * self._std)
        top = self._end()
        cells = max(4, min(1024, int(_CELLS * shift / top)))
        self._width = shift / cells
        size = int(top / self._width) + 2 * cells + 2  # past the end nothing changes any more
        if size > _MOST:
            raise InputError(
                f"noise_std {event.noise_std:g} is too large for a cost that depends on the votes; use the event's own"
            )
        # the least bound over all larger probabilities is a bound as well, and does not increase with z
        self._cost = np.minimum.accumulate(self._bound_at(np.arange(size) * self._width))
        reach = cells + 1  # one cell more than s, for the rounding of z
        before = np.concatenate([np.full(reach, self._cost[0]), self._cost])[:size]
        after = np.concatenate([self._cost, np.full(reach, self._cost[-1])])[-size:]
        self._largest = _ranges(np.maximum(before - self._cost, self._cost - after))

    def cost(self, votes: object) -> float:
        """f: the sum over the queries, not below `vote_cost` by more than rounding; private."""
        return math.fsum(self._cost[self._cell(self._score(self._counts(votes)))])

    def local(self, votes: object, distances: int) -> np.ndarray:
        """Largest change of f between neighbours, over all votes within 0, 1, …, distances - 1 units; private.

        A unit can change its vote in every query, so the changes of all queries add up; float [distances].
        """
        whole(distances=distances)
        return self._within(self._counts(votes), np.arange(distances))

    def smooth(self, votes: object, beta: float) -> float:
        """S: the largest local sensitivity at distance d, discounted by e^(-beta d); private, > 0.

        Args:
            votes: float [queries, classes].
            beta: > 0; public.
        """
        positive(beta=beta)
        counts = self._counts(votes)
        distances = math.ceil(-math.log(_FADED) / beta)
        if distances > 1_000_000:
            raise InputError(f"beta must be >= 3e-5, got {beta:g}; choose a smaller order")
        largest = math.exp(-beta * distances) * self.worst * len(counts)
        most = float(self._largest[0].max()) * len(counts)  # whatever the votes
        for start in range(0, distances, _BLOCK):
            if math.exp(-beta * start) * most <= largest:
                break  # no distance from here on can exceed what was found
            block = np.arange(start, min(start + _BLOCK, distances))
            largest = max(largest, float((np.exp(-beta * block) * self._within(counts, block)).max()))
        return largest

    def _within(self, counts: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Largest change over all votes within each of these distances; float, one each.

        Distances are not cut off at the number of units. Votes of another data set with the same number would then
        end the search earlier or later than these, and S would jump between the two.
        """
        total = np.zeros(len(distances))
        counts, repeats = np.unique(np.sort(counts, axis=1), axis=0, return_counts=True)
        for start in range(0, len(counts), 64):
            part = slice(start, start + 64)
            low, high = self._reach(counts[part], self._weight * distances)
            low, high = self._cell(low * (1 - _ROUNDING * distances)), self._cell(high * (1 + _ROUNDING * distances))
            total += repeats[part] @ self._largest_between(low, high)
        return total

    def _counts(self, votes: object) -> np.ndarray:
        counts = as_votes(votes)
        if counts.shape[1] != self.classes:
            raise InputError(f"votes must be for {self.classes} classes, got {counts.shape[1]}")
        return counts

    def _bound_at(self, score: np.ndarray) -> np.ndarray:
        log_q = log_wrong_from_score(score, self.classes)
        return renyi(log_q, self.event.rho(self.adjacency), np.array([self.order]), self.bound)[:, 0]

    def _end(self) -> float:
        """A score beyond which the cost is as good as zero; the same for all votes."""
        score = 8.0
        while self._bound_at(np.array([score]))[0] > _FLOOR * self.worst and score < 1e6:
            score *= 1.1
        return score

    def _cell(self, score: np.ndarray) -> np.ndarray:
        """Cell of a score, rounded down: that is the larger cost."""
        return np.minimum(score * (1 - 1e-9) / self._width, len(self._cost) - 1).astype(np.int64)

    def _reach(self, counts: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and largest score over all votes within these distances.

        Args:
            counts: float [queries, classes], each row rising.
            units: float [distances], weight of the votes that may move, rising from 0.

        Returns:
            Two float [queries, distances].
        """
        rivals, first = counts[:, None, :-1], counts[:, None, -1:]
        weight = units[None, :, None]
        # worst: the winner loses to the runner-up; where they meet, nothing is known
        runner_up = np.zeros_like(rivals)
        runner_up[..., -1] = 1.0 if self._exchanged else 0.0
        worst = np.concatenate([rivals + weight * runner_up, first - weight], axis=-1)
        low = self._score(worst)
        low[worst[..., -1] <= worst[..., -2]] = 0.0
        # best: the winner gains, and where votes move they come from the strongest rivals
        lowered = _lowered(rivals, units) if self._exchanged else np.broadcast_to(rivals, worst[..., :-1].shape)
        high = self._score(np.concatenate([lowered, np.broadcast_to(first + weight, lowered[..., :1].shape)], axis=-1))
        return low, high

    def _score(self, counts: np.ndarray) -> np.ndarray:
        """Scores of votes [..., classes]."""
        flat = counts.reshape(-1, counts.shape[-1])
        return margin_score(log_union(flat, self._std, self._step), self.classes).reshape(counts.shape[:-1])

    def _largest_between(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        level = np.log2(high - low + 1).astype(np.int64)
        return np.maximum(self._largest[level, low], self._largest[level, high + 1 - (1 << level)])


def _ranges(values: np.ndarray) -> np.ndarray:
    """Row k holds the maxima over 2^k values from each position on, as far as there are so many."""
    rows = [values]
    for level in range(int(math.log2(len(values)))):
        shifted = np.concatenate([rows[-1][1 << level :], np.zeros(1 << level)])
        rows.append(np.maximum(rows[-1], shifted))
    return np.array(rows)


def _lowered(rivals: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Rivals with this much weight taken from the strongest ones, levelling them; zero where nothing is left.

    Args:
        rivals: float [queries, 1, rivals], rising.
        units: float [distances].
    """
    falling = rivals[:, 0, ::-1]
    number = np.arange(1, falling.shape[1] + 1)
    # level when the first j rivals stand equal, and the weight that has to go before the next one is reached
    prefix = np.cumsum(falling, axis=1)
    following = np.concatenate([falling[:, 1:], np.zeros((len(falling), 1))], axis=1)
    needed = prefix - number * following
    index = (needed[:, None, :] < units[None, :, None]).sum(axis=-1)
    index = np.minimum(index, falling.shape[1] - 1)
    level = (np.take_along_axis(prefix, index, axis=1) - units[None, :]) / (index + 1)
    return np.minimum(rivals, np.maximum(level, 0.0)[..., None])


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
