"""Per-layer clipping: the part of a contribution in each layer has a bound of its own.

With the bound C_l on layer l, a contribution adds at most sqrt(Σ C_l²) in all (McMahan, Ramage, Talwar and Zhang 2018,
section 3.2): that is its sensitivity, and the noise is scaled to it. The bounds are given by the total C and by shares:
C_l = C·s_l/‖s‖, equal ones unless shares are given, so that C means the same as for flat clipping.

Unit: one contribution, and its sensitivity is C when it is added or removed, 2C when it is exchanged.

>>> bound = PerLayerClipNorm.of(0.3, 0.4)
>>> bound.sensitivity(bound.start), [round(c, 6) for c in bound.bounds(2, bound.start)]
(0.5, [0.3, 0.4])
>>> PerLayerClipNorm(clip_norm=1.0).groups(["conv.weight", "conv.bias", "head.weight"])
[[0, 1], [2]]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato.clipping.norm_bound import ROUND_DOWN, NormBound


@dataclass(frozen=True, kw_only=True)
class PerLayerClipNorm(NormBound):
    """A bound for each layer; a layer is a module with parameters of its own.

    Attributes:
        clip_norm: C, bound on the whole contribution, > 0.
        shares: relative bounds of the layers, each > 0, in the order of the parameters; None for equal ones.
    """

    clip_norm: float
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check.positive(clip_norm=self.clip_norm)
        for share in self.shares or ():
            _check.positive(layer_shares=share)

    @classmethod
    def of(cls, *bounds: float) -> Self:
        """The bound whose layers have these norms."""
        return cls(clip_norm=math.hypot(*bounds), shares=bounds)

    @property
    def start(self) -> float | None:
        """C."""
        return self.clip_norm

    def bounds(self, layers: int, clip_norm: float) -> list[float]:
        """C_l of every layer; their squares add up to C².

        Raises:
            InputError: there are shares for another number of layers.
        """
        shares = self.shares or (1.0,) * layers
        if len(shares) != layers:
            raise InputError(
                f"layer_shares has {len(shares)} numbers but the model trains {layers} layers; give each one"
            )
        return [clip_norm * share / math.hypot(*shares) for share in shares]

    def groups(self, names: Sequence[str]) -> list[list[int]]:
        """The parameters of each module."""
        layers: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            layers.setdefault(name.rpartition(".")[0], []).append(index)
        self.bounds(len(layers), self.clip_norm)  # refuses another number of shares
        return list(layers.values())

    def _factors(self, norms: Tensor, clip_norm: float) -> Tensor:
        bounds = torch.tensor(self.bounds(len(norms), clip_norm), dtype=norms.dtype, device=norms.device)
        return (bounds[:, None] * ROUND_DOWN / norms).clamp(max=1.0)

    def describe(self) -> str:
        """The total."""
        return f"clipped layer by layer to norm {self.clip_norm:g} in all"

    def disclose(self) -> str:
        """Without the number."""
        return "clipped to a fixed public norm in each layer"
