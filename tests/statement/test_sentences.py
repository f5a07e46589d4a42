"""The catalogue of sentences: ids in the code are ids in the catalogue, and placeholders have their values."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from sfumato._check import InputError
from sfumato._types import Assumption
from sfumato.statement import Statement
from sfumato.statement.sentences import SENTENCES, RenderedSentence, render

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"
SCHEMA = json.loads((ROOT / "docs" / "reference" / "statement.schema.json").read_text("utf-8"))
EXAMPLE = ROOT / "docs" / "reference" / "statement.example.json"
RETIRED = ("told", "tells", "beside", "nobody", "apart", "whoever", "alike", "restrained", "outlook", "story", "course")
STATEMENT = Statement(
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
    virtual, own = STATEMENT.sentences
    assert (virtual.id, own.id) == ("virtual_clients", "")
    assert Statement.from_json(json.loads(json.dumps(STATEMENT.to_json()))).sentences[0].id == "virtual_clients"
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
    value = {**STATEMENT.to_json(), **change}
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
    value = STATEMENT.to_json()
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
    for value in (STATEMENT.to_json(), json.loads(EXAMPLE.read_text("utf-8"))):
        jsonschema.validate(value, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert isinstance(Statement.from_json(value).sentences[0], RenderedSentence)
    assert set(SCHEMA["properties"]) == set(STATEMENT.to_json())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**STATEMENT.to_json(), "color": "red"}, SCHEMA)
