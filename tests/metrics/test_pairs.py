"""Pairs are judged by the other folds' threshold, and the more frequent kind earns nothing."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.metrics import pair_accuracy


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


def test_similarities_that_tell_nothing_are_right_half_the_time_whatever_the_shares() -> None:
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
        ([0.1, np.nan], [True, False], [0, 1], "1 pairs have none"),
        ([0.1, 0.2, 0.3], [True, False, True], [0, 1, 1], "no genuine pair|no impostor pair"),
        ([0.1, 0.2], [True, False], [0, 0], "no genuine pair"),
    ],
)
def test_what_cannot_be_judged_is_refused_in_one_line(similarity, same, folds, told) -> None:
    with pytest.raises(InputError, match=told) as caught:
        pair_accuracy(np.array(similarity), np.array(same), np.array(folds))
    assert "\n" not in str(caught.value)
