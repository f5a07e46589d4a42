"""The generators that a model's own draws come from, dropout's above all."""

import torch
from torch import Tensor, nn


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout and the like draw from."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def draws(model: nn.Module, *inputs: Tensor) -> bool:
    """Whether a forward pass takes random numbers; they are taken back."""
    device = inputs[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else [], device_type="cuda"), torch.no_grad():
        before = states(device)
        model(*inputs)
        return not all(torch.equal(*pair) for pair in zip(before, states(device), strict=True))


def states(device: torch.device) -> list[Tensor]:
    """Where the generators are that a model on this device draws from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states
