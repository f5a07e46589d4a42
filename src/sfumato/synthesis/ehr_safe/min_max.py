"""Min-max normalisation, to compare stochastic normalisation with: smallest observed value 0, largest 1.

>>> scale = MinMax.fit(np.array([2.0, np.nan, 10.0, 4.0]), whole=True)
>>> scale.draw(scale.places(np.array([4.0, np.nan, 12.0])), np.zeros(3))
array([0.25,  nan, 1.  ])
>>> scale.inverse(np.array([0.25, 0.3]))
array([4., 4.])
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class MinMax:
    """The scale of one column; the methods are those of `Normaliser`, and nothing is drawn.

    Attributes:
        low, high: the range; NaN for a column without any observation.
        whole: what comes back is rounded to whole numbers.
    """

    low: float
    high: float
    whole: bool = False

    @classmethod
    def fit(cls, column: np.ndarray, *, whole: bool = False) -> Self:
        """The scale of a column, float [n] with NaN where nothing was observed."""
        observed = column[~np.isnan(column)]
        return cls(float(observed.min()), float(observed.max()), whole) if len(observed) else cls(np.nan, np.nan, whole)

    def places(self, column: np.ndarray) -> np.ndarray:
        """The numbers on the scale, cut off at its ends; NaN stays NaN."""
        width = self.high - self.low
        return np.clip((np.asarray(column, np.float64) - self.low) / (width if width > 0 else 1.0), 0.0, 1.0)

    def draw(self, places: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """The places, whatever is drawn."""
        return places

    def inverse(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in [0, 1], cut off there, in the column's own unit."""
        found = self.low + (self.high - self.low) * np.clip(np.asarray(numbers, np.float64), 0.0, 1.0)
        return np.round(found) if self.whole else found

    def state(self) -> dict[str, Tensor]:
        """All of it, as tensors."""
        return {"range": torch.tensor([self.low, self.high, float(self.whole)], dtype=torch.float64)}

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Self:
        """The scale of a `state`."""
        low, high, whole = state["range"].tolist()
        return cls(low, high, bool(whole))
