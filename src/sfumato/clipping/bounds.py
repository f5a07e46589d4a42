"""How much one contribution may add to the sum: flat, adaptive, automatic and per-layer clipping.

A bound is a part of a plan. It is asked for its sensitivity: the loop takes the noise, the ledger's line and the
statement from the same object that turned norms into weights, so they cannot disagree. The state of a bound is one
public number, the clip norm; most bounds leave it as it is, `Adaptive` moves it between rounds.

Unit: one contribution (an example's gradient, a client's delta). Whatever its norms are, `weights` scales it so that
it adds a vector of L2 norm at most `sensitivity(clip_norm)`; a contribution that is not finite gets the weight 0, and
so does one so large (C/‖g‖ < 2^-126) that single precision cannot hold its weight. Adding or removing the
contribution moves the sum by that much, exchanging it by twice that much.

| bound     | weight of a contribution g      | L2 norm of what it adds         |
| --------- | ------------------------------- | ------------------------------- |
| Flat      | min(1, C/‖g‖)                   | ≤ C                             |
| PerLayer  | min(1, C_l/‖g_l‖) for layer l   | ≤ sqrt(Σ C_l²) = C              |
| Automatic | C/(‖g‖ + γ)                     | < C                             |
| Adaptive  | min(1, C/‖g‖), C from a count   | ≤ C; the count costs as well    |

>>> import torch
>>> Flat(norm=1.5).weights(torch.tensor([[3.0, 0.5, float("nan")]]), 1.5).round(decimals=3).tolist()
[[0.5, 1.0, 0.0]]
>>> bound = Automatic(norm=1.0, gamma=0.01)
>>> (bound.weights(torch.tensor([[99.99, 0.01]]), 1.0) * torch.tensor([[99.99, 0.01]])).round(decimals=3).tolist()
[[1.0, 0.5]]
>>> bound = PerLayer.of(0.3, 0.4)
>>> bound.sensitivity(bound.norm), [round(c, 6) for c in bound.bounds(2, bound.norm)]
(0.5, [0.3, 0.4])
>>> PerLayer().groups(["conv.weight", "conv.bias", "head.weight"])
[[0, 1], [2]]
>>> rule = Adaptive(quantile=0.5)
>>> rule.count_noise_std(clients=32, noise_multiplier=0.62)
1.6
>>> round(rule.updated(1.0, noisy_count=16.0, clients=32), 4)  # all 32 below: C shrinks
0.9048

References:
    McMahan, Ramage, Talwar, Zhang: Learning Differentially Private Recurrent Language Models. ICLR 2018, section 3.2
    (per layer).
    Andrew, Thakkar, McMahan, Ramaswamy: Differentially Private Learning with Adaptive Clipping. NeurIPS 2021.
    Bu, Wang, Zha, Karypis: Automatic Clipping: Differentially Private Deep Learning Made Easier and Stronger. NeurIPS
    2023, arXiv 2206.07136, equation 4.1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds

if TYPE_CHECKING:
    from torch import Tensor

COUNT_SENSITIVITY = 0.5
"""What a contribution that comes or goes changes the count of `Adaptive` by."""

ROUND_DOWN = 1.0 - 2.0**-14
"""Weights are rounded towards zero by this: it covers the round-off of norms and sums in single precision."""

_LEAST = 2.0**-126
"""Below it single precision holds a few bits of a weight only, which may be off by far more than `ROUND_DOWN`."""

_MOST = 2.0**127
"""Above it a weight may be infinite in single precision; only automatic clipping of next to nothing comes there."""


@dataclass(frozen=True, kw_only=True)
class NormBound(ABC):
    """A bound on the L2 norm of a contribution; see the module.

    Attributes:
        norm: C, the clip norm of the first round, > 0; None for no bound, in a run without privacy.
    """

    norm: float | None = 1.0

    def __post_init__(self) -> None:
        if self.norm is not None:
            _check.positive(norm=self.norm, remedy="for a run without privacy use clipping=None")

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
        import torch

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
    def counted(self) -> Adaptive | None:
        """The bound itself where its clip norm moves with a noisy count; None for one that stays."""
        return None


@dataclass(frozen=True, kw_only=True)
class Flat(NormBound):
    """A fixed bound on the whole contribution, or none."""

    def describe(self) -> str:
        """The norm."""
        return "used as they are" if self.norm is None else f"clipped to norm {self.norm:g}"


@dataclass(frozen=True, kw_only=True)
class PerLayer(NormBound):
    """A bound for each layer; a layer is a module with parameters of its own.

    With the bound C_l on layer l, a contribution adds at most sqrt(Σ C_l²) in all: that is its sensitivity. The bounds
    are given by the total C and by shares: C_l = C·s_l/‖s‖, so that C means the same as for flat clipping.

    Attributes:
        shares: relative bounds of the layers, each > 0, in the order of the parameters; None for equal ones.
    """

    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shares is not None and not isinstance(self.shares, tuple | list):
            raise InputError(f"shares must be a list of numbers, got {self.shares!r:.60}; give one for each layer")
        for share in self.shares or ():
            _check.positive(shares=share)

    @classmethod
    def of(cls, *bounds: float) -> Self:
        """The bound whose layers have these norms."""
        return cls(norm=math.hypot(*bounds), shares=bounds)

    def bounds(self, layers: int, clip_norm: float) -> list[float]:
        """C_l of every layer; their squares add up to C².

        Raises:
            InputError: there are shares for another number of layers.
        """
        shares = self.shares or (1.0,) * layers
        if len(shares) != layers:
            raise InputError(f"shares has {len(shares)} numbers but the model trains {layers} layers; give each one")
        return [clip_norm * share / math.hypot(*shares) for share in shares]

    def groups(self, names: Sequence[str]) -> list[list[int]]:
        """The parameters of each module."""
        layers: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            layers.setdefault(name.rpartition(".")[0], []).append(index)
        self.bounds(len(layers), 1.0)  # refuses another number of shares
        return list(layers.values())

    def _factors(self, norms: Tensor, clip_norm: float) -> Tensor:
        bounds = norms.new_tensor(self.bounds(len(norms), clip_norm))
        return (bounds[:, None] * ROUND_DOWN / norms).clamp(max=1.0)

    def describe(self) -> str:
        """The total."""
        return f"clipped layer by layer to norm {self.norm:g} in all"

    def disclose(self) -> str:
        """Without the number."""
        return "clipped to a fixed public norm in each layer"


@dataclass(frozen=True, kw_only=True)
class Automatic(NormBound):
    """Every contribution is brought to almost the same length, whatever its norm.

    There is no threshold to tune: C only scales what is learned, and goes with the learning rate. γ keeps the order of
    small gradients.

    Attributes:
        gamma: γ, the norm at which a contribution counts half, > 0.
    """

    gamma: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.positive(gamma=self.gamma)

    def _factors(self, norms: Tensor, clip_norm: float) -> Tensor:
        return clip_norm * ROUND_DOWN / (norms + self.gamma)

    def describe(self) -> str:
        """The length."""
        return f"normalised to norm {self.norm:g}"

    def disclose(self) -> str:
        """Without the number."""
        return "normalised to a fixed public norm"


@dataclass(frozen=True, kw_only=True)
class Adaptive(NormBound):
    """A flat bound whose norm follows a quantile of the contributions' norms, measured with a noisy count.

    Each round releases, with the noisy sum, a noisy count of the contributions whose norm is at most C. The count is of
    (1[‖Δ‖ ≤ C] − ½), so a contribution that comes or goes moves it by ½, and one that changes moves it by at most 1:
    half a unit for each bound by which it moves the sum (`COUNT_SENSITIVITY`). Noise of std σ_b on the count is a
    Gaussian mechanism of multiplier 2σ_b. Sum and count are one joint release on one cohort (Andrew et al. 2021,
    Theorem 1), and a user who moves two bounds moves the count by two halves, so the same factor holds for both.

    The update is C ← C·exp(−η(b − γ)), where b is the noisy count plus ½ for each *planned* contribution, divided by
    the planned number: an absent contribution counts as half below, half above, and the realised number is never used.

    Attributes:
        quantile: γ, the share of contributions that should be left whole, in [0, 1].
        learning_rate: η of the geometric update, > 0.
        count_noise: σ_b, std of the noise on the count; None for clients/20, or z where that is larger.
        adapted_rounds: adapt in the first so many rounds, then keep the last value; None adapts to the end.
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None
    adapted_rounds: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.positive(learning_rate=self.learning_rate)
        _check.between(0.0, 1.0, quantile=self.quantile)
        if self.adapted_rounds is not None:
            _check.whole(adapted_rounds=self.adapted_rounds)
        if self.count_noise is not None:
            _check.positive(count_noise=self.count_noise)

    @property
    def counted(self) -> Adaptive | None:
        """The bound itself."""
        return self

    def active(self, round: int) -> bool:
        """Whether this round (from 0) releases a count."""
        return self.adapted_rounds is None or round < self.adapted_rounds

    def count_noise_std(self, *, clients: int, noise_multiplier: float) -> float:
        """σ_b for so many planned contributions under a round's multiplier z.

        Raises:
            InputError: the count alone would cost as much as the round may.
        """
        std = max(clients / 20, noise_multiplier) if self.count_noise is None else self.count_noise
        if std <= noise_multiplier * COUNT_SENSITIVITY:
            raise InputError(
                f"count_noise {std:g} leaves nothing for the sum at noise_multiplier {noise_multiplier:g}; use more "
                f"than {noise_multiplier * COUNT_SENSITIVITY:g}"
            )
        return std

    def updated(self, clip_norm: float, *, noisy_count: float, clients: int) -> float:
        """The next clip norm, from the noisy Σ(1[‖Δ‖ ≤ C] − ½)."""
        fraction = noisy_count / clients + 0.5
        return clip_norm * math.exp(-self.learning_rate * (fraction - self.quantile))

    def describe(self) -> str:
        """That it moves."""
        return "clipped to an adaptive norm"

    def disclose(self) -> str:
        """What it follows."""
        return "clipped to a public norm that follows a noisy count"


CLIPPINGS = Kinds[NormBound](
    {"flat": Flat, "per_layer": PerLayer, "automatic": Automatic, "adaptive": Adaptive}, number="norm"
)
"""By the word that a plan's clipping may be given as; a new bound is its class and its line here."""
