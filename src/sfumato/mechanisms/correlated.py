"""Gaussian noise that is correlated over the rounds (DP-FTRL, matrix mechanisms).

What a round adds, later rounds partly take back, so that sums over many rounds carry little noise. The noise of round t
is row t of C⁻¹z with z ~ N(0, (z·C)²), for a strategy C; all rounds together are a post-processing of one Gaussian
release C x + z (Denisov et al. 2022). Rows are added to the sums as they are, so any server optimiser can follow.

Unit: one that contributes at most `scale` in a round, in rounds that the sampler limits in number and distance. The
sensitivity is that of C for *these* limits, and the sampler enforces them; one that does not is refused. Neighbours
differ by zeroing one unit, as one unit more would move the others to other rounds. With cyclic Poisson sampling and at
most as many bands as parts, sampling amplifies and one unit may come or go.

The denominator is the planned one in every round. An empty cohort releases its noise. Besides the sums nothing is
released. The clip norm must stay the same in all rounds, as they share noise.

A kind of noise is one class: which strategy it has for given limits, and how a row follows from the round's fresh noise
and a few vectors that are kept. No matrix is held.

>>> row = torch.ones(2, dtype=torch.float64)
>>> add_combined(row, [(torch.ones(2), 0.5), (torch.ones(2), -2.0)]); row
tensor([-0.5000, -0.5000], dtype=torch.float64)
>>> add_product(row, torch.ones(3, 2), [0.5, 0.0, -2.0]); row
tensor([-2., -2.], dtype=torch.float64)
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import set_by_run
from sfumato._random import RandomSource, Stream
from sfumato.accounting import Participation
from sfumato.accounting.strategies import Strategy
from sfumato.mechanisms.gaussian import Mechanism, add_normals
from sfumato.sampling import CyclicPoisson, Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.accounting import Event


DEFAULT_PARTS = 8
"""Parts of cyclic Poisson sampling, and bands of its noise, where neither is given."""


S = TypeVar("S", bound=Strategy)


@dataclass(frozen=True, kw_only=True)
class Correlated(Mechanism, Generic[S]):
    """Noise C⁻¹z for the sums of a run; a subclass says which C, and makes its rows.

    Attributes:
        rounds: of the whole run: nothing is accounted beyond them, and nothing is released.
    """

    rounds: int | None = set_by_run()
    _running: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    stream: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            _check.whole(rounds=self.rounds)
            self.refuse_unmade()

    @abstractmethod
    def strategy_for(self, limits: Participation) -> S:
        """C for a run in which one unit takes part within these limits.

        Raises:
            InputError: there is none of this kind.
        """

    def resolved(self, strategy: S) -> dict[str, Any]:
        """The fields that say the strategy again, so that it need not be searched for."""
        return {}

    def refuse_unmade(self) -> None:
        """Refuse a planned run that has no strategy, or whose rows cannot be made.

        Raises:
            InputError: it is one of these.
        """
        _ = self.strategy

    @property
    @abstractmethod
    def vectors(self) -> int:
        """How many vectors are kept from round to round."""

    @abstractmethod
    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Turn a round's fresh noise into its row, and keep what later rounds need; both in place.

        Args:
            kept: float [vectors, n], as the rounds before left it; zero before the first round.
            noise: float [n], standard normal.
            round: from 0.
        """

    @abstractmethod
    def needed(self, round: int) -> Iterable[int]:
        """The rounds before this one, ascending, whose fresh noise brings `kept` back from zero."""

    @property
    def parts(self) -> int:
        """Parts of a cyclic sampler, where it has none of its own."""
        return DEFAULT_PARTS

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """With the strategy for the sampler's limits.

        Raises:
            InputError: the sampler does not limit how often a unit takes part, or there is no such strategy.
        """
        limits = limits_of(sampler, rounds)
        return replace(self, rounds=rounds, **self.resolved(self.strategy_for(limits)))

    @cached_property
    def strategy(self) -> S:
        """C of this run, as it was planned."""
        return self.strategy_for(Participation(rounds=self.run_rounds))

    @property
    def run_rounds(self) -> int:
        """Rounds of the run, planned."""
        if self.rounds is None:
            raise InputError("the rounds of the noise are not known yet; call planned(sampler, rounds) first")
        return self.rounds

    def prefix_variance(self, rounds: int) -> np.ndarray | None:
        """Variance of the sums of the noise so far, in that of z; None where the strategy is still open."""
        return None if self.rounds is None else self.strategy.prefix_variance(rounds)

    def release(self, total: Tensor, *, scale: float, round: int, source: RandomSource) -> Tensor:
        """The noisy sum; `total` (float [size], contiguous) is overwritten.

        Raises:
            InputError: a round beyond those that are accounted for, or another scale than in the rounds before.
        """
        if self.multiplier == 0:
            return total
        if not 0 <= round < self.run_rounds:
            raise InputError(
                f"round {round + 1} lies beyond the {self.rounds} that the noise was made and accounted for; plan a "
                "new run with more rounds"
            )
        _check.positive(scale=scale, remedy="noise on an unbounded sum protects no one")
        flat = total.view(-1)
        run = (source.key, len(flat), flat.device, flat.dtype)
        if run not in self._running:
            self._running.clear()  # one run at a time: the kept vectors of a large model are most of its memory
            rows = NoiseRows(self.vectors, lambda index: source.stream("noise", index), *run[1:])
            self._running[run] = scale, rows
        first, rows = self._running[run]
        if scale != first:
            raise InputError(
                f"rounds that share noise need one bound for all of them, got {first:g} and then {scale:g}"
            )
        rows.add(flat, self, std=self.noise_std(scale), round=round)
        return total

    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """What the whole run costs: its rounds cost something together only.

        Raises:
            InputError: the sampler does not limit how often a unit takes part, or amplifies what has no proof for it;
                or these are not the rounds that the noise is made for.
        """
        if self.multiplier == 0:
            return acc.NonPrivate()
        if rounds != self.rounds:
            raise InputError(
                f"the noise is made for {self.rounds} rounds, which cost something together only, got {rounds}; give "
                "mechanism and run the same rounds"
            )
        if isinstance(sampler, CyclicPoisson):
            return self.amplified(self.multiplier / moved, sampler)
        return self.strategy.event(self.multiplier / moved, limits_of(sampler, rounds))

    def amplified(self, noise_multiplier: float, sampler: CyclicPoisson) -> Event:
        """What the whole run costs where a cyclic sampler amplifies.

        Raises:
            InputError: nothing is proven for this strategy.
        """
        raise not_amplified(f"noise={self.strategy.name}", sampler)

    def describe(self) -> str:
        """The kind of noise."""
        return f"sums with {self.settings()}"

    @abstractmethod
    def settings(self) -> str:
        """The kind of noise, and what was decided for it."""


def not_amplified(noise: str, sampler: CyclicPoisson) -> InputError:
    """Nothing is proven for this noise with this sampler."""
    return InputError(
        f"cyclic Poisson sampling of {sampler.turns} parts amplifies at most so many bands, got {noise}; "
        f"use noise=banded with {sampler.turns} bands or fewer, or cohort=min_separation"
    )


def limits_of(sampler: Sampler, rounds: int) -> Participation:
    """What one unit may do, as a strategy is judged by it.

    Raises:
        InputError: the sampler does not limit how often a unit takes part.
    """
    limits = sampler.participation(rounds)
    if limits is None:
        raise InputError(
            "correlated noise needs a cohort that limits how often a unit takes part, got "
            f"{sampler.describe()}; use cohort=min_separation or shuffled, or noise=gaussian"
        )
    if isinstance(sampler, CyclicPoisson):  # a turn is over before the next one: one column counts
        return Participation(rounds=rounds, max_participations=1)
    return limits


# Rows on vectors of the model's size.
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
        vectors: that are kept.
        fresh: the stream that a round's fresh noise comes from.
        size: of the vector.
        device: where it is.
        dtype: of the sums that rows are added to.
    """

    def __init__(
        self,
        vectors: int,
        fresh: Callable[[int], Stream],
        size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.round = 0
        self._fresh, self._device, self._dtype = fresh, device, dtype
        piece = _PIECE if device.type == "cpu" else _PIECE_ON_DEVICE
        self._kept = {
            at: torch.zeros(vectors, min(piece, size - at), dtype=torch.float32, device=device)
            for at in range(0, size, piece)
        }

    @property
    def stored_bytes(self) -> int:
        """What the kept vectors take."""
        return sum(kept.nbytes for kept in self._kept.values())

    def add(self, total: Tensor, kind: Correlated[Any], *, std: float, round: int) -> None:
        """Add std × the row of this round, which `kind` makes, to float [size], contiguous, in place."""
        if round != self.round:
            for kept in self._kept.values():
                kept.zero_()
            for earlier in kind.needed(round):
                self._advance(kind, earlier, None, 0.0)
        self._advance(kind, round, total, std)
        self.round = round + 1

    def _advance(self, kind: Correlated[Any], round: int, total: Tensor | None, std: float) -> None:
        from sfumato._torch import full_precision, one_thread_each

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
                kind.advance(kept, noise, round)
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
            from concurrent.futures import ThreadPoolExecutor

            one_each = {"initializer": torch.set_num_threads, "initargs": (1,)}
            with ThreadPoolExecutor(workers, thread_name_prefix="noise rows", **one_each) as pool:
                for done in [pool.submit(work) for _ in range(workers)]:
                    done.result()


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
