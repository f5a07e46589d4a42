"""Votes of nearest records: one record exchanges at most one neighbour, whatever the data."""

import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import examples_from_arrays, from_arrays
from sfumato.models import HOG
from sfumato.voting import KNNDPFL
from sfumato.voting import neighbours as module
from sfumato.voting.neighbours import NearestRecords, NeighbourVoter
from sfumato.voting.question import ballot_of
from slow import by_profile

# Agents and queries become votes of nearest records.


def pictures(rng, count):
    return rng.integers(0, 256, (count, 16, 16, 1)).astype(np.uint8)


def voter(*, rows=30, k=3, labels=None, **settings):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, rows) if labels is None else labels
    agents = from_arrays(pictures(rng, rows), labels=labels, users=np.arange(rows) % 3)
    return NeighbourVoter(agents, examples_from_arrays(pictures(rng, 5)), neighbours=k, **settings)


@pytest.mark.parametrize("features", ["pixels", "hog", "scattering"])
def test_votes_are_shares_of_k_that_add_up_to_one(features):
    asked = voter(features=features)
    votes = asked.votes(2)
    assert votes.shape == (5, 3)
    assert votes.dtype == np.float64
    assert np.allclose(votes.sum(axis=1), 1)
    assert np.allclose(votes * 3, np.rint(votes * 3))


def test_a_module_of_ones_own_votes_as_its_name_does():
    assert np.array_equal(voter(features=HOG((1, 16, 16))).votes(0), voter(features="hog").votes(0))


def test_attributes_are_voted_on():
    rows = np.random.default_rng(2).random((30, 4)) < 0.5
    votes = voter(labels=rows).votes(1)
    assert votes.shape == (5, 4)
    assert set(np.rint(votes * 3).reshape(-1).tolist()) <= {0, 1, 2, 3}
    assert (votes.sum(axis=1) > 1).any()


@pytest.mark.parametrize("attributes", [1, 3, 10])
@pytest.mark.parametrize("k", [1, 8, 37])
def test_one_record_moves_a_ballot_of_attributes_by_no_more_than_is_accounted(attributes, k):
    """Brute force over what one of k neighbours may hold, beside others that hold little or much."""
    plan = KNNDPFL(neighbours=k, noise_std=1.0, queries=1, attributes=attributes).with_attributes(10)
    asked = plan.question(agents=2, classes=10, units=plan.units(hard=False), one_hot=False)
    queries = examples_from_arrays(np.zeros((1, 1), np.float32))

    def ballot(others, last):
        rows = np.zeros((k, 10), bool)
        rows[:-1, :others], rows[-1, :last] = True, True
        agents = from_arrays(np.zeros((2 * k, 1), np.float32), labels=np.tile(rows, (2, 1)), users=np.repeat([0, 1], k))
        ready = SimpleNamespace(agents=agents, pool=queries, queries=np.array([0]), how="pixels", device="cpu")
        voter = plan.voter(ready, RandomSource.from_seed(0))
        return ballot_of(asked, "0", voter.votes(0))[0] / asked.units

    allowed = plan.answer_event().sensitivity("replace")
    for others in (0, 1, 4, 10):
        ballots = np.array([ballot(others, last) for last in range(11)])
        moved = np.linalg.norm(ballots[:, None] - ballots[None], axis=2).max()
        assert 0 < moved <= allowed + 1e-12


def test_a_ballot_counts_every_neighbour_similar():
    """From 37 neighbours on, votes in single precision were rounded to one neighbour fewer here and there."""
    for k in (37, 100, 1000):
        records = np.arange(2 * k, dtype=np.float32)[:, None]
        queries = np.arange(0, k, max(1, k // 37), dtype=np.float32)[:, None]  # each sees another share of class 1
        nearest = NearestRecords(queries, neighbours=k, classes=2)
        votes = nearest.votes(records, (np.arange(2 * k) % 3 == 0).astype(int))
        plan = KNNDPFL(neighbours=k, noise_std=1.0, queries=len(queries))
        asked = plan.question(agents=2, classes=2, units=plan.units(hard=False), one_hot=False)
        assert (ballot_of(asked, "a", votes).sum(axis=1) == asked.units).all()


def test_threads_that_ask_at_once_leave_a_module_in_evaluation_mode():
    """A module that was given in training mode would otherwise be put back into it while another thread reads."""

    class Seen(nn.Module):
        modes: ClassVar[set[bool]] = set()

        def forward(self, rows):
            self.modes.add(self.training)
            return rows.flatten(1)

    given = Seen().train()
    asked = voter(features=given)
    with ThreadPoolExecutor(3) as workers:
        list(workers.map(asked.votes, [0, 1, 2] * 20))
    assert Seen.modes == {False}
    assert given.training
    assert not asked._module.training


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, rows):
        self.calls += 1
        return rows.flatten(1) + self.calls


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(256))

    def forward(self, rows):
        self.mean.mul_(0.9).add_(0.1 * rows.flatten(1).mean(0))
        return rows.flatten(1) - self.mean


class Draws(nn.Module):
    def forward(self, rows):
        return rows.flatten(1) + torch.rand(())


@pytest.mark.parametrize("kind", [Counts, Remembers, Draws])
def test_features_that_depend_on_what_came_before_are_refused(kind):
    with pytest.raises(InputError, match="with the order of queries"):
        voter(features=kind())


def test_an_agent_with_fewer_than_k_records_still_divides_by_k():
    assert np.allclose(voter(k=20, few_records="share").votes(0).sum(axis=1), 10 / 20)


def test_a_view_of_an_agent_without_records_abstains():
    agents = from_arrays(np.zeros((3, 2)), labels=[0, 0, 1], users=["a", "a", "b"]).select_classes([1], renumber=False)
    asked = NeighbourVoter(agents, examples_from_arrays(np.zeros((2, 2))), neighbours=4, few_records="share")
    assert asked.votes(0).sum(axis=1).tolist() == [0.25, 0.25]


def test_the_fingerprint_covers_what_decides_votes():
    torch.manual_seed(1)
    one, other = nn.Flatten(), nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
    prints = [
        voter().fingerprint(),
        voter(k=4).fingerprint(),
        voter(distance="cosine").fingerprint(),
        voter(features="hog").fingerprint(),
        voter(features=one).fingerprint(),
        voter(features=other).fingerprint(),
    ]
    with torch.no_grad():
        other[1].bias += 1e-6
    prints.append(voter(features=other).fingerprint())
    assert len(set(prints)) == len(prints)
    assert voter().fingerprint() == prints[0]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"k": 11}, r"agent 0 has 10 records, fewer than neighbours=11 \(and 2 more .*few_records=\"share\""),
        ({"labels": np.linspace(0, 1, 30)}, "labels are values"),
        ({"features": "sift"}, "features must be one of pixels, hog, scattering, got sift"),
        ({"few_records": "drop"}, "few_records must be one of"),
        ({"k": 0}, "neighbours must be a whole number"),
    ],
)
def test_what_cannot_vote_is_refused_in_one_line(settings, line):
    with pytest.raises(InputError, match=line) as refused:
        voter(**settings)
    assert "\n" not in str(refused.value)


def test_an_agent_whose_features_are_not_finite_is_named():
    agents = from_arrays(np.array([[np.nan], [1.0]]), labels=[0, 1], users=["ann", "bob"])
    asked = NeighbourVoter(agents, examples_from_arrays(np.ones((2, 1))), neighbours=1)
    with pytest.raises(InputError, match="agent ann: the features of record 0 are not finite"):
        asked.votes(0)
    assert asked.votes(1).tolist() == [[0, 1]] * 2


def test_queries_of_another_shape_are_refused():
    agents = from_arrays(np.zeros((2, 3)), labels=[0, 1], users=[0, 1])
    with pytest.raises(InputError, match="agents' shape"):
        NeighbourVoter(agents, examples_from_arrays(np.zeros((2, 4))), neighbours=1)


# One record exchanges at most one neighbour, whatever the data: the sentence that √2/k stands on.

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
    own = nearest._augmented(nearest._lattice(records), labels)
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
