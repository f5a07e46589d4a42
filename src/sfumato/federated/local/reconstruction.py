"""A part of the model that stays with the client: how it is rebuilt from the client's own records.

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

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfumato import _check
from sfumato._check import InputError


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
    """

    support_share: float = 0.5
    support_count: int | None = None
    support_order: Literal["random", "first"] = "random"
    steps: int = 50
    epochs: int | None = 1
    batch_size: int = 5
    learning_rate: float = 0.1
    joint: bool = False

    def __post_init__(self) -> None:
        _check.between(0.0, 1.0, ends="()", support_share=self.support_share)
        _check.whole(at_least=0, reconstruction_steps=self.steps)
        _check.whole(reconstruction_batch_size=self.batch_size)
        if self.support_count is not None:
            _check.whole(support_count=self.support_count)
        if self.epochs is not None:
            _check.whole(reconstruction_epochs=self.epochs)
        _check.one_of(("random", "first"), support_order=self.support_order)
        _check.positive(reconstruction_learning_rate=self.learning_rate)
        if self.joint and self.steps == 0:
            raise InputError("reconstruction_steps=0 with joint training leaves nothing to train; raise it")

    def supports(self, sizes: np.ndarray) -> np.ndarray:
        """How many records of each client are its support, int64 [clients], from how many it has."""
        wanted = np.floor(self.support_share * sizes).astype(np.int64)
        if self.support_count is not None:
            wanted = np.full_like(sizes, self.support_count)
        return np.minimum(np.maximum(1, np.minimum(wanted, sizes - 1)), sizes)
