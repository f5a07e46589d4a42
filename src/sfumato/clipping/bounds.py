"""How much one contribution may add to the sum: flat, adaptive, automatic and per-layer clipping.

A clip norm that follows a quantile of the norms, measured with a noisy count.

Each round releases, beside the noisy sum, a noisy count of the contributions whose norm is at most C. The count is of
(1[‖Δ‖ ≤ C] − ½), so a contribution that comes or goes moves it by ½, and one that changes moves it by at most 1: half a
unit for each bound by which it moves the sum (`MOVED`). Noise of std σ_b on the count is a Gaussian mechanism of
multiplier 2σ_b. Sum and count are one joint release on one cohort (Andrew, Thakkar, McMahan, Ramaswamy 2021, Theorem
1), and a user who moves two bounds moves the count by two halves, so the same factor holds for both.

The update is C ← C·exp(−η(b − γ)), where b is the noisy count plus ½ for each *planned* contribution, divided by the
planned number: an absent contribution counts as half below, half above, and the realised number is never used.

>>> rule = QuantileRule(quantile=0.5)
>>> rule.count_noise_std(clients=32, noise_multiplier=0.62)
1.6
>>> round(rule.updated(1.0, noisy_count=16.0, clients=32), 4)  # all 32 below: C shrinks
0.9048

A clip norm that stays as it was given.

>>> bound = ConstantClipNorm(clip_norm=1.5)
>>> bound.start, bound.sensitivity(1.5)
(1.5, 1.5)
>>> bound.weights(torch.tensor([[3.0, 0.5, float("nan")]]), 1.5).round(decimals=3).tolist()
[[0.5, 1.0, 0.0]]

Adaptive clipping: a flat bound whose norm follows a quantile of the norms; see `quantile` for rule and cost.

>>> clip = AdaptiveClipNorm(initial=1.0, rule=QuantileRule(quantile=0.5))
>>> clip.start, clip.sensitivity(0.7)
(1.0, 0.7)

References:
    Andrew, Thakkar, McMahan, Ramaswamy: Differentially Private Learning with Adaptive Clipping. NeurIPS 2021.

Automatic clipping: every contribution is brought to almost the same length, whatever its norm.

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

Per-layer clipping: the part of a contribution in each layer has a bound of its own.

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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError

MOVED = 0.5
"""What a contribution that comes or goes adds to the count."""


@dataclass(frozen=True, kw_only=True)
class QuantileRule:
    """Where the clip norm goes.

    Attributes:
        quantile: γ, the share of contributions that should be left whole, in [0, 1].
        learning_rate: η of the geometric update, > 0.
        count_noise: σ_b, std of the noise on the count; None for clients/20, or z where that is larger.
        rounds: adapt in the first so many rounds, then keep the last value; None adapts to the end.
    """

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        _check.positive(adaptive_clip_learning_rate=self.learning_rate)
        _check.between(0.0, 1.0, adaptive_clip_quantile=self.quantile)
        if self.rounds is not None:
            _check.whole(adaptive_clip_rounds=self.rounds)
        if self.count_noise is not None:
            _check.positive(adaptive_clip_count_noise=self.count_noise)

    def active(self, round: int) -> bool:
        """Whether this round (from 0) releases a count."""
        return self.rounds is None or round < self.rounds

    def count_noise_std(self, *, clients: int, noise_multiplier: float) -> float:
        """σ_b for so many planned contributions under a round's multiplier z.

        Raises:
            InputError: the count alone would cost as much as the round may.
        """
        std = max(clients / 20, noise_multiplier) if self.count_noise is None else self.count_noise
        if std <= noise_multiplier * MOVED:
            raise InputError(
                f"adaptive_clip_count_noise {std:g} leaves nothing for the sum at noise_multiplier "
                f"{noise_multiplier:g}; use more than {noise_multiplier * MOVED:g}"
            )
        return std

    def updated(self, clip_norm: float, *, noisy_count: float, clients: int) -> float:
        """The next clip norm, from the noisy Σ(1[‖Δ‖ ≤ C] − ½)."""
        fraction = noisy_count / clients + 0.5
        return clip_norm * math.exp(-self.learning_rate * (fraction - self.quantile))


# How much one contribution may add to the sum: the contract of every bound.
#
# A bound is asked, never told, for its sensitivity: the loop takes the noise, the ledger's line and the statement from
# the same object that turned norms into weights, so they cannot disagree. The state of a bound is one public number,
# the clip norm; most bounds leave it as it is, the adaptive one moves it between rounds by a `QuantileRule`.
#
# Unit: one contribution (an example's gradient, a client's delta). Whatever its norms are, `weights` scales it so that
# it adds a vector of L2 norm at most `sensitivity(clip_norm)`; a contribution that is not finite gets the weight 0, and
# so does one so large (C/‖g‖ < 2^-126) that single precision cannot hold its weight. Adding or removing the
# contribution moves the sum by that much, exchanging it by twice that much.
#
# | bound              | weight of a contribution g      | L2 norm of what it adds         |
# | ------------------ | ------------------------------- | ------------------------------- |
# | ConstantClipNorm   | min(1, C/‖g‖)                   | ≤ C                             |
# | PerLayerClipNorm   | min(1, C_l/‖g_l‖) for layer l   | ≤ sqrt(Σ C_l²) = C              |
# | AutomaticClipNorm  | C/(‖g‖ + γ)                     | < C                             |
# | AdaptiveClipNorm   | min(1, C/‖g‖), C from a count   | ≤ C; the count costs besides    |


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


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipNorm(NormBound):
    """Where the clip norm starts and how it moves. It knows neither the noise nor the size of a round.

    Attributes:
        initial: clip norm of the first round, > 0.
        rule: how it moves.
    """

    initial: float
    rule: QuantileRule

    def __post_init__(self) -> None:
        _check.positive(initial=self.initial)

    @property
    def start(self) -> float | None:
        """The clip norm of the first round."""
        return self.initial

    @property
    def quantile(self) -> QuantileRule | None:
        """The rule."""
        return self.rule

    def describe(self) -> str:
        """That it moves."""
        return "clipped to an adaptive norm"

    def disclose(self) -> str:
        """What it follows."""
        return "clipped to a public norm that follows a noisy count"


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
