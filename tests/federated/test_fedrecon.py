"""Federated Reconstruction from plan to people: what is refused, what it costs, and who is served how."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.data import UserDataset, from_arrays
from sfumato.federated import FedAvg, FedEmb, FedRecon
from sfumato.federated.client import Phase, Reconstruction
from sfumato.federated.tasks import Personalised, Values
from sfumato.statement.sentences import render
from slow import one_in

ITEMS, FACTORS = 30, 4


class Factors(nn.Module):
    """A vector for each item, and one user's."""

    row_tables: ClassVar = {"items.weight": 0}
    local_parameters = "user"

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.items, self.user = nn.Embedding(ITEMS, FACTORS), nn.Parameter(torch.full((FACTORS,), 0.1))
        nn.init.normal_(self.items.weight, std=0.5, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        return 3.0 + self.items(inputs[:, 0]) @ self.user


def ratings(users: int = 40, seed: int = 0, each: int = 20) -> UserDataset:
    """Ratings that a user's vector and an item's explain."""
    rng = np.random.default_rng(seed)
    items = np.random.default_rng(7).normal(size=(ITEMS, 2))
    sizes = rng.integers(each // 2, each, users)
    rows = [rng.choice(ITEMS, size, replace=False) for size in sizes]
    values = [3 + items[held] @ rng.normal(size=2) for held in rows]
    owners = np.repeat(np.arange(users), sizes)
    return from_arrays(np.concatenate(rows)[:, None], np.concatenate(values).astype(np.float32), owners)


PLAN = FedRecon(
    rounds=30,
    cohort=20,
    clipping=None,
    noise=0.0,
    client={"learning_rate": 0.2, "at_once": 16, "local": {"learning_rate": 0.3, "epochs": None, "steps": 30}},
    server={"learning_rate": 2.0},
    seed=0,
)


@pytest.mark.slow
def test_people_who_never_took_part_are_served_by_what_others_taught():
    result = PLAN.fit(Factors(), ratings(), test=ratings(seed=1))
    before, after = (result.evaluation[name] for name in ("untrained", "trained"))
    assert after["rmse"] < 0.75 * before["rmse"]
    assert sum(group["values"] for group in after["by_records"]) == after["values"]
    steps = PLAN.replace(client={"local": {"steps": 0}}).default_task()
    assert after["rmse"] < steps.measure(result.model, ratings(seed=1), curve=False, device="cpu")["rmse"]


@pytest.mark.parametrize("at_once", [1, 16])
def test_serving_depends_on_a_persons_own_records_alone(at_once):
    plan, people = PLAN.replace(client={"at_once": at_once}), ratings(12, seed=2)
    whole = plan.personalise(Factors(), people)
    assert whole.local_parameters["user"].shape == (12, FACTORS)
    assert (whole.local_parameters["user"] - 0.1).abs().min() > 0
    order = [3, 0, 11, 5]
    assert torch.equal(
        plan.personalise(Factors(), people.subset(order)).local_parameters["user"],
        whole.local_parameters["user"][order],
    )
    model = Factors()
    model.load_state_dict(whole.state(3), strict=False)
    assert torch.equal(model.user, whole.local_parameters["user"][3])


class Forgetful(Factors):
    """Drops factors at random."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 3.0 + functional.dropout(self.items(inputs[:, 0]), 0.5, self.training) @ self.user


class Counting(Factors):
    """Remembers in an attribute how often it was asked."""

    asked = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.asked += 1
        return super().forward(inputs) * (1 + 0.01 * self.asked)


@pytest.mark.parametrize(("kind", "at_once"), one_in(2, [Forgetful, Counting], [1, 4]))
def test_people_are_served_similar_by_models_that_draw_or_remember(kind, at_once, monkeypatch):
    plan, people = PLAN.replace(client={"at_once": at_once}), ratings(12, seed=2)
    whole = plan.personalise(kind(), people).local_parameters["user"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for order in ([3, 0, 11, 5], [7], list(range(11, -1, -1))):
        found = plan.personalise(kind(), people.subset(order)).local_parameters["user"]
        torch.testing.assert_close(found, whole[order], atol=1e-5, rtol=1e-5)
    rows = [plan.default_task().measure(kind(), people, curve=False, device="cpu") for _ in range(3)]
    assert rows[0] == rows[1] == rows[2]


def test_one_after_the_other_measures_what_a_batch_measures():
    people = ratings(seed=3)
    rows = [
        PLAN.replace(client={"at_once": at_once}).default_task().measure(Factors(), people, curve=True, device="cpu")
        for at_once in (1, 7)
    ]
    assert rows[0]["rmse"] == pytest.approx(rows[1]["rmse"], rel=1e-5)
    for one, other in zip(rows[0]["by_records"], rows[1]["by_records"], strict=True):
        assert one.pop("records") == other.pop("records")
        assert one == pytest.approx(other, rel=1e-5)


def test_the_measure_is_that_of_the_records_that_nothing_was_rebuilt_from():
    rule = Reconstruction(support_share=0.4, support_order="first", steps=0)
    task = Personalised(inner=Values(), client=dataclasses.replace(PLAN.client, local=rule), at_once=4)
    people, model = ratings(6), Factors()
    errors = []
    for user in range(6):
        inputs, labels = people.examples(user)
        first = int(0.4 * len(labels))
        errors += [*(model(torch.from_numpy(inputs[first:])).detach().numpy() - labels[first:])]
    row = task.measure(model, people, curve=False, device="cpu")
    assert row["values"] == len(errors)
    assert row["rmse"] == pytest.approx(float(np.sqrt(np.mean(np.square(errors)))), rel=1e-5)
    assert row["within_half"] == pytest.approx(np.mean(np.abs(errors) <= 0.5))


def test_fine_tuning_is_a_phase_that_moves_everything():
    rule = Reconstruction(support_share=0.5, support_order="first")
    people, squares = ratings(5, seed=4), []
    tuned = Personalised(
        inner=Values(),
        client=dataclasses.replace(PLAN.client, local=rule),
        local_parameters="",
        phases=(Phase(records="support", local=None, shared=0.3, batch_size=None),),
    )
    for user in range(5):
        inputs, labels = (torch.tensor(each) for each in people.examples(user))
        half, model = len(labels) // 2, Factors()
        loss = ((model(inputs[:half]) - labels[:half]) ** 2).mean()
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True):
                weight.sub_(0.3 * gradient)
            squares += ((model(inputs[half:]) - labels[half:]) ** 2).tolist()
    row = tuned.measure(Factors(), people, curve=False, device="cpu")
    assert row["rmse"] == pytest.approx(float(np.sqrt(np.mean(squares))), rel=1e-5)


def test_the_cost_is_that_of_a_plan_that_sends_everything():
    fields = {"rounds": 20, "cohort.size": 10, "noise.noise_multiplier": 1.1, "clipping.norm": 0.5}
    events = [kind(**fields, client={"loss": "squared"}).private_sum(1000).event(20) for kind in (FedRecon, FedAvg)]
    assert acc.guarantee(events[0]).epsilon(1e-5) == acc.guarantee(events[1]).epsilon(1e-5)
    told = render(FedRecon(**fields).assumptions()[-1])
    assert "Every round rebuilds them from this user's own records" in " ".join(told.split())


@pytest.mark.slow
def test_private_runs_learn_and_say_what_is_each_users_own():
    plan = PLAN.replace(clipping=0.5, noise=0.05, rounds=10)
    result = plan.fit(Factors(), ratings(), test=ratings(seed=1))
    assert result.evaluation["trained"]["rmse"] < result.evaluation["untrained"]["rmse"]
    assert any("each user's own" in line for line in result.statement.assumptions)
    assert torch.equal(result.model.get_parameter("user"), torch.full((FACTORS,), 0.1))


def test_the_statement_says_that_an_adaptive_norm_counts_too():
    told = [render(FedRecon(clipping=kind).assumptions()[-1]) for kind in ("flat", "adaptive")]
    assert [sentence.id for sentence in told] == ["own_parameters", "own_parameters_counted"]


class Idle(Factors):
    """Its user part is never used."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.items(inputs[:, 0]).sum(-1)


class Liar(Factors):
    """Says of a table that its rows are looked up by an input, which is not so."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 3.0 + self.items((inputs[:, 0] + 1) % ITEMS) @ self.user


class NoColumn(Factors):
    """Says that rows are looked up by a column that inputs do not have."""

    row_tables: ClassVar = {"items.weight": 1}


class Tied(Factors):
    """One weight under a name that is the user's and under one that is everybody's."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(FACTORS))
        self.user_scale = self.scale

    def forward(self, inputs: Tensor) -> Tensor:
        return 3.0 + self.items(inputs[:, 0]) @ (self.user * self.user_scale)


@pytest.mark.parametrize(
    ("model", "changes", "told"),
    [
        (
            Factors,
            {"client.local.parameters": "nobody"},
            "names none of the parameters that are trained: user, items.weight",
        ),
        (Factors, {"client.local.parameters": ".*"}, "names all parameters that are trained"),
        (Factors, {"client.local.parameters": "("}, "is no regular expression"),
        (Idle, {}, "the local parameter user changes no output of the model"),
        (Liar, {}, "row_tables do not name the rows of an example"),
        (NoColumn, {}, "row_tables do not name the rows of an example"),
        (Tied, {"client.local.parameters": "user.*"}, "scale and user_scale are one parameter"),
        (Tied, {"client.local.parameters": "user|scale"}, "scale and user_scale are one parameter"),
    ],
)
def test_models_and_patterns_that_do_not_fit_are_refused(model, changes, told):
    with pytest.raises(InputError, match=told):
        PLAN.replace(cohort=3, **changes).try_out(model(), ratings(6))


class OwnBias(Factors):
    """A user's part beside the vector is a table, looked up by the column that chooses an item's vector."""

    row_tables: ClassVar = {"items.weight": 0, "bias.weight": 0}

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding.from_pretrained(torch.linspace(-1, 1, ITEMS)[:, None], freeze=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + self.bias(inputs[:, 0])[:, 0]


@pytest.mark.parametrize("changes", [{"client.local.parameters": "user|bias.weight"}, {"trainable": "user|items"}])
def test_tables_that_are_own_or_frozen_keep_the_column_that_others_are_looked_up_by(changes):
    plan = dataclasses.replace(PLAN, rounds=2, **changes)
    one, many = (plan.replace(client={"at_once": each}).fit(OwnBias(), ratings()).model for each in (1, 16))
    torch.testing.assert_close(one.state_dict(), many.state_dict(), atol=1e-5, rtol=1e-5)
    assert not torch.equal(one.get_parameter("items.weight"), OwnBias().items.weight)


def test_a_model_that_does_not_say_which_part_is_whose_is_refused():
    with pytest.raises(InputError, match="which parameters are each user's own"):
        PLAN.replace(cohort=3).try_out(nn.Sequential(nn.Embedding(30, 1)), ratings(6))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cohort.users_per_client": 2}, "an own part belongs to one user"),
        ({"client.local.support_share": 1.0}, "support_share must be in"),
        ({"client.local.support_count": 0}, "support_count"),
        ({"client.local.steps": -1}, "steps must be"),
        ({"client.local.learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"client.local.joint": True, "client.local.steps": 0}, "leaves nothing to train"),
    ],
)
def test_settings_out_of_range_are_refused(fields, told):
    with pytest.raises(InputError, match=told):
        FedRecon(**fields)


def test_embeddings_are_for_fedemb_and_classes_are_no_values():
    with pytest.raises(InputError, match="or use fedemb"):
        FedRecon(client={"loss": "softmax"}).default_task()
    classes = from_arrays(np.zeros((8, 1), np.int64), np.arange(8) % 2, np.arange(8) // 2)
    with pytest.raises(InputError, match="needs a value for each record"):
        PLAN.fit(Factors(), classes)
    with pytest.raises(InputError, match="no user has two records"):
        PLAN.fit(Factors(), from_arrays(np.zeros((8, 1), np.int64), np.ones(8, np.float32), np.arange(8)))


def test_a_user_with_one_record_takes_part_and_moves_nothing():
    people = from_arrays(np.zeros((5, 1), np.int64), np.full(5, 9.0, np.float32), np.array(["a", "a", "b", "b", "c"]))
    plan = PLAN.replace(rounds=1, cohort={"size": 3, "kind": "fixed_size"}, noise=0.0)
    whole = plan.fit(Factors(), people).model.get_parameter("items.weight")
    without = plan.replace(cohort=2).fit(Factors(), people.subset([0, 1])).model
    began = Factors().items.weight
    torch.testing.assert_close(3 * (whole - began), 2 * (without.get_parameter("items.weight") - began))


def test_a_fresh_head_of_fedemb_and_an_own_part_are_one_engine():
    assert FedEmb(client={"head": {"steps_alone": 2}}).client.phases[0].local is not None
    assert FedEmb(client={"head": {"steps_alone": 2}}).client.phases[0].shared is None
    assert PLAN.client.phases[0].shared is None
