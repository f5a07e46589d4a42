"""The tally in the clear: its noise is that which is accounted, and its answers are those of the votes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting.votes import log_wrong
from sfumato.mechanisms.discrete import lattice_variance
from sfumato.voting import ClearTally, Question

QUERIES = 20_000
ASKED = Question(queries=QUERIES, classes=3, agents=8, units=16, noise_std=2.0)


def opened(question: Question, sums: list[int], seed: int = 0):
    """Answers where all queries have these sums, in units, an eighth of them from each agent."""
    each = np.tile(np.array(sums) // 8, (question.queries, 1))
    ballots = [(str(agent), each) for agent in range(8)]
    return ClearTally().open(question, ballots, source=RandomSource.from_seed(seed), token="t")


def test_the_noise_on_every_count_is_the_discrete_gaussian_that_costs_what_is_accounted():
    question = replace(ASKED, opens="counts")
    found = opened(question, [64, 48, 0]).counts - np.array([64, 48, 0])
    variance = float(lattice_variance(question.noise_units))
    assert variance == (2.0 * 16) ** 2 + 9
    count = found.size
    assert abs(found.mean()) < 5 * math.sqrt(variance / count)
    assert abs(found.var() / variance - 1) < 5 * math.sqrt(2 / count)
    assert abs(np.corrcoef(found.T)[np.triu_indices(3, 1)]).max() < 5 / math.sqrt(QUERIES)


@pytest.mark.parametrize("sums", [[16, 0, 0], [16, 8, 8], [24, 16, 0], [32, 8, 8], [64, 0, 0]])
def test_answers_are_wrong_no_more_often_than_the_bound_says(sums):
    """Papernot et al. 2018, Proposition 7, by simulation; the margin bound of Zhu et al. 2021 lies above it."""
    question = replace(ASKED, noise_std=0.5)
    wrong = int((opened(question, sums).labels != 0).sum())
    votes = np.array([sums]) / 16
    noise = math.sqrt(float(lattice_variance(question.noise_units))) / 16
    highest = min(1.0, math.exp(log_wrong(votes, noise)[0]))
    assert stats.binom.sf(wrong - 1, QUERIES, highest) > 1e-6


def test_a_threshold_is_reached_as_often_as_its_own_noise_says():
    question = replace(ASKED, threshold=1.5, threshold_noise_std=1.0, max_answers=QUERIES)
    answered = int(opened(question, [16, 8, 8]).answered.sum())
    std = math.sqrt(float(lattice_variance(16.0)))
    expected = special.ndtr((16 + 0.5 - 24) / std)  # whole numbers: from 24 units on, half a unit below
    assert abs(answered / QUERIES - expected) < 5 * math.sqrt(0.25 / QUERIES)


def test_a_threshold_and_an_answer_have_noise_of_their_own():
    question = replace(ASKED, threshold=1.0, threshold_noise_std=2.0, max_answers=QUERIES, noise_std=2.0)
    found = opened(question, [16, 16, 0])
    first = found.labels[found.answered] == 0
    second = found.labels[found.answered] == 1
    assert abs(first.mean() - second.mean()) < 5 / math.sqrt(QUERIES)  # the noise that reached it chose nobody


@pytest.mark.parametrize(
    ("ballot", "words"),
    [
        (np.zeros((2, 2), np.int64), "a ballot is whole numbers"),
        (np.zeros((2, 3)), "a ballot is whole numbers"),
        (np.array([[17, 0, 0], [0, 0, 0]]), "17 units for query 0"),
        (np.array([[0, 0, 0], [0, -1, 1]]), "-1 units for query 1"),
        (np.array([[0, 9, 9], [0, 0, 0]]), "weighs 18 units for query 0"),
    ],
)
def test_a_ballot_out_of_range_is_refused_by_name(ballot, words):
    question = replace(ASKED, queries=2)
    with pytest.raises(InputError, match=words) as refused:
        ClearTally().open(replace(question, agents=2), [("east", ballot)], source=RandomSource.from_seed(0), token="t")
    assert "east" in str(refused.value)


def test_an_agent_votes_once_and_all_of_them_vote():
    question = replace(ASKED, queries=1, agents=2)
    ballot = np.array([[16, 0, 0]])
    for ballots, words in (([("a", ballot), ("a", ballot)], "votes twice"), ([("a", ballot)], "1 agents voted")):
        with pytest.raises(InputError, match=words):
            ClearTally().open(question, ballots, source=RandomSource.from_seed(0), token="t")
