"""Gaussian releases: a sum with normal noise, several of one sample, and the count of adaptive clipping.

Gaussian releases: a sum with normal noise, and what several of them amount to.

The unit is the one that the noise multiplier was computed for. Adding or removing that unit moves the sum by at most
one sensitivity; replacing it moves the sum by at most two.

>>> combined_shift(Gaussian(2.0) * 4, "add_remove")   # four releases of noise 2 are one of noise 1
1.0

The noisy count that adaptive clipping releases with a sum.

Each contribution sends b - 1/2, where b in {0, 1} states whether its norm was at most the clip norm (Andrew, Thakkar,
McMahan and Ramaswamy 2021, Section 3). A unit that is added or removed moves the sum of these by 1/2; so does one whose
contribution is blanked. A unit that is replaced moves it by 1, from one half to the other.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> from sfumato.accounting.events.gaussian import joint
>>> both = joint(Gaussian(0.632), ClipCount(noise_std=1.6))
>>> round(1 / both.gaussian_shift("add_remove"), 3)         # Theorem 1: together they cost what noise 0.62 costs
0.62

Joint releases: several noisy sums of one and the same sample.

Sums of the same units with independent Gaussian noise are one Gaussian release of the stacked vector, each block
divided by its noise. When a unit moves block i by at most s_i standard deviations, it moves the vector by at most
sqrt(s_1^2 + s_2^2 + ...): adding or removing moves each block once, replacing moves each block twice.

The parts stay in the event, so that a ledger shows what was released. Sampling is drawn once for all of them: write
`joint(a, b).poisson(q)`, where `a.poisson(q) + b.poisson(q)` would be two samples.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> round(1 / joint(Gaussian(3.0), Gaussian(4.0)).gaussian_shift("add_remove"), 6)      # one Gaussian of noise 2.4
2.4
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sfumato._check import InputError, positive
from sfumato._types import Adjacency
from sfumato.accounting.events.event import Event, Repeated, Unknown, event_kind, terms
from sfumato.accounting.numerics import EPS, divided, inverse_square
from sfumato.accounting.pair import Pair
from sfumato.accounting.sampled_pair import SampledGaussian


class GaussianEvent(Event):
    """An event that equals one Gaussian release; a kind of it says by how far a unit moves the mean."""

    __slots__ = ()

    def pairs(self, adjacency: Adjacency) -> tuple[Pair, ...]:
        return (SampledGaussian("remove", 1.0, self._shift(adjacency)),)

    def renyi(self, orders: np.ndarray, adjacency: Adjacency) -> np.ndarray:
        return orders * self.rho(adjacency)

    def rho(self, adjacency: Adjacency) -> float:
        shift = self._shift(adjacency)
        return inverse_square(1.0 / shift) / 2 if shift else 0.0

    def _shift(self, adjacency: Adjacency) -> float:
        shift = self.gaussian_shift(adjacency)
        assert shift is not None
        return shift


@event_kind("gaussian")
@dataclass(frozen=True, slots=True)
class Gaussian(GaussianEvent):
    """A sum released with Gaussian noise.

    Attributes:
        noise_multiplier: std of the noise divided by the most that adding or removing one unit can move the
            sum (in L2 norm), > 0. Replacing a unit moves it twice as far; accountants take care of that.
    """

    noise_multiplier: float

    unsampled = ""
    ranked: ClassVar[Mapping[str, int]] = {"noise_multiplier": -1}

    def __post_init__(self) -> None:
        positive(noise_multiplier=self.noise_multiplier, remedy="for a run without noise use NonPrivate()")

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace" else 1.0) / self.noise_multiplier

    def rho(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace" else 0.5) * inverse_square(self.noise_multiplier)

    def _of_group(self, units: int) -> Event:
        return Gaussian(divided(self.noise_multiplier, units))


def combined_shift(event: Event, adjacency: Adjacency) -> float | None:
    """The shift of the one Gaussian that equals a composition of Gaussians; None where anything else is inside."""
    parts: list[float] = []
    for single, count in terms(event):
        shift = single.gaussian_shift(adjacency)
        if shift is None:
            return None
        parts.append(math.sqrt(count) * shift)
    return math.hypot(*parts)  # without overflow or underflow of the squares, to about 2 ulp


@event_kind("clip_count")
@dataclass(frozen=True, slots=True)
class ClipCount(GaussianEvent):
    """The sum of b - 1/2 over contributions, b in {0, 1}, released with Gaussian noise.

    The unit sends one contribution. Sensitivity: 1/2 for adding, removing and blanking it, 1 for replacing it.

    Attributes:
        noise_std: std of the noise on the sum, > 0, in contributions (not divided by the sensitivity).
    """

    noise_std: float

    unsampled = ""

    def __post_init__(self) -> None:
        positive(noise_std=self.noise_std, remedy="for a run without noise use NonPrivate()")

    def _of_group(self, units: int) -> Event:
        return ClipCount(divided(self.noise_std, units))

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return (1.0 if adjacency == "replace" else 0.5) / self.noise_std


@event_kind("joint")
@dataclass(frozen=True, slots=True)
class Joint(GaussianEvent):
    """Gaussian releases of sums of the same units, each with noise of its own; made by `joint`.

    Attributes:
        events: the parts, in the order of their release; at least two.
    """

    events: tuple[Event, ...]

    unsampled = ""

    def __post_init__(self) -> None:
        if isinstance(self.events, Event) or not isinstance(self.events, Iterable):
            raise InputError(f"Joint takes a tuple of events, got {self.events!r}; write joint(a, b)")
        parts = tuple(part for event in self.events for part in _parts(event))
        if not parts:
            raise InputError("Joint takes at least one event, got none; leave out a release of nothing")
        object.__setattr__(self, "events", parts)

    def _of_group(self, units: int) -> Event:
        return Joint(tuple(event.for_group(units) for event in self.events))

    @property
    def gaussian(self) -> Gaussian:
        """The one Gaussian release that it equals, rounded to less noise."""
        return Gaussian(1.0 / self.gaussian_shift("add_remove") * (1.0 - 3 * EPS))

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return math.hypot(*(combined_shift(event, adjacency) or 0.0 for event in self.events))


def joint(*events: Event) -> Event:
    """All events on one and the same sample, as one event.

    Args:
        events: Gaussian releases, such as `Gaussian(1.1)`, `ClipCount(20.0)`, sums and multiples of them.

    Returns:
        A `Joint`; the event itself where there is only one.

    Raises:
        InputError: one of them is no Gaussian release, or is sampled already.
    """
    whole = Joint(events)
    return whole.events[0] if len(whole.events) == 1 and not isinstance(whole.events[0], Repeated) else whole


def _parts(event: Event) -> Iterator[Event]:
    if not isinstance(event, Event):
        raise InputError(f"Joint takes events such as Gaussian(1.0), got {event!r}")
    for single, count in terms(event):
        if single.gaussian_shift("add_remove") is None or single.unsampled:
            reason = f": {single.unsampled}" if single.unsampled else ""
            raise Unknown(
                f"a joint release of {type(single).__name__} is not known{reason}; put Gaussian events together and "
                "sample the joint event"
            )
        if isinstance(single, Joint) and count == 1:
            yield from single.events
        else:
            yield Repeated(single, count) if count > 1 else single
