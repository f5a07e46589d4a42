"""Priors on labels: what is refused, the order that they give, and how many labels are worth keeping.

Everything here is a function of public numbers, so none of it costs anything. Labels of one probability stand in the
order of their numbers; so do those that differ in the last bits only, as many as the number of classes has. The size is
k* of RRWithPrior (Ghazi et al. 2021, Algorithm 3): the one that makes a true report most likely, sum of the k largest
probabilities * e^epsilon / (e^epsilon + k - 1); of several such the least.

>>> order, size = ranked(np.array([0.2, 0.55, 0.25]), epsilon=1.0)
>>> order.tolist(), int(size)
([1, 2, 0], 2)
"""

import math

import numpy as np

from sfumato._check import InputError

_OFF = 1e-3  # a sum of numbers in half precision is off by that much


def require_prior(prior: np.ndarray, classes: int, told: str = "prior") -> None:
    """Refuse what is no probability of each class.

    Args:
        prior: float [classes] or [rows, classes].
        classes: how many there are.
        told: what messages call it.

    Raises:
        InputError: it has another width, a number that is negative or not finite, or does not sum to one.
    """
    if prior.ndim not in (1, 2) or prior.dtype.kind != "f":
        raise InputError(f"{told} must be floats [classes] or [rows, classes], got {prior.dtype} {list(prior.shape)}")
    if prior.shape[-1] != classes:
        raise InputError(f"{told} must have one number for each of the {classes} classes, got {prior.shape[-1]}")
    totals = prior.sum(axis=-1)
    good = np.abs(totals - 1) <= _OFF  # false for NaN and infinity, too
    if good.all() and prior.min(initial=0.0) >= 0:
        return
    rows, sums = np.atleast_2d(prior), np.atleast_1d(totals)
    odd = int(np.argmax(~np.atleast_1d(good) | (rows < 0).any(axis=1)))
    where = f" of row {odd}" if prior.ndim == 2 else ""
    if not np.isfinite(rows[odd]).all() or (rows[odd] < 0).any():
        wrong = rows[odd][~(rows[odd] >= 0) | np.isinf(rows[odd])][0]
        raise InputError(f"{told}{where} must hold numbers in [0, 1], got {wrong}")
    raise InputError(f"{told}{where} must sum to 1, got {sums[odd]:.6g}; divide it by its sum")


def ranked(prior: np.ndarray, epsilon: float, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The order of labels, the likeliest first, and how many of them are reported.

    Args:
        prior: float [classes] or [rows, classes].
        epsilon: > 0.
        size: of reports; None for the best one of each row.

    Returns:
        int64 [classes] or [rows, classes], and int64 [] or [rows].
    """
    order, sums = _sorted(prior)
    if size is not None:
        return order, np.full(prior.shape[:-1], size, np.int64)
    sums /= 1 + np.arange(prior.shape[-1]) * math.exp(-epsilon)
    return order, np.asarray(sums.argmax(axis=-1) + 1)


def _sorted(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of labels, and the sums of the likeliest ones, both as the prior.

    Numbers are sorted with their labels in their last bits: five times as fast as sorting labels by numbers.
    """
    count = prior.shape[-1]
    last = (1 << (count - 1).bit_length()) - 1
    keys = (prior.astype(np.float64) + 0.0).view(np.int64)  # in the order of the numbers, as none is below 0.0
    keys = (keys | last) - np.arange(count)
    keys.sort(axis=-1)
    keys = np.ascontiguousarray(keys[..., ::-1])
    order = last - (keys & last)
    return order, np.cumsum((keys & ~last).view(np.float64), axis=-1)


def success(prior: np.ndarray, epsilon: float, size: int | None = None) -> np.ndarray:
    """The probability of a true report for a label that is drawn from the prior, float64 [] or [rows]."""
    sums, sizes = _sorted(prior)[1], ranked(prior, epsilon, size)[1]
    held = np.take_along_axis(sums, np.expand_dims(sizes - 1, -1), axis=-1)[..., 0]
    return held / (1 + (sizes - 1) * math.exp(-epsilon))
