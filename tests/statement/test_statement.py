"""Statements: what they state, their verdict, and the catalogue of their sentences."""

import ast
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sfumato._types import Assumption
from sfumato.accounting import Gaussian, InputError, NoisyVote, PureDP, Unknown, guarantee
from sfumato.statement import Statement
from sfumato.statement.sentences import SENTENCES, RenderedSentence, render
from sfumato.statement.statement import MOST_LINES, NOT_STATED, QUESTIONS, brief
from sfumato.statement.verdict import FPR, SCALE, default_delta, is_too_large, judge, membership, promised, published
from sfumato.voting import vote_cost
from slow import by_profile

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


def test_a_seeded_run_s_text_says_first_that_no_one_is_protected() -> None:
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


def test_every_question_has_an_answer_and_none_is_placeholder() -> None:
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
def test_plain_numbers_of_every_kind_are_written_similar(value) -> None:
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


# The verdict says what the best test finds, and one number decides its words.


STATED = Statement(
    unit="user",
    adjacency="add_remove",
    epsilon=8.0,
    delta=1e-6,
    sampling="Poisson, rate 0.0142222 a round",
    mechanism="200 Gaussian sums of contributions clipped to norm 1, noise multiplier 1.62289",
    noise_source="operating system's CSPRNG",
    assumptions=("The number of users is public.",) * 9,
)
UNITS = ("example", "user", "virtual_client", "agent", "identity", "patient", "label")
NEIGHBOURS = ("add_remove", "replace", "zero_out")


def spent(noise: float, delta: float = 1e-6) -> Statement:
    """A statement that is true of one release of Gaussian noise."""
    return replace(STATED, epsilon=guarantee(Gaussian(noise)).epsilon(delta), delta=delta)


@pytest.mark.parametrize("noise", [0.3, 0.6787, 1.0, 3.0, 20.0])
def test_the_bound_is_the_power_of_the_best_test_against_a_gaussian(noise):
    best = norm.cdf(1 / noise - norm.isf(FPR))  # Neyman and Pearson
    found = spent(noise).verdict(Gaussian(noise))
    assert best <= found.tpr <= best * (1 + 1e-9)
    assert found.advantage == pytest.approx(2 * norm.cdf(0.5 / noise) - 1)


def test_epsilon_and_delta_alone_never_show_less_than_the_curve_and_often_far_more():
    alone, curve = spent(0.6787).verdict(), spent(0.6787).verdict(Gaussian(0.6787))
    assert alone.tpr > 0.999
    assert curve.tpr < 0.2
    assert (alone.word, curve.word) == ("hardly any", "weak")


@settings(max_examples=by_profile(40), deadline=None, derandomize=True)
@given(st.floats(0, 12), st.floats(0, 0.3), st.floats(0, 1))
def test_the_promise_alone_is_attained_by_the_mechanism_that_is_worst_for_it(epsilon, delta, fpr):
    # Four outcomes (Kairouz, Oh and Viswanath 2015): certain with probability delta, else randomised response.
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    present = np.array([delta, (1 - delta) * keep, (1 - delta) * (1 - keep), 0.0])
    absent = np.array([0.0, (1 - delta) * (1 - keep), (1 - delta) * keep, delta])
    best = np.interp(fpr, np.cumsum([0.0, *absent]), np.cumsum([0.0, *present]))
    if fpr == 0:
        best = delta
    promise = promised(epsilon, delta, "zero_out")
    assert float(promise.tpr(fpr)) == pytest.approx(best, abs=1e-8)
    assert promise.advantage() == pytest.approx(np.maximum(present - absent, 0).sum(), abs=1e-8)


def test_a_promise_of_nothing_or_of_certainty_has_its_ends():
    assert promised(math.inf, 1e-6, "add_remove").advantage() == promised(1.0, 1.0, "replace").advantage() == 1.0
    assert promised(0.0, 0.0, "add_remove").advantage() == pytest.approx(0.0, abs=1e-9)


def test_the_share_that_was_certain_beyond_epsilon_is_more_than_delta():
    """Why no sentence says "except with probability delta": it would be wrong, here by a factor of 16."""
    epsilon, delta = 1.0, 1e-5
    lower, upper = 0.1, 10.0
    for _ in range(200):
        middle = math.sqrt(lower * upper)
        lower, upper = (lower, middle) if guarantee(Gaussian(middle)).delta(epsilon) < delta else (middle, upper)
    mu = 1 / lower
    beyond = norm.sf(epsilon / mu - mu / 2)  # the loss of N(mu, 1) against N(0, 1) is N(mu² / 2, mu²)
    assert beyond > 15 * delta
    assert "except with" not in replace(STATED, epsilon=epsilon, delta=delta).text().lower()


def test_the_words_follow_from_the_number_alone():
    for (most, word), (_, weaker) in pairwise(SCALE):
        for population in (None, 10, 10**9):
            told = replace(STATED, tpr_at_1_percent_fpr=most, population=population)
            assert told.verdict().word == word
            assert replace(told, tpr_at_1_percent_fpr=most * (1 + 1e-9)).verdict().word == weaker
    assert [word for _, word in SCALE] == ["strong", "moderate", "weak", "hardly any"]


def test_what_protects_no_one_is_no_protection():
    seeded = replace(STATED, noise_source="seeded: simulation only", tpr_at_1_percent_fpr=0.011)
    none = replace(STATED, epsilon=math.inf)
    false = spent(2.0).verdict(Gaussian(2.0) * 100)
    assert replace(none, delta=0.1, population=1000).verdict().delta_too_large == ""
    for verdict in (seeded.verdict(), none.verdict(), false):
        assert verdict.word == "no"
        assert verdict.sentence == verdict.void
    assert seeded.verdict().if_it_held == "strong"
    assert "its ledger costs epsilon" in false.void
    assert false.tpr == pytest.approx(norm.cdf(5 - norm.isf(FPR)))  # of what was released, not of what was stated


def test_an_event_that_no_accountant_knows_leaves_the_promise():
    claim = PureDP(2.0, adjacency="add_remove")
    with pytest.raises(Unknown):
        guarantee(claim, "zero_out")
    told = replace(STATED, adjacency="zero_out", epsilon=2.0)
    assert told.verdict(claim) == told.verdict()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_the_sentence_on_tests_rounds_up(unit, adjacency):
    told = judge(unit=unit, adjacency=adjacency, epsilon=8.0, delta=1e-6, tpr=0.1234001)
    assert "finds at most 12.4 % of" in told.attacker
    assert ("test for one label" in told.attacker) == (unit == "label")
    assert "may find all" in replace(told, tpr=1.0).attacker


def test_delta_is_held_against_the_number_of_units():
    assert is_too_large(2_250**-1.1, 2_250)
    large = replace(STATED, delta=2_250**-1.1, population=2_250)
    told = large.verdict().delta_too_large
    assert "delta times the number of users is 0.47" in told
    assert [line for line in large.sentences if line.id == "delta_too_large"] == [f"Warning: d{told[1:]}"]
    for population in (1, 40, 2_250, 10**9):
        assert published(default_delta(population), population) == pytest.approx(0.01)
        usual = replace(STATED, delta=default_delta(population), population=population)
        assert usual.verdict().delta_too_large == ""
        assert usual.assumptions == STATED.assumptions


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("noise_source", ["operating system's CSPRNG", "seeded: simulation only"])
@pytest.mark.parametrize("event", [None, Gaussian(0.62), Gaussian(0.2)])
@pytest.mark.parametrize("epsilon", [8.0, math.inf])
@pytest.mark.parametrize(
    "halted", ["", "Stopped after 1100 of 6000 rounds; its key is still in checkpoint/, and sfumato close deletes it."]
)
def test_a_terminal_gets_at_most_eight_lines_and_one_on_a_stop_whatever_is_wrong(
    unit, adjacency, noise_source, event, epsilon, halted
):
    stated = replace(
        STATED, unit=unit, adjacency=adjacency, noise_source=noise_source, epsilon=epsilon, delta=1e-4, population=5000
    )
    trouble = "The model learned nothing: " + "the losses of the last 3 rounds are not finite, and so on. " * 3
    where = "runs/faces/statement.json, runs/faces/report.html"
    lines = brief(stated, event, stopped=halted, trouble=trouble, where=where)
    assert len(lines) <= MOST_LINES + bool(halted)
    assert all(len(line) <= 120 for line in lines)
    text, verdict = " ".join(lines), stated.verdict(event)
    assert verdict.sentence in text
    assert verdict.title in text
    assert lines[-1].endswith("report.html")
    assert text.startswith(f"{halted} The model learned nothing".strip())
    if math.isfinite(epsilon):
        assert verdict.delta_too_large in text
        assert "epsilon 8, delta 0.0001" in text
        assert "Not covered" in text


def test_the_statement_s_text_uses_the_verdict_and_rounds_up():
    stated = replace(STATED, epsilon=2.00004, delta=3.1623e-6, tpr_at_1_percent_fpr=0.0345)
    text = stated.text()
    assert stated.verdict().title in text
    assert membership(stated.unit, FPR, stated.verdict().tpr) in text
    assert "Epsilon: 2.001" in text
    assert "Delta: 3.17e-06" in text
    other = {"name": "by another accountant", "epsilon": 2.00004, "delta": 3.1623e-6}
    assert "2.001  3.17e-06" in replace(stated, alternatives=(other,)).text()


# The catalogue of sentences: ids in the code are ids in the catalogue, and placeholders have their values.


ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"
SCHEMA = json.loads((ROOT / "docs" / "reference" / "statement.schema.json").read_text("utf-8"))
EXAMPLE = ROOT / "docs" / "reference" / "statement.example.json"
RETIRED = ("told", "tells", "beside", "nobody", "apart", "whoever", "alike", "restrained", "outlook", "story", "course")
PUBLIC = Statement(
    unit="user",
    adjacency="add_remove",
    epsilon=2.0,
    delta=1e-6,
    sampling="Poisson",
    mechanism="noise",
    noise_source="operating system's CSPRNG",
    assumptions=(render(Assumption("virtual_clients")), "In my own words."),
)


def _words() -> Iterator[str]:
    """All plain strings in the code, the catalogue's own file left out."""
    for file in SOURCE.rglob("*.py"):
        if file.name != "sentences.py":
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def _made() -> Iterator[str]:
    """Ids that stand where an assumption is made."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Assumption" and file.name != "_types.py":
                for each in ast.walk(node.args[0]):
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and "_" in each.value:
                        yield each.value


def test_the_catalogue_has_what_the_code_says_and_nothing_else():
    words = set(_words())
    suffixed = {f"{name}_all" for name in ("membership", "label_test")}
    assert [name for name in SENTENCES if name not in words | suffixed] == []
    assert set(_made()) - set(SENTENCES) - {"this_statement"} == set()


def test_no_id_stands_twice_and_every_sentence_ends():
    text = (SOURCE / "statement" / "sentences.py").read_text("utf-8")
    assert len(re.findall(r"^    Sentence\(", text, re.M)) == len(SENTENCES)
    phrases = ("randomness_os", "randomness_seeded")
    assert all(each.text.endswith(".") for each in SENTENCES.values() if each.id not in phrases)


def test_sentences_are_short_and_in_plain_words():
    sentences = [one for each in SENTENCES.values() for one in re.split(r"(?<=[.]) ", each.text)]
    assert sum(len(one.split()) for one in sentences) / len(sentences) <= 16
    for each in SENTENCES.values():
        assert not set(re.findall(r"[a-z]+", each.text.lower())) & set(RETIRED), each.id


@pytest.mark.parametrize(
    ("assumption", "words"),
    [
        (Assumption("no_such"), "there is no sentence 'no_such'"),
        (Assumption("logged"), "needs a value for service"),
        (Assumption("virtual_clients", {"users": 3}), "takes no value 'users'"),
        (Assumption("logged", {"service": [1]}), "service of the sentence 'logged' must be text or a number"),  # type: ignore[dict-item]
        (Assumption("attributes_public", {"count": "many"}), "cannot hold these values"),
    ],
)
def test_a_wrong_sentence_is_refused_in_one_line(assumption: Assumption, words: str):
    with pytest.raises(InputError, match=words) as refusal:
        render(assumption)
    assert "\n" not in str(refusal.value)


def test_an_author_s_own_words_have_no_id_and_a_sentence_of_the_catalogue_keeps_its_own():
    virtual, own = PUBLIC.sentences
    assert (virtual.id, own.id) == ("virtual_clients", "")
    assert Statement.from_json(json.loads(json.dumps(PUBLIC.to_json()))).sentences[0].id == "virtual_clients"
    assert render("seeded: simulation only").id == "randomness_seeded"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"assumptions": [{"id": "no_such", "values": {}, "text": "x"}]}, "no sentence 'no_such'; read the file with"),
        ({"assumptions": [{"id": ["logged"], "values": {}, "text": "x"}]}, r"no sentence \['logged'\]"),
        ({"assumptions": [{"id": "one_run", "values": {"units": "users"}, "text": "x"}]}, "takes no value 'units'"),
        ({"assumptions": [{"id": "one_run", "values": [], "text": "x"}]}, "a sentence must be"),
        ({"assumptions": [{"id": "one_run", "text": "x"}]}, "a sentence must be"),
        ({"noise_source": {"id": "no_such", "values": {}, "text": "x"}}, "no sentence 'no_such'"),
        ({"assumptions": [{"id": "logged", "values": {}, "text": "x"}]}, "needs a value for service"),
        ({"assumptions": ["text alone"]}, "a sentence must be"),
        ({"$schema": "urn:other"}, "schema must be"),
        ({"version": 3}, "version must be 1 or 2"),
        ({"version": 1}, "neither"),
    ],
)
def test_a_file_of_another_form_is_refused_in_one_line(change: dict, words: str, tmp_path: Path):
    value = {**PUBLIC.to_json(), **change}
    (tmp_path / "statement.json").write_text(json.dumps(value))
    for read in (lambda: Statement.from_json(value), lambda: Statement.load(tmp_path / "statement.json")):
        with pytest.raises(InputError, match=words) as refusal:
            read()
        assert "\n" not in str(refusal.value)


def test_a_file_of_the_first_version_keeps_its_sentences_and_its_digest():
    file = ROOT / "tests" / "statement" / "version_1.json"
    old = json.loads(file.read_text("utf-8"))
    stated = Statement.load(file)
    assert stated.version == 1
    assert stated.to_json() == old
    assert stated.digest == (file.parent / "version_1.sha256").read_text().strip()
    assert set(old["assumptions"]) <= set(stated.assumptions)
    shown = " ".join(stated.text().split())
    assert all(" ".join(sentence.split()) in shown for sentence in old["assumptions"])
    assert replace(stated, disclosure={}).version == 1


def test_a_sentence_that_was_reworded_since_is_shown_as_it_was_written():
    value = PUBLIC.to_json()
    value["assumptions"][0]["text"] = "As it was worded then."
    stated = Statement.from_json(value)
    assert stated.assumptions[0] == "As it was worded then."
    assert stated.to_json() == value


def test_the_page_on_statements_has_the_usual_sentences_in_full():
    page = (ROOT / "docs" / "how-to" / "read-a-statement.md").read_text("utf-8")
    missing = [each.id for each in SENTENCES.values() if each.usual and f"| `{each.id}` | {each.text} |" not in page]
    assert missing == []


def test_statements_follow_the_published_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for value in (PUBLIC.to_json(), json.loads(EXAMPLE.read_text("utf-8"))):
        jsonschema.validate(value, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert isinstance(Statement.from_json(value).sentences[0], RenderedSentence)
    assert set(SCHEMA["properties"]) == set(PUBLIC.to_json())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**PUBLIC.to_json(), "color": "red"}, SCHEMA)
