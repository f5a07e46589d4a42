"""Who contributes in a round, as three arrays: no object for a unit, however many there are.

>>> cohort = Cohort(slots=np.array([0, 4]), units=np.array([3, 1, 7]), offsets=np.array([0, 1, 3]))
>>> len(cohort), cohort.members(1).tolist(), cohort.take(slice(1, 2)).units.tolist()
(2, [1, 7], [1, 7])
"""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, eq=False)
class Cohort:
    """Contributors in the order of their slots; each is a unit, or several units that contribute together.

    Attributes:
        slots: int64 [contributors], ascending unless `take` was asked for another order; a slot names its contributor's
            randomness, whoever else takes part.
        units: int64 [participants], the units of the first contributor, then those of the second, …
        offsets: int64 [contributors + 1]: contributor i has the units offsets[i] … offsets[i + 1] − 1, never none.
    """

    slots: np.ndarray
    units: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of_single_units(cls, units: np.ndarray) -> Self:
        """Every unit contributes by itself, and is its own slot."""
        return cls(units, units, np.arange(len(units) + 1))

    def __len__(self) -> int:
        return len(self.slots)

    def members(self, contributor: int) -> np.ndarray:
        """The units of one contributor, int64 [n]."""
        return self.units[self.offsets[contributor] : self.offsets[contributor + 1]]

    def take(self, part: slice | np.ndarray) -> "Cohort":
        """Some of the contributors, in the order asked for."""
        slots, sizes = self.slots[part], np.diff(self.offsets)[part]
        if len(self.units) == len(self.slots):
            return Cohort(slots, self.units[part], np.arange(len(slots) + 1))
        starts, ends = self.offsets[:-1][part], np.cumsum(sizes)
        rows = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
        return Cohort(slots, self.units[rows], np.concatenate([[0], ends]))
