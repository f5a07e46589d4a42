"""How much the data-dependent cost of votes can change when few units change: its smooth sensitivity.

Guarantees an upper bound S(D) on the change of the cost f between D and any neighbour, with S(D) <= e^beta S(D') for
all neighbours: what noise must be scaled by when f is released (Nissim, Raskhodnikova and Smith 2007, Definition 2.2;
for votes Papernot et al. 2018, Appendix B). S depends on the votes and is private too.

The cost of a query depends on its votes through one number, the score z (see `outcome.margin_score`), and one unit
moves z by at most a constant s. So f is made a non-increasing step function on a grid of z that divides s, the change
to a neighbour is read off the grid exactly, and its largest value over all votes within d units is a maximum over an
interval of z. No condition on the shape of f has to be checked (the paper's C5 and C6). Derivation:
docs/explanation/votes.md.

>>> sensitivity = VoteSensitivity(NoisyVote(noise_std=40.0), "replace", classes=10, order=20.0)
>>> votes = np.array([[250.0] + [0.0] * 9] * 1000)
>>> round(sensitivity.cost(votes), 5), round(sensitivity.smooth(votes, beta=0.01), 5)
(0.04361, 0.34294)
"""

import math

import numpy as np

from sfumato._check import InputError, between, non_negative, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.vote import NoisyVote
from sfumato.accounting.votes import bounds
from sfumato.accounting.votes.bounds import Bound
from sfumato.accounting.votes.cost import added_std
from sfumato.accounting.votes.outcome import as_votes, log_union, log_wrong_from_score, margin_score

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
        self._weight, self._exchanged = event.moved(adjacency)
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
        return bounds.renyi(log_q, self.event.rho(self.adjacency), np.array([self.order]), self.bound)[:, 0]

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
