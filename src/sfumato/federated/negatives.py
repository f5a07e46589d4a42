"""Public negatives: classes of a public data set that join every client's head for a round.

A client of one person with one class has nothing to distinguish. Some public classes give it that, so every
person can be a client and moves the sum by one clip norm instead of two. Which classes and examples a client gets is
drawn from a stream of its own slot and the round: no user who comes or goes changes what another client gets, and a
round that is repeated draws the same. The examples join the client's own before anything else is done with them: they
are shuffled, repeated and batched with them, and the cap on processed examples counts both.

From each drawn class a client takes as many examples as it holds of a class of its own (the mean, rounded up; all that
there are if there are fewer), so that its classes have equal weight. A client without examples takes none.

The derivation is in docs/explanation/virtual-clients.md.
"""

import copy
from collections.abc import Callable

import numpy as np

from sfumato import _check
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato._types import Assumption
from sfumato.data import UserDataset
from sfumato.federated.client import ClientData, rows_of
from sfumato.sampling.sampler import subset
from sfumato.training.contribution import refuse_private_rows


class PublicNegatives:
    """A public data set that clients draw classes from.

    Args:
        data: the public examples; whose they are plays no part.
        per_client: classes that a client draws a round, >= 1.

    Raises:
        InputError: labels are no classes, or there are fewer of them than a client draws.
    """

    def __init__(self, data: UserDataset, per_client: int) -> None:
        _check.whole(negatives_per_client=per_client)
        if not isinstance(data, UserDataset):
            raise InputError(
                f"negatives must be a data set of sfumato with a class for each example, got {type(data).__name__}; "
                "make one with sfumato.data.from_arrays"
            )
        data.refuse_values("be distinguished as classes")
        data.refuse_attributes("be distinguished as classes")
        if data.of_sequences:
            raise InputError("the negatives are sequences of tokens, not examples of classes; give such examples")
        self.data, self.per_client = data, per_client
        self._digest = data.fingerprint()
        labels = [data.examples(user)[1] for user in range(len(data))]
        sizes = np.array([len(part) for part in labels], np.int64)
        held = np.concatenate([np.empty(0, np.int64), *labels])
        order = np.argsort(held, kind="stable")
        self._user = np.repeat(np.arange(len(data)), sizes)[order]
        self._place = (np.arange(len(held)) - np.repeat(np.cumsum(sizes) - sizes, sizes))[order]
        _, counts = np.unique(held, return_counts=True)
        self._ends = np.concatenate([[0], np.cumsum(counts)])
        if per_client > len(counts):
            raise InputError(
                f"client.negatives={per_client}, but the negatives hold {len(counts)} classes; lower it, or give "
                "more of them"
            )

    @property
    def classes(self) -> int:
        """Classes that have an example."""
        return len(self._ends) - 1

    def refuse_unfit(self, users: UserDataset) -> None:
        """Refuse negatives that a model of these users does not read in the same way, or that hold a record of theirs.

        Raises:
            InputError: another shape or type, or rows that are in both.
        """
        ours, theirs = (users.input_shape, users.dtype), (self.data.input_shape, self.data.dtype)
        if ours != theirs:
            raise InputError(
                f"the negatives are inputs of {theirs[0]} {theirs[1]}, and those of the users are {ours[0]} {ours[1]}; "
                "bring them to the same shape, channels and type"
            )
        refuse_private_rows(rows_of(self.data), rows_of(users), of="negatives")

    def through(self, layers: Callable[[UserDataset], UserDataset]) -> "PublicNegatives":
        """The same draws of the same examples, after the frozen first layers of a model."""
        mapped = copy.copy(self)
        mapped.data = layers(self.data)
        return mapped

    def assumption(self) -> Assumption:
        """What a guarantee with them rests on."""
        counts = {"examples": len(self._user), "classes": self.classes, "per_client": self.per_client}
        return Assumption("negatives_public", {**counts, "digest": self.fingerprint()})

    def fingerprint(self) -> str:
        """Digest of the public examples, as they were given."""
        return self._digest

    def join(self, clients: ClientData, slots: np.ndarray, round: int, source: RandomSource) -> ClientData:
        """The clients with their negatives after their own examples, as classes after their own.

        Args:
            clients: their own examples.
            slots: int64 [clients], what names each client's draws.
            round: from 0.
            source: the run's randomness.
        """
        counts = np.diff(clients.offsets)
        drawn = [
            self._drawn(clients.labels[start : start + count], source.stream("negatives", round, slot))
            for start, count, slot in zip(clients.offsets.tolist(), counts.tolist(), slots.tolist(), strict=False)
        ]
        more = np.array([len(rows) for rows, _ in drawn], np.int64)
        if not more.any():
            return clients
        rows = np.concatenate([rows for rows, _ in drawn])
        numbers = np.concatenate([number for _, number in drawn]) + np.repeat(clients.classes, more)
        offsets = np.concatenate([[0], np.cumsum(counts + more)])
        # Own ones first, in their order, then the public ones of the same client.
        own = np.arange(len(clients.labels)) + np.repeat(np.cumsum(more) - more, counts)
        public = np.arange(len(rows)) + np.repeat(np.cumsum(counts), more)
        inputs = np.empty((int(offsets[-1]), *clients.inputs.shape[1:]), clients.inputs.dtype)
        labels = np.empty(len(inputs), clients.labels.dtype)
        inputs[own], labels[own] = clients.inputs, clients.labels
        inputs[public], labels[public] = self._inputs(rows), numbers
        return ClientData(inputs, labels, offsets, clients.classes + self.per_client * (more > 0))

    def _drawn(self, labels: np.ndarray, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
        """Which public examples one client gets, and the number of each one's class among those drawn.

        The classes come first from the stream, so they are the same whatever the client holds.
        """
        if not len(labels):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        each = -(-len(labels) // len(np.unique(labels)))
        chosen = subset(self.per_client, self.classes, stream)
        first, sizes = self._ends[chosen], self._ends[chosen + 1] - self._ends[chosen]
        number = np.repeat(np.arange(len(chosen)), sizes)
        rows = np.arange(len(number)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        order = np.lexsort((stream.uint64(len(rows)), number))
        taken = order[np.arange(len(number)) - np.repeat(np.cumsum(sizes) - sizes, sizes) < each]
        return rows[taken], number[taken]

    def _inputs(self, rows: np.ndarray) -> np.ndarray:
        users, where = np.unique(self._user[rows], return_inverse=True)
        inputs, _, sizes = self.data.examples_of(users)
        return inputs[(np.cumsum(sizes) - sizes)[where] + self._place[rows]]
