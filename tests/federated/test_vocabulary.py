"""A vocabulary from private texts: what a user can change, what is never released, and what it costs."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import Encoding
from sfumato.federated import PrivateVocabulary
from sfumato.federated.vocabulary import votes_of, words_by_user

COMMON = {f"u{i}": {"the", "sea", "is", "calm"} for i in range(400)}


def votes(words: dict[str, set[str]], rule: PrivateVocabulary, source: RandomSource) -> dict[str, float]:
    """The votes before the noise, counted here."""
    found: dict[str, float] = {}
    for user, held in words.items():
        for word in votes_of(user, held, rule.words_per_user, source):
            found[word] = found.get(word, 0.0) + rule.weight
    return found


@pytest.mark.parametrize("held", [1, 4, 5, 300])
def test_a_user_moves_the_votes_by_at_most_one(held: int):
    rule, source = PrivateVocabulary(noise_multiplier=1.0, words_per_user=4), RandomSource.from_seed(0)
    others = {f"u{i}": {f"w{(i * 7 + j) % 40}" for j in range(9)} for i in range(20)}
    one, other = (votes(words, rule, source) for words in (others, {**others, "new": {f"w{j}" for j in range(held)}}))
    moved = math.dist(*([all_of.get(word, 0.0) for word in sorted({*one, *other})] for all_of in (one, other)))
    assert moved == pytest.approx(math.sqrt(min(held, 4) / 4))


def test_which_words_count_follows_from_the_user_alone():
    source = RandomSource.from_seed(0)
    words = {f"w{i}" for i in range(100)}
    assert votes_of("ann", words, 5, source) == votes_of("ann", {f"w{i}" for i in range(99, -1, -1)}, 5, source)
    assert votes_of("ann", words, 5, source) != votes_of("bo", words, 5, source)
    assert len(set(votes_of("ann", words, 5, source))) == 5


def test_words_of_a_single_user_are_released_no_more_often_than_said():
    rule = PrivateVocabulary(noise_multiplier=1.0, words_per_user=3, threshold_delta=0.2)
    found = sum(bool(rule._chosen({"ann": {"x", "y", "z"}}, RandomSource.from_seed(seed))) for seed in range(2000))
    assert found <= binom.isf(1e-6, 2000, 0.2)  # false alarms: one in a million
    exact = 1 - norm.cdf(rule.threshold - rule.weight) ** 3  # by independence; the rule adds the chances up
    assert 0.15 < exact <= 0.2
    assert found >= binom.isf(1 - 1e-6, 2000, exact)


def test_what_many_users_hold_is_released_and_what_one_holds_is_not():
    rule = PrivateVocabulary(noise_multiplier=4.0, words_per_user=5, threshold_delta=1e-8)
    for seed in range(50):
        assert set(rule._chosen({**COMMON, "ann": {"secret", "sea"}}, RandomSource.from_seed(seed))) == COMMON["u0"]


def test_the_largest_votes_are_taken_where_a_size_is_given():
    rule = PrivateVocabulary(noise_multiplier=1.0, words_per_user=5, size=1, delta=1e-6)
    more = {**COMMON, **{f"v{i}": {"sea"} for i in range(200)}}
    assert rule._chosen(more, RandomSource.from_seed(0)) == ["sea"]


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_the_cost_is_that_of_the_noise_with_the_chance_of_failure_taken_from_delta(adjacency):
    rule = PrivateVocabulary(noise_multiplier=2.0, threshold_delta=1e-6)
    epsilon = acc.guarantee(rule.event(adjacency), adjacency).epsilon(1e-5)
    noise = acc.guarantee(acc.Gaussian(2.0), adjacency)
    # one failure of chance p beside independent noise: delta is p + (1 - p) delta of the noise
    assert epsilon == pytest.approx(noise.epsilon((1e-5 - 1e-6) / (1 - 1e-6)), rel=1e-4)
    assert epsilon > noise.epsilon(1e-5)
    with pytest.raises(InputError, match="not for replace"):
        rule.event("replace")


def test_a_run_of_its_own_leaves_the_words_and_what_they_cost(tmp_path: Path):
    posts = tmp_path / "posts.jsonl"
    posts.write_text("\n".join(json.dumps({"user": i % 300, "text": "the sea is calm"}) for i in range(600)))
    rule = PrivateVocabulary(noise_multiplier=2.0, words_per_user=8, threshold_delta=1e-6, delta=1e-5, seed=1)
    words, statement = rule.run(posts, out=tmp_path / "run")
    assert set(words) == {"the", "sea", "is", "calm"}
    assert Encoding.words(tmp_path / "run" / "vocabulary.txt").names[1:5] == tuple(words)
    assert statement.epsilon == pytest.approx(acc.guarantee(rule.event("add_remove")).epsilon(1e-5), rel=1e-6)
    assert (statement.unit, statement.epsilon_lower) == ("user", None)
    entries = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [entry["phase"] for entry in entries if "event" in entry] == ["vocabulary"]
    again, _ = rule.run(posts)
    assert again == words


@pytest.mark.parametrize(
    ("users", "fields", "told"),
    [
        (1, {}, "has texts of 1 users; a private count needs at least 2"),
        (5, {}, "no word is above the threshold"),
        (5, {"threshold_delta": 0.1}, "threshold_delta must be below the statement's delta"),
    ],
)
def test_what_cannot_give_a_vocabulary_is_refused(tmp_path: Path, users: int, fields: dict, told: str):
    posts = tmp_path / "posts.jsonl"
    posts.write_text("\n".join(json.dumps({"user": i, "text": "the sea"}) for i in range(users)))
    with pytest.raises(InputError, match=told):
        PrivateVocabulary(**{"noise_multiplier": 1.0, "seed": 0, **fields}).run(posts)


def test_numbers_out_of_range_are_refused():
    for fields in (
        {"noise_multiplier": 0.0},
        {"words_per_user": 0},
        {"threshold_delta": 0.0},
        {"threshold_delta": 1e-7, "delta": 1e-9},
    ):
        with pytest.raises(InputError):
            PrivateVocabulary(**{"noise_multiplier": 1.0, **fields})


def test_a_users_words_are_gathered_from_all_records():
    found = words_by_user([("a", "The sea"), ("b", "sun"), ("a", "the SUN"), ("c", " ")])
    assert found == {"a": {"the", "sea", "sun"}, "b": {"sun"}}
    assert np.array_equal(sorted(found), ["a", "b"])


def test_what_is_no_text_has_no_vote():
    """JSON can hold half of a pair of surrogates; a file of words cannot."""
    assert votes_of("ann", {"sea", "\ud800"}, 5, RandomSource.from_seed(0)) == ["sea"]


def test_a_word_that_nobody_can_vote_over_the_threshold_is_told_before_anything_is_spent():
    rule = PrivateVocabulary(noise_multiplier=4.0, words_per_user=16, threshold_delta=1e-7)
    most = math.ceil(rule.users_needed)
    assert rule.threshold == pytest.approx(rule.users_needed * rule.weight)
    assert rule.outlook(most + 1) == ""
    assert f"and there are {most - 1:,}" in rule.outlook(most - 1)
