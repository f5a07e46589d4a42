"""What a client does with its own records: its phases, their batches, and local training one client at a time.

The batches of several clients in a phase, padded to one size: which examples each holds.

To what size a client's batches are padded follows from its own number of examples, where clients of one `width` alone
share an operation: so padding tells no client who else is there, whatever a model makes of it.

Few widths let many clients share an operation.

>>> widths(np.array([0, 1, 20, 21, 33, 500]), 32).tolist(), widths(np.array([20, 500]), None).tolist()
([0, 1, 32, 32, 64, 64], [32, 512])
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._random import mixed_bits
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.local_training import Client, Phase, Reconstruction, Records
from sfumato.federated.losses import Means, glorot_head
from sfumato.guard.trial import seed_dropout
from sfumato.sampling import Cohort
from sfumato.training.trainable import Trainable

# What a client's local training consists of: phases, and the records that each passes over, in their order.
#
# In a phase the shared part, the client's own part or both take steps of SGD. FedAvg has one phase, FedEmb one or two,
# Federated Reconstruction rebuilds the own part and then updates the shared one.
#
# shuffle → repeat(epochs) → take(most) → batch, as in federated data pipelines: the order is drawn anew each epoch, the
# cap bounds *processed* examples, and a batch may straddle two epochs. An example's place follows from a hash of the
# client's seed, the epoch and its number, so that any number of clients is put in order at once.


_DIVIDED = 1 << 32  # tells the draw that divides a client's records from those of the epochs' orders


def orders_of_examples(
    phase: Phase, sizes: np.ndarray, seeds: np.ndarray, rule: Reconstruction | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which examples each client processes in a phase, in their order; batches are consecutive pieces.

    Args:
        phase: which.
        sizes: int64 [clients], examples that each has.
        seeds: int64 [clients]; nothing else decides a client's order.
        rule: divides the records, where the phase is about a part of them.

    Returns:
        int64 [n], numbers of examples from 0 within a client, one client after the other; and how many each processes,
        int64 [clients].
    """
    if phase.records == "all":
        return _order(phase, sizes, seeds)
    assert rule is not None
    parts, first = _divided(phase.records, sizes, seeds, rule), rule.supports(sizes)
    held = first if phase.records == "support" else sizes - first
    order, counts = _order(phase, held, seeds)
    starts = np.cumsum(held) - held
    return parts[order + np.repeat(starts, counts)], counts


def counts_of_examples(phase: Phase, sizes: np.ndarray, rule: Reconstruction | None = None) -> np.ndarray:
    """How many examples each client processes in a phase, int64 [clients]; arguments as for `orders_of_examples`."""
    if phase.records != "all":
        assert rule is not None
        first = rule.supports(sizes)
        sizes = first if phase.records == "support" else sizes - first
    counts = sizes * _passes(phase, sizes)
    least, most = phase.passed_over, counts.max(initial=0) if phase.most is None else phase.most
    return np.clip(counts, least, max(least, most)) - least


def _passes(phase: Phase, sizes: np.ndarray) -> np.ndarray:
    """How often each client goes over its examples, before any cap."""
    if phase.epochs is not None:
        return np.full(len(sizes), phase.epochs)
    assert phase.most is not None
    return -(-phase.most // np.maximum(1, sizes)) * (sizes > 0)


def _divided(records: Records, sizes: np.ndarray, seeds: np.ndarray, rule: Reconstruction) -> np.ndarray:
    """Numbers of the examples of each client's support or of the rest, ascending, one client after the other."""
    client = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    number = np.arange(len(client)) - starts[client]
    rank = number
    if rule.support_order == "random":
        keys = mixed_bits(number, seeds[client].astype(np.uint64), _DIVIDED)
        rank = np.empty_like(number)
        rank[_by(client, keys, len(sizes))] = number
    chosen = rank < rule.supports(sizes)[client]
    return number[chosen if records == "support" else ~chosen]


def _order(phase: Phase, sizes: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of all of these examples, epoch by epoch."""
    passes = _passes(phase, sizes)
    owner = np.repeat(np.arange(len(sizes)), passes)  # of each epoch
    epochs = sizes[owner]  # one entry an epoch of a client
    ends = np.cumsum(epochs)
    entry = np.repeat(np.arange(len(epochs)), epochs)
    number = np.arange(len(entry)) - (ends - epochs)[entry]
    client = owner[entry]
    epoch = entry - (np.cumsum(passes) - passes)[client]
    keys = mixed_bits(number, seeds[client].astype(np.uint64), epoch)
    order = number[_by(entry, keys, len(epochs))]
    counts = sizes * passes
    least, most = phase.passed_over, counts.max(initial=0) if phase.most is None else phase.most
    if not least and (counts <= most).all():
        return order, counts
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[client]
    return order[(place >= least) & (place < most)], np.clip(counts, least, max(least, most)) - least


def _by(group: np.ndarray, keys: np.ndarray, groups: int) -> np.ndarray:
    """Places in the order of groups, and of keys within a group, which differ there.

    By key first; then by group, in two bytes where they do, which is fastest.
    """
    by_key = np.argsort(keys)
    return by_key[np.argsort(group[by_key].astype(np.min_scalar_type(groups)), kind="stable")]


# What a client does in a round, and the examples that it has.


_AT_ONCE = 256


@dataclass(frozen=True)
class ClientData:
    """Some clients' examples, one client after the other.

    Attributes:
        inputs: as stored, [n, *input_shape].
        labels: int64 [n], or [n, length] of sequences, in {0, …, classes − 1} of each client; or values, float32 [n].
        offsets: int64 [clients + 1]: client i has the examples offsets[i] … offsets[i + 1] − 1.
        classes: int64 [clients], rows that each client's head needs.
    """

    inputs: np.ndarray
    labels: np.ndarray
    offsets: np.ndarray
    classes: np.ndarray

    def __len__(self) -> int:
        return len(self.classes)

    def of(self, clients: np.ndarray) -> "ClientData":
        """Some of the clients, by their places, in the order asked for; -1 is a client without examples."""
        if np.array_equal(clients, np.arange(len(self))):
            return self
        there = clients >= 0
        sizes = np.where(there, np.diff(self.offsets)[clients], 0)
        ends = np.cumsum(sizes)
        rows = np.arange(int(sizes.sum())) + np.repeat(self.offsets[:-1][clients] - (ends - sizes), sizes)
        classes = np.where(there, self.classes[clients], self.classes[clients[there][:1]])
        return ClientData(self.inputs[rows], self.labels[rows], np.concatenate([[0], ends]), classes)

    def take(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs as a tensor and labels of the examples at these rows."""
        return to_tensor(self.inputs[rows]), torch.from_numpy(self.labels[rows])


def gather(data: UserDataset, cohort: Cohort, *, global_classes: bool) -> ClientData:
    """All examples of a cohort; labels renumbered to the classes that a client holds unless `global_classes`."""
    inputs, labels, sizes = data.examples_of(cohort.units)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = ends[cohort.offsets]
    if global_classes:
        return ClientData(inputs, labels, offsets, np.full(len(cohort), data.num_classes))
    owner = np.repeat(np.arange(len(cohort)), np.diff(offsets))
    held, number = np.unique(owner * data.num_classes + labels, return_inverse=True)
    first = np.searchsorted(held, np.arange(len(cohort) + 1) * data.num_classes)
    return ClientData(inputs, number - first[owner], offsets, np.maximum(1, np.diff(first)))


def pieces(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Rows, some at a time, for a pass that trains nothing."""
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def head_generator(seed: int) -> torch.Generator:
    """Generator of a client's fresh head."""
    return torch.Generator().manual_seed(seed ^ 0x5DEECE66D)


_FEW = 64  # up to so many examples or classes, few widths; beyond, padding would cost more than company saves
_FINE = 4  # widths between one power of two and the next, beyond


def widths(counts: np.ndarray, batch_size: int | None) -> np.ndarray:
    """Which clients may share an operation without one's padding telling of another: those of one width.

    Args:
        counts: int64 [clients], examples that each processes in a phase.
        batch_size: examples a step; None takes all at once.

    Returns:
        int64 [clients]: the size of a client's only batch with its padding; all who take several steps, each padded to
        `batch_size`, have twice that; 0 for nothing to do.
    """
    rounded = np.where(counts > 0, _rounded(counts, 1), 0)
    if batch_size is None:
        return rounded
    return np.where(counts > batch_size, 2 * batch_size, np.minimum(rounded, batch_size))


def class_widths(classes: np.ndarray) -> np.ndarray:
    """To how many rows the heads of clients with so many classes are padded, int64 [clients].

    >>> class_widths(np.array([1, 2, 17, 32, 33, 65, 1000])).tolist()
    [1, 4, 64, 64, 64, 80, 1024]
    """
    return _rounded(np.maximum(1, classes), 2)  # rows of a head cost little


def _rounded(counts: np.ndarray, every: int) -> np.ndarray:
    """Counts >= 1, rounded up: to powers of 2^every while they are few."""
    log = np.log2(np.maximum(1, counts))
    power = 1 << (np.ceil(log / every) * every).astype(np.int64)
    grain = np.maximum(1, (1 << log.astype(np.int64)) // _FINE)
    return np.where(counts <= _FEW, power, -(-counts // grain) * grain)


class Steps:
    """Some clients' batches.

    Args:
        clients: their examples.
        phase: what they do.
        rule: divides their records, where the phase is about a part of them.
        seeds: int64 [clients].

    Attributes:
        counts: int64 [clients], steps that each client takes.
        examples: processed by all of them.
        rows: int64 [clients, n], rows of `clients.inputs` in the order in which each client processes them, padded.
        present: bool [clients, n], which of these exist.
    """

    def __init__(self, clients: ClientData, phase: Phase, rule: Reconstruction | None, seeds: np.ndarray) -> None:
        order, counts = orders_of_examples(phase, np.diff(clients.offsets), seeds, rule)
        longest = int(widths(counts, phase.batch_size).max(initial=0))
        if phase.batch_size is not None and longest > phase.batch_size:
            longest = -(-int(counts.max()) // phase.batch_size) * phase.batch_size
        self._clients, self._size = clients, phase.batch_size or max(1, longest)
        self._empty = torch.from_numpy(counts == 0)
        self.present = np.arange(longest) < counts[:, None]
        self.rows = np.repeat(np.where(counts > 0, clients.offsets[:-1], 0)[:, None], longest, axis=1)
        self.rows[self.present] = order + np.repeat(clients.offsets[:-1], counts)
        self.counts = -(-counts // self._size)
        self.examples = len(order)
        self._first: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.counts.max(initial=0))

    def part(self, step: int) -> slice:
        """The columns of `rows` that a step takes."""
        return slice(step * self._size, (step + 1) * self._size)

    def first(self, step: int) -> Tensor:
        """Which examples of a batch come for the first time, bool [clients, n]."""
        if self._first is None:
            rows = np.where(self.present, self.rows, -1)
            order = np.argsort(rows, axis=1, kind="stable")
            ordered = np.take_along_axis(rows, order, axis=1)
            new = np.diff(ordered, axis=1, prepend=-1) != 0
            self._first = np.take_along_axis(new, np.argsort(order, axis=1), axis=1)
        return torch.from_numpy(self._first[:, self.part(step)])

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs [clients, n, …], labels [clients, n, …] and which of them exist, bool [clients, n].

        What does not exist is the client's own first example, with weight zero: a NaN of another one would not go away
        by that. A client without any takes no step, whatever stands in its place.
        """
        rows, present = self.rows[:, self.part(step)], torch.from_numpy(self.present[:, self.part(step)])
        inputs, labels = self._clients.take(rows.reshape(-1))
        inputs = inputs.flatten(1).view(inputs.shape)  # channel by channel: vmap copies anything else
        inputs, labels = inputs.view(*rows.shape, *inputs.shape[1:]), labels.view(*rows.shape, *labels.shape[1:])
        labels[self._empty] = 0  # another client's might be out of range
        return inputs, labels, present


# Local training: one client after the other on one resident copy of the model.
#
# Unit: a client (a user, or a virtual client). The result is Δ = θ_before − θ_after of the shared parameters, nothing
# else leaves. Only the parameters, one delta and the optimiser's momentum are held, however many clients there are.
#
# A shared head is a part of θ (FedAvg). What is a client's own begins anew with every client and is thrown away: a
# fresh head (FedEmb; Xu et al. 2022, algorithm 1), or parameters of the module (Federated Reconstruction; Singhal et
# al. 2021, algorithm 1).


class ClientTrainer:
    """Trains clients in turn; see the module.

    Args:
        local: what each does.
        trained: the resident copy, with the head if it is shared.
    """

    def __init__(self, local: Client, trained: Trainable) -> None:
        self.local = local
        self.trained = trained
        self._backbone = trained.parameters[:-1] if local.head_kind == "shared" else trained.parameters

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
        head: nn.Parameter | None = self.trained.parameters[-1] if self.local.head_kind == "shared" else None
        losses, examples = [], 0
        for phase in phases:
            order, _ = orders_of_examples(phase, np.diff(client.offsets), np.array([seed]), self.local.reconstruction)
            examples += len(order)
            optimizer: torch.optim.Optimizer | None = None
            for inputs, labels in _batches(client, order, phase):
                inputs, labels = inputs.to(theta.device), labels.to(theta.device)
                with torch.set_grad_enabled(phase.shared is not None or bool(self.trained.own)):
                    outputs = self.trained.model(inputs)
                if head is None and self.local.head_kind == "own":
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
            if self.local.head_kind == "shared":
                groups.append({"params": [head], "lr": phase.shared * self.local.head_lr_scale})
        if phase.own is not None and self.local.head_kind == "own":
            own = [*own, head]
        if phase.own is not None and own:
            groups.append({"params": own, "lr": phase.own})
        return torch.optim.SGD(groups, momentum=self.local.momentum, fused=device.type in ("cpu", "cuda"))


def _batches(client: ClientData, order: np.ndarray, phase: Phase) -> Iterator[tuple[Tensor, Tensor]]:
    size = phase.batch_size or max(1, len(order))
    for start in range(0, len(order), size):
        yield client.take(order[start : start + size])
