"""The noisy count that adaptive clipping releases beside a sum.

Each contribution sends b - 1/2, where b in {0, 1} tells whether its norm was at most the clip norm (Andrew, Thakkar,
McMahan and Ramaswamy 2021, Section 3). A unit that is added or removed moves the sum of these by 1/2; so does one whose
contribution is blanked. A unit that is replaced moves it by 1, from one half to the other.

>>> from sfumato.accounting.events.gaussian import Gaussian
>>> from sfumato.accounting.events.joint import joint
>>> both = joint(Gaussian(0.632), ClipCount(noise_std=1.6))
>>> round(1 / both.gaussian_shift("add_remove"), 3)         # Theorem 1: together they cost what noise 0.62 costs
0.62
"""

from dataclasses import dataclass

from sfumato._check import positive
from sfumato._types import Adjacency
from sfumato.accounting.doubles import divided
from sfumato.accounting.events.event import Event, event_kind
from sfumato.accounting.events.gaussian import GaussianEvent


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
        object.__setattr__(self, "noise_std", float(self.noise_std))

    def _of_group(self, units: int) -> Event:
        return ClipCount(divided(self.noise_std, units))

    def gaussian_shift(self, adjacency: Adjacency) -> float:
        return (1.0 if adjacency == "replace" else 0.5) / self.noise_std
