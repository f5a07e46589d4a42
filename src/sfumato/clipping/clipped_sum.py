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
from collections.abc import Sequence

import torch
from torch import Tensor

from sfumato import _check

_CHUNK = 1 << 18  # numbers taken to double precision at a time: they stay in the cache
_ROUND_DOWN = 1.0 - 2.0**-20  # covers the float32 rounding of the scaled coordinates


class ClippedSum:
    """Σ min(1, C/‖Δ‖)·Δ over contributions Δ, with counts that are private: see `statistics`.

    Args:
        size: length of a contribution.
        clip_norm: C, > 0; None for a run without privacy.
        device: where the sum is held.
        memory: float64 [size] that holds the sum, overwritten; None takes new memory.

    Attributes:
        total: float64 [size], the sum so far.
        clip_norm: C, or None for a run without privacy.
        units: contributions seen.
        below: how many had norm at most C (the count that adaptive clipping releases with noise).
        clipped: how many were scaled.
        non_finite: how many counted as zero because of NaN or Inf.
        norms: the norms before clipping, in order; NaN for a non-finite contribution.
    """

    def __init__(
        self,
        size: int,
        *,
        clip_norm: float | None,
        device: torch.device | str = "cpu",
        memory: Tensor | None = None,
    ) -> None:
        if clip_norm is not None:
            _check.positive(clip_norm=clip_norm, remedy="for a run without privacy use clip_norm=None")
        self.total = torch.zeros(size, dtype=torch.float64, device=device) if memory is None else memory.zero_()
        self.clip_norm = clip_norm
        self.units = 0
        self.below = 0
        self.clipped = 0
        self.non_finite = 0
        self.norms: list[float] = []

    def add(self, contribution: Tensor) -> None:
        """Clip one contribution, float [size], and add it."""
        scale = self._count(torch.linalg.vector_norm(contribution, dtype=torch.float64).item())
        if scale > 0:
            self.total.add_(contribution, alpha=scale)

    def add_rows(self, contributions: Tensor) -> None:
        """Clip every row of float [units, size] by itself and add them."""
        rows = max(1, _CHUNK // max(1, contributions.shape[1]))
        for chunk in contributions.split(rows):
            exact = chunk.double()
            norms = torch.linalg.vector_norm(exact, dim=1)
            scales = [self._count(norm) for norm in norms.tolist()]
            if 0.0 in scales:  # non-finite rows: zero times NaN would be NaN
                exact = exact[[scale > 0 for scale in scales]]
                scales = [scale for scale in scales if scale > 0]
            self.total.add_(torch.tensor(scales, dtype=torch.float64, device=exact.device) @ exact)

    def parts(self, shapes: Sequence[torch.Size]) -> list[Tensor]:
        """Views of `total` in these shapes, one after the other, for sums of many contributions at once.

        What is added through them must have been brought to size by a `NormBound`, and be counted with `count`.
        """
        sizes = [shape.numel() for shape in shapes]
        return [piece.view(shape) for piece, shape in zip(self.total.split(sizes), shapes, strict=True)]

    def count(self, norms: Tensor) -> None:
        """Count contributions that were added through `parts`.

        Args:
            norms: float [n], of each contribution before; NaN or inf for one that counted as zero.
        """
        finite = torch.isfinite(norms)
        below = finite if self.clip_norm is None else norms <= self.clip_norm
        usable, short = int(finite.sum()), int((below & finite).sum())
        self.units += len(norms)
        self.non_finite += len(norms) - usable
        self.below += short
        self.clipped += usable - short
        self.norms += torch.where(finite, norms, math.nan).tolist()

    def merge(self, other: "ClippedSum") -> None:
        """Add what another sum under the same bound has collected."""
        self.total.add_(other.total)
        self.units += other.units
        self.below += other.below
        self.clipped += other.clipped
        self.non_finite += other.non_finite
        self.norms += other.norms

    def _count(self, norm: float) -> float:
        """Count a contribution of this norm and give its scale; 0 for a non-finite one."""
        self.units += 1
        if not math.isfinite(norm):
            self.non_finite += 1
            self.norms.append(math.nan)
            return 0.0
        self.norms.append(norm)
        if self.clip_norm is None or norm <= self.clip_norm:
            self.below += 1
            return 1.0
        self.clipped += 1
        return self.clip_norm / norm * _ROUND_DOWN
