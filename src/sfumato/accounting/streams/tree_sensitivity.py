"""Squared sensitivity of tree aggregation: the most that one unit can move all nodes of the binary trees together.

A tree releases, with fresh noise, the sum of every complete block of 2^m consecutive rounds that starts at a multiple
of 2^m. A unit that takes part c times in a block moves that node by at most c clip norms, all contributions aligned;
so S^2 is the maximum of sum_nodes c^2 over the participation patterns (Kairouz et al. 2021, Appendix D).

`squared_sensitivity` finds this maximum exactly, by joining neighbouring blocks (docs/explanation/trees-and-matrices.md
derives the rule). Where that would take more than some seconds (hundreds of participations at varying distances), it
gives an upper bound and says so: the sum over levels of the most that each level can hold by itself.

>>> squared_sensitivity(Forest(Participation(rounds=2000, max_participations=6, min_separation=313)))
Squared(value=79, exact=True)
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sfumato.accounting.streams.participation import Participation

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
    the last round that these allow, and that are (k-1) b apart, can be met together.
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
