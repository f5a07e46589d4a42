"""Texts of users: the loss of the next token, clients one by one and at once, and what is measured."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato import models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import ConstantClipNorm
from sfumato.data import Encoding, UserDataset, from_arrays
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD, NextToken
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, ClientTrainer, LocalTraining
from sfumato.federated.losses import NextTokenLoss
from sfumato.sampling import Cohort
from sfumato.training import Trainable

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
    fields = {"epochs": 2, "batch_size": 3, "learning_rate": 0.3, "momentum": 0.5, "head": "none"}
    local = LocalTraining(**{**fields, **changes}, loss=NextTokenLoss())
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
    local = LocalTraining(batch_size=None, learning_rate=1.0, head="none", loss=NextTokenLoss())
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
        local = LocalTraining(learning_rate=1.0, head="none", loss=NextTokenLoss())
        deltas.append(ClientTrainer(local, trained).delta(trained.initial, client, 0)[0].clone())
    torch.testing.assert_close(*deltas)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("kind", [partial(FedAvg, learning_rate=1.0), FedSGD], ids=["fedavg", "fedsgd"])
def test_a_user_moves_the_sum_by_no_more_than_the_clip_norm(kind, at_once: int):
    plan = kind(loss="next_token", clients_per_round=3, noise_multiplier=1.0, clients_at_once=at_once, clip_norm=0.01)
    sums = []
    for last in (["or"], ["to be to be to be to be not"] * 40):
        contribution = plan.contribution(network(), texts({**PLAYED, "zed": last}), "cpu", 0)

        def total(users: int) -> torch.Tensor:
            cohort = Cohort(np.arange(users), np.arange(users), np.arange(users + 1))
            theta, bound = contribution.trained.initial, ConstantClipNorm(clip_norm=0.01)  # noqa: B023
            source = RandomSource.from_seed(1)
            return contribution.clipped_sum(theta, cohort, 0, bound, 0.01, source, None).total  # noqa: B023

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
    fields = {"rounds": 60, "seed": 0, "loss": "next_token"}
    if kind is not Centralized:
        fields |= {"clients_per_round": 6, "noise_multiplier": 0.0, "clip_norm": None, "server_momentum": 0.0}
        fields["server_learning_rate"] = 1.0
    if kind is not FedSGD:
        fields |= {"learning_rate": 1.0, "momentum": 0.0}
    result = kind(**fields).fit(network(), data, test=data)
    assert result.evaluation["untrained"]["accuracy"] < 0.6
    assert result.evaluation["trained"]["accuracy"] > 0.8
    assert result.head is None
    assert result.trouble == ""


def test_what_does_not_fit_together_is_refused():
    data = texts()
    plan = FedAvg(loss="next_token", rounds=1, clients_per_round=2, noise_multiplier=1.0)
    with pytest.raises(InputError, match=r"shape \[1, 4, 8\].*got shape \[1, 4, 9\]; build it with vocabulary_size=8"):
        plan.fit(network(size=9), data)
    with pytest.raises(InputError, match="build it with vocabulary_size=8"):
        plan.fit(network(size=5), data)
    with pytest.raises(InputError, match="train with loss=next_token"):
        FedAvg(rounds=1, clients_per_round=2, noise_multiplier=1.0).fit(network(), data)
    pictures = from_arrays(np.zeros((4, 8)), [0, 1, 0, 1], [0, 0, 1, 1])
    with pytest.raises(InputError, match="needs a label for every token"):
        plan.fit(network(), pictures)
    with pytest.raises(InputError, match="for texts use fedavg or fedsgd"):
        FedEmb(loss="next_token")


class Mixing(nn.Module):
    """Adds the batch's mean to every sequence's logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.inner(tokens)
        return logits + logits.mean(0, keepdim=True)


def test_a_model_that_mixes_the_sequences_of_a_batch_is_refused_where_clients_share_one():
    plan = FedAvg(loss="next_token", rounds=1, clients_per_round=2, noise_multiplier=1.0, clients_at_once=2, seed=0)
    with pytest.raises(InputError, match="use clients_at_once=1"):
        plan.fit(Mixing(), texts())


class Remembering(Mixing):
    """Adds what it has seen to the logits."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.seen = getattr(self, "seen", 0.0) + tokens.float().mean()
        return self.inner(tokens) * (1 + self.seen)


def test_a_model_that_remembers_other_clients_is_refused():
    plan = FedAvg(loss="next_token", rounds=1, clients_per_round=2, noise_multiplier=1.0, seed=0, learning_rate=0.5)
    with pytest.raises(InputError, match="keeps something of what it has seen"):
        plan.fit(Remembering(), texts())
