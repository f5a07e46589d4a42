"""Well-mixed bits of a number and a key, for many numbers at once; not for noise, and not for sampling.

>>> [int(bits % np.uint64(100)) for bits in mixed_bits(np.array([0, 1]), 7, 0)]
[4, 87]
"""

import numpy as np


def mixed_bits(numbers: np.ndarray, key: int | np.ndarray, stream: int | np.ndarray) -> np.ndarray:
    """64 bits for each number (the finaliser of SplitMix64), uint64 [n].

    Args:
        numbers: integers >= 0, [n].
        key: below 2^64, one or [n].
        stream: tells draws of one key apart, >= 0, one or [n].
    """
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(key, np.uint64)
        x += np.asarray(stream, np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
