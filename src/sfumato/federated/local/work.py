"""What a client does in a round, and the examples that it has."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from sfumato import _check
from sfumato._check import InputError
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.local.heads import HeadLoss, HeadStart
from sfumato.federated.local.losses import OutputLoss
from sfumato.federated.local.phases import Phase
from sfumato.federated.local.reconstruction import Reconstruction
from sfumato.sampling import Cohort

_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What a client does in a round.

    Attributes:
        epochs: passes over the client's examples.
        batch_size: examples a step; None takes all at once.
        max_examples: processed examples a client and round, at most; None for no cap.
        learning_rate: SGD rate of the backbone.
        head_lr_scale: the head's rate is this times the backbone's.
        momentum: SGD momentum, in [0, 1).
        reconstruction_steps: train the client's own head alone for so many steps, then the backbone alone; 0 trains
            both.
        reconstruction: how a client rebuilds parameters of the module that are its own; None where there are none.
        loss: turns embeddings and head, or the model's own outputs, into a loss.
        head: "shared" is trained with the model, "own" is drawn anew by each client and thrown away, "none" where the
            model gives the outputs itself.
        head_start: first rows of a client's own head: "glorot" draws them, "means" takes the mean direction that the
            client's processed examples of a class have at the start.
    """

    epochs: int = 1
    batch_size: int | None = 32
    max_examples: int | None = None
    learning_rate: float = 0.01
    head_lr_scale: float = 1.0
    momentum: float = 0.0
    reconstruction_steps: int = 0
    reconstruction: Reconstruction | None = None
    loss: HeadLoss | OutputLoss = field(default_factory=HeadLoss)
    head: Literal["shared", "own", "none"] = "own"
    head_start: HeadStart = "glorot"

    def __post_init__(self) -> None:
        if (self.head == "none") != isinstance(self.loss, OutputLoss):
            raise InputError(f"head must be none where the model gives the outputs itself, and only there: {self.head}")
        if self.reconstruction_steps and self.head != "own":
            raise InputError(f"reconstruction_steps is for a head of the client's own, got head={self.head}")
        _check.one_of(get_args(HeadStart), head_start=self.head_start)
        if self.head_start == "means" and self.head != "own":
            raise InputError(f"head_start=means is for a head of the client's own, got head={self.head}")
        _check.whole(epochs=self.epochs)
        _check.whole(at_least=0, reconstruction_steps=self.reconstruction_steps)
        _check.positive(learning_rate=self.learning_rate, head_lr_scale=self.head_lr_scale)
        _check.between(0.0, 1.0, ends="[)", momentum=self.momentum)
        for name in ("batch_size", "max_examples"):
            if getattr(self, name) is not None:
                _check.whole(**{name: getattr(self, name)})

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What a client does, one after the other."""
        every = Phase(
            own=self.learning_rate * self.head_lr_scale,
            shared=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            most=self.max_examples,
        )
        rule = self.reconstruction
        if rule is not None and rule.joint:
            return (replace(every, own=rule.learning_rate),)
        if rule is not None:
            update = replace(every, records="query", own=None)
            return (self.rebuilding, update) if rule.steps else (update,)
        if not self.reconstruction_steps:
            return (every,)
        if self.batch_size is None:  # one step takes everything
            return (replace(every, shared=None),)
        first = self.reconstruction_steps * self.batch_size
        most = first if self.max_examples is None else min(first, self.max_examples)
        return (replace(every, shared=None, most=most), replace(every, own=None, passed_over=first))

    @property
    def rebuilding(self) -> Phase:
        """How a client fits its own part to its support while the rest stays."""
        assert self.reconstruction is not None
        rule = self.reconstruction
        return Phase(
            records="support",
            own=rule.learning_rate,
            shared=None,
            batch_size=rule.batch_size,
            epochs=rule.epochs,
            most=rule.steps * rule.batch_size,
        )

    def brief(self) -> "LocalTraining":
        """A few steps of all that it does, to try a model with."""
        rule = self.reconstruction
        return replace(
            self,
            epochs=1,
            reconstruction_steps=0,
            reconstruction=None if rule is None else replace(rule, steps=min(rule.steps, 2)),
        )


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
