"""A control: copies of training patients, which are as faithful as records can be, and as little private.

Every attack is to find it. One that does not is too weak for these records, and says nothing about others either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis.baselines.together import joined
from sfumato.synthesis.blocks import BLOCK, in_blocks


@dataclass(frozen=True, eq=False)
class Copies:
    """Gives real patients under new names: no guarantee, and no protection at all.

    Attributes:
        data: whom it copies.
    """

    data: EHRDataset

    def sample(self, count: int, *, seed: int | None = None, block: int = BLOCK) -> Iterator[EHRDataset]:
        """Patients at random, block by block; in a block nobody comes again before everybody has come.

        Args:
            count: of patients.
            seed: the same records again; None draws from the operating system.
            block: patients in a block, the last one apart.
        """

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            parts: list[EHRDataset] = []
            while left := size - sum(map(len, parts)):
                parts.append(self.data.take(torch.randperm(len(self.data), generator=generator)[:left].numpy()))
            return joined(parts, first)

        return in_blocks(made, count, seed=seed, block=block, progress=None)
