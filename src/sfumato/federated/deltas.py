"""What clients contribute: the delta of local training.

Unit: a client (a user, or a virtual client). A client's delta depends on its own users, the model and the client's
slot; never on who else takes part.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from sfumato._check import InputError, first_line
from sfumato._random import RandomSource
from sfumato.clipping import ClippedSum, NormBound
from sfumato.data import UserDataset, to_tensor
from sfumato.federated.local.batched import BatchedTrainer
from sfumato.federated.local.heads import glorot_head
from sfumato.federated.local.one_by_one import ClientTrainer
from sfumato.federated.local.work import LocalTraining, gather
from sfumato.models import refuse_batch_norm
from sfumato.sampling import Cohort
from sfumato.training import Contribution, Trainable
from sfumato.training.trainable import copied


class LocalContribution(Contribution):
    """The `Contribution` of every algorithm whose clients train locally.

    Args:
        model: the user's module; a copy of it is trained.
        users: the records.
        local: what a client does.
        trainable: which parameters are trained; see `sfumato.models.trainable_parameters`.
        global_classes: heads have a row for every label of the data set.
        clients_at_once: clients trained in one batched operation.
        client_threads: threads that train clients side by side, each on a resident copy; None chooses.
        device: where to train.
        head_seed: of the initial shared head.

    Raises:
        InputError: a layer that couples examples, a model that does not take these inputs, no such parameters.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        users: UserDataset,
        local: LocalTraining,
        trainable: str,
        global_classes: bool,
        clients_at_once: int,
        client_threads: int | None,
        device: str,
        head_seed: int,
    ) -> None:
        refuse_batch_norm(model)
        self.users = users
        self.population = len(users)
        self.local = local
        self.global_classes = global_classes
        self.clients_at_once = clients_at_once
        dimension = probe(copied(model).to(device), users, device)
        head = None
        if local.shared_head:
            head = glorot_head(users.num_classes, dimension, torch.Generator().manual_seed(head_seed))
        self.trained = Trainable(model, trainable, device=device, head=head)
        threads = _threads(self.trained.model, users, device, client_threads, clients_at_once)
        copies = [self.trained, *(Trainable(model, trainable, device=device, head=head) for _ in range(threads - 1))]
        trainer = ClientTrainer if clients_at_once == 1 else BatchedTrainer
        self._trainers = [trainer(local, copy) for copy in copies]
        _refuse_moving_buffers(self.trained.model, users, device)
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """Train the cohort and add up its bounded deltas."""

        def train(trainer: ClientTrainer | BatchedTrainer, part: Cohort, memory: Tensor | None = None) -> ClippedSum:
            trainer.trained.model.train()
            share = ClippedSum(bound, clip_norm, self.trained.layout, device=theta.device, out=memory)
            for start in range(0, len(part), self.clients_at_once):
                chunk = part.take(slice(start, start + self.clients_at_once))
                clients = gather(self.users, chunk, global_classes=self.global_classes)
                seeds = [source.seed64("local", round, slot) for slot in chunk.slots.tolist()]
                if isinstance(trainer, ClientTrainer):
                    delta, loss, examples = trainer.delta(theta, clients, seeds[0])
                    share.add(delta)
                else:
                    deltas, losses, examples = trainer.deltas(theta, clients, seeds)
                    share.add_rows(deltas)
                    loss = losses.sum()
                trainer.trained.restore_buffers()
                share.tally.add(loss=loss, examples=examples)
            return share

        count = len(self._trainers)
        if count == 1:
            return train(self._trainers[0], cohort, out)
        frozen = self.trained.frozen()  # a run that goes on has put its own back, after the copies were made
        for trainer in self._trainers[1:]:
            trainer.trained.load_frozen(frozen)
        parts = [cohort.take(slice(i, None, count)) for i in range(count)]
        # In the threads' order, not in the order in which they finish: the same sum every time.
        shares = list(self._pool.map(train, self._trainers, parts, [out] + [None] * (count - 1)))
        for share in shares[1:]:
            shares[0].merge(share)
        return shares[0]

    def fingerprint(self) -> str:
        """Digest of the parameters' shapes and of the data."""
        layout = self.trained.layout
        shapes = [(name, tuple(shape)) for name, shape in zip(layout.names, layout.shapes, strict=True)]
        return f"{shapes} {self.users.fingerprint()}"


def _threads(model: nn.Module, users: UserDataset, device: str, wanted: int | None, at_once: int) -> int:
    """How many threads train clients.

    Small models gain more from clients side by side than from threads inside an operation; batched operations are
    large enough for the latter. A model that draws random numbers (dropout) shares the process's generator, so only
    one thread gives repeatable results.
    """
    if device != "cpu" or _draws(model, users):
        return 1
    if wanted is not None:
        return wanted
    small = sum(parameter.numel() for parameter in model.parameters()) < 5_000_000
    return min(torch.get_num_threads(), 8) if small and at_once == 1 else 1


def _draws(model: nn.Module, users: UserDataset) -> bool:
    """Whether a forward pass in training mode takes random numbers."""
    before = torch.get_rng_state()
    with torch.no_grad():
        model(_examples(users, 1))
    return not torch.equal(before, torch.get_rng_state())


def _refuse_moving_buffers(model: nn.Module, users: UserDataset, device: str) -> None:
    """A buffer that changes in a training step (running statistics, power iterations) would leave without noise."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    if not before:
        return
    with torch.no_grad():
        model(_examples(users, 2).to(device))
    moved = [name for name, buffer in model.named_buffers() if not torch.equal(buffer, before[name])]
    for name, buffer in model.named_buffers():
        buffer.copy_(before[name])
    if moved:
        raise InputError(
            f"the model's buffer {moved[0]} changes while it trains, and would carry private records into the release "
            "without noise; use a layer without such a buffer (group norm, plain weights)"
        )


def probe(model: nn.Module, users: UserDataset, device: str) -> int:
    """The embedding's dimension, from one example.

    Raises:
        InputError: the model does not take such inputs, or does not give embeddings [n, d].
    """
    inputs = _examples(users, 1).to(device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            embeddings = model(inputs)
    except RuntimeError as error:
        raise InputError(
            f"the model does not take inputs of shape {tuple(inputs.shape[1:])} ({first_line(error)}); "
            "build it for this shape, or resize the data"
        ) from None
    finally:
        model.train(was_training)
    if embeddings.dim() != 2:
        raise InputError(
            f"the model must give embeddings [n, d], got shape {tuple(embeddings.shape)}; drop its head or flatten"
        )
    return embeddings.shape[1]


def _examples(users: UserDataset, count: int) -> Tensor:
    """Up to so many examples of the first user who has any."""
    filled = next((user for user in range(len(users)) if users.size(user)), None)
    if filled is None:
        raise InputError("no user has any example; point to a folder with images")
    return to_tensor(users.examples(filled)[0][:count])
