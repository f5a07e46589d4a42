"""Private selection: a mechanism is run a random number of times, and only the best of its outputs is released.

The choice of hyperparameters is the case in mind: each run draws its settings at random, trains with them, and the best
model is released. The number of runs K is drawn from a truncated negative binomial distribution, and no one may learn
it (Papernot and Steinke 2022, "Hyperparameter Tuning with Renyi Differential Privacy", Definition 1). The more K
varies, the less the repetition costs: a geometric number of runs of a pure epsilon mechanism costs 3 epsilon, a
logarithmic one 2 epsilon, however many runs are expected.

Unit and adjacency are those of the event that is run. The quality of an output counts as part of it: measured on
private records, its noise belongs to the event, too.

>>> from sfumato.accounting.events.claims import PureDP
>>> search = PrivateSelection.of_mean(PureDP(0.5), mean_runs=10)
>>> round(search.stop, 6), round(search.largest_loss("add_remove"), 6)
(0.1, 1.5)
"""

import math
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Composition, Event, event_kind, terms
from sfumato.accounting.loss.renyi import rho_of_pure
from sfumato.accounting.numerics import round_up, total

_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 30), np.geomspace(2.1, 8192, 120)])  # of the second divergence
_LEAST_SHAPE = 1e-9  # below which a shape is that of the logarithmic distribution


@event_kind("private_selection")
@dataclass(frozen=True, slots=True)
class PrivateSelection(Event):
    """The best of K runs of `event`, K >= 1 drawn from a truncated negative binomial distribution.

    Attributes:
        event: one run, with the measure of its quality.
        stop: gamma of the distribution, in (0, 1); the smaller, the more runs.
        shape: eta of the distribution, > -1: 1 for a geometric number of runs, 0 for a logarithmic one.
    """

    event: Event
    stop: float
    shape: float = 1.0

    unsampled = "each of its runs draws its own sample; sample the event inside"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event) or self.event == Composition(()):
            raise InputError(f"PrivateSelection takes an event such as Gaussian(1.0), got {self.event!r}")
        between(0, 1, ends="()", stop=self.stop, remedy="near 1 for a single run")
        between(-1, math.inf, ends="()", shape=self.shape)

    @classmethod
    def of_mean(cls, event: Event, mean_runs: float, shape: float = 1.0) -> "PrivateSelection":
        """The selection with this expected number of runs.

        Args:
            event: one run.
            mean_runs: > 1, up to 10^9.
            shape: as in the class.
        """
        between(1, 1e9, ends="(]", mean_runs=mean_runs, remedy="for a single run use its event")
        between(-1, math.inf, ends="()", shape=shape)
        low, high = 0.0, 745.0  # of -log(gamma); the mean rises with it
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if _mean(math.exp(-middle), shape) < mean_runs else (low, middle)
        return cls(event, math.exp(-low), shape)

    @property
    def mean_runs(self) -> float:
        """Expected number of runs."""
        return _mean(self.stop, self.shape)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        """Theorem 2 of the paper, at the best second order of a grid."""
        own = self._inner(orders, adjacency)
        second = self._inner(_ORDERS, adjacency)
        choices = (1 - 1 / _ORDERS) * second - math.log(self.stop) / _ORDERS
        runs = math.log(self.mean_runs) / (orders - 1)
        bound = own + (1 + self.shape) * float(choices.min()) + runs
        return np.minimum(bound * (1 + 1e-12), self.largest_loss(adjacency))

    def rho(self, adjacency: Adjacency) -> float:
        """That of the largest loss alone: no pair of the selection is known."""
        loss = self.largest_loss(adjacency)
        return rho_of_pure(loss) if math.isfinite(loss) else math.inf

    def largest_loss(self, adjacency: Adjacency) -> float:
        """(2 + eta) times that of one run: Theorem 2 at infinite orders."""
        loss = total(count * single.largest_loss(adjacency) for single, count in terms(self.event))
        return loss if math.isinf(loss) else round_up((2 + self.shape) * loss)

    def attained(self, adjacency: Adjacency) -> bool:
        return False

    def _inner(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        parts = (count * single.renyi(orders, adjacency) for single, count in terms(self.event))
        return sum(parts, start=np.zeros(len(orders)))


def _mean(stop: float, shape: float) -> float:
    """E[K] (Papernot and Steinke 2022, Definition 1)."""
    odds = (1 - stop) / stop
    if abs(shape) < _LEAST_SHAPE:
        return odds / -math.log(stop)
    return odds * shape / -math.expm1(shape * math.log(stop))
