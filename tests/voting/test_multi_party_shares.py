"""Shares hide what they share, and one tallier's box refuses what is no share of a ballot."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.mechanisms.discrete import lattice_variance
from sfumato.voting.multi_party.engine import compared_bits, share_variance
from sfumato.voting.multi_party.messages import parse
from sfumato.voting.multi_party.shares import FIELD, Box, top_coefficients
from slow import by_profile
from talliers import one_hot, question

P = FIELD.modulus


def split(values, parties=3, label="x"):
    stream = RandomSource.from_seed(1).stream("ballot shares", label)
    return FIELD.split(np.asarray(values, np.int64), parties, (parties - 1) // 2, stream)


def joined(points: dict[int, np.ndarray]) -> np.ndarray:
    """Lagrange at 0, written down anew."""
    total = 0
    for x, share in points.items():
        weight = 1
        for other in points:
            if other != x:
                weight = weight * -other * pow(x - other, -1, P) % P
        total = total + share * weight
    return total % P


@settings(deadline=None, max_examples=by_profile(30))
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=9), st.sampled_from([3, 5, 7]))
def test_any_majority_of_shares_gives_the_numbers_back(values, parties):
    shares = [FIELD.numbers(each) for each in split(values, parties)]
    for chosen in itertools.combinations(range(parties), (parties + 1) // 2):
        assert joined({k + 1: shares[k] for k in chosen}).tolist() == values


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_share_is_uniform_in_the_field(place):
    """Chi-square of the highest and the lowest five bits; false alarms 1e-4."""
    numbers = FIELD.numbers(split(np.full(20_000, 16))[place])
    for bits in (numbers >> 84, numbers & 31):
        assert stats.chisquare(np.bincount(bits.astype(int), minlength=32)).pvalue > 1e-4


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=3, max_size=3))
def test_limbs_that_grew_are_reduced_as_whole_numbers_are(limbs):
    value = sum(limb << (32 * k) for k, limb in enumerate(limbs))
    reduced = FIELD.reduced(np.array([limbs], np.uint64))
    assert FIELD.numbers(reduced)[0] == value % P


def test_numbers_travel_unchanged_and_the_modulus_is_out_of_the_field():
    numbers = np.array([0, 1, 2**64 - 1, P - 1], object)
    assert (FIELD.numbers(FIELD.limbs_of(FIELD.to_bytes(numbers))) == numbers).all()
    wrong = FIELD.limbs_of(FIELD.to_bytes(np.array([P - 1, P, 2**90], object)))
    assert FIELD.within(wrong).tolist() == [True, False, False]


def boxes(asked, parties=3):
    return [Box(asked, FIELD, place=k, talliers=parties, coins=bytes(32)) for k in range(1, parties + 1)]


def cast(ballots, asked, parties=3):
    filled = boxes(asked, parties)
    for name, ballot in ballots:
        for box, share in zip(filled, split(ballot.reshape(-1), parties, name)):
            box.add(name, share.tobytes())
    return filled


def checked(filled) -> list[int]:
    """The value that is opened as 0 or not, for each agent."""
    weights = top_coefficients(P, len(filled))[0]
    return [sum(w * box.seen[name] for w, box in zip(weights, filled)) % P for name in filled[0].seen]


@pytest.mark.parametrize("parties", [3, 5])
def test_boxes_hold_shares_of_the_sum_and_pass_ballots_in_range(parties):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    ballots[1][1][3:7] = 0
    filled = cast(ballots, asked, parties)
    shares = {k: box.share() for k, box in enumerate(filled, 1)}
    assert joined(shares).tolist() == sum(b for _, b in ballots).reshape(-1).tolist()
    assert checked(filled) == [0] * 6


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b.__setitem__((0, 0), 3 * 16),
        lambda b: b.__setitem__((4, slice(None)), 16),
        lambda b: b.__setitem__((7, 2), 1),
        lambda b: b.__setitem__(0, [8, 8, 0, 0, 0]),
    ],
)
def test_the_check_finds_every_ballot_that_is_not_one_vote(spoil):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    spoil(ballots[2][1])
    assert [value != 0 for value in checked(cast(ballots, asked))] == [False, False, True, False, False, False]


@pytest.mark.parametrize("parties", [3, 5])
def test_the_check_finds_shares_that_lie_on_no_polynomial(parties):
    """Chosen so that v(v − u) is 0 at 0 all the same, for the polynomial of degree m − 1 through all shares."""
    asked = question(one_hot=True, agents=2, queries=1, classes=2)
    weights, units, rng = top_coefficients(P, parties)[0], 16, np.random.default_rng(0)
    while True:  # the last share is a root of a quadratic equation, which half of all have
        first = [int(x) for x in rng.integers(1, 2**60, parties - 1)]
        rest = sum(w * s * (s - units) for w, s in zip(weights, first)) * pow(weights[-1], -1, P)
        square = (units * units // 4 - rest) % P
        root = pow(square, (P + 1) // 4, P)
        if root * root % P == square:
            break
    shares = [*first, (units // 2 + root) % P]
    assert sum(w * s * (s - units) for w, s in zip(weights, shares)) % P == 0
    filled = boxes(asked, parties)
    for box, share in zip(filled, shares):
        box.add("agent", FIELD.to_bytes(np.array([share, 0], object)))
    assert checked(filled)[0] != 0


def test_a_box_refuses_what_is_no_share_of_a_ballot():
    asked = question(agents=2)
    box = boxes(asked)[0]
    share = split(one_hot(asked)[0][1].reshape(-1))[0]
    box.add("a", share.tobytes())
    with pytest.raises(InputError, match="'a' votes twice"):
        box.add("a", share.tobytes())
    with pytest.raises(InputError, match="has 1800 bytes, got 1788"):
        box.add("b", share[1:].tobytes())
    with pytest.raises(InputError, match="out of the field"):
        box.add("b", FIELD.to_bytes(np.full(150, P, object)))
    box.add("b", share.tobytes())
    with pytest.raises(InputError, match="'c' is one too many"):
        box.add("c", share.tobytes())


def test_a_box_has_the_digest_of_what_it_was_sent_in_any_order():
    asked = question()
    ballots = one_hot(asked)
    assert cast(ballots, asked)[0].digest == cast(ballots[::-1], asked)[0].digest
    ballots[0][1][0] = np.roll(ballots[0][1][0], 1)
    assert cast(one_hot(asked), asked)[0].digest != cast(ballots, asked)[0].digest


@pytest.mark.parametrize("talliers", [3, 5, 7])
def test_the_noise_of_the_honest_talliers_is_what_is_accounted(talliers):
    honest = talliers - (talliers - 1) // 2
    assert share_variance(40.0, talliers) * honest == lattice_variance(40.0)


def test_compared_numbers_have_room_for_all_counts_and_thirty_std_of_noise():
    asked = question(agents=200, noise_std=25.0)
    assert 2 ** (compared_bits(asked, 3) - 1) > 200 * 16 + 2 * 30 * 400 * 1.5**0.5


@pytest.mark.parametrize(
    ("talliers", "told"),
    [
        (["a:1", "b:2"], "odd number of at least 3, got 2"),
        (["a:1", "b:2", "c:3", "d:4"], "odd number of at least 3, got 4"),
        (["a:1", "b:2", "c"], "HOST:PORT, got 'c'"),
        (["a:1", "b:2", "c:99999"], "HOST:PORT, got 'c:99999'"),
        (["a:1", "b:2", "b:2"], "same address"),
    ],
)
def test_addresses_that_are_no_group_are_refused(talliers, told):
    with pytest.raises(InputError, match=told):
        parse(talliers)
