"""People are served: their own part is rebuilt from records of theirs, and the model answers with it.

Whether somebody took part in the training makes no difference: nothing was kept of anybody. What is rebuilt is a
function of a person's own records and of the released model, so serving costs nobody else anything; the own part and
what the model answers with it are that person's, and no release.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.data import UserDataset
from sfumato.federated.local.batched import BatchedTrainer
from sfumato.federated.local.one_by_one import ClientTrainer
from sfumato.federated.local.phases import Phase, orders_of_examples
from sfumato.federated.local.work import ClientData, LocalTraining, gather
from sfumato.sampling import Cohort
from sfumato.training.trainable import Trainable


@dataclass(frozen=True)
class Answers:
    """What the model gave some people.

    Attributes:
        users: int64 [people], their positions in the data.
        outputs: of all records that were asked for, one person after the other, [n, …].
        labels: of the same records.
        counts: int64 [people], how many of these are each one's.
    """

    users: np.ndarray
    outputs: Tensor
    labels: Tensor
    counts: np.ndarray


class Serving:
    """A released model that people are served by.

    Args:
        model: with the shared parameters as they were released, and the own ones as everybody begins.
        local: how an own part is rebuilt.
        trainable: which parameters were trained; see `sfumato.models.trainable_parameters`.
        own: a regular expression of those that are each person's own; None for none.
        at_once: people in one batched operation; 1 takes one after the other.
        device: where to compute.

    Raises:
        InputError: the expression names none of the model's parameters, or all.
    """

    def __init__(
        self, model: nn.Module, local: LocalTraining, *, trainable: str, own: str | None, at_once: int, device: str
    ) -> None:
        self._trained = Trainable(model, trainable, device=device, own=own)
        self._local, self._at_once = local, at_once
        self._trainer = ClientTrainer(local, self._trained)
        self._batched = BatchedTrainer(local, self._trained)

    def own_parts(self, data: UserDataset, phases: Sequence[Phase]) -> dict[str, Tensor]:
        """The own part of everybody, [users, …] by the parameter's name."""
        found = {
            name: torch.empty(len(data), *value.shape, dtype=value.dtype) for name, value in self._trained.own.items()
        }
        for users, seeds, clients in self._groups(data):
            for name, part in zip(found, self._parts(seeds, clients, phases), strict=True):
                found[name][torch.from_numpy(users)] = part.detach().cpu()
        return found

    def answers(self, data: UserDataset, phases: Sequence[Phase], asked: Phase) -> Iterator[Answers]:
        """What the model gives people for the records of `asked`, after the phases."""
        rule, theta = self._local.reconstruction, self._trained.initial
        for users, seeds, clients in self._groups(data):
            order, counts = orders_of_examples(asked, np.diff(clients.offsets), seeds, rule)
            rows = order + np.repeat(clients.offsets[:-1], counts)
            inputs, labels = clients.take(rows)
            inputs, labels = inputs.to(theta.device), labels.to(theta.device)
            if self._at_once == 1:
                self._trainer.train(theta, clients, int(seeds[0]), phases)
                outputs = self._ask(inputs)
                self._trained.put_back()
                self._trained.forget()
            else:
                own = self._batched.own_parts(theta, clients, seeds.tolist(), phases)
                owner = np.repeat(np.arange(len(users)), counts)
                place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
                padded = inputs.new_zeros(len(users), max(1, counts.max()), *inputs.shape[1:])
                padded[owner, place] = inputs
                self._trained.model.eval()
                outputs = self._batched.outputs(theta, own, padded)[owner, place]
                self._trained.model.train()
            yield Answers(users, outputs, labels, counts)

    def _ask(self, inputs: Tensor) -> Tensor:
        self._trained.model.eval()
        try:
            with torch.no_grad():
                return self._trained.model(inputs)
        finally:
            self._trained.model.train()

    def _parts(self, seeds: np.ndarray, clients: ClientData, phases: Sequence[Phase]) -> list[Tensor]:
        theta = self._trained.initial
        if self._at_once > 1:
            return self._batched.own_parts(theta, clients, seeds.tolist(), phases)
        self._trainer.train(theta, clients, int(seeds[0]), phases)
        parts = [part.detach().clone()[None] for part in self._trained.own.values()]
        self._trained.put_back()
        return parts

    def _groups(self, data: UserDataset) -> Iterator[tuple[np.ndarray, np.ndarray, ClientData]]:
        """People who have as many records together, so that they take as many steps: who, their seeds, their records.

        A person's seed follows from the name, so that the answer is the same wherever and beside whom they stand.
        """
        order = np.argsort(data.sizes, kind="stable")
        for start in range(0, len(order), self._at_once):
            users = order[start : start + self._at_once]
            seeds = np.array([_seed_of(str(data.user_ids[int(user)])) for user in users])
            yield users, seeds, gather(data, Cohort.of_single_units(users), global_classes=True)


def _seed_of(name: str) -> int:
    """Public: it decides an order of records and nothing that is released."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
