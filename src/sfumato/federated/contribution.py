"""What clients contribute: the delta of local training.

Unit: a client (a user, or a virtual client). A client's delta depends on its own users, the model, the client's slot
and public negatives that its slot draws; never on who else takes part.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._random import Stream
from sfumato._types import Stated
from sfumato.clipping import ClippedSum
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import Client, ClientData, ClientTrainer, gather, rows_of
from sfumato.federated.clients import Clients, deltas_of
from sfumato.federated.losses import OutputLoss, glorot_head
from sfumato.federated.negatives import PublicNegatives
from sfumato.federated.slots import BatchSlots, batch_slots_for, present
from sfumato.guard import Coupled, due, refuse_memory, try_out
from sfumato.guard.guard import equal, histories
from sfumato.guard.placeholders import placeholder
from sfumato.guard.trial import draws_random
from sfumato.models import refuse_batch_norm, refuse_no_values
from sfumato.models.check import tried_on
from sfumato.sampling import Cohort
from sfumato.training.contribution import (
    ROWS,
    Contribution,
    ModelFingerprint,
    RoundContext,
    fingerprint_of,
    refuse_private_as_public,
)
from sfumato.training.trainable import Trainable, copied

T = TypeVar("T")
_ONE = 1  # of the clients that are tried: the one that is trained again and again
_ENOUGH = 32  # clients in one operation: more of them in it gain little
_WINDOW = 4  # operations whose clients' examples are read at a time, so that those of one shape come together


class LocalContribution(Contribution):
    """The `Contribution` of every algorithm whose clients train locally.

    Args:
        model: the user's module; a copy of it is trained.
        users: the records.
        client: what each client does, how many at once, and on how many threads.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        global_classes: heads have a row for every label of the data set.
        clients_per_round: planned contributors.
        device: where to train.
        head_seed: of the initial shared head.
        local_parameters: a regular expression of whole names of parameters that are each client's own; None for none.
        negatives: public classes that join the head of every client; None for none.
        drawn_slots: a client's slot was drawn by its users and is no number of theirs in the data.

    Raises:
        InputError: a layer that couples examples, a model that does not take these inputs, no such parameters.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        users: UserDataset,
        client: Client,
        trainable: str,
        global_classes: bool,
        clients_per_round: int,
        device: str,
        head_seed: int,
        local_parameters: str | None = None,
        negatives: PublicNegatives | None = None,
        drawn_slots: bool = False,
    ) -> None:
        refuse_no_values(model)
        refuse_batch_norm(model)
        self.users = users
        self.population = len(users)
        self.local, clients_at_once = client, client.at_once
        local = client
        self.global_classes = global_classes
        self.negatives = negatives
        self._drawn_slots = drawn_slots
        outputs = probe(copied(model).to(device), users, device)
        head = None
        if isinstance(local.loss, OutputLoss):
            _refuse_other_outputs(outputs, users, local.loss)
        else:
            dimension = _dimension(outputs)
        if local.head_kind == "shared":
            head = glorot_head(users.num_classes, dimension, torch.Generator().manual_seed(head_seed))
        fresh = partial(Trainable, model, trainable, device=device, head=head, local_parameters=local_parameters)
        self.trained = fresh()
        refuse_private_as_public(self.trained, rows_of(users))
        kind = ClientTrainer if clients_at_once == 1 else BatchedTrainer
        tried = Clients(lambda brief: kind(brief, fresh()), users, local, global_classes=global_classes, device=device)
        findings = try_out(tried, tried.order)
        try:
            _refuse_changing(fresh(), users, device)
            _refuse_idle(fresh(), users, local, device)
        except RuntimeError:  # of a tensor that was kept from an operation over several clients
            findings.refuse()
            raise
        self._findings, self._tried = findings.refuse(), tried
        first = histories([self._try_one])  # after the placeholders, before any client trains here
        self._reference: Tensor | None = None if first is None else first[0]
        self.untried = first is None
        threads = _threads(fresh().model, users, device, local)
        self._batch_slots: BatchSlots | None = None
        if clients_at_once > 1:
            tried.refuse_shared_batch()
            enough = batch_slots_for(-(-clients_per_round // threads), drawn=drawn_slots)
            self._batch_slots = BatchSlots(
                min(_width(local, clients_at_once, threads), enough), BatchedTrainer(local, fresh())
            )
        copies = [self.trained, *(fresh() for _ in range(threads - 1))]  # no record has gone through any of them
        self._trainers = [kind(local, copy) for copy in copies]
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def set_client(self, client: Client) -> None:
        """What every client does from the next round on: the same steps, with another loss of public values."""
        self.local = client
        for trainer in self._trainers:
            trainer.local = client
        if self._batch_slots is not None:
            self._batch_slots = self._batch_slots.for_client(client)

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """Train the cohort and add up its bounded deltas."""
        theta, cohort, round, source = context.theta, context.cohort, context.round, context.source
        count, layout = len(self._trainers), self.trained.layout
        frozen = self.trained.frozen()  # a run that goes on has put its own back, after the copies were made
        for trainer in self._trainers[1:]:
            trainer.trained.load_frozen(frozen)
        shares = [replace(context, out=None if thread else context.out).new_sum(layout) for thread in range(count)]

        def records(part: Cohort) -> tuple[ClientData, list[int]]:
            clients = gather(self.users, part, global_classes=self.global_classes)
            if self.negatives is not None:
                clients = self.negatives.join(clients, part.slots, round, source)
            return clients, [source.seed64("local", round, slot) for slot in part.slots.tolist()]

        def alone(thread: int) -> None:
            trainer, share = self._trainers[thread], shares[thread]
            assert isinstance(trainer, ClientTrainer)
            for client in range(thread, len(cohort), count):
                clients, seeds = records(cohort.take(slice(client, client + 1)))
                delta, loss, examples = trainer.delta(theta, clients, seeds[0])
                share.add(delta)
                _forget(trainer.trained)
                share.tally.add(loss=loss, examples=examples)

        def batched(clients: ClientData, seeds: list[int], operations: list[np.ndarray], thread: int) -> None:
            trainer, share = self._trainers[thread], shares[thread]
            assert isinstance(trainer, BatchedTrainer)
            for standing in operations[thread::count]:
                there = present(standing)
                theirs = [seeds[client] if client >= 0 else 0 for client in standing.tolist()]
                deltas, losses, examples = trainer.deltas(theta, clients.of(standing), theirs)
                if isinstance(deltas, Tensor):
                    share.add_rows(deltas[there])
                else:
                    deltas.of(there).add_to(share)
                _forget(trainer.trained)
                share.tally.add(loss=losses[there].sum(), examples=examples)

        for trainer in self._trainers:
            trainer.trained.model.train()
        if (places := self._batch_slots) is None:
            self._each(alone)
        else:
            cohort = cohort.take(np.argsort(self._sizes(cohort), kind="stable"))  # who takes as many steps together
            window = _WINDOW * count * places.most
            for start in range(0, len(cohort), window):
                part = cohort.take(slice(start, start + window))
                clients, seeds = records(part)
                draws = part.slots if self._drawn_slots else np.array(seeds)
                found = self._run(lambda: list(places.operations(clients, draws)))  # noqa: B023
                self._each(partial(batched, clients, seeds, found))
        for share in shares[1:]:
            shares[0].merge(share)
        if len(cohort) > 2 and due(round, self.rounds, source, seldom=True):
            self._refuse_memory(theta, cohort, records, source.stream("look clients", round))
        return shares[0]

    def _refuse_memory(
        self, theta: Tensor, cohort: Cohort, records: Callable[[Cohort], tuple[ClientData, list[int]]], stream: Stream
    ) -> None:
        """Compare the delta of one client after one other client with that after another one."""
        probe, one, other = (int(place) for place in stream.permutation(len(cohort))[:3])
        trainer = self._trainers[0]

        def outcomes(before: Sequence[int]) -> Tensor:
            for client in (*before, probe):
                found = deltas_of(trainer, theta, *records(cohort.take(slice(client, client + 1))))
                _forget(trainer.trained)
            return torch.stack(found)

        wanted = self._reference
        now = None if wanted is None else self._try_one
        looked = refuse_memory(outcomes, ((one,), (other,)), Clients.state_message, tolerance=None, now=now)
        self.untried |= looked is None
        found = None if looked is None else looked.now
        if found is not None and wanted is not None and not equal(found, wanted, self._tried.tolerance):
            raise Coupled(Clients.state_message)

    def _try_one(self) -> Tensor:
        """The delta of one of the clients that are tried, from the first weights, [1, size]."""
        return self._tried.outcomes([_ONE])

    def settings(self) -> dict[str, Any]:
        """What could not be tried stays in the statement."""
        return {"untried": self.untried}

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Of the run that goes on."""
        self.untried |= bool(settings.get("untried"))

    def assumptions(self) -> list[Stated]:
        """What could not be tried."""
        return [*self._findings.sentences("client", untried=self.untried)]

    def _each(self, work: Callable[[int], None]) -> None:
        """Let every thread do its part: which that is follows from its number, never from who finishes first."""
        if len(self._trainers) == 1:
            self._run(lambda: work(0))
        else:
            list(self._pool.map(work, range(len(self._trainers))))

    def _run(self, work: Callable[[], T]) -> T:
        """What is worked out in a thread that has operations to itself, or here, where several may share in one."""
        here = len(self._trainers) == 1 and (self._batch_slots is None or self._batch_slots.fixed_slots)
        return work() if here else self._pool.submit(work).result()

    def _sizes(self, cohort: Cohort) -> np.ndarray:
        """Examples of each contributor, int64 [contributors]."""
        ends = np.concatenate([[0], np.cumsum(self.users.sizes[cohort.units])])
        return np.diff(ends[cohort.offsets])

    def fingerprint(self) -> str:
        """Digest of the shapes of all parameters and buffers, and of the data."""
        shapes = f"{self.trained.shapes()} {self.users.fingerprint()}"
        return shapes if self.negatives is None else f"{shapes} {self.negatives.data.fingerprint()}"

    def model_fingerprint(self) -> ModelFingerprint:
        """Losses under a placeholder head, or of placeholder tokens."""
        like = to_tensor(np.zeros((ROWS, *self.users.input_shape), self.users.dtype))
        device = self.trained.initial.device

        def losses(model: nn.Module) -> Tensor:
            outputs = model(placeholder(like).to(device))
            if isinstance(self.local.loss, OutputLoss):
                return self.local.loss(outputs, None, self.local.loss.labels_like(placeholder(like)).to(device))
            head = placeholder(torch.empty(ROWS, outputs.shape[1], dtype=outputs.dtype), seed=1).to(device)
            return self.local.loss(outputs, head, torch.arange(ROWS, device=device))

        return fingerprint_of(self.trained, losses)


class PooledContribution(LocalContribution):
    """The summed gradient of a batch of pooled examples."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._single = ClientTrainer(self.local, self.trained)
        self._ends = np.cumsum(self.users.sizes)
        self.population = int(self._ends[-1])

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the examples' gradients; each contributor is one example."""
        theta, cohort, share = context.theta, context.cohort, context.new_sum(self.trained.layout)
        if len(cohort):
            batch = self._batch(cohort.units)
            # One step of rate 1 on the mean loss leaves the mean gradient as its delta.
            gradient, loss, _ = self._single.delta(theta, batch, context.source.seed64("local", context.round))
            share.add(gradient * len(cohort))
            share.tally.add(loss=loss, examples=len(cohort))
        return share

    def _batch(self, examples: np.ndarray) -> ClientData:
        owners = np.searchsorted(self._ends, examples, side="right")
        places = examples - (self._ends[owners] - self.users.sizes[owners])
        inputs, labels = [], []
        for user, place in zip(owners.tolist(), places.tolist(), strict=True):
            x, y = self.users.examples(user)
            inputs.append(x[place])
            labels.append(y[place])
        size, classes = np.array([0, len(labels)]), np.array([self.users.num_classes])
        return ClientData(np.stack(inputs), np.array(labels), size, classes)


def _threads(model: nn.Module, users: UserDataset, device: str, client: Client) -> int:
    """How many threads train clients.

    Clients side by side gain more than threads inside an operation, and an operation that clients share is one thread's
    (`local.places`). A model that draws random numbers (dropout) shares the process's generator, so only one thread
    gives repeatable results.
    """
    if device != "cpu" or draws_random(model, _examples(users, 1)):
        return 1
    if client.threads is not None:
        return client.threads
    most = min(torch.get_num_threads(), 8)
    if client.at_once > 1 and client.reconstruction is None:
        return min(most, max(1, client.at_once // _ENOUGH))
    return most if sum(parameter.numel() for parameter in model.parameters()) < 5_000_000 else 1


def _width(local: Client, at_once: int, threads: int) -> int:
    """Clients in an operation of one thread: all threads together take `at_once`, or each, where steps are tiny."""
    return at_once if local.reconstruction is not None else -(-at_once // threads)


def _forget(trained: Trainable) -> None:
    """What no check before the first round could see begins later."""
    trained.put_back()
    trained.forget()


def _refuse_changing(trained: Trainable, users: UserDataset, device: str) -> None:
    """What forward passes write (running statistics, power iterations, a first batch's scale) would leave unnoised."""
    for count in (2, 1):
        trained.model(_examples(users, count).to(device))
    trained.refuse_changed()


def _refuse_idle(trained: Trainable, users: UserDataset, local: Client, device: str) -> None:
    """Own parameters that no record reaches could not be rebuilt."""
    if not trained.local_parameters or not isinstance(local.loss, OutputLoss):
        return
    inputs, labels = users.examples(int(np.argmax(users.sizes > 0)))
    outputs = trained.model(to_tensor(inputs[:1]).to(device))
    loss = local.loss.mean(outputs, None, torch.from_numpy(labels[:1]).to(device))
    found = torch.autograd.grad(loss, list(trained.local_parameters.values()), allow_unused=True)
    for name, gradient in zip(trained.local_parameters, found, strict=True):
        if gradient is None:
            raise InputError(
                f"the local parameter {name} changes no output of the model; leave it out of "
                "client.local.parameters, or use it in forward"
            )


def probe(model: nn.Module, users: UserDataset, device: str) -> Tensor:
    """What the model gives for one example: a placeholder if it takes that, else a record.

    Raises:
        InputError: the model does not take such inputs.
    """
    inputs = _examples(users, 1)
    was_training = model.training
    model.eval()
    try:
        try:
            return tried_on(model, placeholder(inputs).to(device))
        except InputError:
            return tried_on(model, inputs.to(device))
    finally:
        model.train(was_training)


def _dimension(outputs: Tensor) -> int:
    """The embedding's."""
    if outputs.dim() != 2:
        raise InputError(
            f"the model must give embeddings [n, d], got shape {tuple(outputs.shape)}; drop its head or flatten"
        )
    return outputs.shape[1]


def _refuse_other_outputs(outputs: Tensor, users: UserDataset, loss: OutputLoss) -> None:
    """Refuse what the loss cannot compare with the data's labels."""
    wanted, what, remedy = loss.outputs_of(users.input_shape, users.num_classes)
    if tuple(outputs.shape) != (1, *wanted):
        raise InputError(
            f"the model must give {what}, shape {[1, *wanted]} for one example, got shape {list(outputs.shape)}; "
            f"{remedy}"
        )


def _examples(users: UserDataset, count: int) -> Tensor:
    """Up to so many examples of the first user who has any."""
    filled = next((user for user in range(len(users)) if users.size(user)), None)
    if filled is None:
        raise InputError("no user has any example; point to a folder with images")
    return to_tensor(users.examples(filled)[0][:count])
