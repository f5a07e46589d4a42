"""What keeps the shares of generated records those of the real ones: a map for each number, a shift for each share.

Normalised numbers of real records are uniform, and their scores normal, by construction. So whatever a decoder gives
can be brought there by its own distribution function, column by column: ranks stay, and with them what goes together.
That function is measured on generated records alone. What is missing, and categories, are shifted on the scale of
logarithms until their shares are those in `Scales`.

A decoder reads what it told before. Numbers are mapped when all is told, so that it meets none but its own; shifts move
what follows, and are found in small steps.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

KNOTS = 200
"""Points of each map."""

_SHARES = (np.arange(KNOTS) + 0.5) / KNOTS
EVEN = torch.from_numpy(ndtri(_SHARES)).float()
"""Normal scores at even shares, float [KNOTS]."""

_SETTLED = 30.0  # the shift of what is always there, or never
_LEAST = 1e-4  # a share that was never drawn counts as this one


@dataclass(frozen=True, eq=False)
class RowCalibration:
    """Of the columns of one kind of row.

    Attributes:
        knots: float [numbers, KNOTS], ascending: what the decoder gives at even shares; None changes nothing.
        masks: float [columns], added to the logits of what is observed.
        categories: float [categories of all columns], added to their logits.
    """

    knots: Tensor | None
    masks: Tensor
    categories: Tensor

    @classmethod
    def none(cls, columns: int, categories: int) -> Self:
        """One that changes nothing."""
        return cls(None, torch.zeros(columns), torch.zeros(categories))

    def mapped(self, raw: Tensor, place: int) -> Tensor:
        """Numbers [n] of the column at this place as normal scores."""
        return raw if self.knots is None else mapped(raw, self.knots[place])

    def improved(
        self,
        *,
        raw: Tensor | None,
        seen: Tensor,
        codes: Tensor,
        sizes: tuple[int, ...],
        rates: np.ndarray,
        shares: np.ndarray,
        stride: float,
    ) -> Self:
        """The calibration after a look at what was generated with this one.

        Args:
            raw: float [n, numbers], what the decoder gave, 0 where missing; None leaves numbers as they are.
            seen: float [n, columns], what was observed.
            codes: int64 [n, categorical columns], -1 where missing.
            sizes: categories of each categorical column.
            rates: float [columns], the shares of `seen` to reach.
            shares: float [categories of all columns], those of observed categories to reach.
            stride: how far shifts go to where they would have to be if nothing followed from them, in (0, 1].
        """
        counts = [
            torch.bincount(codes[:, place] + 1, minlength=size + 1)[1:].double() for place, size in enumerate(sizes)
        ]
        found = torch.cat([each / each.sum().clamp_min(1) for each in counts] or [torch.zeros(0)])
        wanted = torch.from_numpy(rates)
        masks = self.masks + stride * (_logit(wanted) - _logit(seen.double().mean(0))).float()
        masks = torch.where(wanted >= 1, _SETTLED, torch.where(wanted <= 0, -_SETTLED, masks))
        target = torch.from_numpy(shares)
        apart = target.clamp_min(_LEAST).log() - found.clamp_min(_LEAST).log()
        categories = self.categories + stride * apart.float()
        categories = torch.where(target > 0, categories, -_SETTLED)
        knots = None
        if raw is not None:
            knots = torch.stack([knots_of(raw[seen[:, place] > 0, place]) for place in range(raw.shape[1])] or [EVEN])
        return type(self)(knots if raw is not None and raw.shape[1] else None, masks, categories)

    def state(self) -> dict[str, Tensor]:
        """All of it, as tensors."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Self:
        """The calibration of a `state`."""
        return cls(state.get("knots"), state["masks"], state["categories"])


def knots_of(raw: Tensor) -> Tensor:
    """What the decoder gave at even shares, float [KNOTS]; for too few numbers those of a normal distribution."""
    if len(raw) < 2:
        return EVEN
    return torch.from_numpy(np.quantile(raw.double().numpy(), _SHARES)).float()


def mapped(raw: Tensor, knots: Tensor) -> Tensor:
    """Normal scores of numbers: between knots along a line, beyond the last one along that of all knots.

    Args:
        raw: [n].
        knots: [KNOTS].
    """
    right = torch.searchsorted(knots, raw.contiguous()).clamp(1, KNOTS - 1)
    low, high = knots[right - 1], knots[right]
    share = ((raw - low) / (high - low).clamp_min(1e-6)).clamp(0.0, 1.0)
    inside = torch.lerp(EVEN[right - 1], EVEN[right], share)
    slope = (EVEN[-1] - EVEN[0]) / (knots[-1] - knots[0]).clamp_min(1e-6)
    return inside + slope * ((raw - knots[-1]).clamp_min(0.0) + (raw - knots[0]).clamp_max(0.0))


def _logit(share: Tensor) -> Tensor:
    return torch.logit(share.clamp(_LEAST, 1 - _LEAST))
