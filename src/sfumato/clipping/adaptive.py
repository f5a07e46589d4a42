"""Adaptive clipping: a flat bound whose norm follows a quantile of the norms; see `quantile` for rule and cost.

>>> clip = AdaptiveClipNorm(initial=1.0, rule=QuantileRule(quantile=0.5))
>>> clip.start, clip.sensitivity(0.7)
(1.0, 0.7)

References:
    Andrew, Thakkar, McMahan, Ramaswamy: Differentially Private Learning with Adaptive Clipping. NeurIPS 2021.
"""

from dataclasses import dataclass

from sfumato import _check
from sfumato.clipping.norm_bound import NormBound
from sfumato.clipping.quantile import QuantileRule


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
