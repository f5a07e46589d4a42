"""The outcome of a noisy vote without bounds: probabilities by integration, divergences by their definition."""

import itertools

import numpy as np
from scipy.special import log_ndtr, logsumexp

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(400)


def log_probabilities(counts, noise_std):
    """log Pr[class i wins] = log of the integral of phi(x) prod_j Phi(x + (n_i - n_j) / std); float [classes]."""
    counts = np.asarray(counts, dtype=float) / noise_std
    x = 30.0 * _NODES
    log_density = -0.5 * x**2 - 0.5 * np.log(2 * np.pi) + np.log(30.0 * _WEIGHTS)
    values = []
    for i, count in enumerate(counts):
        rivals = np.delete(counts, i)
        values.append(logsumexp(log_density + log_ndtr(x[:, None] + count - rivals).sum(axis=1)))
    return np.array(values)


def divergence(log_p, log_q, order):
    return float(logsumexp(order * log_p + (1 - order) * log_q)) / (order - 1)


def neighbours(counts, adjacency):
    """All counts that one agent with one vote can make of these."""
    classes = range(len(counts))
    unit = np.eye(len(counts))
    if adjacency == "replace":
        moves = [unit[j] - unit[i] for i, j in itertools.permutations(classes, 2)]
    else:
        moves = [sign * unit[i] for i in classes for sign in (1, -1)]
    return [tuple(counts + move) for move in moves if (counts + move >= 0).all()]
