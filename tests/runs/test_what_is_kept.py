"""What a run keeps, for whom, and what it says of it: metrics, leftovers, modes, the key."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.ledger import Ledger
from sfumato.report import write_report
from sfumato.runs import Run, RunFolder, checkpoint
from sfumato.statement import Statement
from small_run import work

PRIVATE = ("metrics.jsonl", "evaluation.json", "checkpoint/state.safetensors", "checkpoint/frozen.safetensors")
PUBLIC = ("plan.json", "statement.json", "ledger.jsonl", "model.safetensors")


def modes(folder: Path, names: tuple[str, ...]) -> set[int]:
    return {(folder / name).stat().st_mode & 0o777 for name in names}


@pytest.mark.parametrize(("umask", "public"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_what_is_private_is_its_owner_s_and_the_rest_follows_the_umask(tmp_path, umask, public):
    before = os.umask(umask)
    try:
        out = tmp_path / "run"
        work(out, stop=2, each=lambda index, run: run.folder.add_evaluation("untrained", {"accuracy": 0.5}, {}))
        assert modes(out, (*PRIVATE, "checkpoint/key", "checkpoint/lock")) == {0o600}
        work(out, resume=True)
        assert modes(out, (*PRIVATE, "checkpoint/lock")) == {0o600}
        assert modes(out, PUBLIC) == {public}
        assert modes(out, ("checkpoint",)) == {0o700}
        assert write_report([out]).stat().st_mode & 0o777 == 0o600
        assert write_report([out], public=True).stat().st_mode & 0o777 == public
    finally:
        os.umask(before)


def test_a_checkpoint_counts_on_no_line_of_the_metrics_that_is_not_on_the_disk(tmp_path, monkeypatch):
    flushed: dict[Path, int] = {}

    def fsync(handle: int) -> None:
        flushed[Path(os.readlink(f"/proc/self/fd/{handle}"))] = os.fstat(handle).st_size

    def counted(folder: Path, saved: checkpoint.Checkpoint) -> None:
        metrics = folder.parent / "metrics.jsonl"
        if saved.metrics_lines:
            assert metrics.read_bytes()[: flushed[metrics]].count(b"\n") >= saved.metrics_lines
            checked.append(saved.metrics_lines)
        save(folder, saved)

    checked: list[int] = []
    save = checkpoint.save
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(checkpoint, "save", counted)
    work(tmp_path / "run")
    assert checked == [2, 4]


def test_rows_of_the_metrics_that_are_missing_are_told_when_the_run_goes_on(stopped):
    metrics = stopped / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-5])
    with pytest.warns(UserWarning, match="1 of the 2 rows of .* are missing"):
        work(stopped, resume=True)
    assert [json.loads(line)["round"] for line in metrics.read_text().splitlines()] == [1, 3, 4]


def test_leftovers_of_dead_processes_of_the_run_are_deleted_and_no_others(stopped):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = [
        stopped / f".metrics.jsonl.{dead.pid}.tmp",
        stopped / f".report.html.{dead.pid}.tmp",
        stopped / f".vocabulary.txt.{dead.pid}.tmp",
        stopped / f".plan.json.{os.getpid()}.tmp",  # of a process that had this number before
        stopped / "checkpoint" / f".state.safetensors.{dead.pid}.tmp",
    ]
    kept = [
        stopped / f".notes.txt.{dead.pid}.tmp",
        stopped / f".report.html.{os.getppid()}.tmp",
        stopped / ".metrics.jsonl.tmp",
        stopped / "checkpoint" / f".mine.{dead.pid}.tmp",
    ]
    folder = stopped / f".model.safetensors.{dead.pid}.tmp"
    folder.mkdir()
    (folder / ".tmpA1b2C3").write_bytes(b"half")
    for path in (*gone, *kept):
        path.write_bytes(b"half")
    work(stopped, resume=True)
    assert [path for path in (*gone, folder) if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []


def test_a_folder_that_holds_only_what_a_dead_process_left_is_empty(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".plan.json.{dead.pid}.tmp").write_bytes(b"half")
    work(tmp_path)


def cryptographic(folder: Path) -> str:
    return Statement.load(folder / "statement.json").disclosure["cryptographic_noise"]


def test_the_statement_says_that_the_key_is_deleted_only_when_it_is(stopped, told):
    key = stopped / "checkpoint" / "key"
    assert key.exists()
    assert "checkpoint/ holds the key still" in cryptographic(stopped)
    assert "deleted when the run ends" not in cryptographic(stopped)
    work(stopped, resume=True)
    assert not key.exists()
    assert "deleted when the run ends" in cryptographic(stopped)


def test_the_key_is_gone_before_any_file_says_so(tmp_path, monkeypatch):
    save = Statement.save

    def checked(statement: Statement, path: Path) -> None:
        said = statement.disclosure["cryptographic_noise"]
        assert ("holds the key still" in said) == (tmp_path / "run" / "checkpoint" / "key").exists()
        save(statement, path)

    monkeypatch.setattr(Statement, "save", checked)
    work(tmp_path / "run", stop=2)
    work(tmp_path / "run", resume=True)


def test_a_closed_run_keeps_all_but_its_key_and_cannot_go_on(stopped, told):
    kept = ("plan.json", "ledger.jsonl", "model.safetensors", "metrics.jsonl")
    before = [(stopped / name).read_bytes() for name in kept]
    code, said = told("close", stopped)
    assert code == 0
    assert "after round 2" in said
    assert "cannot go on" in said
    assert not (stopped / "checkpoint" / "key").exists()
    assert [(stopped / name).read_bytes() for name in kept] == before
    assert "then closed, which deleted the key" in cryptographic(stopped)
    assert "of the statement, the answer about its key now says that it was closed" in said
    assert told("ledger", "verify", stopped)[0] == 0
    with pytest.raises(InputError, match="was closed, so it cannot go on"):
        work(stopped, resume=True)
    before = {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()}
    assert told("close", stopped) == (0, f"{stopped} is closed already; nothing was left to do\n")
    assert {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()} == before
    assert Ledger.read(stopped / "ledger.jsonl").releases == 2


def test_a_seeded_run_is_closed_too_and_a_killed_one_says_what_it_lacks(tmp_path, told):
    work(tmp_path / "seeded", stop=2, seed=3)
    code, said = told("close", tmp_path / "seeded")
    assert (code, "It held no key" in said, "Plan, ledger, statement and model are as they were" in said) == (
        0,
        True,
        True,
    )
    assert "seeded" in cryptographic(tmp_path / "seeded")
    with pytest.raises(InputError, match="was closed"):
        work(tmp_path / "seeded", resume=True, seed=3)

    class Killed(BaseException):
        pass

    def die(index: int, run: Run) -> None:
        if index == 3:
            raise Killed

    with pytest.raises(Killed):
        work(tmp_path / "killed", each=die)
    assert "It was killed before it wrote a statement" in told("close", tmp_path / "killed")[1]


def test_a_run_that_another_process_writes_to_is_not_closed(stopped, told, tmp_path):
    folder = RunFolder(stopped)
    folder.claim(resume=True)
    code, said = told("close", stopped)
    assert (code, "another process is writing to" in said) == (2, True)
    assert (stopped / "checkpoint" / "key").exists()
    folder.release()
    code, said = told("close", tmp_path)
    assert (code, "holds no checkpoint" in said) == (2, True)


def test_a_key_of_another_run_is_refused_before_anything_changes(stopped, tmp_path):
    key = stopped / "checkpoint" / "key"
    key.write_bytes(bytes(32))
    before = (stopped / "ledger.jsonl").read_bytes()
    with pytest.raises(InputError, match="another key"):
        work(stopped, resume=True)
    assert (stopped / "ledger.jsonl").read_bytes() == before
