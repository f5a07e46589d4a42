"""The part that all three are made of: a recurrent network with a linear map of each of its states."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    """Sequences [n, T, inputs] -> [n, T, outputs].

    Args:
        inputs, outputs: numbers of a step.
        hidden: width of the recurrent layers.
        layers: how many.
        cell: "gru" or "lstm".
        both_ways: also backward in time.
        squashed: outputs in (0, 1).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: int,
        layers: int,
        *,
        cell: Literal["gru", "lstm"] = "gru",
        both_ways: bool = False,
        squashed: bool = True,
    ) -> None:
        super().__init__()
        kind = nn.GRU if cell == "gru" else nn.LSTM
        self.states = kind(inputs, hidden, layers, batch_first=True, bidirectional=both_ways)
        self.out = nn.Linear(hidden * (2 if both_ways else 1), outputs)
        self._squashed = squashed

    def features(self, x: Tensor) -> Tensor:
        """States of the last layer, [n, T, hidden], twice as many both ways."""
        return self.states(x)[0]

    def read_out(self, features: Tensor) -> Tensor:
        """Outputs of `features`."""
        out = self.out(features)
        return torch.sigmoid(out) if self._squashed else out

    def forward(self, x: Tensor) -> Tensor:
        """Outputs."""
        return self.read_out(self.features(x))


class SequenceNetworks(nn.Module, ABC):
    """The networks of a GAN of sequences; what is called `discriminator` has served when all is learned."""

    @abstractmethod
    def drawn(self, count: int, outcome: Tensor, generator: torch.Generator) -> Tensor:
        """New frames, float [count, steps, width] in (0, 1).

        Args:
            count: of patients.
            outcome: one-hot [count, categories]; a GAN without a condition does not look at it.
            generator: draws the noise.
        """

    conditional = False
    """Whether it looks at the outcome."""

    def kept(self) -> dict[str, Tensor]:
        """The weights of what generates."""
        parts = {name: value for name, value in self.state_dict().items() if not name.startswith("discriminator")}
        return {name: value.detach().clone() for name, value in parts.items()}


def repeated(rows: Tensor, steps: int) -> Tensor:
    """Rows [n, k] at every step, [n, steps, k]."""
    return rows[:, None].expand(-1, steps, -1)
