"""Local training: one client after the other on one resident copy of the model.

Unit: a client (a user, or a virtual client). The result is Δ = θ_before − θ_after of the shared parameters, nothing
else leaves. Only the parameters, one delta and the optimiser's momentum are held, however many clients there are.

A shared head is a part of θ (FedAvg). What is a client's own begins anew with every client and is thrown away: a fresh
head (FedEmb; Xu et al. 2022, algorithm 1), or parameters of the module (Federated Reconstruction; Singhal et al. 2021,
algorithm 1).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.federated.local.heads import Means, glorot_head
from sfumato.federated.local.phases import Phase, orders_of_examples
from sfumato.federated.local.work import ClientData, LocalTraining, head_generator, pieces
from sfumato.guard.draws import seed_dropout
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
        losses, examples = self.train(theta, client, seed, self.local.phases)
        mean_loss = torch.stack(losses).mean() if losses else torch.zeros(())
        return torch.sub(theta, self.trained.vector), mean_loss, examples

    def train(self, theta: Tensor, client: ClientData, seed: int, phases: Sequence[Phase]) -> tuple[list[Tensor], int]:
        """Take a client through some phases; the resident copy is then its own, until `Trainable.put_back`.

        Returns:
            the loss of each step; processed examples.
        """
        seed_dropout(seed, theta.device)
        # Statistics of public inputs are those of theta through all steps, as in a batch: `load` tells of new weights,
        # a fused step does not.
        self.trained.load(theta)
        self.trained.renew_own()
        head: nn.Parameter | None = self.trained.parameters[-1] if self.local.head == "shared" else None
        losses, examples = [], 0
        for phase in phases:
            order, _ = orders_of_examples(phase, np.diff(client.offsets), np.array([seed]), self.local.reconstruction)
            examples += len(order)
            optimizer: torch.optim.Optimizer | None = None
            for inputs, labels in _batches(client, order, phase):
                inputs, labels = inputs.to(theta.device), labels.to(theta.device)
                with torch.set_grad_enabled(phase.shared is not None or bool(self.trained.own)):
                    outputs = self.trained.model(inputs)
                if head is None and self.local.head == "own":
                    fresh = glorot_head(int(client.classes[0]), outputs.shape[1], head_generator(seed))
                    head = nn.Parameter(self._begun(fresh.to(theta.device), client, order))
                if optimizer is None:
                    optimizer = self._optimizer(phase, head, theta.device)
                loss = self.local.loss.mean(outputs, head, labels)  # pyright: ignore[reportArgumentType]
                optimizer.zero_grad(set_to_none=True)
                loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])
                optimizer.step()
                losses.append(loss.detach())
        return losses, examples

    def _begun(self, head: Tensor, client: ClientData, order: np.ndarray) -> Tensor:
        """A fresh head as it begins, before any step."""
        if self.local.head_start == "glorot":
            return head
        means = Means(head[None])
        with torch.no_grad():
            for rows in pieces(np.unique(order)):
                inputs, labels = client.take(rows)
                found = self.trained.model(inputs.to(head.device))
                means.add(found[None], labels[None], torch.ones(1, len(rows), dtype=torch.bool))
        return means.heads()[0]

    def _optimizer(self, phase: Phase, head: nn.Parameter | None, device: torch.device) -> torch.optim.Optimizer:
        """SGD on what the phase trains."""
        own, groups = list(self.trained.own.values()), []
        if phase.shared is not None:
            groups.append({"params": self._backbone, "lr": phase.shared})
            if self.local.head == "shared":
                groups.append({"params": [head], "lr": phase.shared * self.local.head_lr_scale})
        if phase.own is not None and self.local.head == "own":
            own = [*own, head]
        if phase.own is not None and own:
            groups.append({"params": own, "lr": phase.own})
        return torch.optim.SGD(groups, momentum=self.local.momentum, fused=device.type in ("cpu", "cuda"))


def _batches(client: ClientData, order: np.ndarray, phase: Phase) -> Iterator[tuple[Tensor, Tensor]]:
    size = phase.batch_size or max(1, len(order))
    for start in range(0, len(order), size):
        yield client.take(order[start : start + size])
