"""How large delta may be: well below one over the number of units.

A mechanism that publishes each unit's record in full with probability delta, and nothing otherwise, is (0, delta)-
differentially private. Of N units it publishes delta N on average, so no delta protects everybody unless that product
is far below 1 (Dwork and Roth 2014, section 2.3).

>>> f"{default_delta(2_250):.3g}", round(published(default_delta(2_250), 2_250), 3)
('4.44e-06', 0.01)
>>> is_too_large(2_250**-1.1, 2_250)   # N^-1.1 is above 0.1 / N for every N below 10^10
True
"""

import warnings

from sfumato._check import whole

DEFAULT = 0.01
"""Records that may be published in full, on average, where nobody chose a delta."""
MOST = 0.1
"""Above this many, delta is called too large."""


def default_delta(population: int) -> float:
    """A delta well below 1 / population: a hundredth of it.

    Args:
        population: public number of units, >= 1.
    """
    whole(population=population)
    return DEFAULT / population


def published(delta: float, population: int) -> float:
    """Records that such a mechanism publishes in full, on average; (0, delta) allows it."""
    return delta * population


def is_too_large(delta: float, population: int) -> bool:
    """Whether that is more than a tenth of a record."""
    return published(delta, population) > MOST * (1 + 1e-12)


def warn_if_too_large(delta: float, population: int) -> None:
    """Tell who chose such a delta of a smaller one."""
    if is_too_large(delta, population):
        remedy = f"leave it out for {default_delta(population):g}"
        warnings.warn(f"delta {delta:g} is not well below 1/{population}; {remedy}", stacklevel=3)
