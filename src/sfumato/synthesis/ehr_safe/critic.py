"""The critic of latent vectors, and its loss with a penalty on gradients.

It has neither batch norm nor dropout: the penalty is on the gradient of each vector alone.

References:
    Gulrajani et al. 2017, Improved Training of Wasserstein GANs, arXiv 1704.00028. Equation 3.
"""

import torch
from torch import Tensor, nn


class Critic(nn.Module):
    """Latent vectors [n, latent] -> scores [n], higher for those of real records.

    Args:
        latent: of the latent vector.
        hidden: width of the two hidden layers.
    """

    def __init__(self, latent: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, latent: Tensor) -> Tensor:
        """Scores."""
        return self.layers(latent).squeeze(1)

    def losses(self, real: Tensor, made: Tensor, share: Tensor, *, penalty: float) -> Tensor:
        """The loss of each pair of a real and a made vector, [n].

        Args:
            real, made: [n, latent].
            share: [n, 1] in [0, 1]: where between the two the gradient is measured.
            penalty: weight of the squared distance of its norm from 1.
        """
        between = (share * real + (1 - share) * made).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(self(between).sum(), between, create_graph=True)
        return self(made) - self(real) + penalty * (gradient.norm(dim=1) - 1).square()
