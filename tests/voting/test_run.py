"""A vote from its agents to its files: the tally in the clear, and classes by name."""

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import special, stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.accounting import guarantee
from sfumato.data import examples_from_arrays, from_arrays
from sfumato.ledger import Ledger
from sfumato.ledger.ledger import merge
from sfumato.mechanisms.discrete import lattice_variance
from sfumato.runs import RunFolder
from sfumato.statement import Statement
from sfumato.training.monitoring import trouble
from sfumato.voting import AEDPFL, KNNDPFL, Answers, ClearTally, Question
from sfumato.voting.data_dependent import log_wrong, vote_cost
from sfumato.voting.multi_party.tally import MultiPartyTally
from sfumato.voting.neighbours import NeighbourVoter
from sfumato.voting.public_pool import with_shared_numbers
from small_runs import CLASSES, agents, blobs, model, pool

# A vote from its agents to its files.

PLAN = AEDPFL(queries=20, noise_std=1.5, training={"epochs": 5, "learning_rate": 0.2}, student={"epochs": 10}, seed=3)
KNN = KNNDPFL(queries=20, noise_std=1.5, neighbours=3, student={"epochs": 10}, seed=3)


class Counting(ClearTally):
    """A clear tally that counts how often it was asked, and may fail afterwards."""

    def __init__(self, fails: bool = False) -> None:
        self.asked, self.fails = [], fails

    def open(self, question, ballots, *, source, token):
        self.asked.append(token)
        answers = super().open(question, ballots, source=source, token=token)
        if self.fails:
            raise KeyboardInterrupt
        return answers


@pytest.mark.parametrize(("plan", "how"), [(PLAN, model()), (KNN, "pixels")])
def test_a_vote_answers_its_queries_and_teaches_a_student(plan, how, tmp_path):
    result = plan.fit(agents(), pool(), how, student=model(1), test=pool(60, seed=2), out=tmp_path / "run")
    assert result.evaluation["answers"]["accuracy"] > 0.7
    assert result.evaluation["trained"]["accuracy"] > max(0.7, result.evaluation["untrained"]["accuracy"])
    assert (tmp_path / "run" / "answers.csv").read_text().count("\n") == 21


@pytest.mark.parametrize(
    "plan", [PLAN, KNN, replace(PLAN, threshold={"votes": 3.0, "answers": 4}), replace(KNN, publish_cost=9.0)]
)
def test_the_statement_is_that_of_the_events_in_the_ledger(plan, tmp_path):
    how = "pixels" if plan.name == "knn_dpfl" else model()
    result = plan.fit(agents(), pool(), how, student=model(1), out=tmp_path / "run")
    spent = Ledger.read(tmp_path / "run" / "ledger.jsonl").event()
    assert spent == plan.event()
    assert result.statement.epsilon == guarantee(spent, plan.adjacency).epsilon(result.statement.delta)
    assert Statement.load(tmp_path / "run" / "statement.json") == result.statement
    assert result.statement.unit == ("agent" if plan.level == "agent" else "example")


def test_answers_that_a_threshold_leaves_over_are_paid_for_all_the_same():
    plan = replace(PLAN, threshold={"votes": 100.0, "noise_std": 0.5, "answers": 7})
    result = plan.fit(agents(), pool(), model())
    assert result.answers is not None
    assert not result.answers.answered.any()
    assert result.statement.epsilon == guarantee(plan.event()).epsilon(result.statement.delta)


def test_a_vote_without_answers_ends_without_a_student(tmp_path):
    plan = replace(PLAN, threshold={"votes": 100.0, "noise_std": 0.5})
    with pytest.warns(UserWarning, match="no query reached the threshold"):
        result = plan.fit(agents(), pool(), model(), student=model(1), test=pool(30, seed=2), out=tmp_path / "run")
    assert result.finished
    assert result.model is None
    assert RunFolder(tmp_path / "run").has_ended()
    with pytest.warns(UserWarning, match="no query reached the threshold"):
        again = plan.fit(agents(), pool(), model(), student=model(1), out=tmp_path / "run", resume=True)
    assert again.statement == result.statement


def test_no_more_answers_are_given_than_are_paid_for():
    plan = replace(PLAN, threshold={"votes": 0.5, "noise_std": 0.1, "answers": 7})
    result = plan.fit(agents(), pool(), model())
    assert result.answers is not None
    assert int(result.answers.answered.sum()) == 7
    assert result.answers.answered[:7].all()


def test_a_run_that_goes_on_asks_no_one_again(tmp_path):
    tally = Counting()
    first = PLAN.fit(agents(), pool(), model(), student=model(1), tally=tally, out=tmp_path / "run")
    again = PLAN.fit(agents(), pool(), model(), student=model(1), tally=tally, out=tmp_path / "run", resume=True)
    assert len(tally.asked) == 1
    assert _equal(first.answers, again.answers)
    assert again.statement == first.statement
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name])


@pytest.mark.parametrize("seed", [3, None])
def test_a_run_that_died_behind_its_answers_draws_them_again_similar(seed, tmp_path):
    """The process ends after the tally opened and before anything was kept: same ballots, same noise, one entry."""
    plan, seen = replace(PLAN, seed=seed), []

    class Watched(Counting):
        def open(self, question, ballots, *, source, token):
            answers = ClearTally().open(question, ballots, source=source, token=token)
            seen.append((token, answers))
            if len(seen) == 1:
                raise KeyboardInterrupt
            return answers

    with pytest.raises(KeyboardInterrupt):
        plan.fit(agents(), pool(), model(), tally=Watched(), out=tmp_path / "run")
    result = plan.fit(agents(), pool(), model(), tally=Watched(), out=tmp_path / "run", resume=True)
    (token, before), (same, after) = seen
    assert token == same
    assert _equal(before, after)
    assert _equal(after, result.answers)
    assert Ledger.read(tmp_path / "run" / "ledger.jsonl").releases == 1


@pytest.mark.parametrize("plan", [replace(KNN, opens="counts"), replace(KNN, publish_cost=9.0)])
def test_copies_of_a_stopped_run_with_other_ballots_have_other_noise_and_are_two_releases(plan, tmp_path, monkeypatch):
    """Else the difference of what they release would tell how their ballots differ, to the last digit."""
    made, seen = {}, []

    class Stops(Exception):
        pass

    class Watched(ClearTally):
        def open(self, question, ballots, *, source, token):
            seen.append(source.stream("tally noise").bytes(16))
            return super().open(question, ballots, source=source, token=token)

    def stopped(*_):
        raise Stops

    def other(voter, agent):
        return np.roll(made["votes"](voter, agent), 1, axis=1)

    with monkeypatch.context() as patch:
        patch.setattr(NeighbourVoter, "votes", stopped)
        with pytest.raises(Stops):
            plan.fit(agents(), pool(), "pixels", tally=Watched(), out=tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    made["votes"] = NeighbourVoter.votes
    plan.fit(agents(), pool(), "pixels", tally=Watched(), out=tmp_path / "one", resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(NeighbourVoter, "votes", other)
        plan.fit(agents(), pool(), "pixels", tally=Watched(), out=tmp_path / "copy", resume=True)
    assert seen[0] != seen[1]
    both = merge([tmp_path / name / "ledger.jsonl" for name in ("one", "copy")], tmp_path / "both", unrelated=True)
    assert both.event() == plan.event() * 2


@pytest.mark.parametrize("talliers", [None, 3])
def test_the_cost_of_the_votes_as_cast_is_for_the_noise_that_was_added(talliers):
    """More than is accounted for: that of rounding to whole numbers, and the share of talliers who may tell theirs."""
    plan = replace(PLAN, noise_std=0.5, publish_cost=9.0)
    several = None if talliers is None else MultiPartyTally.local(talliers, seed=1)
    with several or nullcontext():
        result = plan.fit(agents(), pool(), model(), tally=several)
    variance = (0.5**2 + 9 / 16**2) * (1 if talliers is None else 3 / 2)
    wanted = vote_cost(result._sums, plan.answer_event(), plan.adjacency, noise_std=variance**0.5, step=1 / 16)
    assert np.allclose(result.cost().renyi().value, wanted.renyi().value, rtol=1e-9)
    of_accounted = vote_cost(result._sums, plan.answer_event(), plan.adjacency)
    assert (wanted.renyi().value >= of_accounted.renyi().value).all()
    assert wanted.epsilon(1e-3).value > of_accounted.epsilon(1e-3).value


def test_ballots_are_gone_when_a_run_has_ended(tmp_path):
    PLAN.fit(agents(), pool(), model(), student=model(1), out=tmp_path / "run")
    saved = RunFolder(tmp_path / "run").saved()
    assert saved.complete
    assert not any("ballot" in name for name in saved.tensors)
    assert not (tmp_path / "run" / "checkpoint" / "key").exists()


def test_other_agents_another_pool_or_another_model_cannot_go_on(tmp_path):
    PLAN.fit(agents(), pool(), model(), out=tmp_path / "run")
    for given in (
        (agents(seed=5), pool(), model()),
        (agents(), pool(seed=5), model()),
        (agents(), pool(), model(seed=5)),
    ):
        with pytest.raises(InputError, match="another plan, model or data set"):
            PLAN.fit(*given, out=tmp_path / "run", resume=True)


def test_what_a_vote_cost_on_its_own_votes_is_below_its_statement_and_no_number():
    plan = replace(PLAN, noise_std=0.8)
    result = plan.fit(agents(20), pool(), model())
    cost = result.cost().epsilon(result.statement.delta)
    assert 0 < cost.value < result.statement.epsilon
    with pytest.raises(TypeError):
        json.dumps(cost)
    with pytest.raises(InputError, match="private"):
        float(cost)


def test_a_published_cost_stands_next_to_the_statement_and_survives_a_resume(tmp_path):
    plan = replace(PLAN, noise_std=1.0, publish_cost={"noise_std": 50.0, "order": 5.0})
    result = plan.fit(agents(20), pool(), model(), out=tmp_path / "run")
    again = plan.fit(agents(20), pool(), model(), out=tmp_path / "run", resume=True)
    assert result.published == again.published
    assert [row for row in result.statement.alternatives if "released with noise" in row["name"]]
    assert result.statement.epsilon > guarantee(replace(plan, publish_cost=None).event()).epsilon(
        result.statement.delta
    )


def test_a_vote_goes_on_with_its_noise_where_a_calibration_ends_in_other_digits_today(tmp_path):
    plan = replace(PLAN, noise_std=1.5, threshold=5.0)
    plan.fit(agents(20), pool(), model(), out=tmp_path / "run")
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    replace(plan, noise_std=1.5 + 1e-10).fit(agents(20), pool(), model(), out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before
    kept = (tmp_path / "run" / "plan.json").read_text()
    for damage in (10**400, True, None, float("nan"), [1.0]):
        (tmp_path / "run" / "plan.json").write_text(json.dumps({**json.loads(kept), "noise_std": damage}))
        with pytest.raises(InputError, match=r"another plan, model or data set .*noise_std"):
            plan.fit(agents(20), pool(), model(), out=tmp_path / "run", resume=True)
    (tmp_path / "run" / "plan.json").write_text(kept)
    with pytest.raises(InputError, match="noise_std"):
        replace(plan, noise_std=1.501).fit(agents(20), pool(), model(), out=tmp_path / "run", resume=True)


def test_one_record_of_an_agent_has_the_tight_cost_with_the_printed_one_next_to_it():
    result = KNN.fit(agents(), pool(), "pixels")
    printed = next(row for row in result.statement.alternatives if "printed" in row["name"])
    assert result.statement.epsilon < printed["epsilon"]
    assert {row["unit"] for row in result.statement.alternatives} == {"agent", "example"}


def test_noise_meets_the_budget_for_every_kind_of_vote():
    for plan in (AEDPFL(), KNNDPFL(), AEDPFL(threshold={"votes": 60.0, "answers": 100}), KNNDPFL(publish_cost=40.0)):
        calibrated = plan.calibrate(epsilon=2.0, delta=1e-4, population=100)
        found = guarantee(calibrated.event(), plan.adjacency).epsilon(1e-4)
        assert 1.99 < found <= 2.0


def test_attributes_are_voted_on_with_a_bounded_weight():
    inputs, labels = blobs(60, 0)
    held = np.stack([labels == 0, labels != 1, labels == 2], axis=1)
    several = from_arrays(inputs, labels=held, users=[f"agent {row // 10}" for row in range(60)])
    rows, wanted = blobs(40, 1)
    public = examples_from_arrays(rows, np.stack([wanted == 0, wanted != 1, wanted == 2], axis=1).astype(np.float32))
    plan = replace(PLAN, noise_std=0.5, attributes=2)
    result = plan.fit(several, public, model(), student=model(1), test=public)
    assert result.answers.labels.shape == (20, 3)
    assert result.evaluation["answers"]["micro_f1"] > 0.7
    assert plan.event() != replace(plan, attributes=None).event()


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"noise_std": 50.0, "seed": 5}, "noise of 50 votes on each count of 6"),
        ({"noise_std": 0.01, "student": {"learning_rate": 1e-9}}, "the student's training on 20 answers"),
        ({"noise_std": 0.01, "training": {"learning_rate": 1e-9}}, "agents that know too little"),
        ({"noise_std": 0.01}, ""),
    ],
)
def test_a_student_no_better_than_a_constant_has_its_likeliest_cause(changes, cause):
    result = PLAN.replace(**changes).fit(agents(), pool(), model(), student=model(1), test=pool(60, seed=2))
    row = result.evaluation["trained"]
    assert row.get("likely_cause", "").startswith(f"Likeliest cause: {cause}" if cause else "")
    assert bool(row.get("likely_cause")) == bool(cause)


@pytest.mark.parametrize(("noise", "told"), [(50.0, "The answers are "), (0.01, "")])
def test_answers_no_better_than_a_constant_are_said_to_be_so_where_no_student_is_measured(noise, told):
    found = PLAN.replace(noise_std=noise, seed=5).fit(agents(), pool(), model(), student=model(1)).evaluation
    assert trouble(None, found).startswith(told)
    assert trouble(None, found).endswith("or find more agents." if told else "")
    assert bool(trouble(None, found)) == bool(told)


def test_a_budget_that_the_vote_exceeds_refuses_it_before_anybody_is_asked():
    from sfumato.ledger import Budget, BudgetExceeded

    tally = Counting()
    with pytest.raises(BudgetExceeded):
        PLAN.fit(agents(), pool(), model(), tally=tally, budget=Budget(epsilon=0.1, delta=1e-5))
    assert not tally.asked


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        ({"queries": 41}, {}, "the public pool has 40 examples, and 41 queries"),
        ({}, {"queries": [1, 2, 2, *range(3, 20)]}, "query 2 is asked twice"),
        ({}, {"agents": agents(1)}, "there is 1 agent"),
        ({}, {"agents": agents(2)}, "3 classes cannot be distinguished by 2 votes"),
        (
            {},
            {"pool": examples_from_arrays(np.zeros((30, 5), np.float32), np.zeros(30, np.int64), num_classes=1)},
            "bring",
        ),
        ({}, {"how": model(outputs=2)}, "must give 3 outputs"),
        ({}, {"student": model(outputs=7)}, "the student must give 3 outputs"),
        ({"noise_std": None}, {}, "noise_std is not set"),
        ({"attributes": 2}, {}, "attributes=2 is for records with several"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_leaves_no_folder(change, given, words, tmp_path):
    plan = replace(PLAN, **change)
    parts = {"agents": agents(), "pool": pool(), "how": model(), **given}
    with pytest.raises(InputError, match=words) as refused:
        plan.fit(
            parts["agents"],
            parts["pool"],
            parts["how"],
            student=parts.get("student"),
            queries=parts.get("queries"),
            out=tmp_path / "run",
        )
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"noise_std": 0.0},
        {"noise_std": -1.0},
        {"queries": 0},
        {"cut": 1.0},
        {"level": "user"},
        {"opens": "votes"},
        {"threshold": 3.0, "opens": "counts"},
        {"threshold": {"answers": 3}},
        {"threshold": {"noise_std": 2.0}},
        {"threshold": {"votes": 3.0, "answers": 21}},
        {"threshold": -3.0},
        {"publish_cost": {"noise_std": 1.0, "order": 1.0}},
        {"publish_cost": 1.0, "opens": "counts"},
        {"selection": "best"},
        {"adaptation": {"layer": "0"}},
        {"student": {"method": "magic"}},
        {"student": {"loss": "squared"}},
        {"training": {"loss": "squared"}},
    ],
)
def test_impossible_plans_are_refused(fields):
    with pytest.raises(InputError):
        replace(PLAN, **fields)


def test_agents_that_know_one_class_are_reported_of():
    inputs, labels = blobs(40, 0)
    order = np.argsort(labels, kind="stable")
    alone = from_arrays(inputs[order], labels=labels[order], users=[f"agent {row // 8}" for row in range(40)])
    with pytest.warns(UserWarning, match="of 5 agents have records of one class only"):
        PLAN.fit(alone, pool(), model())


def test_a_pool_with_the_same_example_twice_is_asked_about_it_once():
    inputs, labels = blobs(20, 1)
    twice = examples_from_arrays(np.concatenate([inputs, inputs]), np.tile(labels, 2), num_classes=CLASSES)
    result = PLAN.fit(agents(), twice, model())
    assert len(np.unique(inputs[result.queries % 20], axis=0)) == 20
    with pytest.raises(InputError, match="20 different examples"):
        replace(PLAN, queries=21).fit(agents(), twice, model())


def _equal(one: Answers | None, other: Answers | None) -> bool:
    assert one is not None
    assert other is not None
    return np.array_equal(one.answered, other.answered) and np.array_equal(one.labels, other.labels)


# The tally in the clear: its noise is that which is accounted, and its answers are those of the votes.

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


# Classes of data sets that were read one by one.

ROWS = np.arange(6, dtype=np.float32)[:, None]
USERS = ["x", "x", "y", "y", "z", "z"]


def named_agents(labels, names=None):
    return from_arrays(ROWS, labels=labels, users=USERS, label_names=names)


def named_pool(labels, **more):
    return examples_from_arrays(ROWS[: len(labels)] + 0.25, labels, **more)


def test_a_pool_that_lacks_a_class_is_measured_by_names():
    """`eel` is number 2 among the agents and 1 in the pool: neighbours are right all the same."""
    plan = KNNDPFL(queries=3, neighbours=1, noise_std=1e-3, few_records="share", seed=0)
    kinds = np.repeat(["bee", "cat", "eel"], 5)
    voters = from_arrays(np.repeat(ROWS[:3], 5, axis=0), labels=kinds, users=[f"agent {i % 5}" for i in range(15)])
    voters = voters.with_classes(["bee", "cat", "eel"])
    asked = examples_from_arrays(np.array([[0.1], [2.1], [1.9]], np.float32), ["bee", "eel", "eel"])
    assert plan.fit(voters, asked, "pixels").evaluation["answers"]["accuracy"] == 1.0


@pytest.mark.parametrize("given", [[10, 2, 10], ["10", "2", "10"]])
def test_names_that_are_numbers_are_those_of_data_without_names(given):
    voters = named_agents(["1", "10", "2", "1", "10", "2"])  # in the order of words
    names = list(voters.label_names)
    found = with_shared_numbers(named_pool(given), voters, "the pool")
    assert [names[number] for number in found.targets] == ["10", "2", "10"]


def test_data_that_agree_or_have_no_classes_stay_as_they_are():
    for examples in (named_pool(["bee", "cat"]), examples_from_arrays(ROWS)):
        assert with_shared_numbers(examples, named_agents(["bee", "cat"] * 3), "the pool") is examples


@pytest.mark.parametrize(
    ("voters", "examples", "told"),
    [
        (named_agents(["bee", "cat"] * 3), named_pool(["bee", "dog"]), "'dog', the agents have bee, cat"),
        (named_agents([0, 1] * 3), named_pool([0, 2]), "class 2, the agents have the classes 0 … 1"),
        (named_agents([0, 1] * 3), named_pool(["bee", "cat"]), "give both the same names"),
        (named_agents(["bee", "cat"] * 3), named_pool([0, 1]), "give both the same names"),
    ],
)
def test_classes_that_do_not_match_are_refused(voters, examples, told):
    with pytest.raises(InputError, match=told):
        with_shared_numbers(examples, voters, "the pool")
