"""Many clients in one batched operation: `torch.func.vmap` over a stack of models.

For models so small that a step is mostly overhead. The arithmetic is that of `ClientTrainer`, client by client: the
same order of examples, the same fresh heads, the same number of steps; short batches are padded and the padding has
weight zero, a client that has finished keeps its parameters. Results agree to float rounding, except that dropout
draws other numbers. Memory is two copies of the trained parameters (and momentum) for each client of the batch, and the
examples of one step; what is of the same size in every step is kept, since fresh memory costs as much as the
arithmetic.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from sfumato._check import InputError, first_line
from sfumato.federated.local.heads import glorot_head
from sfumato.federated.local.work import (
    ClientData,
    LocalTraining,
    head_generator,
    orders_of_examples,
)
from sfumato.per_example.workspace import Workspace
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
        self._backbone = names[:-1] if local.head == "shared" else names
        self._space = Workspace()
        self._gradients = vmap(grad_and_value(self._loss), randomness="different")

    def deltas(self, theta: Tensor, clients: ClientData, seeds: Sequence[int]) -> tuple[Tensor, Tensor, int]:
        """Train all clients from `theta`, float [size].

        Returns:
            Δ float [clients, size], valid until the next call; the mean loss of each client's steps, [clients];
            processed examples.
        """
        local, device = self.local, theta.device
        seed_dropout(seeds[0], device)
        steps = _Steps(clients, local, np.array(seeds))
        if not len(steps):
            nothing = theta.new_zeros(len(clients))
            return theta.new_zeros(len(clients), theta.numel()), nothing, 0
        stack = self._space.take("stack", (len(clients), theta.numel()), theta).copy_(theta)
        trained = self.trained.views(stack)
        rates = [local.learning_rate] * len(self._backbone)
        if local.head != "none":
            rates.append(local.learning_rate * local.head_lr_scale)
        classes = torch.from_numpy(clients.classes).to(device)
        momenta: list[Tensor] | None = None
        losses = torch.zeros(len(clients), device=device)
        for step in range(len(steps)):
            inputs, labels, weights = (x.to(device) for x in steps.batch(step))
            if step == 0:
                if local.head == "own":
                    trained.append(self._heads(inputs[:1, 0], clients, seeds))
                momenta = [torch.zeros_like(p) for p in trained] if local.momentum else None
            try:
                gradients, loss = self._gradients(trained, inputs, labels, weights.to(theta.dtype), classes)
            except RuntimeError as error:
                if "vmap" not in str(error):
                    raise
                raise InputError(
                    f"the model cannot train several clients at once ({first_line(error)}); use clients_at_once=1"
                ) from error
            active = None if (step < steps.counts).all() else torch.from_numpy(step < steps.counts).to(device)
            losses += loss if active is None else torch.where(active, loss, 0.0)
            self._step(step, trained, gradients, momenta, rates, active)
            del gradients  # before the next ones are made, so that these lie where those did
        counts = torch.from_numpy(np.maximum(1, steps.counts)).to(device)
        return torch.sub(theta, stack, out=stack), losses / counts, steps.examples

    def _loss(self, trained: list[Tensor], inputs: Tensor, labels: Tensor, weights: Tensor, classes: Tensor) -> Tensor:
        head = None if self.local.head == "none" else trained[-1]
        parameters = dict(zip(self._backbone, trained, strict=False))  # the head is behind them
        outputs = functional_call(self.trained.model, {**self._fixed, **parameters}, (inputs,))
        return self.local.loss.mean(outputs, head, labels, classes, weights)  # pyright: ignore[reportArgumentType]

    def _step(
        self,
        step: int,
        trained: list[Tensor],
        gradients: list[Tensor],
        momenta: list[Tensor] | None,
        rates: list[float],
        active: Tensor | None,
    ) -> None:
        """One step of SGD with momentum for each active client; None for all of them."""
        head_only = step < self.local.reconstruction_steps
        for i, (parameter, gradient, rate) in enumerate(zip(trained, gradients, rates, strict=True)):
            if self.local.reconstruction_steps and (i == len(trained) - 1) != head_only:
                continue
            if momenta is not None:
                gradient = momenta[i].mul_(self.local.momentum).add_(gradient)
            if active is not None:
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


class _Steps:
    """The batches of several clients, padded to one size: which examples each holds.

    Attributes:
        counts: int64 [clients], steps that each client takes.
        examples: processed by all of them.
    """

    def __init__(self, clients: ClientData, local: LocalTraining, seeds: np.ndarray) -> None:
        order, counts = orders_of_examples(np.diff(clients.offsets), local, seeds)
        longest = int(counts.max())
        self._clients, self._size = clients, local.batch_size or max(1, longest)
        self._present = np.arange(longest) < counts[:, None]
        self._empty = torch.from_numpy(counts == 0)
        self._rows = np.repeat(np.where(counts > 0, clients.offsets[:-1], 0)[:, None], longest, axis=1)
        self._rows[self._present] = order + np.repeat(clients.offsets[:-1], counts)
        self.counts = -(-counts // self._size)
        self.examples = len(order)

    def __len__(self) -> int:
        return int(self.counts.max())

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs [clients, n, …], labels [clients, n, …] and which of them exist, bool [clients, n].

        What does not exist is the client's own first example, with weight zero: a NaN of another one would not go away
        by that. A client without any takes no step, whatever stands in its place.
        """
        part = slice(step * self._size, (step + 1) * self._size)
        rows, present = self._rows[:, part], torch.from_numpy(self._present[:, part])
        inputs, labels = self._clients.take(rows.reshape(-1))
        inputs = inputs.flatten(1).view(inputs.shape)  # channel by channel: vmap copies anything else
        inputs, labels = inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(*rows.shape, *labels.shape[1:])
        labels[self._empty] = 0  # another client's might be out of range
        return inputs, labels, present
