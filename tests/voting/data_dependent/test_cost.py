import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.accounting.accountants import ORDERS, RdpAccountant
from sfumato.accounting.events.event import Unknown
from sfumato.accounting.events.gaussian import Gaussian
from sfumato.accounting.events.votes import NoisyVote, VoteThreshold
from sfumato.ledger import Ledger
from sfumato.statement.statement import Statement
from sfumato.voting.data_dependent import NotPrivate, VoteSensitivity, threshold_cost, vote_cost

CLEAR = np.tile([250.0] + [0.0] * 9, (100, 1))
EVENT = NoisyVote(40.0)


def statement(**changes):
    fields = {"unit": "agent", "adjacency": "replace", "epsilon": 1.0, "delta": 1e-5, "sampling": "none"}
    return Statement(**(fields | {"mechanism": "noisy votes", "noise_source": "CSPRNG"} | changes))


def test_a_statement_cannot_carry_it():
    number = vote_cost(CLEAR, EVENT, "replace").epsilon(1e-5)
    for field in ("epsilon", "delta", "epsilon_lower"):
        with pytest.raises(InputError) as error:
            statement(**{field: number})
        assert "private" in str(error.value).lower()
        assert "\n" not in str(error.value)


def test_it_becomes_a_number_nowhere_by_accident(tmp_path):
    number = vote_cost(CLEAR, EVENT, "replace").epsilon(1e-5)
    assert not isinstance(number, float)
    digits = f"{number.value:.3f}"
    for shown in (repr(number), str(number), f"{number}", json.dumps(number, default=str)):
        assert digits not in shown
        assert "not private" in shown
    for convert in (float, math.isinf, np.float64, lambda x: np.array([x], dtype=float), math.exp):
        with pytest.raises(InputError, match="computed from private votes"):
            convert(number)
    for arithmetic in (lambda x: x + 1, lambda x: 2 * x, lambda x: x < 3, round, int, sum):
        with pytest.raises(TypeError):
            arithmetic(number)
    with pytest.raises(TypeError):
        json.dumps(number)
    for name in ("epsilon", "cost"):
        with pytest.raises(InputError, match="NotPrivate"):
            statement(alternatives=({"name": "votes", name: number},))
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        with pytest.raises(InputError, match="JSON"):
            ledger.append(EVENT, epsilon=number)
        assert len(ledger) == 0
    with pytest.raises(InputError):
        Gaussian(number)  # pyright: ignore[reportArgumentType]


def test_what_a_statement_may_say_of_it_holds_no_number():
    cost = vote_cost(CLEAR, EVENT, "replace")
    marked = statement(alternatives=(cost.marker(),))
    assert "not private" in " ".join(marked.text().split())
    assert f"{cost.epsilon(1e-5).value:.3f}" not in json.dumps(marked.to_json())
    assert str(cost.renyi().value[10])[:6] not in repr(cost)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace", "zero_out"])
@pytest.mark.parametrize(
    "event", [EVENT, NoisyVote(40.0, neighbours=8), NoisyVote(4.0, "instance", 8), NoisyVote(60.0, "instance")]
)
def test_votes_never_cost_more_than_the_event(event, adjacency):
    rng = np.random.default_rng(3)
    votes = rng.multinomial(250, rng.dirichlet(np.full(6, 0.3), size=200))
    cost = vote_cost(votes, event, adjacency)
    account = RdpAccountant(event * 200, adjacency)
    assert (cost.renyi().value <= account.values * (1 + 1e-9)).all()
    assert cost.epsilon(1e-6).value <= account.epsilon(1e-6) * (1 + 1e-9)
    assert cost.queries == 200


@given(st.integers(0, 120), st.integers(1, 5), st.sampled_from(["theorem6", "theorem7", "tradeoff", "best"]))
def test_a_wider_margin_costs_no_more(rival, change, bound):
    narrow, wide = ([250.0 - r, float(r)] + [0.0] * 3 for r in (rival, max(0, rival - change)))
    orders = (1.5, 4.0, 20.0)
    costs = [vote_cost(v, EVENT, "replace", orders=orders, bound=bound).renyi().value for v in (narrow, wide)]
    assert (costs[1] <= costs[0] * (1 + 1e-6)).all()


def test_queries_add_up_in_any_order():
    rng = np.random.default_rng(5)
    votes = rng.multinomial(250, [0.8, 0.1, 0.1], size=50)
    parts = vote_cost(votes[:20], EVENT, "replace") + vote_cost(votes[20:], EVENT, "replace")
    whole = vote_cost(rng.permuted(votes, axis=1)[::-1], EVENT, "replace")
    assert parts.renyi().value == pytest.approx(whole.renyi().value, rel=1e-12)
    assert parts.queries == 50
    with pytest.raises(InputError, match="adjacency"):
        parts + vote_cost(votes, EVENT, "add_remove")
    with pytest.raises(InputError, match="level"):
        parts + vote_cost(votes, NoisyVote(40.0, "instance"), "replace")


def test_the_threshold_costs_least_far_from_it():
    event = VoteThreshold(30.0)
    near, far = (threshold_cost([[top, 0.0, 0.0]], 200.0, event, "replace").renyi().value for top in (201.0, 20.0))
    worst = np.array(ORDERS) * event.rho("replace")
    assert (far <= near).all()
    assert (near <= worst).all()
    low = np.array(ORDERS) < 8
    assert (far[low] < 1e-3 * worst[low]).all()


def test_the_threshold_bound_holds_for_both_outcomes():
    from scipy.special import log_ndtr

    event, orders = VoteThreshold(10.0), (1.5, 3.0, 10.0)
    for top in (150.0, 185.0, 200.0, 230.0):
        bound = threshold_cost([[top, 1.0]], 200.0, event, "replace", orders=orders).renyi().value
        here = np.array([log_ndtr(s * (top - 200.0) / 10.0) for s in (1, -1)])
        for change in (-1, 1):
            there = np.array([log_ndtr(s * (top + change - 200.0) / 10.0) for s in (1, -1)])
            for order, value in zip(orders, bound, strict=True):
                assert value >= np.logaddexp.reduce(order * here + (1 - order) * there) / (order - 1) - 1e-12


def test_no_delta_and_full_delta_are_answered():
    cost = vote_cost(CLEAR, EVENT, "replace")
    assert cost.epsilon(0.0).value == math.inf
    assert cost.epsilon(1.0).value == 0.0
    assert isinstance(cost.epsilon(0.5), NotPrivate)


def test_what_cannot_be_costed_is_refused():
    with pytest.raises(Unknown, match="no single winner"):
        vote_cost(CLEAR, NoisyVote(4.0, attributes=3), "replace")
    with pytest.raises(InputError, match="NoisyVote"):
        vote_cost(CLEAR, Gaussian(1.0), "replace")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="VoteThreshold"):
        threshold_cost(CLEAR, 10.0, EVENT, "replace")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="orders"):
        vote_cost(CLEAR, EVENT, "replace", orders=(1.0,))
    with pytest.raises(InputError, match="bound"):
        vote_cost(CLEAR, EVENT, "replace", bound="theorem8")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", [10**400, None, "x", object(), {}, np.array("x"), [[10**400, 1]]])
def test_what_is_no_number_is_refused_as_a_mistake(wrong):
    event, comparison = NoisyVote(2.0), VoteThreshold(2.0)
    calls = [
        lambda: vote_cost(wrong, event, "replace"),
        lambda: vote_cost([5, 1], wrong, "replace"),
        lambda: vote_cost([5, 1], event, "replace", step=wrong),
        lambda: vote_cost([5, 1], event, "replace", orders=wrong),
        lambda: vote_cost([5, 1], event, "replace", noise_std=wrong if wrong is not None else "x"),
        lambda: threshold_cost(wrong, 3.0, comparison, "replace"),
        lambda: threshold_cost([5, 1], 3.0, comparison, "replace", step=wrong),
        lambda: VoteSensitivity(wrong, "replace", classes=2, order=3.0),
        lambda: VoteSensitivity(event, "replace", classes=2, order=3.0, step=wrong),
        lambda: VoteSensitivity(event, "replace", classes=2, order=3.0).smooth(wrong, 0.1),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()


def test_arrays_without_axes_are_numbers_but_no_lists():
    event = NoisyVote(2.0)
    cost = vote_cost([5, 1], event, "replace", noise_std=np.array(3.0), step=np.array(1.0))
    assert cost.renyi().value.shape == (len(cost.orders),)
    for wrong in (np.array(3.0), np.array(None)):
        with pytest.raises(InputError):
            vote_cost([5, 1], event, "replace", orders=wrong)
        with pytest.raises(InputError):
            vote_cost(wrong, event, "replace")
