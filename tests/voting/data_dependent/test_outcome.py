import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.voting.data_dependent import as_votes, log_union, log_wrong, log_wrong_from_score, margin_score
from slow import by_profile

spec = importlib.util.spec_from_file_location("exact", Path(__file__).with_name("exact.py"))
exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exact)


def log_wrong_by_margin(votes: np.ndarray, noise_std: float) -> np.ndarray:
    """log of classes exp(-margin^2 / (8 noise_std^2)): the weaker bound of Zhu et al. 2021.

    They ask of every count that its noise stay below half the margin (N gamma in the paper, in votes). Cut off at
    log(1 - 1/classes), as `log_wrong` is; float [queries].
    """
    ordered = np.sort(votes, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    log_q = np.log(votes.shape[1]) - 0.125 * np.square(margin / noise_std)
    return np.minimum(log_q, np.log1p(-1.0 / votes.shape[1]))


COUNTS = st.lists(st.integers(0, 60), min_size=2, max_size=5).filter(any)


@pytest.mark.parametrize("counts", [(9, 1), (5, 5), (20, 12, 11), (30, 0, 0), (7, 7, 7), (25, 20, 3, 1)])
@pytest.mark.parametrize("noise_std", [1.0, 4.0, 30.0])
def test_the_bound_is_never_below_the_integral(counts, noise_std):
    log_p = exact.log_probabilities(counts, noise_std)
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-9)  # the integral itself is right
    others = np.delete(log_p, int(np.argmax(counts)))
    truth = np.logaddexp.reduce(others)
    bound = log_wrong(np.array([counts], dtype=float), noise_std)[0]
    assert bound >= truth - 1e-9
    if len(counts) == 2:
        assert bound == pytest.approx(truth, rel=1e-6)


@given(COUNTS, st.floats(0.5, 100.0))
def test_the_papers_margin_bound_is_never_below_the_pairwise_one(counts, noise_std):
    votes = np.array([counts], dtype=float)
    assert log_wrong_by_margin(votes, noise_std)[0] >= log_wrong(votes, noise_std)[0]


def test_clear_votes_do_not_round_to_certainty():
    log_q = log_wrong(np.array([[1e6, 0.0], [3000.0, 0.0]]), 10.0)
    assert np.isfinite(log_q).all()
    assert log_q[0] == pytest.approx(-0.25e10, rel=1e-6)
    assert log_q[1] < math.log(1e-300)


@given(COUNTS, st.floats(0.5, 100.0))
def test_the_score_says_what_the_union_bound_says(counts, noise_std):
    votes = np.array([counts], dtype=float)
    score = margin_score(log_union(votes, noise_std), len(counts))
    assert score[0] >= 0
    back = log_wrong_from_score(score, len(counts))[0]
    assert back == pytest.approx(log_wrong(votes, noise_std)[0], rel=1e-9, abs=1e-12)


@settings(max_examples=by_profile(150), deadline=None)
@given(COUNTS, st.floats(0.5, 100.0), st.sampled_from(["replace", "add_remove"]))
def test_one_agent_moves_the_score_by_at_most_one_step(counts, noise_std, adjacency):
    step = (2.0 if adjacency == "replace" else 1.0) / (math.sqrt(2) * noise_std)
    here = margin_score(log_union(np.array([counts], dtype=float), noise_std), len(counts))[0]
    others = np.array(exact.neighbours(np.array(counts, dtype=float), adjacency))
    there = margin_score(log_union(others, noise_std), len(counts))
    assert np.abs(there - here).max() <= step * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("votes", [[1.0], [[1.0], [2.0]], [[1.0, -1.0]], [[1.0, math.nan]], "votes", [[[1.0, 2.0]]]])
def test_what_are_no_votes_is_refused(votes):
    with pytest.raises(InputError, match="votes"):
        as_votes(votes)


@pytest.mark.parametrize("std_units", [0.2, 3.0, 40.0])
@pytest.mark.parametrize("talliers", [1, 3])
def test_noise_on_a_lattice_is_wrong_no_more_often_than_the_bound_for_what_was_added(std_units, talliers):
    """Exactly, by adding up the probabilities of the difference of two discrete Gaussians."""
    added = std_units**2 + 9.0
    if talliers == 3:
        added *= 3 / 2
    grid = np.arange(-2000, 2001)
    mass = np.exp(-(grid**2) / (2 * 2 * added))
    mass /= mass.sum()
    exceeds = []
    for gap in (1, 2, 5, 16, 100):
        votes = np.array([[200.0 + gap, 200.0]]) / 16
        wrong = math.log(mass[grid >= gap].sum())
        assert wrong <= log_wrong(votes, math.sqrt(added) / 16, 1 / 16)[0] + 1e-12
        exceeds.append(wrong > log_wrong(votes, std_units / 16)[0])
    assert any(exceeds)  # the accounted noise would promise too much
