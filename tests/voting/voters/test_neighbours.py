"""Agents and queries become votes of nearest records."""

from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import examples_from_arrays, from_arrays
from sfumato.models import HOG
from sfumato.voting import KNNDPFL
from sfumato.voting.neighbours import NearestRecords, NeighbourVoter
from sfumato.voting.question import ballot_of


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
        voter = plan.voter(agents, queries, np.array([0]), "pixels", RandomSource.from_seed(0), "cpu")
        return ballot_of(asked, "0", voter.votes(0))[0] / asked.units

    allowed = plan.answer_event().sensitivity("replace")
    for others in (0, 1, 4, 10):
        ballots = np.array([ballot(others, last) for last in range(11)])
        moved = np.linalg.norm(ballots[:, None] - ballots[None], axis=2).max()
        assert 0 < moved <= allowed + 1e-12


def test_a_ballot_counts_every_neighbour_alike():
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
    with pytest.raises(InputError, match="in another order"):
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
