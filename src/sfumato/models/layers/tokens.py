"""Sequences of tokens: the check of ids, and how long each sequence is. Id 0 is padding, behind the end."""

import torch

from sfumato._check import InputError

PADDING = 0


def check_tokens(tokens: torch.Tensor, name: str) -> None:
    """Refuse anything but whole numbers [n, T] with T >= 1."""
    if tokens.ndim != 2 or not tokens.shape[1] or tokens.is_floating_point() or tokens.is_complex():
        kind = str(tokens.dtype).removeprefix("torch.")
        raise InputError(
            f"this {name} reads token ids, int64 [n, T], 0 for padding, got {kind} {list(tokens.shape)}; "
            "turn the texts into ids first"
        )


def lengths_of(tokens: torch.Tensor) -> torch.Tensor:
    """Positions up to the last token that is not padding, int64 [n]; 1 for a sequence of padding only."""
    positions = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (positions * (tokens != PADDING)).amax(dim=1).clamp_min(1)


def mean_of(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Mean of float [n, T, d] over the first `lengths` positions, float [n, d]."""
    inside = torch.arange(values.shape[1], device=values.device) < lengths[:, None]
    return (values * inside[:, :, None]).sum(dim=1) / lengths[:, None]
