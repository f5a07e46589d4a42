"""Trees' estimators, against least squares over the released nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.strategies.dense import nodes, squared_sensitivity
from sfumato.accounting import InputError, Participation, TreeAggregation
from sfumato.accounting.strategies import BinaryTree
from slow import by_profile


def least_variance(below: np.ndarray) -> float:
    """Variance of the best unbiased estimate of the sum of all rounds, from nodes with noise of variance 1."""
    ones = np.ones(below.shape[1])
    return float(ones @ np.linalg.solve(below.T @ below, ones))


def test_the_plain_estimator_adds_one_node_for_each_binary_digit() -> None:
    expected = [(t + 1).bit_count() for t in range(100)]
    assert BinaryTree("plain").prefix_variance(100).tolist() == expected


def test_the_efficient_estimator_is_the_best_from_all_nodes_so_far() -> None:
    expected = [least_variance(nodes(t + 1)) for t in range(40)]
    assert BinaryTree("efficient").prefix_variance(40) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", range(1, 12))
def test_a_completed_root_is_the_best_estimate_that_knows_empty_rounds_are_zero(length: int) -> None:
    whole = 1 << (length - 1).bit_length()
    best = least_variance(nodes(whole, real=length))
    within = BinaryTree("efficient").prefix_variance(length)
    for estimator, last in (("efficient", best), ("plain", 1.0)):
        run = BinaryTree(estimator, restart_every=length, completion=True).prefix_variance(3 * length)
        assert run[length - 1] == pytest.approx(last, rel=1e-12)
        assert run[2 * length - 1] == pytest.approx(2 * last, rel=1e-12)
        unfinished = BinaryTree(estimator).prefix_variance(length)[-1]  # no tree follows the last one
        assert run[-1] == pytest.approx(2 * last + unfinished, rel=1e-12)
    efficient = BinaryTree("efficient", restart_every=length, completion=True).prefix_variance(3 * length)
    assert efficient[length : 2 * length - 1] == pytest.approx(best + within[:-1], rel=1e-12)


def test_restarts_keep_the_noise_of_the_trees_before() -> None:
    run = BinaryTree("plain", restart_every=6).prefix_variance(15)
    assert run.tolist() == [1, 1, 2, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6]


@settings(max_examples=by_profile(200), deadline=None)
@given(st.integers(1, 300), st.one_of(st.none(), st.integers(1, 40)), st.booleans())
def test_the_efficient_estimator_is_never_worse_than_the_plain_one(rounds, restart, completion) -> None:
    trees = {"restart_every": restart, "completion": completion and restart is not None}
    plain, efficient = (BinaryTree(e, **trees).prefix_variance(rounds) for e in ("plain", "efficient"))
    assert len(efficient) == rounds
    assert np.all(efficient <= plain * (1 + 1e-12))
    assert np.all(efficient > 0)


def test_the_sensitivity_is_the_heaviest_of_all_patterns() -> None:
    for rounds in range(1, 17):
        for most in (1, 2, 3):
            for separation in range(4):
                limits = Participation(rounds=rounds, max_participations=most, min_separation=separation)
                truth = squared_sensitivity(nodes(rounds), limits)
                assert BinaryTree().squared_sensitivity(limits) == pytest.approx(truth, rel=1e-12)


def test_the_event_has_the_same_trees() -> None:
    limits = Participation(rounds=50, max_participations=3, min_separation=9)
    strategy = BinaryTree("plain", restart_every=20, completion=True)
    event = strategy.event(7.0, limits)
    assert event == TreeAggregation(
        noise_multiplier=7.0, steps=50, max_participations=3, min_separation=9, restart_every=20, completion=True
    )
    assert isinstance(event, TreeAggregation)
    assert strategy.squared_sensitivity(limits) == event.squared_sensitivity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "honaker"}, "estimator must be one of plain, efficient, got honaker"),
        ({"restart_every": 0}, "restart_every must be a whole number >= 1, got 0; None for a single tree"),
        ({"completion": True}, "a single tree is never completed"),
    ],
)
def test_trees_that_cannot_be_are_refused(options, message) -> None:
    with pytest.raises(InputError, match=message):
        BinaryTree(**options)
