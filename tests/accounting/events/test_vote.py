import itertools
import math

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.accounting.events.event import Unknown, event_from_json
from sfumato.accounting.events.votes import NoisyVote, VoteThreshold, honest_noise_std
from sfumato.accounting.gaussian_curve import GaussianAccountant, gaussian_epsilon

ADJACENCIES = ("add_remove", "replace", "zero_out")


def frequencies(points, labels, query, k, classes):
    """An agent's vote by its definition: labels of the nearest k, each with weight 1/k."""
    nearest = sorted(range(len(points)), key=lambda i: (abs(points[i] - query), i))[:k]
    return np.bincount([labels[i] for i in nearest], minlength=classes) / k


def distances(before, after):
    return max(float(np.linalg.norm(x - y)) for x, y in itertools.product(before, after))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_an_agent_moves_the_counts_by_its_sensitivity_and_no_more(adjacency):
    classes = 4
    one_class = list(np.eye(classes))
    shares = [np.array(share) / 3 for share in itertools.product(range(4), repeat=classes) if sum(share) == 3]
    nothing = [np.zeros(classes)]
    for event, votes in ((NoisyVote(1.0), one_class), (NoisyVote(1.0, neighbours=3), shares)):
        others = votes if adjacency == "replace" else nothing
        assert event.sensitivity(adjacency) == pytest.approx(distances(votes, others), rel=1e-12)


def test_one_example_of_an_agent_that_votes_for_a_class_may_turn_its_vote():
    for adjacency in ADJACENCIES:
        assert NoisyVote(1.0, "instance").sensitivity(adjacency) == distances(np.eye(3), np.eye(3))


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_one_example_moves_the_vote_of_neighbours_by_root_two_over_k_and_no_more(size):
    k, classes, query = 3, 2, 0.0
    rng = np.random.default_rng(size)
    most = {"replace": 0.0, "add_remove": 0.0}
    for _ in range(60):
        points, labels = rng.normal(size=size).tolist(), rng.integers(classes, size=size).tolist()
        vote = frequencies(points, labels, query, k, classes)
        for i in range(size):
            rest = points[:i] + points[i + 1 :], labels[:i] + labels[i + 1 :]
            removed = frequencies(*rest, query, k, classes)
            most["add_remove"] = max(most["add_remove"], float(np.linalg.norm(vote - removed)))
            for point, label in itertools.product((0.01, 9.0), range(classes)):
                other = frequencies(rest[0] + [point], rest[1] + [label], query, k, classes)
                most["replace"] = max(most["replace"], float(np.linalg.norm(vote - other)))
    event = NoisyVote(1.0, "instance", neighbours=k)
    assert event.sensitivity("replace") == pytest.approx(most["replace"], rel=1e-12)
    assert event.sensitivity("add_remove") >= most["add_remove"] - 1e-12
    if size > k:
        assert event.sensitivity("add_remove") == pytest.approx(most["add_remove"], rel=1e-12)


def test_clipping_to_a_number_of_attributes_bounds_the_norm_by_its_root():
    limit, attributes = 2, 5
    raw = [np.array(bits, dtype=float) for bits in itertools.product((0, 1), repeat=attributes)]
    kept = [vote for vote in raw if vote.sum() <= limit]
    scaled = [vote * min(1.0, limit / max(vote.sum(), 1e-9)) for vote in raw]
    event = NoisyVote(1.0, attributes=limit)
    for votes in (kept, scaled):
        assert distances(votes, [np.zeros(attributes)]) == pytest.approx(event.sensitivity("zero_out"), rel=1e-12)
        assert distances(votes, votes) == pytest.approx(event.sensitivity("replace"), rel=1e-12)
    neighbours = NoisyVote(1.0, "instance", neighbours=4, attributes=limit)
    assert neighbours.sensitivity("replace") == pytest.approx(distances(kept, kept) / 4, rel=1e-12)


def test_the_highest_count_moves_by_one_vote_at_most_also_under_replacement():
    agents, classes = 4, 3
    one_class = np.eye(classes)
    most = dict.fromkeys(ADJACENCIES, 0.0)
    for rest in itertools.product(range(classes), repeat=agents - 1):
        counts = one_class[list(rest)].sum(axis=0)
        highest = [float((counts + vote).max()) for vote in one_class]
        most["replace"] = max(most["replace"], max(highest) - min(highest))
        for adjacency in ("add_remove", "zero_out"):
            most[adjacency] = max(most[adjacency], max(highest) - float(counts.max()))
    for adjacency in ADJACENCIES:
        assert VoteThreshold(1.0).sensitivity(adjacency) == most[adjacency]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_many_queries_are_one_gaussian_release(adjacency):
    event = NoisyVote(25.0, neighbours=7) * 500
    shift = math.sqrt(500) / 25.0 * (math.sqrt(2) if adjacency == "replace" else 1.0)
    assert GaussianAccountant(event, adjacency).epsilon(1e-5) == pytest.approx(gaussian_epsilon(shift, 1e-5), rel=1e-9)


def test_the_printed_costs_are_those_of_the_paper():
    sigma, k = 30.0, 5
    assert NoisyVote(sigma).printed_rho() == pytest.approx(1 / (2 * sigma**2))
    assert NoisyVote(sigma, neighbours=k).printed_rho() == pytest.approx(1 / (2 * sigma**2))
    assert NoisyVote(sigma, "instance").printed_rho() == pytest.approx(1 / sigma**2)
    assert NoisyVote(sigma, "instance", k).printed_rho() == pytest.approx(1 / (k * sigma**2))
    assert NoisyVote(sigma, "instance", k).rho("replace") == pytest.approx(1 / (k * sigma) ** 2)


def test_the_noise_that_is_left_is_that_of_the_honest_agents():
    agents, missing, std = 50, 8, 40.0
    share = std / math.sqrt(agents)
    assert honest_noise_std(std, agents, missing) == pytest.approx(math.sqrt((agents - missing) * share**2), rel=1e-12)
    assert honest_noise_std(std, agents, 0) == std
    with pytest.raises(InputError, match="let the talliers add the noise"):
        honest_noise_std(std, agents, agents)


@pytest.mark.parametrize("event", [NoisyVote(4.0), NoisyVote(4, "instance", 8, 3), VoteThreshold(2.0, "instance", 5)])
def test_votes_survive_json(event):
    assert event_from_json((event * 7).to_json()) == event * 7


def test_sampling_is_refused_with_the_remedy():
    with pytest.raises(Unknown, match=r"Gaussian\(noise_std\)\.poisson"):
        NoisyVote(4.0).poisson(0.1)
    with pytest.raises(Unknown):
        NoisyVote(4.0).without_replacement(1, 10)


@pytest.mark.parametrize(
    "arguments",
    [(0.0,), (-1.0,), (math.nan,), (math.inf,), ("4",), (1.0, "user"), (1.0, "agent", 0), (1.0, "agent", 2, 1.5)],
)
def test_impossible_votes_are_refused(arguments):
    with pytest.raises(InputError):
        NoisyVote(*arguments)


def test_an_unknown_adjacency_is_refused():
    with pytest.raises(InputError, match="adjacency"):
        NoisyVote(1.0).rho("swap")
