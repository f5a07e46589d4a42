"""How much one contribution may add to the sum: the contract of every bound.

A bound is asked, never told, for its sensitivity: the loop takes the noise, the ledger's line and the statement from
the same object that turned norms into weights, so they cannot disagree. The state of a bound is one public number, the
clip norm; most bounds leave it as it is, the adaptive one moves it between rounds by a `QuantileRule`.

Unit: one contribution (an example's gradient, a client's delta). Whatever its norms are, `weights` scales it so that it
adds a vector of L2 norm at most `sensitivity(clip_norm)`; a contribution that is not finite gets the weight 0, and so
does one so large (C/‖g‖ < 2^-126) that single precision cannot hold its weight. Adding or removing the contribution
moves the sum by that much, exchanging it by twice that much.

| bound              | weight of a contribution g      | L2 norm of what it adds         |
| ------------------ | ------------------------------- | ------------------------------- |
| ConstantClipNorm   | min(1, C/‖g‖)                   | ≤ C                             |
| PerLayerClipNorm   | min(1, C_l/‖g_l‖) for layer l   | ≤ sqrt(Σ C_l²) = C              |
| AutomaticClipNorm  | C/(‖g‖ + γ)                     | < C                             |
| AdaptiveClipNorm   | min(1, C/‖g‖), C from a count   | ≤ C; the count costs besides    |
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from sfumato.clipping.quantile import QuantileRule

ROUND_DOWN = 1.0 - 2.0**-14
"""Weights are rounded towards zero by this: it covers the round-off of norms and sums in single precision."""

_LEAST = float(torch.finfo(torch.float32).tiny)
"""Below it single precision holds a few bits of a weight only, which may be off by far more than `ROUND_DOWN`."""

_MOST = 2.0**127
"""Above it a weight may be infinite in single precision; only automatic clipping of next to nothing comes there."""


class NormBound(ABC):
    """A bound on the L2 norm of a contribution; see the module."""

    @property
    @abstractmethod
    def start(self) -> float | None:
        """The clip norm of round 0, > 0; None for no bound, in a run without privacy."""

    def sensitivity(self, clip_norm: float) -> float:
        """The L2 norm that one contribution adds to the sum at most, while the clip norm is this."""
        return clip_norm

    def groups(self, names: Sequence[str]) -> list[list[int]]:
        """Which parameters are bounded together, as indices into their names; each parameter is in one group."""
        return [list(range(len(names)))]

    def weights(self, norms: Tensor, clip_norm: float | None) -> Tensor:
        """The factor of each contribution, rounded towards zero.

        Args:
            norms: float64 [groups, n], of each contribution's part in each group; NaN or inf where it is not finite.
            clip_norm: the state; None leaves contributions as they are.

        Returns:
            float64 [groups, n], in [0, 1] for bounds that clip; 0 for a contribution that is not finite, or too large.
        """
        usable = torch.isfinite(norms).all(dim=0)
        if clip_norm is None:
            return usable.to(norms.dtype).expand_as(norms)
        factors = self._factors(norms, clip_norm)
        return torch.where(usable & (factors >= _LEAST), factors.clamp(max=_MOST), 0.0)

    def _factors(self, norms: Tensor, clip_norm: float) -> Tensor:
        return (clip_norm * ROUND_DOWN / norms).clamp(max=1.0)

    @abstractmethod
    def describe(self) -> str:
        """For the statement: what contributions are brought to, as in "clipped to norm 1"."""

    def disclose(self) -> str:
        """For the statement's questions: the same without numbers."""
        return "clipped to a fixed public norm"

    @property
    def quantile(self) -> QuantileRule | None:
        """How the clip norm moves with a noisy count; None for one that stays."""
        return None
