"""Measures of classes and of numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.metrics import d2_tweedie_score, mean_absolute_error, mean_poisson_deviance, mean_squared_error, r2_score

from sfumato import metrics
from sfumato._check import InputError
from sfumato.metrics import CountsSums, RegressionSums, counts_report, regression_report
from slow import by_profile

# Classification against scikit-learn, in batches of any size, and a model that diverged.


def example(seed: int, n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 3, (n, classes)).round(1), rng.integers(0, classes, n)


@settings(max_examples=by_profile(60), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 200), classes=st.integers(2, 6), batch=st.integers(1, 64))
def test_batches_of_any_size_give_what_scikit_learn_gives(seed, n, classes, batch) -> None:
    logits, labels = example(seed, n, classes)
    counts = metrics.ClassificationCounts(classes)
    for start in range(0, n, batch):
        counts.add(logits[start : start + batch], labels[start : start + batch])
    report = counts.report()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    every = list(range(classes))
    assert report.accuracy == pytest.approx(sk.accuracy_score(labels, logits.argmax(1)))
    assert report.log_loss == pytest.approx(sk.log_loss(labels, shares, labels=every))
    np.testing.assert_array_equal(report.confusion, sk.confusion_matrix(labels, logits.argmax(1), labels=every))
    assert report.examples == n
    if classes == 2 and len(set(labels)) == 2:
        assert report.auc == pytest.approx(sk.roc_auc_score(labels, logits[:, 1] - logits[:, 0]))
        assert report.auc_loss == pytest.approx(1 - report.auc)
    else:
        assert report.auc is None
        assert report.auc_loss is None


def test_auc_is_the_share_of_pairs_in_order() -> None:
    logits, labels = example(5, 80, 2)
    score = logits[:, 1] - logits[:, 0]
    better = score[labels == 1][:, None] - score[labels == 0][None, :]
    pairs = (better > 1e-9).mean() + (np.abs(better) < 1e-9).mean() / 2
    assert metrics.roc_auc(score.round(3), labels == 1) == pytest.approx(pairs)


def test_one_output_is_the_logit_of_the_second_class() -> None:
    logits, labels = example(1, 50, 2)
    one = logits[:, 1] - logits[:, 0]
    both = metrics.classification_report(logits, labels, num_classes=2)
    for shape in ((-1,), (-1, 1)):
        report = metrics.classification_report(torch.tensor(one).reshape(shape), torch.tensor(labels), num_classes=2)
        assert report.accuracy == both.accuracy
        assert report.log_loss == pytest.approx(both.log_loss)
        assert report.auc == pytest.approx(both.auc)


def test_a_model_that_diverged_does_not_look_better_for_it() -> None:
    logits = np.array([[np.nan, 1.0], [0.0, 5.0], [np.inf, 0.0], [-np.inf, -np.inf]], np.float32)
    report = metrics.classification_report(logits, [1, 1, 0, 0], num_classes=2)
    assert report.accuracy == 0.25
    assert report.log_loss == np.inf
    assert report.not_finite == 3
    assert report.auc is None
    assert report.confusion.sum() == 1
    assert report.summary() == {"accuracy": 0.25, "not_finite": 3}


def test_an_excluded_class_is_an_ordinary_prediction_of_zero() -> None:
    report = metrics.classification_report([[-np.inf, 0.0], [0.0, 1.0]], [1, 0], num_classes=2)
    assert report.not_finite == 0
    assert report.log_loss == pytest.approx(np.log1p(np.e) / 2)
    assert report.auc == 1.0
    assert metrics.classification_report([[-np.inf, 0.0]], [0], num_classes=2).log_loss == np.inf


def test_logits_of_any_size_do_not_overflow() -> None:
    report = metrics.classification_report([[-1.7e308, 1.7e308], [800.0, -800.0]], [1, 0], num_classes=2)
    assert (report.accuracy, report.log_loss, report.auc) == (1.0, 0.0, 1.0)


def test_an_empty_batch_changes_nothing() -> None:
    counts = metrics.ClassificationCounts(3)
    with pytest.raises(InputError, match="no examples to measure on"):
        counts.report()
    counts.add(np.zeros((0, 3)), np.zeros(0, np.int64))
    counts.add([[0.0, 1.0, 0.0]], [1])
    assert counts.report().examples == 1


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.zeros((2, 4)), [0, 1], r"shape \[examples, 3\], got \(2, 4\)"),
        (np.zeros(2), [0, 1], r"shape \[examples, 3\], got \(2,\)"),
        (np.zeros((2, 3)), [0], "labels must be 2 whole numbers"),
        (np.zeros((2, 3)), [0.0, 1.0], "labels must be 2 whole numbers, got float64"),
        (np.zeros((2, 3)), [0, 3], "labels must be in 0 … 2, got 3"),
        (np.zeros((2, 3), object), [0, 1], "logits must be numbers"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(logits, labels, message: str) -> None:
    with pytest.raises(InputError, match=message):
        metrics.classification_report(logits, labels, num_classes=3)


def test_an_auc_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="needs both; all are of one class"):
        metrics.roc_auc(np.ones(3), np.ones(3))
    with pytest.raises(InputError, match="needs finite scores"):
        metrics.roc_auc(np.array([1.0, np.nan]), np.array([0, 1]))
    with pytest.raises(InputError, match="one score and one class"):
        metrics.roc_auc(np.ones(3), np.ones(2))
    with pytest.raises(InputError, match="num_classes must be a whole number >= 2, got 1"):
        metrics.ClassificationCounts(1)


def test_many_classes_take_no_table_of_their_square():
    counts = metrics.ClassificationCounts(100_000)
    logits = np.zeros((2, 100_000))
    logits[0, 7] = 1.0
    counts.add(logits, [7, 9])
    report = counts.report()
    assert report.confusion is None
    assert report.accuracy == 0.5


# Measures of numbers and counts, against scikit-learn.


def in_batches(sums, outputs: np.ndarray, targets: np.ndarray, sizes: list[int]):
    start = 0
    for size in [*sizes, len(targets)]:
        sums.add(outputs[start : start + size], targets[start : start + size])
        start += size
    return sums.report()


@settings(max_examples=by_profile(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 60),
    columns=st.integers(1, 4),
    offset=st.sampled_from([0.0, 1e3, -1e6]),
    sizes=st.lists(st.integers(0, 20), max_size=4),
)
def test_errors_are_those_of_scikit_learn_however_the_batches_fall(seed, rows, columns, offset, sizes) -> None:
    rng = np.random.default_rng(seed)
    targets = offset + rng.normal(0, rng.uniform(0.1, 10, columns), (rows, columns))
    outputs = targets + rng.normal(0, 1, (rows, columns))
    report = in_batches(RegressionSums(), outputs, targets, sizes)
    assert report.rmse == pytest.approx(np.sqrt(mean_squared_error(targets, outputs)), rel=1e-9)
    assert report.mae == pytest.approx(mean_absolute_error(targets, outputs), rel=1e-9)
    assert report.r2 == pytest.approx(r2_score(targets, outputs), rel=1e-6, abs=1e-6)
    assert report.examples == rows


@settings(max_examples=by_profile(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(3, 60),
    whole=st.booleans(),
    sizes=st.lists(st.integers(0, 20), max_size=4),
)
def test_counts_are_judged_as_scikit_learn_judges_them(seed, rows, whole, sizes) -> None:
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 1, rows)
    counts = rng.poisson(np.exp(logs)) if whole else rng.gamma(1.0, np.exp(logs))
    counts[:2] = 0, 3  # not all the same
    report = in_batches(CountsSums(), logs[:, None], counts, sizes)
    rates = np.exp(logs)
    assert report.explained == pytest.approx(d2_tweedie_score(counts, rates, power=1), rel=1e-9, abs=1e-9)
    saturated = np.mean(counts - np.where(counts > 0, counts * np.log(np.maximum(counts, 1e-300)), 0))
    assert report.log_loss == pytest.approx(mean_poisson_deviance(counts, rates) / 2 + saturated, rel=1e-9, abs=1e-9)
    assert report.mean_rate == pytest.approx(rates.mean())
    assert report.mean_count == pytest.approx(counts.mean())


def test_the_constant_rate_explains_nothing_and_the_truth_everything() -> None:
    counts = np.array([1, 2, 6])
    assert counts_report(np.full(3, np.log(3.0)), counts).explained == pytest.approx(0, abs=1e-12)
    assert counts_report(np.log(counts), counts).explained == pytest.approx(1)


def test_several_numbers_count_alike() -> None:
    rng = np.random.default_rng(0)
    counts, logs = rng.poisson(3, (40, 2)), rng.normal(1, 0.3, (40, 2))
    each = [counts_report(logs[:, i], counts[:, i]) for i in range(2)]
    both = counts_report(logs, counts)
    assert both.explained == pytest.approx(np.mean([report.explained for report in each]))
    assert both.log_loss == pytest.approx(np.mean([report.log_loss for report in each]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e4])
def test_a_model_that_diverged_is_no_better_for_it(bad: float) -> None:
    """A logarithm of a rate of 10,000 is a rate beyond double precision."""
    outputs, targets = np.array([0.1, bad, 0.3]), np.array([0.0, 1.0, 2.0])
    counts = counts_report(outputs, targets)
    assert counts.not_finite == 1
    assert set(counts.summary()) == {"mean_count", "not_finite"}
    if np.isfinite(bad):
        return
    report = regression_report(outputs, targets)
    assert (report.rmse, report.mae, report.not_finite) == (np.inf, np.inf, 1)
    assert set(report.summary()) == {"not_finite"}


def test_what_does_not_vary_has_no_share_to_explain() -> None:
    assert regression_report(np.zeros(3), np.full(3, 0.1)).r2 is None
    assert counts_report(np.zeros(3), np.full(3, 0.1)).explained is None
    assert counts_report(np.zeros(3), np.zeros(3)).explained is None


def test_memory_does_not_grow_with_the_examples() -> None:
    for kind in (RegressionSums, CountsSums):
        sums = kind()
        sizes = []
        for _ in range(3):
            sums.add(np.zeros((1000, 2)), np.ones((1000, 2)))
            sizes.append(sum(value.nbytes for value in vars(sums).values() if isinstance(value, np.ndarray)))
        assert sizes == [64] * 3


@pytest.mark.parametrize(
    ("outputs", "targets", "message"),
    [
        (np.zeros((3, 2)), np.zeros(3), r"outputs \(3, 2\) do not fit targets \(3,\); the model needs one output"),
        (np.zeros(3), np.array(["a"] * 3), "targets must be numbers"),
        (np.zeros(0), np.zeros(0), "no examples to measure on"),
    ],
)
def test_what_does_not_fit_is_one_line(outputs, targets, message: str) -> None:
    for report in (regression_report, counts_report):
        with pytest.raises(InputError, match=message) as caught:
            report(outputs, targets)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"counts must be >= 0, got -1; correct it"):
        counts_report(np.zeros(2), np.array([1, -1]))
