"""A recurrent GAN that has learned, and the records that it generates."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema
from sfumato.synthesis.baselines.frames import Frames
from sfumato.synthesis.baselines.recurrent import SequenceNetworks
from sfumato.synthesis.baselines.settings import BaselineSettings
from sfumato.synthesis.baselines.together import joined
from sfumato.synthesis.blocks import BLOCK, in_blocks
from sfumato.synthesis.ehr_safe.given import Given
from sfumato.synthesis.steps import under


@dataclass(frozen=True, eq=False)
class BaselineSynthesizer:
    """Generates records.

    Attributes:
        settings: of the plan.
        frames: what the networks' numbers mean.
        networks: that learned.
    """

    settings: BaselineSettings
    frames: Frames
    networks: SequenceNetworks

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.frames.scales.schema

    def sample(
        self,
        count: int,
        *,
        given: Mapping[str, Any] | None = None,
        seed: int | None = None,
        block: int = BLOCK,
        progress: Callable[[int, int], None] | None = None,
    ) -> Iterator[EHRDataset]:
        """New records, block by block.

        Args:
            count: of patients.
            given: conditions on static columns, the outcome among them: a category, or (lowest, highest) of a number;
                records that do not meet them are dropped.
            seed: the same records again; None draws from the operating system.
            block: patients in a block, the last one apart.
            progress: is told how many there are, and of how many.

        Raises:
            InputError: a condition names no column or category, or next to no record meets it.
        """
        conditions = Given(self.frames.scales.schema, given or {})

        def made(first: int, size: int, generator: torch.Generator) -> EHRDataset:
            def draw(count: int) -> tuple[EHRDataset, np.ndarray, np.ndarray]:
                outcome = self.frames.outcome_drawn(count, generator)
                frames = self.networks.drawn(count, outcome, generator)
                drawn = self.frames.records(frames, outcome if self.networks.conditional else None, generator)
                return drawn, drawn.static_numbers, drawn.static_codes

            return joined([drawn.take(places) for drawn, places in conditions.kept(size, draw)], first)

        return in_blocks(made, count, seed=seed, block=block, progress=progress)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a file that holds all of it."""
        scales, facts = self.frames.state()
        tensors = {f"scale.{name}": value for name, value in scales.items()}
        tensors |= {f"network.{name}": value for name, value in self.networks.kept().items()}
        return tensors, {"settings": self.settings.to_json(), "frames": facts}

    @classmethod
    def of(
        cls, settings: BaselineSettings, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> "BaselineSynthesizer":
        """The synthesizer of a `state`, with the settings that it names."""
        frames = Frames.from_state(under("scale", tensors), facts["frames"])
        networks = settings.networks(frames)
        networks.load_state_dict(under("network", tensors), strict=False)
        return cls(settings, frames, networks)
