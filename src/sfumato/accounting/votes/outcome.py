"""How likely a noisy vote is to name another class than the one with the most votes.

Guarantees an upper bound on that probability, in logarithms, so that a clear vote does not round to certainty. The
number is computed from private votes and is private itself.

>>> votes = np.array([[250.0] + [0.0] * 9, [120.0, 120.0] + [0.0] * 8])
>>> np.exp(log_wrong(votes, noise_std=40.0)).round(8).tolist()
[4.454e-05, 0.63557941]
"""

import numpy as np
import scipy

from sfumato._check import InputError


def as_votes(votes: object) -> np.ndarray:
    """Votes as float [queries, classes].

    Raises:
        InputError: not numbers, negative, not finite, or fewer than two classes.
    """
    try:
        array = np.asarray(votes, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"votes must be counts [queries, classes], up to 1.8e308 each, got {type(votes).__name__}"
        ) from None
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(f"votes must be counts [queries, classes >= 2], got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("votes must be finite and >= 0; some are not")
    return array


def log_wrong(votes: np.ndarray, noise_std: float, step: float = 0.0) -> np.ndarray:
    """log of a bound on Pr[the winner is not the class with the most votes].

    A union bound over the other classes (Papernot et al. 2018, Proposition 7), and never above 1 - 1/classes, as no
    class is likelier to win than the one with the most votes.

    Args:
        votes: float [queries, classes].
        noise_std: standard deviation of the noise on every count, in votes.
        step: in votes, what counts and noise are whole multiples of; 0 for noise of real numbers.

    Returns:
        float [queries], < 0.
    """
    return np.minimum(log_union(votes, noise_std, step), np.log1p(-1.0 / votes.shape[1]))


def log_union(votes: np.ndarray, noise_std: float, step: float = 0.0) -> np.ndarray:
    """log of the union bound itself, at most log((classes - 1) / 2) for a step of 0; float [queries].

    A discrete Gaussian reaches m >= 1 steps at most as often as the Gaussian of its parameter reaches m - 1: a sum of
    falling terms is below the integral that begins a step earlier, and what it is divided by is at least the integral
    over all (Poisson summation). The difference of two is one again.
    """
    ordered = np.sort(votes, axis=1)
    gaps = ordered[:, -1:] - ordered[:, :-1] - step
    return np.asarray(scipy.special.logsumexp(scipy.special.log_ndtr(-gaps / (np.sqrt(2.0) * noise_std)), axis=1))


def margin_score(log_union: np.ndarray, classes: int) -> np.ndarray:
    """The z at which classes - 1 equally strong rivals would give this union bound: (classes - 1) Phi(-z); >= 0.

    One unit that moves every gap by at most c moves z by at most c / (sqrt(2) noise_std): Phi(Phi^-1(p) + s) is concave
    in p, so the bound grows most where all rivals are equal (Papernot et al. 2018, Proposition 13).
    """
    return np.maximum(0.0, -scipy.special.ndtri_exp(np.minimum(log_union - np.log(classes - 1), -np.log(2.0))))


def log_wrong_from_score(score: np.ndarray, classes: int) -> np.ndarray:
    """The inverse of `margin_score`, cut off at log(1 - 1/classes)."""
    return np.minimum(np.log(classes - 1) + scipy.special.log_ndtr(-score), np.log1p(-1.0 / classes))
