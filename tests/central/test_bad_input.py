"""What a user's own model or data may hold: trained where it can be, else refused in one line before the first step."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, from_arrays

PLAN = DPSGD(steps=2, batch_size=12, learning_rate=0.5, noise_multiplier=0.8, clip_norm=0.7, seed=3)


def vector(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).double() for p in model.parameters()])


class Model(nn.Module):
    """Two dense layers on 8×8 pictures, and a step of the test's own between them."""

    def __init__(self, between=lambda x: x, before=lambda x: x) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(64, 6), nn.Linear(6, 3)
        self._between, self._before = between, before

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self._between(self.first(self._before(x.flatten(1)))))


def half_in_place(x: Tensor) -> Tensor:
    x[:, 0] = 0.0
    return x.mul_(0.5)


def half(x: Tensor) -> Tensor:
    keep = torch.ones_like(x)
    keep[:, 0] = 0.0
    return x * keep * 0.5


PAIR = (np.zeros((40, 64), np.float32), np.arange(40) % 3)
PEOPLE = from_arrays(PAIR[0], users=np.arange(40) % 5, labels=PAIR[1])
FRAME = pd.DataFrame({"x": PAIR[0][:, 0], "y": PAIR[1]})
TORCH = TensorDataset(torch.zeros(40, 64), torch.arange(40) % 3)


@pytest.mark.parametrize("given", [PAIR, list(PAIR), TORCH, DataLoader(TORCH)], ids=lambda given: type(given).__name__)
def test_what_other_libraries_train_on_is_refused_with_the_two_ways_there_are(pictures, given):
    words = rf"must be a data set of sfumato, got {type(given).__name__}; .*examples_from_arrays.*plan\.open"
    with pytest.raises(InputError, match=f"data {words}"):
        PLAN.fit(Model(), given)
    with pytest.raises(InputError, match=f"test {words}"):
        PLAN.fit(Model(), pictures(40), test=given)


@pytest.mark.parametrize("given", [PEOPLE, FRAME], ids=lambda given: type(given).__name__)
def test_people_and_tables_are_no_single_examples(given):
    told = rf"must be single examples \(ExampleDataset\), got {type(given).__name__}; data\.examples_from_"
    with pytest.raises(InputError, match=told):
        PLAN.fit(Model(), given)


@pytest.mark.parametrize("where", ["between", "before"])
def test_work_in_place_gives_the_result_of_work_on_copies(pictures, where):
    """On what a layer gives, and on the inputs themselves."""
    data = pictures(40)
    in_place, on_copies = (PLAN.fit(Model(**{where: step}), data).model for step in (half_in_place, half))
    torch.testing.assert_close(vector(in_place), vector(on_copies), rtol=1e-6, atol=1e-7)


def test_whole_numbers_train_where_a_layer_takes_them_and_are_refused_where_none_does(pictures):
    numbers = np.random.default_rng(0).integers(0, 9, (40, 64))
    data = ExampleDataset(inputs=(numbers,), targets=np.arange(40) % 3, num_classes=3)
    with pytest.raises(InputError, match=r"fails on inputs of shape \(64,\) int64 \(.*dtype.*\)"):
        PLAN.fit(Model(), data)
    as_numbers = PLAN.fit(Model(before=lambda x: x.float() / 9), data).model
    given = dataclasses.replace(data, inputs=(numbers.astype(np.float32),))
    torch.testing.assert_close(vector(as_numbers), vector(PLAN.fit(Model(before=lambda x: x / 9), given).model))


def broken_derivative(x: Tensor) -> Tensor:
    y = x.sigmoid()
    y.exp().sum()
    z = y * y
    y.add_(1.0)
    return z


def with_weights(value: float) -> nn.Module:
    model = Model()
    nn.init.constant_(model.first.weight, value)
    return model


def with_generator() -> nn.Module:
    model = Model()
    model.numbers = (number for number in range(3))
    return model


def raises(error: Exception):
    def step(_: Tensor) -> Tensor:
        raise error

    return step


class AcrossExamples(nn.Module):
    """Attention of the examples to each other, with weights of its own, as a user may write it by mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = nn.Linear(64, 6), nn.Linear(64, 6), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.out((self.query(x) @ self.key(x).T).softmax(dim=1) @ x)


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


def real_of(x: Tensor) -> Tensor:
    return torch.view_as_real(x)[..., 0]


def complex_model() -> nn.Module:
    model = Model(before=lambda x: x.to(torch.complex64), between=real_of)
    with pytest.warns(UserWarning, match="Complex modules"):
        model.first.to(torch.complex64)
    return model


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (AcrossExamples, r"layer 'out': its output for an example changes .* coupled"),
        (lambda: Model(between=broken_derivative), r"inplace operation.*; work on a copy there"),
        (lambda: with_weights(float("nan")), "the loss of the first examples is not finite"),
        (lazy, r"1\.weight has no shape yet"),
        (complex_model, r"parameter first\.weight is torch\.complex64; use real numbers"),
        (with_generator, "cannot be copied .*generator.*; keep generators"),
        (lambda: Model(before=raises(KeyError("colour"))), r"fails on inputs .*KeyError: 'colour'"),
        (lambda: Model(before=raises(AssertionError())), r"fails on inputs .*\(AssertionError\)"),
        (
            lambda: Model(before=raises(ValueError("three\nlines\nhere"))),
            r"fails on inputs .*\(ValueError: three\)",
        ),
        (lambda: Model().requires_grad_(False), "names no parameter to train"),
    ],
    ids=[
        "attention across examples",
        "work in place that breaks the derivative",
        "weights with nan",
        "a lazy layer",
        "complex weights",
        "no copy",
        "a key error",
        "an assertion",
        "several lines",
        "nothing to train",
    ],
)
def test_a_model_that_cannot_be_trained_is_one_line_and_leaves_nothing(pictures, tmp_path, build, named):
    with pytest.raises(InputError, match=named) as told:
        PLAN.fit(build(), pictures(20), out=tmp_path / "run")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "run").exists()


def test_a_part_that_is_cut_off_is_told(pictures):
    with pytest.warns(UserWarning, match="2 trained parameters have no gradient .*first"):
        PLAN.fit(Model(between=lambda x: x.detach()), pictures(20))


class Lifted(nn.Module):
    """A fixed part without gradients that takes 4 MiB for each example, before a small trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            large = x.flatten(1).repeat(1, 1 << 14)
            fixed = large.view(len(x), 64, -1).mean(dim=2)
        return self.last(fixed)


def test_a_part_without_gradients_counts_in_the_micro_batch(pictures):
    contribution = dataclasses.replace(PLAN, memory_budget=64).contribution(Lifted(), pictures(20), "cpu", 0)
    assert contribution.bytes_per_example >= 4 << 20
    assert contribution.micro_batch <= 16


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"clip_gamma": float("nan")}, "clip_gamma must be a number, got nan"),
        ({"layer_shares": (1.0, 2.0)}, "layer_shares is for clipping=per_layer"),
        ({"adaptive_clip_learning_rate": float("nan")}, "adaptive_clip_learning_rate"),
        ({"adaptive_clip_count_noise": -1.0}, "adaptive_clip_count_noise must be > 0"),
        ({"adaptive_clip_rounds": 0}, "adaptive_clip_rounds"),
        ({"clipping": "adaptive", "adaptive_clip_quantile": 2.0}, r"adaptive_clip_quantile must be in \[0, 1\]"),
        ({"learning_rate": 1e308}, r"learning_rate must be in \[0, 3e\+38\]"),
        ({"weight_decay": 1e308}, r"weight_decay must be in \[0, 3e\+38\]"),
    ],
    ids=str,
)
def test_every_number_of_a_plan_is_checked_by_its_own_name_also_where_it_is_not_used(changes, named):
    with pytest.raises(InputError, match=named):
        dataclasses.replace(PLAN, **changes)
