"""Talliers over TCP open what `decide` says for the same votes and the same noise."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.statement.sentences import say
from sfumato.voting.multi_party.tally import MultiPartyTally
from sfumato.voting.question import Question
from talliers import SOURCE, Ballots, expected, one_hot, question, same

SEED = 5


@pytest.fixture(scope="module")
def tally():
    with MultiPartyTally.local(3, seed=SEED) as found:
        yield found


def fractions(asked: Question, seed: int = 0) -> Ballots:
    """Votes that agents split among the classes."""
    rng = np.random.default_rng(seed)
    return [
        (f"agent {k}", np.floor(rng.dirichlet(np.ones(asked.classes), asked.queries) * asked.units).astype(np.int64))
        for k in range(asked.agents)
    ]


@pytest.mark.parametrize("classes", [2, 3, 5, 8])
def test_the_opened_labels_are_those_of_the_noisy_counts(tally, classes):
    asked = question(classes=classes, queries=120)
    ballots = one_hot(asked, seed=classes)
    token = f"labels {classes}"
    found = tally.open(asked, ballots, source=SOURCE, token=token)
    assert same(found, expected(asked, ballots, token, seed=SEED))


def test_of_equal_noisy_counts_the_lowest_class_wins(tally):
    asked = question(noise_std=0.5, queries=800)
    ballots = one_hot(asked, seed=9)
    found = tally.open(asked, ballots, source=SOURCE, token="ties")
    wanted = expected(asked, ballots, "ties", seed=SEED)
    assert same(found, wanted)
    counts = question(noise_std=0.5, queries=800, opens="counts")
    noisy = expected(counts, ballots, "ties", seed=SEED).counts
    assert (np.sort(noisy, axis=1)[:, -1] == np.sort(noisy, axis=1)[:, -2]).sum() > 5


@pytest.mark.parametrize("threshold", [2.0, 3.0, 100.0])
def test_a_threshold_answers_the_first_queries_that_reach_it(tally, threshold):
    asked = question(threshold=threshold, threshold_noise_std=0.5, max_answers=11)
    ballots = fractions(asked) if threshold < 3 else one_hot(asked)
    token = f"confident {threshold}"
    found = tally.open(asked, ballots, source=SOURCE, token=token)
    assert same(found, expected(asked, ballots, token, seed=SEED))
    assert found.answered.sum() <= 11
    assert found.answered.any() == (threshold < 100)


@pytest.mark.parametrize("cut", [1.5, 3.0])
def test_attributes_are_those_whose_noisy_counts_reach_the_cut(tally, cut):
    asked = question(opens="attributes", cut=cut, attributes=5)
    rng = np.random.default_rng(1)
    ballots = [(f"agent {k}", rng.integers(0, 17, (30, 5))) for k in range(6)]
    found = tally.open(asked, ballots, source=SOURCE, token=f"attributes {cut}")
    assert same(found, expected(asked, ballots, f"attributes {cut}", seed=SEED))
    assert 0 < found.labels.mean() < 1


def test_counts_are_the_noisy_sums(tally):
    asked = question(opens="counts", units=4096)
    ballots = fractions(asked)
    found = tally.open(asked, ballots, source=SOURCE, token="counts")
    assert same(found, expected(asked, ballots, "counts", seed=SEED))
    assert (found.counts < 0).any()


def test_one_hot_ballots_and_abstentions_pass_the_check(tally):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    ballots[2][1][::2] = 0
    found = tally.open(asked, ballots, source=SOURCE, token="checked")
    assert same(found, expected(asked, ballots, "checked", seed=SEED))


def test_the_same_token_gives_the_same_answers_without_asking_for_ballots(tally):
    asked = question(noise_std=30.0)
    first = tally.open(asked, one_hot(asked), source=SOURCE, token="twice")
    again = tally.open(asked, iter(()), source=SOURCE, token="twice")
    other = tally.open(asked, one_hot(asked), source=SOURCE, token="fresh")
    assert same(first, again)
    assert not same(first, other)


def test_a_seeded_tally_says_what_it_rests_on(tally):
    told = " ".join(map(say, tally.assumptions()))
    assert tally.seeded  # and so does the statement of a vote that it counts
    assert "1.5 times the variance" in told
    assert "within range" in told
    assert tally.to_json() == {"kind": "multi-party", "local": 3, "tls": False}


def test_five_talliers_open_the_same():
    asked = question(one_hot=True, queries=8)
    with MultiPartyTally.local(5, seed=SEED) as five:
        found = five.open(asked, one_hot(asked), source=SOURCE, token="five")
    assert same(found, expected(asked, one_hot(asked), "five", seed=SEED, talliers=5))


def test_noise_that_is_too_fine_for_shares_is_refused_before_anything_is_sent(tally):
    with pytest.raises(InputError, match="use more units a vote than 1"):
        tally.open(question(units=1), [], source=SOURCE, token="fine")


def test_counts_that_have_no_room_in_the_field_are_refused_before_anything_is_sent(tally):
    with pytest.raises(InputError, match="use fewer units"):
        tally.open(question(units=2**40), [], source=SOURCE, token="large")
