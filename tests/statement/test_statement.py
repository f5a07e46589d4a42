import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from sfumato.accounting import InputError, NoisyVote
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED, QUESTIONS
from sfumato.voting import vote_cost

STATEMENT = Statement(
    unit="user",
    adjacency="add_remove",
    epsilon=2.0,
    delta=1e-6,
    epsilon_lower=1.99,
    rho=0.1,
    sampling="Poisson, each user with probability 0.01",
    mechanism="Gaussian noise, multiplier 1.1",
    noise_source="operating system CSPRNG",
    assumptions=("The population's size is public",),
    alternatives=({"name": "per virtual client", "unit": "virtual_client", "epsilon": math.inf, "delta": 1e-6},),
)


def test_it_survives_json_and_disk(tmp_path: Path) -> None:
    assert Statement.from_json(json.loads(json.dumps(STATEMENT.to_json(), allow_nan=False))) == STATEMENT
    STATEMENT.save(tmp_path / "statement.json")
    assert Statement.load(tmp_path / "statement.json") == STATEMENT


def test_infinity_is_safe_in_json() -> None:
    infinite = replace(STATEMENT, epsilon=math.inf)
    value = json.loads(json.dumps(infinite.to_json(), allow_nan=False))
    assert value["epsilon"] == "inf" == value["alternatives"][0]["epsilon"]
    assert Statement.from_json(value).epsilon == math.inf


def test_the_text_names_the_unit_the_numbers_and_the_conditions() -> None:
    text = STATEMENT.text()
    titles = [block.split("\n")[0] for block in text.split("\n\n")]
    assert titles == ["Guarantee", "Mechanism", "Assumptions", "Not covered", "Other accounting"]
    for words in (
        "one person",
        "Epsilon: 2",
        "Delta: 1e-06",
        "7.39",
        "Moderate protection",
        "is public.",
        "per virtual client",
        "CSPRNG",
    ):
        assert words in text


def test_no_privacy_is_said_in_so_many_words() -> None:
    nothing = replace(STATEMENT, epsilon=math.inf).text()
    assert "Verdict: No protection. No one is protected: epsilon is infinite." in nothing
    assert "Nothing is covered" in nothing
    assert "Epsilon:" not in nothing


def test_a_seeded_run_s_text_says_first_that_nobody_is_protected() -> None:
    promise = replace(STATEMENT, noise_source="seeded: simulation only").text().split("\n\n")[0]
    assert promise.splitlines()[1].startswith("  Verdict: No protection. No one is protected: the run was seeded")
    assert "The next sentence would hold with randomness from the operating system." in promise
    assert promise.count("No protection") == 1
    assert STATEMENT.text().splitlines()[1] == "  Verdict: Moderate protection"


def test_text_and_markdown_show_the_same_blocks_and_text_is_wrapped() -> None:
    marked = STATEMENT.markdown()
    for block in STATEMENT.blocks():
        for each in (*block.lines, *block.bullets, *(value for _, value in block.facts)):
            assert each in marked
            assert " ".join(each.split()) in " ".join(STATEMENT.text().split())
    assert max(map(len, replace(STATEMENT, alternatives=()).text().splitlines())) <= 100


def test_a_large_delta_is_warned_about_once() -> None:
    warned = replace(STATEMENT, delta=1e-3, population=1000)
    assert [said.id for said in warned.sentences if said.id] == ["delta_too_large"]
    assert Statement.from_json(warned.to_json()) == warned
    assert not any(said.id for said in replace(STATEMENT, population=1000).sentences)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit": "household"}, "unit must be one of example"),
        ({"adjacency": "swap"}, "adjacency must be one of"),
        ({"epsilon": -1.0}, "epsilon must be in"),
        ({"epsilon": math.nan}, "epsilon must be a number"),
        ({"delta": 2.0}, "delta must be in"),
        ({"epsilon_lower": 3.0}, "epsilon_lower must be in"),
    ],
)
def test_impossible_statements_are_refused(change: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(STATEMENT, **change)


def test_json_from_elsewhere_is_refused() -> None:
    with pytest.raises(InputError, match="no field 'color'"):
        Statement.from_json({**STATEMENT.to_json(), "color": "red"})
    with pytest.raises(InputError, match="not a statement"):
        Statement.from_json({"unit": "user"})


def test_every_question_has_an_answer_and_none_is_made_up() -> None:
    assert set(STATEMENT.disclosure.values()) == {NOT_STATED}
    answered = STATEMENT.answer(public_data="None.").answer(preprocessing="Fixed before the data was seen.")
    assert answered.disclosure["public_data"] == "None."
    assert answered.disclosure["preprocessing"].startswith("Fixed")
    assert list(answered.disclosure) == list(QUESTIONS)
    assert sum(answer == NOT_STATED for answer in answered.disclosure.values()) == len(QUESTIONS) - 2
    assert Statement.from_json(json.loads(json.dumps(answered.to_json()))) == answered
    assert answered.text() == STATEMENT.text()
    rows = dict(answered.questions())
    assert set(QUESTIONS.values()) < set(rows)
    for words in (
        "epsilon 2 at delta 1e-06",
        "one person",
        "probability 0.01",
        "CSPRNG",
        "population's size is public",
    ):
        assert any(words in answer for answer in rows.values()), words


def test_the_promise_in_the_questions_follows_the_numbers() -> None:
    assert replace(STATEMENT, epsilon=3.5).questions()[0][1].startswith("epsilon 3.5 at")
    assert "infinite" in replace(STATEMENT, epsilon=math.inf).questions()[0][1]


def test_the_questions_are_a_table_in_markdown() -> None:
    lines = STATEMENT.answer(public_data="a | b").questions_markdown().splitlines()
    assert all(line.replace("\\|", "").count("|") == 3 for line in lines)
    assert len(lines) == 2 + len(STATEMENT.questions())


def test_a_statement_of_an_earlier_version_loads() -> None:
    old = STATEMENT.to_json()
    del old["disclosure"]
    assert Statement.from_json(old) == STATEMENT


@pytest.mark.parametrize(
    ("disclosure", "words"),
    [
        ({"colour": "red"}, "no question 'colour'; the questions are trust_model, released"),
        ({"public_data": ""}, "the answer to public_data must be a sentence"),
        ({"public_data": 3}, "the answer to public_data must be a sentence"),
        ("none", "disclosure must hold answers by name"),
    ],
)
def test_answers_to_other_questions_are_refused(disclosure, words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(STATEMENT, disclosure=disclosure)


class Spent:
    """A cost that depends on the data, and could be turned into a number."""

    def __float__(self) -> float:
        return 1.0


class Disguised(float):
    """The same, as a kind of float."""


@pytest.mark.parametrize("value", [Spent(), Disguised(1.0), "1.0", True, Decimal(1), np.array(1.0)])
def test_only_plain_numbers_are_costs(value: object) -> None:
    row = {"name": "by votes", "unit": "user", "epsilon": value, "delta": 1e-6}
    changes = [{"epsilon": value, "epsilon_lower": None}, {"delta": value}, {"rho": value}, {"alternatives": (row,)}]
    for change in changes:
        with pytest.raises(InputError, match=r"must be a number, got .* do not depend on the data") as caught:
            replace(STATEMENT, **change)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [2, 2.0, np.float64(2), np.float32(2), np.int64(2)])
def test_plain_numbers_of_every_kind_are_written_alike(value) -> None:
    written = json.dumps(replace(STATEMENT, epsilon=value).to_json())
    assert written == json.dumps(STATEMENT.to_json())


def test_what_is_no_statement_is_refused_by_name(tmp_path: Path) -> None:
    for content in ("[1]", "{", '"text"', '{"unit": "user"}'):
        (tmp_path / "statement.json").write_text(content)
        with pytest.raises(InputError, match=r"statement\.json is no whole statement: .*; take a whole copy"):
            Statement.load(tmp_path / "statement.json")


SAID = {
    "unit": "user",
    "adjacency": "add_remove",
    "epsilon": 1.0,
    "delta": 1e-6,
    "sampling": "Poisson",
    "mechanism": "Gaussian",
    "noise_source": "CSPRNG",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 10**400},
        {"sampling": None},
        {"noise_source": b"CSPRNG"},
        {"assumptions": "the loader is right"},  # would be read letter by letter
        {"assumptions": (1,)},
        {"alternatives": None},
        {"alternatives": (1,)},
        {"alternatives": ({"epsilon": -1.0},)},
        {"alternatives": ({"delta": float("nan")},)},
        {"alternatives": ({"name": "x", "cost": float("nan")},)},
        {"population": "many"},
        {"population": -1},
    ],
)
def test_a_statement_refuses_what_it_cannot_say_in_one_line(wrong):
    for make in (lambda: Statement(**{**SAID, **wrong}), lambda: Statement.from_json({**SAID, **wrong})):
        with pytest.raises(InputError) as refusal:
            make()
        assert "\n" not in str(refusal.value)


def test_a_cost_of_the_votes_enters_no_statement_by_any_name():
    votes = np.tile([250] + [0] * 9, (10, 1))
    private = vote_cost(votes, NoisyVote(noise_std=40.0), adjacency="replace").epsilon(1e-5)
    for alternative in (
        {"name": "as cast", "cost": private},
        {"name": "as cast", "costs": [private]},
        {"name": "as cast", "of": {"epsilon": private}},
    ):
        with pytest.raises(InputError, match="NotPrivate"):
            Statement(**SAID, alternatives=(alternative,))


def test_numbers_of_an_alternative_may_be_numpys():
    said = Statement(**SAID, alternatives=({"name": "x", "epsilon": np.float32(0.5), "queries": np.int64(3)},))
    assert json.loads(json.dumps(said.to_json()))["alternatives"] == [{"name": "x", "epsilon": 0.5, "queries": 3}]
