"""The covariance of noise that is correlated over rounds, against matrices that are written out."""

import numpy as np
import pytest
import torch

from sfumato._random import RandomSource
from sfumato.accounting.strategies import BandedToeplitz, BinaryTree, BufferedToeplitz, InverseBanded, Strategy
from sfumato.mechanisms.correlated import CorrelatedGaussian

ROUNDS, DRAWS = 11, 200_000


def released(strategy: Strategy) -> np.ndarray:
    mechanism = CorrelatedGaussian(strategy=strategy, noise_multiplier=0.5, rounds=ROUNDS)
    source = RandomSource.from_os()
    zeros = torch.zeros(DRAWS, dtype=torch.float64)
    return np.stack(
        [mechanism.release(zeros.clone(), scale=2.0, round=round, source=source).numpy() for round in range(ROUNDS)]
    )


def toeplitz(column: np.ndarray) -> np.ndarray:
    return np.array([[column[t - j] if t >= j else 0.0 for j in range(ROUNDS)] for t in range(ROUNDS)])


def tree_rows(strategy: BinaryTree) -> np.ndarray:
    """Residuals as weights on the noise of all nodes: each block's estimate is the best one from the nodes inside it,
    by generalised least squares, not by the recursion that the code uses."""
    size = strategy.restart_every or ROUNDS
    nodes = [
        (tree, height, index)
        for tree in range(-(-ROUNDS // size))
        for height in range(6)
        for index in range(-(-size // 2**height))
    ]
    column = {node: i for i, node in enumerate(nodes)}

    def estimate(tree: int, height: int, index: int, real: int) -> np.ndarray:
        """Of the sum of a block, of whose rounds the first `real` of the tree are not empty."""
        weights = np.zeros(len(nodes))
        if strategy.estimator == "plain":
            weights[column[tree, height, index]] = 1.0
            return weights
        first = index << height
        leaves = range(first, min(first + 2**height, real))
        inside = [
            (h, i)
            for h in range(height + 1)
            for i in range(index << height - h, index + 1 << height - h)
            if i << h < real
        ]
        design = np.array([[float(i << h <= leaf < (i + 1) << h) for leaf in leaves] for h, i in inside])
        target = np.linalg.solve(design.T @ design, np.ones(len(leaves)))  # noise of all nodes is equal
        for (h, i), weight in zip(inside, design @ target, strict=True):
            weights[column[tree, h, i]] = weight
        return weights

    prefixes, anchor = [], np.zeros(len(nodes))
    for round in range(ROUNDS):
        tree, done = divmod(round, size)
        done += 1
        if done == 1 and round:
            anchor = prefixes[-1]
        last = done == size and round < ROUNDS - 1
        if strategy.completion and last:
            prefixes.append(anchor + estimate(tree, (size - 1).bit_length(), 0, size))
            continue
        start, noise = 0, anchor.copy()
        for height in reversed(range(done.bit_length())):
            if done >> height & 1:
                noise += estimate(tree, height, start >> height, size)
                start += 1 << height
        prefixes.append(noise)
    return np.diff(np.array(prefixes), axis=0, prepend=np.zeros((1, len(nodes))))


def buffers() -> np.ndarray:
    late = 0.4 * 0.9 ** np.arange(ROUNDS) + 0.2 * 0.3 ** np.arange(ROUNDS)
    return np.linalg.inv(toeplitz(np.array([1.0, *late])))


SCALES = 1.0 + 0.2 * np.arange(ROUNDS)
CASES = {
    "banded": (BandedToeplitz((1.0, 0.5, 0.3)), np.linalg.inv(toeplitz(np.array([1.0, 0.5, 0.3] + [0.0] * ROUNDS)))),
    "scaled": (
        BandedToeplitz((1.0, 0.5), tuple(SCALES.tolist())),
        np.linalg.inv(toeplitz(np.array([1.0, 0.5] + [0.0] * ROUNDS)) @ np.diag(SCALES)),
    ),
    "blt": (BufferedToeplitz((0.4, 0.2), (0.9, 0.3)), buffers()),
    "bisr": (InverseBanded((1.0, -0.5, -0.125)), toeplitz(np.array([1.0, -0.5, -0.125] + [0.0] * ROUNDS))),
    **{
        f"tree {strategy}": (strategy, tree_rows(strategy))
        for strategy in (
            BinaryTree(estimator="plain"),
            BinaryTree(estimator="efficient"),
            BinaryTree(estimator="plain", restart_every=4),
            BinaryTree(estimator="efficient", restart_every=5),
            BinaryTree(estimator="plain", restart_every=5, completion=True),
            BinaryTree(estimator="efficient", restart_every=3, completion=True),
        )
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_covariance_over_rounds_is_that_of_the_matrix(name: str):
    strategy, rows = CASES[name]
    expected = rows @ rows.T
    noise = released(strategy)
    found = noise @ noise.T / DRAWS
    # The std of an entry is √((Σ_ii Σ_jj + Σ_ij²) / draws). Fresh randomness: 66 entries beyond 6.5 std in 1 of 10^8.
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / DRAWS)
    assert (np.abs(found - expected) / spread).max() < 6.5


@pytest.mark.parametrize("name", CASES)
def test_the_variance_of_prefix_sums_is_what_the_strategy_predicts(name: str):
    strategy, rows = CASES[name]
    sums = np.cumsum(rows, axis=0)
    np.testing.assert_allclose(strategy.prefix_variance(ROUNDS), (sums**2).sum(axis=1), rtol=1e-9)
