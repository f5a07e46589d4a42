"""`sfumato ledger` and `compare`: what runs recorded, and what they cost under one convention."""

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato.ledger import Budget, Ledger
from sfumato.ledger import entries as chain
from sfumato.statement import Statement

# ledger show, verify and merge: the numbers are those of the library, and every bad ledger is one line.


PRETRAIN, TRAIN = acc.Gaussian(1.1).poisson(0.01), acc.Gaussian(2.0).poisson(0.02)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two phases within a budget."""
    path = tmp_path / "a.jsonl"
    with Ledger.open(path, budget=Budget(epsilon=2.0, delta=1e-6, fixed_plan=True)) as opened:
        for _ in range(20):
            opened.append(PRETRAIN, phase="pretrain")
        for _ in range(5):
            opened.append(TRAIN, phase="train")
    return path


def test_show_gives_each_row_s_own_cost_and_the_running_total(sfumato, ledger: Path):
    told = json.loads(sfumato("ledger", "show", ledger, "--json").out)
    costs = [acc.guarantee(event).epsilon(1e-6) for event in (PRETRAIN * 20, TRAIN * 5, PRETRAIN * 20 + TRAIN * 5)]
    assert [(row["phase"], row["count"]) for row in told["rows"]] == [("pretrain", 20), ("train", 5)]
    assert [row["epsilon"] for row in told["rows"]] == costs[:2]
    assert [row["epsilon_so_far"] for row in told["rows"]] == [costs[0], costs[2]]
    assert told["epsilon"] == told["budget"]["spent"] == costs[2]
    assert (told["delta"], told["adjacency"], told["entries"], told["releases"]) == (1e-6, "add_remove", 26, 25)
    with Ledger.open(ledger) as opened:
        assert told["budget"]["more_of_the_last"] == opened.remaining(TRAIN)
        assert told["head"] == opened.totals.head
    shown = sfumato("ledger", "show", ledger).out
    for words in (
        "gaussian (noise multiplier 1.1), Poisson sample 0.01",
        f"{costs[2]:.4g}",
        "epsilon 2 at delta 1e-06",
    ):
        assert words in shown


def test_a_strategy_of_many_numbers_is_shown_by_how_many_they_are(sfumato, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    coefficients = [1 / (1 + lag) for lag in range(9)]
    strategy = acc.MatrixMechanism.toeplitz(2.0, acc.Participation(rounds=9), coefficients)
    with Ledger.open(path) as opened:
        opened.append(strategy)
    shown = sfumato("ledger", "show", path, "--adjacency", "zero_out").out
    assert "parameters of 9 numbers, squared sensitivity" in shown
    assert "digest" not in shown


def test_show_asks_under_another_convention_and_for_one_phase(sfumato, ledger: Path):
    words = ("ledger", "show", ledger, "--phase", "train", "--delta", 1e-4, "--adjacency", "replace", "--json")
    told = json.loads(sfumato(*words).out)
    assert [row["phase"] for row in told["rows"]] == ["train"]
    assert told["rows"][0]["epsilon_so_far"] == acc.guarantee(TRAIN * 5, adjacency="replace").epsilon(1e-4)
    assert told["epsilon"] == acc.guarantee(PRETRAIN * 20 + TRAIN * 5, adjacency="replace").epsilon(1e-4)
    assert "over all phases" in sfumato("ledger", "show", ledger, "--phase", "train").out
    assert "no phase 'tune'; its phases are: 'pretrain', 'train'" in sfumato(*words[:4], "tune").line
    assert "delta must be in (0, 1)" in sfumato(*words[:3], "--delta", 1).line


def test_a_run_s_folder_is_shown_under_its_own_statement(sfumato, finished: Path):
    told = json.loads(sfumato("ledger", "show", finished, "--json").out)
    statement = Statement.load(finished / "statement.json")
    assert (told["delta"], told["adjacency"]) == (statement.delta, statement.adjacency)
    assert told["epsilon"] == statement.epsilon
    assert told["budget"] is None
    assert "chain unbroken" in sfumato("ledger", "verify", finished).out
    assert '"run"' not in (finished / "ledger.jsonl").read_text()  # a seeded run has no identity


def test_a_released_run_has_an_identity_of_its_own(sfumato, people: Path, small, tmp_path: Path):
    for name in ("a", "b"):
        words = ("fedemb", "--data", people, *small, "--noise", 1, "--out", tmp_path / name)
        assert sfumato(*words).code == 0
    paths = [tmp_path / name / "ledger.jsonl" for name in ("a", "b")]
    entries = [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]
    assert [("run" in entry) for entry in entries[0]] == [True, False, False, False]  # the last names the statement
    assert entries[0][0]["run"] != entries[1][0]["run"]
    with pytest.raises(acc.InputError, match="no release in common"):
        Ledger.merge(paths, tmp_path / "merged.jsonl")
    assert Ledger.merge(paths, tmp_path / "both.jsonl", unrelated=True).releases == 6


def test_verify_reports_entries_and_head_and_finds_what_was_cut_off(sfumato, ledger: Path):
    told = json.loads(sfumato("ledger", "verify", ledger, "--json").out)
    assert told["entries"] == 26
    assert told["head"] in sfumato("ledger", "verify", ledger).out
    assert sfumato("ledger", "verify", ledger, "--head", told["head"]).code == 0
    with Ledger.open(ledger) as opened:
        opened.append(TRAIN)
    assert sfumato("ledger", "verify", ledger, "--head", told["head"]).code == 0
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:20]))
    assert sfumato("ledger", "verify", ledger).code == 0  # a chain cannot tell
    assert "lines were cut off" in sfumato("ledger", "verify", ledger, "--head", told["head"]).line


def _newer() -> bytes:
    fields = {"event": acc.Gaussian(1.0).to_json(), "format": 9}
    return chain.line(chain.seal(fields, index=0, previous=chain.ORIGIN))


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"1.1", b"9.1"), *lines[2:]], "line 2: was changed"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 4: does not follow"),
        (lambda lines: [b"\x89PNG\r\n", *lines], "line 1: not an entry of a ledger; give the ledger.jsonl"),
        (lambda lines: [*lines[:3], b"hello\n"], "line 4: not an entry of a ledger; restore the file from a backup"),
        (lambda lines: [], "is empty"),
        (lambda lines: [_newer()], "newer version of sfumato (format 9, this one reads 1); update sfumato"),
    ],
)
def test_a_bad_ledger_is_one_line(sfumato, ledger: Path, contents, command, damage, words):
    ledger.write_bytes(b"".join(damage(ledger.read_bytes().splitlines(keepends=True))))
    before = contents(ledger.parent)
    line = sfumato("ledger", command, ledger).line
    assert words in line
    assert str(ledger) in line
    assert contents(ledger.parent) == before


@pytest.mark.parametrize("command", ["show", "verify"])
def test_what_is_no_ledger_is_one_line(sfumato, ledger: Path, tmp_path: Path, monkeypatch, command):
    assert "no ledger at" in sfumato("ledger", command, tmp_path / "none").line
    assert "holds no ledger.jsonl" in sfumato("ledger", command, tmp_path).line
    assert "missing: PATH" in sfumato("ledger", command).line

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(chain, "open", denied, raising=False)
    assert "may not be read" in sfumato("ledger", command, ledger).line


def test_a_torn_last_line_is_reported_by_show_and_refused_by_verify(sfumato, ledger: Path, contents):
    ledger.write_bytes(ledger.read_bytes()[:-9])
    before = contents(ledger.parent)
    shown = sfumato("ledger", "show", ledger, "--json")
    assert (shown.code, json.loads(shown.out)["releases"]) == (0, 24)
    assert "torn by a crash and is left out" in shown.err
    assert (
        "line 26: torn by a crash; opening the ledger for a run repairs it" in sfumato("ledger", "verify", ledger).line
    )
    assert contents(ledger.parent) == before


def test_a_damaged_statement_next_to_the_ledger_is_named(sfumato, finished: Path, tmp_path: Path):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "statement.json").write_text('{"unit": "us')
    assert "statement.json is no whole statement" in sfumato("ledger", "show", run).line
    assert sfumato("ledger", "show", run, "--delta", 1e-5, "--adjacency", "add_remove").code == 0


def test_many_different_events_are_listed_and_the_first_are_accounted(sfumato, tmp_path: Path):
    with Ledger.open(tmp_path / "a.jsonl") as opened:
        for index in range(60):
            opened.append(acc.Gaussian(50.0 + index))
    told = json.loads(sfumato("ledger", "show", tmp_path / "a.jsonl", "--json").out)
    assert [("epsilon" in row) for row in told["rows"]] == [True] * 50 + [False] * 10
    assert "10 rows more" in sfumato("ledger", "show", tmp_path / "a.jsonl").out


def test_an_overspent_budget_and_no_privacy_are_said(sfumato, tmp_path: Path):
    with Ledger.open(tmp_path / "a.jsonl") as opened:
        opened.append(acc.NonPrivate())
    with Ledger.open(tmp_path / "a.jsonl", budget=Budget(epsilon=1.0, delta=1e-5)):
        pass
    shown = sfumato("ledger", "show", tmp_path / "a.jsonl").out
    assert "spent infinite; left for 0 more" in shown


def test_the_group_lists_its_commands(sfumato):
    for words in (("ledger",), ("ledger", "--help")):
        assert "ledger verify" in sfumato(*words).out
    assert "there is no command 'ledger list'" in sfumato("ledger", "list").line


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """One ledger of a named writer, copied; both went on with the same release."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    with Ledger.open(one, identity="a", budget=Budget(epsilon=3.0, delta=1e-6)) as opened:
        opened.append(PRETRAIN, phase="pretrain")
    shutil.copy(one, two)
    for path, writer in ((one, "b"), (two, "c")):
        with Ledger.open(path, identity=writer) as opened:
            opened.append(TRAIN, phase="train")
    return one, two


def test_merge_counts_what_ledgers_share_once_and_keeps_them(sfumato, copies, tmp_path: Path):
    before = [path.read_bytes() for path in copies]
    out = tmp_path / "all.jsonl"
    told = json.loads(sfumato("ledger", "merge", *copies, "--out", out, "--json").out)
    merged = Ledger.read(out)
    assert merged.event() == PRETRAIN + TRAIN * 2
    assert (told["releases"], told["entries"], told["head"]) == (3, merged.entries, merged.head)
    assert told["budget"] == {"epsilon": 3.0, "delta": 1e-6, "adjacency": "add_remove"}
    assert [path.read_bytes() for path in copies] == before
    assert "chain unbroken" in sfumato("ledger", "verify", out).out
    again = sfumato("ledger", "merge", out, copies[1], "--out", tmp_path / "again.jsonl", "--rho", 1).out
    assert "3 releases from 2 ledgers" in again
    assert "budget: rho 1 " in again


def test_merge_says_which_option_reports_what_it_cannot_guess(sfumato, tmp_path: Path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path in paths:
        with Ledger.open(path) as opened:
            opened.append(TRAIN)
    words = ("ledger", "merge", *paths, "--out")
    line = sfumato(*words, tmp_path / "c.jsonl").line
    assert "--same-run" in line
    assert "--unrelated" in line
    assert "=True" not in line
    assert not (tmp_path / "c.jsonl").exists()
    assert sfumato(*words, tmp_path / "once.jsonl", "--same-run").code == 0
    assert sfumato(*words, tmp_path / "both.jsonl", "--unrelated").code == 0
    assert Ledger.read(tmp_path / "once.jsonl").event() == TRAIN
    assert Ledger.read(tmp_path / "both.jsonl").event() == TRAIN * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one.jsonl",), "two or more"),
        (("one.jsonl", "no.jsonl", "--out", "x.jsonl"), "no ledger at no.jsonl"),
        (("one.jsonl", ".", "--out", "x.jsonl"), "holds no ledger.jsonl"),
        (("one.jsonl", "text.jsonl", "--out", "x.jsonl"), "text.jsonl, line 1: not an entry"),
        (("one.jsonl", "two.jsonl", "--out", "one.jsonl"), "exists already"),
        (("one.jsonl", "other.jsonl", "--out", "x.jsonl"), "--unrelated"),
        (("one.jsonl", "two.jsonl", "--out", "nowhere/x.jsonl"), "nowhere"),
        (("one.jsonl", "two.jsonl", "--out", "x.jsonl", "--epsilon", 1), "epsilon and delta, or rho"),
        (("one.jsonl", "two.jsonl", "--out", "x.jsonl", "--rho", -1), "rho must be >= 0"),
        (("one.jsonl", "rho.jsonl", "--out", "x.jsonl", "--unrelated"), "give --epsilon and --delta, or --rho"),
    ],
)
def test_merge_refuses_in_one_line_and_leaves_nothing(sfumato, copies, tmp_path: Path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.jsonl").write_text("a text\n")
    for name, budget in (("other.jsonl", None), ("rho.jsonl", Budget(rho=1.0))):
        with Ledger.open(name, identity="d", budget=budget) as opened:
            opened.append(TRAIN)
    if "--out" not in words:
        words = (*words, "--out", "x.jsonl")
    assert said in sfumato("ledger", "merge", *words).line
    assert not (tmp_path / "x.jsonl").exists()


# compare: one convention for all, the library's numbers, and words where numbers do not compare.


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
