"""A strategy by its name: of coefficients that are given, or optimised for the limits at hand.

>>> limits = Participation(rounds=64, max_participations=2, min_separation=20)
>>> by_name("banded", limits, coefficients=(1.0, 0.5))
BandedToeplitz(coefficients=(1.0, 0.5), column_scales=None)
>>> len(by_name("banded", limits).coefficients)
16
"""

from typing import Literal

from sfumato._check import InputError
from sfumato.accounting.strategies.banded_search import optimize_banded
from sfumato.accounting.strategies.banded_toeplitz import BandedToeplitz, square_root
from sfumato.accounting.strategies.bisr_search import banded_inverse_square_root
from sfumato.accounting.strategies.blt_search import optimize_blt
from sfumato.accounting.strategies.buffered_toeplitz import BufferedToeplitz
from sfumato.accounting.strategies.independent import Independent
from sfumato.accounting.strategies.inverse_banded import InverseBanded
from sfumato.accounting.strategies.strategy import Error, Strategy
from sfumato.accounting.streams.participation import Participation

MatrixName = Literal["banded", "blt", "bisr", "square_root", "gaussian"]

DEFAULT_BANDS = 16
_BUFFERS = 4


def by_name(
    name: MatrixName,
    limits: Participation,
    *,
    bands: int | None = None,
    buffers: int | None = None,
    prefix_error: Error = "mean",
    coefficients: tuple[float, ...] | None = None,
    column_scales: tuple[float, ...] | None = None,
) -> Strategy:
    """The strategy.

    Args:
        name: "banded", "blt", "bisr", "square_root" (the baseline without optimisation) or "gaussian" (the identity).
        limits: what one unit may do.
        bands: of banded and bisr; None for 16, or as many as the separation allows (bisr: the best number).
        buffers: of blt; None for 4.
        prefix_error: what is kept small.
        coefficients: banded, the first column; blt, output scales and then decays; bisr, the first column of the
            inverse. None optimises them.
        column_scales: of banded, beside coefficients; one for each round.

    Raises:
        InputError: there is no such strategy.
    """
    match name:
        case "square_root" | "gaussian" if coefficients is not None:
            raise InputError(f"coefficients are for banded, blt and bisr, got {name}; leave them out")
        case "square_root":
            return square_root(limits.rounds)
        case "gaussian":
            return Independent()
        case "banded" if coefficients is not None:
            return BandedToeplitz(coefficients, column_scales)
        case "banded":
            most = limits.period if limits.most > 1 else limits.rounds  # more would overlap
            return optimize_banded(limits, bands=bands or min(DEFAULT_BANDS, limits.rounds, most), error=prefix_error)
        case "blt" if coefficients is not None:
            if len(coefficients) % 2:
                raise InputError(
                    f"blt takes as many output scales as decays, got {len(coefficients)} coefficients in all; give the "
                    "scales and then the decays"
                )
            half = len(coefficients) // 2
            return BufferedToeplitz(coefficients[:half], coefficients[half:])
        case "blt":
            return optimize_blt(limits, buffers=buffers or _BUFFERS, error=prefix_error)
        case "bisr" if coefficients is not None:
            return InverseBanded(coefficients)
        case "bisr":
            return banded_inverse_square_root(limits, bands=bands, error=prefix_error)
