"""Refuse noise that single precision cannot hold.

A round's noise is what is fresh in it and what it takes back of earlier rounds, which are kept in single precision.
Where the latter outgrows the former, as it does if C⁻¹ grows from row to row, what was rounded away when they were kept
is no longer small beside the fresh noise. Then a contribution shows in how later rounds are rounded, whatever was
accounted.

>>> growth(BandedToeplitz((1.0, 0.5)), 100) < 1.2, growth(BandedToeplitz((1.0, 1.5)), 100) > 1e17
(True, True)
"""

from functools import lru_cache

import numpy as np

from sfumato._check import InputError, between
from sfumato.accounting.strategies import BandedToeplitz, BufferedToeplitz, InverseBanded
from sfumato.accounting.strategies.series import reciprocal

Toeplitz = BandedToeplitz | BufferedToeplitz | InverseBanded

MOST_GROWTH = 100.0
"""Single precision has 24 bits: 17 are left beside what is fresh. Optimised strategies have a growth of 1 to 2."""

_LARGEST = 1e9  # entry on the diagonal of C; its inverse is the least


def refuse_lost_digits(strategy: Toeplitz, rounds: int) -> None:
    """Refuse a strategy whose fresh noise would be rounded away.

    Raises:
        InputError: it is one.
    """
    if isinstance(strategy, BandedToeplitz):
        first = strategy.coefficients[0]
        scales = (strategy.column_scales or (1.0,))[:rounds]
        for scale in (1.0, min(scales), max(scales)):
            between(1 / _LARGEST, _LARGEST, remedy="scale coefficients or column_scales", diagonal=first * scale)
    grown = growth(strategy, rounds)
    if not grown <= MOST_GROWTH:
        raise InputError(
            f"the noise of {rounds} rounds grows to {grown:.3g} times what is fresh in it, and single precision would "
            f"round that away; take coefficients of noise={strategy.name} with which it stays below {MOST_GROWTH:g}, "
            "or fewer rounds"
        )


@lru_cache(maxsize=16)
def growth(strategy: Toeplitz, rounds: int) -> float:
    """Std of the last round's noise, in that of what is fresh in it; >= 1, infinite or NaN where doubles end."""
    with np.errstate(over="ignore", invalid="ignore"):
        match strategy:
            case BandedToeplitz():
                inverse = reciprocal(np.array(strategy.coefficients), rounds)
            case BufferedToeplitz():
                inverse = strategy.inverse_coefficients(rounds)
            case InverseBanded():
                inverse = np.array(strategy.inverse_coefficients[:rounds])
        return float(np.linalg.norm(inverse / inverse[0]))
