"""A step of DP-SGD with Opacus: `hooks` (per-example gradients) or `ghost` (norms first, then a second pass)."""

from __future__ import annotations

import dpsgd_models as models
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.layers import DPLSTM
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from opacus.validators import ModuleValidator
from torch import nn
from workload import Gate, config


class Mean(nn.Module):
    """The mean of the losses, or with reduction "none" the losses."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.reduction = name, "mean"

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One number, or [B]."""
        losses = models.losses(self.name, outputs, targets)
        return losses.mean() if self.reduction == "mean" else losses


def sgd(model: nn.Module) -> torch.optim.SGD:
    """What is trained."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], models.LEARNING_RATE)


def main() -> None:
    """Steps until the input ends."""
    given = config()
    name, ghost, device = given["setting"], given["mode"] == "ghost", given["device"]
    inputs, targets = models.batch(name, device, given["times"])
    plain = models.model(name, device, DPLSTM)
    if name == "encoder":
        plain = ModuleValidator.fix(plain).to(device)  # its own attention layer
    noise = models.NOISE_MULTIPLIER if given["noise"] else 0.0
    sizes = {"noise_multiplier": noise, "max_grad_norm": models.CLIP_NORM, "expected_batch_size": len(inputs)}
    criterion = Mean(name)
    if ghost:
        model = GradSampleModuleFastGradientClipping(plain, max_grad_norm=models.CLIP_NORM, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(sgd(model), **sizes)
        criterion = DPLossFastGradientClipping(model, optimizer, criterion)
    else:
        model = GradSampleModule(plain)
        optimizer = DPOptimizer(sgd(model), **sizes)

    def loss() -> float:
        with torch.no_grad():
            return models.losses(name, plain(inputs), targets).mean().item()

    gate = Gate(loss)
    while gate.wait():
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
