"""Verification: pairs, similarities, nearest rows and their curves."""

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

from sfumato import data, metrics
from sfumato._check import InputError
from sfumato.metrics import nearest, pair_accuracy
from sfumato.metrics import verification as _pairs
from slow import by_profile

# Verification against a brute force over all pairs, ties, bad input and the in-batch approximation.


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


# Pairs are judged by the other folds' threshold, and the more frequent kind earns nothing.


def brute(similarity, same, folds) -> float:
    """All thresholds tried one by one, on each fold's complement."""
    right = np.zeros(len(same), bool)
    for fold in set(folds.tolist()):
        others = folds != fold
        values = np.unique(similarity[others])
        cuts = [values[0] - 1, *((values[1:] + values[:-1]) / 2), values[-1]]

        def score(cut, others=others) -> float:
            above = similarity[others] > cut
            return above[same[others]].mean() + (~above[~same[others]]).mean()

        scores = np.array([score(cut) for cut in cuts])
        best = np.flatnonzero(scores >= scores.max() - 1e-12)
        right[~others] = (similarity[~others] > cuts[best[(len(best) - 1) // 2]]) == same[~others]
    return (right[same].mean() + right[~same].mean()) / 2


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_trying_all_thresholds_gives(seed) -> None:
    rng = np.random.default_rng(seed)
    same, folds = rng.random(120) < 0.7, rng.integers(0, 5, 120)
    similarity = (rng.normal(same * 1.0, 1.0)).round(1)  # with ties
    found = pair_accuracy(similarity, same, folds)
    assert found.accuracy == pytest.approx(brute(similarity, same, folds))
    assert (found.genuine_pairs, found.impostor_pairs) == (same.sum(), (~same).sum())
    assert len(found.thresholds) == 5


def test_a_fold_has_no_say_in_its_own_threshold() -> None:
    similarity = np.array([0.9, 0.1, 0.9, 0.1, 5.0, 4.0])
    found = pair_accuracy(similarity, np.array([True, False] * 3), np.array([0, 0, 1, 1, 2, 2]))
    assert found.thresholds[2] == pytest.approx(0.5)
    assert (found.accepted, found.refused) == (1.0, pytest.approx(2 / 3))


def test_similarities_that_report_nothing_are_right_half_the_time_whatever_the_shares() -> None:
    """20,000 pairs, 90 % genuine: the mean of two shares has a std below 0.012."""
    rng = np.random.default_rng(0)
    same = rng.random(20_000) < 0.9
    found = pair_accuracy(rng.random(20_000), same, rng.integers(0, 10, 20_000))
    assert abs(found.accuracy - 0.5) < 0.05
    constant = pair_accuracy(np.zeros(20_000), same, rng.integers(0, 10, 20_000))
    assert constant.accuracy == 0.5


@pytest.mark.parametrize(
    ("similarity", "same", "folds", "told"),
    [
        ([0.1, 0.2], [True], [0, 1], "shapes"),
        ([0.1, 0.2], [1, 0], [0, 1], "int64"),
        ([0.1, np.nan], [True, False], [0, 1], "1 pairs are not finite"),
        ([0.1, 0.2, 0.3], [True, False, True], [0, 1, 1], "no genuine pair|no impostor pair"),
        ([0.1, 0.2], [True, False], [0, 0], "no genuine pair"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(similarity, same, folds, told) -> None:
    with pytest.raises(InputError, match=told) as caught:
        pair_accuracy(np.array(similarity), np.array(same), np.array(folds))
    assert "\n" not in str(caught.value)


# LFW's pairs: read line by line, found among people, and never about somebody who was trained on.

LINES = ["2\t1", "al\t1\t2", "al\t2\tbo\t1", "cy\t1\t3", "cy\t2\tdi\t1"]


@pytest.fixture
def written(tmp_path):
    def write(lines: list[str]):
        path = tmp_path / "pairs.txt"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    return write


@pytest.fixture
def people() -> data.UserDataset:
    """bo has one picture, al two, cy three; di is not there."""
    names = np.array(["cy", "al", "cy", "bo", "al", "cy"])
    return data.from_arrays(np.arange(6, dtype=np.float32)[:, None], names, names)


def test_the_pairs_are_those_of_the_lines(written) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    assert pairs.names.tolist() == [["al", "al"], ["al", "bo"], ["cy", "cy"], ["cy", "di"]]
    assert pairs.numbers.tolist() == [[1, 2], [2, 1], [1, 3], [2, 1]]
    assert pairs.folds.tolist() == [0, 0, 1, 1]
    assert pairs.same.tolist() == [True, False, True, False]


def test_rows_are_where_the_pictures_lie_user_by_user(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES)).among(people)
    assert pairs.folds.tolist() == [0, 0, 1]
    inputs = np.concatenate([people.examples(user)[0] for user in range(len(people))])[:, 0]
    assert inputs[pairs.rows(people)].tolist() == [[1, 4], [4, 3], [0, 5]]  # in the order in which they were given


def test_pictures_that_are_missing_are_reported(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    with pytest.raises(InputError, match=r"1 people who are not in the data \(di\)"):
        pairs.rows(people)
    with pytest.raises(InputError, match="picture 4 of cy, who has 3"):
        metrics.lfw_pairs(written([*LINES[:3], "cy\t1\t4", LINES[4]])).among(people)


def test_somebody_who_was_trained_on_is_refused(written, people) -> None:
    pairs = metrics.lfw_pairs(written(LINES))
    pairs.refuse_trained_on(["ed"])
    with pytest.raises(InputError, match=r"2 people of the pairs are trained on \(bo\)"):
        pairs.refuse_trained_on(["cy", "ed", "bo"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "must begin with"),
        (["10 300"], "must begin with"),
        (LINES[:-1], "has 3 pairs"),
        ([*LINES[:1], "al\t1", *LINES[2:]], "line 2: wanted name, number, number"),
        ([*LINES[:1], "al\t1\t0", *LINES[2:]], "line 2"),
        ([*LINES[:2], "al\t2\tal\t1", *LINES[3:]], "line 3: wanted name, number, another name"),
        ([*LINES[:2], "al\tx\tbo\t1", *LINES[3:]], "line 3"),
    ],
)
def test_lines_that_are_none_of_lfw_are_refused(written, lines, told) -> None:
    with pytest.raises(InputError, match=told) as caught:
        metrics.lfw_pairs(written(lines))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        metrics.lfw_pairs(tmp_path / "none.txt")


@pytest.mark.shared
def test_the_real_file_has_ten_folds_of_people_of_their_own(shared) -> None:
    pairs = metrics.lfw_pairs(shared / "lfw_pairs.txt")
    assert (len(pairs), int(pairs.same.sum())) == (6000, 3000)
    seen = [set(pairs.names[pairs.folds == fold].ravel().tolist()) for fold in range(10)]
    assert sum(map(len, seen)) == len(set().union(*seen))


# Nearest rows: those of brute force in double precision, whatever the blocks; of equals the first.


@settings(deadline=None)  # scikit-learn is imported by the first one
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 12))
def test_the_blocks_do_not_matter(seed: int, sizes: list[int], count: int):
    random = np.random.default_rng(seed)
    queries, rows = random.normal(size=(3, 4)), random.normal(size=(sum(sizes), 4))
    blocks = np.split(rows, np.cumsum(sizes)[:-1])
    places, similar = nearest(queries, blocks, count=count)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, rows)]
    cosines = unit[0] @ unit[1].T
    assert places.shape == similar.shape == (3, min(count, len(rows)))
    # float32 rows of four numbers: their products are off by less than 1e-6
    np.testing.assert_allclose(similar, np.take_along_axis(cosines, places, axis=1), atol=1e-6)
    np.testing.assert_allclose(similar, -np.sort(-cosines, axis=1)[:, :count], atol=1e-6)
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_of_equals_the_first_comes_first():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [4.0, 0.0]])
    assert nearest(rows[:1], [rows[:2], rows[2:]], count=3)[0].tolist() == [[0, 2, 3]]


def test_lengths_do_not_matter_even_extreme_ones():
    rows = np.array([[1e-300, 0.0], [0.0, 1e300], [-1e-300, 0.0]])
    places, similar = nearest(np.array([[1e200, 0.0]]), [rows], count=3)
    assert places.tolist() == [[0, 1, 2]]
    assert similar.tolist() == [[1.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("queries", "rows", "said"),
    [
        ([[1.0, 2.0]], [[1.0]], "2 dimensions and the gallery 1"),
        ([[1.0, np.inf]], [[1.0, 1.0]], "queries: row 0 is not finite"),
        ([[1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]], "gallery: row 1 is zero"),
    ],
)
def test_what_has_no_direction_is_refused(queries, rows, said):
    with pytest.raises(InputError, match=said):
        nearest(np.array(queries), [np.array(rows)], count=1)


def test_a_row_is_reported_by_its_place_in_the_whole_gallery():
    blocks = [np.ones((3, 2)), np.array([[1.0, 1.0], [np.nan, 1.0]])]
    with pytest.raises(InputError, match="gallery: row 4 is not finite"):
        nearest(np.ones((1, 2)), blocks, count=1)
