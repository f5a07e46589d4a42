"""Verification against a brute force over all pairs, ties, bad input and the in-batch approximation."""

import subprocess
import sys
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from sfumato import metrics
from sfumato._check import InputError
from sfumato.metrics import similarities as _pairs
from slow import by_profile


def exact_pairs(embeddings, labels):
    """Genuine and impostor similarities of sign vectors of 16 dimensions: exact multiples of 1/8."""
    similarity = embeddings.astype(np.int64) @ embeddings.T.astype(np.int64) / embeddings.shape[1]
    i, j = np.triu_indices(len(labels), 1)
    same = labels[i] == labels[j]
    return similarity[i, j][same], similarity[i, j][~same]


def brute_force(genuine, impostor, far):
    """The definition, word for word: no sorting tricks, rationals for the rate."""
    allowed = Fraction(str(far)) * len(impostor)
    threshold = min(t for t in impostor if (impostor > t).sum() <= allowed)
    return threshold, (genuine > threshold).mean()


def signs(seed, n, classes, dimensions=16):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    centres = rng.choice([-1.0, 1.0], size=(classes, dimensions))
    flips = rng.choice([-1.0, 1.0], p=[0.2, 0.8], size=(n, dimensions))
    return centres[labels] * flips, labels


def gaussians(n, classes, dimensions=24, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    return rng.normal(size=(classes, dimensions))[labels] + rng.normal(size=(n, dimensions)), labels


@settings(max_examples=by_profile(20), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(12, 60),
    classes=st.integers(2, 5),
    far=st.sampled_from([1e-4, 0.001, 0.01, 0.05, 0.1, 0.29, 0.5, 0.9]),
)
def test_threshold_and_recall_are_those_of_the_definition_ties_included(seed, n, classes, far):
    embeddings, labels = signs(seed, n, classes)
    if len(np.unique(labels)) < 2:
        return
    genuine, impostor = exact_pairs(embeddings, labels)
    result = metrics.recall_at_far(embeddings, labels, (far,))
    threshold, recall = brute_force(genuine, impostor, far)
    assert (result.threshold[far], result.recall[far]) == (threshold, recall)
    assert (result.genuine_pairs, result.impostor_pairs) == (len(genuine), len(impostor))
    assert result.realised_far[far] == (impostor > threshold).mean() <= far


@pytest.mark.parametrize(("block", "buffer", "threads"), [(7, 500, 1), (64, 5000, 1), (16, 5000, 3)])
def test_blocks_and_threads_do_not_change_the_counts(block, buffer, threads, monkeypatch):
    embeddings, labels = signs(1, 150, 4)
    whole = metrics.similarity_histogram(embeddings, labels)
    monkeypatch.setattr(_pairs, "_BLOCK", block)
    monkeypatch.setattr(_pairs, "_BUFFER", buffer)
    monkeypatch.setattr(_pairs, "_WORKER_PAIRS", 1000)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        parts = metrics.similarity_histogram(embeddings, labels)
    finally:
        torch.set_num_threads(before)
    for field in ("similarity", "genuine", "impostor"):
        assert np.array_equal(getattr(whole, field), getattr(parts, field))


def test_torchs_threads_are_as_before_also_after_an_interrupt():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        metrics.recall_at_far(*gaussians(60, 3), (0.1,))
        assert torch.get_num_threads() == 2

        def interrupt(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            metrics.recall_at_far(*gaussians(60, 3), (0.1,), progress=interrupt)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_gaussian_embeddings_agree_with_numpys_quantile_in_float64():
    embeddings, labels = gaussians(400, 40)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    i, j = np.triu_indices(400, 1)
    scores, same = (unit @ unit.T)[i, j], labels[i] == labels[j]
    fars = (1e-3, 1e-2, 0.1)
    result = metrics.recall_at_far(embeddings, labels, fars)
    for far in fars:
        threshold = np.quantile(scores[~same], 1 - far, method="inverted_cdf")
        assert result.threshold[far] == pytest.approx(threshold, abs=1e-6)
        # Pairs within the stated tolerance of the threshold may fall on either side; there are none here.
        assert not ((np.abs(scores - threshold) < 1e-6) & same).any()
        assert result.recall[far] == (scores[same] > threshold).mean()


def test_roc_and_auc_agree_with_scikit_learn():
    embeddings, labels = gaussians(300, 12)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    i, j = np.triu_indices(300, 1)
    scores, same = (unit @ unit.T)[i, j], labels[i] == labels[j]
    ours = metrics.roc(embeddings, labels, points=50)
    assert ours.auc == pytest.approx(roc_auc_score(same, scores), abs=1e-6)
    fpr, tpr, _ = roc_curve(same, scores, drop_intermediate=False)
    # The best recall at a rate of at most ours.fpr.
    best = [tpr[fpr <= rate + 1e-12].max() for rate in ours.fpr]
    assert ours.tpr == pytest.approx(best, abs=2 / same.sum())
    assert ours.fpr[0] == 1 / ours.impostor_pairs
    assert (ours.fpr[-1], ours.tpr[-1]) == (1, 1)
    assert (np.diff(ours.fpr) > 0).all()
    assert (np.diff(ours.tpr) >= 0).all()


def test_auc_counts_a_tie_one_half():
    embeddings, labels = signs(3, 60, 3)
    genuine, impostor = exact_pairs(embeddings, labels)
    wins = (genuine[:, None] > impostor).mean() + (genuine[:, None] == impostor).mean() / 2
    assert metrics.roc(embeddings, labels).auc == pytest.approx(wins, abs=1e-12)


def test_roc_and_recall_at_far_are_one_curve():
    histogram = metrics.similarity_histogram(*gaussians(300, 20))
    curve = histogram.roc()
    at = len(curve.fpr) // 2
    point = histogram.recall_at_far((float(curve.fpr[at]),))
    assert curve.tpr[at] in point.recall.values()
    assert curve.threshold[at] in point.threshold.values()


def test_the_order_the_scale_and_the_names_of_classes_do_not_matter():
    embeddings, labels = signs(4, 80, 4)
    expected = metrics.recall_at_far(embeddings, labels, (0.01, 0.1))
    rng = np.random.default_rng(0)
    order = rng.permutation(80)
    scales = np.exp2(rng.integers(-60, 60, size=(80, 1)))
    names = np.array(["zoe", "adam", "mia", "bo"])[labels]
    assert metrics.recall_at_far((embeddings * scales)[order], names[order], (0.01, 0.1)) == expected


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_tiny_and_huge_embeddings_keep_their_direction(scale):
    embeddings, labels = signs(5, 40, 3)
    assert metrics.recall_at_far(embeddings * scale, labels) == metrics.recall_at_far(embeddings, labels)


def test_a_collapsed_model_has_recall_zero_and_auc_one_half():
    embeddings = np.tile(np.random.default_rng(0).normal(size=(1, 128)).astype(np.float32), (50, 1))
    embeddings *= np.linspace(0.1, 9, 50, dtype=np.float32)[:, None]
    histogram = metrics.similarity_histogram(embeddings, np.arange(50) % 5)
    assert histogram.recall_at_far((0.1,)).recall == {0.1: 0.0}
    assert histogram.roc().auc == pytest.approx(0.5)


def test_fewer_pairs_than_the_rate_can_resolve_are_a_warning_with_the_strictest_threshold():
    embeddings, labels = signs(6, 20, 2, dimensions=64)
    genuine, impostor = exact_pairs(embeddings, labels)
    result = metrics.recall_at_far(embeddings, labels, (1e-6,))
    assert result.threshold[1e-6] == impostor.max()
    assert result.recall[1e-6] == (genuine > impostor.max()).mean()
    assert result.realised_far[1e-6] == 0
    assert "allows less than one pair" in result.warnings[0]
    assert metrics.recall_at_far(embeddings, labels, (0.1,)).warnings == ()


def test_in_batch_pairs_are_exactly_those_within_consecutive_batches():
    embeddings, labels = signs(7, 50, 3)
    pairs = [(i, j) for i, j in combinations(range(50), 2) if i // 8 == j // 8]
    similarity = np.array([embeddings[i] @ embeddings[j] / 16 for i, j in pairs])
    same = np.array([labels[i] == labels[j] for i, j in pairs])
    result = metrics.in_batch_recall_at_far(embeddings, labels, (0.05,), batch_size=8)
    assert (result.genuine_pairs, result.impostor_pairs) == (same.sum(), (~same).sum())
    threshold, recall = brute_force(similarity[same], similarity[~same], 0.05)
    assert (result.threshold[0.05], result.recall[0.05]) == (threshold, recall)
    assert result.compared == "within batches of 8"


def test_one_batch_of_everything_is_all_pairs():
    embeddings, labels = signs(8, 40, 3)
    every = metrics.recall_at_far(embeddings, labels, (0.05,))
    one = metrics.in_batch_recall_at_far(embeddings, labels, (0.05,), batch_size=40)
    assert (one.recall, one.threshold) == (every.recall, every.threshold)


def test_the_input_is_left_as_it_was():
    embeddings, labels = gaussians(30, 3)
    before = embeddings.copy(), labels.copy()
    metrics.recall_at_far(embeddings, labels, (0.1,))
    assert np.array_equal(embeddings, before[0])
    assert np.array_equal(labels, before[1])


def test_progress_rises_to_the_total():
    seen = []
    metrics.recall_at_far(*gaussians(1500, 3), progress=lambda done, total: seen.append((done, total)))
    assert len(seen) >= 1
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


def test_the_memory_does_not_grow_with_the_pairs():
    """From 18 to 72 million pairs the peak of a process grows by less than one byte a pair."""
    program = """
import resource, numpy, torch
from sfumato.metrics import recall_at_far
torch.set_num_threads(1)
for n in (6000, 12000):
    recall_at_far(numpy.random.default_rng(0).normal(size=(n, 16)), numpy.arange(n) // 9)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    small, large = map(int, run.stdout.split())
    assert large - small < 54e6


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (np.ones((3, 2)), [0, 0, 0], "all examples are of one class"),
        (np.ones((3, 2)), [0, 1, 2], "no class has two examples"),
        (np.array([[1.0, 2], [np.nan, 1], [1, 1]]), [0, 0, 1], "row 1 of 3 is not finite"),
        (np.array([[1.0, 2], [1, 1], [np.inf, 1]]), [0, 0, 1], "row 2 of 3 is not finite"),
        (np.array([[0.0, 0], [1, 1], [1, 1]]), [0, 0, 1], "row 0 of 3 is zero"),
        (np.ones(3), [0, 0, 1], r"embeddings must be a float array \[examples, dimensions\]"),
        (np.ones((3, 2), dtype=int), [0, 0, 1], "embeddings must be a float array"),
        (np.ones((3, 2)), [0, 1], "one class .* per embedding"),
        (np.ones((3, 2)), [0.5, 1, 1], "labels must be one class"),
        (np.ones((1, 2)), [0], "needs at least 2 embeddings, got 1"),
        (np.ones((0, 2)), np.zeros(0, int), "needs at least 2 embeddings, got 0"),
        (np.ones((3, 0)), [0, 0, 1], "row 0 of 3 is zero"),
    ],
)
def test_bad_input_is_one_clear_line(embeddings, labels, message):
    with pytest.raises(InputError, match=message) as error:
        metrics.recall_at_far(embeddings, np.array(labels))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("far", [0, 1, -0.1, 1.5, float("nan")])
def test_rates_outside_zero_and_one_are_refused(far):
    with pytest.raises(InputError, match="far must be"):
        metrics.recall_at_far(*gaussians(20, 2), (far,))


def test_no_rate_at_all_is_refused():
    with pytest.raises(InputError, match="at least one false accept rate"):
        metrics.recall_at_far(*gaussians(20, 2), ())


def test_batches_without_impostors_are_refused():
    with pytest.raises(InputError, match="within batches of 2 are of one class"):
        metrics.in_batch_recall_at_far(np.eye(4), np.array([0, 0, 1, 1]), batch_size=2)
