"""The kinds of noise that a plan can have, by word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from sfumato._check import InputError
from sfumato._parts import Kinds
from sfumato.mechanisms.gaussian import Gaussian, Mechanism
from sfumato.mechanisms.toeplitz import BISR, BLT, Banded
from sfumato.mechanisms.tree import Tree
from sfumato.sampling import Sampler


@dataclass(frozen=True, kw_only=True)
class Auto(Gaussian):
    """Not decided yet: `calibrate` takes the kind with the least error that meets the budget.

    Attributes:
        prefix_error: which error: the "mean" or the "max" of those of all sums so far.
    """

    prefix_error: Literal["mean", "max"] = "mean"

    def planned(self, sampler: Sampler, rounds: int) -> Self:
        """Refused."""
        raise InputError("noise=auto is decided by calibrate(epsilon=…, population=…); call it, or choose a noise")


NOISES = Kinds[Mechanism](
    {
        "gaussian": Gaussian,
        "tree": Tree,
        "banded": Banded,
        "blt": BLT,
        "bisr": BISR,
        "auto": Auto,
    },
    number="noise_multiplier",
)
"""By the word that a plan's noise may be given as; a new mechanism is its class and its line here."""
