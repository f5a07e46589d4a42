"""Features of pictures that are public: computed once by a fixed module, reduced by what inputs show, kept in .cache.

Where only labels are secret, everything that is computed from the pictures of all rows is public: means, principal
axes, clusters. Where a picture is secret, too, its features must depend on it alone: `kept` computes such features,
`principal` does not.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from sfumato.data import to_tensor

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "public_features"
_AT_ONCE = 1000
_LEAST = 1e-12


def kept(name: str, inputs: np.ndarray, function: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """Features in half precision, [n, d], from the cache or computed.

    Args:
        name: of the function, in the file's name.
        inputs: pictures, uint8 [n, H, W, C], or features of them, float [n, d].
        function: maps what `to_tensor` makes of m of them to [m, …], each by itself.
    """

    def compute() -> np.ndarray:
        found = []
        with torch.inference_mode():
            for start in range(0, len(inputs), _AT_ONCE):
                rows = function(to_tensor(inputs[start : start + _AT_ONCE]))
                found.append(rows.flatten(1).numpy().astype(np.float16))
        return np.concatenate(found)

    return cached(f"{name}-{_digest(inputs)}", compute)


def principal(
    name: str, train: np.ndarray, other: np.ndarray, count: int, *, channels: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two parts on the principal axes of the first, float32 [n, count] each; see `Axes`."""
    file = f"{name}-axes-{count}-{channels}-{_digest(train)}"
    if not (CACHE / f"{file}.npy").exists():  # the axes take longer than the scores
        axes = Axes.of(train, count, channels=channels)
        cached(f"{file}-{_digest(other)}", lambda: axes.scores(other))
        cached(file, lambda: axes.scores(train))
    return np.load(CACHE / f"{file}.npy"), np.load(CACHE / f"{file}-{_digest(other)}.npy")


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()[:16]


def cached(name: str, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """What is kept under a name that holds everything it is computed from, or computed now."""
    file = CACHE / f"{name}.npy"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}.npy")
        np.save(partial, compute())
        partial.replace(file)
    return np.load(file, mmap_mode="r")


@dataclass(frozen=True)
class Axes:
    """Principal axes of public features, largest variance first.

    Attributes:
        mean: float32 [d].
        deviations: float32 [d], by which features are divided first.
        directions: float32 [d, axes].
        scales: float32 [axes]; scores are divided by them.
    """

    mean: np.ndarray
    deviations: np.ndarray
    directions: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, count: int, *, channels: int | None = None) -> Self:
        """Those of 6,000 rows at most, evenly taken.

        A score is divided by the root of its standard deviation, half-way between as it is and whitened, and all of
        them by one number, so that they have a mean square of 1.

        Args:
            features: float [n, d].
            count: of axes.
            channels: so many blocks of d / channels features have one standard deviation each, by which they are
                divided first; None leaves features as they are.
        """
        rows = features[:: max(1, len(features) // 6000)].astype(np.float32)
        mean = rows.mean(axis=0)
        rows -= mean
        deviations = np.ones_like(mean)
        if channels is not None:
            each = np.sqrt(np.square(rows).reshape(len(rows), channels, -1).mean(axis=(0, 2)))
            deviations = np.repeat(np.maximum(each, _LEAST), len(mean) // channels)
            rows /= deviations
        variances, directions = np.linalg.eigh(rows.T @ rows / len(rows))
        variances, directions = variances[::-1][:count], directions[:, ::-1][:, :count]
        roots = np.maximum(variances, _LEAST) ** 0.25
        size = np.sqrt(np.mean(variances / roots**2))
        return cls(mean, deviations, np.ascontiguousarray(directions), (roots * size).astype(np.float32))

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Of other rows, float32 [n, axes]."""
        parts = [
            (features[start : start + _AT_ONCE].astype(np.float32) - self.mean)
            / self.deviations
            @ self.directions
            / self.scales
            for start in range(0, len(features), _AT_ONCE)
        ]
        return np.concatenate(parts)
