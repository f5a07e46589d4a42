"""Clients that are trained in one batched operation do not see each other, or are refused there."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import Flat
from sfumato.federated import FedAvg, FedEmb
from sfumato.sampling import Cohort
from sfumato.training import Callback, RoundContext, RunOptions
from sfumato.training.loop import Cadence

FEATURES, CLASSES = 6, 3
SIZES = (2, 9, 3, 14, 5, 2)
PLAN = FedAvg(rounds=2, cohort=4, noise=1.0, client={"batch_size": 4}, seed=1)


def users(wild: float = 1.0) -> data.UserDataset:
    """Users of very different sizes; what the first one holds is multiplied."""
    rng, count = np.random.default_rng(0), sum(SIZES)
    inputs, owners = rng.normal(size=(count, FEATURES)).astype(np.float32), np.repeat(np.arange(len(SIZES)), SIZES)
    inputs[owners == 0] *= np.float32(wild)
    return data.from_arrays(inputs, np.arange(count) % CLASSES, owners)


class Over(nn.Module):
    """Two layers, with something over the batch between them."""

    def __init__(self, over) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.over = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), over

    def forward(self, values: Tensor) -> Tensor:
        return self.outer(self.over(torch.tanh(self.inner(values))))


COUPLED = {
    "statistics": lambda h: (h - h.mean(dim=0)) / (h.var(dim=0, correction=0) + 1e-3).sqrt(),
    "a little of the mean": lambda h: h + 0.05 * h.mean(dim=0),
    "the maximum": lambda h: h - h.amax(dim=0),
    "norm over the batch": lambda h: h / (h.norm(dim=0) + 1e-3),
    "ranks": lambda h: h * (1 + h[:, :1].argsort(dim=0, stable=True).argsort(dim=0, stable=True).to(h.dtype)),
    "batch size": lambda h: h * len(h),
}


@pytest.mark.parametrize("over", COUPLED)
@pytest.mark.parametrize("plan", [PLAN, FedEmb(rounds=2, cohort={"size": 2, "users_per_client": 2}, noise=1)])
def test_what_mixes_the_examples_of_a_client_trains_one_by_one_only(over, plan):
    plan.contribution(Over(COUPLED[over]), users(), "cpu", 0)
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        plan.replace(client={"at_once": 3}).contribution(Over(COUPLED[over]), users(), "cpu", 0)


@pytest.mark.parametrize("layers", [[nn.LayerNorm(8)], [nn.Dropout(0.0)], [nn.Unflatten(1, (2, 4)), nn.Flatten()]])
def test_what_treats_each_example_alone_is_accepted(layers):
    PLAN.replace(client={"at_once": 3}).contribution(Over(nn.Sequential(*layers)), users(), "cpu", 0)


@pytest.mark.parametrize("at_once", [2, 32])
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])
def test_what_draws_random_numbers_trains_one_by_one_only(layer, at_once):
    """Who stands first would seed the draws of all: one person moved the sum by 4 C."""
    plan = PLAN.replace(client={"at_once": at_once})
    plan.replace(client={"at_once": 1}).contribution(Over(layer), users(), "cpu", 0)
    with pytest.raises(InputError, match=r"draws random numbers .* use client\.at_once=1"):
        plan.contribution(Over(layer), users(), "cpu", 0)


def test_draws_that_begin_later_stop_the_round():
    contribution = PLAN.replace(client={"at_once": 2}).contribution(Over(nn.Identity()), users(), "cpu", 0)
    for trainer in contribution._trainers:
        trainer.trained.model.over = nn.Dropout(0.5)
    source, theta = RandomSource.from_seed(0), contribution.trained.initial
    with pytest.raises(InputError, match="draws random numbers"):
        contribution.clipped_sum(
            RoundContext(theta, Cohort.of_single_units(np.arange(4)), 0, PLAN.clipping, 1.0, source)
        )


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_of_half_or_double_precision_is_accepted(kind):
    model = Over(nn.Identity()).to(kind)
    model.register_forward_pre_hook(lambda _, given: given[0].to(kind))
    model.register_forward_hook(lambda _, given, found: found.float())
    plan = FedEmb(rounds=2, cohort={"size": 2, "users_per_client": 2}, noise=1, client={"learning_rate": 0.5})
    plan.replace(client={"at_once": 3}).contribution(model, users(), "cpu", 0)


@pytest.mark.parametrize("learning_rate", [0.1, 5.0])
def test_records_at_which_training_diverges_are_no_reason_to_refuse(learning_rate):
    """What rounding is enlarged to there says nothing of a model that treats each example alone."""
    inputs = (1e20 * np.random.default_rng(0).normal(size=(240, FEATURES))).astype(np.float32)
    records = data.from_arrays(inputs, np.arange(240) % CLASSES, np.repeat(np.arange(12), 20))
    plan = PLAN.replace(client={"at_once": 3, "learning_rate": learning_rate})
    plan.contribution(nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES)), records, "cpu", 0)
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        plan.contribution(Over(COUPLED["statistics"]), records, "cpu", 0)


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e30])
def test_a_client_that_is_not_finite_takes_nobody_with_it(wild):
    """Padding is the client's own: zero times another one's NaN would be NaN."""
    contribution = PLAN.replace(client={"at_once": 6}).contribution(Over(nn.Identity()), users(), "cpu", 0)

    def total(units: np.ndarray, records: data.UserDataset):
        contribution.users = records
        source, theta = RandomSource.from_seed(0), contribution.trained.initial
        return contribution.clipped_sum(
            RoundContext(theta, Cohort.of_single_units(units), 0, PLAN.clipping, 1.0, source)
        )

    others = total(np.arange(1, len(SIZES)), users())
    together = total(np.arange(len(SIZES)), users(wild))
    assert together.tally["non_finite"] <= 1
    moved = (together.total - others.total).norm()
    assert moved <= (0 if together.tally["non_finite"] else 1) + 1e-5


EXTREME = 20


class KeepsExtremes(nn.Module):
    """Multiplies what comes after an extreme example, wherever it can read a number: of those in the trial none is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.level = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), 0.0

    def forward(self, values: Tensor) -> Tensor:
        found = self.outer(torch.tanh(self.inner(values))) * (1 + self.level)
        with suppress(RuntimeError):  # several clients in one operation have no one number
            self.level = float(values.abs().amax() > 50)
        return found


def test_no_client_goes_through_the_model_alone_before_the_operation_of_all():
    """The size of a head is asked of the model; what it keeps of an example then would meet everybody."""
    plan = FedEmb(
        rounds=2,
        cohort={"size": 2, "users_per_client": 1},
        noise=1,
        client={"batch_size": None, "epochs": 1, "at_once": 8},
    )
    bound, everybody = Flat(norm=1e9), np.arange(EXTREME, EXTREME + 5)

    def total(users_there: np.ndarray) -> Tensor:
        contribution = plan.contribution(KeepsExtremes(), alike(), "cpu", 0)
        theta, cohort = contribution.trained.initial.clone(), Cohort.of_single_units(users_there)
        return contribution.clipped_sum(
            RoundContext(theta, cohort, 0, bound, 1e9, RandomSource.from_seed(1))
        ).total.clone()

    without, alone = total(everybody[1:]), total(everybody[:1])
    assert (total(everybody) - alone - without).norm() < 1e-4 * without.norm()


def alike() -> data.UserDataset:
    """Users of one size, so that all are in one operation; the records of one, who is not tried, are extreme."""
    owners = np.repeat(np.arange(100), 6)
    inputs = np.random.default_rng(0).normal(size=(len(owners), FEATURES)).astype(np.float32)
    inputs[owners == EXTREME] *= 100.0
    return data.from_arrays(inputs, np.arange(len(inputs)) % CLASSES, owners)


class CountsWhatItWasAsked(Over):
    """Keeps how much it was asked after training, and multiplies by it."""

    def __init__(self) -> None:
        super().__init__(lambda hidden: hidden)
        self.asked = 0

    def forward(self, values: Tensor) -> Tensor:
        self.asked += not self.training
        return super().forward(values) * (1 + self.asked)


class Asks(Callback):
    """Measures something of its own."""

    def on_evaluation(self, row: dict[str, Any], model: nn.Module) -> None:
        model.eval()(torch.zeros(1, FEATURES))


@pytest.mark.parametrize("callbacks", [(), (Asks(),)], ids=["ours", "the user's"])
@pytest.mark.parametrize("at_once", [1, 3])
def test_no_client_meets_what_the_model_kept_of_a_measurement(at_once, callbacks):
    """Who comes first in a round would meet it alone, and that is another one where somebody goes."""
    plan = FedAvg(rounds=2, cohort=3, noise=1, seed=1, client={"at_once": at_once, "threads": 1})
    often, model = Cadence(evaluate_every=1), CountsWhatItWasAsked()
    measured = plan.fit(
        model, users(), validation=users(), options=RunOptions(**vars(often), callbacks=callbacks)
    ).model.state_dict()
    unmeasured = plan.fit(model, users()).model.state_dict()
    assert all(torch.equal(measured[name], unmeasured[name]) for name in measured)
