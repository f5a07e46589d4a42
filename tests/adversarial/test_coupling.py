"""One example or client changes another one's part, by what they share, draw or remember: refused, or bounded."""

import random
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adversarial.specimens import (
    CLASSES,
    COUPLED,
    MIXED,
    OWN,
    PLAN,
    PUT_BACK,
    SHARED,
    UNCOUPLED,
    UNMEASURED,
    WORDS,
    Dense,
    as_data,
    branch,
    each,
    extreme,
    largest_move,
    losses_of,
    numbers,
    texts,
)
from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.central.examples import ExampleContribution
from sfumato.clipping import Flat
from sfumato.data import examples_from_arrays
from sfumato.federated import FedAvg, FedEmb
from sfumato.guard import self_check
from sfumato.sampling import Cohort
from sfumato.training import Callback, RoundContext, RunOptions, Trainable
from sfumato.training.loop import Cadence
from slow import one_in, slow_but

# One example changes another one's gradient, by what they share, draw or remember: it is refused, or bounded.


# Ordinary models and losses in which one example changes another one's gradient: each moves the sum by more than C.
#
# Every case comes with a sibling that does the same for each example by itself, and that must be accepted.
@pytest.mark.parametrize("kind", one_in(3, [kind for kind in COUPLED if kind not in UNMEASURED]))
def test_one_example_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    """So these are not false alarms."""
    build, loss, data = COUPLED[kind]
    assert largest_move(build, loss, extreme(data(), kind)) > 1.005


@pytest.mark.parametrize("kind", one_in(2, UNCOUPLED))
def test_without_coupling_it_moves_by_no_more(kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    assert largest_move(build, loss, data()) <= 1 + 1e-4


@pytest.mark.parametrize("kind", COUPLED)
def test_coupling_is_refused(kind: str) -> None:
    build, loss, data = COUPLED[kind]
    model = build()
    with pytest.raises(InputError, match="coupled"):
        self_check(model, losses_of(model, loss), data())


@pytest.mark.parametrize(
    ("precision", "kind"), one_in(4, ["float32", "bfloat16"], [kind for kind in COUPLED if kind not in PUT_BACK])
)
def test_coupling_is_refused_before_the_first_step(precision: Any, kind: str) -> None:
    build, loss, data = COUPLED[kind]
    with pytest.raises(InputError, match="coupled"):
        PLAN.replace(examples={"precision": precision}).fit(build(), as_data(data()), loss=loss)


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], UNCOUPLED))
def test_its_sibling_trains(precision: Any, kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    PLAN.replace(examples={"precision": precision}).fit(build(), as_data(data()), loss=loss)


def test_a_branch_on_a_full_micro_batch_is_refused() -> None:
    """The self-check's own batches are smaller."""
    plan = PLAN.replace(examples={"micro_batch": 128})
    with pytest.raises(InputError, match=r"in a full micro-batch.*coupled"):
        plan.fit(Dense(branch(lambda h: len(h) > 100)), as_data(numbers(200)))


def test_what_begins_at_a_later_step_stops_the_run() -> None:
    class Late(Dense):
        calls = 0

        def forward(self, values: Tensor) -> Tensor:
            Late.calls += 1
            hidden = self.one(values).tanh()
            return self.two(hidden - hidden.mean(dim=0).detach() if Late.calls > 3000 else hidden)

    plan = PLAN.replace(steps=100, examples={"micro_batch": 8})
    contribution = plan.contribution(Late(), as_data(numbers()), "cpu", 0)
    source, theta = RandomSource.from_seed(0), contribution.trained.initial
    cohort = plan.cohort.grouping.group(np.arange(48), 0, source)
    contribution.clipped_sum(RoundContext(theta, cohort, 8, plan.clipping, 1.0, source))
    Late.calls = 3001
    contribution.clipped_sum(RoundContext(theta, cohort, 9, plan.clipping, 1.0, source))  # nobody looks
    with pytest.raises(InputError, match=r"at step 16 .*coupled"):
        contribution.clipped_sum(RoundContext(theta, cohort, 16, plan.clipping, 1.0, source))


@pytest.mark.parametrize("kind", UNCOUPLED)
def test_its_sibling_is_accepted(kind: str) -> None:
    build, loss, data = UNCOUPLED[kind]
    model = build()
    assert self_check(model, losses_of(model, loss), data()).double


@pytest.mark.parametrize("share", [0.05, 1e-3])
def test_half_precision_hides_no_coupling(share: float) -> None:
    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(batch[0])
        return each(scores.float(), batch[1])

    model = Dense(lambda h: h - share * h.mean(dim=0).detach())
    with pytest.raises(InputError, match="coupled"):
        self_check(model, losses, numbers())
    model = Dense()
    found = self_check(model, losses, numbers())
    assert found.half
    assert found.double


# Random numbers that the examples of a micro-batch share, or that are mixed among them, are refused.
#
# Who shares a number changes when an example comes or goes: the sum then moves by more than the clip norm.
@pytest.mark.parametrize(
    "kind", one_in(2, ["a gate", "a mask of the units", "a block that the batch skips", "a direction"])
)
def test_a_shared_draw_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    assert largest_move(SHARED[kind], each, numbers(), micro_batch=4) > 1.5


@pytest.mark.parametrize("kind", SHARED)
def test_a_shared_draw_is_refused(kind: str) -> None:
    model = SHARED[kind]()
    states = torch.get_rng_state(), random.getstate()
    with pytest.raises(InputError, match=r"shared|numpy.random or random|seeds torch's generator"):
        self_check(model, losses_of(model, each), numbers())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_shared_draw_in_the_loss_is_refused() -> None:
    model = Dense()
    with pytest.raises(InputError, match="own forward or the loss"):
        self_check(model, lambda batch: each(model(batch[0]), batch[1]) * torch.rand(1), numbers())


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], [*SHARED, *MIXED]))
def test_it_is_refused_before_the_first_step(precision: Any, kind: str) -> None:
    plan = PLAN.replace(examples={"precision": precision})
    with pytest.raises(InputError, match=r"shared|numpy.random or random|seeds torch's generator|reach others"):
        plan.fit({**SHARED, **MIXED}[kind](), as_data(numbers()))


@pytest.mark.parametrize("kind", one_in(2, MIXED))
def test_mixing_the_draws_of_examples_moves_the_sum_by_more_than_the_clip_norm(kind: str) -> None:
    assert largest_move(MIXED[kind], each, numbers()) > 1.005


@pytest.mark.parametrize(("precision", "kind"), one_in(4, ["float32", "bfloat16"], OWN))
def test_a_draw_for_each_example_trains(precision: Any, kind: str) -> None:
    PLAN.replace(examples={"precision": precision}).fit(OWN[kind](), as_data(numbers()))


@pytest.mark.parametrize("kind", one_in(2, OWN))
def test_a_draw_for_each_example_is_accepted(kind: str) -> None:
    model = OWN[kind]()
    self_check(model, losses_of(model, each), numbers())


def test_a_transformer_with_dropout_is_accepted() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            mixed = self.layer(self.table(ids), src_key_padding_mask=(ids == 0) & (torch.arange(ids.shape[1]) > 0))
            return self.head(mixed.mean(dim=1))

    torch.manual_seed(0)
    model = Model()
    assert self_check(model, losses_of(model, each), texts()).double


# What a model keeps of other examples outside of its weights and buffers reaches no sum of DP-SGD.
#
# A memory in an attribute is put back before every micro-batch and every trial; one elsewhere stops the run at the
# next step that is looked at.
OCCASION = SimpleNamespace(now=False)
"""No attribute of a model, so that nobody puts it back."""


@pytest.fixture(autouse=True)
def _again() -> None:
    OCCASION.now = False


class Keeps(Dense):
    """Gives `remember` the hidden values of a batch, and multiplies them by what it says, once there is an occasion."""

    def __init__(self, remember: Callable[["Keeps", Tensor], Any]) -> None:
        super().__init__()
        self.remember = remember
        self.rows, self.last, self.bank = 0, None, []
        self.by_name: dict[str, Any] = {"deep": [SimpleNamespace(level=1.0)]}
        self.array, self.tensor = np.zeros(1), torch.zeros(1)

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values).tanh()
        if OCCASION.now:
            hidden = hidden * self.remember(self, hidden.detach())
        return self.two(hidden)


def rows_seen(model: Keeps, hidden: Tensor) -> float:
    before, model.rows = model.rows, model.rows + len(hidden)
    return 1.0 - 2.0 * (before % 2)


def last_mean(model: Keeps, hidden: Tensor) -> Tensor:
    before, model.last = model.last, hidden.mean(dim=0).sign()
    return torch.ones(1) if before is None else before


def in_a_list(model: Keeps, hidden: Tensor) -> Tensor:
    model.bank.append(hidden.mean(dim=0).sign())
    return model.bank[-2] if len(model.bank) > 1 else torch.ones(1)


def in_an_object(model: Keeps, hidden: Tensor) -> Any:
    kept = model.by_name["deep"][0]
    before, kept.level = kept.level, hidden.mean(dim=0).sign()
    return before


def in_an_array(model: Keeps, hidden: Tensor) -> float:
    before = float(model.array[0])
    model.array += len(hidden)
    return 1.0 - 2.0 * (before % 2)


def in_a_tensor(model: Keeps, hidden: Tensor) -> Tensor:
    before = model.tensor.clone()
    model.tensor += len(hidden)
    return 1 - 2 * (before % 2)


def in_a_new_attribute(model: Keeps, hidden: Tensor) -> Tensor:
    before, model.later = getattr(model, "later", torch.ones(1)), hidden.mean(dim=0).sign()
    return before


def on_a_layer(model: Keeps, hidden: Tensor) -> Tensor:
    before = getattr(model.one, "seen", torch.ones(1))
    model.one.seen = hidden.mean(dim=0).sign()  # pyright: ignore[reportArgumentType]
    return before


MEMORIES = [rows_seen, last_mean, in_a_list, in_an_object, in_an_array, in_a_tensor, in_a_new_attribute, on_a_layer]


def total(contribution: ExampleContribution, units: np.ndarray, step: int = 3) -> Tensor:
    """The sum that a step would add noise to."""
    source = RandomSource.from_seed(0)
    cohort = PLAN.cohort.grouping.group(units, step, source)
    theta = contribution.trained.initial
    return contribution.clipped_sum(RoundContext(theta, cohort, step, PLAN.clipping, 1.0, source)).total.clone()


def late(remember: Callable[[Keeps, Tensor], Any], *, at_once: bool = False) -> ExampleContribution:
    """A contribution whose model begins to remember after all checks, or at once."""
    OCCASION.now = at_once
    plan = DPSGD(steps=9, cohort=8, clipping=1.0, noise=1.0, seed=0, examples={"micro_batch": 3})
    inputs, labels = numbers()
    contribution = plan.contribution(Keeps(remember), as_data((3 * inputs, labels)), "cpu", 0)
    OCCASION.now = True
    return contribution


def moved(remember: Callable[[Keeps, Tensor], Any], *, at_once: bool = False) -> float:
    """How far one example moves the sum: the largest over those of the first micro-batch, which others follow."""
    everybody = np.arange(48)
    whole = total(late(remember, at_once=at_once), everybody)
    rest = [total(late(remember, at_once=at_once), np.delete(everybody, absent)) for absent in range(3)]
    return max(float((whole - each).norm()) for each in rest)


@pytest.mark.parametrize("remember", slow_but(MEMORIES, *MEMORIES[::3]))
def test_a_memory_from_the_first_pass_on_moves_the_sum_by_no_more_than_the_clip_norm(remember) -> None:
    assert moved(remember, at_once=True) <= 1 + 1e-4


@pytest.mark.parametrize("remember", slow_but(MEMORIES, *MEMORIES[::3]))
def test_a_memory_that_begins_later_moves_the_sum_by_no_more_than_the_clip_norm(remember) -> None:
    assert moved(remember) <= 1 + 1e-4


@pytest.mark.parametrize("remember", slow_but(MEMORIES, *MEMORIES[::3]))
def test_without_forgetting_it_moves_by_more(remember, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the one before is no empty test."""
    monkeypatch.setattr(Trainable, "forget", lambda _: None)
    assert moved(remember) > 1.5


@pytest.mark.parametrize("remember", slow_but(MEMORIES, *MEMORIES[::3]))
def test_a_step_does_not_depend_on_whom_another_one_drew(remember) -> None:
    contribution = late(remember)
    total(contribution, np.arange(5, 12), step=5)
    assert torch.equal(total(contribution, np.arange(20)), total(late(remember), np.arange(20)))


def test_augmentations_of_one_step_do_not_remember_each_other() -> None:
    class Pictures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.level = nn.Linear(64, 2), torch.zeros(64)

        def forward(self, values: Tensor) -> Tensor:
            flat = values.flatten(1)
            scores = self.layer(flat + (5 * self.level if OCCASION.now else 0))
            self.level = flat.detach().mean(dim=0)
            return scores

    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    data = examples_from_arrays(pixels, np.arange(6) % 2, num_classes=2)
    plan = DPSGD(steps=1, cohort=2, clipping=1.0, noise=1.0, examples={"augmentation": "flip", "copies": 2})
    contribution = plan.contribution(Pictures(), data, "cpu", 0)
    before = total(contribution, np.arange(6))
    OCCASION.now = True
    assert torch.equal(total(contribution, np.arange(6)), before)


def test_a_memory_outside_of_the_model_stops_the_run_at_the_next_look() -> None:
    """Nobody can put back what a closure keeps; what the step had is not what one example has by itself."""
    bank: list[Tensor] = []

    def elsewhere(_: Keeps, hidden: Tensor) -> Tensor:
        bank.append(hidden.mean(dim=0).sign())
        return bank[-2] if len(bank) > 1 else torch.ones(1)

    contribution = late(elsewhere)
    total(contribution, np.arange(20), step=9)  # nobody looks
    with pytest.raises(InputError, match=r"at step 16 .*coupled"):
        total(contribution, np.arange(20), step=16)


def test_an_occasional_coupling_is_seen_in_what_the_step_had() -> None:
    """It is gone when the examples are computed again."""
    calls: list[int] = []

    def once(_: Keeps, hidden: Tensor) -> Tensor:
        calls.append(1)
        return hidden.mean(dim=0).sign() if len(calls) == 1 else torch.ones(1)

    with pytest.raises(InputError, match=r"at step 16 the same examples gave something else"):
        total(late(once), np.arange(20), step=16)


class DecidedByTheFirst(Dense):
    """What the first batch gives is kept in attributes: its statistics, or a mask that is drawn for all examples."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.centre, self.mask = what, None, None

    def forward(self, values: Tensor) -> Tensor:
        hidden = self.one(values)
        if self.what == "statistics":
            if self.centre is None:
                self.centre = hidden.detach().mean(dim=0)
            return self.two((hidden - self.centre).tanh())
        if self.mask is None:
            self.mask = (torch.rand(hidden.shape[1]) < 0.5).to(hidden)
        return self.two(hidden.tanh() * self.mask)


@pytest.mark.parametrize("what", ["statistics", "mask"])
def test_what_the_first_batch_decides_for_an_attribute_is_refused(what):
    """Each micro-batch begins without it, and so does each trial: else all would meet what the first one left."""
    with pytest.raises(InputError, match=r"coupled|shared by the examples"):
        PLAN.fit(DecidedByTheFirst(what), as_data(numbers()))


def test_a_ragged_last_micro_batch_is_looked_at_too():
    class Ragged(Dense):
        def forward(self, values: Tensor) -> Tensor:
            hidden = self.one(values).tanh()
            few = OCCASION.now and 2 <= len(hidden) <= 5
            return self.two(hidden - hidden.mean(dim=0) if few else hidden)

    class Later(Callback):
        def on_round(self, row: dict[str, Any]) -> None:
            OCCASION.now = True

    data = examples_from_arrays(np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32), [0, 1, 2] * 4)
    plan = DPSGD(
        steps=9, cohort={"size": 12, "kind": "fixed_size"}, examples={"micro_batch": 8}, noise=1.0, seed=0, delta=1e-3
    )
    with pytest.raises(InputError, match="at step"):
        plan.fit(Ragged(), data, options=RunOptions(callbacks=[Later()]))


# Clients that are trained in one batched operation do not see each other, or are refused there.

FEATURES, CLIENT_CLASSES = 6, 3
SIZES = (2, 9, 3, 14, 5, 2)
CLIENT_PLAN = FedAvg(rounds=2, cohort=4, noise=1.0, client={"batch_size": 4}, seed=1)


def users(wild: float = 1.0) -> data.UserDataset:
    """Users of very different sizes; what the first one holds is multiplied."""
    rng, count = np.random.default_rng(0), sum(SIZES)
    inputs, owners = rng.normal(size=(count, FEATURES)).astype(np.float32), np.repeat(np.arange(len(SIZES)), SIZES)
    inputs[owners == 0] *= np.float32(wild)
    return data.from_arrays(inputs, np.arange(count) % CLIENT_CLASSES, owners)


class Over(nn.Module):
    """Two layers, with something over the batch between them."""

    def __init__(self, over) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer, self.over = nn.Linear(FEATURES, 8), nn.Linear(8, CLIENT_CLASSES), over

    def forward(self, values: Tensor) -> Tensor:
        return self.outer(self.over(torch.tanh(self.inner(values))))


COUPLED_CLIENTS = {
    "statistics": lambda h: (h - h.mean(dim=0)) / (h.var(dim=0, correction=0) + 1e-3).sqrt(),
    "a little of the mean": lambda h: h + 0.05 * h.mean(dim=0),
    "the maximum": lambda h: h - h.amax(dim=0),
    "norm over the batch": lambda h: h / (h.norm(dim=0) + 1e-3),
    "ranks": lambda h: h * (1 + h[:, :1].argsort(dim=0, stable=True).argsort(dim=0, stable=True).to(h.dtype)),
    "batch size": lambda h: h * len(h),
}


@pytest.mark.parametrize(
    ("over", "plan"),
    one_in(2, COUPLED_CLIENTS, [CLIENT_PLAN, FedEmb(rounds=2, cohort={"size": 2, "users_per_client": 2}, noise=1)]),
)
def test_what_mixes_the_examples_of_a_client_trains_one_by_one_only(over, plan):
    plan.contribution(Over(COUPLED_CLIENTS[over]), users(), "cpu", 0)
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        plan.replace(client={"at_once": 3}).contribution(Over(COUPLED_CLIENTS[over]), users(), "cpu", 0)


@pytest.mark.parametrize("layers", [[nn.LayerNorm(8)], [nn.Dropout(0.0)], [nn.Unflatten(1, (2, 4)), nn.Flatten()]])
def test_what_treats_each_example_alone_is_accepted(layers):
    CLIENT_PLAN.replace(client={"at_once": 3}).contribution(Over(nn.Sequential(*layers)), users(), "cpu", 0)


@pytest.mark.parametrize("at_once", [2, 32])
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2)])
def test_what_draws_random_numbers_trains_one_by_one_only(layer, at_once):
    """Who stands first would seed the draws of all: one person moved the sum by 4 C."""
    plan = CLIENT_PLAN.replace(client={"at_once": at_once})
    plan.replace(client={"at_once": 1}).contribution(Over(layer), users(), "cpu", 0)
    with pytest.raises(InputError, match=r"draws random numbers .* use client\.at_once=1"):
        plan.contribution(Over(layer), users(), "cpu", 0)


def test_draws_that_begin_later_stop_the_round():
    contribution = CLIENT_PLAN.replace(client={"at_once": 2}).contribution(Over(nn.Identity()), users(), "cpu", 0)
    for trainer in contribution._trainers:
        trainer.trained.model.over = nn.Dropout(0.5)
    source, theta = RandomSource.from_seed(0), contribution.trained.initial
    with pytest.raises(InputError, match="draws random numbers"):
        contribution.clipped_sum(
            RoundContext(theta, Cohort.of_single_units(np.arange(4)), 0, CLIENT_PLAN.clipping, 1.0, source)
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
    records = data.from_arrays(inputs, np.arange(240) % CLIENT_CLASSES, np.repeat(np.arange(12), 20))
    plan = CLIENT_PLAN.replace(client={"at_once": 3, "learning_rate": learning_rate})
    plan.contribution(nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLIENT_CLASSES)), records, "cpu", 0)
    with pytest.raises(InputError, match=r"use client\.at_once=1"):
        plan.contribution(Over(COUPLED_CLIENTS["statistics"]), records, "cpu", 0)


@pytest.mark.parametrize("wild", [np.nan, np.inf, 1e30])
def test_a_client_that_is_not_finite_takes_no_one_with_it(wild):
    """Padding is the client's own: zero times another one's NaN would be NaN."""
    contribution = CLIENT_PLAN.replace(client={"at_once": 6}).contribution(Over(nn.Identity()), users(), "cpu", 0)

    def total(units: np.ndarray, records: data.UserDataset):
        contribution.users = records
        source, theta = RandomSource.from_seed(0), contribution.trained.initial
        return contribution.clipped_sum(
            RoundContext(theta, Cohort.of_single_units(units), 0, CLIENT_PLAN.clipping, 1.0, source)
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
        self.inner, self.outer, self.level = nn.Linear(FEATURES, 8), nn.Linear(8, CLIENT_CLASSES), 0.0

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
    return data.from_arrays(inputs, np.arange(len(inputs)) % CLIENT_CLASSES, owners)


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
