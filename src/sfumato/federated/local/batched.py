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

from sfumato.federated.local.heads import glorot_head
from sfumato.federated.local.work import (
    ClientData,
    LocalTraining,
    head_generator,
    orders_of_examples,
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

    def deltas(self, theta: Tensor, clients: ClientData, seeds: Sequence[int]) -> tuple[Tensor, Tensor, int]:
        """Train all clients from `theta`, float [size].

        Returns:
            Δ float [clients, size]; the mean loss of each client's steps, [clients]; processed examples.
        """
        local, device = self.local, theta.device
        seed_dropout(seeds[0], device)
        sizes = np.diff(clients.offsets)
        order, counts = orders_of_examples(sizes, local, np.array(seeds))
        if not len(order):
            nothing = theta.new_zeros(len(clients))
            return theta.new_zeros(len(clients), theta.numel()), nothing, 0
        inputs, labels, present = (x.to(device) for x in _padded(clients, order, counts))
        stack = theta.repeat(len(clients), 1)
        trained = self.trained.views(stack)
        rates = [local.learning_rate] * len(self._backbone) + [local.learning_rate * local.head_lr_scale]
        if not local.shared_head:
            trained.append(self._heads(inputs[:1, 0], clients, seeds))
        classes = torch.from_numpy(clients.classes).to(device)
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
        return theta - stack, losses / steps.clamp(min=1), len(order)

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

    def _heads(self, probe: Tensor, clients: ClientData, seeds: Sequence[int]) -> Tensor:
        """Fresh heads, padded to the largest number of classes, [clients, classes, d]."""
        with torch.no_grad():
            dimension = self.trained.model(probe).shape[1]
        heads = torch.zeros(len(clients), int(clients.classes.max()), dimension)
        for head, classes, seed in zip(heads, clients.classes.tolist(), seeds, strict=True):
            head[:classes] = glorot_head(classes, dimension, head_generator(seed))
        return heads.to(probe.device)


def _padded(clients: ClientData, order: np.ndarray, counts: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [clients, longest, …], labels [clients, longest] and which of them exist, bool [clients, longest].

    What does not exist is the client's own first example, with weight zero: a NaN of another one would not go away by
    that. A client without any takes no step, whatever stands in its place.
    """
    longest = int(counts.max())
    present = np.arange(longest) < counts[:, None]
    rows = np.repeat(np.where(counts > 0, clients.offsets[:-1], 0)[:, None], longest, axis=1)
    rows[present] = order + np.repeat(clients.offsets[:-1], counts)
    inputs, labels = clients.take(rows.reshape(-1))
    inputs = inputs.flatten(1).view(inputs.shape)  # channel by channel: vmap copies anything else in every step
    there = torch.from_numpy(present)
    inputs, labels = inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(rows.shape)
    labels[torch.from_numpy(counts == 0)] = 0  # another client's might be out of range
    return inputs, labels, there
