"""Yogi: Adam whose second moment moves by a step of the gradient's square and not towards it; torch has none.

Where updates are sparse or noisy, Adam's second moment forgets too fast. As the server's optimiser it is FedYogi, which
begins with moments of `start`² and has no correction of the first steps.

>>> weight = torch.nn.Parameter(torch.zeros(1))
>>> weight.grad = torch.tensor([0.5])
>>> Yogi([weight], 0.01, betas=(0.9, 0.999)).step(); round(weight.item(), 4)  # 0.01 · 0.05 / (√0.000251 + 0.001)
-0.0297

References:
    Zaheer, Reddi, Sachan, Kale, Kumar: Adaptive Methods for Nonconvex Optimization. NeurIPS 2018.
    Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization. ICLR 2021,
    algorithm 2.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch


class Yogi(torch.optim.Optimizer):
    """The optimiser.

    Args:
        params: what it steps.
        lr: learning rate.
        betas: of the moments.
        eps: τ, added to the root of the second moment, which begins at its square.
        weight_decay: added to the gradient, times the weight.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first_decay, second_decay = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["first"] = torch.zeros_like(weight)
                    state["second"] = torch.full_like(weight, group["eps"] ** 2)
                gradient = weight.grad
                if group["weight_decay"]:
                    gradient = gradient.add(weight, alpha=group["weight_decay"])
                square = gradient**2
                state["first"].lerp_(gradient, 1 - first_decay)
                state["second"].addcmul_(square, torch.sign(state["second"] - square), value=second_decay - 1)
                weight.addcdiv_(state["first"], state["second"].sqrt().add_(group["eps"]), value=-group["lr"])
        return loss
