"""Many clients in one batched operation: `torch.func.vmap` over a stack of models.

For models so small that a step is mostly overhead. The arithmetic is that of `ClientTrainer`, client by client: the
same order of examples, the same fresh heads, the same number of steps; short batches are padded and the padding has
weight zero, a client that has finished keeps its parameters. Results agree to float rounding, except that dropout
draws other numbers. Memory is one copy of the trained parameters (and momentum) for each client of the batch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sfumato.data import to_tensor
from sfumato.federated.local.heads import glorot_head
from sfumato.federated.local.work import (
    ClientData,
    LocalTraining,
    head_generator,
    order_generator,
    order_of_examples,
)
from sfumato.training.dropout import seed_dropout
from sfumato.training.trainable import Trainable


class BatchedTrainer:
    """Trains several clients at once; arguments as for `ClientTrainer`."""

    def __init__(self, local: LocalTraining, trained: Trainable) -> None:
        self.local = local
        self.trained = trained
        chosen = {id(p) for p in trained.parameters}
        self._fixed = {n: p.detach() for n, p in trained.model.named_parameters() if id(p) not in chosen}
        self._fixed.update({name: buffer.detach() for name, buffer in trained.model.named_buffers()})
        names = list(trained.layout.names)
        self._backbone = names[:-1] if local.shared_head else names
        self._gradients = vmap(grad_and_value(self._loss), randomness="different")

    def deltas(self, theta: Tensor, clients: Sequence[ClientData], seeds: Sequence[int]) -> tuple[Tensor, Tensor, int]:
        """Train all clients from `theta`, float [size].

        Returns:
            Δ float [clients, size]; the mean loss of each client's steps, [clients]; processed examples.
        """
        local, device = self.local, theta.device
        seed_dropout(seeds[0], device)
        orders = [
            order_of_examples(len(client), local, order_generator(seed))
            for client, seed in zip(clients, seeds, strict=True)
        ]
        if not any(len(order) for order in orders):
            nothing = theta.new_zeros(len(clients))
            return theta.new_zeros(len(clients), theta.numel()), nothing, 0
        inputs, labels, present = (x.to(device) for x in _pad(clients, orders))
        stack = theta.repeat(len(clients), 1)
        trained = self.trained.views(stack)
        rates = [local.learning_rate] * len(self._backbone) + [local.learning_rate * local.head_lr_scale]
        if not local.shared_head:
            trained.append(self._heads(inputs[:1, 0], clients, seeds))
        classes = torch.tensor([client.classes for client in clients], device=device)
        momenta = [torch.zeros_like(p) for p in trained] if local.momentum else None
        size = local.batch_size or inputs.shape[1]
        steps = present.sum(1).add(size - 1) // size
        losses = torch.zeros(len(clients), device=device)
        for step in range(int(steps.max())):
            batch = slice(step * size, (step + 1) * size)
            weights = present[:, batch].to(theta.dtype)
            gradients, loss = self._gradients(trained, inputs[:, batch], labels[:, batch], weights, classes)
            active = step < steps
            losses += torch.where(active, loss, 0.0)
            self._step(step, trained, gradients, momenta, rates, active)
        return theta - stack, losses / steps.clamp(min=1), int(present.sum())

    def _loss(self, trained: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor, classes: Tensor) -> Tensor:
        parameters = dict(zip(self._backbone, trained[:-1], strict=True))
        embeddings = functional_call(self.trained.model, {**self._fixed, **parameters}, (inputs,))
        losses = self.local.loss(embeddings, trained[-1], labels, classes)
        return (losses * weights).sum() / weights.sum().clamp(min=1)

    def _step(
        self,
        step: int,
        trained: list[Tensor],
        gradients: list[Tensor],
        momenta: list[Tensor] | None,
        rates: list[float],
        active: Tensor,
    ) -> None:
        """One step of SGD with momentum for each active client."""
        head_only = step < self.local.reconstruction_steps
        everyone = bool(active.all())
        for i, (parameter, gradient, rate) in enumerate(zip(trained, gradients, rates, strict=True)):
            if self.local.reconstruction_steps and (i == len(trained) - 1) != head_only:
                continue
            if momenta is not None:
                gradient = momenta[i].mul_(self.local.momentum).add_(gradient)
            if not everyone:
                gradient = torch.where(active.view(-1, *[1] * (gradient.dim() - 1)), gradient, 0.0)
            parameter.sub_(gradient, alpha=rate)

    def _heads(self, probe: Tensor, clients: Sequence[ClientData], seeds: Sequence[int]) -> Tensor:
        """Fresh heads, padded to the largest number of classes, [clients, classes, d]."""
        with torch.no_grad():
            dimension = self.trained.model(probe).shape[1]
        heads = torch.zeros(len(clients), max(client.classes for client in clients), dimension)
        for head, client, seed in zip(heads, clients, seeds, strict=True):
            head[: client.classes] = glorot_head(client.classes, dimension, head_generator(seed))
        return heads.to(probe.device)


def _pad(clients: Sequence[ClientData], orders: Sequence[np.ndarray]) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [clients, longest, …], labels [clients, longest] and which of them exist, bool [clients, longest]."""
    lengths = np.array([len(order) for order in orders])
    first = clients[0].inputs
    inputs = np.empty((len(clients), lengths.max(), *first.shape[1:]), first.dtype)
    labels = np.zeros((len(clients), lengths.max()), np.int64)
    for i, (client, order) in enumerate(zip(clients, orders, strict=True)):
        # "clip" changes nothing for valid indices, but lets NumPy write without a buffer of its own.
        np.take(client.inputs, order, axis=0, out=inputs[i, : len(order)], mode="clip")
        np.take(client.labels, order, out=labels[i, : len(order)], mode="clip")
        inputs[i, len(order) :] = 0
    flat = to_tensor(inputs.reshape(-1, *first.shape[1:]))
    flat = flat.flatten(1).view(flat.shape)  # channel by channel: vmap copies anything else in every step
    present = np.arange(lengths.max()) < lengths[:, None]
    return flat.view(*labels.shape, *flat.shape[1:]), torch.from_numpy(labels), torch.from_numpy(present)
