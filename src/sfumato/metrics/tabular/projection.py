"""Real and synthetic records as points of a plane, for the eye: t-SNE of both together.

Where the two clouds do not cover each other, something is missing or made up. Distances between clouds, and their
sizes, mean nothing. Not private: a point is a record.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError

_DIMENSIONS = 50  # before t-SNE: what principal components keep
_FEWEST = 5
_STEPS = 500


@dataclass(frozen=True)
class Projection:
    """Points of both sides, (x, y) each, in the order of the rows that were given."""

    real: tuple[tuple[float, float], ...]
    synthetic: tuple[tuple[float, float], ...]

    def to_json(self) -> dict[str, Any]:
        """The points by their side."""
        return asdict(self)


def project(real: np.ndarray, synthetic: np.ndarray, rng: np.random.Generator) -> Projection:
    """The plane of both.

    Args:
        real, synthetic: finite floats [n, p] and [m, p] on one scale, at least 5 rows each; time grows faster than
            their number, a thousand take seconds.
        rng: seeds what t-SNE draws.

    Raises:
        InputError: too few rows.
    """
    if min(len(real), len(synthetic)) < _FEWEST:
        raise InputError(f"a projection needs {_FEWEST} records on either side, got {len(real)} and {len(synthetic)}")
    from sklearn.decomposition import PCA  # late: they take a second to import
    from sklearn.manifold import TSNE

    rows = np.concatenate([real, synthetic]).astype(np.float64)
    seed = int(rng.integers(2**31))
    if rows.shape[1] > _DIMENSIONS:
        rows = PCA(min(_DIMENSIONS, len(rows)), random_state=seed).fit_transform(rows)
    if not np.ptp(rows, axis=0).any():
        points = np.zeros((len(rows), 2))  # one and the same record, which has no neighbours to keep
    else:
        init = "pca" if rows.shape[1] > 1 else "random"
        near = min(30.0, (len(rows) - 1) / 3)
        plane = TSNE(init=init, perplexity=near, max_iter=_STEPS, random_state=seed)
        points = plane.fit_transform(rows)
    pairs = tuple((float(x), float(y)) for x, y in points)
    return Projection(pairs[: len(real)], pairs[len(real) :])
