"""Local training, one by one and in one batched operation."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato._check import InputError
from sfumato.data import to_tensor
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, ClientTrainer, LocalTraining, orders_of_examples
from sfumato.federated.losses import HeadLoss, Means, glorot_head
from sfumato.training import Trainable


def of_one(inputs, labels, classes) -> ClientData:
    return ClientData(inputs, labels, np.array([0, len(labels)]), np.array([classes]))


def clients(shared: bool) -> list[ClientData]:
    rng = np.random.default_rng(0)
    sizes = [(20, 5), (33, 7), (3, 2), (1, 1)]
    return [
        of_one(
            rng.integers(0, 256, (count, 8, 8, 1), dtype=np.uint8),
            rng.integers(0, classes, count),
            7 if shared else classes,
        )
        for count, classes in sizes
    ]


def together(each: list[ClientData]) -> ClientData:
    return ClientData(
        np.concatenate([one.inputs for one in each]),
        np.concatenate([one.labels for one in each]),
        np.cumsum([0, *(len(one.labels) for one in each)]),
        np.concatenate([one.classes for one in each]),
    )


def trained_of(model: nn.Module, shared: bool) -> Trainable:
    return Trainable(model, head=glorot_head(7, 4, torch.Generator().manual_seed(9)) if shared else None)


CHANGES = [{}, {"max_examples": 25}, {"batch_size": None}, {"loss": HeadLoss("arcface")}, {"momentum": 0.0}]


@pytest.mark.parametrize(
    ("shared", "changes"),
    [(shared, changes) for changes in CHANGES for shared in (False, True)]
    + [
        (False, {"reconstruction_steps": 2}),
        (False, {"head_start": "means"}),
        (False, {"head_start": "means", "max_examples": 25, "loss": HeadLoss("cosine")}),
    ],
    ids=str,
)
def test_batched_clients_equal_one_after_the_other(tiny, shared, changes):
    trained = trained_of(tiny(), shared)
    theta = trained.initial
    fields = {"epochs": 2, "batch_size": 8, "learning_rate": 0.05, "head_lr_scale": 3.0, "momentum": 0.9}
    local = LocalTraining(**{**fields, **changes}, head="shared" if shared else "own")
    one, many = ClientTrainer(local, trained), BatchedTrainer(local, trained)
    expected = []
    for seed, client in enumerate(clients(shared)):
        delta, loss, examples = one.delta(theta, client, seed)
        expected.append((delta.clone(), loss, examples))
    deltas, losses, examples = many.deltas(theta, together(clients(shared)), list(range(4)))
    assert examples == sum(row[2] for row in expected)
    # Cosines have the round-off of single precision, and logits that many times as much.
    rounding = 2e-6 if local.loss.kind == "softmax" else 2e-7 * local.loss.scale
    for row, delta, loss in zip(expected, deltas, losses, strict=True):
        torch.testing.assert_close(delta, row[0], atol=rounding, rtol=2e-4)
        torch.testing.assert_close(loss, row[1], atol=1e-5, rtol=1e-4)
    assert expected[0][0].norm() > 1e-3


def test_a_client_trains_as_plain_torch_would(tiny):
    client = clients(True)[1]
    reference = copy.deepcopy(tiny())
    head = nn.Parameter(glorot_head(7, 4, torch.Generator().manual_seed(9)))
    trained = trained_of(tiny(), True)
    theta = trained.initial
    local = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1, momentum=0.9, head="shared")
    delta, _, _ = ClientTrainer(local, trained).delta(theta, client, 3)
    order, _ = orders_of_examples(local.phases[0], np.array([33]), np.array([3]))
    optimizer = torch.optim.SGD([*reference.parameters(), head], lr=0.1, momentum=0.9)
    for start in range(0, len(order), 8):
        index = order[start : start + 8]
        optimizer.zero_grad()
        functional.cross_entropy(
            reference(to_tensor(client.inputs[index])) @ head.T, torch.from_numpy(client.labels[index])
        ).backward()
        optimizer.step()
    after = torch.cat([p.detach().reshape(-1) for p in [*reference.parameters(), head]])
    torch.testing.assert_close(delta, theta - after, atol=1e-6, rtol=1e-5)


def test_a_client_without_examples_contributes_nothing(tiny):
    trained = trained_of(tiny(), False)
    empty = of_one(np.empty((0, 8, 8, 1), np.uint8), np.empty(0, np.int64), 1)
    delta, loss, examples = ClientTrainer(LocalTraining(), trained).delta(trained.initial, empty, 0)
    assert delta.abs().sum() == 0
    assert (loss.item(), examples) == (0, 0)


def test_the_cap_bounds_processed_examples_and_each_pass_has_a_new_order():
    local = LocalTraining(epochs=3, max_examples=25)
    order, counts = orders_of_examples(local.phases[0], np.array([10]), np.array([0]))
    assert counts.tolist() == [len(order)] == [25]
    first, second = order[:10].tolist(), order[10:20].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_a_clients_order_depends_on_its_own_seed_and_size_alone():
    local = LocalTraining(epochs=2, max_examples=15)
    sizes, seeds = np.array([4, 0, 9, 12]), np.array([5, 6, 2**62, 8])
    order, counts = orders_of_examples(local.phases[0], sizes, seeds)
    assert counts.tolist() == [8, 0, 15, 15]
    for i, part in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        alone, _ = orders_of_examples(local.phases[0], sizes[i : i + 1], seeds[i : i + 1])
        assert part.tolist() == alone.tolist()


@pytest.mark.parametrize("kind", ["cosine", "cosface", "arcface"])
def test_losses_on_cosines_do_not_depend_on_lengths(kind):
    loss = HeadLoss(kind)
    embeddings, head, labels = torch.randn(6, 4), torch.randn(3, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(loss(embeddings, head, labels), loss(embeddings * 7, head * 0.3, labels))


def test_margins_make_the_true_class_harder():
    embeddings, head, labels = torch.randn(50, 8), torch.randn(5, 8), torch.randint(0, 5, (50,))
    plain = HeadLoss("cosine")(embeddings, head, labels)
    assert (HeadLoss("cosface")(embeddings, head, labels) >= plain).all()
    assert (HeadLoss("arcface")(embeddings, head, labels) >= plain - 1e-4).all()


def test_arcface_adds_its_margin_to_the_angle():
    embedding, head = torch.tensor([[1.0, 1.0]]), torch.eye(2)
    logits = HeadLoss("arcface", scale=1.0, margin=0.2).logits(embedding, head, torch.tensor([0]))
    assert logits[0].tolist() == pytest.approx([np.cos(np.pi / 4 + 0.2), np.cos(np.pi / 4)], abs=1e-6)


def test_a_head_of_means_begins_with_the_mean_direction_of_each_class() -> None:
    heads = torch.full((2, 3, 2), 7.0)
    means, nan = Means(heads), [float("nan"), 1.0]
    means.add(
        torch.tensor([[[3.0, 0.0], [1.0, 1.0]], [[0.0, 2.0], [-1.0, 0.0]]]),
        torch.tensor([[1, 0], [0, 2]]),
        torch.tensor([[True, False], [True, True]]),
    )
    means.add(torch.tensor([[[0.0, 5.0]], [nan]]), torch.tensor([[1], [0]]), torch.tensor([[True], [False]]))
    kept = [7.0, 7.0]
    assert means.heads().tolist() == [[kept, [0.5, 0.5], kept], [[0.0, 1.0], kept, [-1.0, 0.0]]]
    assert (heads == 7).all()


def test_a_head_of_means_is_a_client_s_own() -> None:
    with pytest.raises(InputError, match="head_start=means"):
        LocalTraining(head="shared", head_start="means")
    with pytest.raises(InputError, match="head_start"):
        LocalTraining(head_start="zeros")  # type: ignore[arg-type]
