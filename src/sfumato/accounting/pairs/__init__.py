"""Dominating pairs: two distributions whose hockey-stick curve is the worst that an event can show."""

from sfumato.accounting.pairs.gaussian import Direction, SampledGaussian
from sfumato.accounting.pairs.labelled import Labelled
from sfumato.accounting.pairs.mixture import MixedGaussian
from sfumato.accounting.pairs.pair import Pair

__all__ = ["Direction", "Labelled", "MixedGaussian", "Pair", "SampledGaussian"]
