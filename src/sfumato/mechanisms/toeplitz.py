"""Noise of Toeplitz strategies: banded C, buffers (BLT), and banded C⁻¹ (BISR).

Their coefficients are given, or optimised for the rounds and the limits at hand.

>>> kept, first, second = torch.zeros(1, 1), torch.ones(1), torch.zeros(1)
>>> halves = Banded(coefficients=(1.0, 0.5), rounds=2)          # C has ones and, below them, halves
>>> halves.advance(kept, first, 0); halves.advance(kept, second, 1)
>>> first.item(), second.item()                             # the second round takes a half of the first one back
(1.0, -0.5)
>>> growth(BandedToeplitz((1.0, 0.5)), 100) < 1.2, growth(BandedToeplitz((1.0, 1.5)), 100) > 1e17
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from sfumato import _check
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato.accounting import Participation
from sfumato.accounting.strategies import BandedToeplitz, BufferedToeplitz, InverseBanded, Toeplitz
from sfumato.accounting.strategy_search import (
    DEFAULT_BUFFERS,
    banded_inverse_square_root,
    optimize_banded,
    optimize_blt,
)
from sfumato.mechanisms.correlated import DEFAULT_PARTS, Correlated, add_combined, add_product, limits_of, not_amplified
from sfumato.sampling import CyclicPoisson, Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.accounting import Event


# Noise that single precision cannot hold is refused.
#
# A round's noise is what is fresh in it and what it takes back of earlier rounds, which are kept in single precision.
# Where the latter outgrows the former, as it does if C⁻¹ grows from row to row, what was rounded away when they were
# kept is no longer small next to the fresh noise. Then a contribution shows in how later rounds are rounded, whatever
# was accounted.


MOST_GROWTH = 100.0
"""Single precision has 24 bits: 17 are left next to what is fresh. Optimised strategies have a growth of 1 to 2."""


_LARGEST = 1e9  # entry on the diagonal of C; its inverse is the least


@lru_cache(maxsize=16)
def growth(strategy: Toeplitz, rounds: int) -> float:
    """Std of the last round's noise, in that of what is fresh in it; >= 1, infinite or NaN where doubles end."""
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = strategy.inverse_column(rounds)
        return float(np.linalg.norm(inverse / inverse[0]))


C = TypeVar("C", bound=Toeplitz)


@dataclass(frozen=True, kw_only=True)
class ToeplitzNoise(Correlated[C]):
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

    def refuse_unmade(self) -> None:
        """Refuse a strategy whose fresh noise would be rounded away.

        Raises:
            InputError: it is one.
        """
        rounds = self.run_rounds
        grown = growth(self.strategy, rounds)
        if not grown <= MOST_GROWTH:
            raise InputError(
                f"the noise of {rounds} rounds grows to {grown:.3g} times its fresh part, above {MOST_GROWTH:g} "
                f"(single precision); change the coefficients of noise={self.strategy.name}, or take fewer rounds"
            )


@dataclass(frozen=True, kw_only=True)
class Banded(ToeplitzNoise[BandedToeplitz]):
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
            return replace(self, rounds=rounds, **self.resolved(made))
        return super().planned(sampler, rounds)

    def strategy_for(self, limits: Participation) -> BandedToeplitz:
        """By its coefficients, or the best of so many bands."""
        if self.coefficients is not None:
            return BandedToeplitz(self.coefficients, self.column_scales)
        return optimize_banded(limits, bands=self.bands, error=self.prefix_error)

    def resolved(self, strategy: BandedToeplitz) -> dict[str, Any]:
        """First column, and scales of columns."""
        return {"coefficients": strategy.coefficients, "column_scales": strategy.column_scales}

    def refuse_unmade(self) -> None:
        """Refuse rows that end before the last round, too, and a diagonal that single precision takes for 0."""
        rounds, first, scales = self.run_rounds, self.strategy.coefficients[0], self.strategy.column_scales
        if scales is not None and len(scales) < rounds:
            raise InputError(f"the strategy has {len(scales)} column scales for {rounds} rounds; give one a round")
        scales = (scales or (1.0,))[:rounds]
        for scale in (1.0, min(scales), max(scales)):
            _check.between(1 / _LARGEST, _LARGEST, remedy="scale coefficients or column_scales", diagonal=first * scale)
        super().refuse_unmade()

    @property
    def parts(self) -> int:
        """One for each band."""
        return self.bands or len(self.coefficients or ()) or DEFAULT_PARTS

    def amplified(self, noise_multiplier: float, sampler: CyclicPoisson) -> Event:
        """Columns of at most `parts` rows: one turn is over before the next one begins."""
        bands, rounds = len(self.strategy.coefficients), self.run_rounds
        if bands > sampler.turns:
            raise not_amplified(f"noise=banded of {bands} bands", sampler)
        return acc.cyclic_poisson(
            noise_multiplier=noise_multiplier,
            steps=rounds,
            parts=sampler.turns,
            sampling_rate=sampler.sampling_rate,
            column_norm=float(self.strategy.column_norms(rounds).max()),
        )

    def settings(self) -> str:
        """The bands."""
        return f"banded noise of {len(self.strategy.coefficients)} bands"

    @property
    def vectors(self) -> int:
        """One less than bands: rows before they are scaled."""
        return len(self._column) - 1

    @property
    def _column(self) -> tuple[float, ...]:
        return self.strategy.coefficients[: self.run_rounds]

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Solve the next row of T y = z: (z_t − Σ_i c_i y_{t−i}) / c_0, which is then divided by its column's scale."""
        column, scales = self._column, self.strategy.column_scales
        if self.vectors:
            add_product(noise, kept, _by_slot([-each for each in column], round))
        if column[0] != 1.0:
            noise.div_(column[0])
        if self.vectors:
            kept[round % self.vectors].copy_(noise)
        if scales is not None:
            noise.div_(scales[round])

    def needed(self, round: int) -> Iterable[int]:
        """All: a row follows from all before it."""
        return range(round if self.vectors else 0)


@dataclass(frozen=True, kw_only=True)
class BLT(ToeplitzNoise[BufferedToeplitz]):
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

    def strategy_for(self, limits: Participation) -> BufferedToeplitz:
        """By its coefficients, or the best of so many buffers."""
        if self.coefficients is None:
            return optimize_blt(limits, buffers=self.buffers or DEFAULT_BUFFERS, error=self.prefix_error)
        half, odd = divmod(len(self.coefficients), 2)
        if odd:
            raise InputError(
                f"blt takes as many output scales as decays, got {len(self.coefficients)} coefficients in all; give "
                "the scales and then the decays"
            )
        return BufferedToeplitz(self.coefficients[:half], self.coefficients[half:])

    def resolved(self, strategy: BufferedToeplitz) -> dict[str, Any]:
        """Output scales and decays."""
        return {"coefficients": (*strategy.output_scales, *strategy.buffer_decays)}

    def settings(self) -> str:
        """The buffers."""
        return f"BLT noise of {self.vectors} buffers"

    @property
    def vectors(self) -> int:
        """The buffers: Σ_s decay^(t−1−s) y_s each."""
        return len(self.strategy.output_scales)

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Take the buffers from the fresh noise, then add the row to them."""
        scales, decays = self.strategy.output_scales, self.strategy.buffer_decays
        add_combined(noise, [(buffer, -scale) for buffer, scale in zip(kept, scales, strict=True)])
        row = noise.to(kept.dtype)
        for buffer, decay in zip(kept, decays, strict=True):
            torch.add(row, buffer, alpha=decay, out=buffer)

    def needed(self, round: int) -> Iterable[int]:
        """All: a row follows from all before it."""
        return range(round)


@dataclass(frozen=True, kw_only=True)
class BISR(ToeplitzNoise[InverseBanded]):
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

    def strategy_for(self, limits: Participation) -> InverseBanded:
        """By its coefficients, or the best of so many bands."""
        if self.coefficients is not None:
            return InverseBanded(self.coefficients)
        return banded_inverse_square_root(limits, bands=self.bands, error=self.prefix_error)

    def resolved(self, strategy: InverseBanded) -> dict[str, Any]:
        """First column of the inverse."""
        return {"coefficients": strategy.inverse_coefficients}

    def settings(self) -> str:
        """The bands."""
        return f"inverse-banded noise of {len(self.strategy.inverse_coefficients)} bands"

    @property
    def vectors(self) -> int:
        """One less than bands: fresh rows."""
        return len(self._column) - 1

    @property
    def _column(self) -> tuple[float, ...]:
        return self.strategy.inverse_coefficients[: self.run_rounds]

    def advance(self, kept: Tensor, noise: Tensor, round: int) -> None:
        """Add up the last rows of z: Σ_i d_i z_{t−i}, where d_0 is 1."""
        fresh = noise.clone() if self.vectors else noise
        if self.vectors:
            add_product(noise, kept, _by_slot(self._column, round))
            kept[round % self.vectors].copy_(fresh)

    def needed(self, round: int) -> Iterable[int]:
        """Those that are still within the bands."""
        return range(max(0, round - self.vectors), round)


def _by_slot(coefficients: Sequence[float], round: int) -> list[float]:
    """The coefficient of each kept vector: round t − lag lies in slot (t − lag) mod vectors."""
    vectors = len(coefficients) - 1
    return [coefficients[(round - slot - 1) % vectors + 1] for slot in range(vectors)]
