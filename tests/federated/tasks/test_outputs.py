"""Measures of models that give their outputs themselves: what they are of, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.data import from_arrays
from sfumato.federated.tasks.by_loss import task_of
from sfumato.federated.tasks.outputs import Classes, NextToken, OutputTask, Values

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
    with pytest.raises(InputError, match="loss="):
        task.check(data)


@pytest.mark.parametrize(("loss", "kind"), [("squared", Values), ("cross_entropy", Classes), ("next_token", NextToken)])
def test_a_loss_has_its_measure(loss, kind):
    assert isinstance(task_of(loss), kind)


def test_nothing_to_measure_on_is_refused():
    with pytest.raises(InputError, match="there are no records to measure on"):
        Classes().measure(Fixed(3), CLASSES.subset([]), curve=False, device="cpu")
