"""A control: copies of training patients, which are as faithful as records can be, and as little private.

Every attack is to find it. One that does not is too weak for these records, and says nothing about others either.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis.synthesizer import BLOCK, in_blocks


@dataclass(frozen=True, eq=False)
class Copies:
    """Gives real patients under new names: no guarantee, and no protection at all.

    Attributes:
        data: whom it copies.
    """

    data: EHRDataset

    def sample(self, count: int, *, seed: int | None = None, block: int = BLOCK) -> Iterator[EHRDataset]:
        """Patients at random, block by block; in a block no one comes again before all have come.

        Args:
            count: of patients.
            seed: the same records again; None draws from the operating system.
            block: patients in a block, except for the last one.
        """

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            parts: list[EHRDataset] = []
            while left := size - sum(map(len, parts)):
                parts.append(self.data.take(torch.randperm(len(self.data), generator=generator)[:left].numpy()))
            return joined(parts, first)

        return in_blocks(made, count, seed=seed, block=block, progress=None)


def joined(parts: Sequence[EHRDataset], first: int = 0) -> EHRDataset:
    """All patients of data sets of one schema, one after the other, as synthetic-000001 and so on.

    Args:
        parts: at least one; the same patient may be in several.
        first: how many names are taken already.
    """

    def rows(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    lengths = rows("lengths")
    return EHRDataset(
        schema=parts[0].schema,
        ids=tuple(f"synthetic-{first + place + 1:06}" for place in range(len(lengths))),
        static_numbers=rows("static_numbers"),
        static_codes=rows("static_codes"),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=rows("times"),
        numbers=rows("numbers"),
        codes=rows("codes"),
    )
