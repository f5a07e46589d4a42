"""Inversion: which picture does a decoder make of a released direction?

An attacker who has the released network trains a decoder on public pictures and their embeddings, and applies it to
what was released. A class centre by itself often gives a face that resembles its person; the direction of a group gives
the face of no one. What a decoder makes is an example of an attack, no bound: a guarantee stands in a statement.

The decoder has the form of Meng et al.: a dense layer to 512 maps of 1/32 of the picture's side, then five transposed
convolutions (4×4, stride 2) to 256, 128, 64, 32 and 3 channels, with batch norm and ReLU between, and a sigmoid.

>>> decoder = InversionDecoder(128)
>>> decoder.dense.out_features, decoder(torch.zeros(2, 128)).shape
(8192, torch.Size([2, 3, 128, 128]))

References:
    Meng, Zhou, Li, Wang, Cheng: Improving Federated Learning Face Recognition via Privacy-Agnostic Clusters. ICLR 2022
    (there 512 dimensions, 128×128 pixels, L1 loss, Adam at 1e-3, divided by ten every ten of 50 epochs).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from sfumato import _check
from sfumato._check import InputError
from sfumato.metrics.neighbours import directions

_CHANNELS = (512, 256, 128, 64, 32)
_SHRINKS = 32  # five strides of 2

Progress = Callable[[int, int], None]
"""Called with (epochs done, epochs in all)."""


class InversionDecoder(nn.Module):
    """From an embedding to a picture.

    Args:
        embedding_dim: of the embeddings, >= 1.
        image_size: side of the square picture, a multiple of 32.
        channels: of the picture, >= 1.
    """

    def __init__(self, embedding_dim: int, image_size: int = 128, channels: int = 3) -> None:
        super().__init__()
        _check.whole(embedding_dim=embedding_dim, image_size=image_size, channels=channels)
        if image_size % _SHRINKS:
            raise InputError(f"image_size must be a multiple of {_SHRINKS}, got {image_size}")
        self.embedding_dim, self.image_size, self.channels = embedding_dim, image_size, channels
        self.side = image_size // _SHRINKS
        self.dense = nn.Linear(embedding_dim, _CHANNELS[0] * self.side**2)
        layers: list[nn.Module] = []
        for inputs, outputs in zip(_CHANNELS, (*_CHANNELS[1:], channels), strict=True):
            layers.append(nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1))
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-2], nn.Sigmoid())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map unit embeddings, float [n, embedding_dim], to pictures in [0, 1], float [n, channels, side, side]."""
        return self.layers(self.dense(inputs).view(-1, _CHANNELS[0], self.side, self.side))


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """How a decoder is trained.

    Attributes:
        epochs: passes over the public pictures, >= 1.
        batch_size: about so many pictures at a time, >= 2: fewer than twice as many, and never a single one.
        learning_rate: of Adam, > 0; divided by ten every fifth part of the epochs.
        weight_decay: >= 0.
        seed: of weights and order.
        device: where to train.
    """

    epochs: int = 50
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    seed: int
    device: str = "cpu"

    def __post_init__(self) -> None:
        _check.whole(epochs=self.epochs)
        _check.whole(at_least=2, batch_size=self.batch_size)
        _check.positive(learning_rate=self.learning_rate)
        _check.whole(at_least=0, seed=self.seed)
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"weight_decay must be >= 0, got {self.weight_decay}")

    def fit(
        self, embeddings: np.ndarray, pictures: np.ndarray, *, progress: Progress | None = None
    ) -> tuple[InversionDecoder, list[float]]:
        """Train a decoder on public pictures.

        Args:
            embeddings: of the pictures by the released network, float [n, d]; they are normalised.
            pictures: uint8 [n, side, side, channels].
            progress: called after each epoch.

        Returns:
            the decoder, on the CPU, and the mean L1 error of each epoch, of pictures in [0, 1].

        Raises:
            InputError: shapes do not match, there are fewer than two pictures, or a row is zero or not finite.
        """
        pictures = np.asarray(pictures)
        rows = directions(np.asarray(embeddings), lambda row: f"public embedding {row}")
        if pictures.ndim != 4 or pictures.dtype != np.uint8 or pictures.shape[1] != pictures.shape[2]:
            raise InputError(f"pictures must be square, uint8 [n, side, side, channels], got {pictures.shape}")
        if len(rows) != len(pictures) or len(rows) < 2:
            raise InputError(f"{len(pictures)} pictures need as many embeddings, and at least two, got {len(rows)}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            decoder = InversionDecoder(rows.shape[1], pictures.shape[1], pictures.shape[3])
        decoder.to(self.device).train()
        optimizer = torch.optim.Adam(decoder.parameters(), self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, max(1, self.epochs // 5), 0.1)
        order, errors = np.random.default_rng(self.seed), []
        for epoch in range(self.epochs):
            drawn, total = order.permutation(len(rows)), 0.0
            for batch in np.array_split(drawn, max(1, len(drawn) // self.batch_size)):  # none of a single picture
                wanted = torch.from_numpy(pictures[batch]).to(self.device).permute(0, 3, 1, 2) / 255
                loss = functional.l1_loss(decoder(torch.from_numpy(rows[batch]).to(self.device)), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(batch)
            errors.append(total / len(rows))
            schedule.step()
            if progress is not None:
                progress(epoch + 1, self.epochs)
        return decoder.cpu().eval(), errors


def invert(decoder: InversionDecoder, released: np.ndarray, *, batch_size: int = 64) -> np.ndarray:
    """The pictures that a decoder makes of released vectors.

    Args:
        decoder: trained on public pictures.
        released: float [n, d]; they are normalised.
        batch_size: vectors at a time, >= 1.

    Returns:
        uint8 [n, side, side, channels].

    Raises:
        InputError: a vector is zero or not finite, or of another width.
    """
    _check.whole(batch_size=batch_size)
    rows = directions(np.asarray(released), lambda row: f"released vector {row}")
    if rows.shape[1] != decoder.embedding_dim:
        raise InputError(
            f"the decoder reads {decoder.embedding_dim} dimensions, got {rows.shape[1]}; train one for them"
        )
    side = decoder.image_size
    found, was_training = np.empty((len(rows), side, side, decoder.channels), np.uint8), decoder.training
    decoder.eval()
    try:
        with torch.inference_mode():
            for start in range(0, len(rows), batch_size):
                made = decoder(torch.from_numpy(rows[start : start + batch_size])).permute(0, 2, 3, 1)
                found[start : start + batch_size] = (made * 255).round().to(torch.uint8).numpy()
    finally:
        decoder.train(was_training)
    return found
