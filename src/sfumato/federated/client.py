"""What a client does with its own records in a round: parts of federated plans, batches, and training client by client.

A part of the model may stay with the client, which rebuilds it from its own records. Federated Reconstruction (Singhal
et al. 2021, algorithm 1): in every round a client begins with the same public values of its own parameters, fits them
to one part of its records (the support) while the shared ones stay, then updates the shared ones on the other part (the
query) while its own stay. Only the change of the shared ones leaves. Nothing is kept from one round to the next, so
users who never took part in the training are served in the same way.

Which records are support follows from the client's own records and its seed, never from anybody else. So neither the
division nor the own part costs anything: the contribution is still one vector that is a function of the client's
records, and is bounded as such.

>>> rule = Reconstruction(support_share=0.5)
>>> rule.supports(np.array([0, 1, 2, 5])).tolist()
[0, 1, 1, 2]

The batches of several clients in a phase are padded to one size. To what size a client's batches are padded follows
from its own number of examples, where clients of one `width` alone share an operation: so padding shows no client who
else is there, whatever a model makes of it.

Few widths let many clients share an operation.

>>> widths(np.array([0, 1, 20, 21, 33, 500]), 32).tolist(), widths(np.array([20, 500]), None).tolist()
([0, 1, 32, 32, 64, 64], [32, 512])

References:
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._lazy import torch
from sfumato._parts import Kinds, part, plan
from sfumato._random import mixed_bits
from sfumato.data import to_tensor
from sfumato.federated.losses import LOSSES, HeadStart, Loss, Means, OutputLoss, Softmax, glorot_head

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.data import UserDataset
    from sfumato.sampling import Cohort
    from sfumato.training.trainable import Trainable

Records = Literal["all", "support", "query"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some steps of SGD.

    Attributes:
        records: which of a client's records: all of them, its support or the rest.
        local: learning rate of the client's local part; None leaves it.
        shared: learning rate of the shared part; None leaves it.
        batch_size: examples a step; None takes all at once.
        epochs: passes over these records; None passes over them until `most` examples are processed.
        passed_over: examples at the front of the order that a phase before has taken.
        most: processed examples of a client at most, those passed over included; None for no cap.
    """

    records: Records = "all"
    local: float | None
    shared: float | None
    batch_size: int | None
    epochs: int | None = 1
    passed_over: int = 0
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """How a client rebuilds its own part.

    Attributes:
        support_share: of a client's records, in (0, 1); at least one record, and one is left where there are two.
        support_count: records of the support instead of a share, >= 1; None takes the share.
        support_order: "random" draws them anew each round, "first" takes the first, which are the oldest where the
            data have times.
        steps: of SGD at most, >= 0; none leaves the own part as every client begins.
        epochs: passes over the support; None passes over it until all steps are done.
        batch_size: records a step.
        learning_rate: of the own part, > 0.
        joint: train both parts together on all records instead of one after the other.
        parameters: a regular expression of whole names: these parameters are each user's own. None takes the model's
            attribute `local_parameters`.
    """

    support_share: float = 0.5
    support_count: int | None = None
    support_order: Literal["random", "first"] = "random"
    steps: int = 50
    epochs: int | None = 1
    batch_size: int = 5
    learning_rate: float = 0.1
    joint: bool = False
    parameters: str | None = None

    def __post_init__(self) -> None:
        _check.between(0.0, 1.0, ends="()", support_share=self.support_share)
        _check.whole(at_least=0, steps=self.steps)
        _check.whole(batch_size=self.batch_size)
        if self.support_count is not None:
            _check.whole(support_count=self.support_count)
        if self.epochs is not None:
            _check.whole(epochs=self.epochs)
        _check.one_of(("random", "first"), support_order=self.support_order)
        _check.positive(learning_rate=self.learning_rate)
        if self.joint and self.steps == 0:
            raise InputError("steps=0 with joint training leaves nothing to train; raise it")

    @property
    def phase(self) -> Phase:
        """How a client fits its own part to its support while the rest stays."""
        return Phase(
            records="support",
            local=self.learning_rate,
            shared=None,
            batch_size=self.batch_size,
            epochs=self.epochs,
            most=self.steps * self.batch_size,
        )

    def supports(self, sizes: np.ndarray) -> np.ndarray:
        """How many records of each client are its support, int64 [clients], from how many it has."""
        wanted = np.floor(self.support_share * sizes).astype(np.int64)
        if self.support_count is not None:
            wanted = np.full_like(sizes, self.support_count)
        return np.minimum(np.maximum(1, np.minimum(wanted, sizes - 1)), sizes)


@dataclass(frozen=True, kw_only=True)
class SharedHead:
    """A head that is trained with the model, clipped, noised and released; it has a row for every label."""


@dataclass(frozen=True, kw_only=True)
class LocalHead:
    """A head that each client draws anew in each round and that never leaves it.

    Attributes:
        classes: "local" gives a head the classes that its client holds, "global" all labels.
        start: first rows of a head. "glorot" draws them. "means" takes the mean direction of each class's embeddings at
            the client, for cosine logits.
        steps_alone: train the head alone for so many local steps, then the backbone alone; 0 trains both.
    """

    classes: Literal["local", "global"] = "local"
    start: HeadStart = "glorot"
    steps_alone: int = 0

    def __post_init__(self) -> None:
        _check.one_of(("local", "global"), classes=self.classes)
        _check.one_of(get_args(HeadStart), start=self.start)
        _check.whole(at_least=0, steps_alone=self.steps_alone)


HEADS = Kinds[SharedHead | LocalHead]({"shared": SharedHead, "local": LocalHead})
"""Whose the head is, by its word."""


@plan
class Client:
    """What every client does: one step of gradient descent on all of its examples, of rate 1 (FedSGD).

    Attributes:
        max_examples: processed examples a client and round, at most; None for no cap.
        loss: of a head: "softmax" on inner products, or "cosine", "cosface", "arcface" on scaled cosines. Of a model
            that has no head: "next_token" of sequences, "squared" of values, "cross_entropy" of its logits.
        at_once: train so many clients in one batched operation, best a multiple of 32. 1 trains one after the other,
            which a CPU does as fast unless clients are tiny.
        threads: threads that train clients side by side, each on a copy of the model. None chooses by the number of
            cores and the size of the model.
    """

    max_examples: int | None = 2048
    loss: Loss = part(default=Softmax(), converter=LOSSES)
    at_once: int = 1
    threads: int | None = None

    batch_size: ClassVar[int | None] = None
    momentum: ClassVar[float] = 0.0
    head_lr_scale: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check.whole(at_once=self.at_once)
        for name in ("threads", "max_examples"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})

    @property
    def head_kind(self) -> Literal["shared", "own", "none"]:
        """Whose the head is; "none" where the model gives the outputs itself."""
        return "none" if isinstance(self.loss, OutputLoss) else "shared"

    @property
    def head_start(self) -> HeadStart:
        """First rows of a client's own head."""
        return "glorot"

    @property
    def reconstruction(self) -> Reconstruction | None:
        """How a client rebuilds parameters of the module that are its own; None where there are none."""
        return None

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What a client does, one after the other."""
        return (Phase(local=1.0, shared=1.0, batch_size=None, most=self.max_examples),)

    def brief(self) -> Self:
        """A few steps of all that it does, to try a model with."""
        return self


@plan
class ClientTraining(Client):
    """Epochs of SGD on the model, and on a head if there is one.

    Attributes:
        epochs: passes over a client's examples in a round.
        batch_size: examples a local step; None takes all at once.
        learning_rate: local SGD rate of the backbone, > 0.
        head_lr_scale: the head's local rate is this times the backbone's, > 0.
        momentum: local SGD momentum, in [0, 1).
        head: whose the head is: "shared", or "local" for one that never leaves its client.
        negatives: classes of a public data set (`RunOptions.negatives`) that a client gets a round; 0 for none. It gets
            as many examples of each as it holds of one of its classes.
    """

    epochs: int = 1
    batch_size: int | None = 32  # pyright: ignore
    learning_rate: float = 0.005
    head_lr_scale: float = 1.0  # pyright: ignore
    momentum: float = 0.9  # pyright: ignore
    head: SharedHead | LocalHead = part(default=SharedHead(), converter=HEADS)
    negatives: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(epochs=self.epochs)
        _check.whole(at_least=0, negatives=self.negatives)
        _check.positive(learning_rate=self.learning_rate, head_lr_scale=self.head_lr_scale)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        if self.batch_size is not None:
            _check.whole(batch_size=self.batch_size)

    @property
    def head_kind(self) -> Literal["shared", "own", "none"]:
        """Whose the head is; "none" where the model gives the outputs itself."""
        if isinstance(self.loss, OutputLoss):
            return "none"
        return "own" if isinstance(self.head, LocalHead) else "shared"

    @property
    def head_start(self) -> HeadStart:
        """First rows of a client's own head."""
        return self.head.start if isinstance(self.head, LocalHead) else "glorot"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What a client does, one after the other."""
        every = Phase(
            local=self.learning_rate * self.head_lr_scale,
            shared=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            most=self.max_examples,
        )
        rule = self.reconstruction
        if rule is not None and rule.joint:
            return (replace(every, local=rule.learning_rate),)
        if rule is not None:
            update = replace(every, records="query", local=None)
            return (rule.phase, update) if rule.steps else (update,)
        alone = self.head.steps_alone if isinstance(self.head, LocalHead) else 0
        if not alone:
            return (every,)
        if self.batch_size is None:  # one step takes everything
            return (replace(every, shared=None),)
        first = alone * self.batch_size
        most = first if self.max_examples is None else min(first, self.max_examples)
        return (replace(every, shared=None, most=most), replace(every, local=None, passed_over=first))

    def brief(self) -> Self:
        """A few steps of all that it does, to try a model with."""
        head = replace(self.head, steps_alone=0) if isinstance(self.head, LocalHead) else self.head
        return replace(self, epochs=1, head=head)


@plan
class PartlyLocalTraining(ClientTraining):
    """Rebuild the own part of the model, then update the shared one (`FedRecon`).

    Attributes:
        local: how the own part is rebuilt.
    """

    local: Reconstruction = part(default=Reconstruction(), converter=Kinds[Reconstruction]({"own": Reconstruction}))

    @property
    def reconstruction(self) -> Reconstruction:
        """How a client rebuilds its own part."""
        return self.local

    def brief(self) -> Self:
        """A few steps of all that it does, to try a model with."""
        return replace(super().brief(), local=replace(self.local, steps=min(self.local.steps, 2)))


# What a client's local training consists of: phases, and the records that each passes over, in their order.
#
# In a phase the shared part, the client's own part or both take steps of SGD. FedAvg has one phase, FedEmb one or two,
# Federated Reconstruction rebuilds the own part and then updates the shared one.
#
# shuffle → repeat(epochs) → take(most) → batch, as in federated data pipelines: the order is drawn anew each epoch, the
# cap bounds *processed* examples, and a batch may straddle two epochs. An example's place follows from a hash of the
# client's seed, the epoch and its number, so that any number of clients is put in order at once.


_DIVIDED = 1 << 32  # distinguishes the draw that divides a client's records from those of the epochs' orders


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

    def of(self, clients: np.ndarray) -> ClientData:
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


def rows_of(data: UserDataset) -> Iterator[tuple[Tensor]]:
    """All inputs as a model gets them, one user after the other."""
    return ((to_tensor(data.examples(user)[0]),) for user in range(len(data)))


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


_FEW = 64  # up to so many examples or classes, few widths; beyond, padding would cost more than batching saves
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
        from sfumato.guard.trial import seed_dropout

        seed_dropout(seed, theta.device)
        # Statistics of public inputs are those of theta through all steps, as in a batch: `load` marks weights as new,
        # a fused step does not.
        self.trained.load(theta)
        self.trained.reset_local_parameters()
        head: nn.Parameter | None = self.trained.parameters[-1] if self.local.head_kind == "shared" else None
        losses, examples = [], 0
        for phase in phases:
            order, _ = orders_of_examples(phase, np.diff(client.offsets), np.array([seed]), self.local.reconstruction)
            examples += len(order)
            optimizer: torch.optim.Optimizer | None = None
            for inputs, labels in _batches(client, order, phase):
                inputs, labels = inputs.to(theta.device), labels.to(theta.device)
                with torch.set_grad_enabled(phase.shared is not None or bool(self.trained.local_parameters)):
                    outputs = self.trained.model(inputs)
                if head is None and self.local.head_kind == "own":
                    fresh = glorot_head(int(client.classes[0]), outputs.shape[1], head_generator(seed))
                    head = torch.nn.Parameter(self._initial_head(fresh.to(theta.device), client, order))
                if optimizer is None:
                    optimizer = self._optimizer(phase, head, theta.device)
                loss = self.local.loss.mean(outputs, head, labels)  # pyright: ignore[reportArgumentType]
                optimizer.zero_grad(set_to_none=True)
                loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])
                optimizer.step()
                losses.append(loss.detach())
        return losses, examples

    def _initial_head(self, head: Tensor, client: ClientData, order: np.ndarray) -> Tensor:
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
        own, groups = list(self.trained.local_parameters.values()), []
        if phase.shared is not None:
            groups.append({"params": self._backbone, "lr": phase.shared})
            if self.local.head_kind == "shared":
                groups.append({"params": [head], "lr": phase.shared * self.local.head_lr_scale})
        if phase.local is not None and self.local.head_kind == "own":
            own = [*own, head]
        if phase.local is not None and own:
            groups.append({"params": own, "lr": phase.local})
        return torch.optim.SGD(groups, momentum=self.local.momentum, fused=device.type in ("cpu", "cuda"))


def _batches(client: ClientData, order: np.ndarray, phase: Phase) -> Iterator[tuple[Tensor, Tensor]]:
    size = phase.batch_size or max(1, len(order))
    for start in range(0, len(order), size):
        yield client.take(order[start : start + size])
