"""Randomised response on classes, bins and grids: what a report reveals, and its corrections, against enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.labels.numbers import BinnedResponse, GridLaplace
from sfumato.labels.response import (
    WORDS,
    LabelResponse,
    backward_loss,
    forward_loss,
    most_ratio,
    other_weight,
    ranked,
    share_weight,
    shares,
    unbiased_numbers,
    unbiased_targets,
)
from slow import by_profile

# What a table of weights costs, by enumeration in whole numbers.


def require_within(weights: np.ndarray, epsilon: float) -> None:
    """Rows are all of the 2^64 words, and no report is likelier by more than e^epsilon for one label than another."""
    for row in weights.tolist():
        assert sum(row) == WORDS
        assert min(row) >= 0
    for column in weights.T.tolist():
        assert max(column) <= most_ratio(epsilon) * min(column)


def largest_ratio(weights: np.ndarray) -> Fraction:
    """The largest ratio of two labels' weights for one report; reports that nobody makes do not count."""
    columns = [column for column in weights.T.tolist() if any(column)]
    return max(Fraction(max(column), min(column)) for column in columns)


# Randomised response on labels: the paper's numbers, the exact cost, and reports with the stated probabilities.

VECTORS = [
    ((0.55, 0.25, 0.2), 1.0, 2, 0.584847),
    ((0.5, 0.3, 0.2), 1.0, 2, 0.8 * math.e / (math.e + 1)),
    ((0.1,) * 10, 2.0, 10, 0.450853),
    ((0.4, 0.3, 0.1, 0.1, 0.05, 0.05), 2.0, 4, 0.640111),
    ((0.6, 0.2, 0.1, 0.05, 0.05), 0.5, 1, 0.6),
    ((0.2, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05, 0.05), 1.0, 4, 0.332757),
]
"""Prior, epsilon, the best number of labels to keep, and the probability of a true report with it."""


def words(count: int, seed: int = 1) -> np.ndarray:
    return RandomSource.from_seed(seed).stream("test").uint64(count)


@st.composite
def priors(draw):
    """Also of zeros and of ties."""
    parts = draw(st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(any))
    return np.array(parts) / sum(parts)


@pytest.mark.parametrize(("prior", "epsilon", "kept", "success"), VECTORS)
def test_the_best_number_of_labels_is_that_of_the_paper(prior, epsilon, kept, success):
    assert int(ranked(np.array(prior), epsilon)[1]) == kept
    found = LabelResponse(epsilon=epsilon, classes=len(prior)).success(np.array(prior))
    assert float(found) == pytest.approx(success, abs=6e-7)


def test_each_number_of_labels_has_the_weight_of_the_paper():
    found = [LabelResponse(epsilon=1.0, classes=3, size=k).success(np.array([0.55, 0.25, 0.2])) for k in (1, 2, 3)]
    assert np.round(found, 6).tolist() == [0.55, 0.584847, 0.576117]


@given(priors(), st.floats(1e-6, 60), st.integers(0, 12))
@settings(deadline=None, max_examples=by_profile(300))
def test_no_report_reports_more_than_epsilon(prior, epsilon, size):
    response = LabelResponse(epsilon=epsilon, classes=len(prior), size=min(size, len(prior)) or None)
    weights = response.weights(prior)
    reported = weights[:, [any(column) for column in weights.T]]
    require_within(reported, epsilon)


def test_randomised_response_costs_all_of_its_epsilon():
    """Else noise would be wasted: the ratio is below e^epsilon by less than the rounding of one word."""
    ratio = largest_ratio(LabelResponse(epsilon=2.0, classes=7, size=7).weights())
    assert 0 <= most_ratio(2.0) - ratio < 1e-15


@given(st.integers(1, 1 << 20), st.sampled_from([1e-6, 0.5, 40.0, 500.0]))
def test_the_weight_of_a_uniform_report_lies_between_those_of_a_wrong_and_a_right_one(size, epsilon):
    wrong = other_weight(epsilon, size)
    assert wrong <= WORDS // size <= -(-WORDS // size) <= WORDS - (size - 1) * wrong or size == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 1 << 20])
def test_uniform_reports_change_exactly_at_their_shares(size):
    ends = np.cumsum([share_weight(place, size) for place in range(min(size, 20))], dtype=object)
    last = np.array([int(end) - 1 for end in ends], np.uint64)
    assert shares(last, np.uint64(size)).tolist() == list(range(len(ends)))
    after = np.array([int(end) % WORDS for end in ends], np.uint64)
    assert shares(after, np.uint64(size)).tolist() == [(place + 1) % size for place in range(len(ends))]


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 50.0])
@pytest.mark.parametrize("size", [None, 2, 4])
def test_reports_change_exactly_where_the_table_says(epsilon, size):
    """Enumeration of all words by the places where the report can change."""
    prior = np.array([0.2, 0.35, 0.3, 0.15])
    response = LabelResponse(epsilon=epsilon, classes=4, size=size)
    kept = int(ranked(prior, epsilon, size)[1])
    wrong = other_weight(epsilon, kept)
    starts = {0, *(place * wrong for place in range(kept))}
    starts |= {sum(share_weight(p, kept) for p in range(place)) for place in range(kept)}
    bounds = sorted(start for start in starts if start < WORDS)
    lengths = np.diff(np.array([*bounds, WORDS], object))
    first = np.array(bounds, np.uint64)
    last = np.array([int(s + n) - 1 for s, n in zip(bounds, lengths)], np.uint64)
    for label in range(4):
        reports = response.draw(np.full(len(first), label), first, prior)
        assert response.draw(np.full(len(last), label), last, prior).tolist() == reports.tolist()
        found = [sum(lengths[reports == report]) for report in range(4)]
        assert found == response.weights(prior)[label].tolist()


def test_reports_have_their_probabilities():
    """Chi-square on 10^6 labels of each class, Bonferroni over four classes: one false alarm in 10^4 seeds."""
    prior = np.array([0.1, 0.4, 0.3, 0.2])
    response, count = LabelResponse(epsilon=1.5, classes=4, size=3), 1_000_000
    for label in range(4):
        reports = response.draw(np.full(count, label), words(count, seed=label), prior)
        expected = response.probabilities(prior)[label] * count
        seen = np.bincount(reports, minlength=4)
        assert seen[expected == 0].sum() == 0
        kept = expected > 0
        expected[kept] *= count / expected[kept].sum()  # scipy wants sums that are equal to the last bit
        assert scipy.stats.chisquare(seen[kept], expected[kept]).pvalue > 2.5e-5


@pytest.mark.parametrize("size", [None, 3, 10])
def test_a_prior_for_each_row_gives_what_each_gives_alone(size):
    rng = np.random.default_rng(0)
    rows, labels, drawn = rng.dirichlet(np.full(10, 0.4), 300), rng.integers(0, 10, 300), words(300)
    response = LabelResponse(epsilon=1.0, classes=10, size=size)
    together = response.draw(labels, drawn, rows)
    alone = [response.draw(labels[i : i + 1], drawn[i : i + 1], rows[i])[0] for i in range(300)]
    assert together.tolist() == alone


def test_threads_and_blocks_change_nothing():
    rng = np.random.default_rng(1)
    count = 50_000
    rows, labels, drawn = rng.dirichlet(np.ones(4), count), rng.integers(0, 4, count), words(count)
    response = LabelResponse(epsilon=0.7, classes=4)
    whole = response.draw(labels, drawn, rows)
    assert (response.draw(labels, drawn, rows, threads=3) == whole).all()
    parts = [slice(0, 17), slice(17, 33_000), slice(33_000, count)]
    assert (np.concatenate([response.draw(labels[p], drawn[p], rows[p]) for p in parts]) == whole).all()


def test_likelihoods_are_the_columns_of_the_table():
    rng = np.random.default_rng(2)
    rows, labels = rng.dirichlet(np.full(5, 0.5), 40), rng.integers(0, 5, 40)
    response = LabelResponse(epsilon=1.0, classes=5)
    reports = response.draw(labels, words(40), rows)
    expected = [response.probabilities(rows[i])[:, reports[i]] for i in range(40)]
    assert response.likelihoods(reports, rows) == pytest.approx(np.array(expected), rel=1e-12)
    assert response.likelihoods(reports, rows[0]) == pytest.approx(response.probabilities(rows[0]).T[reports])


def test_the_cost_is_pure_and_for_labels_that_are_replaced():
    event = LabelResponse(epsilon=1.25, classes=3).event()
    assert acc.guarantee(event, "replace").epsilon(0.0) == 1.25
    with pytest.raises(InputError, match="replace"):
        acc.guarantee(event, "add_remove")


def test_labels_that_no_one_has_are_no_reports():
    assert LabelResponse(epsilon=1.0, classes=3).draw(np.zeros(0, np.int64), words(0)).tolist() == []


# Bins: the least expected loss, found by trying all of them, and the exact cost.


def _poisson(z, y):
    """The deviance, which is the loss but for a constant of each label."""
    logs = np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / np.where(z > 0, z, 1)), 0.0)
    return z - y + logs


LOSSES = {"squared": lambda z, y: (z - y) ** 2, "absolute": lambda z, y: np.abs(z - y), "poisson": _poisson}


def expected(response: BinnedResponse, prior: np.ndarray, loss) -> float:
    """The mean loss of a report, from the weights that run."""
    chances = (response.weights() / WORDS).astype(float)
    return float((prior[:, None] * chances * loss(response.outputs[None, :], response.values[:, None])).sum())


def least(values: np.ndarray, prior: np.ndarray, epsilon: float, name: str) -> float:
    """Over all ways to cut the values into bins, with the best number for each."""
    found = []
    for cuts in itertools.product((0, 1), repeat=len(values) - 1):
        bins = np.concatenate([[0], np.cumsum(cuts)])
        total = 0.0
        for place in range(bins[-1] + 1):
            weight = prior * np.where(bins == place, math.exp(epsilon), 1.0)
            tried = values if name == "absolute" else [weight @ values / weight.sum()]
            total += min((weight * LOSSES[name](z, values)).sum() for z in tried)
        found.append(total / (math.exp(epsilon) + bins[-1]))
    return min(found)


@st.composite
def problems(draw):
    """Values, and a prior that may have zeros."""
    values = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=7)))
    parts = draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)).filter(any))
    return np.array(values) / 4, np.array(parts) / sum(parts)


@pytest.mark.parametrize("loss", LOSSES)
@given(problems(), st.sampled_from([0.1, 1.0, 3.0, 8.0]))
@settings(deadline=None, max_examples=by_profile(60))
def test_no_other_bins_are_better(loss, problem, epsilon):
    values, prior = problem
    response = BinnedResponse.best(values, prior, epsilon=epsilon, loss=loss)
    assert expected(response, prior, LOSSES[loss]) == pytest.approx(least(values, prior, epsilon, loss), abs=1e-9)
    require_within(response.weights(), epsilon)


def test_more_privacy_makes_fewer_bins_and_none_reports_anything_at_the_end():
    values = np.arange(50.0)
    counts = [
        len(BinnedResponse.best(values, np.full(50, 0.02), epsilon=epsilon).outputs) for epsilon in (12, 6, 3, 1, 0.01)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 20
    assert counts[-1] == 2


def test_values_that_lie_far_from_zero_have_the_same_bins():
    """Squares of large numbers would cancel."""
    rng = np.random.default_rng(0)
    values, prior = np.sort(rng.random(60)), rng.dirichlet(np.ones(60))
    near = BinnedResponse.best(values, prior, epsilon=4.0)
    far = BinnedResponse.best(values + 1e6, prior, epsilon=4.0)
    assert near.bins.tolist() == far.bins.tolist()
    assert far.outputs - 1e6 == pytest.approx(near.outputs, abs=1e-6)


def test_one_bin_reports_one_number():
    """All labels are the same, as the prior has it: nothing is told."""
    response = BinnedResponse.best(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), epsilon=1.0)
    assert response.outputs.tolist() == [1.0]
    assert response.draw(np.array([0, 1, 2]), np.zeros(3, np.uint64)).tolist() == [1.0] * 3


def test_reports_are_the_numbers_of_bins():
    response = BinnedResponse.best(np.arange(10.0), np.full(10, 0.1), epsilon=5.0)
    words = RandomSource.from_seed(0).stream("test").uint64(1000)
    reports = response.draw(np.arange(1000) % 10, words)
    assert set(reports) <= set(response.outputs)
    assert np.mean(reports == response.outputs[response.bins[np.arange(1000) % 10]]) > 0.9


def test_plain_response_reports_the_values():
    response = BinnedResponse.plain(np.array([1.0, 2.0, 5.0]), epsilon=1.0)
    assert response.outputs.tolist() == [1.0, 2.0, 5.0]
    require_within(response.weights(), 1.0)


# Corrected losses give in the mean what the true labels would, by enumeration of all reports.


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


def test_unbiased_numbers_of_a_response_that_reports_labels_separate_are_those_of_its_inverse():
    table = LabelResponse(epsilon=1.0, classes=4, size=4).probabilities()
    values = np.array([0.0, 1.0, 5.0, 20.0])
    for prior in (np.full(4, 0.25), np.array([0.7, 0.3, 0.0, 0.0])):
        np.testing.assert_allclose(unbiased_numbers(table, values, prior), unbiased_targets(table) @ values, atol=1e-6)


def test_labels_that_no_report_distinguishes_get_their_mean_under_the_prior():
    table = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])
    found = table @ unbiased_numbers(table, np.array([1.0, 4.0, 7.0]), np.array([0.6, 0.2, 0.2]))
    np.testing.assert_allclose(found, [1.75, 1.75, 7.0])


# Laplace noise on a grid: the exact cost, and the distribution that it is meant to have.


@given(st.integers(2, 40), st.floats(1e-6, 40))
@settings(deadline=None, max_examples=by_profile(150))
def test_no_report_on_a_grid_reports_more_than_epsilon(count, epsilon):
    require_within(GridLaplace(epsilon=epsilon, low=-1.0, high=1.0, count=count).weights(), epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 4.0, 39.9])
def test_no_report_reports_more_than_epsilon_on_the_finest_grid(epsilon):
    """In exact numbers, by the columns alone."""
    weights = GridLaplace(epsilon=epsilon, low=0.0, high=1.0, count=2048).weights()
    assert math.log(largest_ratio(weights)) <= epsilon * (1 + 1e-15)


def test_weights_are_those_of_discrete_laplace_noise_that_is_moved_into_the_range():
    count, epsilon = 9, 3.0
    q = math.exp(-epsilon / (count - 1))
    noise = np.arange(-2000, 2001)
    chances = (1 - q) / (1 + q) * q ** np.abs(noise)
    found = GridLaplace(epsilon=epsilon, low=0.0, high=8.0, count=count).weights()
    for label in range(count):
        expected = np.bincount(np.clip(label + noise, 0, count - 1), chances, minlength=count)
        assert (found[label] / WORDS).astype(float) == pytest.approx(expected, abs=1e-14)


def test_reports_on_a_grid_change_exactly_where_the_table_says():
    response = GridLaplace(epsilon=2.0, low=0.0, high=5.0, count=6)
    for label in range(6):
        ends = np.cumsum(response.weights()[label])
        last = np.array([int(end) - 1 for end in ends], np.uint64)
        assert response.draw(np.full(6, label), last).tolist() == response.values.tolist()
        first = np.array([0, *ends[:-1]], np.uint64)
        assert response.draw(np.full(6, label), first).tolist() == response.values.tolist()
