"""The generators that a model's own draws come from, dropout's above all."""

import torch


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout and the like draw from."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
