"""Local training: one client after the other on one resident copy of the model.

Unit: a client (a user, or a virtual client). The result is Δ = θ_before − θ_after of the shared parameters, nothing
else leaves. Only the parameters, one delta and the optimiser's momentum are held, however many clients there are.

A shared head is a part of θ (FedAvg). With heads of their own (FedEmb; Xu et al. 2022, algorithm 1) every client draws
a fresh one, trains it beside the backbone at `head_lr_scale` times the rate, and throws it away. A model that tells the
next token has none.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.federated.local.heads import glorot_head
from sfumato.federated.local.work import (
    ClientData,
    LocalTraining,
    head_generator,
    orders_of_examples,
)
from sfumato.training.dropout import seed_dropout
from sfumato.training.trainable import Trainable


class ClientTrainer:
    """Trains clients in turn; see the module.

    Args:
        local: what each does.
        trained: the resident copy, with the head if it is shared.
    """

    def __init__(self, local: LocalTraining, trained: Trainable) -> None:
        self.local = local
        self.trained = trained
        self._backbone = trained.parameters[:-1] if local.head == "shared" else trained.parameters

    def delta(self, theta: Tensor, client: ClientData, seed: int) -> tuple[Tensor, Tensor, int]:
        """Train one client from `theta`, float [size]; `client` holds one.

        Returns:
            Δ float [size], valid until the next call; the mean loss over its steps; processed examples.
        """
        local = self.local
        seed_dropout(seed, theta.device)
        self.trained.vector.copy_(theta)
        optimizer: torch.optim.Optimizer | None = None
        head: nn.Parameter | None = self.trained.parameters[-1] if local.head == "shared" else None
        losses = []
        order, _ = orders_of_examples(np.diff(client.offsets), local, np.array([seed]))
        for step, start in enumerate(range(0, len(order), local.batch_size or max(1, len(order)))):
            inputs, labels = client.take(order[start : start + (local.batch_size or len(order))])
            inputs, labels = inputs.to(theta.device), labels.to(theta.device)
            head_only = step < local.reconstruction_steps
            with torch.set_grad_enabled(not head_only):
                outputs = self.trained.model(inputs)
            if head is None and local.head == "own":
                head = nn.Parameter(
                    glorot_head(int(client.classes[0]), outputs.shape[1], head_generator(seed)).to(theta.device)
                )
            if optimizer is None:
                optimizer = self._optimizer(head, theta.device)
            loss = local.loss.mean(outputs, head, labels)  # pyright: ignore[reportArgumentType]
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if head is not None and local.reconstruction_steps and not head_only:
                head.grad = None
            optimizer.step()
            losses.append(loss.detach())
        mean_loss = torch.stack(losses).mean() if losses else torch.zeros(())
        return torch.sub(theta, self.trained.vector), mean_loss, len(order)

    def _optimizer(self, head: nn.Parameter | None, device: torch.device) -> torch.optim.Optimizer:
        rate = self.local.learning_rate
        groups: list[dict[str, Any]] = [{"params": self._backbone, "lr": rate}]
        if head is not None:
            groups.append({"params": [head], "lr": rate * self.local.head_lr_scale})
        return torch.optim.SGD(groups, momentum=self.local.momentum, fused=device.type in ("cpu", "cuda"))
