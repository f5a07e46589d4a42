"""Checkpoints: damaged ones, and what is kept of a run's values."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.ledger import Ledger
from sfumato.report import write_report
from sfumato.runs import Checkpoint, Run, RunFolder, checkpoint
from sfumato.statement import Statement
from slow import one_in
from small_runs import work

# Checkpoints: whole or absent, and what they hold comes back.


def sample(**changes) -> Checkpoint:
    fields = {
        "ledger_entries": 3,
        "ledger_head": "ab",
        "metrics_lines": 2,
        "fingerprint": "f",
        "phases": ("histogram",),
        "tensors": {"theta": torch.arange(3.0), "count": torch.tensor(7)},
        "state": {"round": 3, "server": {"rate": [0.1, None]}},
    }
    return Checkpoint(**{**fields, **changes})


def test_what_is_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path, sample())
    loaded = checkpoint.load(tmp_path)
    assert (loaded.phases, loaded.state, loaded.ledger_head, loaded.complete) == (
        ("histogram",),
        {"round": 3, "server": {"rate": [0.1, None]}},
        "ab",
        False,
    )
    assert loaded.tensors.keys() == {"theta", "count"}
    assert torch.equal(loaded.tensors["theta"], torch.arange(3.0))


def test_a_tensor_without_elements_comes_back(tmp_path):
    state = Checkpoint(
        ledger_entries=0,
        ledger_head="",
        metrics_lines=0,
        fingerprint="f",
        tensors={"none": torch.zeros(0, dtype=torch.float64), "no columns": torch.zeros(3, 0)},
    )
    checkpoint.save(tmp_path, state)
    found = checkpoint.load(tmp_path).tensors
    assert {name: tuple(value.shape) for name, value in found.items()} == {"none": (0,), "no columns": (3, 0)}


def test_a_release_is_kept_next_to_the_state(tmp_path):
    checkpoint.save_release(tmp_path, "histogram", {"n": torch.tensor([1.5, 2.5])})
    assert checkpoint.load_release(tmp_path, "histogram")["n"].tolist() == [1.5, 2.5]
    with pytest.raises(InputError, match="does not exist"):
        checkpoint.load_release(tmp_path, "votes")


def test_a_state_of_another_version_is_refused(tmp_path, monkeypatch):
    import json

    dumps = json.dumps
    monkeypatch.setattr(checkpoint.json, "dumps", lambda value, **o: dumps({**value, "epoch": 1}, **o))
    checkpoint.save(tmp_path, sample())
    monkeypatch.undo()
    with pytest.raises(InputError, match="written by another version of sfumato"):
        checkpoint.load(tmp_path)


def test_the_key_is_its_owners_alone_and_a_seeded_run_keeps_none(tmp_path):
    checkpoint.write_key(tmp_path, RandomSource.from_seed(1))
    assert not (tmp_path / checkpoint.KEY).exists()
    source = RandomSource.from_os()
    checkpoint.write_key(tmp_path, source)
    assert (tmp_path / checkpoint.KEY).stat().st_mode & 0o077 == 0
    assert checkpoint.read_key(tmp_path) == source
    (tmp_path / checkpoint.KEY).write_bytes(source.key[:31])
    with pytest.raises(InputError, match="has 31 bytes, not 32"):
        checkpoint.read_key(tmp_path)


def test_a_run_needs_its_key_until_it_is_deleted(tmp_path):
    checkpoint.write_key(tmp_path, RandomSource.from_os())
    assert checkpoint.keeps_key(tmp_path, sample(complete=True))  # a release may follow a loop that is complete
    checkpoint.delete_key(tmp_path)
    assert not checkpoint.keeps_key(tmp_path, sample(complete=True))
    assert checkpoint.keeps_key(tmp_path, sample(complete=False))
    with pytest.raises(InputError, match="its noise cannot be repeated"):
        checkpoint.read_key(tmp_path)


# Whatever a file of a run has become, whoever reads it says so in one line that names the file.

DAMAGES = {
    "empty": b"",
    "nested": b"[" * 200_000,
    "nested fields": b'{"a":' * 200_000,
    "no text": b"\xff\xfe\x00\x81",
    "a list": b"[1, 2]",
    "a number": b"7",
    "cut": b'{"plan": "fed',
    "many digits": b'{"rounds": 1' + b"0" * 5000 + b"}",
    "beyond double": b'{"round": 1e999, "rounds": 1e999, "epsilon": 1e999}',
    "nulls": b'{"round": null, "rounds": null, "unit": null, "images": null, "untrained": null}',
}
READ = ("plan.json", "statement.json", "ledger.jsonl", "metrics.jsonl", "evaluation.json")
RESUMED = (
    "metrics.jsonl", "ledger.jsonl", "checkpoint/state.safetensors", "checkpoint/frozen.safetensors", "checkpoint/key",
)  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), one_in(3, READ, DAMAGES))
def test_a_page_of_a_damaged_run_is_one_line(finished: Path, told, name, damage):
    (finished / name).write_bytes(DAMAGES[damage])
    code, said = told("report", finished)
    if (name, damage) in {("metrics.jsonl", "empty"), ("evaluation.json", "beyond double")}:
        return  # which are no damage
    assert code == 2
    assert said.count("\n") == 1
    assert name in said


@pytest.mark.parametrize(("name", "damage"), one_in(3, RESUMED, DAMAGES))
def test_a_damaged_run_is_not_gone_on_with(stopped: Path, name, damage):
    (stopped / name).write_bytes(DAMAGES[damage])
    if (name, damage) in {("metrics.jsonl", "empty")}:
        return  # rows are missing then, which is told
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    if name == "metrics.jsonl" and damage in ("beyond double", "nulls", "nested", "nested fields", "cut"):
        with pytest.warns(UserWarning, match="rows of .* are missing"):
            work(stopped, resume=True)  # a line without its end is what a crash leaves
        return
    if name == "metrics.jsonl":
        with pytest.warns(UserWarning, match="rows of .* are missing"):
            work(stopped, resume=True)
        return
    with pytest.raises(InputError) as caught:
        work(stopped, resume=True)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_row_of_the_metrics_is_named(stopped: Path):
    metrics = stopped / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for line in (b"[1]\n", b"\xff\n", b"[" * 200_000 + b"\n"):
        metrics.write_bytes(lines[0] + line)
        with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
            work(stopped, resume=True)


@pytest.mark.parametrize("name", ["state", "frozen"])
def test_one_bit_of_the_checkpoint_that_turned_is_found(stopped: Path, name):
    path = stopped / "checkpoint" / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match="was changed after it was written"):
        work(stopped, resume=True)


REFUSED = {
    "other files": (False, lambda folder: only_notes(folder), "is not empty; choose another folder"),
    "a run": (False, lambda folder: None, "holds a run already; resume it"),
    "no checkpoint": (True, lambda folder: (folder / "checkpoint" / "state.safetensors").unlink(), "nothing to resume"),
    "a shorter ledger": (True, lambda folder: cut(folder / "ledger.jsonl", 2), "entries and should have .* cut short"),
}


def only_notes(folder: Path) -> None:
    """Somebody's own file in place of a run."""
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")


def cut(path: Path, lines: int) -> None:
    """Take the last lines off."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_run_can_neither_begin_in_nor_go_on_with_is_refused_and_left(stopped: Path, name):
    resume, change, words = REFUSED[name]
    change(stopped)
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=words) as caught:
        work(stopped, resume=resume)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before


def test_names_that_would_steer_a_terminal_are_shown_and_not_sent(finished: Path, told, tmp_path: Path):
    steering = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
    plan = finished / "plan.json"
    folder = tmp_path / f"run{steering}"
    finished.rename(folder)
    (folder / plan.name).write_text((folder / plan.name).read_text().replace("sums", f"s{steering}"))
    from sfumato.accounting import Gaussian
    from sfumato.ledger import Ledger

    with Ledger.open(tmp_path / "noted.jsonl") as ledger:
        ledger.append(Gaussian(1.0), phase=f"phase{steering}")
    for command in (
        ("ledger", "show", tmp_path / "noted.jsonl"),
        ("ledger", "verify", folder),
        ("report", folder),
        ("compare", folder, folder),
        ("close", folder),
        (f"none{steering}",),
        ("ledger", "show", tmp_path / "noted.jsonl", "--phase", steering),
    ):
        _, said = told(*command)
        assert "x1b" in said
        assert not set(said) & set("\x1b\x07\x9b\u202e"), command


# What a run keeps, for whom, and what it says of it: metrics, leftovers, modes, the key.

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


def test_rows_of_the_metrics_that_are_missing_are_reported_when_the_run_goes_on(stopped):
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
    assert "checkpoint/ still holds the key" in cryptographic(stopped)
    assert "deleted when the run ends" not in cryptographic(stopped)
    work(stopped, resume=True)
    assert not key.exists()
    assert "deleted when the run ends" in cryptographic(stopped)


def test_the_key_is_gone_before_any_file_says_so(tmp_path, monkeypatch):
    save = Statement.save

    def checked(statement: Statement, path: Path) -> None:
        said = statement.disclosure["cryptographic_noise"]
        assert ("still holds the key" in said) == (tmp_path / "run" / "checkpoint" / "key").exists()
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
    code, said = told("report", tmp_path / "killed")
    assert (code, "was closed before its end" in said) == (2, True)


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
