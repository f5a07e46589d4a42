import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.vote import NoisyVote
from sfumato.accounting.votes import VoteSensitivity, vote_cost

spec = importlib.util.spec_from_file_location("exact", Path(__file__).with_name("exact.py"))
exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exact)

AGENTS = 9


def all_counts(adjacency):
    sizes = [AGENTS] if adjacency == "replace" else range(AGENTS + 1)
    return [c for c in itertools.product(range(AGENTS + 1), repeat=3) if sum(c) in sizes]


def steps(here, there, adjacency):
    """How many agents lie between two counts."""
    apart = sum(abs(a - b) for a, b in zip(here, there, strict=True))
    return apart // 2 if adjacency == "replace" else apart


@pytest.mark.parametrize("bound", ["best", "theorem6"])
@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize(("noise_std", "order"), [(0.8, 3.0), (1.5, 2.0), (3.0, 8.0)])
def test_local_sensitivity_covers_every_change_within_reach(noise_std, order, adjacency, bound):
    sensitivity = VoteSensitivity(NoisyVote(noise_std), adjacency, classes=3, order=order, bound=bound)
    everything = all_counts(adjacency)
    cost = {counts: sensitivity.cost([counts]) for counts in everything}
    change = {
        here: max(
            (abs(cost[here] - cost[tuple(map(int, there))])
             for there in exact.neighbours(np.array(here), adjacency) if tuple(map(int, there)) in cost),
            default=0.0,
        )
        for here in everything
    }  # fmt: skip
    for here in everything[:: max(1, len(everything) // 25)]:
        local = sensitivity.local([here], 6)
        for distance in range(6):
            within = [change[there] for there in everything if steps(here, there, adjacency) <= distance]
            assert local[distance] >= max(within) * (1 - 1e-9)
        assert (np.diff(local) >= 0).all()


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("beta", [0.02, 0.2])
def test_smooth_sensitivity_is_smooth_and_covers_the_change(adjacency, beta):
    sensitivity = VoteSensitivity(NoisyVote(1.5), adjacency, classes=3, order=2.0)
    everything = all_counts(adjacency)[::3]
    for here in everything:
        smooth, cost = sensitivity.smooth([here], beta), sensitivity.cost([here])
        for there in exact.neighbours(np.array(here), adjacency):
            other = sensitivity.smooth([there], beta)
            assert abs(math.log(smooth / other)) <= beta * (1 + 1e-9)
            assert abs(cost - sensitivity.cost([there])) <= min(smooth, other) * (1 + 1e-9)


def test_a_unit_may_change_its_vote_in_every_query():
    sensitivity = VoteSensitivity(NoisyVote(2.0), "replace", classes=3, order=4.0)
    votes = [[8, 1, 0], [3, 3, 3], [0, 9, 0]]
    together = sensitivity.local(votes, 12)
    assert together == pytest.approx(sum(sensitivity.local([v], 12) for v in votes), rel=1e-12)
    assert sensitivity.cost(votes) == pytest.approx(sum(sensitivity.cost([v]) for v in votes), rel=1e-12)


def test_the_step_function_lies_close_above_the_cost():
    rng = np.random.default_rng(1)
    votes = rng.multinomial(250, rng.dirichlet(np.full(10, 0.1), size=100))
    exact_cost = vote_cost(votes, NoisyVote(40.0), "replace", orders=(20.0,)).renyi().value[0]
    stepped = VoteSensitivity(NoisyVote(40.0), "replace", classes=10, order=20.0).cost(votes)
    assert exact_cost <= stepped * (1 + 1e-12)
    assert stepped <= exact_cost * 1.001


def test_an_example_of_an_agent_with_many_neighbours_moves_less():
    votes = np.tile([180.0, 40.0, 30.0], (10, 1))
    one, many = (
        VoteSensitivity(NoisyVote(20.0, "instance", k), "replace", classes=3, order=5.0).local(votes, 3).max()
        for k in (1, 10)
    )
    assert many < one / 5


def test_what_has_no_sensitivity_is_refused():
    event = NoisyVote(4.0)
    with pytest.raises(Unknown, match="no single winner"):
        VoteSensitivity(NoisyVote(4.0, attributes=2), "replace", classes=3, order=2.0)
    with pytest.raises(InputError, match="too large"):
        VoteSensitivity(NoisyVote(1e9), "replace", classes=3, order=2.0)
    with pytest.raises(InputError, match="classes"):
        VoteSensitivity(event, "replace", classes=1, order=2.0)
    with pytest.raises(InputError, match="order"):
        VoteSensitivity(event, "replace", classes=3, order=1.0)
    sensitivity = VoteSensitivity(event, "replace", classes=3, order=2.0)
    with pytest.raises(InputError, match="3 classes"):
        sensitivity.cost([[1.0, 2.0]])
    for beta in (0.0, -1.0, 1e-9):
        with pytest.raises(InputError, match="beta"):
            sensitivity.smooth([[5, 1, 0]], beta)
