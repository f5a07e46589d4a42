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
>>> growth(BandedToeplitz((1.0, 0.5)), 100) < 1.2, growth(BandedToeplitz((1.0, 1.5)), 100) > 1e17
(True, True)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds, set_by_run
from sfumato._random import RandomSource
from sfumato.accounting import Event, NonPrivate, Participation, TreeAggregation
from sfumato.accounting.events.correlated import cyclic_poisson
from sfumato.accounting.strategies import (
    BandedToeplitz,
    BinaryTree,
    BufferedToeplitz,
    InverseBanded,
    Strategy,
    reciprocal,
)
from sfumato.accounting.strategy_search import by_name
from sfumato.mechanisms.gaussian import Gaussian, Mechanism
from sfumato.sampling import CyclicPoisson, Sampler, Shuffled

if TYPE_CHECKING:
    from torch import Tensor


DEFAULT_PARTS = 8
"""Parts of cyclic Poisson sampling, and bands of its noise, where neither is given."""


# Refuse noise that single precision cannot hold.
#
# A round's noise is what is fresh in it and what it takes back of earlier rounds, which are kept in single precision.
# Where the latter outgrows the former, as it does if C⁻¹ grows from row to row, what was rounded away when they were
# kept is no longer small next to the fresh noise. Then a contribution shows in how later rounds are rounded, whatever
# was accounted.


Toeplitz = BandedToeplitz | BufferedToeplitz | InverseBanded
MOST_GROWTH = 100.0
"""Single precision has 24 bits: 17 are left beside what is fresh. Optimised strategies have a growth of 1 to 2."""


_LARGEST = 1e9  # entry on the diagonal of C; its inverse is the least


def refuse_lost_digits(strategy: Toeplitz, rounds: int) -> None:
    """Refuse a strategy whose fresh noise would be rounded away.

    Raises:
        InputError: it is one.
    """
    if isinstance(strategy, BandedToeplitz):
        first = strategy.coefficients[0]
        scales = (strategy.column_scales or (1.0,))[:rounds]
        for scale in (1.0, min(scales), max(scales)):
            _check.between(1 / _LARGEST, _LARGEST, remedy="scale coefficients or column_scales", diagonal=first * scale)
    grown = growth(strategy, rounds)
    if not grown <= MOST_GROWTH:
        raise InputError(
            f"the noise of {rounds} rounds grows to {grown:.3g} times what is fresh in it, and single precision would "
            f"round that away; take coefficients of noise={strategy.name} with which it stays below {MOST_GROWTH:g}, "
            "or fewer rounds"
        )


@lru_cache(maxsize=16)
def growth(strategy: Toeplitz, rounds: int) -> float:
    """Std of the last round's noise, in that of what is fresh in it; >= 1, infinite or NaN where doubles end."""
    with np.errstate(over="ignore", invalid="ignore"):
        match strategy:
            case BandedToeplitz():
                inverse = reciprocal(np.array(strategy.coefficients), rounds)
            case BufferedToeplitz():
                inverse = strategy.inverse_coefficients(rounds)
            case InverseBanded():
                inverse = np.array(strategy.inverse_coefficients[:rounds])
        return float(np.linalg.norm(inverse / inverse[0]))


def refuse_unmade(strategy: Strategy, rounds: int) -> None:
    """Refuse a strategy whose rows end before the last round, or outgrow single precision.

    Raises:
        InputError: it is one of these.
    """
    scales = getattr(strategy, "column_scales", None)
    if scales is not None and len(scales) < rounds:
        raise InputError(f"the strategy has {len(scales)} column scales for {rounds} rounds; give one a round")
    if not isinstance(strategy, BinaryTree | BandedToeplitz | BufferedToeplitz | InverseBanded):
        raise InputError(f"noise={strategy.name} has no rows of its own; use noise=gaussian")
    if not isinstance(strategy, BinaryTree):
        refuse_lost_digits(strategy, rounds)


@dataclass(frozen=True, kw_only=True)
class Correlated(Mechanism):
    """Noise C⁻¹z for the sums of a run; a subclass says which C.

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
            refuse_unmade(self.matrix, self.rounds)

    @abstractmethod
    def strategy_for(self, limits: Participation) -> Strategy:
        """C for a run in which one unit takes part within these limits.

        Raises:
            InputError: there is none of this kind.
        """

    def decided(self, strategy: Strategy) -> dict[str, Any]:
        """The fields that say the strategy again, so that it need not be searched for."""
        return {}

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """With the strategy for the sampler's limits.

        Raises:
            InputError: the sampler does not limit how often a unit takes part, or there is no such strategy.
        """
        limits = limits_of(sampler, rounds)
        return replace(self, rounds=rounds, **self.decided(self.strategy_for(limits)))

    @property
    def parts(self) -> int:
        """Parts of a cyclic sampler, where it has none of its own."""
        return getattr(self, "bands", None) or len(getattr(self, "coefficients", None) or ()) or DEFAULT_PARTS

    @property
    def matrix(self) -> Strategy:
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
        return None if self.rounds is None else self.matrix.prefix_variance(rounds)

    def restarts(self, round: int) -> bool:
        """Whether a new tree begins with this round."""
        every = self.matrix.restart_every if isinstance(self.matrix, BinaryTree) else None
        return every is not None and round > 0 and round % every == 0

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
        _check.positive(scale=scale, remedy="noise on an unbounded sum protects nobody")
        from sfumato.mechanisms.rows import NoiseRows, recurrence_of

        flat = total.view(-1)
        run = (source.key, len(flat), flat.device, flat.dtype)
        if run not in self._running:
            self._running.clear()  # one run at a time: the kept vectors of a large model are most of its memory
            made_by = recurrence_of(self.matrix, self.run_rounds)
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
        if self.multiplier == 0:
            return NonPrivate()
        if rounds != self.rounds:
            raise InputError(
                f"the noise is made for {self.rounds} rounds, which cost something together only, got {rounds}; give "
                "mechanism and run the same rounds"
            )
        if isinstance(sampler, CyclicPoisson):
            return self._amplified(moved, sampler, rounds)
        limits = limits_of(sampler, rounds)
        event = self.matrix.event(self.multiplier / moved, limits)
        if isinstance(event, TreeAggregation) and event.restart_every and isinstance(sampler, Shuffled):
            epochs, rest = divmod(event.restart_every, sampler.steps_per_epoch)
            if rest == 0:  # trees begin with epochs, and a unit is in each epoch once
                return replace(event, max_per_tree=epochs)
        return event

    def _amplified(self, moved: float, sampler: CyclicPoisson, rounds: int) -> Event:
        """Columns of at most `parts` rows: one turn is over before the next one begins."""
        strategy, turns = self.matrix, sampler.turns
        bands = len(strategy.coefficients) if isinstance(strategy, BandedToeplitz) else math.inf
        if not isinstance(strategy, BandedToeplitz) or bands > turns:
            raise InputError(
                f"cyclic Poisson sampling of {turns} parts amplifies banded noise of at most so many bands, "
                f"got noise={strategy.name}" + (f" of {bands} bands" if math.isfinite(bands) else "") + "; use "
                f"noise=banded with {turns} bands or fewer, or cohort=min_separation"
            )
        return cyclic_poisson(
            noise_multiplier=self.multiplier / moved,
            steps=rounds,
            parts=turns,
            sampling_rate=sampler.sampling_rate,
            column_norm=float(strategy.column_norms(rounds).max()),
        )

    def describe(self) -> str:
        """The kind of noise."""
        return f"sums with {self.settings()}"

    def settings(self) -> str:
        """The kind of noise, and what was decided for it."""
        return in_words(self.matrix)


def limits_of(sampler: Sampler, rounds: int) -> Participation:
    """What one unit may do, as a strategy is judged by it.

    Raises:
        InputError: the sampler does not limit how often a unit takes part.
    """
    limits = sampler.participation(rounds)
    if limits is None:
        raise InputError(
            "noise that is correlated over the rounds needs a cohort that limits how often a unit takes part, got "
            f"{sampler.describe()}; use cohort=min_separation or shuffled, or noise=gaussian"
        )
    if isinstance(sampler, CyclicPoisson):  # a turn is over before the next one: one column counts
        return Participation(rounds=rounds, max_participations=1)
    return limits


@dataclass(frozen=True, kw_only=True)
class CorrelatedGaussian(Correlated):
    """Noise of any strategy.

    Attributes:
        strategy: C, for at least as many rounds as the run has.
    """

    strategy: Strategy

    def strategy_for(self, limits: Participation) -> Strategy:
        """The one that was given."""
        return self.strategy


@dataclass(frozen=True, kw_only=True)
class Tree(Correlated):
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


@dataclass(frozen=True, kw_only=True)
class _Optimised(Correlated):
    """A kind of strategy whose coefficients are optimised for the rounds and the limits at hand.

    Attributes:
        coefficients: of the strategy; None optimises them.
        prefix_error: what the coefficients keep small: the "mean" or the "max" of the errors of all sums so far.
    """

    coefficients: tuple[float, ...] | None = None
    prefix_error: Literal["mean", "max"] = "mean"

    def __post_init__(self) -> None:
        _check.one_of(("mean", "max"), prefix_error=self.prefix_error)
        super().__post_init__()
        if self.coefficients is not None:
            _ = self.strategy_for(Participation(rounds=1))  # refuses what is no strategy


@dataclass(frozen=True, kw_only=True)
class Banded(_Optimised):
    """Noise of a banded Toeplitz strategy (Choquette-Choo et al. 2023).

    Attributes:
        bands: vectors that the noise is made of; None for 16, or as many as the separation allows.
        coefficients: first column of the strategy; None optimises it.
        column_scales: a factor on each column of the strategy, one for each round; needs coefficients.
    """

    bands: int | None = None
    column_scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.bands is not None:
            _check.whole(bands=self.bands)
        if self.column_scales is not None and self.coefficients is None:
            raise InputError("column_scales need coefficients; give both, or leave both out")
        super().__post_init__()

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """With a band for each part of a cyclic sampler, where nothing else was chosen."""
        if isinstance(sampler, CyclicPoisson) and self.bands is None:
            limits = limits_of(sampler, rounds)
            made = replace(self, bands=sampler.turns).strategy_for(limits)
            return replace(self, rounds=rounds, **self.decided(made))
        return super().planned(sampler, rounds)

    def strategy_for(self, limits: Participation) -> Strategy:
        """By its coefficients, or the best of so many bands."""
        return by_name(
            "banded",
            limits,
            bands=self.bands,
            prefix_error=self.prefix_error,
            coefficients=self.coefficients,
            column_scales=self.column_scales,
        )

    def decided(self, strategy: Strategy) -> dict[str, Any]:
        """First column, and scales of columns."""
        assert isinstance(strategy, BandedToeplitz)
        return {"coefficients": strategy.coefficients, "column_scales": strategy.column_scales}


@dataclass(frozen=True, kw_only=True)
class BLT(_Optimised):
    """Noise of a buffered linear Toeplitz strategy (Dvijotham et al. 2024).

    Attributes:
        buffers: vectors that the noise is made of; None for 4.
        coefficients: output scales and then decays; None optimises them.
    """

    buffers: int | None = None

    def __post_init__(self) -> None:
        if self.buffers is not None:
            _check.whole(buffers=self.buffers)
        super().__post_init__()

    def strategy_for(self, limits: Participation) -> Strategy:
        """By its coefficients, or the best of so many buffers."""
        return by_name(
            "blt", limits, buffers=self.buffers, prefix_error=self.prefix_error, coefficients=self.coefficients
        )

    def decided(self, strategy: Strategy) -> dict[str, Any]:
        """Output scales and decays."""
        assert isinstance(strategy, BufferedToeplitz)
        return {"coefficients": (*strategy.output_scales, *strategy.buffer_decays)}


@dataclass(frozen=True, kw_only=True)
class BISR(_Optimised):
    """Noise of a banded inverse square root (Kalinin and Lampert 2025).

    Attributes:
        bands: vectors that the noise is made of; None for the best number.
        coefficients: first column of the strategy's inverse; None optimises it.
    """

    bands: int | None = None

    def __post_init__(self) -> None:
        if self.bands is not None:
            _check.whole(bands=self.bands)
        super().__post_init__()

    def strategy_for(self, limits: Participation) -> Strategy:
        """By its coefficients, or the best of so many bands."""
        return by_name("bisr", limits, bands=self.bands, prefix_error=self.prefix_error, coefficients=self.coefficients)

    def decided(self, strategy: Strategy) -> dict[str, Any]:
        """First column of the inverse."""
        assert isinstance(strategy, InverseBanded)
        return {"coefficients": strategy.inverse_coefficients}


@dataclass(frozen=True, kw_only=True)
class Auto(Gaussian):
    """Not decided yet: `calibrate` takes the kind with the least error that meets the budget.

    Attributes:
        prefix_error: which error: the "mean" or the "max" of those of all sums so far.
    """

    prefix_error: Literal["mean", "max"] = "mean"

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """Refused."""
        raise InputError("noise=auto is decided by calibrate(epsilon=…, population=…); call it, or choose a noise")


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


NOISES = Kinds[Mechanism](
    {"gaussian": Gaussian, "tree": Tree, "banded": Banded, "blt": BLT, "bisr": BISR, "auto": Auto},
    number="noise_multiplier",
)
"""By the word that a plan's noise may be given as; a new mechanism is its class and its line here."""
