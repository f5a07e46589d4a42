"""Noise in the nodes of binary trees: prefix sums are put together from partial sums.

A node is a block of 2^m rounds that starts at a multiple of 2^m. The plain estimator of a prefix sum adds the fewest
nodes that make it up, one for each binary digit of the number of rounds. The efficient one (Honaker 2015, bottom-up)
first replaces each node by the average of itself and its two children's estimates, weighted by inverse variances; at
height m that has variance 1 / (2 - 2^-m) instead of 1.

After a restart the model keeps the last released prefix sum of the tree before and goes on from there, so the variances
add up over the trees. A tree that another one follows may be completed by empty rounds: its last prefix sum is then its
root's, and the efficient estimator takes blocks without a real round for what they are, zero without any noise.

>>> BinaryTree("plain").prefix_variance(7)
array([1., 1., 2., 1., 2., 2., 3.])
>>> BinaryTree("efficient").prefix_variance(4).round(4)
array([1.    , 0.6667, 1.6667, 0.5714])
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from sfumato._check import one_of
from sfumato.accounting.events.event import Event
from sfumato.accounting.events.tree import TreeAggregation
from sfumato.accounting.strategies.numbers import in_rounds
from sfumato.accounting.streams.participation import Participation

Estimator = Literal["plain", "efficient"]


@dataclass(frozen=True)
class BinaryTree:
    """One tree, or one after another; what it costs is `TreeAggregation`'s.

    Attributes:
        estimator: how prefix sums are made from nodes: "plain" or "efficient". Both cost the same.
        restart_every: rounds after which a new tree starts, >= 1; None for a single tree.
        completion: whether a tree that another one follows is filled up with empty rounds; needs `restart_every`.

    Raises:
        InputError: a value is out of range, or completion is asked of a single tree.
    """

    estimator: Estimator = "efficient"
    restart_every: int | None = None
    completion: bool = False

    name: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        one_of(get_args(Estimator), estimator=self.estimator)
        trees = self._event(1.0, Participation(rounds=1))  # the event says what trees there can be
        object.__setattr__(self, "restart_every", trees.restart_every)

    def event(self, noise_multiplier: float, participation: Participation) -> Event:
        return self._event(noise_multiplier, participation)

    def squared_sensitivity(self, participation: Participation) -> float:
        return float(self._event(1.0, participation).squared_sensitivity)

    def prefix_variance(self, rounds: int) -> np.ndarray:
        length = min(self.restart_every or in_rounds(rounds), in_rounds(rounds))
        within = self._within_a_tree(length)
        followed = within.copy()
        if self.completion:
            followed[-1] = 1.0 if self.estimator == "plain" else _root_variance(length, (length - 1).bit_length())
        trees = (rounds - 1) // length
        before = np.repeat(followed[-1] * np.arange(trees + 1), length)[:rounds]
        return before + np.concatenate([np.tile(followed, trees), within[: rounds - trees * length]])

    def _within_a_tree(self, rounds: int) -> np.ndarray:
        ends = np.arange(1, rounds + 1)
        variance = np.zeros(rounds)
        for height in range(rounds.bit_length()):
            of_node = 1.0 if self.estimator == "plain" else 1.0 / (2.0 - 2.0**-height)
            variance += of_node * (ends >> height & 1)
        return variance

    def _event(self, noise_multiplier: float, participation: Participation) -> TreeAggregation:
        return TreeAggregation(
            noise_multiplier=noise_multiplier,
            steps=participation.rounds,
            max_participations=participation.max_participations,
            min_separation=participation.min_separation,
            restart_every=self.restart_every,
            completion=self.completion,
        )


def _root_variance(rounds: int, height: int) -> float:
    """Variance of the efficient estimate of a block of 2^height rounds, of which the first `rounds` are real."""
    if rounds == 0:
        return 0.0
    if rounds == 1 << height:
        return 1.0 / (2.0 - 2.0**-height)
    half = 1 << (height - 1)
    below = _root_variance(min(rounds, half), height - 1) + _root_variance(max(0, rounds - half), height - 1)
    return 1.0 / (1.0 + 1.0 / below)
