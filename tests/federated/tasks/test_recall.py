"""Embeddings of a data set, in batches."""

import numpy as np
import torch
from torch import nn

from sfumato.data import from_arrays
from sfumato.federated.tasks.verification import embed


class Counts(nn.Module):
    """Notes how many examples it is given at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return x.flatten(1)[:, :3] + 2


def test_large_pictures_go_through_a_cpu_a_few_at_a_time_and_small_ones_together():
    for side, most in ((112, 13), (8, 40)):
        pixels = np.random.default_rng(0).integers(0, 256, (40, side, side, 3), np.uint8)
        data = from_arrays(pixels, labels=np.arange(40) % 4, users=np.arange(40) // 10)
        model = Counts()
        batches = list(embed(model, data, batch_size=64))
        assert [len(vectors) for _, _, vectors in batches] == [40]
        assert (max(model.seen), sum(model.seen)) == (most, 40)
        one_by_one = [vectors for _, _, vectors in embed(model, data, batch_size=1)]
        np.testing.assert_allclose(np.concatenate(one_by_one), batches[0][2], rtol=1e-6)
