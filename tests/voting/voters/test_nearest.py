"""One record exchanges at most one neighbour, whatever the data: the sentence that √2/k stands on."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from sfumato._check import InputError
from sfumato.voting import neighbours as module
from sfumato.voting.neighbours import NearestRecords
from slow import by_profile

CLASSES = 4
KINDS = ("spread", "duplicates", "near ties", "few directions")


def features(rng, kind, count, width):
    """Records that are hard to tell apart: equal ones with other labels, and ones a rounding away from each other."""
    if kind == "spread":
        return rng.normal(size=(count, width))
    if kind == "duplicates":
        return rng.integers(-1, 2, size=(3, width)).astype(float)[rng.integers(0, 3, count)]
    if kind == "near ties":  # all at one distance from the origin but for the last bits
        signs = rng.choice([-1.0, 1.0], size=(count, width))
        return signs * (1 + rng.integers(-2, 3, size=(count, width)) * 2.0**-23)
    return np.outer(rng.uniform(0.1, 3, count), np.ones(width)) * rng.choice([-1, 1], size=(count, 1))


def labels_of(rng, count, attributes):
    return rng.random((count, CLASSES)) < 0.5 if attributes else rng.integers(0, CLASSES, count)


def furthest(one, other):
    return float(np.sqrt(((one - other) ** 2).sum(axis=1)).max())


case = {
    "seed": st.integers(0, 2**32 - 1),
    "kind": st.sampled_from(KINDS),
    "distance": st.sampled_from(["euclidean", "cosine"]),
    "k": st.integers(1, 6),
}


@settings(max_examples=by_profile(150), deadline=None)
@given(**case, change=st.sampled_from(["without", "replaced"]))
def test_one_record_moves_a_vote_by_at_most_the_root_of_two_over_k(seed, kind, distance, k, change):
    rng = np.random.default_rng(seed)
    count, width = int(rng.integers(1, 40)), int(rng.integers(1, 9))
    queries = np.concatenate([features(rng, kind, 6, width), np.zeros((1, width))])
    records, labels = features(rng, kind, count, width), labels_of(rng, count, False)
    nearest = NearestRecords(queries, neighbours=k, classes=CLASSES, distance=distance)
    before = nearest.votes(records, labels)
    at = int(rng.integers(count))
    if change == "without":
        after = nearest.votes(np.delete(records, at, 0), np.delete(labels, at))
    else:
        others, labels = records.copy(), labels.copy()
        others[at], labels[at] = features(rng, kind, 1, width)[0], rng.integers(CLASSES)
        after = nearest.votes(others, labels)
    assert furthest(before, after) <= math.sqrt(2) / k + 1e-6
    assert (np.abs(before.sum(axis=1) - min(count, k) / k) < 1e-6).all()


@settings(max_examples=by_profile(100), deadline=None)
@given(**case)
def test_one_record_moves_each_attribute_by_at_most_one_over_k(seed, kind, distance, k):
    rng = np.random.default_rng(seed)
    queries, records = features(rng, kind, 6, 5), features(rng, kind, 30, 5)
    labels = labels_of(rng, 30, True)
    nearest = NearestRecords(queries, neighbours=k, classes=CLASSES, attributes=True, distance=distance)
    before, after = nearest.votes(records, labels), nearest.votes(records[1:], labels[1:])
    assert np.abs(before - after).max() <= 1 / k + 1e-6
    assert before.min() >= 0
    assert before.max() <= 1


@settings(max_examples=by_profile(150), deadline=None)
@given(**case, attributes=st.booleans())
def test_votes_do_not_depend_on_the_order_of_the_records(seed, kind, distance, k, attributes):
    rng = np.random.default_rng(seed)
    queries, records = features(rng, kind, 7, 6), features(rng, kind, 33, 6)
    labels = labels_of(rng, 33, attributes)
    nearest = NearestRecords(queries, neighbours=k, classes=CLASSES, attributes=attributes, distance=distance)
    order = rng.permutation(33)
    assert np.array_equal(nearest.votes(records, labels), nearest.votes(records[order], labels[order]))


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_wide_records_are_compared_without_any_rounding(distance):
    """512 features, as many levels as fit: keys are those of whole numbers of any size, and below 2^53."""
    rng = np.random.default_rng(1)
    queries, records = rng.uniform(-1, 1, (5, 512)), rng.uniform(-1, 1, (40, 512))
    queries[0], records[0] = 1.0, -1.0  # the largest sums there are
    labels = rng.integers(0, 10, 40)
    nearest = NearestRecords(queries, neighbours=7, classes=10, distance=distance)
    own = nearest._own(nearest._lattice(records), labels)
    exact = [[int(x) for x in row] for row in own.tolist()]
    keys = (nearest._queries @ own.T).tolist()
    for row, got in zip(nearest._queries.tolist(), keys, strict=True):
        wanted = [sum(int(a) * b for a, b in zip(row, other, strict=True)) for other in exact]
        assert [Fraction(x) for x in got] == wanted
        assert sum(abs(int(a) * b) for a, b in zip(row, exact[0], strict=True)) < 2**53


def test_the_largest_sums_of_a_lattice_are_exact():
    nearest = NearestRecords(np.ones((1, 3000)), neighbours=1, classes=50)
    assert 50 * (3 * 3000 * nearest.levels**2 + 1) <= 2**53


def test_neighbours_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    queries, records, labels = rng.normal(size=(50, 16)), rng.normal(size=(300, 16)), rng.integers(0, 5, 300)
    for distance in ("euclidean", "cosine"):
        votes = NearestRecords(queries, neighbours=9, classes=5, distance=distance).votes(records, labels)
        searched = NearestNeighbors(n_neighbors=9, metric=distance).fit(np.clip(records, *_range(queries)))
        found = labels[searched.kneighbors(queries, return_distance=False)]
        wanted = np.stack([(found == c).mean(axis=1) for c in range(5)], axis=1)
        assert (np.abs(votes - wanted).max(axis=1) > 1e-6).mean() <= 0.04  # what whole numbers decide otherwise


def _range(queries):
    return -np.abs(queries).max(), np.abs(queries).max()


def test_records_in_several_blocks_vote_as_in_one(monkeypatch):
    rng = np.random.default_rng(3)
    queries, records, labels = rng.normal(size=(30, 4)), rng.normal(size=(500, 4)), rng.integers(0, 3, 500)
    nearest = NearestRecords(queries, neighbours=5, classes=3)
    told = []
    whole = nearest.votes(records, labels)
    monkeypatch.setattr(module, "_KEYS", 320)
    assert np.array_equal(nearest.votes(records, labels, lambda *at: told.append(at)), whole)
    assert len(told) > 1
    assert told[-1] == (30, 30)


def test_an_agent_without_records_abstains():
    nearest = NearestRecords(np.ones((3, 2)), neighbours=2, classes=2)
    assert nearest.votes(np.zeros((0, 2)), np.zeros(0, int)).tolist() == [[0, 0]] * 3


def test_attributes_are_the_mean_of_the_neighbours_rows():
    nearest = NearestRecords(np.array([[0.0], [1.0]]), neighbours=2, classes=3, attributes=True)
    rows = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]], bool)
    assert nearest.votes(np.array([[0.0], [0.1], [5.0]]), rows).tolist() == [[1, 0.5, 0], [0.5, 0, 0.5]]


@pytest.mark.parametrize(
    ("act", "line"),
    [
        (lambda n: n.votes(np.array([[np.nan, 1]]), np.zeros(1, int)), "features of record 0 are not finite"),
        (lambda n: n.votes(np.ones((1, 2)), np.array([7])), "labels must be whole numbers"),
        (lambda n: n.votes(np.ones((1, 3)), np.array([0])), "records must have the 2 features"),
        (lambda n: NearestRecords(np.full((1, 2), np.inf), neighbours=1, classes=2), "query 0 are not finite"),
        (lambda n: NearestRecords(np.ones((1, 2)), neighbours=0, classes=2), "neighbours must be"),
        (lambda n: NearestRecords(np.ones((1, 1 << 22)), neighbours=1, classes=1 << 20), "take fewer features"),
        (lambda n: NearestRecords(np.ones((1, 2)), neighbours=1, classes=2, distance="l1"), "distance must be one of"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(act, line):
    with pytest.raises(InputError, match=line) as refused:
        act(NearestRecords(np.ones((2, 2)), neighbours=1, classes=2))
    assert "\n" not in str(refused.value)
