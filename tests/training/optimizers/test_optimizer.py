"""Optimisers by name: torch's own, with torch's own settings where the plan gives none."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.training import Optimizer

GRADIENTS = [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]), torch.tensor([-1.0, 0.1])]
TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.8),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.8),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "adam": lambda p: torch.optim.Adam(p, 0.1, betas=(0.8, 0.999)),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, betas=(0.8, 0.999), weight_decay=0.0),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1, betas=(0.8, 0.999)),
}


def after(make) -> torch.Tensor:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make([parameter])
    for gradient in GRADIENTS:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("name", TORCH)
def test_each_name_is_torchs_optimiser_with_its_own_settings(name):
    ours = Optimizer(name=name, learning_rate=0.1, momentum=0.8)
    assert torch.equal(after(ours), after(TORCH[name]))
    mine, theirs = ours([nn.Parameter(torch.zeros(1))]).defaults, TORCH[name]([nn.Parameter(torch.zeros(1))]).defaults
    assert mine == theirs


@pytest.mark.parametrize("name", TORCH)
def test_weight_decay_reaches_every_optimiser(name):
    decayed = Optimizer(name=name, learning_rate=0.1, weight_decay=0.5)
    assert decayed([nn.Parameter(torch.zeros(1))]).defaults["weight_decay"] == 0.5
    assert not torch.equal(after(decayed), after(Optimizer(name=name, learning_rate=0.1)))


def test_yogi_is_that_of_the_paper():
    weight, first, second = np.array([1.0, 2.0]), np.zeros(2), np.full(2, 1e-6)
    for gradient in np.array(torch.stack(GRADIENTS), np.float64):
        first = 0.8 * first + 0.2 * gradient
        second = second - 0.001 * gradient**2 * np.sign(second - gradient**2)
        weight = weight - 0.1 * first / (np.sqrt(second) + 1e-3)
    found = after(Optimizer(name="yogi", learning_rate=0.1, momentum=0.8))
    np.testing.assert_allclose(found, weight, rtol=1e-5)
    assert not torch.equal(found, after(Optimizer(name="yogi", learning_rate=0.1, momentum=0.8, weight_decay=0.5)))


def test_nesterov_looks_ahead_and_needs_a_momentum():
    ahead = Optimizer(name="sgd", learning_rate=0.1, momentum=0.8, nesterov=True)
    assert torch.equal(after(ahead), after(lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True)))
    for wrong in ({"momentum": 0.0}, {"name": "adam", "momentum": 0.9}):
        with pytest.raises(InputError, match="nesterov needs optimizer=sgd and a momentum"):
            Optimizer(nesterov=True, **wrong)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "lion"}, "optimizer must be one of sgd, adam, adamw, nadam, adagrad, rmsprop, yogi, got lion"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"learning_rate": 1e300}, "learning_rate must be in"),
        ({"momentum": 1.0}, "momentum must be in"),
        ({"weight_decay": -1.0}, "weight_decay must be >= 0"),
    ],
)
def test_numbers_that_cannot_be_right_are_refused(change, named):
    with pytest.raises(InputError, match=named):
        Optimizer(**change)


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam"])
def test_a_rate_whose_first_step_is_no_single_precision_number_is_refused(name):
    with pytest.raises(InputError, match=r"learning_rate must be in \[0, 3e\+37\], got 1e\+38"):
        Optimizer(name=name, learning_rate=1e38, momentum=0.9)
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    Optimizer(name=name, learning_rate=2.9e37, momentum=0.9)([parameter]).step()  # torch raises where it is too large
    assert parameter.item() != 0
