"""Strategies as matrices and all patterns of participation, for short runs: what tests compare with."""

from collections.abc import Iterator

import numpy as np

from sfumato.accounting import Participation
from sfumato.accounting.strategies import BandedToeplitz, BufferedToeplitz, Independent, InverseBanded, Strategy

# Every pattern of participations, for brute force on short runs.


def patterns(limits: Participation) -> Iterator[tuple[int, ...]]:
    """Every set of rounds that one unit may take part in, the empty one included; exponentially many."""
    stack: list[tuple[int, ...]] = [()]
    while stack:
        pattern = stack.pop()
        yield pattern
        if len(pattern) < limits.most:
            first = pattern[-1] + limits.period if pattern else 0
            stack.extend((*pattern, position) for position in range(first, limits.rounds))


# Strategies as matrices, for short runs: the independent computation that tests compare with.


def toeplitz(column: np.ndarray, rounds: int) -> np.ndarray:
    """Lower triangular, with this first column, zero where it ends."""
    padded = np.concatenate([column, np.zeros(rounds)])
    return np.array([[padded[t - j] if t >= j else 0.0 for j in range(rounds)] for t in range(rounds)])


def matrix(strategy: Strategy, rounds: int) -> np.ndarray:
    """C, straight from the definition of each strategy."""
    match strategy:
        case Independent():
            return np.eye(rounds)
        case BandedToeplitz(coefficients, scales):
            return toeplitz(np.array(coefficients), rounds) * (1.0 if scales is None else np.array(scales)[:rounds])
        case BufferedToeplitz(scales, decays):
            powers = [[sum(w * d ** (t - 1) for w, d in zip(scales, decays))] for t in range(1, rounds)]
            return toeplitz(np.concatenate([[1.0], *powers]), rounds)
        case InverseBanded(inverse):
            return np.linalg.inv(toeplitz(np.array(inverse), rounds))
    raise AssertionError(strategy)


def prefix_variance(strategy: Strategy, rounds: int) -> np.ndarray:
    """Squared norms of the rows of A C^-1."""
    released = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(matrix(strategy, rounds))
    return (released**2).sum(axis=1)


def nodes(rounds: int, real: int | None = None) -> np.ndarray:
    """float [nodes, rounds], which rounds are below each node of a tree of this many rounds; of the last ones only the
    first `real` count, and nodes above none of them are left out.
    """
    rows = []
    for height in range(rounds.bit_length()):
        for start in range(0, rounds - (1 << height) + 1, 1 << height):
            rows.append([float(start <= t < start + (1 << height)) for t in range(rounds)])
    below = np.array(rows)[:, : rounds if real is None else real]
    return below[below.any(axis=1)]


def squared_sensitivity(released: np.ndarray, limits: Participation) -> float:
    """The most that one unit moves, over all patterns; contributions as aligned as the inner products ask for."""
    gram = np.abs(released.T @ released)
    return max(float(gram[np.ix_(pattern, pattern)].sum()) for pattern in patterns(limits))
