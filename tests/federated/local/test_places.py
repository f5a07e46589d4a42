"""A client's delta is the same to the last bit whoever shares its operation, and wherever it stands."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sfumato._torch import one_thread_each
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, LocalTraining, Reconstruction, class_widths
from sfumato.federated.losses import HeadLoss, SquaredLoss
from sfumato.federated.slots import Places, present, shapes_of
from sfumato.models import recommender
from sfumato.training import Trainable
from slow import one_in

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
WORK: dict[str, LocalTraining] = {
    "glorot": LocalTraining(**DIVERGES),
    "means": LocalTraining(**DIVERGES, head_start="means", loss=HeadLoss("cosine")),
    "all at once": LocalTraining(**{**DIVERGES, "batch_size": None}, head_start="means", loss=HeadLoss("arcface")),
    "head first": LocalTraining(**DIVERGES, reconstruction_steps=2),
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


def deltas(trainer: BatchedTrainer, places: Places, data: ClientData, who: np.ndarray) -> Iterator[tuple[int, Tensor]]:
    """Each one's, in company of the others."""
    theta = trainer.trained.initial
    for standing in places.operations(data.of(who), 7 * who):
        clients = np.where(standing >= 0, who[standing], -1)
        found = trainer.deltas(theta, data.of(clients), np.where(clients >= 0, 1000 + clients, 0).tolist())[0]
        rows = found.clone() if isinstance(found, Tensor) else found.whole(trainer.trained.layout.shapes)
        there = present(standing)
        yield from zip(clients[clients >= 0].tolist(), rows[there], strict=True)


def different(work: LocalTraining, build: Callable[[], nn.Module], data: ClientData, own: str | None = None) -> float:
    """By how much of its length a client's delta differs with who else is there, at most over everybody."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build()
    fresh = partial(BatchedTrainer, work)
    trainer, places = fresh(Trainable(model, own=own)), Places(MOST, fresh(Trainable(model, own=own)))
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
def test_nobody_decides_how_the_delta_of_another_one_rounds(model, work):
    assert different(WORK[work], MODELS[model], people()) == 0


@pytest.mark.parametrize("kind", ["matrix_factorization", "neural"])
def test_nobody_does_where_clients_rebuild_a_part_of_their_own(kind):
    build = partial(recommender, kind, ITEMS, factors=6, generator=torch.Generator().manual_seed(0))
    work = LocalTraining(
        epochs=2,
        batch_size=4,
        learning_rate=0.05,
        head="none",
        loss=SquaredLoss(),
        reconstruction=Reconstruction(epochs=2),
    )
    assert different(work, build, ratings(), own=build().local_parameters) == 0


def test_it_takes_more_than_chance(monkeypatch):
    """In operations as wide as there are clients, the same clients do change each other: the tests above can fail."""

    def crowds(self: Places, clients: ClientData, draws: np.ndarray) -> Iterator[np.ndarray]:
        shapes, group = np.unique(shapes_of(self._trainer.local, clients), axis=0, return_inverse=True)
        return (np.flatnonzero(group.reshape(-1) == number) for number in range(len(shapes)))

    monkeypatch.setattr(Places, "operations", crowds)
    assert max(different(WORK[work], MODELS[model], people()) for work in ("glorot", "means") for model in MODELS) > 0


def test_places_of_one_kind_give_one_client_the_same_and_lie_alike():
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    places = Places(MOST, trainer)
    shape, like = tuple(shapes_of(WORK["glorot"], people()).max(axis=0).tolist()), people().of(np.array([1]))
    kinds = [places._kinds_of(shape, width, like) for width in (64, 32)]
    numbers = np.concatenate([np.arange(64), np.arange(32)])
    for kind in np.unique(np.concatenate(kinds)):
        assert len(set(numbers[np.concatenate(kinds) == kind] % 16)) == 1
    assert len(np.unique(kinds[0])) < 64


def test_where_none_is_alike_everybody_stands_at_home(monkeypatch):
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    monkeypatch.setattr(trainer, "deltas", lambda *_: 1 / 0)
    places, data = Places(MOST, trainer), people()
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
def test_a_trial_that_tells_nothing_makes_no_places_alike(monkeypatch, broken):
    trainer = BatchedTrainer(WORK["glorot"], Trainable(mlp()))
    whole = trainer.deltas
    monkeypatch.setattr(trainer, "deltas", lambda *given: (whole(*given)[0] * broken, 0, 0))
    places, data = Places(MOST, trainer), people()
    client = data.of(np.array([int(np.argmax(np.diff(data.offsets)))]))
    shape = tuple(shapes_of(WORK["glorot"], client)[0].tolist())
    home, less = (places._kinds_of(shape, width, client) for width in (64, 32))
    assert len(np.unique(home)) == 64
    assert not np.isin(less, home).any()


def test_everybody_stands_once_beside_others_of_one_shape_and_operations_are_filled():
    trainer = BatchedTrainer(WORK["glorot"], Trainable(convolutions()))
    places, data = Places(MOST, trainer), people()
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
