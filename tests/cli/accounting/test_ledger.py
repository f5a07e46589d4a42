"""ledger show, verify and merge: the numbers are those of the library, and every bad ledger is one line."""

import json
import shutil
from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato.ledger import Budget, Ledger
from sfumato.ledger import entries as chain
from sfumato.statement import Statement

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


def test_verify_tells_entries_and_head_and_finds_what_was_cut_off(sfumato, ledger: Path):
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


def test_a_torn_last_line_is_told_by_show_and_refused_by_verify(sfumato, ledger: Path, contents):
    ledger.write_bytes(ledger.read_bytes()[:-9])
    before = contents(ledger.parent)
    shown = sfumato("ledger", "show", ledger, "--json")
    assert (shown.code, json.loads(shown.out)["releases"]) == (0, 24)
    assert "torn by a crash and is left out" in shown.err
    assert (
        "line 26: torn by a crash; opening the ledger for a run repairs it" in sfumato("ledger", "verify", ledger).line
    )
    assert contents(ledger.parent) == before


def test_a_damaged_statement_beside_the_ledger_is_named(sfumato, finished: Path, tmp_path: Path):
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


def test_merge_says_which_option_tells_what_it_cannot_guess(sfumato, tmp_path: Path):
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
