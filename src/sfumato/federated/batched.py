"""Whether all that is computed treats numbers one by one or adds them up in a row: no product of matrices.

How these round does not follow from where numbers lie in memory. Products of matrices, convolutions and whatever is not
known here may add up in an order that does.

>>> with NumberByNumber() as seen:
...     _ = torch.ones(2, 3).exp().sum(1)
>>> seen.only
True
>>> with NumberByNumber() as seen:
...     _ = torch.ones(2, 3) @ torch.ones(3)
>>> seen.only
False
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from sfumato._check import InputError, first_line
from sfumato.federated.client import ClientData, LocalTraining, Phase, Steps, class_widths, head_generator
from sfumato.federated.losses import Means, glorot_head
from sfumato.federated.row_tables import OTHER_ROWS, PartDeltas, RowCopies, row_tables_of
from sfumato.guard.state import same_values
from sfumato.per_example.workspace import Workspace
from sfumato.training.trainable import Trainable

_MOVE = {
    *("_to_copy", "_unsafe_view", "alias", "arange", "cat", "clone", "copy_", "detach", "embedding", "empty"),
    *("empty_like", "expand", "fill_", "full", "full_like", "gather", "index", "lift_fresh", "new_zeros", "ones"),
    *("ones_like", "permute", "select", "select_backward", "slice", "slice_backward", "split", "split_with_sizes"),
    *("squeeze", "stack", "t", "transpose", "unbind", "unsqueeze", "view", "zero_", "zeros", "zeros_like"),
}
_ADD = {"embedding_dense_backward", "index_add_", "index_put_", "mean", "scatter_add_", "sum"}


class NumberByNumber(TorchDispatchMode):
    """Looks at the operations of torch within a `with` statement.

    Attributes:
        only: nothing else was met so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.only = True

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let the operation run, and keep what kind it is."""
        name = func.overloadpacket.__name__
        self.only &= func.namespace == "aten" and (torch.Tag.pointwise in func.tags or name in _MOVE | _ADD)
        return func(*args, **(kwargs or {}))


# Many clients in one batched operation: `torch.func.vmap` over a stack of models.
#
# For models so small that a step is mostly overhead. The arithmetic is that of `ClientTrainer`, client by client: the
# same order of examples, the same fresh heads, the same number of steps; short batches are padded and the padding has
# weight zero, a client that has finished keeps its parameters. Results agree to float rounding. A model that draws
# random numbers (dropout) is refused: all in an operation would draw from one generator, and who is there decide who
# gets what. Memory is two copies of what is trained (and momentum) for each client of the batch, of large
# tables only the rows that it touches, and the examples of one step; what is of the same size in every step is kept,
# since fresh memory costs as much as the arithmetic.
#
# Who shares an operation and where each stands in it is told by `Places`, so that nobody decides how the numbers of
# another one round: a client's delta is the same to the last bit whoever else is there. A model that mixes the rows of
# a batch meets a client's padding, too, which follows from the client's own number of examples. And the model computes
# on a copy of the weights to start from: what it writes into them is seen, and never reaches those that are released.


_WIDTH = 32
_OWN, _SHARED, _ROWS = range(3)  # arguments of the loss that may be differentiated


class BatchedTrainer:
    """Trains several clients at once; arguments as for `ClientTrainer`."""

    def __init__(self, local: LocalTraining, trained: Trainable) -> None:
        self.local = local
        self.trained = trained
        trains = {id(p) for p in (*trained.parameters, *trained.own.values())}
        self._fixed = {n: p.detach() for n, p in trained.model.named_parameters() if id(p) not in trains}
        self._fixed.update({name: buffer.detach() for name, buffer in trained.model.named_buffers()})
        # What has momentum goes on moving when no batch names it.
        self._tables = {} if local.momentum else row_tables_of(trained)
        self._space = Workspace()

    def deltas(
        self, theta: Tensor, clients: ClientData, seeds: Sequence[int]
    ) -> tuple[Tensor | PartDeltas, Tensor, int]:
        """Train all clients from `theta`, float [size], in one operation; see `Places.operations`.

        Returns:
            Δ float [clients, size], or its parts where the model has tables of rows, valid until the next call; the
            mean loss of each client's steps, [clients]; processed examples.

        Raises:
            InputError: the model wrote into its weights.
        """
        work = self._work(theta, clients, seeds)
        for phase in self.local.phases:
            work.run(phase)
        if not same_values(self.trained.vector, theta):
            raise InputError(
                "the model writes into its weights while it computes, so a client's delta would change with the others "
                "beside it; let forward leave them as they are, or use clients_at_once=1"
            )
        return work.deltas(), work.losses(), work.examples

    def own_parts(
        self, theta: Tensor, clients: ClientData, seeds: Sequence[int], phases: Sequence[Phase]
    ) -> list[Tensor]:
        """Each client's own part after some phases that leave the shared one, [clients, …] for each parameter."""
        count = len(clients)
        filled = np.concatenate([np.arange(count), np.full(-count % _WIDTH, -1)])  # mostly the same in any company
        work = self._work(theta, clients.of(filled), [*seeds, *[0] * (len(filled) - count)])
        for phase in phases:
            work.run(phase)
        return [part[:count] for part in work.own]

    def outputs(self, theta: Tensor, own: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """What the model gives each client for inputs [clients, n, …]."""
        names = [*self.trained.own, *self.trained.layout.names]

        def one(own: Sequence[Tensor], inputs: Tensor) -> Tensor:
            values = dict(zip(names, (*own, *self.trained.views(theta)), strict=True))
            return functional_call(self.trained.model, {**self._fixed, **values}, (inputs,))

        with torch.no_grad():
            return vmap(one)(list(own), inputs)

    def _work(self, theta: Tensor, clients: ClientData, seeds: Sequence[int]) -> "_Work":
        self.trained.load(theta)
        self.trained.follow(theta)  # nothing refreshes statistics of public inputs within vmap
        return _Work(self, theta, clients, np.array(seeds))


class _Work:
    """Some clients on their way from `theta`."""

    def __init__(self, trainer: BatchedTrainer, theta: Tensor, clients: ClientData, seeds: np.ndarray) -> None:
        self._local, self._trained, self._space = trainer.local, trainer.trained, trainer._space
        self._fixed, self._tables = trainer._fixed, trainer._tables
        self._theta, self._clients, self._seeds = theta, clients, seeds
        self._classes = torch.from_numpy(clients.classes).to(theta.device)
        self._names = list(self._trained.layout.names)
        self._views = self._trained.views(self._trained.vector)  # and never those of theta
        self._stack: Tensor | None = None
        self._dense: list[Tensor] = []
        self._copies: dict[int, RowCopies] = {}
        self.own = [
            value.detach().expand(len(clients), *value.shape).clone()
            for value in (self._trained.kept(name) for name in self._trained.own)
        ]
        self._loss_sum = torch.zeros(len(clients), device=theta.device)
        self._steps_taken = np.zeros(len(clients), np.int64)
        self.examples = 0

    def run(self, phase: Phase) -> None:
        """All steps of a phase."""
        steps = Steps(self._clients, phase, self._local.reconstruction, self._seeds)
        self.examples += steps.examples
        self._steps_taken += steps.counts
        if not len(steps):
            return
        if phase.shared is not None:
            self._copy(steps)
        gradients_of = self._gradients(phase)
        momenta: list[Tensor] | None = None
        for step in range(len(steps)):
            inputs, labels, weights = (x.to(self._theta.device) for x in steps.batch(step))
            if self._local.head == "own" and len(self.own) == len(self._trained.own):
                self.own.append(self._heads(inputs[:1, 0], steps))
            slots = {place: copies.slots(steps, step) for place, copies in self._copies.items()}
            rows = [self._copies[place].take(slots[place]) for place in slots]
            try:
                with _one_by_one_told():
                    gradients, loss = gradients_of(
                        self.own,
                        self._views if self._stack is None else self._dense,
                        rows,
                        self._renumbered(inputs),
                        labels,
                        weights.to(self._theta.dtype),
                        self._classes,
                    )
            except IndexError as error:
                if not rows:
                    raise
                raise InputError(OTHER_ROWS) from error
            active = None
            if not (step < steps.counts).all():
                active = torch.from_numpy(step < steps.counts).to(self._theta.device)
            self._loss_sum += loss if active is None else torch.where(active, loss, 0.0)
            momenta = self._step(phase, gradients, momenta, slots, active)
            del gradients  # before the next ones are made, so that these lie where those did

    def deltas(self) -> Tensor | PartDeltas:
        """How far the shared parameters of each client have moved."""
        if self._stack is None:
            return self._theta.new_zeros(len(self._clients), self._theta.numel())
        if not self._copies:
            return torch.sub(self._theta, self._stack, out=self._stack)
        dense = iter(self._dense)
        return PartDeltas(
            [
                self._copies[place].deltas()
                if place in self._copies
                else torch.sub(view, (moved := next(dense)), out=moved)
                for place, view in enumerate(self._views)
            ]
        )

    def losses(self) -> Tensor:
        """The mean loss of each client's steps."""
        counts = torch.from_numpy(np.maximum(1, self._steps_taken)).to(self._theta.device)
        return self._loss_sum / counts

    def _copy(self, steps: Steps) -> None:
        """Give each client a copy of the shared parameters, before the first step that trains them."""
        if self._stack is not None:
            if self._tables:
                raise NotImplementedError("one phase at most trains tables of rows")
            return
        whole = [place for place in range(len(self._views)) if place not in self._tables]
        sizes = [self._views[place].numel() for place in whole]
        stack = self._space.take("stack", (len(self._clients), sum(sizes)), self._theta)
        self._stack, pieces = stack, stack.split(sizes, dim=1)
        self._dense = [
            piece.view(len(stack), *self._views[place].shape).copy_(self._views[place])
            for piece, place in zip(pieces, whole, strict=True)
        ]
        for place, column in self._tables.items():
            self._copies[place] = RowCopies(self._views[place], column, self._clients, steps)

    def _renumbered(self, inputs: Tensor) -> Tensor:
        """The inputs, with columns that name rows of tables counting the examples of their batch."""
        if not self._copies:
            return inputs
        inputs = inputs.clone()
        for place in self._copies:
            inputs[:, :, self._tables[place]] = torch.arange(inputs.shape[1], device=inputs.device)
        return inputs

    def _gradients(self, phase: Phase) -> Callable[..., Any]:
        """The gradients of what the phase trains, and the loss, for all clients."""
        wanted = []
        if phase.own is not None and (self._trained.own or self._local.head == "own"):
            wanted.append(_OWN)
        if phase.shared is not None:
            wanted += [_SHARED, _ROWS]
        shared = None if self._stack is None else 0
        return vmap(
            grad_and_value(self._loss, argnums=tuple(wanted)),
            in_dims=(0, shared, 0, 0, 0, 0, 0),
            randomness="error",
        )

    def _loss(
        self,
        own: list[Tensor],
        shared: list[Tensor],
        rows: list[Tensor],
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        classes: Tensor,
    ) -> Tensor:
        """Of one client's batch."""
        head = None
        if self._local.head != "none":
            source = shared if self._local.head == "shared" else own
            head = source[-1]
        values = dict(zip(self._trained.own, own, strict=False))  # a head is behind them
        names = [name for place, name in enumerate(self._names) if place not in self._copies]
        values |= dict(zip(names, shared, strict=True))
        values |= {self._names[place]: part for place, part in zip(self._copies, rows, strict=True)}
        values = {**self._fixed, **values}
        if self._local.head == "shared":
            values.pop(self._names[-1])
        outputs = functional_call(self._trained.model, values, (inputs,))
        return self._local.loss.mean(outputs, head, labels, classes, weights)  # pyright: ignore[reportArgumentType]

    def _step(
        self,
        phase: Phase,
        gradients: tuple[list[Tensor], ...],
        momenta: list[Tensor] | None,
        slots: dict[int, Tensor],
        active: Tensor | None,
    ) -> list[Tensor] | None:
        """One step of SGD with momentum for each active client; None for all of them."""
        found = list(gradients)
        moved: list[tuple[Tensor, Tensor, float]] = []
        if len(found) != 2:  # the own part comes first
            moved += [(part, g, phase.own or 0.0) for part, g in zip(self.own, found.pop(0), strict=True)]
        rows: list[Tensor] = []
        if found:
            dense, rows = found
            rates = [phase.shared or 0.0] * len(dense)
            if self._local.head == "shared":
                rates[-1] *= self._local.head_lr_scale
            moved += list(zip(self._dense, dense, rates, strict=True))
        if momenta is None and self._local.momentum:
            momenta = [torch.zeros_like(gradient) for _, gradient, _ in moved]
        for i, (parameter, gradient, rate) in enumerate(moved):
            if momenta is not None:
                gradient = momenta[i].mul_(self._local.momentum).add_(gradient)
            parameter.sub_(_of_active(gradient, active), alpha=rate)
        for place, gradient in zip(slots, rows, strict=False):
            self._copies[place].step(slots[place], _of_active(gradient, active), phase.shared or 0.0)
        return momenta

    def _heads(self, probe: Tensor, steps: Steps) -> Tensor:
        """Fresh heads as they begin, padded to one number of classes, [clients, classes, d]."""
        with torch.no_grad():  # of no record: one operation is all clients', and whatever it leaves they would meet
            dimension = self._trained.model(torch.zeros_like(probe)).shape[1]
        heads = torch.zeros(len(self._clients), int(class_widths(self._clients.classes).max()), dimension)
        for head, classes, seed in zip(heads, self._clients.classes.tolist(), self._seeds.tolist(), strict=True):
            head[:classes] = glorot_head(classes, dimension, head_generator(seed))
        heads = heads.to(probe.device)
        if self._local.head_start == "glorot":
            return heads
        values = {**self._fixed, **dict(zip(self._names, self._views, strict=True))}

        def embedding(row: Tensor) -> Tensor:
            return functional_call(self._trained.model, values, (row[None],))[0]

        # Row by row: they are of several clients, and a model that mixes the rows of a batch would mix these. And in
        # the batches of the steps: how these round follows from what is a client's own.
        each, means = vmap(embedding, randomness="error"), Means(heads)
        with _one_by_one_told(), torch.no_grad():
            for step in range(len(steps)):
                if not (first := steps.first(step)).any():
                    continue
                inputs, labels, _ = steps.batch(step)
                found = each(inputs.flatten(0, 1).to(probe.device))
                means.add(found.unflatten(0, labels.shape), labels, first)
        return means.heads()


@contextmanager
def _one_by_one_told() -> Iterator[None]:
    """Say in one line that a model has to train one client after the other."""
    try:
        yield
    except RuntimeError as error:
        if "randomness" in str(error):
            raise InputError(
                "the model draws random numbers (dropout), and clients that train in one operation would share the "
                "draws, so that one decides what another one gets; use clients_at_once=1"
            ) from error
        if "vmap" not in str(error) and "grad (vjp" not in str(error):
            raise
        raise InputError(
            f"the model cannot train several clients at once ({first_line(error)}); use clients_at_once=1"
        ) from error


def _of_active(gradient: Tensor, active: Tensor | None) -> Tensor:
    """Zero for clients that have finished."""
    return gradient if active is None else torch.where(active.view(-1, *[1] * (gradient.dim() - 1)), gradient, 0.0)
