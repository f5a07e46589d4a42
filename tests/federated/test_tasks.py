"""Tasks: how models of clients are trained and measured, by classes, values, texts and similarity."""

import base64
import copy
import io
import math
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from fitting import local_training
from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import Flat
from sfumato.data import Encoding, UserDataset, from_arrays, split_labels
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, ClientTrainer
from sfumato.federated.losses import LOSSES, NextTokenLoss
from sfumato.federated.tasks import (
    Classes,
    NextToken,
    OutputTask,
    Values,
    embed,
    evaluate,
    nearest_pictures,
    nearest_share,
    task_of,
)
from sfumato.sampling import Cohort
from sfumato.training import RoundContext, Trainable

# The pictures held for the most alike: those of the nearest embeddings, never the one asked for itself.

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1)).astype(np.uint8)


LABELS = np.arange(12) // 3


def people(inputs: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> UserDataset:
    return from_arrays(inputs, labels, np.arange(12) // 4)


def places(told: list[dict]) -> list[int]:
    """Where in `PIXELS` these pictures are."""
    read = [np.asarray(Image.open(io.BytesIO(base64.b64decode(each["picture"])))) for each in told]
    return [int(np.flatnonzero((PIXELS[..., 0] == picture).all((1, 2)))[0]) for picture in read]


def test_each_is_told_with_its_nearest_others_and_whether_they_are_the_same():
    turns = np.random.default_rng(0).uniform(0, 3, 12)  # angles; no two are equally far
    rows = nearest_pictures(people(), LABELS, np.stack([np.cos(turns), np.sin(turns)], 1).astype(np.float32))
    assert sorted(LABELS[places(rows)]) == sorted(set(LABELS.tolist()))  # one of each class
    for row, asked in zip(rows, places(rows), strict=True):
        order = [int(place) for place in np.argsort(np.abs(turns - turns[asked])) if place != asked][:5]
        assert places(row["nearest"]) == order
        assert [near["same"] for near in row["nearest"]] == [place // 3 == asked // 3 for place in order]


def test_pictures_are_found_in_a_view_that_leaves_classes_out():
    part = split_labels(people(), test=["1", "3"]).test
    labels = np.concatenate([part.examples(user)[1] for user in range(len(part))])
    rows = nearest_pictures(part, labels, np.eye(6, dtype=np.float32) + 0.5)
    assert sorted(place // 3 for place in places(rows)) == [1, 3]


def test_the_share_of_right_ones_is_over_all_pictures_and_not_over_those_shown():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(300), 2)
    random, perfect = rng.normal(size=(600, 16)), np.repeat(rng.normal(size=(300, 16)), 2, axis=0)
    assert nearest_share(labels, random.astype(np.float32)) < 0.02
    assert nearest_share(labels, perfect.astype(np.float32)) == pytest.approx(0.2)  # one of five can be right
    assert nearest_share(np.arange(600), random.astype(np.float32)) is None


def test_inputs_that_are_no_pictures_have_none():
    vectors = np.eye(12, dtype=np.float32)
    assert nearest_pictures(people(PIXELS / np.float32(255)), LABELS, vectors) == []
    assert nearest_pictures(people(labels=np.arange(12)), np.arange(12), vectors) == []  # nobody has another


def test_they_come_with_the_curve_only():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    assert "nearest" not in evaluate(model, people())
    assert len(evaluate(model, people(), curve=True)["nearest"]) == 4


# Measures of models that give their outputs themselves: what they are of, and what they refuse.

OWNERS = np.arange(12) // 3
INPUTS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
CLASSES = from_arrays(INPUTS, np.arange(12) % 3, OWNERS)
VALUES = from_arrays(INPUTS, INPUTS.sum(1), OWNERS)
TOKENS = from_arrays(
    np.arange(24).reshape(12, 2) % 5, np.arange(1, 25).reshape(12, 2) % 5, OWNERS, label_names=list("pabcd")
)


class Fixed(nn.Module):
    """A linear map that has seen nothing."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, outputs, generator=torch.Generator().manual_seed(1)))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs @ self.weight).squeeze(1)


def test_accuracy_and_log_loss_of_classes_are_those_of_all_records():
    model = Fixed(3)
    row = Classes().measure(model, CLASSES, curve=False, device="cpu")
    logits = model(torch.from_numpy(INPUTS)).detach()
    targets = torch.arange(12) % 3
    assert row["records"] == 12
    assert row["accuracy"] == pytest.approx((logits.argmax(1) == targets).float().mean().item())
    assert row["log_loss"] == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-6)


def test_errors_of_values_are_those_of_all_records():
    model = Fixed(1)
    row = Values().measure(model, VALUES, curve=False, device="cpu")
    errors = model(torch.from_numpy(INPUTS)).detach().numpy() - INPUTS.sum(1)
    assert row["rmse"] == pytest.approx(math.sqrt(np.mean(errors**2)), rel=1e-6)
    assert row["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-6)
    assert row["within_half"] == pytest.approx((np.abs(errors) <= 0.5).mean())


def test_a_model_that_is_not_finite_has_no_error_and_is_still_told():
    model = Fixed(1)
    with torch.no_grad():
        model.weight.fill_(math.inf)
    assert Values().measure(model, VALUES, curve=False, device="cpu") == {"values": 12}


@pytest.mark.parametrize(
    ("task", "data"),
    [(Classes(), VALUES), (Classes(), TOKENS), (Values(), CLASSES), (Values(), TOKENS), (NextToken(), CLASSES)],
)
def test_data_of_another_kind_are_refused_with_the_loss_that_they_have(task: OutputTask, data):
    with pytest.raises(InputError, match=r"client\.loss="):
        task.check(data)


@pytest.mark.parametrize(("loss", "kind"), [("squared", Values), ("cross_entropy", Classes), ("next_token", NextToken)])
def test_a_loss_has_its_measure(loss, kind):
    assert isinstance(task_of(LOSSES(loss)), kind)


def test_nothing_to_measure_on_is_refused():
    with pytest.raises(InputError, match="there are no records to measure on"):
        Classes().measure(Fixed(3), CLASSES.subset([]), curve=False, device="cpu")


# Embeddings of a data set, in batches.


class Counts(nn.Module):
    """Notes how many examples it is given at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return x.flatten(1)[:, :3] + 2


def test_large_pictures_go_through_a_cpu_a_few_at_a_time_and_small_ones_together():
    for side, most in ((112, 13), (8, 40)):
        pixels = np.random.default_rng(0).integers(0, 256, (40, side, side, 3), np.uint8)
        data = from_arrays(pixels, labels=np.arange(40) % 4, users=np.arange(40) // 10)
        model = Counts()
        batches = list(embed(model, data, batch_size=64))
        assert [len(vectors) for _, _, vectors in batches] == [40]
        assert (max(model.seen), sum(model.seen)) == (most, 40)
        one_by_one = [vectors for _, _, vectors in embed(model, data, batch_size=1)]
        np.testing.assert_allclose(np.concatenate(one_by_one), batches[0][2], rtol=1e-6)


# Texts of users: the loss of the next token, clients one by one and at once, and what is measured.

RULE = Encoding.words(["to", "be", "or", "not"])
PLAYED = {
    "ham": ["to be or not to be", "not be", "be be be or to"],
    "ophelia": ["not to be"],
    "horatio": ["or", "to to to to to", "no more", "be or be", "not not", "to be"],
}


def texts(played: dict[str, list[str]] = PLAYED, length: int = 4) -> UserDataset:
    rows = [(user, RULE.sequences(text, length)) for user, said in played.items() for text in said]
    whole = np.concatenate([part for _, part in rows])
    users = np.repeat([user for user, _ in rows], [len(part) for _, part in rows])
    return from_arrays(whole[:, :-1], whole[:, 1:], users, label_names=RULE.names)


def network(name: str = "lstm", size: int = RULE.size) -> nn.Module:
    sizes = {
        "lstm": {"embedding_dim": 3, "hidden": 5, "layers": 1},
        "transformer": {"width": 4, "depth": 1, "heads": 2},
    }
    return models.language_model(name, size, 4, generator=torch.Generator().manual_seed(0), **sizes[name])


def clients_of(data: UserDataset) -> ClientData:
    inputs, labels, sizes = data.examples_of(np.arange(len(data)))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return ClientData(inputs, labels, offsets, np.full(len(data), data.num_classes))


def one_of(clients: ClientData, i: int) -> ClientData:
    part = slice(*clients.offsets[i : i + 2])
    return ClientData(
        clients.inputs[part], clients.labels[part], np.array([0, part.stop - part.start]), clients.classes[:1]
    )


@pytest.mark.parametrize("name", models.LANGUAGE_MODELS)
@pytest.mark.parametrize("changes", [{}, {"batch_size": None}, {"max_examples": 5}, {"momentum": 0.0}], ids=str)
def test_batched_clients_equal_one_after_the_other(name: str, changes: dict):
    trained = Trainable(network(name))
    fields = {"epochs": 2, "batch_size": 3, "learning_rate": 0.3, "momentum": 0.5, "head": "shared"}
    local = local_training(**{**fields, **changes}, loss=NextTokenLoss())
    clients = clients_of(texts())
    deltas, losses, examples = BatchedTrainer(local, trained).deltas(trained.initial, clients, [0, 1, 2])
    deltas, alone = deltas.clone(), ClientTrainer(local, trained)
    rows = [
        (delta.clone(), loss, n)
        for i in range(3)
        for delta, loss, n in [alone.delta(trained.initial, one_of(clients, i), i)]
    ]
    assert examples == sum(row[2] for row in rows)
    for row, delta, loss in zip(rows, deltas, losses, strict=True):
        assert row[0].norm() > 1e-3
        torch.testing.assert_close(delta, row[0], atol=2e-6, rtol=2e-4)
        torch.testing.assert_close(loss, row[1], atol=1e-5, rtol=1e-4)


def test_a_step_follows_the_mean_over_tokens_and_not_over_sequences():
    inputs, labels, _ = texts().examples_of(np.arange(3))
    reference = copy.deepcopy(network())
    there = torch.from_numpy(labels) != 0
    assert len(set(there.sum(1).tolist())) > 1  # otherwise the two are the same
    told = reference(torch.from_numpy(inputs).long())[there]
    loss = functional.nll_loss(told.log_softmax(1), torch.from_numpy(labels)[there])
    gradient = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, list(reference.parameters()))])
    trained = Trainable(network())
    local = local_training(batch_size=None, learning_rate=1.0, loss=NextTokenLoss())
    client = ClientData(inputs, labels, np.array([0, len(labels)]), np.array([RULE.size]))
    delta, mean, _ = ClientTrainer(local, trained).delta(trained.initial, client, 0)
    torch.testing.assert_close(delta, gradient, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(mean, loss.detach())


def test_padding_teaches_nothing():
    short, long = (RULE.sequences("to be", length) for length in (3, 9))
    deltas = []
    for rows in (short, long):
        trained = Trainable(
            models.lstm(vocabulary_size=RULE.size, hidden=4, generator=torch.Generator().manual_seed(0))
        )
        client = ClientData(rows[:, :-1], rows[:, 1:].astype(np.int64), np.array([0, 1]), np.array([RULE.size]))
        local = local_training(learning_rate=1.0, loss=NextTokenLoss())
        deltas.append(ClientTrainer(local, trained).delta(trained.initial, client, 0)[0].clone())
    torch.testing.assert_close(*deltas)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("kind", [partial(FedAvg, **{"client.learning_rate": 1.0}), FedSGD], ids=["fedavg", "fedsgd"])
def test_a_user_moves_the_sum_by_no_more_than_the_clip_norm(kind, at_once: int):
    plan = kind(client={"loss": "next_token", "at_once": at_once}, cohort=3, noise=1.0, clipping=0.01)
    sums = []
    for last in (["or"], ["to be to be to be to be not"] * 40):
        contribution = plan.contribution(network(), texts({**PLAYED, "zed": last}), "cpu", 0)

        def total(users: int) -> torch.Tensor:
            cohort = Cohort(np.arange(users), np.arange(users), np.arange(users + 1))
            theta, bound = contribution.trained.initial, Flat(norm=0.01)  # noqa: B023
            source = RandomSource.from_seed(1)
            return contribution.clipped_sum(RoundContext(theta, cohort, 0, bound, 0.01, source)).total  # noqa: B023

        assert 0.009 < (total(4) - total(3)).norm() <= 0.01 * (1 + 1e-6)
        sums.append(total(3))
    torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-9)  # the others stay as they are


def test_measured_are_all_tokens_but_padding():
    data, model = texts(), network().eval()
    row = NextToken().measure(model, data, curve=False, device="cpu")
    right, losses, known = [], [], []
    for user in range(len(data)):
        for inputs, labels in zip(*data.examples(user), strict=True):
            chances = model(torch.from_numpy(inputs.astype(np.int64))[None])[0].softmax(1).detach().numpy()
            for chance, label in zip(chances, labels, strict=True):
                if label:
                    right.append(chance.argmax() == label)
                    losses.append(-math.log(chance[label]))
                    known.append(RULE.names[label] not in ("<oov>", "<eos>"))
    assert row["tokens"] == len(right) == sum(len(RULE.ids(t)) + 1 for said in PLAYED.values() for t in said)
    assert row["accuracy"] == pytest.approx(np.mean(right))
    assert row["log_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert row["perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert row["accuracy_no_oov_no_eos"] == pytest.approx(np.mean(np.array(right)[np.array(known)]))
    assert 0 < sum(known) < len(known)


@pytest.mark.parametrize("kind", [FedAvg, FedSGD, Centralized])
def test_every_plan_with_a_loss_of_the_next_token_learns_it(kind):
    data = texts({f"user{i}": ["to be or not to be or not"] * 3 for i in range(6)})
    fields = {"rounds": 60, "seed": 0, "client.loss": "next_token"}
    if kind is not Centralized:
        fields |= {"cohort.size": 6, "noise.noise_multiplier": 0.0, "clipping.norm": None, "server.momentum": 0.0}
        fields["server.learning_rate"] = 1.0
    if kind is not FedSGD:
        trains = "server" if kind is Centralized else "client"
        fields |= {f"{trains}.learning_rate": 1.0, f"{trains}.momentum": 0.0}
    result = kind(**fields).fit(network(), data, test=data)
    assert result.evaluation["untrained"]["accuracy"] < 0.6
    assert result.evaluation["trained"]["accuracy"] > 0.8
    assert result.head is None
    assert result.trouble == ""


def test_what_does_not_fit_together_is_refused():
    data = texts()
    plan = FedAvg(client={"loss": "next_token"}, rounds=1, cohort=2, noise=1.0)
    with pytest.raises(InputError, match=r"shape \[1, 4, 8\].*got shape \[1, 4, 9\]; build it with vocabulary_size=8"):
        plan.fit(network(size=9), data)
    with pytest.raises(InputError, match="build it with vocabulary_size=8"):
        plan.fit(network(size=5), data)
    with pytest.raises(InputError, match=r"train with client\.loss=next_token"):
        FedAvg(rounds=1, cohort=2, noise=1.0).fit(network(), data)
    pictures = from_arrays(np.zeros((4, 8)), [0, 1, 0, 1], [0, 0, 1, 1])
    with pytest.raises(InputError, match="needs a label for every token"):
        plan.fit(network(), pictures)
    with pytest.raises(InputError, match="for texts use fedavg or fedsgd"):
        FedEmb(client={"loss": "next_token"})


class Mixing(nn.Module):
    """Adds the batch's mean to every sequence's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.inner(tokens)
        return logits + logits.mean(0, keepdim=True)


def test_a_model_that_mixes_the_sequences_of_a_batch_is_refused_where_clients_share_one():
    plan = FedAvg(client={"loss": "next_token", "at_once": 2}, rounds=1, cohort=2, noise=1.0, seed=0)
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        plan.fit(Mixing(), texts())


class Remembering(Mixing):
    """Adds what it has seen to the logits."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.seen = getattr(self, "seen", 0.0) + tokens.float().mean()
        return self.inner(tokens) * (1 + self.seen)


def test_a_model_that_remembers_other_clients_is_refused():
    plan = FedAvg(client={"loss": "next_token", "learning_rate": 0.5}, rounds=1, cohort=2, noise=1.0, seed=0)
    with pytest.raises(InputError, match="has trained other clients before"):
        plan.fit(Remembering(), texts())
