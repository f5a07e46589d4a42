"""Tasks: how models of clients are trained and measured, by classes, values, texts, similarity and items not chosen."""

import base64
import copy
import io
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from torch.nn import functional

from fitting import fit_plan, local_training
from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import Flat
from sfumato.data import Encoding, UserDataset, from_arrays, split_labels
from sfumato.federated import Centralized, FedAvg, FedEmb, FedSGD
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, ClientTrainer, gather
from sfumato.federated.losses import LOSSES, NextTokenLoss
from sfumato.federated.negatives import PublicNegatives
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
from sfumato.training import Callback, RoundContext, RunOptions, Stop, Trainable
from slow import by_profile

# Tasks: how models of clients are trained and measured, by classes, values, texts and similarity.

# The pictures held for the most alike: those of the nearest embeddings, never the one asked for itself.
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1)).astype(np.uint8)


LABELS = np.arange(12) // 3


def people(inputs: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> UserDataset:
    return from_arrays(inputs, labels, np.arange(12) // 4)


def places(told: list[dict]) -> list[int]:
    """Where in `PIXELS` these pictures are."""
    read = [np.asarray(Image.open(io.BytesIO(base64.b64decode(each["picture"])))) for each in told]
    return [int(np.flatnonzero((PIXELS[..., 0] == picture).all((1, 2)))[0]) for picture in read]


def test_each_is_reported_with_its_nearest_others_and_whether_they_are_the_same():
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


def test_a_model_that_is_not_finite_has_no_error_and_is_still_reported():
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


@pytest.mark.slow
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


# Items that were not chosen: drawn from what is public, for each client by itself, also behind frozen features.

# Public negatives: what a client gets follows from its slot and its own records, and one person moves the sum by C.
SOURCE = RandomSource.from_seed(3)
LOCAL = {
    "client.learning_rate": 0.5,
    "client.epochs": 2,
    "client.batch_size": 3,
    "noise.noise_multiplier": 1.0,
    "cohort.size": 3,
}


def raters(sizes: list[int], seed: int = 0, scale: float = 1.0) -> data.UserDataset:
    """Users of one class each; the last one's records can be as wild as they like."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    inputs = np.random.default_rng(seed).normal(0, 1, (len(owners), 3)).astype(np.float32)
    inputs[owners == len(sizes) - 1] *= scale
    return data.from_arrays(inputs, owners, np.array([f"u{owner:02d}" for owner in owners]))


def public(classes: int = 6, each: int = 4) -> data.UserDataset:
    """Two public users who share all classes; the first column of an input is its class, the second tells it apart."""
    labels = np.repeat(np.arange(classes), each)
    inputs = np.stack([100.0 + labels, np.arange(len(labels)), np.ones(len(labels))], axis=1).astype(np.float32)
    return data.from_arrays(inputs, labels, np.array(["one", "two"])[np.arange(len(labels)) % 2])


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def raters_of(users: data.UserDataset, who: list[int], *, per_client: int = 2, global_classes: bool = False, round=0):
    cohort = Cohort.of_single_units(np.array(who))
    own = gather(users, cohort, global_classes=global_classes)
    return own, PublicNegatives(public(), per_client).join(own, cohort.slots, round, SOURCE)


def part(clients, place: int) -> tuple[list, list]:
    rows = slice(clients.offsets[place], clients.offsets[place + 1])
    return clients.inputs[rows].tolist(), clients.labels[rows].tolist()


def test_own_examples_come_first_and_public_classes_behind_own_ones() -> None:
    own, beside = raters_of(raters([3, 1]), [0, 1])
    assert beside.classes.tolist() == [3, 3]
    assert np.diff(beside.offsets).tolist() == [3 + 2 * 3, 1 + 2 * 1]  # as many of each as of a class of its own
    for place in (0, 1):
        inputs, labels = part(beside, place)
        ours, numbers = part(own, place)
        assert (inputs[: len(ours)], labels[: len(ours)]) == (ours, numbers)
        drawn = [(row[0], label) for row, label in zip(inputs, labels, strict=True) if row[0] >= 100]
        assert len({tuple(row) for row in inputs}) == len(inputs)  # nothing is taken twice
        assert len(set(drawn)) == 2
        assert {label for _, label in drawn} == {1, 2}


def test_a_class_with_few_examples_gives_all_of_them() -> None:
    _, beside = raters_of(raters([9]), [0])
    assert np.diff(beside.offsets).tolist() == [9 + 2 * 4]


def test_a_head_for_all_labels_has_its_public_rows_behind_them() -> None:
    users = raters([2, 2, 2])
    _, beside = raters_of(users, [1], global_classes=True)
    assert beside.classes.tolist() == [5]
    assert sorted(set(part(beside, 0)[1])) == [1, 3, 4]


def test_what_a_client_gets_does_not_depend_on_who_else_takes_part() -> None:
    users = raters([3, 1, 2, 4])
    alone = [part(raters_of(users, [who])[1], 0) for who in range(4)]
    for company in ([0, 1, 2, 3], [1, 3], [0, 2, 3]):
        _, beside = raters_of(users, company)
        assert [part(beside, place) for place in range(len(company))] == [alone[who] for who in company]


def test_the_classes_do_not_depend_on_what_the_client_holds() -> None:
    def classes(size: int) -> set[float]:
        inputs, _ = part(raters_of(raters([size]), [0])[1], 0)
        return {row[0] for row in inputs if row[0] >= 100}

    assert classes(1) == classes(2) == classes(4)


def test_every_round_draws_anew_and_a_repeated_one_the_same() -> None:
    users = raters([2])
    rounds = [part(raters_of(users, [0], round=number)[1], 0) for number in (*range(8), 0)]
    assert rounds[-1] == rounds[0]
    assert len({str(each) for each in rounds}) > 4


def test_all_public_examples_are_drawn_equally_often() -> None:
    """1,500 draws of 2 of 24 examples: each 125 times, std 10.7; all 24 within 5 std but for a chance of 2e-5."""
    users, counts = raters([1]), np.zeros(24)
    for number in range(1500):
        inputs, _ = part(raters_of(users, [0], round=number)[1], 0)
        for row in inputs[1:]:
            counts[int(row[1])] += 1
    assert np.abs(counts - 125).max() < 54


def plan_of(clip: float = 1.0, width: int = 1, **changes) -> FedEmb:
    fields = {"cohort.users_per_client": 1, "client.negatives": 2, "clipping.norm": clip, "client.at_once": width}
    return FedEmb(**{**LOCAL, **fields, **changes})


def total(plan: FedEmb, users: data.UserDataset, present: np.ndarray, source: RandomSource) -> torch.Tensor:
    torch.manual_seed(0)
    contribution = plan.contribution(Scaled(), users, "cpu", 0, plan.with_negatives(public(), users))
    groups = plan.private_sum(len(users)).grouping.group(present, 0, source)
    theta = contribution.trained.initial
    return contribution.clipped_sum(RoundContext(theta, groups, 0, plan.clipping, plan.clipping.norm, source)).total


@settings(deadline=None, max_examples=by_profile(25))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    width=st.sampled_from([1, 3]),
    group=st.sampled_from([1, 3]),
)
def test_one_person_moves_the_sum_by_at_most_the_sensitivity(seed, scale, clip, width, group) -> None:
    plan = plan_of(clip, width, **{"cohort.users_per_client": group, "cohort.size": 2})
    users, source = raters([2, 1, 3, 1, 2, 1, 3], seed, scale), RandomSource.from_seed(seed)
    present = np.arange(7)
    distance = (total(plan, users, present, source) - total(plan, users, present[:-1], source)).norm().item()
    private_sum = plan.private_sum(7)
    sensitivity = private_sum.relative_sensitivity * private_sum.scale(clip)
    assert sensitivity == pytest.approx(clip if group == 1 else 2 * clip)
    assert distance <= sensitivity * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("width", [1, 3])
def test_a_person_of_one_class_contributes_one_clipped_vector_and_no_one_else_moves(width) -> None:
    plan, users = plan_of(0.01, width), raters([2, 1, 3, 1, 2, 1, 3])
    present = np.arange(7)
    whole, without = (total(plan, users, who, SOURCE) for who in (present, present[:-1]))
    alone = total(plan, users, present[-1:], SOURCE)
    assert alone.norm().item() == pytest.approx(0.01, rel=1e-3)  # there is something to tell apart
    # in a batched operation a delta's last bits follow from the company: about 1e-7 of the 7 vectors
    torch.testing.assert_close(whole - without, alone, atol=0 if width == 1 else 1e-7, rtol=1e-9)


def test_both_trainers_agree() -> None:
    users, present = raters([2, 1, 3, 1]), np.arange(4)
    one, many = (
        total(plan_of(1.0, width, **{"client.max_examples": by_profile(5)}), users, present, SOURCE) for width in (1, 3)
    )
    torch.testing.assert_close(one, many, rtol=1e-4, atol=1e-6)


def test_the_cap_counts_own_and_public_examples() -> None:
    torch.manual_seed(0)
    users = raters([2, 1, 3, 1])
    for cap, processed in ((None, 2 * (6 + 3 + 9 + 3)), (5, 4 * 5)):
        plan = plan_of(**{"client.max_examples": cap})
        contribution = plan.contribution(Scaled(), users, "cpu", 0, plan.with_negatives(public(), users))
        groups = plan.private_sum(4).grouping.group(np.arange(4), 0, SOURCE)
        share = contribution.clipped_sum(
            RoundContext(contribution.trained.initial, groups, 0, plan.clipping, 1.0, SOURCE)
        )
        assert share.tally["examples"] == processed


def test_a_run_is_accounted_for_one_person_and_names_the_public_data(tmp_path) -> None:
    users, negatives = raters([2, 1, 3, 1, 2, 1]), public()
    plan = plan_of(rounds=3, delta=1e-3, seed=1)
    statement = plan.fit(Scaled(), users, options=RunOptions(negatives=negatives)).statement
    grouped = plan.replace(cohort={"users_per_client": 2, "size": 1}, rounds=3)
    as_group = grouped.fit(Scaled(), users, options=RunOptions(negatives=negatives)).statement
    assert statement.epsilon < as_group.epsilon
    assert statement.epsilon == pytest.approx(
        FedAvg(cohort=3, rounds=3, delta=1e-3, noise=1.0, seed=1).fit(Scaled(), users).statement.epsilon,
        rel=1e-9,
    )
    (sentence,) = (line for line in statement.assumptions if "negatives" in line)
    assert f"24 examples of 6 classes, digest {negatives.fingerprint()}" in sentence


def test_a_run_goes_on_with_the_same_negatives_only(tmp_path) -> None:
    from sfumato.training import Callback, Stop

    class Halt(Callback):
        def on_round(self, row) -> None:
            if row["round"] == 2:
                raise Stop

    users, plan = raters([2, 1, 3, 1, 2, 1]), plan_of(rounds=4, delta=1e-3, seed=1)
    torch.manual_seed(0)
    model = Scaled()
    whole = plan.fit(model, users, options=RunOptions(negatives=public())).model.state_dict()
    plan.fit(model, users, out=tmp_path / "run", options=RunOptions(negatives=public(), callbacks=[Halt()]))
    with pytest.raises(InputError, match="the negatives differ"):
        plan.fit(model, users, out=tmp_path / "run", resume=True, options=RunOptions(negatives=public(each=5)))
    resumed = plan.fit(
        model, users, out=tmp_path / "run", resume=True, options=RunOptions(negatives=public())
    ).model.state_dict()
    assert torch.equal(resumed["linear.weight"], whole["linear.weight"])


def refused(plan, negatives, users=None) -> str:
    with pytest.raises(InputError) as caught:
        plan.fit(Scaled(), raters([2, 1, 3]) if users is None else users, options=RunOptions(negatives=negatives))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_training_record_among_the_negatives_is_refused() -> None:
    users = raters([2, 1, 3])
    rows = np.concatenate([np.asarray(public().inputs[slice(0, None)]), users.examples(1)[0]])
    mixed = data.from_arrays(rows, np.arange(len(rows)) % 6, np.array(["p"] * len(rows)))
    assert "1 of the 25 negatives are training records" in refused(plan_of(), mixed, users)


def test_a_zero_of_the_other_sign_hides_no_training_record() -> None:
    users = raters([2, 1, 3])
    zeroed = users.with_inputs(users.inputs[:] * np.float32([1, 0, 1]))
    negatives = public().with_inputs(np.concatenate([public().inputs[:-1], zeroed.inputs[:1] * np.float32([1, -1, 1])]))
    assert "1 of the 24 negatives are training records" in refused(plan_of(), negatives, zeroed)


def test_negatives_that_do_not_fit_are_refused_in_one_line() -> None:
    assert "6 classes" in refused(plan_of(**{"client.negatives": 7}), public())
    assert "client.negatives=0" in refused(plan_of(**{"client.negatives": 0}), public())
    assert "(2,)" in refused(plan_of(), data.from_arrays(np.ones((4, 2), np.float32), [0, 1, 2, 3], list("abcd")))
    assert "float64" in refused(plan_of(), data.from_arrays(np.ones((4, 3)), [0, 1, 2, 3], list("abcd")))
    assert "values" in refused(plan_of(), data.from_arrays(np.ones((4, 3), np.float32), [0.5, 1, 2, 3], list("abcd")))
    assert "ndarray" in refused(plan_of(), np.ones((4, 3), np.float32))
    assert "fedavg takes no public negatives" in refused(FedAvg(noise=1.0), public())
    assert "give negatives" in refused(plan_of(), None)


def test_a_client_of_one_class_is_reported_of_negatives() -> None:
    assert "client.negatives" in refused(plan_of(**{"client.negatives": 0}), None)


@pytest.mark.parametrize("count", [-1, 1.5])
def test_a_number_of_negatives_is_a_whole_number(count) -> None:
    with pytest.raises(InputError, match="negatives must be"):
        plan_of(**{"client.negatives": count})


def test_negatives_go_through_frozen_layers_as_the_records_do(blobs, tmp_path) -> None:
    def scorer() -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))

    users, strangers = blobs(8), blobs(4, seed=5)
    plan = plan_of(rounds=2, seed=1, trainable="last_blocks:1", delta=1e-3)
    without = plan.fit(scorer(), users, options=RunOptions(negatives=strangers))
    behind = plan.fit(scorer(), users, options=RunOptions(negatives=strangers, prefix_cache=tmp_path / "cache"))
    assert behind.statement.assumptions == without.statement.assumptions
    start = scorer()[3].weight
    ours, theirs = (result.model.state_dict()["3.weight"] - start for result in (behind, without))
    # convolutions of batches of other sizes round otherwise: 1e-7 of a value, in some 10 steps
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm() > 0
    with pytest.raises(InputError, match="negatives are training records"):
        plan.fit(scorer(), users, options=RunOptions(negatives=users.subset([0, 1]), prefix_cache=tmp_path / "cache"))


# Public negatives go through the frozen layers as records do, and are compared with them before.
PLAN = FedEmb(
    rounds=3,
    cohort={"size": 6, "users_per_client": 1},
    client={"negatives": 3, "epochs": 2, "learning_rate": 0.1},
    noise=0.0,
    seed=1,
    trainable="last",
)


def scorer(seed: int = 0) -> nn.Sequential:
    """The frozen layers give what has the shape and the type of a record."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


def readers() -> data.UserDataset:
    owners = np.repeat(np.arange(12), 3)
    inputs = np.random.default_rng(0).normal(0, 1, (36, 6)).astype(np.float32)
    return data.from_arrays(inputs, owners, [f"u{owner:02d}" for owner in owners])


def public_features(seed: int = 1, record: np.ndarray | None = None) -> data.UserDataset:
    inputs = np.random.default_rng(seed).normal(0, 1, (24, 6)).astype(np.float32)
    if record is not None:
        inputs[7] = record
    return data.from_arrays(inputs, np.repeat(np.arange(6), 4), ["somebody"] * 24)


class Halt(Callback):
    def on_round(self, row):
        if row["round"] == 2:
            raise Stop


def test_trained_values_are_those_without_a_cache(tmp_path):
    without = PLAN.fit(scorer(), readers(), options=RunOptions(negatives=public_features()))
    behind = PLAN.fit(
        scorer(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache")
    )
    start = scorer().state_dict()["2.weight"]
    ours, theirs = (one.model.state_dict()["2.weight"] - start for one in (behind, without))
    assert theirs.any()
    # the rows of a batch round otherwise than a row alone: 1e-7 of a value, in some 20 steps
    assert (ours - theirs).norm() <= 1e-4 * theirs.norm()
    assert (tmp_path / "cache" / "private-negatives").is_dir()


def test_a_training_record_among_the_negatives_is_refused_before_any_row_is_kept(tmp_path):
    inputs, _ = readers().examples(4)
    with pytest.raises(InputError, match="1 of the 24 negatives are training records"):
        PLAN.fit(
            scorer(),
            readers(),
            options=RunOptions(negatives=public_features(record=inputs[1]), prefix_cache=tmp_path / "cache"),
        )
    assert not (tmp_path / "cache").exists()


def test_a_plan_that_takes_no_negatives_refuses_them_behind_a_cache_too(tmp_path):
    plan = FedAvg(rounds=1, cohort=2, noise=1.0, seed=1, trainable="last")
    with pytest.raises(InputError, match="takes no public negatives"):
        plan.fit(scorer(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_a_run_behind_frozen_features_goes_on_with_the_same_negatives_only(tmp_path):
    run = {"model": scorer(), "data": readers(), "out": tmp_path / "run"}
    fit_plan(
        PLAN,
        options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache", callbacks=[Halt()]),
        **run,
    )
    with pytest.raises(InputError, match="the negatives differ"):
        fit_plan(
            PLAN, resume=True, options=RunOptions(negatives=public_features(2), prefix_cache=tmp_path / "cache"), **run
        )
    with pytest.raises(InputError, match="the negatives differ"):
        fit_plan(
            PLAN, resume=True, options=RunOptions(negatives=public_features(2), prefix_cache=tmp_path / "other"), **run
        )
    assert fit_plan(
        PLAN, resume=True, options=RunOptions(negatives=public_features(), prefix_cache=tmp_path / "cache"), **run
    ).finished


def test_the_statement_names_the_public_data_and_not_what_layers_make_of_them(tmp_path):
    plan = PLAN.replace(noise=1.0)
    told = plan.fit(
        scorer(), readers(), options=RunOptions(negatives=public_features(), prefix_cache=tmp_path)
    ).statement.assumptions
    assert any(public_features().fingerprint() in line for line in told)
    assert told == plan.fit(scorer(), readers(), options=RunOptions(negatives=public_features())).statement.assumptions


def test_a_run_is_reported_from_one_with_negatives_that_were_rounded_otherwise():
    known = PublicNegatives(public_features(), 3)
    rounded = known.through(lambda given: given.with_inputs(given.inputs[:] * np.float32(1 + 1e-6)))
    one, other = (PLAN.contribution(scorer(), readers(), "cpu", 0, each) for each in (known, rounded))
    assert one.fingerprint() != other.fingerprint()
    assert known.assumption() == rounded.assumption()
