"""Noise that rounds share: who may take part when, and how far one unit then moves everything.

**Participation:** in which rounds one unit may take part. What correlated noise costs depends on how often one unit
comes back and how soon. Both numbers must be enforced by the sampler; here they are only written down. Every bound that
is made from them holds for one unit that takes part in *any* set of rounds that they allow, fewer rounds included.

Two conventions are in use for two consecutive participations in rounds x < y. Trees count the rounds between them,
xi = y - x - 1 (Kairouz et al. 2021, Appendix D.2); matrices count the period, b = y - x (Choquette-Choo et al. 2023,
Section 2). `min_separation` is xi and `period` is b = xi + 1, here and in every event.

>>> pattern = Participation(rounds=2000, max_participations=6, min_separation=313)
>>> pattern.period, pattern.most, pattern.allows([0, 314, 1999])
(314, 6, True)
>>> Participation(rounds=2000, max_participations=None, min_separation=999).most
2

**Trees:** the most that one unit can move all nodes of the binary trees together, squared. A tree releases, with fresh
noise, the sum of every complete block of 2^m consecutive rounds that starts at a multiple of 2^m. A unit that takes
part c times in a block moves that node by at most c clip norms, all contributions aligned; so S^2 is the maximum of
sum_nodes c^2 over the participation patterns (Kairouz et al. 2021, Appendix D).

`squared_sensitivity` finds this maximum exactly, by joining neighbouring blocks (docs/explanation/trees-and-matrices.md
derives the rule). Where that would take more than some seconds (hundreds of participations at varying distances), it
gives an upper bound and says so: the sum over levels of the most that each level can hold by itself.

>>> squared_sensitivity(Forest(Participation(rounds=2000, max_participations=6, min_separation=313)))
Squared(value=79, exact=True)

**Matrices:** the most that one unit can move C x, for the noise C^-1 z, squared. Row t of C x + z is released in round
t; C is lower triangular and column j is what a contribution in round j does to this and later rows. A unit with
contributions of norm at most 1 in the rounds of a pattern moves C x by at most

    S^2 = max over patterns of sum_{i,j in the pattern} |<C_i, C_j>|,

which is attained where no inner product is negative (Choquette-Choo et al. 2023, Eq. 5). Known exactly are

- columns whose supports do not meet within a pattern (at most b bands): the heaviest pattern of ||C_j||^2, by dynamic
  programming (ibid., Algorithm 3);
- Toeplitz matrices with non-increasing coefficients >= 0: rounds 0, b, 2b, ... (Kalinin and Lampert 2024, Theorem 2),
  as every inner product falls when the distance of two rounds grows or shrinks.

Anything else gets an upper bound: for Toeplitz matrices the coefficients' non-increasing envelope, for other matrices
each round with the heaviest partners that it could have by itself. All results are rounded up.

>>> ones = Participation(rounds=4, max_participations=2, min_separation=1)
>>> value, exact = toeplitz([1.0, 0.5], ones)               # columns (1, .5, 0, 0) and (0, 0, 1, .5)
>>> round(value, 12), exact
(2.5, True)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sfumato._check import InputError, whole
from sfumato.accounting.numerics import EPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """How often and how soon one unit may take part.

    Attributes:
        rounds: length of the run, >= 1.
        max_participations: most rounds with one unit, >= 1; None where only the separation limits it.
        min_separation: least number of rounds between two of them, >= 0 (y - x - 1 for rounds x < y).

    Raises:
        InputError: a number is not whole or out of range.
    """

    rounds: int
    max_participations: int | None = 1
    min_separation: int = 0

    def __post_init__(self) -> None:
        whole(rounds=self.rounds)
        if self.max_participations is not None:
            whole(max_participations=self.max_participations, remedy="None for no limit besides min_separation")
            object.__setattr__(self, "max_participations", int(self.max_participations))
        whole(at_least=0, min_separation=self.min_separation, remedy="0 lets a unit take part in consecutive rounds")
        object.__setattr__(self, "rounds", int(self.rounds))
        object.__setattr__(self, "min_separation", int(self.min_separation))

    @property
    def period(self) -> int:
        """b: least distance between two rounds with the same unit, >= 1."""
        return self.min_separation + 1

    @property
    def most(self) -> int:
        """Most participations that fit, >= 1."""
        fitting = -(-self.rounds // self.period)
        return fitting if self.max_participations is None else min(self.max_participations, fitting)

    def refuse_unreachable(self) -> None:
        """Refuse a cap that no pattern reaches: its author expects another run.

        Raises:
            InputError: more participations than fit.
        """
        fitting, wanted = -(-self.rounds // self.period), self.max_participations
        if wanted is not None and wanted > fitting:
            raise InputError(
                f"max_participations must be <= {fitting}, got {wanted}: no more fit into {self.rounds} rounds with "
                f"{self.min_separation} between two; lower it or min_separation"
            )

    def allows(self, pattern: Sequence[int]) -> bool:
        """Whether a unit may take part in exactly these rounds, 0-based and ascending."""
        inside = all(0 <= position < self.rounds for position in pattern)
        spaced = all(later - earlier >= self.period for earlier, later in pairwise(pattern))
        return inside and spaced and len(pattern) <= self.most


_FREE = 1 << 60  # slack of a block without participations
_MOST_PAIRS = 8_000_000  # pairs of partial patterns that are tried, less than a microsecond each
_CHUNK = 200_000  # pairs that are held at a time


class Squared(NamedTuple):
    """A squared sensitivity in squared clip norms.

    Attributes:
        value: the maximum over all patterns, or an upper bound on it.
        exact: whether it is the maximum.
    """

    value: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of a run.

    Attributes:
        participation: the rounds in which one unit may take part, over the whole run.
        tree_rounds: rounds after which a new tree starts, >= 1; None for a single tree.
        completed: whether a tree that is followed by another one is first filled up with empty rounds to a power of
            two, so that its root is released too ("tree completion", ibid. Appendix D.3).
        most_per_tree: most participations of one unit in one tree, >= 1; None for no such limit.
    """

    participation: Participation
    tree_rounds: int | None = None
    completed: bool = False
    most_per_tree: int | None = None

    def trees(self) -> list[tuple[int, bool, int]]:
        """(rounds, whether it is completed, how many of them), in order."""
        rounds = self.participation.rounds
        length = min(self.tree_rounds or rounds, rounds)
        full, rest = divmod(rounds, length)
        if rest:
            return [(length, self.completed, full), (rest, False, 1)]
        return [(length, self.completed, full - 1), (length, False, 1)] if full > 1 else [(length, False, 1)]

    def most_in(self, rounds: int) -> int:
        """Most participations in a tree with this many rounds."""
        fitting = -(-rounds // self.participation.period)
        return min(self.participation.most, fitting, self.most_per_tree or fitting)

    @property
    def most(self) -> int:
        """Most participations in the run, or an upper bound on it."""
        return min(self.participation.most, sum(self.most_in(rounds) * count for rounds, _, count in self.trees()))


@lru_cache(maxsize=256)
def squared_sensitivity(forest: Forest) -> Squared:
    """max over patterns of the sum over nodes of the squared number of participations below the node."""
    bound = _level_bound(forest)
    if _is_attained_by_the_first_rounds(forest):
        return Squared(bound, True)
    try:
        return Squared(_Search(forest).maximum(), True)
    except _TooMany:
        return Squared(bound, False)


def _is_attained_by_the_first_rounds(forest: Forest) -> bool:
    """Whether taking part from the start, without a gap, fills every level as far as it goes."""
    if len(forest.trees()) > 1:
        return forest.most == forest.participation.rounds
    return forest.most == 1 or (forest.participation.period == 1 and forest.most_per_tree is None)


def _level_bound(forest: Forest) -> int:
    """Sum over the levels of the tree of the most that the nodes of one level can hold: participations fill the
    largest nodes first, as squares are convex. An upper bound, because one pattern must serve all levels.
    """
    total, level = 0, 0
    while nodes := [node for tree in forest.trees() for node in _nodes(*tree, level)]:
        left = forest.most
        for capacity, count in sorted(((forest.most_in(leaves), count) for leaves, count in nodes), reverse=True):
            filled = min(count, left // capacity)
            total += filled * capacity**2
            left -= filled * capacity
            if filled < count:
                total += left**2
                break
        level += 1
    return total


def _nodes(rounds: int, completed: bool, count: int, level: int) -> list[tuple[int, int]]:
    """(rounds below it, how many) of the nodes of one level in `count` trees."""
    full, rest = rounds >> level, rounds & ((1 << level) - 1)
    nodes = [(1 << level, full * count)] if full else []
    inside = completed and 1 << level < 2 * rounds  # the root covers less than twice the rounds
    return [*nodes, (rest, count)] if rest and inside else nodes


class _TooMany(Exception):
    """The exact search would take too long."""


class _Block:
    """Consecutive rounds with the best patterns inside: for each number of participations k, rows (value, ahead,
    behind) of which none is at least as good as another one in all three.

    `ahead`: the first participation can be as late as this; `behind`: the last one can be as early as this, counted
    from the block's end. Both are cut at b - 1, beyond which no neighbour reaches. Any two demands on the first and
    the last round that these allow, and that are (k-1) b rounds from each other, can be met together.
    """

    def __init__(self, rounds: int, rows: dict[int, np.ndarray]) -> None:
        self.rounds = rounds
        self.rows = {0: np.array([[0, _FREE, _FREE]])} | rows

    def flat(self) -> np.ndarray:
        """int [n, 4], rows (participations, value, ahead, behind)."""
        counts = np.repeat(np.array([*self.rows]), [len(rows) for rows in self.rows.values()])
        return np.column_stack([counts, np.concatenate([*self.rows.values()])])


class _Search:
    """Joins blocks from left to right, with a budget of work."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.period = min(forest.participation.period, forest.participation.rounds)
        self.pairs = 0

    def maximum(self) -> int:
        run: _Block | None = None
        for rounds, completed, count in self.forest.trees():
            tree = self.tree(rounds, completed)
            limit = self.forest.most_in(rounds)
            trees = self.repeat(_Block(rounds, {k: rows for k, rows in tree.rows.items() if k <= limit}), count)
            run = trees if run is None else self.join(run, trees)
        assert run is not None
        return max(int(rows[:, 0].max()) for rows in run.rows.values())

    def repeat(self, block: _Block, count: int) -> _Block:
        """`count` copies side by side, by repeated doubling."""
        result: _Block | None = None
        while True:
            if count & 1:
                result = block if result is None else self.join(result, block)
            count >>= 1
            if not count:
                assert result is not None
                return result
            block = self.join(block, block)

    def tree(self, rounds: int, completed: bool) -> _Block:
        """One tree: complete blocks from the largest to the smallest, under common nodes where it is completed."""
        block = _Block(1, {1: np.array([[1, 0, 0]])})
        tail: _Block | None = None  # the rounds after the last complete block of this size
        for level in range(rounds.bit_length()):
            if rounds >> level & 1:
                tail = block if tail is None else self.join(block, tail)
            if completed and tail is not None and tail.rounds < rounds:
                tail = self.rooted(tail, level + 2)
            elif completed and tail is not None and rounds & (rounds - 1):
                return self.rooted(tail, level + 2)
            if rounds >> level > 1:
                block = self.rooted(self.join(block, block), level + 2)
        assert tail is not None
        return tail

    def rooted(self, block: _Block, depth: int) -> _Block:
        """The block with a node above it; every round in it now has `depth` nodes."""
        slack = min(block.rounds, self.period) - 1
        rows = {k: rows + np.array([k * k, 0, 0]) for k, rows in block.rows.items() if k > 1}
        return _Block(block.rounds, rows | {1: np.array([[depth, slack, slack]])})

    def join(self, left: _Block, right: _Block) -> _Block:
        """Every pair of patterns, one from each block, that keeps the separation where the blocks meet."""
        one, other = left.flat(), right.flat()
        self.pairs += len(one) * len(other)
        if self.pairs > _MOST_PAIRS:
            raise _TooMany
        step = max(1, _CHUNK // len(other))
        found: list[np.ndarray] = []
        for start in range(0, len(one), step):
            found.append(self.pairs_of(one[start : start + step, :, None], left.rounds, other.T, right.rounds))
            if sum(map(len, found)) > _CHUNK:
                found = [_best(np.concatenate(found))]
        rows = _best(np.concatenate(found))
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
        groups = zip(rows[starts, 0].tolist(), np.split(rows[:, 1:], starts[1:]))
        return _Block(left.rounds + right.rounds, {k: group for k, group in groups if k})

    def pairs_of(self, left: np.ndarray, left_rounds: int, right: np.ndarray, right_rounds: int) -> np.ndarray:
        """Rows (participations, value, ahead, behind) of the pairs that can be joined.

        Args:
            left: int [n, 4, 1], such rows.
            right: int [4, m], columns of such rows.
        """
        period = self.period
        count = left[:, 0] + right[0]
        ahead = np.minimum(left[:, 2], np.minimum(right[2] + left_rounds - left[:, 0] * period, period - 1))
        behind = np.minimum(right[3], np.minimum(left[:, 3] + right_rounds - right[0] * period, period - 1))
        fits = (left[:, 3] + right[2] >= period - 1) & (count <= self.forest.most)
        return np.stack([column[fits] for column in (count, left[:, 1] + right[1], ahead, behind)], axis=1)


def _best(rows: np.ndarray) -> np.ndarray:
    """The rows to which no other row with as many participations is at least equal in every other column."""
    rows = rows[np.lexsort((-rows[:, 3], -rows[:, 2], -rows[:, 1], rows[:, 0]))]
    kept: list[np.ndarray] = []
    for group in np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1):
        while len(group):
            kept.append(group[0].copy())
            group = group[(group[:, 2] > group[0, 2]) | (group[:, 3] > group[0, 3])]
    return np.array(kept)


_MATRIX_CHUNK = 1 << 20  # coefficients that are held at a time
_MOST_WORK = 500_000_000  # steps of the search for the heaviest pattern
MOST_ROWS = 4096
"""Largest matrix that is taken as it is."""


def banded(squared_norms: np.ndarray, participation: Participation) -> Squared:
    """Columns that are orthogonal within every pattern.

    Args:
        squared_norms: float [rounds], ||C_j||^2 >= 0; or [1] where all are equal.
        participation: what one unit may do.
    """
    if len(squared_norms) == 1:
        return _up(float(squared_norms[0]) * participation.most, 4, True)
    value, exact = heaviest(squared_norms, participation.period, participation.most)
    return _up(float(value), participation.most + 4, exact)


def toeplitz(coefficients: Sequence[float] | np.ndarray, participation: Participation) -> Squared:
    """Column 0 is `coefficients`, zero where they end; every other column is the one before, a round later."""
    values = np.asarray(coefficients, dtype=np.float64)[: participation.rounds]
    values = values[: np.flatnonzero(values)[-1] + 1] if values.any() else values[:1]
    if len(values) <= participation.period or participation.most == 1:
        return _evenly_spaced(_lookup(np.abs(values)), participation, exact=True)
    envelope = np.maximum.accumulate(np.abs(values[::-1]))[::-1]
    regular = bool(np.all(np.abs(values) >= envelope * (1 - 1e-13)) and (np.all(values >= 0) or np.all(values <= 0)))
    return _evenly_spaced(_lookup(envelope), participation, exact=regular)


def buffered(scales: np.ndarray, decays: np.ndarray, participation: Participation) -> Squared:
    """The Toeplitz matrix with coefficients 1 and sum_p scale_p decay_p^(t-1) for t >= 1 (BLT; Dvijotham et al. 2024,
    Section 5), in memory that does not grow with the rounds.

    Args:
        scales: float [buffers], >= 0.
        decays: float [buffers], in [0, 1].
        participation: what one unit may do.
    """
    second = float(scales.sum()) * (1 + len(scales) * EPS)
    first = 1.0 if participation.most == 1 else max(1.0, second)

    def coefficients(rounds: np.ndarray) -> np.ndarray:
        powers = decays ** np.maximum(rounds - 1, 0)[..., None].astype(np.float64)
        return np.where(rounds == 0, first, powers @ scales)

    return _evenly_spaced(coefficients, participation, exact=participation.most == 1 or second <= 1 + 1e-13)


def general(matrix: np.ndarray, participation: Participation) -> Squared:
    """Any lower-triangular matrix, float [rounds, rounds], rounds <= MOST_ROWS."""
    size = np.abs(matrix)
    magnitude = size.T @ size
    gram = np.abs(matrix.T @ matrix) + len(matrix) * EPS * magnitude if np.any(matrix < 0) else magnitude
    diagonal = np.diagonal(gram)
    period, most = participation.period, participation.most
    rounds = np.arange(len(matrix))
    partners = np.where(np.abs(rounds[:, None] - rounds) >= period, gram, 0.0)
    if most == 1 or not partners.any():
        value, exact = heaviest(diagonal, period, most)
        return _up(float(value), len(matrix) + most, exact)
    together, _ = heaviest(partners, period, most - 1)
    value, _ = heaviest(diagonal + together, period, most)
    least = max(float(gram[np.ix_(rounds[x::period][:most], rounds[x::period][:most])].sum()) for x in rounds)
    attained = bool(np.all(matrix >= 0)) and least >= float(value) * (1 - 1e-12)
    return _up(float(value), len(matrix) + 2 * most, attained)


def heaviest(weights: np.ndarray, period: int, most: int) -> tuple[np.ndarray, bool]:
    """The largest sum of at most `most` weights, with a distance of `period` or more.

    Args:
        weights: float [..., n], >= 0.
        period: least distance, >= 1.
        most: largest number, >= 1.

    Returns:
        float [...], and whether it is the maximum; an upper bound where the search would take too long.
    """
    length = weights.shape[-1]
    if most >= -(-length // period):
        return _heaviest_of_any_number(weights, period), True
    if period == 1:
        return np.partition(weights, length - most, axis=-1)[..., length - most :].sum(axis=-1), True
    if most * weights.size > _MOST_WORK:
        highest = np.partition(weights, length - most, axis=-1)[..., length - most :].sum(axis=-1)
        return np.minimum(highest, _heaviest_of_any_number(weights, period)), False
    best = np.zeros((*weights.shape[:-1], length + period))  # from this round on
    for _ in range(most):
        chosen = weights + best[..., period:]
        best[..., :length] = np.maximum.accumulate(chosen[..., ::-1], axis=-1)[..., ::-1]
    return best[..., 0], True


def _heaviest_of_any_number(weights: np.ndarray, period: int) -> np.ndarray:
    length = weights.shape[-1]
    if period == 1:
        return weights.sum(axis=-1)
    best = np.zeros((*weights.shape[:-1], length + period))
    for end in range(length, 0, -period):
        start = max(0, end - period)
        chosen = weights[..., start:end] + best[..., start + period : end + period]
        chosen = np.maximum(chosen, best[..., end : end + 1])
        best[..., start:end] = np.maximum.accumulate(chosen[..., ::-1], axis=-1)[..., ::-1]
    return best[..., 0]


def _evenly_spaced(coefficients: Callable[[np.ndarray], np.ndarray], limits: Participation, exact: bool) -> Squared:
    """Squared norm of columns 0, b, 2b, ... added up, for coefficients >= 0 as a function of the round."""
    period, rounds, most = min(limits.period, limits.rounds), limits.rounds, limits.most
    turns = -(-rounds // period)
    total = 0.0
    width = max(1, _MATRIX_CHUNK // turns)
    for start in range(0, period, width):
        residues = np.arange(start, min(start + width, period))
        at = residues + period * np.arange(turns)[:, None]
        sums = np.cumsum(np.where(at < rounds, coefficients(at), 0.0), axis=0)
        if most < turns:
            earlier = sums[:-most].copy()
            sums *= 1 + 2 * turns * EPS  # so that the difference is not rounded below the truth
            sums[most:] -= earlier
        total += float(np.sum(np.where(at < rounds, sums, 0.0) ** 2))
    return _up(total, 2 * turns + period // width, exact)


def _lookup(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda rounds: np.where(rounds < len(values), values[np.minimum(rounds, len(values) - 1)], 0.0)


def _up(value: float, operations: int, exact: bool) -> Squared:
    """The value, increased by what this many additions of rounded numbers may have taken from it."""
    if value < 1e-200:  # squares have lost their digits
        raise InputError(f"the strategy's squared sensitivity is {value:g}; scale its entries up to about 1")
    return Squared(value * (1 + (64 + operations) * EPS), exact)
