"""Corrected losses give in the mean what the true labels would, by enumeration of all reports."""

import numpy as np
import pytest
import torch

from sfumato._check import InputError
from sfumato.labels.corrections import backward_loss, forward_loss, unbiased_numbers, unbiased_targets
from sfumato.labels.numbers import BinnedResponse
from sfumato.labels.response import LabelResponse


def test_the_mean_of_backward_losses_is_the_loss_of_the_true_label():
    chances = LabelResponse(epsilon=0.8, classes=4, size=4).probabilities()
    targets = torch.from_numpy(unbiased_targets(chances))
    losses = torch.rand(4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    reports = torch.arange(4)
    each = backward_loss(losses.expand(4, 4), reports, targets)
    assert torch.allclose(torch.from_numpy(chances) @ each, losses, atol=1e-12)


def test_randomised_response_has_the_closed_form():
    """(1[report] (e^eps + K - 1) - 1) / (e^eps - 1)."""
    found = unbiased_targets(LabelResponse(epsilon=1.0, classes=5, size=5).probabilities())
    expected = (np.eye(5) * (np.e + 4) - 1) / (np.e - 1)
    assert found == pytest.approx(expected, abs=1e-12)


def test_numbers_of_bins_become_unbiased():
    response = BinnedResponse.best(np.arange(6.0), np.full(6, 1 / 6), epsilon=2.0)
    chances = LabelResponse(epsilon=2.0, classes=len(response.outputs), size=len(response.outputs)).probabilities()
    assert chances @ (unbiased_targets(chances) @ response.outputs) == pytest.approx(response.outputs)


def test_reports_that_do_not_tell_labels_apart_have_no_backward_loss():
    with pytest.raises(InputError, match="do not tell all labels apart"):
        unbiased_targets(LabelResponse(epsilon=1.0, classes=3).probabilities(np.array([0.55, 0.25, 0.2])))
    with pytest.raises(InputError, match="as many of both"):
        unbiased_targets(np.ones((3, 2)))


def test_the_forward_loss_is_least_in_the_mean_for_the_true_probabilities():
    """Also where the prior keeps some labels only, for the mixture that reports tell apart."""
    response, prior = LabelResponse(epsilon=1.0, classes=3), np.array([0.55, 0.25, 0.2])
    truth = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    chances = torch.from_numpy(response.probabilities(prior))
    seen = truth @ chances

    def mean(logits: torch.Tensor) -> torch.Tensor:
        reports = np.array([0, 1])
        each = forward_loss(logits.expand(2, 3), torch.from_numpy(response.likelihoods(reports, prior)))
        return (seen[:2] * each).sum()

    logits = truth.log().requires_grad_()
    mean(logits).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12
    assert mean(torch.zeros(3, dtype=torch.float64)) > mean(truth.log())


def test_without_noise_the_forward_loss_is_the_cross_entropy():
    logits, reports = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
    found = forward_loss(logits, torch.eye(3)[reports])
    assert torch.allclose(found, torch.nn.functional.cross_entropy(logits, reports, reduction="none"))


def test_unbiased_numbers_of_a_response_that_tells_labels_apart_are_those_of_its_inverse():
    table = LabelResponse(epsilon=1.0, classes=4, size=4).probabilities()
    values = np.array([0.0, 1.0, 5.0, 20.0])
    for prior in (np.full(4, 0.25), np.array([0.7, 0.3, 0.0, 0.0])):
        np.testing.assert_allclose(unbiased_numbers(table, values, prior), unbiased_targets(table) @ values, atol=1e-6)


def test_labels_that_no_report_tells_apart_get_their_mean_under_the_prior():
    table = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    found = table @ unbiased_numbers(table, np.array([1.0, 4.0, 7.0]), np.array([0.6, 0.2, 0.2]))
    np.testing.assert_allclose(found, [1.75, 1.75, 7.0])
