import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.votes import NoisyVote
from sfumato.voting.data_dependent import VoteSensitivity, release_renyi, vote_cost

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


def electorates(agents, classes, most=None):
    """All counts in falling order: neither the cost nor its sensitivity depends on which class is which."""
    most = agents if most is None else most
    if classes == 1:
        return [(agents,)] if agents <= most else []
    return [
        (first, *rest)
        for first in range(min(agents, most), -1, -1)
        for rest in electorates(agents - first, classes - 1, first)
    ]


def check_release(sensitivity, counts, beta, weight=1.0):
    """Any two neighbours: S is smooth and covers the change, and the release costs at most what is claimed."""
    noise = {"cost_noise": 9.0, "sensitivity_noise": 7.0}
    order = sensitivity.order
    claimed = release_renyi(order, beta=beta, **noise)
    known = {}

    def numbers(votes):
        votes = tuple(sorted(votes))
        if votes not in known:
            scaled = [[weight * count for count in votes]]
            known[votes] = sensitivity.smooth(scaled, beta), sensitivity.cost(scaled)
        return known[votes]

    for here in counts:
        (smooth, cost) = numbers(here)
        for there in exact.neighbours(np.array(here), sensitivity.adjacency):
            other, other_cost = numbers(there)
            assert abs(math.log(smooth / other)) <= beta * (1 + 1e-9), (here, there)
            assert abs(cost - other_cost) <= min(smooth, other) * (1 + 1e-9), (here, there)
            ratio = (other / smooth) ** 2
            mixed = 1 + order * (ratio - 1)
            assert mixed > 0, (here, there)
            shift = order * ((cost - other_cost) / smooth / noise["cost_noise"]) ** 2 / (2 * mixed)
            spread = 0.5 * math.log(ratio) + 0.5 * math.log(ratio / mixed) / (order - 1)
            scale = order * (math.log(smooth / other) / beta / noise["sensitivity_noise"]) ** 2 / 2
            assert shift + spread + scale <= claimed * (1 + 1e-9), (here, there)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove", "zero_out"])
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize(
    ("noise_std", "order", "beta"), [(2.0, 20.0, 0.01), (0.7, 3.0, 0.05), (4.0, 8.0, 0.02), (1.5, 2.0, 0.2)]
)
def test_the_cost_of_any_small_electorate_can_be_released(noise_std, order, beta, classes, adjacency):
    sensitivity = VoteSensitivity(NoisyVote(noise_std), adjacency, classes=classes, order=order)
    check_release(sensitivity, [c for agents in range(1, 13) for c in electorates(agents, classes)], beta)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("agents", [20, 40, 50, 100])
def test_the_cost_of_a_larger_electorate_can_be_released(agents, adjacency):
    for classes, step in ((2, 1), (3, 7)):
        sensitivity = VoteSensitivity(NoisyVote(2.0), adjacency, classes=classes, order=20.0)
        check_release(sensitivity, electorates(agents, classes)[::step], beta=0.01)


def test_the_cost_of_votes_of_neighbours_can_be_released():
    sensitivity = VoteSensitivity(NoisyVote(1.0, "instance", 3), "replace", classes=3, order=6.0)
    check_release(sensitivity, [c for n in range(1, 13) for c in electorates(n, 3)], beta=0.03, weight=1 / 3)


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
