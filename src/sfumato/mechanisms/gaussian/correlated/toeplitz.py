"""Rows of C⁻¹z for Toeplitz strategies: banded C, banded C⁻¹, and buffers.

>>> kept, first, second = torch.zeros(1, 1), torch.ones(1), torch.zeros(1)
>>> halves = Banded((1.0, 0.5), None)                       # C has ones and, below them, halves
>>> halves.advance(kept, first, 0); halves.advance(kept, second, 1)
>>> first.item(), second.item()                             # the second round takes a half of the first one back
(1.0, -0.5)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.mechanisms.gaussian.correlated.combined import add_combined, add_product


@dataclass(frozen=True)
class Banded:
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
class InverseBanded:
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
class Buffered:
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
