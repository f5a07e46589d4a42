"""A statement and its ledger name each other: neither can be cut, exchanged or changed alone without being found."""

import json
import shutil
from pathlib import Path

import pytest

from sfumato import accounting as acc
from sfumato.ledger import Ledger
from sfumato.ledger import ledger as binding
from sfumato.report import write_report
from sfumato.runs import RunFolder
from sfumato.statement import Statement
from small_run import EVENT, ROUNDS, work


def cut(run: Path) -> None:
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:2]))


def cut_the_seal(run: Path) -> None:
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))


def another_ledger(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    with Ledger.open(run / "ledger.jsonl") as ledger:
        for index in range(ROUNDS):
            ledger.append(EVENT, round=index + 1)


def another_run_s_ledger(run: Path) -> None:
    work(run.parent / "other")
    shutil.copy(run.parent / "other" / "ledger.jsonl", run / "ledger.jsonl")


def another_run_s_statement(run: Path) -> None:
    work(run.parent / "other")
    shutil.copy(run.parent / "other" / "statement.json", run / "statement.json")


def change(name: str, value: object):
    def changed(run: Path) -> None:
        stated = json.loads((run / "statement.json").read_text())
        stated[name] = value
        (run / "statement.json").write_text(json.dumps(stated))

    changed.__name__ = f"change_{name}"
    return changed


def change_the_plan(run: Path) -> None:
    (run / "plan.json").write_text((run / "plan.json").read_text().replace('"rounds": 4', '"rounds": 3'))


def change_the_model(run: Path) -> None:
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (run / "model.safetensors").write_bytes(content)


TAMPERINGS = [
    (cut, "lines were cut off"),
    (cut_the_seal, "entry 5 should name the statement"),
    (another_ledger, "entry 5 should name the statement"),
    (another_run_s_ledger, "the ledger is another one"),
    (another_run_s_statement, "the ledger is another one"),
    (change("unit", "virtual_client"), "the statement is another one"),
    (change("population", 10), "the statement is another one"),
    (change("epsilon", 99.0), "the statement is another one"),
    (change("ledger", None), "this one names no ledger"),
    (change_the_plan, "plan.json is not the file that its statement was made for"),
    (change_the_model, "model.safetensors is not the file that its statement was made for"),
]


@pytest.mark.parametrize(("tamper", "words"), TAMPERINGS, ids=lambda x: getattr(x, "__name__", ""))
def test_whatever_is_exchanged_is_found_by_whoever_reads_the_folder(finished, told, tmp_path, tamper, words):
    assert told("ledger", "verify", finished)[0] == 0
    tamper(finished)
    for command in (("ledger", "verify", finished), ("report", finished), ("compare", finished, finished)):
        code, said = told(*command)
        assert code == 2, command
        assert said.count("\n") == 1
        assert words in said


def test_a_whole_folder_is_borne_out_and_a_released_bundle_too(finished, told):
    assert "its statement is the one that was made of it" in told("ledger", "verify", finished)[1]
    for private in ("checkpoint", "metrics.jsonl", "model.safetensors"):
        path = finished / private
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "its statement is the one that was made of it" in told("ledger", "verify", finished)[1]
    write_report([finished])


def test_answers_of_the_author_are_added_without_breaking_the_bond_and_verify_says_so(finished, told):
    path = finished / "statement.json"
    Statement.load(path).answer(public_data="None.").save(path)
    assert (
        "the answers under disclosure in statement.json can be added to later" in told("ledger", "verify", finished)[1]
    )
    assert "not under the statement's digest" in Statement.load(path).disclosure["verification"]
    assert binding.compare(Ledger.read(finished / "ledger.jsonl"), Statement.load(path), finished)


def test_what_is_recorded_after_the_statement_does_not_count_as_tampering(finished):
    with Ledger.open(finished / "ledger.jsonl") as ledger:
        ledger.append(EVENT, phase="later")
    stated = Statement.load(finished / "statement.json")
    totals = Ledger.read(finished / "ledger.jsonl")
    assert binding.compare(totals, stated, finished)
    assert stated.verdict(totals.event()).contradicted


def test_a_statement_by_hand_is_said_to_name_no_ledger(finished, told):
    change("ledger", None)(finished)
    another_ledger(finished)
    code, said = told("ledger", "verify", finished)
    assert (code, "would not show" in said) == (0, True)


def test_a_run_that_goes_on_withdraws_the_statement_that_would_be_untrue(stopped):
    def gone(index, run):
        assert not (stopped / "statement.json").exists()

    assert (stopped / "statement.json").exists()
    work(stopped, resume=True, each=gone)
    assert binding.compare(Ledger.read(stopped / "ledger.jsonl"), Statement.load(stopped / "statement.json"), stopped)


@pytest.mark.parametrize("name", ["ledger.jsonl"])
def test_a_ledger_of_another_run_is_refused_and_left_alone_when_a_run_goes_on(stopped, tmp_path, name):
    work(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, stopped / name)
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(acc.InputError, match=r"another key|another run's"):
        work(stopped, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_ledger_that_is_gone_is_not_made_anew_when_a_run_goes_on(stopped):
    RunFolder(stopped).ledger.unlink()
    with pytest.raises(acc.InputError, match=r"ledger\.jsonl is missing"):
        work(stopped, resume=True)
    assert not RunFolder(stopped).ledger.exists()
