"""Noisy counts as shares: the nearest point among shares that are not negative, which takes away noise evenly.

Cutting negative counts at zero would leave the noise of empty cells where it is positive, and so would move mass into
the tails. The projection takes the same number from all cells until those that are left add up to the noisy total.

>>> shares_of(np.array([60.0, 3.0, -5.0, 42.0])).round(3).tolist()
[0.583, 0.013, 0.0, 0.403]
>>> shares_of(np.array([-4.0, -1.0])).tolist()
[0.5, 0.5]

References:
    Duchi, Shalev-Shwartz, Singer, Chandra 2008, Efficient projections onto the l1-ball. Figure 1.
"""

import numpy as np


def shares_of(counts: np.ndarray) -> np.ndarray:
    """Shares, float64 [k], >= 0 and 1 in total; even ones where nothing is left.

    Args:
        counts: float64 [k], k >= 1, noisy.
    """
    total = counts.sum()
    if not total > 0:
        return np.full(len(counts), 1.0 / len(counts))
    falling = np.sort(counts)[::-1]
    taken = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    threshold = taken[np.flatnonzero(falling > taken)[-1]]
    kept = np.maximum(counts - threshold, 0.0)
    return kept / kept.sum()
