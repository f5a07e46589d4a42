"""Counts and sums of a round, as one vector that processes add up. All of them are private.

>>> tally = Tally("cpu")
>>> tally.add(units=3, below=2, clipped=1, loss=4.5)
>>> tally.row()["loss"], tally["below"]
(1.5, 2.0)
"""

import math

import torch
from torch import Tensor

_FIELDS = ("units", "below", "clipped", "non_finite", "norms", "loss", "examples")


class Tally:
    """What is known of a round beside its sum.

    units: contributions seen; below: those of norm at most the clip norm (the count that adaptive clipping releases
    with noise); clipped: those that were longer; non_finite: those that counted as zero because of NaN or Inf; norms:
    the sum of the finite norms before clipping; loss: the sum of the contributions' mean losses; examples: processed.

    Attributes:
        values: float64 [7], on the device of the sum.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.values = torch.zeros(len(_FIELDS), dtype=torch.float64, device=device)

    def add(self, **amounts: Tensor | float) -> None:
        """Add to some of the fields; scalars."""
        for name, amount in amounts.items():
            self.values[_FIELDS.index(name)] += amount

    def __getitem__(self, name: str) -> float:
        return self.values[_FIELDS.index(name)].item()

    def row(self) -> dict[str, float | int | None]:
        """Figures for the metrics, to be marked as private."""
        of = dict(zip(_FIELDS, self.values.tolist(), strict=True))
        units, finite = of["units"], of["units"] - of["non_finite"]
        return {
            "units": int(units),
            "examples": int(of["examples"]),
            "loss": _finite(of["loss"] / units) if units else None,
            "clipped": round(of["clipped"] / units, 4) if units else None,
            "norm_mean": _finite(of["norms"] / finite) if finite else None,
            "non_finite": int(of["non_finite"]),
        }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
