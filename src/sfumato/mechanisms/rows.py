"""Rows of the noise C⁻¹z, made from the noise of the rounds so far.

Kept vectors times their weights, added up in their own precision: that is quick, and nothing of it is fresh.

>>> row = torch.ones(2, dtype=torch.float64)
>>> add_combined(row, [(torch.ones(2), 0.5), (torch.ones(2), -2.0)]); row
tensor([-0.5000, -0.5000], dtype=torch.float64)
>>> add_product(row, torch.ones(3, 2), [0.5, 0.0, -2.0]); row
tensor([-2., -2.], dtype=torch.float64)

Rows of C⁻¹z for Toeplitz strategies: banded C, banded C⁻¹, and buffers.

>>> kept, first, second = torch.zeros(1, 1), torch.ones(1), torch.zeros(1)
>>> halves = BandedRows((1.0, 0.5), None)                       # C has ones and, below them, halves
>>> halves.advance(kept, first, 0); halves.advance(kept, second, 1)
>>> first.item(), second.item()                             # the second round takes a half of the first one back
(1.0, -0.5)

Rows of a tree's noise: how the noise on a prefix sum changes from one round to the next.

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

>>> plain = TreeRows(estimator="plain", restart_every=None, completion=False, rounds=4)
>>> [plain.block(round).swallowed for round in range(4)]    # the slots of the stack, and their weights in the new block
[(), ((0, 0.0),), (), ((1, 0.0), (0, 0.0))]
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._random import Stream
from sfumato._torch import full_precision, one_thread_each
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    InverseBanded,
    Strategy,
)
from sfumato.mechanisms.gaussian import add_normals


def add_combined(row: Tensor, parts: list[tuple[Tensor, float]]) -> None:
    """Add the sum of weight × vector to float [n], contiguous, in place.

    Args:
        row: of single precision or more.
        parts: one or more vectors, float [n], and their weights.
    """
    (first, weight), *others = parts
    total = torch.mul(first, weight)
    for vector, weight in others:
        total.add_(vector, alpha=weight)
    _add(row, total)


def add_product(row: Tensor, kept: Tensor, weights: list[float]) -> None:
    """The same for all kept vectors, float [vectors, n], in one pass over them."""
    _add(row, torch.mv(kept.T, torch.tensor(weights, dtype=kept.dtype, device=kept.device)))


def _add(row: Tensor, total: Tensor) -> None:
    if row.device.type == "cpu":  # NumPy adds single to double precision twice as fast
        np.add(row.numpy(), total.numpy(), out=row.numpy())
    else:
        row.add_(total)


# The contract of a recurrence: what a round releases is its own fresh noise and a few vectors that are kept.
#
# The noise of round t is row t of C⁻¹z, where z has a fresh row for every round. No matrix is held: each kind of
# strategy has a recurrence that turns z_t and the kept vectors into that row, coordinate by coordinate.


class Recurrence(Protocol):
    """Rows of C⁻¹z, one after the other.

    Attributes:
        vectors: how many are kept.
    """

    @property
    def vectors(self) -> int: ...

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Turn a round's fresh noise into its row, and keep what later rounds need; both in place.

        Args:
            kept: float [vectors, n], as the rounds before left it; zero before the first round.
            noise: float [n], standard normal.
            round: from 0.
        """
        ...

    def needed(self, round: int) -> Iterable[int]:
        """The rounds before this one, ascending, whose fresh noise brings `kept` back from zero."""
        ...


# Noise rows of a run: the recurrence on vectors of the model's size.
#
# Everything follows from the run's key. Rows that are asked for in order cost one draw of noise and a pass over the
# kept vectors; after a resume, `kept` is made again from the fresh noise of the rounds before. Kept vectors are in
# single precision: what that rounds away is a part of the noise, and depends on nothing else. What is fresh in a row
# has the precision of the sum that it is added to, so that it covers the sum's last digits.
#
# On a processor the work is done in pieces of fixed places, each by one thread, so that any number of threads gives the
# same bits. The kept vectors of a piece lie together.


_PIECE = 1 << 17  # numbers: a piece of a vector stays in the cache
_PIECE_ON_DEVICE = 1 << 25


class NoiseRows:
    """Rows of C⁻¹z for a vector of one size.

    Args:
        recurrence: how a row is made.
        fresh: the stream that a round's fresh noise comes from.
        size: of the vector.
        device: where it is.
        dtype: of the sums that rows are added to.
    """

    def __init__(
        self,
        recurrence: Recurrence,
        fresh: Callable[[int], Stream],
        size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.round = 0
        self._recurrence, self._fresh, self._device, self._dtype = recurrence, fresh, device, dtype
        piece = _PIECE if device.type == "cpu" else _PIECE_ON_DEVICE
        self._kept = {
            at: torch.zeros(recurrence.vectors, min(piece, size - at), dtype=torch.float32, device=device)
            for at in range(0, size, piece)
        }

    @property
    def kept_bytes(self) -> int:
        """What the kept vectors take."""
        return sum(kept.nbytes for kept in self._kept.values())

    def add(self, total: Tensor, *, std: float, round: int) -> None:
        """Add std × the row of this round to float [size], contiguous, in place."""
        if round != self.round:
            for kept in self._kept.values():
                kept.zero_()
            for earlier in self._recurrence.needed(round):
                self._advance(earlier, None, 0.0)
        self._advance(round, total, std)
        self.round = round + 1

    def _advance(self, round: int, total: Tensor | None, std: float) -> None:
        left = deque(self._kept.items())
        longest = max((kept.shape[1] for kept in self._kept.values()), default=0)
        threads = torch.get_num_threads()
        drawing = 1 if self._device.type == "cpu" else threads

        def taken() -> tuple[int, Tensor] | None:
            try:
                return left.popleft()
            except IndexError:  # another thread may have had the last one
                return None

        def work() -> None:
            # used again: fresh pages cost more than what is written
            memory = torch.empty(longest, dtype=self._dtype, device=self._device)
            for start, kept in iter(taken, None):
                noise = memory[: kept.shape[1]].zero_()
                add_normals(noise, self._fresh(round).from_normal(start), std=1.0, threads=drawing)
                self._recurrence.advance(kept, noise, round)
                if total is not None:
                    total[start : start + len(noise)].add_(noise, alpha=std)

        if self._device.type != "cpu":
            with full_precision(self._device):
                work()
            return
        with one_thread_each(), full_precision(self._device):  # products: their bits follow from no setting
            workers = min(threads, len(left))
            if workers <= 1:
                work()
                return
            one_each = {"initializer": torch.set_num_threads, "initargs": (1,)}
            with ThreadPoolExecutor(workers, thread_name_prefix="noise rows", **one_each) as pool:
                for done in [pool.submit(work) for _ in range(workers)]:
                    done.result()


@dataclass(frozen=True)
class BandedRows:
    """C = T(coefficients) · diag(column_scales): row t is (z_t − Σ_i c_i y_{t−i}) / c_0 / scale_t, where y are the rows
    before they are scaled. The last bands − 1 of them are kept.

    Attributes:
        coefficients: c, the first column of T from its diagonal on.
        column_scales: one for each round, > 0; None for ones.
    """

    coefficients: tuple[float, ...]
    column_scales: tuple[float, ...] | None

    @property
    def vectors(self) -> int:
        """One less than bands."""
        return len(self.coefficients) - 1

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Solve the next row of T y = z."""
        if self.vectors:
            add_product(noise, kept, _by_slot([-each for each in self.coefficients], round))
        if self.coefficients[0] != 1.0:
            noise.div_(self.coefficients[0])
        if self.vectors:
            kept[round % self.vectors].copy_(noise)
        if self.column_scales is not None:
            noise.div_(self.column_scales[round])

    def needed(self, round: int) -> Iterable[int]:
        """All: a row follows from all before it."""
        return range(round if self.vectors else 0)


@dataclass(frozen=True)
class InverseBandedRows:
    """C⁻¹ is banded: row t is Σ_i d_i z_{t−i}. The last bands − 1 fresh rows are kept.

    Attributes:
        inverse_coefficients: d, the first column of C⁻¹ from its diagonal on.
    """

    inverse_coefficients: tuple[float, ...]

    @property
    def vectors(self) -> int:
        """One less than bands."""
        return len(self.inverse_coefficients) - 1

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Add up the last rows of z."""
        fresh = noise.clone() if self.vectors else noise
        if self.inverse_coefficients[0] != 1.0:
            noise.mul_(self.inverse_coefficients[0])
        if self.vectors:
            add_product(noise, kept, _by_slot(self.inverse_coefficients, round))
            kept[round % self.vectors].copy_(fresh)

    def needed(self, round: int) -> Iterable[int]:
        """Those that are still within the bands."""
        return range(max(0, round - self.vectors), round)


@dataclass(frozen=True)
class BufferedRows:
    """C has the coefficients 1 and Σ_p scale_p decay_p^(t−1) for t ≥ 1: each buffer holds Σ_s decay^(t−1−s) y_s.

    Attributes:
        output_scales: one a buffer.
        buffer_decays: one a buffer.
    """

    output_scales: tuple[float, ...]
    buffer_decays: tuple[float, ...]

    @property
    def vectors(self) -> int:
        """The buffers."""
        return len(self.output_scales)

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Take the buffers from the fresh noise, then add the row to them."""
        add_combined(noise, [(buffer, -scale) for buffer, scale in zip(kept, self.output_scales, strict=True)])
        row = noise.to(kept.dtype)
        for buffer, decay in zip(kept, self.buffer_decays, strict=True):
            torch.add(row, buffer, alpha=decay, out=buffer)

    def needed(self, round: int) -> Iterable[int]:
        """All: a row follows from all before it."""
        return range(round)


def _by_slot(coefficients: Sequence[float], round: int) -> list[float]:
    """The coefficient of each kept vector: round t − lag lies in slot (t − lag) mod vectors."""
    vectors = len(coefficients) - 1
    return [coefficients[(round - slot - 1) % vectors + 1] for slot in range(vectors)]


@dataclass(frozen=True)
class Block:
    """What ends with a round.

    Attributes:
        swallowed: slots of the stack that go, and their weight in the new block's noise.
        own: weight of the round's fresh noise.
        slot: where the new block's noise is kept.
    """

    swallowed: tuple[tuple[int, float], ...]
    own: float
    slot: int


@dataclass(frozen=True)
class TreeRows:
    """Binary trees over rounds.

    Attributes:
        estimator: "plain" or "efficient".
        restart_every: rounds of a tree; None for one tree.
        completion: whether a tree that another one follows is filled up.
        rounds: of the whole run.
    """

    estimator: Literal["plain", "efficient"]
    restart_every: int | None
    completion: bool
    rounds: int

    @property
    def vectors(self) -> int:
        """The highest stack."""
        return min(self.restart_every or self.rounds, self.rounds).bit_length()

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """End a block."""
        block = self.block(round)
        if block.own != 1.0:
            noise.mul_(block.own)
        mine = kept[block.slot]
        if not block.swallowed:
            mine.copy_(noise)
            return
        fresh = noise.to(kept.dtype)
        add_combined(noise, [(kept[slot], weight - 1.0) for slot, weight in block.swallowed])
        (lowest, share), *others = reversed(block.swallowed)  # the lowest one lies where the new block goes
        assert lowest == block.slot
        mine.mul_(share).add_(fresh)
        for slot, weight in others:
            mine.add_(kept[slot], alpha=weight)

    def needed(self, round: int) -> Iterable[int]:
        """The ends of the blocks on the stack; all of the tree where an estimate holds the noise of its halves."""
        start = round - round % self.restart_every if self.restart_every else 0
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
        size = self.restart_every or self.rounds
        before = round % size  # rounds of this tree so far
        full = (before + 1 & -(before + 1)).bit_length() - 1  # height of the block that ends
        top = full
        if self.completion and before == size - 1 and round < self.rounds - 1:
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


def recurrence_of(strategy: Strategy, rounds: int) -> Recurrence:
    """How the rows of a strategy are made.

    Raises:
        InputError: its rows are not known.
    """
    match strategy:
        case BinaryTree():
            return TreeRows(strategy.estimator, strategy.restart_every, strategy.completion, rounds)
        case BandedToeplitz():
            return BandedRows(strategy.coefficients[:rounds], strategy.column_scales)
        case BufferedToeplitz():
            return BufferedRows(strategy.output_scales, strategy.buffer_decays)
        case InverseBanded():
            return InverseBandedRows(strategy.inverse_coefficients[:rounds])
        case _:
            raise InputError(f"noise={strategy.name} has no rows of its own; use gaussian")
