"""A clip norm that stays as it was given.

>>> bound = ConstantClipNorm(clip_norm=1.5)
>>> bound.start, bound.sensitivity(1.5)
(1.5, 1.5)
>>> bound.weights(torch.tensor([[3.0, 0.5, float("nan")]]), 1.5).round(decimals=3).tolist()
[[0.5, 1.0, 0.0]]
"""

from dataclasses import dataclass

import torch  # noqa: F401  # for the doctest

from sfumato import _check
from sfumato.clipping.norm_bound import NormBound


@dataclass(frozen=True, kw_only=True)
class ConstantClipNorm(NormBound):
    """A fixed bound, or none.

    Attributes:
        clip_norm: bound on the L2 norm of a contribution, > 0; None for a run without privacy.
    """

    clip_norm: float | None

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            _check.positive(clip_norm=self.clip_norm, remedy="for a run without privacy use clip_norm=None")

    @property
    def start(self) -> float | None:
        """The bound itself."""
        return self.clip_norm

    def describe(self) -> str:
        """The norm."""
        return "used as they are" if self.clip_norm is None else f"clipped to norm {self.clip_norm:g}"
