"""Gaussian noise that is correlated over the rounds (DP-FTRL, matrix mechanisms).

What a round adds, later rounds partly take back, so that sums over many rounds carry little noise. The noise of round t
is row t of C⁻¹z with z ~ N(0, (z·C)²), for a strategy C; all rounds together are a post-processing of one Gaussian
release C x + z (Denisov et al. 2022). Rows are added to the sums as they are, so any server optimiser can follow.

Unit: whoever contributes at most `scale` in a round, in rounds that the sampler limits in number and distance. The
sensitivity is that of C for *these* limits, and the sampler enforces them; one that does not is refused. Neighbours
differ by zeroing one unit, as one unit more would move the others to other rounds. With cyclic Poisson sampling and at
most as many bands as parts, sampling amplifies and one unit may come or go.

The denominator is the planned one, whoever comes. An empty cohort releases its noise. Besides the sums nothing is
released. The clip norm must stay the same in all rounds, as they share noise.

>>> from sfumato.accounting.strategies import BinaryTree
>>> tree = CorrelatedGaussian(strategy=BinaryTree(), noise_multiplier=7.0, rounds=2000)
>>> tree.describe()
'sums with tree noise (efficient)'
"""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import Event, NonPrivate, TreeAggregation
from sfumato.accounting.events.sampled.cyclic import cyclic_poisson
from sfumato.accounting.strategies import BandedToeplitz, BinaryTree, BufferedToeplitz, InverseBanded, Strategy
from sfumato.mechanisms.gaussian.correlated.precision import refuse_lost_digits
from sfumato.mechanisms.gaussian.correlated.recurrence import Recurrence
from sfumato.mechanisms.gaussian.correlated.rows import NoiseRows
from sfumato.mechanisms.gaussian.correlated.toeplitz import Banded, Buffered
from sfumato.mechanisms.gaussian.correlated.toeplitz import InverseBanded as InverseBandedRows
from sfumato.mechanisms.gaussian.correlated.tree import Tree
from sfumato.sampling import CyclicPoissonSampling, Sampler, ShuffledEpochs


@dataclass(frozen=True, kw_only=True)
class CorrelatedGaussian:
    """Noise C⁻¹z for the sums of a run.

    Attributes:
        strategy: C, for at least so many rounds.
        noise_multiplier: std of z divided by the bound on one contribution, >= 0; 0 adds nothing and protects nobody.
        rounds: of the whole run: nothing is accounted beyond them, and nothing is released.
    """

    strategy: Strategy
    noise_multiplier: float
    rounds: int
    _running: dict[tuple[bytes, int, torch.device, torch.dtype], tuple[float, NoiseRows]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    stream: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check.non_negative(noise_multiplier=self.noise_multiplier)
        _check.whole(rounds=self.rounds)
        _ = recurrence_of(self.strategy, self.rounds)  # refuses a strategy of fewer rounds
        if isinstance(self.strategy, BandedToeplitz | BufferedToeplitz | InverseBanded):
            refuse_lost_digits(self.strategy, self.rounds)

    def noise_std(self, scale: float) -> float:
        """Standard deviation of a coordinate of z, of which the noise of every round is made."""
        return self.noise_multiplier * scale

    def restarts(self, round: int) -> bool:
        """Whether a new tree begins with this round."""
        every = self.strategy.restart_every if isinstance(self.strategy, BinaryTree) else None
        return every is not None and round > 0 and round % every == 0

    def release(self, total: Tensor, *, scale: float, round: int, source: RandomSource) -> Tensor:
        """The noisy sum; `total` (float [size], contiguous) is overwritten.

        Raises:
            InputError: a round beyond those that are accounted for, or another scale than in the rounds before.
        """
        if self.noise_multiplier == 0:
            return total
        if not 0 <= round < self.rounds:
            raise InputError(
                f"round {round + 1} lies beyond the {self.rounds} that the noise was made and accounted for; plan a "
                "new run with more rounds"
            )
        _check.positive(scale=scale, remedy="noise on an unbounded sum protects nobody")
        flat = total.view(-1)
        run = (source.key, len(flat), flat.device, flat.dtype)
        if run not in self._running:
            self._running.clear()  # one run at a time: the kept vectors of a large model are most of its memory
            made_by = recurrence_of(self.strategy, self.rounds)
            rows = NoiseRows(made_by, lambda index: source.stream("noise", index), *run[1:])
            self._running[run] = scale, rows
        first, rows = self._running[run]
        if scale != first:
            raise InputError(
                f"rounds that share noise need one bound for all of them, got {first:g} and then {scale:g}"
            )
        rows.add(flat, std=self.noise_std(scale), round=round)
        return total

    def event(self, moved: float, sampler: Sampler, rounds: int) -> Event:
        """What the whole run costs: its rounds cost something together only.

        Raises:
            InputError: the sampler does not limit how often a unit takes part, or amplifies what has no proof for it;
                or these are not the rounds that the noise is made for.
        """
        if self.noise_multiplier == 0:
            return NonPrivate()
        if rounds != self.rounds:
            raise InputError(
                f"the noise is made for {self.rounds} rounds, which cost something together only, got {rounds}; give "
                "mechanism and run the same rounds"
            )
        if isinstance(sampler, CyclicPoissonSampling):
            return self._amplified(moved, sampler, rounds)
        limits = sampler.participation(rounds)
        if limits is None:
            raise InputError(
                f"noise={self.strategy.name} needs sampling that limits how often a unit takes part, and nothing is "
                f"known of it with sampling that does not ({sampler.describe()}); use sampling=min_separation or "
                "shuffled, or noise=gaussian"
            )
        event = self.strategy.event(self.noise_multiplier / moved, limits)
        if isinstance(event, TreeAggregation) and event.restart_every and isinstance(sampler, ShuffledEpochs):
            epochs, rest = divmod(event.restart_every, sampler.steps_per_epoch)
            if rest == 0:  # trees begin with epochs, and a unit is in each epoch once
                return replace(event, max_per_tree=epochs)
        return event

    def _amplified(self, moved: float, sampler: CyclicPoissonSampling, rounds: int) -> Event:
        """Columns of at most `parts` rows: one turn is over before the next one begins."""
        strategy = self.strategy
        bands = len(strategy.coefficients) if isinstance(strategy, BandedToeplitz) else math.inf
        if not isinstance(strategy, BandedToeplitz) or bands > sampler.parts:
            raise InputError(
                f"cyclic Poisson sampling of {sampler.parts} parts amplifies banded noise of at most so many bands, "
                f"got noise={strategy.name}" + (f" of {bands} bands" if math.isfinite(bands) else "") + "; use "
                f"noise=banded with {sampler.parts} bands or fewer, or sampling=min_separation"
            )
        return cyclic_poisson(
            noise_multiplier=self.noise_multiplier / moved,
            steps=rounds,
            parts=sampler.parts,
            sampling_rate=sampler.sampling_rate,
            column_norm=float(strategy.column_norms(rounds).max()),
        )

    def describe(self) -> str:
        """The kind of noise."""
        return f"sums with {in_words(self.strategy)}"

    def state(self) -> dict[str, Tensor]:
        """Nothing: the key and the round give the noise."""
        return {}

    def load(self, state: dict[str, Tensor]) -> None:
        """Nothing to go on from."""


def in_words(strategy: Strategy) -> str:
    """The noise of a strategy, for people.

    >>> in_words(BinaryTree(restart_every=100))
    'tree noise (efficient, a new tree every 100 rounds)'
    """
    match strategy:
        case BinaryTree():
            trees = "" if strategy.restart_every is None else f", a new tree every {strategy.restart_every} rounds"
            return f"tree noise ({strategy.estimator}{trees}{', completed' if strategy.completion else ''})"
        case BufferedToeplitz():
            return f"BLT noise of {len(strategy.output_scales)} buffers"
        case InverseBanded():
            return f"inverse-banded noise of {len(strategy.inverse_coefficients)} bands"
        case BandedToeplitz():
            return f"banded noise of {len(strategy.coefficients)} bands"
        case _:
            return f"{strategy.name} noise"


def recurrence_of(strategy: Strategy, rounds: int) -> Recurrence:
    """How the rows of a strategy are made.

    Raises:
        InputError: it ends before the last round, or nobody knows its rows.
    """
    match strategy:
        case BinaryTree():
            return Tree(strategy.estimator, strategy.restart_every, strategy.completion, rounds)
        case BandedToeplitz():
            scales = strategy.column_scales
            if scales is not None and len(scales) < rounds:
                raise InputError(f"the strategy has {len(scales)} column scales for {rounds} rounds; give one a round")
            return Banded(strategy.coefficients[:rounds], scales)
        case BufferedToeplitz():
            return Buffered(strategy.output_scales, strategy.buffer_decays)
        case InverseBanded():
            return InverseBandedRows(strategy.inverse_coefficients[:rounds])
        case _:
            raise InputError(f"noise={strategy.name} has no rows of its own; use IndependentGaussian")
