"""Sequences of tokens: the check of ids, how long each sequence is, attention. Id 0 is padding, behind the end."""

import torch
from torch import nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato.models.layers.mapped import is_mapped

PADDING = 0


def check_tokens(tokens: torch.Tensor, name: str, *, ids: int | None = None) -> None:
    """Refuse anything but whole numbers [n, T] with T >= 1; on a processor also those from `ids` on."""
    if tokens.ndim != 2 or not tokens.shape[1] or tokens.is_floating_point() or tokens.is_complex():
        kind = str(tokens.dtype).removeprefix("torch.")
        raise InputError(
            f"this {name} reads token ids, int64 [n, T], 0 for padding, got {kind} {list(tokens.shape)}; "
            "turn the texts into ids first"
        )
    if ids is None or tokens.device.type != "cpu" or is_mapped(tokens) or not tokens.numel():
        return
    if int(tokens.max()) >= ids or int(tokens.min()) < 0:
        wrong = int(tokens.max()) if int(tokens.max()) >= ids else int(tokens.min())
        raise InputError(
            f"this {name} knows the ids 0 to {ids - 1}, got {wrong}; build it for the vocabulary of the texts, and "
            "with as many oov_buckets"
        )


def lengths_of(tokens: torch.Tensor) -> torch.Tensor:
    """Positions up to the last token that is not padding, int64 [n]; 1 for a sequence of padding only."""
    positions = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (positions * (tokens != PADDING)).amax(dim=1).clamp_min(1)


def mean_of(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Mean of float [n, T, d] over the first `lengths` positions, float [n, d]."""
    inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
    return (values * inside[:, :, None]).sum(dim=1) / lengths[:, None]


class AttentionBlock(nn.Module):
    """Self-attention and a two-layer network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Map float [n, T, width] to the same shape.

        Args:
            x: a batch of sequences.
            seen: bool, which positions may be attended to: [n, 1, 1, T], the same ones from every position of a
                sequence, or [T, T], those of a column from that of a row.
        """
        rows, steps, width = x.shape
        parts = self.queries_keys_values(self.norm1(x)).view(rows, steps, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if is_mapped(x):  # torch's own is done model by model there
            scores = (queries @ keys.transpose(2, 3)) * queries.shape[3] ** -0.5
            mixed = scores.masked_fill(~seen, -torch.inf).softmax(3) @ values
        else:
            mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
        x = x + self.output(mixed.transpose(1, 2).reshape(rows, steps, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))
