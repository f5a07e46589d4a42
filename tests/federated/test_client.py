"""What a client does with its records: plain training, a head of its own, reconstruction."""

import copy
import math
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fitting import local_training
from sfumato._check import InputError
from sfumato.clipping import ClippedSum, Flat, PerLayer
from sfumato.data import to_tensor
from sfumato.federated import ClientTraining
from sfumato.federated.batched import BatchedTrainer, PartDeltas
from sfumato.federated.client import ClientData, ClientTrainer, Reconstruction, orders_of_examples
from sfumato.federated.losses import ArcFace, CosFace, Cosine, Means, SquaredLoss, glorot_head
from sfumato.models import recommender
from sfumato.training import Trainable
from slow import one_in

# Local training, one by one and in one batched operation.


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


CHANGES = [
    {},
    {"max_examples": 25},
    {"batch_size": None},
    {"loss": ArcFace()},
    {"momentum": 0.0},
    {"loss": CosFace(scale=10.0).against(torch.eye(4)[:3] + 0.1, 0.8)},
    {"loss": ArcFace(scale=10.0).against(-torch.eye(4)[:2])},
]


@pytest.mark.parametrize(
    ("shared", "changes"),
    [(shared, changes) for changes in CHANGES for shared in (False, True)]
    + [
        (False, {"reconstruction_steps": 2}),
        (False, {"head_start": "means"}),
        (False, {"head_start": "means", "max_examples": 25, "loss": Cosine()}),
    ],
    ids=str,
)
def test_batched_clients_equal_one_after_the_other(tiny, shared, changes):
    trained = trained_of(tiny(), shared)
    theta = trained.initial
    fields = {"epochs": 2, "batch_size": 8, "learning_rate": 0.05, "head_lr_scale": 3.0, "momentum": 0.9}
    local = local_training(**{**fields, **changes}, head="shared" if shared else "local")
    one, many = ClientTrainer(local, trained), BatchedTrainer(local, trained)
    expected = []
    for seed, client in enumerate(clients(shared)):
        delta, loss, examples = one.delta(theta, client, seed)
        expected.append((delta.clone(), loss, examples))
    deltas, losses, examples = many.deltas(theta, together(clients(shared)), list(range(4)))
    assert examples == sum(row[2] for row in expected)
    # Cosines have the round-off of single precision, and logits that many times as much.
    rounding = 2e-7 * local.loss.scale if isinstance(local.loss, Cosine) else 2e-6
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
    local = local_training(epochs=1, batch_size=8, learning_rate=0.1, momentum=0.9, head="shared")
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
    delta, loss, examples = ClientTrainer(local_training(), trained).delta(trained.initial, empty, 0)
    assert delta.abs().sum() == 0
    assert (loss.item(), examples) == (0, 0)


def test_the_cap_bounds_processed_examples_and_each_pass_has_a_new_order():
    local = local_training(epochs=3, max_examples=25)
    order, counts = orders_of_examples(local.phases[0], np.array([10]), np.array([0]))
    assert counts.tolist() == [len(order)] == [25]
    first, second = order[:10].tolist(), order[10:20].tolist()
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_a_clients_order_depends_on_its_own_seed_and_size_alone():
    local = local_training(epochs=2, max_examples=15)
    sizes, seeds = np.array([4, 0, 9, 12]), np.array([5, 6, 2**62, 8])
    order, counts = orders_of_examples(local.phases[0], sizes, seeds)
    assert counts.tolist() == [8, 0, 15, 15]
    for i, part in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        alone, _ = orders_of_examples(local.phases[0], sizes[i : i + 1], seeds[i : i + 1])
        assert part.tolist() == alone.tolist()


@pytest.mark.parametrize("kind", [Cosine, CosFace, ArcFace])
def test_losses_on_cosines_do_not_depend_on_lengths(kind):
    loss = kind()
    embeddings, head, labels = torch.randn(6, 4), torch.randn(3, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(loss(embeddings, head, labels), loss(embeddings * 7, head * 0.3, labels))


def test_margins_make_the_true_class_harder():
    embeddings, head, labels = torch.randn(50, 8), torch.randn(5, 8), torch.randint(0, 5, (50,))
    plain = Cosine()(embeddings, head, labels)
    assert (CosFace()(embeddings, head, labels) >= plain).all()
    assert (ArcFace()(embeddings, head, labels) >= plain - 1e-4).all()


def test_arcface_adds_its_margin_to_the_angle():
    embedding, head = torch.tensor([[1.0, 1.0]]), torch.eye(2)
    logits = ArcFace(scale=1.0, margin=0.2).logits(embedding, head, torch.tensor([0]))
    assert logits[0].tolist() == pytest.approx([np.cos(np.pi / 4 + 0.2), np.cos(np.pi / 4)], abs=1e-6)


def consensus_by_hand(loss, embedding, head, label, negatives, radius) -> float:
    """The printed loss of one example, from angles, in plain numbers."""

    def angle(one, other) -> float:
        product = sum(float(a) * float(b) for a, b in zip(one, other, strict=True))
        lengths = math.sqrt(sum(float(a) ** 2 for a in one) * sum(float(b) ** 2 for b in other))
        return math.acos(max(-1.0, min(1.0, product / lengths)))

    logits = [math.cos(angle(embedding, row)) for row in head]
    own = angle(embedding, head[label])
    logits[label] = math.cos(own + loss.margin) if isinstance(loss, ArcFace) else math.cos(own) - loss.margin
    others = [math.cos(max(angle(embedding, row) - radius, 0.0)) for row in negatives]
    return -loss.scale * logits[label] + math.log(sum(math.exp(loss.scale * each) for each in [*logits, *others]))


@pytest.mark.parametrize("loss", [CosFace(scale=8.0), ArcFace(scale=8.0, margin=0.4)])
@pytest.mark.parametrize("radius", [0.0, 0.4, 1.4, 3.0])
def test_negatives_of_others_join_the_denominator_as_printed(loss, radius):
    generator = torch.Generator().manual_seed(3)
    embeddings, head, negatives = (
        torch.randn(count, 5, generator=generator, dtype=torch.float64) for count in (12, 4, 3)
    )
    labels = torch.arange(12) % 4
    found = loss.against(negatives, radius)(embeddings, head, labels)
    wanted = [
        consensus_by_hand(loss, one, head, int(label), negatives, radius)
        for one, label in zip(embeddings, labels, strict=True)
    ]
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), atol=1e-6)
    padded = torch.cat([head, torch.full((3, 5), 7.0, dtype=torch.float64)])  # rows that do not exist
    assert torch.allclose(loss.against(negatives, radius)(embeddings, padded, labels, torch.tensor(4)), found)


def test_a_negative_without_a_radius_is_a_class_that_no_example_is_of():
    head, negatives = torch.randn(2, 5), torch.randn(3, 5)
    embeddings, labels = torch.randn(6, 5), torch.arange(6) % 2
    assert torch.allclose(
        CosFace().against(negatives)(embeddings, head, labels),
        CosFace()(embeddings, torch.cat([head, negatives]), labels),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [0.0, 1.0, math.pi / 2, 3.0])
def test_gradients_of_negatives_are_finite_at_every_angle(radius, dtype):
    for angle in (0.0, 1e-8, radius - 1e-7, radius, radius + 1e-7, math.pi / 2, math.pi - 1e-8, math.pi):
        embedding = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=dtype, requires_grad=True)
        negative, head = torch.tensor([[1.0, 0.0]], dtype=dtype), torch.tensor([[0.0, 1.0], [0.6, 0.8]], dtype=dtype)
        loss = CosFace().against(negative, radius)(embedding, head, torch.tensor([0])).sum()
        assert torch.isfinite(loss)
        assert torch.isfinite(torch.autograd.grad(loss, embedding)[0]).all()


def test_within_the_radius_a_negative_is_a_constant():
    embedding = torch.tensor([[1.0, 0.2]], requires_grad=True)
    logit = CosFace(scale=5.0).against(torch.tensor([[1.0, 0.0]]), 0.5).other_logits(embedding)
    assert logit is not None
    assert logit.item() == 5.0
    assert not torch.autograd.grad(logit.sum(), embedding)[0].any()


@pytest.mark.parametrize(
    ("negatives", "radius"),
    [(torch.zeros(1, 2), 0.0), (torch.tensor([[math.nan, 1.0]]), 0.0), (torch.ones(2), 0.0)]
    + [(torch.ones(1, 2), radius) for radius in (-0.1, math.pi, math.nan)],
)
def test_negatives_of_no_direction_and_radii_out_of_range_are_refused(negatives, radius):
    with pytest.raises(InputError):
        CosFace().against(negatives, radius)


def test_no_negatives_leave_the_loss_as_it_is():
    embeddings, head, labels = torch.randn(6, 5), torch.randn(2, 5), torch.arange(6) % 2
    plain = CosFace()
    for none in (None, torch.zeros(0, 5)):
        assert plain.against(none, 1.0) == plain
        assert torch.equal(plain.against(none, 1.0)(embeddings, head, labels), plain(embeddings, head, labels))


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
    with pytest.raises(InputError, match="start is for head=local, got head=shared"):
        local_training(head="shared", head_start="means")
    with pytest.raises(InputError, match="start must be one of"):
        local_training(head_start="zeros")  # type: ignore[arg-type]


# Heads that begin as means do not carry one client's records to another one, whatever the model does with a batch.

LOCAL = local_training(epochs=1, batch_size=4, head_start="means", loss=Cosine())


class LargestOfAll(nn.Module):
    """Adds how far the largest value of a batch lies above what records hold; of most records nothing."""

    def forward(self, x):
        return x + (x.amax() - 50).clamp(min=0)


class Asks(nn.Module):
    """Reads a value, which an operation on many clients cannot."""

    def forward(self, x):
        return x + float(x.sum().item() > 0)


def test_a_model_that_reads_values_is_reported_to_train_one_by_one():
    trainer = BatchedTrainer(LOCAL, Trainable(nn.Sequential(Asks(), nn.Linear(5, 3))))
    clients = ClientData(np.ones((4, 5), np.float32), np.array([0, 1, 0, 1]), np.array([0, 2, 4]), np.array([2, 2]))
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        trainer.deltas(trainer.trained.initial, clients, [1, 2])


def test_a_client_does_not_move_the_first_rows_of_another_one():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(LargestOfAll(), nn.Linear(5, 3))
    trainer = BatchedTrainer(LOCAL, Trainable(model))
    inputs = np.random.default_rng(0).normal(0, 1, (12, 5)).astype(np.float32)
    labels = np.tile([0, 1], 6)
    found = []
    for largest in (1.0, 1000.0):
        inputs[5] = largest  # of the second client
        clients = ClientData(inputs.copy(), labels, np.array([0, 4, 8, 12]), np.array([2, 2, 2]))
        deltas, _, _ = trainer.deltas(trainer.trained.initial, clients, [1, 2, 3])
        assert isinstance(deltas, torch.Tensor)
        found.append(deltas.clone())
    assert not torch.equal(found[0][1], found[1][1])
    for other in (0, 2):
        # the same numbers in the same places of the same operations
        assert torch.equal(found[0][other], found[1][other])


# Parts of a model that are rebuilt by each client: batched beside one by one, in any company; what leaves.

ITEMS, FACTORS = 40, 7


class Factors(nn.Module):
    """Items and one user, and a layer that is no table."""

    row_tables: ClassVar = {"items.weight": 0, "item_bias.weight": 0}

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.items, self.item_bias = nn.Embedding(ITEMS, FACTORS), nn.Embedding(ITEMS, 1)
        self.mix = nn.Linear(FACTORS, 3)
        self.user, self.user_bias = nn.Parameter(torch.empty(3)), nn.Parameter(torch.zeros(()))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        ids = inputs[:, 0]
        return torch.tanh(self.mix(self.items(ids))) @ self.user + self.user_bias + self.item_bias(ids)[:, 0]


class Whole(Factors):
    """The same without tables."""

    row_tables: ClassVar = {}


OWN = "user.*"


def raters(sizes=(1, 2, 17, 40, 0, 9), seed=0) -> ClientData:
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    return ClientData(
        rng.integers(0, ITEMS, (count, 1)),
        rng.normal(3, 1, count).astype(np.float32),
        np.cumsum([0, *sizes]),
        np.zeros(len(sizes), np.int64),
    )


def one_of(data: ClientData, client: int) -> ClientData:
    rows = slice(data.offsets[client], data.offsets[client + 1])
    return ClientData(data.inputs[rows], data.labels[rows], np.array([0, rows.stop - rows.start]), data.classes[:1])


def some_of(data: ClientData, chosen: list[int]) -> ClientData:
    each = [one_of(data, client) for client in chosen]
    return ClientData(
        np.concatenate([one.inputs for one in each]),
        np.concatenate([one.labels for one in each]),
        np.cumsum([0, *(len(one.labels) for one in each)]),
        data.classes[: len(chosen)],
    )


def local(rule: Reconstruction | None = None, **changes) -> ClientTraining:
    fields = {"epochs": 2, "batch_size": 4, "max_examples": 60, "learning_rate": 0.05, "momentum": 0.0}
    return local_training(**{**fields, **changes}, loss=SquaredLoss(), reconstruction=rule or Reconstruction(epochs=2))


def whole(trained: Trainable, deltas: Tensor | PartDeltas) -> Tensor:
    return deltas.clone() if isinstance(deltas, Tensor) else deltas.whole(trained.layout.shapes)


RULES = [
    Reconstruction(),
    Reconstruction(support_share=0.2, support_order="first", epochs=None, steps=7),
    Reconstruction(support_count=3, steps=50, epochs=3, batch_size=2),
    Reconstruction(steps=0),
    Reconstruction(joint=True),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("kind", "momentum"), one_in(2, [Factors, Whole], [0.0, 0.5]))
def test_batched_reconstructions_equal_one_after_the_other(rule, kind, momentum):
    trained = Trainable(kind(), local_parameters=OWN)
    work, data = local(rule, momentum=momentum), raters()
    trainer, expected = ClientTrainer(work, trained), []
    for i in range(len(data)):
        delta, loss, examples = trainer.delta(trained.initial, one_of(data, i), 10 + i)
        expected.append((delta.clone(), loss, examples))
        trained.put_back()
    deltas, losses, examples = BatchedTrainer(work, trained).deltas(trained.initial, data, list(range(10, 16)))
    assert isinstance(deltas, PartDeltas) == (kind is Factors and not momentum)
    assert examples == sum(row[2] for row in expected)
    for row, delta, loss in zip(expected, whole(trained, deltas), losses, strict=True):
        torch.testing.assert_close(delta, row[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(loss, row[1], atol=1e-5, rtol=1e-5)
    assert whole(trained, deltas)[3].norm() > 0.1


def neural() -> nn.Module:
    """Its layers are products of matrices, client by client."""
    return recommender("neural", ITEMS, factors=6, generator=torch.Generator().manual_seed(0))


def factors(*, biases: bool) -> nn.Module:
    """The recommender that people will use."""
    generator = torch.Generator().manual_seed(0)
    return recommender("matrix_factorization", ITEMS, biases=biases, generator=generator)


@pytest.mark.parametrize(
    ("kind", "exact"),
    [(partial(factors, biases=False), True), (partial(factors, biases=True), True), (neural, False), (Factors, False)],
)
def test_a_client_is_the_same_to_the_last_bit_anyone_who_shares_its_batch(kind, exact):
    """Unless a weight of its own is in a product of matrices: then to a few bits."""
    model = kind()
    own = getattr(model, "local_parameters", OWN)
    trained, data = Trainable(model, local_parameters=own), raters(tuple(range(1, 70)))
    trainer, rng = BatchedTrainer(local(), trained), np.random.default_rng(1)
    alone = {i: whole(trained, trainer.deltas(trained.initial, one_of(data, i), [i])[0])[0] for i in (0, 5, 33, 68)}
    for size in (2, 31, 32, 33, 69):
        for wanted, expected in alone.items():
            others = [int(i) for i in rng.permutation(69) if i != wanted][: size - 1]
            chosen = [int(i) for i in rng.permutation([wanted, *others])]
            found = whole(trained, trainer.deltas(trained.initial, some_of(data, chosen), chosen)[0])
            if exact:
                assert torch.equal(found[chosen.index(wanted)], expected)
            else:
                torch.testing.assert_close(found[chosen.index(wanted)], expected, atol=1e-6, rtol=1e-5)


def test_a_client_reconstructs_as_plain_torch_would():
    data, rule = one_of(raters(), 3), Reconstruction(epochs=1, batch_size=5, learning_rate=0.2)
    work = local(rule, epochs=1)
    trained, reference = Trainable(Factors(), local_parameters=OWN), Factors()
    delta, _, _ = ClientTrainer(work, trained).delta(trained.initial, data, 3)
    support, query = (orders_of_examples(phase, np.array([40]), np.array([3]), rule)[0] for phase in work.phases)
    assert sorted([*support, *query]) == list(range(40))
    own = {name: p for name, p in reference.named_parameters() if name.startswith("user")}
    shared = {name: p for name, p in reference.named_parameters() if name not in own}
    for chosen, order, size, rate in ((own, support, 5, 0.2), (shared, query, 4, 0.05)):
        optimizer = torch.optim.SGD(chosen.values(), lr=rate)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            optimizer.zero_grad()
            loss = functional.mse_loss(reference(torch.from_numpy(data.inputs[rows])), torch.tensor(data.labels[rows]))
            loss.backward()
            optimizer.step()
    after = torch.cat([p.detach().reshape(-1) for p in shared.values()])
    torch.testing.assert_close(delta, trained.initial - after, atol=1e-6, rtol=1e-5)
    assert trained.layout.names == list(shared)


def test_the_own_part_begins_anew_with_every_client_and_is_released_as_it_began():
    trained, data = Trainable(Factors(), local_parameters=OWN), raters()
    trainer = ClientTrainer(local(), trained)
    first = trainer.delta(trained.initial, one_of(data, 3), 1)[0].clone()
    trainer.delta(trained.initial, one_of(data, 2), 2)
    assert torch.equal(trainer.delta(trained.initial, one_of(data, 3), 1)[0], first)
    trained.put_back()
    for name, value in Factors().state_dict().items():
        if name.startswith("user"):
            assert torch.equal(trained.released(trained.initial)[name], value)


@pytest.mark.parametrize("bound", [Flat(norm=0.3), PerLayer(norm=0.3, shares=None)])
def test_deltas_by_rows_are_clipped_and_added_up_as_vectors_are(bound):
    trained, data = Trainable(Factors(), local_parameters=OWN), raters()
    deltas, _, _ = BatchedTrainer(local(), trained).deltas(trained.initial, data, list(range(6)))
    assert isinstance(deltas, PartDeltas)
    by_rows, plain = (ClippedSum(bound, 0.3, trained.layout) for _ in range(2))
    deltas.add_to(by_rows)
    plain.add_rows(deltas.whole(trained.layout.shapes))
    torch.testing.assert_close(by_rows.total, plain.total, atol=1e-6, rtol=1e-5)
    assert by_rows.tally.row() == pytest.approx(plain.tally.row(), rel=1e-5)
    assert by_rows.tally["clipped"] > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_bound_holds_for_deltas_by_rows_in_half_precision(dtype):
    trained, data = Trainable(Factors().to(dtype), local_parameters=OWN), raters()
    for client in range(4):
        share = ClippedSum(Flat(norm=1e-3), 1e-3, trained.layout)
        deltas = BatchedTrainer(local(), trained).deltas(trained.initial, one_of(data, client), [client])[0]
        assert isinstance(deltas, PartDeltas) or client == 0  # one record leaves nothing to update with
        if isinstance(deltas, PartDeltas):
            deltas.add_to(share)
            assert share.tally["clipped"] == 1
            assert 0.99e-3 < share.total.norm() <= 1e-3


def test_a_client_that_is_not_finite_adds_nothing_and_leaves_the_others_alone():
    trained, data = Trainable(Factors(), local_parameters=OWN), raters()
    sums = []
    for bad in (False, True):
        labels = data.labels.copy()
        if bad:
            labels[data.offsets[2] : data.offsets[3]] = np.nan
        else:
            labels[data.offsets[2] : data.offsets[3]] = 0
        deltas, _, _ = BatchedTrainer(local(), trained).deltas(
            trained.initial, ClientData(data.inputs, labels, data.offsets, data.classes), list(range(6))
        )
        assert isinstance(deltas, PartDeltas)
        share = ClippedSum(Flat(norm=1.0), 1.0, trained.layout)
        deltas.add_to(share)
        sums.append((share, whole(trained, deltas)))
    assert sums[1][0].tally["non_finite"] == 1
    assert torch.isfinite(sums[1][0].total).all()
    kept = [0, 1, 3, 4, 5]
    assert torch.equal(sums[0][1][kept], sums[1][1][kept])


@pytest.mark.parametrize(
    ("rule", "sizes", "supports"),
    [
        (Reconstruction(support_share=0.5), [0, 1, 2, 3, 10], [0, 1, 1, 1, 5]),
        (Reconstruction(support_share=0.01), [1, 2, 50], [1, 1, 1]),
        (Reconstruction(support_share=0.99), [2, 3, 50], [1, 2, 49]),
        (Reconstruction(support_count=4), [1, 3, 4, 5, 50], [1, 2, 3, 4, 4]),
    ],
)
def test_a_record_is_left_for_either_part_where_there_are_two(rule, sizes, supports):
    assert rule.supports(np.array(sizes)).tolist() == supports


def test_the_division_of_records_follows_from_the_client_alone():
    rule = Reconstruction(support_share=0.4)
    support, query = local(rule, epochs=1, max_examples=None).phases
    sizes, seeds = np.array([5, 0, 1, 12]), np.array([3, 4, 5, 2**62])
    parts = []
    for phase in (support, query):
        order, counts = orders_of_examples(phase, sizes, seeds, rule)
        parts.append(np.split(order, np.cumsum(counts)[:-1]))
        for i, part in enumerate(parts[-1]):
            alone, _ = orders_of_examples(phase, sizes[i : i + 1], seeds[i : i + 1], rule)
            assert part.tolist() == alone.tolist()
    for size, one, other in zip(sizes, *parts, strict=True):
        assert sorted([*one, *other]) == list(range(size))
    oldest = Reconstruction(support_share=0.4, support_order="first")
    assert sorted(orders_of_examples(support, np.array([10]), np.array([1]), oldest)[0]) == [0, 1, 2, 3]
