"""What a client does with its own records in a round: parts of federated plans.

A part of the model that stays with the client: how it is rebuilt from the client's own records.

Federated Reconstruction (Singhal et al. 2021, algorithm 1): in every round a client begins with the same public values
of its own parameters, fits them to one part of its records (the support) while the shared ones stay, then updates the
shared ones on the other part (the query) while its own stay. Only the change of the shared ones leaves. Nothing is kept
from one round to the next, so somebody who was never part of the training is served in the same way.

Which records are support follows from the client's own records and its seed, never from anybody else. So neither the
division nor the own part costs anything: the contribution is still one vector that is a function of the client's
records, and is bounded as such.

>>> rule = Reconstruction(support_share=0.5)
>>> rule.supports(np.array([0, 1, 2, 5])).tolist()
[0, 1, 1, 2]

References:
    Singhal, Sidahmed, Garrett, Wu, Rush, Prakash: Federated Reconstruction: Partially Local Federated Learning.
    NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, get_args

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._parts import Kinds, part, plan
from sfumato.federated.losses import LOSSES, HeadStart, Loss, OutputLoss, Softmax

Records = Literal["all", "support", "query"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Some steps of SGD.

    Attributes:
        records: which of a client's records: all of them, its support or the rest.
        own: learning rate of the client's own part; None leaves it.
        shared: learning rate of the shared part; None leaves it.
        batch_size: examples a step; None takes all at once.
        epochs: passes over these records; None passes over them until `most` examples are processed.
        passed_over: examples at the front of the order that a phase before has taken.
        most: processed examples of a client at most, those passed over included; None for no cap.
    """

    records: Records = "all"
    own: float | None
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
        parameters: a regular expression of whole names: these parameters are each user's own. None takes what the model
            says in its attribute `local_parameters`.
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
            own=self.learning_rate,
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
        start: first rows of a head: "glorot" draws them; "means" takes, for each class, the mean direction of what the
            backbone makes of the client's examples, for cosine logits.
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
        loss: of a head: "softmax" on inner products, or "cosine", "cosface", "arcface" on scaled cosines; of a model
            that has no head: "next_token" of sequences, "squared" of values, "cross_entropy" of its logits.
        at_once: train so many clients in one batched operation, best a multiple of 32; 1 trains one after the other,
            which on a processor is as fast unless clients are tiny.
        threads: threads that train clients side by side, each on its own copy of the model; None chooses by the number
            of cores and the size of the model.
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
        return (Phase(own=1.0, shared=1.0, batch_size=None, most=self.max_examples),)

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
        negatives: classes of a public data set (`RunOptions.negatives`) that a client gets a round, as many examples of
            each as it holds of a class of its own; 0 for none.
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
            return (rule.phase, update) if rule.steps else (update,)
        alone = self.head.steps_alone if isinstance(self.head, LocalHead) else 0
        if not alone:
            return (every,)
        if self.batch_size is None:  # one step takes everything
            return (replace(every, shared=None),)
        first = alone * self.batch_size
        most = first if self.max_examples is None else min(first, self.max_examples)
        return (replace(every, shared=None, most=most), replace(every, own=None, passed_over=first))

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
