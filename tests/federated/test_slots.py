"""Clients that are trained in one batched operation: each in its own slot, at any width."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fitting import local_training
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._torch import one_thread_each
from sfumato.federated import ClientTraining, FedEmb
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import (
    ClientData,
    Phase,
    Reconstruction,
    class_widths,
    counts_of_examples,
    orders_of_examples,
    widths,
)
from sfumato.federated.losses import ArcFace, Cosine, SquaredLoss
from sfumato.federated.slots import BatchSlots, present, shapes_of
from sfumato.models import recommender
from sfumato.sampling import Cohort
from sfumato.training import RoundContext, Trainable
from slow import one_in, slow_but

# A client's delta is the same to the last bit whoever shares its operation, and wherever it stands.

COUNT, MOST, ITEMS = 150, 64, 31
DIVERGES: dict[str, Any] = {"epochs": 3, "batch_size": 4, "learning_rate": 0.5, "momentum": 0.5}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """An operation is one thread's, as in a round."""
    with one_thread_each():
        yield


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(13, 30), nn.Tanh(), nn.Linear(30, 7))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 13)), nn.Conv1d(1, 6, 3), nn.GELU(), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(66, 7)
    )


def attention() -> nn.Module:
    return nn.Sequential(nn.Linear(13, 12), nn.LayerNorm(12), nn.Sigmoid(), nn.Linear(12, 7), nn.Softplus())


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "convolutions": convolutions, "norms": attention}
WORK: dict[str, ClientTraining] = {
    "glorot": local_training(**DIVERGES),
    "means": local_training(**DIVERGES, head_start="means", loss=Cosine()),
    "all at once": local_training(**{**DIVERGES, "batch_size": None}, head_start="means", loss=ArcFace()),
    "head first": local_training(**DIVERGES, reconstruction_steps=2),
}


def people(seed: int = 0) -> ClientData:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, COUNT)
    classes = rng.integers(1, 5, COUNT)
    labels = np.concatenate([rng.integers(0, held, size) for held, size in zip(classes, sizes, strict=True)])
    inputs = rng.normal(size=(len(labels), 13)).astype(np.float32)
    return ClientData(inputs, labels, np.cumsum([0, *sizes]), classes)


def ratings(seed: int = 0) -> ClientData:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 40, COUNT)
    items = rng.integers(0, ITEMS, (sizes.sum(), 1))
    return ClientData(
        items, rng.normal(3, 1, len(items)).astype(np.float32), np.cumsum([0, *sizes]), np.zeros(COUNT, np.int64)
    )


def deltas(
    trainer: BatchedTrainer, places: BatchSlots, data: ClientData, who: np.ndarray
) -> Iterator[tuple[int, Tensor]]:
    """Each one's, in company of the others."""
    theta = trainer.trained.initial
    for standing in places.operations(data.of(who), 7 * who):
        clients = np.where(standing >= 0, who[standing], -1)
        found = trainer.deltas(theta, data.of(clients), np.where(clients >= 0, 1000 + clients, 0).tolist())[0]
        rows = found.clone() if isinstance(found, Tensor) else found.whole(trainer.trained.layout.shapes)
        there = present(standing)
        yield from zip(clients[clients >= 0].tolist(), rows[there], strict=True)


def different(work: ClientTraining, build: Callable[[], nn.Module], data: ClientData, own: str | None = None) -> float:
    """By how much of its length a client's delta differs with who else is there, at most over everybody."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
    fresh = partial(BatchedTrainer, work)
    trainer, places = (
        fresh(Trainable(model, local_parameters=own)),
        BatchSlots(MOST, fresh(Trainable(model, local_parameters=own))),
    )
    everybody = np.arange(COUNT)
    expected = dict(deltas(trainer, places, data, everybody))
    assert sorted(expected) == everybody.tolist()
    assert sum(float(delta.norm()) > 0 for delta in expected.values()) > COUNT / 2
    rng, most = np.random.default_rng(1), 0.0
    for count in (1, 2, 9, 40, 149):
        for _ in range(2):
            for who, delta in deltas(trainer, places, data, rng.permutation(COUNT)[:count]):
                off = (delta - expected[who]).double().nan_to_num().norm() / (1e-30 + expected[who].double().norm())
                most = max(most, float(off))
    return most


@pytest.mark.parametrize(("model", "work"), one_in(3, MODELS, WORK))
def test_no_one_decides_how_the_delta_of_another_one_rounds(model, work):
    assert different(WORK[work], MODELS[model], people()) == 0


@pytest.mark.parametrize("kind", slow_but(["matrix_factorization", "neural"], "neural"))
def test_no_one_does_where_clients_rebuild_a_part_of_their_own(kind):
    build = partial(recommender, kind, ITEMS, factors=6, generator=torch.Generator().manual_seed(0))
    work = local_training(
        epochs=2,
        batch_size=4,
        learning_rate=0.05,
        loss=SquaredLoss(),
        reconstruction=Reconstruction(epochs=2),
    )
    assert different(work, build, ratings(), own=build().local_parameters) == 0


@pytest.mark.slow
def test_it_takes_more_than_chance(monkeypatch):
    """In operations as wide as there are clients, the same clients do change each other: the tests above can fail."""

    def crowds(self: BatchSlots, clients: ClientData, draws: np.ndarray) -> Iterator[np.ndarray]:
        shapes, group = np.unique(shapes_of(self._trainer.local, clients), axis=0, return_inverse=True)
        return (np.flatnonzero(group.reshape(-1) == number) for number in range(len(shapes)))

    monkeypatch.setattr(BatchSlots, "operations", crowds)
    assert max(different(WORK[work], MODELS[model], people()) for work in ("glorot", "means") for model in MODELS) > 0


def test_places_of_one_kind_give_one_client_the_same_and_lie_similar():
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    places = BatchSlots(MOST, trainer)
    shape, like = tuple(shapes_of(WORK["glorot"], people()).max(axis=0).tolist()), people().of(np.array([1]))
    kinds = [places._kinds_of(shape, width, like) for width in (64, 32)]
    numbers = np.concatenate([np.arange(64), np.arange(32)])
    for kind in np.unique(np.concatenate(kinds)):
        assert len(set(numbers[np.concatenate(kinds) == kind] % 16)) == 1
    assert len(np.unique(kinds[0])) < 64


def test_where_no_slots_are_equivalent_every_client_takes_its_own(monkeypatch):
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    monkeypatch.setattr(trainer, "deltas", lambda *_: 1 / 0)
    places, data = BatchSlots(MOST, trainer), people()
    for count in (COUNT, 17, 3):
        seen = []
        for standing in places.operations(data.of(np.arange(count)), 5 * np.arange(count)):
            who = standing[standing >= 0]
            if np.diff(data.offsets)[who].any():  # who has no example may stand anywhere
                assert len(standing) == MOST
                assert (np.flatnonzero(standing >= 0) == 5 * who % MOST).all()
            seen += who.tolist()
        assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("broken", [float("nan"), 0.0])
def test_a_trial_that_reports_nothing_makes_no_places_similar(monkeypatch, broken):
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    whole = trainer.deltas
    monkeypatch.setattr(trainer, "deltas", lambda *given: (whole(*given)[0] * broken, 0, 0))
    places, data = BatchSlots(MOST, trainer), people()
    client = data.of(np.array([int(np.argmax(np.diff(data.offsets)))]))
    shape = tuple(shapes_of(WORK["glorot"], client)[0].tolist())
    home, less = (places._kinds_of(shape, width, client) for width in (64, 32))
    assert len(np.unique(home)) == 64
    assert not np.isin(less, home).any()


def test_everybody_stands_once_next_to_others_of_one_shape_and_operations_are_filled():
    trainer = BatchedTrainer(WORK["glorot"], Trainable(convolutions()))
    places, data = BatchSlots(MOST, trainer), people()
    seen, shapes = [], shapes_of(WORK["glorot"], data)
    for standing in places.operations(data, np.arange(COUNT)):
        who = standing[standing >= 0]
        assert len(np.unique(shapes[who], axis=0)) == 1
        seen += who.tolist()
    assert sorted(seen) == list(range(COUNT))


def test_a_shape_follows_from_the_client_alone():
    data = people()
    whole = shapes_of(WORK["head first"], data)
    for client in range(COUNT):
        assert (shapes_of(WORK["head first"], data.of(np.array([client]))) == whole[client]).all()


def test_heads_are_padded_to_few_numbers_of_classes():
    classes = np.arange(1, 2000)
    found = class_widths(classes)
    assert (found >= classes).all()
    assert (found[classes > 64] <= 1.25 * classes[classes > 64]).all()
    assert np.unique(found[:64]).tolist() == [1, 4, 16, 64]


# In one batched operation a client's delta is its own, also where the trial before the first round met nothing.

FAR = np.arange(100, 130)
"""Users who are far out: some of so many that no trial meets them."""


class Mixes(nn.Module):
    """Takes the mean of the batch off, where one of its rows is far out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        far = (x.abs().amax() > 5).to(x.dtype)
        return self.second(torch.relu(self.first(x - 50 * far * x.mean(0, keepdim=True))))


class Writes(nn.Module):
    """Makes its weights smaller where they are large, but for the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() and self.first.weight.norm() > 3:
            self.first.weight.data.mul_(0.9)
        return self.second(torch.relu(self.first(x)))


def users_of(sizes: list[int]) -> data.UserDataset:
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    inputs = rng.normal(size=(len(owner), 6)) + 6 * np.isin(owner, FAR)[:, None]
    return data.from_arrays(inputs.astype(np.float32), owner, np.char.mod("u%04d", owner))


def contribution(model: nn.Module, users: data.UserDataset, learning_rate: float = 0.005):
    plan = FedEmb(
        cohort={"size": 4, "users_per_client": 1},
        client={
            "negatives": 2,
            "epochs": 1,
            "batch_size": 64,
            "loss": "cosine",
            "at_once": 64,
            "threads": 1,
            "learning_rate": learning_rate,
            "head": {"start": "means"},
        },
        clipping=0.5,
        noise=0,
    )
    rng = np.random.default_rng(0)
    public = data.from_arrays(rng.normal(size=(60, 6)).astype(np.float32), np.repeat(np.arange(20), 3), np.arange(60))
    return plan, plan.contribution(model, users, "cpu", 0, plan.with_negatives(public, users))


def test_one_person_moves_the_sum_by_one_clip_norm_where_a_model_mixes_what_no_trial_met():
    users = users_of([2] * 3 + [3] * 900 + [1] * 3 + [8])
    torch.manual_seed(0)
    plan, made = contribution(Mixes(), users, learning_rate=5.0)
    source, sums = RandomSource.from_seed(3), []
    for cohort in (FAR, np.append(FAR, len(users) - 1)):
        chosen = Cohort.of_single_units(cohort)
        share = made.clipped_sum(RoundContext(made.trained.initial.clone(), chosen, 0, plan.clipping, 0.5, source))
        sums.append(share.total)
    assert (sums[0] - sums[1]).norm() <= 0.5 * (1 + 1e-4)  # round-off is enlarged by 50 times the mean


def test_what_a_model_writes_into_its_weights_is_seen_and_never_reaches_the_released_ones():
    users = users_of([2, 3, 1, 4, 2, 3])
    torch.manual_seed(0)
    plan, made = contribution(Writes(), users)
    theta = 3 * made.trained.initial
    before, everybody = theta.clone(), Cohort.of_single_units(np.arange(len(users)))
    with pytest.raises(InputError, match="writes into its weights"):
        made.clipped_sum(RoundContext(theta, everybody, 0, plan.clipping, 0.5, RandomSource.from_seed(3)))
    assert torch.equal(theta, before)


@pytest.mark.parametrize("batch_size", [None, 1, 5, 32])
def test_a_width_holds_the_batches_of_its_clients_and_little_more(batch_size):
    counts = np.arange(200)
    found = widths(counts, batch_size)
    several = np.zeros(len(counts), bool) if batch_size is None else counts > batch_size
    assert (found[~several] >= counts[~several]).all()
    assert (found[~several] <= np.where(counts <= 64, 2, 1.25)[~several] * counts[~several]).all()
    assert (found[several] == 2 * (batch_size or 0)).all()
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("phase", "rule"),
    [
        (Phase(local=1.0, shared=1.0, batch_size=4, epochs=3), None),
        (Phase(local=1.0, shared=1.0, batch_size=4, epochs=3, most=10), None),
        (Phase(local=None, shared=1.0, batch_size=4, epochs=3, passed_over=8, most=20), None),
        (Phase(records="support", local=1.0, shared=None, batch_size=2, epochs=None, most=6), Reconstruction(steps=3)),
        (Phase(records="query", local=None, shared=1.0, batch_size=2), Reconstruction(steps=3)),
    ],
)
def test_counts_are_those_of_the_orders(phase, rule):
    sizes = np.arange(12)
    counts = orders_of_examples(phase, sizes, np.arange(12), rule)[1]
    assert counts_of_examples(phase, sizes, rule).tolist() == counts.tolist()
