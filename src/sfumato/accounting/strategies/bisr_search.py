"""The banded inverse square root (BISR): the first bands of the inverse of the square root, and how many are best.

The square root of the prefix sums has the inverse (1 - x)^(1/2); cut after some coefficients it is still a strategy, of
which only the number of bands is free (Kalinin, McKenna, Upadhyay and Lampert 2025). Few bands suit many
participations, all of them one.
"""

import math
from functools import lru_cache
from typing import get_args

from sfumato._check import between, one_of, whole
from sfumato.accounting.strategies.inverse_banded import InverseBanded
from sfumato.accounting.strategies.numbers import in_rounds
from sfumato.accounting.strategies.series import binomial_series
from sfumato.accounting.strategies.strategy import Error, root_error
from sfumato.accounting.streams.participation import Participation

_GRID = 1.3  # ratio of neighbouring numbers of bands in the first search
_FINE = 8  # numbers that are tried between two of them


@lru_cache(maxsize=256)
def banded_inverse_square_root(
    participation: Participation, *, bands: int | None = None, error: Error = "mean"
) -> InverseBanded:
    """BISR with a number of bands, or with the best one.

    Args:
        participation: what one unit may do.
        bands: coefficients of C^-1, 1 to the number of rounds; None for the number with the least root error, which is
            searched to within a few percent.
        error: "mean" or "max", over the prefix sums, to choose the bands by.

    Raises:
        InputError: bands are out of range, or the error is another word.

    >>> limits = Participation(rounds=256, max_participations=4, min_separation=63)
    >>> banded_inverse_square_root(limits, bands=3).inverse_coefficients
    (1.0, -0.5, -0.125)
    """
    one_of(get_args(Error), error=error)
    rounds = in_rounds(participation.rounds)
    if bands is not None:
        whole(bands=bands)
        between(1, rounds, bands=bands, remedy="a run has as many diagonals as rounds")
        return _of(int(bands))

    def cost(count: int) -> float:
        return root_error(_of(count), participation, error)

    best = min(_between(1, rounds, _GRID), key=cost)
    low, high = max(1, math.floor(best / _GRID)), min(rounds, math.ceil(best * _GRID))
    return _of(min(_between(low, high, (high / low) ** (1 / _FINE)), key=cost))


def _of(bands: int) -> InverseBanded:
    return InverseBanded(tuple(binomial_series(0.5, bands).tolist()))


def _between(low: int, high: int, ratio: float) -> list[int]:
    """Whole numbers from `low` to `high`, both included, each about `ratio` times the one before."""
    found = [low]
    while found[-1] < high:
        found.append(min(high, max(found[-1] + 1, round(found[-1] * ratio))))
    return found
