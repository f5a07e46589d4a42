"""The first release: tables of all numbers and shares of all columns, from one noisy sum of the patients' counts.

- **Unit.** A patient with all visits, added or removed.
- **Sensitivity.** Each patient adds one vector (`counting`), cut to the L2 norm `Tables.clip_norm`, whatever it holds.
- **Noise.** Normal, with std noise_multiplier × clip_norm on every entry, once.
- **Event.** `Gaussian(noise_multiplier)`: everybody is counted, nobody is sampled.
- **Edges.** No observation at all leaves noise, of which even shares are made where nothing is left of it.

What is made of the sum is post-processing. Every field of `Scales` is public or follows from the sum:

| field | from |
| --- | --- |
| schema | public |
| static, temporal, gap | values: the public grid; widths: noisy shares of the cells |
| stochastic | the plan |
| summed | no summaries are counted |
| horizon | the plan: public |
| pace | mean of the noisy table of gaps |
| visits | mean of the noisy table of the number of visits |
| static_rates | noisy totals of a column's block by that of the number of visits, which everybody has |
| rates | noisy numbers of visits with a value, half of the noise's std at the least, by that of all visits |
| static_shares, shares | noisy shares of the categories |
| empty | whether more than 1 % of the visits are without any value, by the noisy counts |
"""

from dataclasses import dataclass

import numpy as np
import torch

from sfumato._random import RandomSource
from sfumato.accounting import Event
from sfumato.clipping import ClippedSum, ConstantClipNorm, Layout
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.runs import Run
from sfumato.synthesis.ehr_safe.normalise import Normaliser
from sfumato.synthesis.ehr_safe.private.counting import SEEN, Counting
from sfumato.synthesis.ehr_safe.private.grids import Grid
from sfumato.synthesis.ehr_safe.private.projection import shares_of
from sfumato.synthesis.ehr_safe.scales import ADDED, Scales

PHASE = "tables"
"""The name of the release, in a run and in its ledger."""

_CUT = 0.4  # of the largest norm: half of the columns are missing for most patients, and numbers lie in several cells
_EMPTY = 0.01
_BLOCK = 1024  # patients whose vectors are made at once


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The release.

    Attributes:
        counting: how a patient becomes a vector.
        noise_multiplier: std of the noise by the clip norm.
        horizon: public, for the scales.
    """

    counting: Counting
    noise_multiplier: float
    horizon: float

    @property
    def clip_norm(self) -> float:
        """To which each patient's vector is cut."""
        return _CUT * self.counting.largest_norm

    @property
    def _mechanism(self) -> IndependentGaussian:
        return IndependentGaussian(noise_multiplier=self.noise_multiplier)

    @property
    def _least(self) -> float:
        """Visits with a value of a column, as far as is known at the least: half of the noise's std."""
        entry = self._mechanism.noise_std(self.clip_norm) / 2
        return entry * self.counting.max_visits / self.counting.seen_weight

    def event(self) -> Event:
        """What it costs one patient."""
        return self._mechanism.single(1.0)

    def clipped_sum(self, data: EHRDataset) -> torch.Tensor:
        """The sum of the patients' vectors, each cut to the clip norm, float64 [entries]; without noise.

        Args:
            data: of `first_visits`.
        """
        size = sum(self.counting.sizes().values())
        total = ClippedSum(
            ConstantClipNorm(clip_norm=self.clip_norm), self.clip_norm, Layout(["counts"], [torch.Size([size])])
        )
        for start in range(0, len(data), _BLOCK):
            part = data.take(np.arange(start, min(start + _BLOCK, len(data))))
            total.add_rows(torch.from_numpy(self.counting.vectors(part)))
        return total.total

    def release(self, run: Run, data: EHRDataset) -> Scales:
        """Scales from the noisy sum, as a phase of a run that has started."""

        def draw(source: RandomSource) -> dict[str, torch.Tensor]:
            noisy = self._mechanism.release(self.clipped_sum(data), scale=self.clip_norm, round=0, source=source)
            return {"counts": noisy}

        public = {"clip_norm": self.clip_norm, "noise_std": self._mechanism.noise_std(self.clip_norm)}
        return self.scales(run.release(PHASE, self.event(), draw, **public)["counts"].numpy())

    def scales(self, noisy: np.ndarray) -> Scales:
        """What is made of a noisy sum, float64 [entries]; nothing private is read here."""
        counting, blocks = self.counting, self.counting.blocks(noisy)
        grids, schema = counting.grids, counting.schema
        everybody = max(blocks["visits"].sum(), 1.0)

        def table(name: str, grid: Grid) -> Normaliser:
            return Normaliser(grid.values, _ends(shares_of(blocks[name])), grid.continuous)

        def tables(name: str, of: tuple[Grid, ...]) -> list[Normaliser]:
            return [table(f"{name}.{place}", grid) for place, grid in enumerate(of)]

        def shares(name: str, count: int) -> np.ndarray:
            return np.concatenate([np.zeros(0), *(shares_of(blocks[f"{name}.{place}"]) for place in range(count))])

        numbers, categories = len(schema.static_numeric), len(schema.static_categorical)
        there = [blocks[f"static.{place}"].sum() / everybody for place in range(numbers)]
        known = [blocks[f"static category.{place}"].sum() / everybody for place in range(categories)]
        seen, empty, visits = blocks[SEEN][:-2], blocks[SEEN][-2], max(blocks[SEEN][-1], 1.0)
        return Scales(
            schema=schema,
            static=(
                *tables("static", grids.static),
                *(table(name, getattr(grids, name)) for name in ("visits", "start", "end")),
            ),
            temporal=tuple(tables("number", grids.temporal)),
            gap=table("gap", grids.gap),
            stochastic=True,
            summed=False,
            horizon=self.horizon,
            pace=float(shares_of(blocks["gap"]) @ grids.gap.values),
            visits=float(shares_of(blocks["visits"]) @ grids.visits.values),
            static_rates=np.clip(np.array([*there, *(1.0,) * ADDED, *known]), 0.0, 1.0),
            rates=np.clip(np.maximum(seen, self._least) / visits, 0.0, 1.0),
            static_shares=shares("static category", categories),
            shares=shares("category", len(schema.temporal_categorical)),
            empty=bool(empty > _EMPTY * visits),
        )


def _ends(shares: np.ndarray) -> np.ndarray:
    """Where intervals of these widths end, the last at 1."""
    ends = np.minimum(np.cumsum(shares), 1.0)
    ends[-1] = 1.0
    return ends
