"""Noise of binary trees over the rounds (Kairouz et al. 2021): how a prefix sum's noise changes from round to round.

A prefix of rounds is a union of full blocks, one for each 1 in its binary length, and its noise is the sum of theirs.
A round ends a block: the blocks that it swallows go, and its own comes. So what is kept is a stack of at most
log2(rounds) + 1 vectors, and a row is the new block's noise less the swallowed blocks'.

The plain estimator takes the noise of the block's own node. The efficient one (Honaker 2015) weighs the node's value
and the sum of its halves' estimates by their variances, so its noise is s·z + Σ a_i · (swallowed block i), with z all
fresh noise of this round's nodes in one normal number: nothing else of these nodes is ever used again, so only their
weighted sum needs to be drawn.

With restarts, a new tree begins with an empty stack, and what the one before has released last stays in the prefix sum.
With completion, the last round of a tree that another one follows ends the root: the missing rounds are empty, their
blocks are known to be zero.

>>> plain = Tree(estimator="plain", rounds=4)
>>> [plain.block(round).swallowed for round in range(4)]    # the slots of the stack, and their weights in the new block
[(), ((0, 0.0),), (), ((1, 0.0), (0, 0.0))]
>>> Tree(restart=100, rounds=200).describe()
'sums with tree noise (efficient, a new tree every 100 rounds)'
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.accounting import Participation
from sfumato.accounting.strategies import BinaryTree
from sfumato.mechanisms.correlated import Correlated, add_combined
from sfumato.sampling import Sampler, Shuffled

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.accounting import Event


@dataclass(frozen=True)
class Block:
    """What ends with a round.

    Attributes:
        swallowed: slots of the stack that go, and their weight in the new block's noise.
        fresh: weight of the round's fresh noise.
        slot: where the new block's noise is kept.
    """

    swallowed: tuple[tuple[int, float], ...]
    fresh: float
    slot: int


@dataclass(frozen=True, kw_only=True)
class Tree(Correlated[BinaryTree]):
    """Noise of binary trees, from which prefix sums are made (Kairouz et al. 2021).

    Attributes:
        estimator: "efficient" (Honaker's, which uses all nodes below) or "plain".
        restart: rounds of a tree; then a new one begins, and the server forgets its momentum. None for one tree.
        completion: fill a tree up with empty rounds before a new one begins.
    """

    estimator: Literal["efficient", "plain"] = "efficient"
    restart: int | None = None
    completion: bool = False

    def __post_init__(self) -> None:
        _check.one_of(("efficient", "plain"), estimator=self.estimator)
        if self.restart is not None:
            _check.whole(restart=self.restart)
        if self.completion and self.restart is None:
            raise InputError("completion needs restart: a single tree is never completed; set it, or leave both")
        super().__post_init__()

    def strategy_for(self, limits: Participation) -> BinaryTree:
        """The tree."""
        if self.restart is not None and self.restart >= limits.rounds:
            raise InputError(
                f"restart={self.restart} comes after the last of {limits.rounds} rounds; leave it out for a single tree"
            )
        return BinaryTree(estimator=self.estimator, restart_every=self.restart, completion=self.completion)

    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """What the whole run costs; where trees begin with shuffled epochs, a unit is in each tree once an epoch."""
        event = super().event(moved, sampler, rounds)
        if isinstance(event, acc.TreeAggregation) and self.restart and isinstance(sampler, Shuffled):
            epochs, rest = divmod(self.restart, sampler.steps_per_epoch)
            if rest == 0:
                return replace(event, max_per_tree=epochs)
        return event

    def restarts(self, round: int) -> bool:
        """Whether a new tree begins with this round."""
        return self.restart is not None and round > 0 and round % self.restart == 0

    def settings(self) -> str:
        """The estimator, and the trees."""
        trees = "" if self.restart is None else f", a new tree every {self.restart} rounds"
        return f"tree noise ({self.estimator}{trees}{', completed' if self.completion else ''})"

    @property
    def vectors(self) -> int:
        """The highest stack."""
        return min(self.restart or self.run_rounds, self.run_rounds).bit_length()

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """End a block."""
        block = self.block(round)
        if block.fresh != 1.0:
            noise.mul_(block.fresh)
        mine = kept[block.slot]
        if not block.swallowed:
            mine.copy_(noise)
            return
        fresh = noise.to(kept.dtype, copy=True)  # what the round adds is no part of what is kept
        add_combined(noise, [(kept[slot], weight - 1.0) for slot, weight in block.swallowed])
        (lowest, share), *others = reversed(block.swallowed)  # the lowest one lies where the new block goes
        assert lowest == block.slot
        mine.mul_(share).add_(fresh)
        for slot, weight in others:
            mine.add_(kept[slot], alpha=weight)

    def needed(self, round: int) -> Iterable[int]:
        """The ends of the blocks on the stack; all of the tree where an estimate holds the noise of its halves."""
        start = round - round % self.restart if self.restart else 0
        if self.estimator == "efficient":
            return range(start, round)
        ends, end = [], start
        for height in reversed(range((round - start).bit_length())):
            if (round - start) >> height & 1:
                end += 1 << height
                ends.append(end - 1)
        return ends

    def block(self, round: int) -> Block:
        """The block that ends with this round, from 0."""
        size = self.restart or self.run_rounds
        before = round % size  # rounds of this tree so far
        full = (before + 1 & -(before + 1)).bit_length() - 1  # height of the block that ends
        top = full
        if self.completion and before == size - 1 and round < self.run_rounds - 1:
            top = (size - 1).bit_length()
        slot = before.bit_count() - 1  # the top of the stack
        swallowed: list[int] = []
        weights: list[float] = []
        fresh, variance = 1.0, 1.0  # of the estimate's own noise, and of the estimate
        for height in range(top):
            halves = variance
            left = before >> height & 1
            if left:
                halves += 1.0 / (2.0 - 0.5**height)
                swallowed.append(slot)
                slot -= 1
                weights.append(1.0)
            # the node's own value has variance 1, that of its halves `halves`
            own = halves / (1.0 + halves) if self.estimator == "efficient" else 1.0
            weights = [weight * (1.0 - own) for weight in weights]
            fresh = own**2 + (1.0 - own) ** 2 * fresh
            variance = halves / (1.0 + halves)
        return Block(tuple(zip(swallowed, weights, strict=True)), math.sqrt(fresh), slot + 1)
