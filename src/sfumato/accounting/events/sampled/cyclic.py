"""Banded matrix mechanisms with cyclic Poisson sampling: correlated noise that is amplified as in DP-SGD.

Unit: whoever contributes at most one clipped vector in a round it is drawn for, and lies in one part of the data.

>>> from sfumato.accounting.guarantee import guarantee
>>> run = cyclic_poisson(noise_multiplier=4.0, steps=2000, parts=8, sampling_rate=0.08)
>>> round(guarantee(run).epsilon(1e-6), 2)          # 8 bands, 1 % of the units a round
1.44
"""

import math

from sfumato._check import between, positive, whole
from sfumato.accounting.events.event import Event
from sfumato.accounting.events.gaussian import Gaussian


def cyclic_poisson(
    *, noise_multiplier: float, steps: int, parts: int, sampling_rate: float, column_norm: float = 1.0
) -> Event:
    """The cost of a banded strategy with cyclic Poisson sampling, which amplifies as in DP-SGD.

    The units are dealt into `parts` parts, once and for all. Round t draws from part t mod `parts`, each unit of it by
    its own coin. As C has at most `parts` bands, what a unit does in one of its rounds is over before its next one:
    each turn is a Gaussian release of the column, with the unit in it with probability `sampling_rate`, and the turns
    compose (Choquette-Choo et al. 2023; derived in docs/explanation/trees-and-matrices.md).

    It holds for a unit that lies in one part, whose coins are fresh in every turn. Under add_remove its part must not
    depend on the others (a random part for each unit); for parts of a fixed size the statement must say zero_out.

    Args:
        noise_multiplier: std of z divided by the clip norm, > 0.
        steps: rounds, >= 1.
        parts: number of parts, >= 1 and at least the bands of C.
        sampling_rate: probability that a unit is drawn in a round of its part, in [0, 1]. For B of n units a round
            on average that is parts * B / n.
        column_norm: largest L2 norm of a column of C, > 0.

    Returns:
        ceil(steps / parts) Poisson-sampled Gaussian events.

    Raises:
        InputError: a value is out of range.

    >>> cyclic_poisson(noise_multiplier=1.0, steps=2000, parts=8, sampling_rate=0.04)
    Repeated(event=Poisson(event=Gaussian(noise_multiplier=1.0), sampling_rate=0.04), count=250)
    """
    positive(noise_multiplier=noise_multiplier, column_norm=column_norm)
    between(0, 1, sampling_rate=sampling_rate)
    whole(steps=steps, parts=parts)
    ratio = noise_multiplier / column_norm
    effective = ratio if column_norm == 1 else math.nextafter(ratio, 0.0)
    return Gaussian(effective).poisson(sampling_rate) * -(-int(steps) // int(parts))
