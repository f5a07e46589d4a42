"""Categorical columns through one embedding: one-hot, a shared trunk, a head for each column.

Static columns have an autoencoder of their own, and those of visits another. A missing category is a row of zeros and
counts in no loss. Without the encoder (`embedding=None`) one-hot rows are taken as they are, to compare.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_SURE = 1e-4  # the least that a share of a one-hot row counts as, before its logarithm


class CategoryCodec(nn.Module):
    """Encoder and heads.

    Args:
        sizes: categories of each column, >= 1.
        embedding: width of the embedding, >= 1; None takes one-hot rows.
        hidden: width of the trunk.
    """

    def __init__(self, sizes: Sequence[int], embedding: int | None, hidden: int = 64) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.total = sum(self.sizes)
        self.learns = embedding is not None and bool(self.sizes)
        self.width = embedding if embedding is not None and self.sizes else self.total
        if self.learns:
            self.trunk = nn.Sequential(
                nn.Linear(self.total, hidden), nn.ReLU(), nn.Linear(hidden, self.width), nn.Tanh()
            )
            self.heads = nn.ModuleList(nn.Linear(self.width, size) for size in self.sizes)

    def one_hot(self, codes: Tensor) -> Tensor:
        """Codes int64 [..., columns], -1 for missing -> float [..., categories of all columns]."""
        rows = [
            functional.one_hot(codes[..., place] + 1, size + 1)[..., 1:].float()
            for place, size in enumerate(self.sizes)
        ]
        return torch.cat(rows, dim=-1) if rows else torch.zeros(*codes.shape[:-1], 0)

    def encode(self, codes: Tensor) -> Tensor:
        """Codes int64 [..., columns] -> embeddings [..., width]."""
        rows = self.one_hot(codes)
        return self.trunk(rows) if self.learns else rows

    def logits(self, embeddings: Tensor) -> Tensor:
        """Embeddings [..., width] -> logits [..., categories of all columns], the columns side by side."""
        if self.learns:
            return torch.cat([head(embeddings) for head in self.heads], dim=-1)
        return embeddings.clamp_min(_SURE).log()

    def losses(self, logits: Tensor, codes: Tensor) -> Tensor:
        """Cross-entropy of the observed categories of each row [..., columns], summed over columns, [...]."""
        total = logits.new_zeros(codes.shape[:-1])
        for place, part in enumerate(logits.split(self.sizes, dim=-1)):
            flat, wanted = part.flatten(0, -2), codes[..., place].flatten()
            loss = functional.cross_entropy(flat, wanted, ignore_index=-1, reduction="none")
            total = total + loss.reshape(total.shape)
        return total

    def drawn(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """A category of each column, drawn from its probabilities, int64 [n, columns]."""
        noise = torch.rand(logits.shape, generator=generator).clamp_min(1e-12).log().neg().log().neg()
        parts = [part.argmax(1) for part in (logits + noise).split(self.sizes, dim=1)]  # Gumbel's trick
        return torch.stack(parts, dim=1) if parts else torch.zeros(len(logits), 0, dtype=torch.int64)
