"""Randomised response: a unit reports its category, or one drawn at random (Warner 1965).

The unit is the one that reports. Neighbours are two categories of that unit, so the adjacency is "replace": whether a
unit reports at all is not hidden. The pair is exact: one report is likelier by e^epsilon, one less likely by as much,
the other k - 2 reveal nothing.

>>> from sfumato.accounting.guarantees import guarantee
>>> coin = RandomizedResponse(noise_parameter=0.5, categories=2)         # the truth with probability 3/4
>>> round(coin.largest_loss("replace"), 4), round(guarantee(coin * 100, "replace").epsilon(1e-6), 2)
(1.0986, 94.29)
>>> RandomizedResponse.from_epsilon(1.0, categories=4).keep_probability.__round__(4)
0.4754
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sfumato._check import between, positive, whole
from sfumato._types import Adjacency
from sfumato.accounting.events.claims import BoundedLoss
from sfumato.accounting.events.event import Event, Unknown, event_kind
from sfumato.accounting.numerics import round_up
from sfumato.accounting.pair import FinitePair, Pair


@event_kind("randomized_response")
@dataclass(frozen=True, slots=True)
class RandomizedResponse(BoundedLoss):
    """One report of one category.

    Attributes:
        noise_parameter: probability p of a report that is drawn uniformly from all categories, the true one included;
            0 < p < 1. The true category is reported with probability 1 - p + p/k, each other one with p/k.
        categories: k >= 2, public.
    """

    noise_parameter: float
    categories: int

    ranked: ClassVar[Mapping[str, int]] = {"noise_parameter": -1}

    def __post_init__(self) -> None:
        remedy = "0 is no privacy (NonPrivate()), 1 is no report"
        between(0, 1, ends="()", noise_parameter=self.noise_parameter, remedy=remedy)
        whole(at_least=2, categories=self.categories)

    @classmethod
    def from_epsilon(cls, epsilon: float, categories: int) -> "RandomizedResponse":
        """The response that keeps the true category with probability e^epsilon / (e^epsilon + k - 1).

        Args:
            epsilon: > 0, up to about 700.
            categories: k >= 2.
        """
        positive(epsilon=epsilon)
        whole(at_least=2, categories=categories)
        small = math.exp(-float(epsilon))
        noise_parameter = categories * small / (1 + (categories - 1) * small)
        return cls(noise_parameter * (1 - 8 * math.ulp(1.0)), categories)  # rounded so that epsilon is not below

    @property
    def keep_probability(self) -> float:
        """Probability that the report is true."""
        return 1 - self.noise_parameter + self.noise_parameter / self.categories

    def largest_loss(self, adjacency: Adjacency) -> float:
        if adjacency != "replace":
            raise Unknown(
                f"RandomizedResponse protects the category of a unit, not its presence ({adjacency}); "
                'use adjacency="replace"'
            )
        p = self.noise_parameter
        return round_up(math.log1p(self.categories * ((1 - p) / p)))

    def _of_group(self, units: int) -> Event:
        return self * units  # each unit reports by itself

    def _pair(self, adjacency: Adjacency) -> Pair:
        loss, keep, other = self.largest_loss(adjacency), self.keep_probability, self.noise_parameter / self.categories
        if self.categories == 2:
            return FinitePair((-loss, loss), (other, keep), (keep, other))
        rest = (self.categories - 2) * other
        return FinitePair((-loss, 0.0, loss), (other, rest, keep), (keep, rest, other))
