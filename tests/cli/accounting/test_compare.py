"""compare: one convention for all, the library's numbers, and words where numbers do not compare."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato.ledger import Ledger
from sfumato.statement import Statement

RUN = acc.Gaussian(1.0).poisson(0.02) * 300


@pytest.fixture
def event(tmp_path: Path) -> Path:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(RUN.to_json()))
    return path


def statement(path: Path, **changes) -> Path:
    cost = acc.guarantee(RUN)
    low, high = cost.epsilon_interval(1e-6)
    fields = {"unit": "user", "adjacency": "add_remove", "epsilon": high, "epsilon_lower": low, "delta": 1e-6}
    words = {"sampling": "Poisson", "mechanism": "Gaussian sums", "noise_source": "operating system's CSPRNG"}
    Statement(**{**fields, **words, **changes}).save(path)
    return path


def run_folder(path: Path, event: acc.Event = RUN, **changes) -> Path:
    path.mkdir()
    with Ledger.open(path / "ledger.jsonl") as ledger:
        ledger.append(event)
    statement(path / "statement.json", **changes)
    return path


def compared(sfumato, *words: object) -> dict:
    outcome = sfumato("compare", *words, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_every_kind_of_source_gives_the_library_s_numbers(sfumato, event: Path, tmp_path: Path):
    account = tmp_path / "account.json"
    words = ("account", "--noise-multiplier", 1, "--sampling-rate", 0.02, "--steps", 300, "--json")
    account.write_text(sfumato(*words).out)
    folder = run_folder(tmp_path / "run")
    told = compared(sfumato, event, account, folder, folder / "ledger.jsonl", "--delta", 1e-5)
    cost = acc.guarantee(RUN)
    low, high = cost.epsilon_interval(1e-5)
    for row in told["runs"]:
        assert (row["epsilon_lower"], row["epsilon"], row["rho"]) == (low, high, cost.rho())
        assert row["mu"] == cost.gdp().mu
        assert row["advantage"] == cost.advantage()
        assert row["tpr_at_fpr"] == {f"{f:g}": float(cost.tpr(f)) for f in (0.01, 0.001)}
        assert row["comparable"]
    shown = sfumato("compare", event, folder, "--delta", 1e-5).out
    assert f"{high:.5g}" in shown
    assert "300 × gaussian (noise multiplier 1), Poisson sample 0.02" in " ".join(shown.split())
    assert "its unit is not known" in shown


def test_all_are_brought_to_the_largest_stated_delta_and_the_first_adjacency(sfumato, event: Path, tmp_path: Path):
    one = run_folder(tmp_path / "one", delta=1e-7, epsilon=9.0, adjacency="replace")
    two = run_folder(tmp_path / "two", delta=1e-5)
    told = compared(sfumato, event, one, two)
    assert (told["delta"], told["adjacency"], told["unit"]) == (1e-5, "replace", "user")
    assert {row["epsilon"] for row in told["runs"]} == {acc.guarantee(RUN, adjacency="replace").epsilon(1e-5)}
    assert told["runs"][2]["remarks"] == ["stated under add_remove, accounted here under replace"]
    chosen = compared(sfumato, one, two, "--adjacency", "add_remove", "--delta", 1e-8)
    assert {row["epsilon"] for row in chosen["runs"]} == {acc.guarantee(RUN).epsilon(1e-8)}


def test_another_unit_is_not_comparable_and_a_line_says_so(sfumato, tmp_path: Path):
    one, two = run_folder(tmp_path / "one"), run_folder(tmp_path / "two", unit="virtual_client")
    assert [row["comparable"] for row in compared(sfumato, one, two)["runs"]] == [True, False]
    shown = sfumato("compare", one, two).out
    assert "not comparable" in shown
    assert f"{two} cannot be compared: its unit is virtual_client, not user" in shown


def test_a_lower_bound_that_the_statement_leaves_out_is_left_out_here_too(sfumato, tmp_path: Path):
    """Virtual clients: what the sums cost a group of users need not be what it costs one of them."""
    one, two = run_folder(tmp_path / "one", epsilon_lower=None), run_folder(tmp_path / "two")
    rows = compared(sfumato, one, two)["runs"]
    assert rows[0]["epsilon_lower"] is None
    assert rows[0]["epsilon"] == rows[1]["epsilon"] > rows[1]["epsilon_lower"] > 0
    shown = sfumato("compare", one, two).out
    assert f"≤ {rows[0]['epsilon']:.5g}" in shown


def test_a_statement_alone_is_bounded_by_what_it_promises(sfumato, tmp_path: Path):
    alone, folder = statement(tmp_path / "alone.json"), run_folder(tmp_path / "run")
    told = compared(sfumato, folder, alone)["runs"]
    assert told[1]["epsilon"] == pytest.approx(told[0]["epsilon"])
    assert told[1]["epsilon_lower"] is None
    assert told[1]["advantage"] > told[0]["advantage"]  # one point of the curve shows less than the curve
    assert told[1]["tpr_at_fpr"]["0.01"] > told[0]["tpr_at_fpr"]["0.01"]
    assert told[1]["mu"] is None
    assert "from its statement alone" in told[1]["remarks"][0]


def test_a_statement_alone_cannot_be_converted_and_says_so(sfumato, tmp_path: Path):
    alone = statement(tmp_path / "alone.json", delta=1e-4)
    folder = run_folder(tmp_path / "run")
    row = compared(sfumato, folder, alone, "--delta", 1e-6)["runs"][1]
    assert (row["epsilon"], row["comparable"]) == (None, False)
    assert "stated at delta 0.0001 only; --delta 0.0001 compares it" in row["obstacles"][0]
    row = compared(sfumato, folder, alone, "--adjacency", "replace")["runs"][1]
    assert "stated under add_remove only, not replace" in row["obstacles"][0]
    statement(alone, delta=1e-4, rho=0.1)  # zCDP holds at every delta
    assert compared(sfumato, folder, alone, "--delta", 1e-6)["runs"][1]["epsilon"] == pytest.approx(
        acc.guarantee(acc.Gaussian(math.sqrt(5)), method="zcdp").epsilon(1e-6)
    )


def test_a_ledger_that_costs_more_than_its_statement_is_marked(sfumato, tmp_path: Path):
    honest, false = run_folder(tmp_path / "honest"), run_folder(tmp_path / "false", event=RUN * 2)
    told = compared(sfumato, honest, false)["runs"]
    assert [row["comparable"] for row in told] == [True, False]
    assert "more than its statement says" in told[1]["obstacles"][0]


def test_the_verdict_is_that_of_the_statement_in_the_same_words(sfumato, tmp_path: Path):
    one, two = run_folder(tmp_path / "one", population=400_000), run_folder(tmp_path / "two")
    alone = statement(tmp_path / "alone.json")
    verdict = Statement.load(one / "statement.json").verdict(RUN)
    told = compared(sfumato, one, two, alone)["runs"]
    for row in told[:2]:
        assert (row["verdict"]["protection"], row["verdict"]["sentence"]) == (verdict.word, verdict.sentence)
    assert "is 0.4, and should be below" in told[0]["verdict"]["delta"]
    assert told[1]["verdict"]["delta"] == ""
    assert told[2]["verdict"]["sentence"] == Statement.load(alone).verdict().sentence
    shown = sfumato("compare", one, two).out
    assert f"{verdict.title}. {verdict.sentence} Delta is too large" in " ".join(shown.split())
    other = compared(sfumato, one, two, "--adjacency", "replace")["runs"][0]
    assert "any membership test finds at most" in other["verdict"]["sentence"]
    kept = statement(tmp_path / "kept.json", tpr_at_1_percent_fpr=verdict.tpr)
    row = compared(sfumato, alone, kept)["runs"][1]
    assert (row["tpr_at_fpr"]["0.01"], row["verdict"]["sentence"]) == (verdict.tpr, verdict.sentence)


def test_a_seeded_run_and_one_without_noise_are_called_what_they_are(sfumato, finished: Path, tmp_path: Path):
    bare = run_folder(tmp_path / "bare", event=acc.NonPrivate(), epsilon=math.inf)
    told = compared(sfumato, finished, bare)["runs"]
    assert [row["verdict"]["protection"] for row in told] == ["no", "no"]
    assert "seeded" in told[0]["verdict"]["sentence"]
    assert "epsilon is infinite" in told[1]["verdict"]["sentence"]
    assert (told[1]["epsilon"], told[1]["advantage"]) == ("inf", 1.0)
    assert "infinite" in sfumato("compare", finished, bare).out
    alone = statement(tmp_path / "alone.json", epsilon=math.inf)
    assert compared(sfumato, finished, alone)["runs"][1]["advantage"] == 1.0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.json", None, "there is nothing at"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", "neither a statement nor an event"),
        ("a.json", '{"plan": "fedemb"}', "neither a statement nor an event"),
        ("a.json", '{"unit": "user"}', "is no whole statement"),
        ("a.json", '{"event": "quantum"}', "unknown event 'quantum'"),
        ("a.json", '{"event": "gaussian", "noise_multiplier": -1}', "noise_multiplier must be > 0"),
        ("a.jsonl", "hello\n", "line 1: not an entry of a ledger"),
        ("picture.json", b"\x89PNG\xff", "is not JSON"),
    ],
)
def test_what_cannot_be_read_is_one_line(sfumato, event: Path, tmp_path: Path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = sfumato("compare", event, path).line
    assert words in line
    assert str(path) in line


def test_questions_that_make_no_sense_are_one_line(sfumato, event: Path, tmp_path: Path, finished: Path):
    assert "give two or more" in sfumato("compare", event).line
    assert "delta must be in (0, 1)" in sfumato("compare", event, event, "--delta", 0).line
    (tmp_path / "empty").mkdir()
    assert "neither statement.json nor ledger.jsonl" in sfumato("compare", event, tmp_path / "empty").line
    broken = shutil.copytree(finished, tmp_path / "broken")
    (broken / "ledger.jsonl").write_text((broken / "ledger.jsonl").read_text().replace("gaussian", "laplace", 1))
    assert "line 1: was changed" in sfumato("compare", event, broken).line


def test_a_statement_s_fields_are_those_that_are_compared():
    """A field that is added to the statement shall not slip through this command unseen."""
    used = {"unit", "adjacency", "epsilon", "delta", "rho", "noise_source", "mechanism", "sampling"}
    used |= {"population", "tpr_at_1_percent_fpr", "epsilon_lower"}
    unused = {"assumptions", "alternatives", "disclosure", "ledger", "version"}
    assert {field.name for field in dataclasses.fields(Statement)} == used | unused


def test_each_row_says_its_unit_neighbours_and_delta_in_80_columns(sfumato, event: Path, tmp_path: Path):
    folder = run_folder(tmp_path / "run", adjacency="zero_out", delta=1e-7)
    shown = sfumato("compare", event, folder, "--delta", 1e-5, "--adjacency", "add_remove").out
    assert "Unit not stated; neighbours add_remove, delta 1e-05." in shown
    told = "Unit user; neighbours add_remove, delta 1e-05; stated for neighbours zero_out, delta 1e-07."
    assert told in " ".join(shown.split())
    below = shown.split("─\n")[1].split("\n\n", 1)[1]  # the table is as wide as its names
    assert all(len(line) <= 80 for line in below.splitlines() if str(tmp_path) not in line)
    for column in ("epsilon", "rho", "mu", "advantage", "TPR"):
        assert re.search(rf"^{column}: ", shown, re.M)
