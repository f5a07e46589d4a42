"""Automatic clipping: every contribution is brought to almost the same length, whatever its norm.

A contribution g counts as C·g/(‖g‖ + γ) (Bu, Wang, Zha and Karypis 2023, equation 4.1). There is no threshold to tune:
C only scales what is learned, and goes with the learning rate. γ keeps the order of small gradients.

Unit: one contribution. ‖C·g/(‖g‖ + γ)‖ < C for every g, so the sensitivity is C when it is added or removed, 2C when
it is exchanged.

>>> bound = AutomaticClipNorm(clip_norm=1.0, gamma=0.01)
>>> (bound.weights(torch.tensor([[99.99, 0.01]]), 1.0) * torch.tensor([[99.99, 0.01]])).round(decimals=3).tolist()
[[1.0, 0.5]]

References:
    Bu, Wang, Zha, Karypis: Automatic Clipping: Differentially Private Deep Learning Made Easier and Stronger. NeurIPS
    2023, arXiv 2206.07136.
"""

from dataclasses import dataclass

import torch  # noqa: F401  # for the doctest
from torch import Tensor

from sfumato import _check
from sfumato.clipping.norm_bound import ROUND_DOWN, NormBound


@dataclass(frozen=True, kw_only=True)
class AutomaticClipNorm(NormBound):
    """Contributions of almost equal length.

    Attributes:
        clip_norm: C, the length that a long contribution gets, > 0.
        gamma: γ, the norm at which a contribution gets half of it, > 0.
    """

    clip_norm: float
    gamma: float = 0.01

    def __post_init__(self) -> None:
        _check.positive(clip_norm=self.clip_norm, gamma=self.gamma)

    @property
    def start(self) -> float | None:
        """C."""
        return self.clip_norm

    def _factors(self, norms: Tensor, clip_norm: float) -> Tensor:
        return clip_norm * ROUND_DOWN / (norms + self.gamma)

    def describe(self) -> str:
        """The length."""
        return f"normalised to norm {self.clip_norm:g}"

    def disclose(self) -> str:
        """Without the number."""
        return "normalised to a fixed public norm"
