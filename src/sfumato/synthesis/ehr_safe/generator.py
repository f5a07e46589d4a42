"""The generator: from normal numbers to latent vectors, through residual blocks with layer norm."""

import torch
from torch import Tensor, nn

_BLOCKS = 4


class Generator(nn.Module):
    """z [n, width] -> latent vectors [n, latent] in (-1, 1), as the encoder's last activation gives them.

    Args:
        noise: numbers that a vector is made of.
        hidden: width of the blocks.
        latent: of the latent vector.
    """

    def __init__(self, noise: int, hidden: int, latent: int) -> None:
        super().__init__()
        self.noise = noise
        self.begin = nn.Linear(noise, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden)) for _ in range(_BLOCKS)
        )
        self.end = nn.Sequential(nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, latent), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Latent vectors."""
        x = self.begin(z)
        for block in self.blocks:
            x = x + block(x)
        return self.end(x)

    def drawn(self, count: int, generator: torch.Generator) -> Tensor:
        """So many latent vectors."""
        return self(torch.randn(count, self.noise, generator=generator))
