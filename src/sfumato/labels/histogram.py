"""Priors from the labels themselves: a noisy histogram for each group of rows, released before the labels are.

- **Unit.** One label; groups are public: a column of the table, or clusters of public inputs.
- **Sensitivity.** A label that is replaced takes 1 from one count of its group and gives 1 to another: 2 in L1 norm,
  which is twice that of a label that comes or goes.
- **Noise.** Discrete Laplace of rate epsilon / 2 on each count, drawn exactly.
- **Event.** `DiscreteLaplace(epsilon / 2)`, which costs epsilon where labels are replaced. What randomises the labels
  afterwards has an epsilon of its own, and both add up.
- **Edges.** Counts below zero become zero; a group of which nothing is left, such as an empty one, has a uniform prior.

>>> prior_of(np.array([[3, -1, 1], [-2, -1, 0]]), smoothing=0.0).round(3).tolist()
[[0.75, 0.0, 0.25], [0.333, 0.333, 0.333]]
"""

from dataclasses import dataclass

import numpy as np
import torch

from sfumato import _check
from sfumato._random import RandomSource
from sfumato.accounting import DiscreteLaplace
from sfumato.labels.priors import smoothed
from sfumato.mechanisms.discrete_laplace import discrete_laplace
from sfumato.mechanisms.randomized_response.words import require_epsilon
from sfumato.runs import Run

PHASE = "prior"
"""The name of the release, in a run and in its ledger."""


@dataclass(frozen=True, kw_only=True)
class NoisyHistogram:
    """How labels are counted.

    Attributes:
        epsilon: of one label; 0.05 or less leaves most of a budget to the labels.
        smoothing: share of each prior that is spread over all classes evenly.
    """

    epsilon: float
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        _check.between(0, 1, smoothing=self.smoothing)

    def event(self) -> DiscreteLaplace:
        """What all counts together cost one label."""
        return DiscreteLaplace(self.epsilon / 2)

    def release(self, run: Run, counts: np.ndarray) -> np.ndarray:
        """The prior of each group, as a phase of a run.

        Args:
            run: an open run that has started; its ledger gets the cost.
            counts: int64 [groups, classes], how many rows of each group have each label.

        Returns:
            float64 [groups, classes].
        """

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            stream = source.stream("label histogram")
            noise = discrete_laplace(stream, rate=self.epsilon / 2, count=counts.size)
            return {"counts": torch.from_numpy(counts + noise.reshape(counts.shape))}

        noisy = run.release(PHASE, self.event(), draw, groups=len(counts), classes=counts.shape[1])
        return prior_of(noisy["counts"].numpy(), smoothing=self.smoothing)


def prior_of(counts: np.ndarray, *, smoothing: float) -> np.ndarray:
    """The priors that noisy counts give: clipped at zero and normalised; float64 [groups, classes]."""
    kept = np.maximum(counts, 0).astype(np.float64)
    totals = kept.sum(axis=1, keepdims=True)
    even = np.full_like(kept, 1 / kept.shape[1])
    return smoothed(np.divide(kept, totals, out=even, where=totals > 0), smoothing)
