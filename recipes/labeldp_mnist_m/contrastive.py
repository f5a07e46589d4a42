"""Features of pictures whose labels are private, learned from the pictures alone (SimCLR).

Two changed copies of each picture shall have features that are similar, and others than those of the rest. What a copy
changes is what features forget: place, size, turn and slant a little; colours wholly, as channels are mixed at random
and may change sign; and the background, as part of another picture lies over it. The pictures are public in this
recipe, so such features cost nothing; where a picture is secret they are not to be used.

References:
    Chen, Kornblith, Norouzi, Hinton: A Simple Framework for Contrastive Learning of Visual Representations. 2020.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZE = 28  # pixels a side of a copy
_TURN, _STRETCH, _SLANT, _MOVE = 0.15, 0.12, 0.15, 0.12  # standard deviations; of the half side for a move
_OVER = 0.4  # the largest weight of the picture that lies over a copy


def encoder() -> nn.Module:
    """From [n, 3, 28, 28] to 128 features: 240,000 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128 * 9, 128)),
    )


def trained(pictures: Tensor, *, epochs: int, seed: int, batch: int = 256, temperature: float = 0.2) -> nn.Module:
    """An encoder, in evaluation.

    Args:
        pictures: float [n, 3, h, w] in [-1, 1), all of them public.
        epochs: passes over them.
        seed: of weights, order and copies.
        batch: pictures a step, each with two copies.
        temperature: of cosines in the loss.
    """
    torch.manual_seed(seed)
    network, head = encoder(), nn.Sequential(nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64))
    steps = epochs * (len(pictures) // batch)
    optimizer = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    itself = torch.eye(2 * batch, dtype=torch.bool)
    partner = torch.arange(2 * batch).roll(batch)
    for _ in range(epochs):
        for rows in torch.randperm(len(pictures)).split(batch):
            if len(rows) < batch:
                continue
            two = functional.normalize(head(network(copies(pictures[rows].repeat(2, 1, 1, 1)))))
            cosines = (two @ two.T / temperature).masked_fill(itself, -torch.inf)
            optimizer.zero_grad()
            functional.cross_entropy(cosines, partner).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def copies(pictures: Tensor) -> Tensor:
    """A changed copy of each picture, float [n, 3, 28, 28]."""
    number = len(pictures)
    angle = torch.randn(number) * _TURN
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    change = torch.zeros(number, 2, 2)
    change[:, 0, 0], change[:, 1, 1] = torch.exp(torch.randn(2, number) * _STRETCH)
    change[:, 0, 1] = torch.randn(number) * _SLANT
    move = torch.randn(number, 2, 1) * _MOVE
    affine = torch.cat([turn @ change, move], dim=2)
    grid = functional.affine_grid(affine, [number, 3, SIZE, SIZE], align_corners=False)
    moved = functional.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)
    weight = torch.rand(number, 1, 1, 1) * _OVER
    moved = (1 - weight) * moved + weight * moved[torch.randperm(number)].flip(3)
    mixed = torch.randn(number, 3, 3) / math.sqrt(3)
    coloured = torch.einsum("ncd,ndhw->nchw", mixed, moved - moved.mean((2, 3), keepdim=True))
    return coloured / coloured.std((1, 2, 3), keepdim=True).clamp_min(1e-3)


def plain(pictures: Tensor) -> Tensor:
    """The middle of pictures as the encoder expects them, without any change."""
    edge = (pictures.shape[2] - SIZE) // 2
    inner = pictures[:, :, edge : edge + SIZE, edge : edge + SIZE]
    centred = inner - inner.mean((2, 3), keepdim=True)
    return centred / centred.std((1, 2, 3), keepdim=True).clamp_min(1e-3)


def features(network: nn.Module, pictures: Tensor) -> Tensor:
    """Of each picture by itself, float [n, 128]: the mean direction of it and of its negative."""
    inputs = plain(pictures)
    both = [functional.normalize(network(sign * inputs)) for sign in (1, -1)]
    return (both[0] + both[1]) / 2
