"""People are served: their own part is rebuilt from records of theirs, and the model answers with it.

Whether somebody took part in the training makes no difference: nothing was kept of anybody. What is rebuilt is a
function of a person's own records and of the released model, so serving costs no one else anything; the own part and
what the model answers with it are that person's, and no release.

A model that draws random numbers (dropout) rebuilds one person after the other, each with draws that follow from the
name; in one batch they would follow from who else is in it.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.data import UserDataset, to_tensor
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import Client, ClientData, ClientTrainer, Phase, gather, orders_of_examples
from sfumato.guard.trial import draws_random
from sfumato.sampling import Cohort
from sfumato.training.trainable import Trainable

T = TypeVar("T")
_MOST_THREADS = 8


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


@dataclass(frozen=True)
class Served:
    """Some people with their own parts.

    Attributes:
        users: int64 [people], their positions in the data.
        seeds: int64 [people], of the orders of their records.
        records: that these were rebuilt from.
        ask: maps inputs [people, n, …] to what the model gives each of them, [people, n, …].
    """

    users: np.ndarray
    seeds: np.ndarray
    records: ClientData
    ask: Callable[[Tensor], Tensor]


class Serving:
    """A released model that people are served by.

    Args:
        model: with the shared parameters as they were released, and the own ones as everybody begins.
        local: how an own part is rebuilt.
        trainable: which parameters were trained; see `sfumato.models.trainable_parameters`.
        local_parameters: a regular expression of those that are each person's own; None for none.
        at_once: people in one batched operation; 1 takes one after the other.
        device: where to compute.

    Raises:
        InputError: the expression names none of the model's parameters, or all.
    """

    def __init__(
        self,
        model: nn.Module,
        local: Client,
        *,
        trainable: str,
        local_parameters: str | None,
        at_once: int,
        device: str,
    ) -> None:
        self._at_once, self._device = at_once, device
        threads = min(torch.get_num_threads(), _MOST_THREADS) if device == "cpu" else 1
        self._servers: SimpleQueue[_Server] = SimpleQueue()
        for _ in range(threads):
            self._servers.put(
                _Server(Trainable(model, trainable, device=device, local_parameters=local_parameters), local)
            )
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        self._ahead = 2 * threads

    def local_values(self, data: UserDataset, phases: Sequence[Phase]) -> dict[str, Tensor]:
        """The own part of everybody, [users, …] by the parameter's name."""
        found: dict[str, Tensor] = {}

        def work(server: _Server, users: np.ndarray, alone: bool) -> tuple[np.ndarray, dict[str, Tensor]]:
            return users, server.local_values(data, users, phases, alone=alone)

        for users, parts in self._in_order(data, work):
            for name, part in parts.items():
                if name not in found:
                    found[name] = part.new_empty(len(data), *part.shape[1:])
                found[name][torch.from_numpy(users)] = part
        return found

    def answers(self, data: UserDataset, phases: Sequence[Phase], asked: Phase) -> Iterator[Answers]:
        """What the model gives people for the records of `asked`, after the phases."""

        def work(server: _Server, users: np.ndarray, alone: bool) -> Answers:
            return server.answers(data, users, phases, asked, alone=alone)

        return self._in_order(data, work)

    def served(self, data: UserDataset, phases: Sequence[Phase], work: "Callable[[Served], T]") -> Iterator[T]:
        """What is made of people's own parts after the phases, for some people at a time, in the order of the data.

        Args:
            data: records that the own parts are rebuilt from.
            phases: how.
            work: is called in several threads, and must keep nothing of what it is given.
        """

        def each(server: _Server, users: np.ndarray, alone: bool) -> T:
            return server.served(data, users, phases, work, alone=alone)

        return self._in_order(data, each, by_size=False)

    def _in_order(
        self, data: UserDataset, work: "Callable[[_Server, np.ndarray, bool], T]", *, by_size: bool = True
    ) -> Iterator[T]:
        """What is worked out for groups of people, a few groups ahead of who asks.

        With `by_size`, people who have as many records are together, so that they take as many steps.
        """
        at_once, ahead = (1, 0) if self._draws(data) else (self._at_once, self._ahead)

        def one(users: np.ndarray) -> T:
            server = self._servers.get()
            try:
                return work(server, users, at_once == 1)
            finally:
                server.forget()
                self._servers.put(server)

        order = np.argsort(data.sizes, kind="stable") if by_size else np.arange(len(data))
        waiting: deque[Future[T]] = deque()
        for start in range(0, len(order), at_once):
            waiting.append(self._pool.submit(one, order[start : start + at_once]))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _draws(self, data: UserDataset) -> bool:
        """Whether the model takes random numbers, which all threads share."""
        if not data.num_examples:
            return False
        inputs, _ = data.examples(int(np.argmax(data.sizes > 0)))
        server = self._servers.get()
        try:
            return draws_random(server.model, to_tensor(inputs[:1]).to(self._device))
        finally:
            server.forget()
            self._servers.put(server)


class _Server:
    """One thread's copy of the model."""

    def __init__(self, trained: Trainable, local: Client) -> None:
        self.model = trained.model
        self._trained, self._local = trained, local
        self._single, self._batched = ClientTrainer(local, trained), BatchedTrainer(local, trained)

    def forget(self) -> None:
        """The next user of the model meets it as it was."""
        self._trained.put_back()
        self._trained.forget()

    def local_values(
        self, data: UserDataset, users: np.ndarray, phases: Sequence[Phase], *, alone: bool
    ) -> dict[str, Tensor]:
        """Of these people, by the parameter's name; who is alone needs no batch."""
        theta, seeds, clients = self._trained.initial, _seeds(data, users), _records(data, users)
        if not alone:
            parts = self._batched.local_values(theta, clients, seeds.tolist(), phases)
        else:
            self._single.train(theta, clients, int(seeds[0]), phases)
            parts = [part.detach().clone()[None] for part in self._trained.local_parameters.values()]
        return {name: part.detach().cpu() for name, part in zip(self._trained.local_parameters, parts, strict=True)}

    def answers(
        self, data: UserDataset, users: np.ndarray, phases: Sequence[Phase], asked: Phase, *, alone: bool
    ) -> Answers:
        """What the model gives these people."""

        def work(served: Served) -> Answers:
            clients, rule = served.records, self._local.reconstruction
            order, counts = orders_of_examples(asked, np.diff(clients.offsets), served.seeds, rule)
            inputs, labels = clients.take(order + np.repeat(clients.offsets[:-1], counts))
            owner = np.repeat(np.arange(len(users)), counts)
            place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
            padded = inputs.new_zeros(len(users), max(1, counts.max()), *inputs.shape[1:])
            padded[owner, place] = inputs
            outputs = served.ask(padded)[owner, place]
            return Answers(users, outputs, labels.to(outputs.device), counts)

        return self.served(data, users, phases, work, alone=alone)

    def served(
        self,
        data: UserDataset,
        users: np.ndarray,
        phases: Sequence[Phase],
        work: "Callable[[Served], T]",
        *,
        alone: bool,
    ) -> T:
        """What is made of these people's own parts; who is alone needs no batch."""
        theta, seeds, clients = self._trained.initial, _seeds(data, users), _records(data, users)
        if alone:
            self._single.train(theta, clients, int(seeds[0]), phases)
            return work(Served(users, seeds, clients, lambda inputs: self._asked(inputs[0].to(theta.device))[None]))
        own = self._batched.local_values(theta, clients, seeds.tolist(), phases)

        def ask(inputs: Tensor) -> Tensor:
            self._trained.model.eval()
            try:
                return self._batched.outputs(theta, own, inputs.to(theta.device))
            finally:
                self._trained.model.train()

        return work(Served(users, seeds, clients, ask))

    def _asked(self, inputs: Tensor) -> Tensor:
        self._trained.model.eval()
        try:
            with torch.no_grad():
                return self._trained.model(inputs)
        finally:
            self._trained.model.train()


def support_labels(data: UserDataset, users: np.ndarray, local: Client) -> Iterator[np.ndarray]:
    """The labels of the records that each person's own part is rebuilt from."""
    support = Phase(records="support", local=None, shared=None, batch_size=None)
    for user in users:
        one = np.array([user])
        order, _ = orders_of_examples(support, data.sizes[one], _seeds(data, one), local.reconstruction)
        yield np.asarray(data.examples(int(user))[1])[order]


def _records(data: UserDataset, users: np.ndarray) -> ClientData:
    return gather(data, Cohort.of_single_units(users), global_classes=True)


def _seeds(data: UserDataset, users: np.ndarray) -> np.ndarray:
    """A person's seed follows from the name, so the answer is the same in any slot and with any others."""
    return np.array([_seed_of(str(data.user_ids[int(user)])) for user in users])


def _seed_of(name: str) -> int:
    """Public: it decides an order of records and nothing that is released."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
