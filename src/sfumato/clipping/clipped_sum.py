"""A running sum of clipped contributions: each is scaled to norm at most C, then forgotten.

Unit: one contribution (a client's delta). Each adds a vector of L2 norm at most `clip_norm` to `total`, whatever it
holds: a contribution with NaN or Inf counts as zero. Norms and the sum are in double precision, and the scale is
rounded towards zero, so that the bound holds in floating point too. Memory is one vector, however many contribute.

| contribution        | adds          | counted in            |
| ------------------- | ------------- | --------------------- |
| norm ≤ C            | itself        | units, below          |
| norm > C            | scaled to C   | units, clipped        |
| has NaN or Inf      | nothing       | units, non_finite     |
| clip_norm is None   | itself        | units, below          |

>>> total = ClippedSum(2, clip_norm=1.0)
>>> total.add(torch.tensor([3.0, 4.0])); total.add(torch.tensor([float("nan"), 0.0]))
>>> total.total.round(decimals=4).tolist(), total.units, total.clipped, total.non_finite
([0.6, 0.8], 2, 1, 1)
"""

import math

import torch
from torch import Tensor

from sfumato import _check

_ROUND_DOWN = 1.0 - 2.0**-20  # covers the float32 rounding of the scaled coordinates


class ClippedSum:
    """Σ min(1, C/‖Δ‖)·Δ over contributions Δ, with counts that are private: see `statistics`.

    Attributes:
        total: float64 [size], the sum so far.
        clip_norm: C, or None for a run without privacy.
        units: contributions seen.
        below: how many had norm at most C (the count that adaptive clipping releases with noise).
        clipped: how many were scaled.
        non_finite: how many counted as zero because of NaN or Inf.
        norms: the norms before clipping, in order; NaN for a non-finite contribution.
    """

    def __init__(self, size: int, *, clip_norm: float | None, device: torch.device | str = "cpu") -> None:
        if clip_norm is not None:
            _check.positive(clip_norm=clip_norm, remedy="for a run without privacy use clip_norm=None")
        self.total = torch.zeros(size, dtype=torch.float64, device=device)
        self.clip_norm = clip_norm
        self.units = 0
        self.below = 0
        self.clipped = 0
        self.non_finite = 0
        self.norms: list[float] = []

    def add(self, contribution: Tensor) -> None:
        """Clip one contribution, float [size], and add it."""
        self._count(norm := torch.linalg.vector_norm(contribution, dtype=torch.float64).item())
        if math.isfinite(norm) and norm > 0:
            self.total.add_(contribution, alpha=self._scale(norm))

    def add_rows(self, contributions: Tensor) -> None:
        """Clip every row of float [units, size] by itself and add them."""
        norms = torch.linalg.vector_norm(contributions, dim=1, dtype=torch.float64).tolist()
        for norm in norms:
            self._count(norm)
        scales = [self._scale(norm) if math.isfinite(norm) else 0.0 for norm in norms]
        weights = torch.tensor(scales, dtype=contributions.dtype, device=contributions.device)
        if not all(map(math.isfinite, norms)):
            contributions = torch.where((weights > 0)[:, None], contributions, 0.0)
        self.total.add_((weights[:, None] * contributions).sum(0, dtype=torch.float64))

    def _scale(self, norm: float) -> float:
        if self.clip_norm is None or norm <= self.clip_norm:
            return 1.0
        return self.clip_norm / norm * _ROUND_DOWN

    def _count(self, norm: float) -> None:
        self.units += 1
        self.norms.append(norm)
        if not math.isfinite(norm):
            self.non_finite += 1
            self.norms[-1] = math.nan
        elif self.clip_norm is None or norm <= self.clip_norm:
            self.below += 1
        else:
            self.clipped += 1
