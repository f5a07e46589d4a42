"""Randomised response on labels: the paper's numbers, the exact cost, and reports with the stated probabilities."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.randomized_response.enumerated import largest_ratio, require_within
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.labels.response import WORDS, LabelResponse, most_ratio, other_weight, ranked, share_weight, shares
from slow import by_profile

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
def test_no_report_tells_more_than_epsilon(prior, epsilon, size):
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


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0, got 0.0"),
        ({"epsilon": math.inf}, "epsilon must be > 0 and finite, got inf"),
        ({"epsilon": 1e-9}, r"epsilon must be in \[1e-06, 500\], got 1e-09"),
        ({"epsilon": math.nan}, "epsilon must be a number, got nan"),
        ({"classes": 1}, "classes must be a whole number >= 2, got 1; with one class there is nothing to hide"),
        ({"size": 4}, r"size must be in \[1, 3\], got 4"),
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
    ],
)
def test_a_response_that_there_is_not_is_refused(settings, told):
    with pytest.raises(InputError, match=told):
        LabelResponse(**{"epsilon": 1.0, "classes": 3, **settings})


@pytest.mark.parametrize(
    ("prior", "told"),
    [
        ([0.5, 0.5], "prior must have one number for each of the 3 classes, got 2"),
        ([0.5, 0.3, 0.1], "prior must sum to 1, got 0.9; divide it by its sum"),
        ([0.7, 0.5, -0.2], r"prior must hold numbers in \[0, 1\], got -0.2"),
        ([0.5, 0.5, math.nan], "got nan"),
        ([0.5, 0.5, math.inf], "got inf"),
        ([[0.2, 0.3, 0.5], [0.2, 0.3, 0.4]], "prior of row 1 must sum to 1, got 0.9"),
        ([[0.2, 0.3, 0.5]], "prior must have a row for each of the 2 labels, got 1"),
        ([[[0.2, 0.3, 0.5]]], "floats"),
        ([1, 0, 0], "floats"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, told):
    with pytest.raises(InputError, match=told):
        LabelResponse(epsilon=1.0, classes=3).draw(np.array([0, 1]), words(2), np.array(prior))


@pytest.mark.parametrize(("labels", "told"), [([0, 3], "position 1 must be in 0 … 2, got 3"), ([0.5], "whole numbers")])
def test_a_label_outside_the_classes_is_refused(labels, told):
    with pytest.raises(InputError, match=told):
        LabelResponse(epsilon=1.0, classes=3).draw(np.array(labels), words(len(labels)))


def test_labels_that_nobody_has_are_no_reports():
    assert LabelResponse(epsilon=1.0, classes=3).draw(np.zeros(0, np.int64), words(0)).tolist() == []
