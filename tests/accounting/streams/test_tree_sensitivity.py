"""The search over participation patterns, against all patterns of short runs and against closed forms."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accounting.patterns import patterns
from sfumato.accounting import InputError
from sfumato.accounting.events.sensitivity import Forest, Participation, _level_bound, squared_sensitivity
from slow import by_profile

limits = st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.integers(0, 6))


def forest(most: int | None, separation: int, rounds: int, **trees: object) -> Forest:
    limits = Participation(rounds=rounds, max_participations=most, min_separation=separation)
    return Forest(limits, **trees)  # type: ignore[arg-type]


def nodes_below(rounds: int, tree_rounds: int | None, completed: bool) -> np.ndarray:
    """0/1 matrix [nodes, rounds], as the mechanism releases them: which rounds each node adds up."""
    rows: list[np.ndarray] = []
    length = tree_rounds or rounds
    starts = range(0, rounds, length)
    for start in starts:
        leaves = min(length, rounds - start)
        if completed and start != starts[-1]:
            leaves = next(2**m for m in range(30) if 2**m >= leaves)
        for size in (2**m for m in range(leaves.bit_length())):
            for first in range(0, leaves - size + 1, size):
                row = np.zeros(start + leaves)
                row[start + first : start + first + size] = 1
                row[start + length :] = 0  # rounds that only complete the tree
                rows.append(np.pad(row, (0, rounds))[:rounds])
    return np.array(rows)


def by_all_patterns(forest: Forest) -> int:
    limits = forest.participation
    nodes = nodes_below(limits.rounds, forest.tree_rounds, forest.completed)
    length = forest.tree_rounds or limits.rounds
    best = 0.0
    for pattern in patterns(limits):
        trees = [position // length for position in pattern]
        if forest.most_per_tree and any(trees.count(tree) > forest.most_per_tree for tree in trees):
            continue
        best = max(best, float((nodes[:, list(pattern)].sum(axis=1) ** 2).sum()))
    return int(best)


def test_patterns_are_those_that_keep_the_distance_and_the_number() -> None:
    limits = Participation(rounds=9, max_participations=3, min_separation=2)
    found = list(patterns(limits))
    subsets = itertools.chain.from_iterable(itertools.combinations(range(9), k) for k in range(10))
    expected = [s for s in subsets if len(s) <= 3 and all(y - x - 1 >= 2 for x, y in itertools.pairwise(s))]
    assert sorted(found) == sorted(expected)
    assert all(limits.allows(pattern) for pattern in found)
    assert not limits.allows([0, 2])
    assert not limits.allows([0, 9])
    assert limits.period == 3


@pytest.mark.parametrize(
    ("most", "separation", "rounds", "expected"),
    [  # tensorflow/privacy, tree_aggregation_accountant_test.py; the last one: the DP-FTRL blog post's production run
        (1, 7, 8, 4),
        (3, 3, 9, 11),
        (3, 2, 7, 9),
        (8, 2, 24, 88),
        (200, 0, 8, 120),
        (6, 313, 2000, 79),
    ],
)
def test_published_squared_sensitivities(most: int, separation: int, rounds: int, expected: int) -> None:
    assert squared_sensitivity(forest(most, separation, rounds)) == (expected, True)


@settings(max_examples=by_profile(150), deadline=None)
@given(limits, st.integers(1, 13))
def test_one_tree_costs_its_worst_pattern(limits: tuple[int | None, int], rounds: int) -> None:
    single = forest(*limits, rounds)
    assert squared_sensitivity(single) == (by_all_patterns(single), True)


@settings(max_examples=by_profile(150), deadline=None)
@given(limits, st.integers(1, 12), st.integers(1, 7), st.booleans(), st.one_of(st.none(), st.integers(1, 3)))
def test_several_trees_cost_their_worst_pattern(
    limits: tuple[int | None, int], rounds: int, length: int, completed: bool, per_tree: int | None
) -> None:
    several = forest(*limits, rounds, tree_rounds=length, completed=completed, most_per_tree=per_tree)
    assert squared_sensitivity(several) == (by_all_patterns(several), True)
    assert _level_bound(several) >= by_all_patterns(several)


@given(st.integers(1, 10**9), st.integers(0, 100))
def test_one_participation_costs_the_depth_of_the_tree(rounds: int, separation: int) -> None:
    assert squared_sensitivity(forest(1, separation, rounds)) == (rounds.bit_length(), True)  # = ceil(log2(T + 1))


@given(st.integers(1, 10**6))
def test_a_unit_in_every_round_fills_every_node(rounds: int) -> None:
    full = sum(4**m * (rounds >> m) for m in range(rounds.bit_length()))
    assert squared_sensitivity(forest(None, 0, rounds)) == (full, True)


@given(st.integers(1, 300), st.integers(1, 20))
def test_a_tree_an_epoch_costs_a_depth_an_epoch(length: int, epochs: int) -> None:
    several = forest(None, 0, length * epochs, tree_rounds=length, most_per_tree=1)
    assert squared_sensitivity(several) == (epochs * length.bit_length(), True)


@settings(max_examples=by_profile(60), deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(1, 400), st.data())
def test_more_freedom_never_costs_less(most: int, separation: int, rounds: int, data: st.DataObject) -> None:
    base = squared_sensitivity(forest(most, separation, rounds)).value
    assert squared_sensitivity(forest(most + 1, separation, rounds)).value >= base
    assert squared_sensitivity(forest(most, separation, rounds + 1)).value >= base
    if separation:
        assert squared_sensitivity(forest(most, separation - 1, rounds)).value >= base
    length = data.draw(st.integers(1, rounds))
    restarted = squared_sensitivity(forest(most, separation, rounds, tree_rounds=length)).value
    assert squared_sensitivity(forest(most, separation, rounds, tree_rounds=length, completed=True)).value >= restarted


@settings(max_examples=by_profile(40), deadline=None)
@given(st.integers(1, 60), st.integers(0, 30), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_no_pattern_of_a_long_run_moves_more(most: int, separation: int, rounds: int, seed: int) -> None:
    run = forest(most, separation, rounds)
    period = run.participation.period
    gaps = np.random.default_rng(seed).geometric(0.3, size=most) - 1 + period
    gaps[0] -= period
    pattern = np.cumsum(gaps)
    pattern = pattern[pattern < rounds]
    assume(len(pattern))
    blocks = (np.unique(pattern[pattern >> m < rounds >> m] >> m, return_counts=True)[1] for m in range(12))
    assert sum(int((counts**2).sum()) for counts in blocks) <= squared_sensitivity(run).value <= _level_bound(run)


def test_where_the_search_is_too_long_the_bound_is_above_evenly_spaced_participations() -> None:
    value, exact = squared_sensitivity(forest(1000, 99, 100_000))
    pattern = np.arange(1000) * 100
    blocks = (np.unique(pattern[pattern >> m < 100_000 >> m] >> m, return_counts=True)[1] for m in range(17))
    spaced = sum(int((counts**2).sum()) for counts in blocks)
    assert not exact
    assert spaced <= value <= 1.01 * spaced


def test_the_production_run_takes_less_than_a_second() -> None:
    start = time.perf_counter()
    squared_sensitivity.__wrapped__(forest(6, 313, 2000))
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("field", ["rounds", "max_participations", "min_separation"])
@pytest.mark.parametrize("value", [-1, 2.5, "3", float("nan"), float("inf")])
def test_what_is_no_number_of_rounds_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Participation(**{"rounds": 10, field: value})  # type: ignore[arg-type]
