"""A control: every column drawn by itself, so that each is as it should be and none depends on another.

It passes whatever looks at one column at a time. Pairs of columns, the detector and the classifiers are to find it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis.synthesizer import BLOCK, in_blocks


@dataclass(frozen=True, eq=False)
class IndependentColumns:
    """Draws each cell from its column's real cells, missing ones among them; no guarantee.

    The number of visits, the first visit's time and the times between visits are drawn from the real ones, too.

    Attributes:
        data: whose cells.
    """

    data: EHRDataset

    def sample(self, count: int, *, seed: int | None = None, block: int = BLOCK) -> Iterator[EHRDataset]:
        """New records, block by block.

        Args:
            count: of patients.
            seed: the same records again; None draws from the operating system.
            block: patients in a block; the last one may have fewer.
        """
        return in_blocks(self._made, count, seed=seed, block=block, progress=None)

    def _made(self, first: int, size: int, generator: torch.Generator) -> EHRDataset:
        data = self.data

        def drawn(values: np.ndarray, rows: int) -> np.ndarray:
            columns = [column[torch.randint(len(column), (rows,), generator=generator).numpy()] for column in values.T]
            return np.stack(columns, axis=1) if columns else np.empty((rows, 0), values.dtype)

        lengths, starts = drawn(np.column_stack([data.lengths, data.times[data.offsets[:-1]]]), size).T
        offsets = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
        visits, owners = int(offsets[-1]), np.repeat(np.arange(size), lengths.astype(np.int64))
        real = np.delete(np.diff(data.times, prepend=0.0), data.offsets[:-1])
        gaps = drawn(real[:, None], visits)[:, 0] if len(real) else np.ones(visits)
        gaps[offsets[:-1]] = 0.0
        total = np.cumsum(gaps)
        return EHRDataset(
            schema=data.schema,
            ids=tuple(f"synthetic-{first + place + 1:06}" for place in range(size)),
            static_numbers=drawn(data.static_numbers, size),
            static_codes=drawn(data.static_codes, size),
            offsets=offsets,
            times=starts[owners] + total - total[offsets[:-1]][owners],
            numbers=drawn(data.numbers, visits),
            codes=drawn(data.codes, visits),
        )
