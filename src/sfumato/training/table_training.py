"""How tables of embeddings train under noise: a part of plans that train on examples.

- `DenseTables`: noise on every row in every step. Time and memory of a step grow with the tables.
- `DeferredTables`: a row takes its noise when it is next read, with the law of dense noise (`mechanisms.deferred`).
- `SelectedTables` (DP-AdaFEST): noisy counts of how many examples read a row select the rows that a step changes, and
  only these get gradients and noise. What leaves a step is small, and rows that are seldom read do not learn.

Selection. An example's counts are one for each row that it reads, over all tables, scaled to norm C₁ at most. Its
gradient is clipped to C₂ as always. Both sums are released on one and the same sample with noise of multipliers σ₁ and
σ₂: together they cost what one Gaussian sum of multiplier z costs, z⁻² = σ₁⁻² + σ₂⁻². Which rows lie above the
threshold, and every use of their noisy gradients, is post-processing. Rows that were not read are above it with the
probability that noise alone is: how many of them is chosen, and the threshold follows.

>>> selection = SelectedTables(count_noise=5.0)
>>> selected, summed = selection.multipliers(1.0)
>>> round(selected, 3), round(summed, 3), round((selected**-2 + summed**-2) ** -0.5, 6)
(5.099, 1.02, 1.0)
>>> round(selection.threshold(selected, rows=10_000_000))  # 10 false survivors of ten million
24

References:
    Ghazi, Huang, Kamath, Kumar, Manurangsi, Sinha, Zhang: Sparsity-Preserving Differentially Private Training of Large
    Embedding Models. NeurIPS 2023, arXiv 2311.08357 (DP-AdaFEST, Algorithm 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import scipy
from sfumato._parts import Kinds


@dataclass(frozen=True, kw_only=True)
class DenseTables:
    """Noise on every row in every step."""


@dataclass(frozen=True, kw_only=True)
class DeferredTables:
    """A row takes its noise when it is next read: the law and the cost of noise on every row in every step.

    Attributes:
        in_place: train in the tables of the given module, which may lie in a memory-mapped file, instead of in a copy
            of them: half the memory. Its rows lack noise while the run goes on, and at its end they are those of the
            released model. After an error they hold NaN, as rows that lack noise would show which were read; make the
            module anew to resume.
    """

    in_place: bool = False


@dataclass(frozen=True, kw_only=True)
class SelectedTables:
    """Noisy counts select the rows that a step changes (DP-AdaFEST).

    Attributes:
        count_norm: C₁, the norm that an example's counts are scaled to at most, > 0.
        count_noise: the noise multiplier of the counts divided by that of the gradients, > 0.
        false_survivors: expected number of rows that were not read and that a step changes, > 0.
        in_place: as for deferred tables; after an error the tables are those of the last whole step, or of a part of
            the one after it.
    """

    count_norm: float = 1.0
    count_noise: float = 5.0
    false_survivors: float = 10.0
    in_place: bool = False

    def __post_init__(self) -> None:
        _check.positive(count_norm=self.count_norm, count_noise=self.count_noise, false_survivors=self.false_survivors)

    def multipliers(self, noise_multiplier: float) -> tuple[float, float]:
        """σ₁ and σ₂ where a step costs what a Gaussian sum of this multiplier costs."""
        summed = noise_multiplier * math.sqrt(1.0 + self.count_noise**-2)
        return self.count_noise * summed, summed

    def threshold(self, count_multiplier: float, *, rows: int) -> float:
        """The count above which a row survives, from public numbers only.

        Args:
            count_multiplier: σ₁.
            rows: of all tables together.

        Raises:
            InputError: half of the rows or more would survive by noise alone.
        """
        if count_multiplier == 0:
            return 0.0
        share = self.false_survivors / rows
        if share >= 0.5:
            raise InputError(
                f"tables.false_survivors must be below half of the {rows:,} rows, got {self.false_survivors:g}; "
                "use fewer, or tables=deferred"
            )
        return -count_multiplier * self.count_norm * float(scipy.special.ndtri(share))


TableTraining = DenseTables | DeferredTables | SelectedTables

TABLES = Kinds[TableTraining]({"dense": DenseTables, "deferred": DeferredTables, "adafest": SelectedTables})
"""By the word that a plan's tables may be given as."""
