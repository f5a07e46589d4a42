"""Vocabularies: given, or released before the first round."""

import argparse
import contextlib
import io
import json
import math
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import binom, norm
from torch import Tensor, nn

from fitting import fit_plan
from forked import Forked, script, team
from sfumato import accounting as acc
from sfumato import data, models
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.data import Encoding
from sfumato.federated import FedAvg, PrivateVocabulary
from sfumato.federated.vocabulary import votes_of, words_by_user
from sfumato.ledger import Budget
from sfumato.mechanisms import Gaussian
from sfumato.models import read_metadata
from sfumato.runs import Run
from sfumato.training import Callback, Result, RunOptions
from slow import one_in, slow_but
from small_runs import assert_equal_up_to_rounding, outcome

pytestmark = pytest.mark.fresh

# A vocabulary from private texts: what a user can change, what is never released, and what it costs.

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
        (5, {}, "no word passed the threshold"),
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


def test_a_word_that_no_one_can_vote_over_the_threshold_is_reported_before_anything_is_spent():
    rule = PrivateVocabulary(noise_multiplier=4.0, words_per_user=16, threshold_delta=1e-7)
    most = math.ceil(rule.users_needed)
    assert rule.threshold == pytest.approx(rule.users_needed * rule.weight)
    assert rule.warning(most + 1) == ""
    assert f"and there are {most - 1:,}" in rule.warning(most - 1)


# A small run that counts its vocabulary first: main([OUT, …]).

USERS, LENGTH, DELTA = 120, 5, 1e-3
HELD_BY_ALL = ("the", "sea", "is", "calm")
RULE = PrivateVocabulary(noise_multiplier=2.0, words_per_user=16)


def posts(path: Path, *, own: str = "own") -> Path:
    """Texts in which each user holds the common words, half of them "sail", and everybody a word of their own."""
    rows = [
        {"user": f"u{i:03d}", "text": f"{' '.join(HELD_BY_ALL)}{' sail' * (i % 2)} {own}{i:03d}"}
        for i in range(USERS)
        for _ in range(1 + i % 3)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


class WithFrozen(nn.Module):
    """A language model with tensors that are not trained: one as long as the vocabulary, one that is given."""

    def __init__(self, size: int, given: float, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.inner = models.lstm(vocabulary_size=size, embedding_dim=4, hidden=6, layers=1)
        self.register_buffer("prior", torch.linspace(0.0, 1.0, size))
        self.register_buffer("given", torch.tensor(given))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scale * self.inner(tokens) + self.prior * self.given


def with_frozen(users: data.UserDataset, *, given: float = 0.5, scale: float = 1.0) -> nn.Module:
    """For any vocabulary."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return WithFrozen(users.num_classes, given, scale)


def vocabulary_plan(**changes: object) -> FedAvg:
    """A plan of a few rounds."""
    fields = {
        "client.loss": "next_token",
        "rounds": 6,
        "cohort.size": 10,
        "noise.noise_multiplier": 1.0,
        "delta": DELTA,
        "client.learning_rate": 1.0,
        "client.momentum": 0.0,
        "seed": 3,
    }
    return FedAvg(**{**fields, **changes})


UNDECIDED = {"noise.noise_multiplier": None}


class Dying(Callback):
    """Kills the process after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, row: dict) -> None:
        if row["round"] == self.rounds:
            os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Run as the arguments say; print one line; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--die", default="", help="before or after the words are kept, or a number of rounds")
    parser.add_argument("--noise", type=float, default=RULE.noise_multiplier)
    parser.add_argument("--own", default="own")
    parser.add_argument("--given", type=float, default=0.5, help="a tensor of the model that is not trained")
    parser.add_argument("--scale", type=float, default=1.0, help="of the model's outputs")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.die in ("before", "after"):
        die_at_release(kept=options.die == "after")
    callbacks = [Dying(int(options.die))] if options.die.isdigit() else []
    rank = os.environ.get("RANK", "0")
    texts = data.uncounted_texts(posts(options.out.with_suffix(f".{rank}.jsonl"), own=options.own), length=LENGTH)
    parts = data.split_users(texts.blank, test=0.2)
    rule = PrivateVocabulary(noise_multiplier=options.noise, words_per_user=RULE.words_per_user)
    return outcome(
        lambda: vocabulary_plan(seed=options.seed if options.seed >= 0 else None).fit(
            partial(with_frozen, given=options.given, scale=options.scale),
            parts.train,
            test=parts.test,
            out=options.out,
            resume=options.resume,
            options=RunOptions(initial_release=rule.initial_release(texts), checkpoint_every=2, callbacks=callbacks),
        )
    )


def die_at_release(*, kept: bool) -> None:
    """End this process where the vocabulary is drawn: before its checkpoint has it, or just after."""
    release, save = Run.release, Run.save

    def dying(run: Run, *arguments: object, **more: object) -> object:
        if not kept:
            Run.save = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        release(run, *arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    Run.release, Run.save = dying, save


# A vocabulary as the first release of a training run: one ledger, one statement, and a run that goes on.

WORKER = Path(__file__)


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return posts(tmp_path_factory.mktemp("texts") / "posts.jsonl")


@pytest.fixture(scope="module")
def texts(file: Path) -> data.UncountedTexts:
    return data.uncounted_texts(file, length=LENGTH)


def fit(texts: data.UncountedTexts, rule: PrivateVocabulary = RULE, *, test=None, **changes) -> Result:
    options = {name: changes.pop(name) for name in ("out", "resume", "budget", "model") if name in changes}
    model = options.pop("model", with_frozen)
    parts = data.split_users(texts.blank, test=0.2 if test is None else test)
    plan = vocabulary_plan(**changes)
    return fit_plan(
        plan,
        model,
        parts.train,
        test=parts.test,
        options=RunOptions(initial_release=rule.initial_release(texts)),
        **options,
    )


def entries(folder: Path) -> list[dict]:
    rows = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [row for row in rows if "event" in row]


def test_one_ledger_and_one_statement_cover_the_count_and_the_rounds(texts, tmp_path: Path):
    result = fit(texts, out=tmp_path / "run")
    rows = entries(tmp_path / "run")
    assert [row["phase"] for row in rows] == ["vocabulary", *["rounds"] * 6]
    population = len(data.split_users(texts.blank, test=0.2).train)
    rounds, count = vocabulary_plan().private_sum(population).event(6), RULE.resolved(DELTA).event("add_remove")
    assert acc.compose({acc.event_from_json(row["event"]): 1 for row in rows[:1]}) == count
    together = acc.guarantee(count + rounds).epsilon(DELTA)
    assert result.statement.epsilon == pytest.approx(together, rel=1e-9)
    assert together > max(acc.guarantee(part).epsilon(DELTA) for part in (count, rounds))
    assert result.history[-1]["epsilon"] == pytest.approx(together, rel=1e-4)
    assert result.statement.mechanism.startswith("votes for at most 16 words of each user, noise multiplier 2")
    assert "; then 6 Gaussian sums" in result.statement.mechanism
    assert (result.statement.epsilon_lower, result.statement.alternatives) == (None, ())
    told = " ".join(result.statement.assumptions)
    assert "This run counted the vocabulary in the texts that were trained on, and the figures cover it" in told
    assert "assumed to be public" not in told


def test_the_model_is_as_large_as_the_vocabulary_and_no_word_of_a_single_user_is_in_it(texts, tmp_path: Path):
    result = fit(texts, out=tmp_path / "run")
    words = (tmp_path / "run" / "vocabulary.txt").read_text().split()
    assert set(HELD_BY_ALL) <= set(words) <= {*HELD_BY_ALL, "sail"}
    assert result.model(data.to_tensor(texts.blank.examples(0)[0])).shape[-1] == len(words) + 4
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["classes"] == len(words) + 4
    assert read_metadata(tmp_path / "run" / "model.safetensors")["vocabulary_size"] == len(words) + 4
    about = json.loads((tmp_path / "run" / "plan.json").read_text())["about"]
    assert about["opening"]["threshold_delta"] == pytest.approx(DELTA / 10)
    assert "vocabulary_size" not in about
    public = [(tmp_path / "run" / name).read_bytes() for name in ("plan.json", "ledger.jsonl", "statement.json")]
    assert not any(b"own0" in content for content in public)


def test_those_who_are_kept_for_the_test_do_not_vote(file: Path, tmp_path: Path):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = sorted({row["user"] for row in rows})
    kept = names[: len(names) // 2]  # enough of them for any word, if they had a say
    more = [{"user": name, "text": "unheard"} for name in kept]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, [*rows, *more])))
    texts = data.uncounted_texts(tmp_path / "posts.jsonl", length=LENGTH)
    rule = PrivateVocabulary(noise_multiplier=0.5, words_per_user=16)
    for test, told in ((kept, False), (names[-10:], True)):
        out = tmp_path / f"run-{told}"
        fit(texts, rule, test=test, out=out, rounds=1)
        assert ("unheard" in (out / "vocabulary.txt").read_text().split()) == told


def test_a_calibrated_plan_meets_the_budget_with_the_count_in_it(texts):
    population = len(data.split_users(texts.blank, test=0.2).train)
    rule = PrivateVocabulary(words_per_user=16).calibrate(epsilon=0.8, delta=DELTA)
    count = rule.event("add_remove")
    assert 0.799 < acc.guarantee(count).epsilon(DELTA) <= 0.8
    plan = vocabulary_plan(**UNDECIDED).calibrate(epsilon=8, delta=DELTA, population=population, before=count)
    alone = vocabulary_plan(**UNDECIDED).calibrate(epsilon=8, delta=DELTA, population=population)
    assert plan.noise.noise_multiplier > alone.noise.noise_multiplier
    parts = data.split_users(texts.blank, test=0.2)
    statement = plan.fit(
        with_frozen, parts.train, options=RunOptions(initial_release=rule.initial_release(texts))
    ).statement
    assert 7.99 < statement.epsilon <= 8


def test_adaptive_clipping_does_not_go_beyond_the_budget_either():
    count = PrivateVocabulary(words_per_user=8).calibrate(epsilon=0.4, delta=1e-4).event("add_remove")
    plan = vocabulary_plan(**UNDECIDED, **{"cohort.size": 5}, clipping="adaptive", delta=1e-4)
    plan = plan.calibrate(epsilon=4, delta=1e-4, population=100, before=count)
    both = count + plan.private_sum(100).event(6)
    assert 3.99 < acc.guarantee(both).epsilon(1e-4) <= 4


def test_a_budget_that_the_count_alone_uses_up_is_refused_in_words():
    count = RULE.resolved(DELTA).event("add_remove")
    with pytest.raises(InputError, match=r"the initial release costs epsilon 1\.\d+ .*, and the whole run may cost 1;"):
        vocabulary_plan(**UNDECIDED).calibrate(epsilon=1, delta=DELTA, population=100, before=count)


@pytest.mark.slow
def test_auto_noise_is_compared_with_the_count_in_the_budget():
    count = RULE.resolved(DELTA).event("zero_out")
    plan = vocabulary_plan(**UNDECIDED, noise="auto", cohort="min_separation")
    settings = {"epsilon": 4, "delta": DELTA, "population": 100}
    with_it, alone = (plan.compare_noise(**settings, before=before) for before in (count, None))
    assert all(one.noise_multiplier > other.noise_multiplier for one, other in zip(with_it[:1], alone[:1]))
    chosen = plan.calibrate(**settings, before=count)
    rounds = chosen.private_sum(100).event(6)
    assert 3.99 < acc.guarantee(count + rounds, "zero_out").epsilon(DELTA) <= 4


@pytest.mark.parametrize(
    "changes",
    one_in(
        2,
        [
            {"noise": "banded", "cohort": "min_separation", "noise.bands": 2},
            {"cohort": "min_separation"},
            {"clipping": "adaptive"},
            {"cohort.users_per_client": 2, "cohort.size": 5},
        ],
    ),
    ids=str,
)
def test_any_rounds_follow_and_are_added_up(texts, tmp_path: Path, changes: dict):
    result = fit(texts, out=tmp_path / "run", **changes)
    plan, population = vocabulary_plan(**changes), len(data.split_users(texts.blank, test=0.2).train)
    rounds = plan.for_population(population).private_sum(population)
    adjacency = rounds.sampler.adjacency
    both = RULE.resolved(DELTA).event(adjacency) + rounds.event(6)
    assert result.statement.adjacency == adjacency
    assert result.statement.epsilon == pytest.approx(acc.guarantee(both, adjacency).epsilon(DELTA), rel=1e-9)
    assert result.statement.alternatives == ()
    planned = [row["epsilon"] for row in result.history]
    assert planned[-1] == pytest.approx(result.statement.epsilon, rel=1e-4)


def test_a_run_without_noise_claims_nothing_and_a_round_may_be_empty(texts):
    statement = fit(texts, rounds=2, **{"noise.noise_multiplier": 0.0}).statement
    assert math.isinf(statement.epsilon)
    assert "without any guarantee" in statement.mechanism
    assert math.isfinite(fit(texts, rounds=8, **{"cohort.size": 1}).statement.epsilon)


def of_size(size: int, users: data.UserDataset):
    return models.lstm(vocabulary_size=size, embedding_dim=4, hidden=6)


def budget(factor: float, **settings) -> Budget:
    """So much more than the count costs."""
    count = acc.guarantee(RULE.resolved(DELTA).event("add_remove")).epsilon(DELTA)
    return Budget(epsilon=factor * count, delta=DELTA, **settings)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": partial(of_size, 4)}, "has to be built from the data that the function is given"),
        ({"model": partial(of_size, 8)}, "build it with vocabulary_size=7"),
        ({"model": lambda users: 7}, "must return a torch module, got 7"),
        ({"model": models.lstm(vocabulary_size=8)}, "built after the vocabulary is released"),
        ({"cohort": "fixed_size"}, "not for replace"),
        ({"delta": 1e-5, "rule": PrivateVocabulary(noise_multiplier=1.0, threshold_delta=1e-4)}, "must be below"),
        ({"rule": PrivateVocabulary(noise_multiplier=1.0, delta=1e-4)}, "leave the first one out"),
        ({"rule": PrivateVocabulary()}, "noise_multiplier is not set"),
        ({"budget": budget(1.001, fixed_plan=True)}, "vocabulary and a first round, or nothing would come of it: .*"),
        ({"budget": budget(0.9, fixed_plan=True)}, "vocabulary and a first round, or nothing would come of it"),
        ({"budget": budget(9)}, "fixed_plan"),
        ({"budget": budget(9, adjacency="zero_out")}, "this run's differ by add_remove"),
        ({"cohort.size": 1000}, "cannot be drawn from 98"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_found_before_anything_is_spent(texts, tmp_path: Path, changes: dict, told: str):
    rule = changes.get("rule", RULE)
    with pytest.raises(InputError, match=told):
        fit(texts, rule, out=tmp_path / "run", **{k: v for k, v in changes.items() if k != "rule"})
    assert not (tmp_path / "run").exists()


def test_data_to_measure_on_that_are_of_no_use_are_refused_before_anything_is_spent(texts, tmp_path: Path):
    nobody = texts.blank.subset([])
    with pytest.raises(InputError, match="no tokens to measure on"):
        vocabulary_plan().fit(
            with_frozen,
            texts.blank,
            test=nobody,
            out=tmp_path / "run",
            options=RunOptions(initial_release=RULE.initial_release(texts)),
        )
    assert not (tmp_path / "run").exists()


def test_data_of_other_texts_are_refused_before_anything_is_spent(texts, file: Path, tmp_path: Path):
    stranger = data.open_users(file, text="words", vocabulary=list(HELD_BY_ALL), length=LENGTH)
    for given in ({"test": stranger}, {"validation": stranger}):
        with pytest.raises(InputError, match=r"must be views of texts\.blank"):
            fit_plan(
                vocabulary_plan(),
                with_frozen,
                texts.blank,
                out=tmp_path / "run",
                options=RunOptions(initial_release=RULE.initial_release(texts)),
                **given,
            )
    with pytest.raises(InputError, match="seed of the plan"):
        PrivateVocabulary(noise_multiplier=1.0, seed=1).initial_release(texts)
    with pytest.raises(InputError, match=r"read by data\.uncounted_texts"):
        RULE.initial_release(stranger)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_tests_may_come_from_texts_of_their_own(texts, tmp_path: Path):
    (tmp_path / "other.jsonl").write_text('{"user": "x", "text": "the sea sings"}')
    other = data.uncounted_texts(tmp_path / "other.jsonl", length=LENGTH)
    result = vocabulary_plan().fit(
        with_frozen,
        texts.blank,
        test=other.blank,
        options=RunOptions(initial_release=RULE.initial_release(texts, other)),
    )
    assert result.evaluation["trained"]["tokens"] == 4


def test_trying_it_out_reports_nothing_and_spends_nothing(texts, monkeypatch):
    monkeypatch.setattr("sfumato.runs.Run.spend", lambda *_, **__: pytest.fail("something was spent"))
    parts = data.split_users(texts.blank, test=0.2)
    tried = vocabulary_plan().try_out(
        with_frozen, parts.train, test=parts.test, options=RunOptions(initial_release=RULE.initial_release(texts))
    )
    assert tried.users.num_classes == 7  # made up
    assert tried.users.examples(0)[0].max() == 6


def test_the_function_that_builds_the_model_is_given_no_record(texts):
    given: list[data.UserDataset] = []

    def build(users: data.UserDataset):
        given.append(users)
        return with_frozen(users)

    fit(texts, rounds=1, model=build)
    fitted = texts.encoded(list(given[-1].label_names or ())[1:-3], texts.blank)
    assert [users.num_classes for users in given] == [7, fitted.num_classes]
    for users in given:
        assert (users.input_shape, users.of_sequences) == ((LENGTH,), True)
        assert (len(users), len(users.inputs), len(users.labels), list(users.names)) == (0, 0, 0, [])


def test_an_opening_of_users_is_refused_for_a_plan_of_examples(texts):
    inputs = np.zeros((200, 3), np.float32)
    examples = data.examples_from_arrays(inputs, np.arange(200) % 2, num_classes=2)
    plan = DPSGD(noise=1.0, epochs=1, cohort=20)
    with pytest.raises(InputError, match="has the unit user, and the plan example"):
        plan.fit(
            lambda data: torch.nn.Linear(3, 2),
            examples,
            options=RunOptions(initial_release=RULE.initial_release(texts)),
        )


@pytest.mark.slow
def test_a_run_goes_on_with_its_count_where_a_calibration_ends_in_other_digits_today(texts, tmp_path: Path):
    rule = replace(RULE, noise_multiplier=1.25)
    fit(texts, rule, out=tmp_path / "run")
    before = (tmp_path / "run" / "statement.json").read_bytes()
    fit(texts, replace(rule, noise_multiplier=1.25 + 1e-12), out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "statement.json").read_bytes() == before
    with pytest.raises(InputError, match=r"another plan, model or data set \(another opening\)"):
        fit(texts, replace(rule, noise_multiplier=1.2501), out=tmp_path / "run", resume=True)


def test_no_word_above_the_threshold_is_reported_with_what_was_spent(texts, tmp_path: Path):
    rule = PrivateVocabulary(noise_multiplier=100.0)
    for resume in (False, True):
        with pytest.raises(InputError, match=r"no word .*above [\d,]+ users .*this cost counts"):
            fit(texts, rule, out=tmp_path / "run", resume=resume)
        assert [row["phase"] for row in entries(tmp_path / "run")] == ["vocabulary"]
    with pytest.raises(InputError, match="from another plan, model or data set"):
        fit(texts, out=tmp_path / "run", resume=True)


def run(out: Path, *flags: str) -> tuple[int, str]:
    """Run in this process: the exit code and what was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = script(WORKER).main([str(out), *flags])
    return code, printed.getvalue()


FINISHED = (0, "finished\n")
FILES = ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json", "vocabulary.txt")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run(out) == FINISHED
    return out


def assert_same(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("when", slow_but(["before", "after", "1", "3", "5"], "before", "3"))
def test_killed_at_any_place_it_goes_on_to_the_same_bytes(undisturbed: Path, tmp_path: Path, when: str):
    out = tmp_path / "killed"
    process = Forked(WORKER, [str(out), "--die", when], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    assert entries(out)[0]["phase"] == "vocabulary"
    assert (len(entries(out)) == 1) == (when in ("before", "after"))
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)
    assert load_file(out / "model.safetensors")["prior"].shape == (
        len((out / "vocabulary.txt").read_text().split()) + 4,
    )


@pytest.mark.slow
def test_what_is_not_trained_stays_what_it_was_when_the_rounds_began(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "killed"
    process = Forked(WORKER, [str(out), "--die", "3"], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    assert run(out, "--resume", "--given", "0.9") == FINISHED
    assert load_file(out / "model.safetensors")["given"] == 0.5
    assert_same(undisturbed, out)


def test_a_model_that_computes_something_else_is_refused_before_the_run_is_touched(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    code, told = run(out, "--resume", "--scale", "2")
    assert (code, told.count("\n")) == (2, 1)
    assert_same(undisturbed, out)


def test_two_copies_of_a_released_run_that_was_killed_draw_the_same_words(tmp_path: Path):
    out, copy = tmp_path / "one", tmp_path / "two"
    process = Forked(WORKER, [str(out), "--seed", "-1", "--die", "before"], out.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    shutil.copytree(out, copy)
    for folder in (out, copy):
        assert run(folder, "--resume", "--seed", "-1") == FINISHED
    assert entries(out)[0] == entries(copy)[0]
    assert (out / "vocabulary.txt").read_bytes() == (copy / "vocabulary.txt").read_bytes()


def test_two_copies_of_a_run_that_was_killed_before_its_rounds_meet_no_common_noise_with_other_models(
    tmp_path: Path, monkeypatch
):
    start = tmp_path / "killed"
    process = Forked(WORKER, [str(start), "--seed", "-1", "--die", "after"], start.with_suffix(".told"))
    assert process.wait() == -signal.SIGKILL, process.told
    noises: list[Tensor] = []
    release = Gaussian.release

    def watched(mechanism, total: Tensor, **how) -> Tensor:
        before = total.clone()
        noises.append(release(mechanism, total, **how) - before)
        return noises[-1] + before

    monkeypatch.setattr(Gaussian, "release", watched)
    for name, more in {"one": (), "again": (), "weights": ("--given", "0.9"), "output": ("--scale", "2")}.items():
        shutil.copytree(start, tmp_path / name)
        assert run(tmp_path / name, "--resume", "--seed", "-1", *more) == FINISHED
    one, again, *others = (noises[first : first + 6] for first in range(0, 24, 6))
    assert all(torch.allclose(first, other, atol=1e-6) for first, other in zip(one, again, strict=True))
    for other in others:
        assert not any(torch.allclose(first, second, atol=0.1) for first, second in zip(one, other, strict=True))


def test_a_finished_run_is_left_as_it_is(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)


@pytest.mark.parametrize("flags", [("--noise", "2.5"), ("--own", "mine")])
def test_it_does_not_go_on_with_another_rule_or_other_texts(undisturbed: Path, tmp_path: Path, flags: tuple[str, str]):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    code, told = run(out, "--resume", *flags)
    assert (code, told.count("\n")) == (2, 1)
    assert "from another plan, model or data set" in told
    assert_same(undisturbed, out)


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(undisturbed: Path, tmp_path: Path):
    out = tmp_path / "two"
    assert team(WORKER, [str(out)], tmp_path / "told", 2) == ["finished\n", ""]
    assert_equal_up_to_rounding(undisturbed, out)
    assert (undisturbed / "vocabulary.txt").read_bytes() == (out / "vocabulary.txt").read_bytes()


def test_the_usual_run_needs_a_module(texts):
    with pytest.raises(InputError, match="must be a torch module, got function"):
        vocabulary_plan().fit(with_frozen, texts.blank)
    with pytest.raises(InputError, match=r"got type; make one of the class: Linear\(\)"):
        vocabulary_plan().fit(torch.nn.Linear, texts.blank)
