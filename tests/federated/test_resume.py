"""A run that was killed and resumed is the run that was never killed."""

import contextlib
import io
import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from forked import Forked, script, team
from resumable import assert_equal_up_to_rounding
from slow import slow_but

WORKER = Path(__file__).with_name("worker.py")


def command(out: Path, *flags: str) -> Forked:
    return Forked(WORKER, [str(out), *flags], out.with_suffix(".told"))


def run(out: Path, *flags: str) -> tuple[int, str]:
    """Run in this process: the exit code and what was printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = script(WORKER).main([str(out), *flags])
    return code, printed.getvalue()


FINISHED = (0, "finished\n")


def start_and_wait(out: Path, rounds: int, *flags: str) -> Forked:
    """Start a slow run and return when it has done so many rounds."""
    process = command(out, "--slow", "0.02", *flags)
    metrics = out / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not metrics.exists() or len(metrics.read_text().splitlines()) < rounds:
        assert process.poll() is None, process.told
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def kill(process: Forked) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run(out) == FINISHED
    return out


def assert_same(one: Path, other: Path) -> None:
    for name in ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_killed_in_mid_run_and_resumed_it_is_byte_identical(undisturbed, tmp_path):
    out = tmp_path / "killed"
    process = start_and_wait(out, 5)
    kill(process)
    assert len((out / "ledger.jsonl").read_text().splitlines()) < 12
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)


@pytest.mark.parametrize("number", slow_but([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_asked_to_stop_it_finishes_the_round_and_saves(undisturbed, tmp_path, number):
    out = tmp_path / "stopped"
    process = start_and_wait(out, 4, "--every", "0")
    process.send_signal(number)
    assert process.wait(timeout=60) == 0
    assert process.told.startswith("stopped after")
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len((out / "ledger.jsonl").read_text().splitlines()) - 1 == len(rows) < 12  # the last names the statement
    statement = json.loads((out / "statement.json").read_text())
    assert statement["mechanism"].startswith(f"{len(rows)} Gaussian sums")
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)


def test_a_released_run_resumes_with_its_own_key_and_forgets_it_at_the_end(tmp_path):
    out = tmp_path / "released"
    process = start_and_wait(out, 5, "--seed", "-1")
    key = out / "checkpoint" / "key"
    assert key.stat().st_mode & 0o077 == 0
    copy = tmp_path / "copy"
    kill(process)
    shutil.copytree(out, copy)
    for folder in (out, copy):
        assert run(folder, "--resume", "--seed", "-1") == FINISHED
        assert not (folder / "checkpoint" / "key").exists()
    assert_same(out, copy)  # the same rounds were repeated with the same noise


def test_a_finished_run_can_be_resumed_without_harm(undisturbed, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(undisturbed, tmp_path):
    out = tmp_path / "two"
    assert team(WORKER, [str(out)], tmp_path / "told", 2) == ["finished\n", ""]
    assert_equal_up_to_rounding(undisturbed, out)


def complaint(out: Path, *flags: str) -> str:
    """The one line with which a run is refused."""
    code, line = run(out, *flags)
    assert code == 2
    assert line.count("\n") == 1
    return line


@pytest.fixture
def copy(undisturbed, tmp_path) -> Path:
    out = tmp_path / "copy"
    shutil.copytree(undisturbed, out)
    return out


def test_a_checkpoint_of_another_plan_is_refused_by_name(copy):
    before = (copy / "model.safetensors").read_bytes()
    assert "noise_multiplier 0.5 → 0.7" in complaint(copy, "--resume", "--noise", "0.7")
    assert (copy / "model.safetensors").read_bytes() == before


def test_a_folder_with_a_run_is_not_written_over(copy):
    assert "holds a run already; resume it" in complaint(copy)


def test_a_folder_with_other_files_is_not_written_over(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty" in complaint(tmp_path)


def test_nothing_to_resume(tmp_path):
    assert "nothing to resume" in complaint(tmp_path / "none", "--resume")


def test_a_truncated_checkpoint_is_refused(copy):
    state = copy / "checkpoint" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-100])
    assert "damaged or cut short" in complaint(copy, "--resume")


def test_a_tampered_checkpoint_is_refused(copy):
    state = copy / "checkpoint" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-10] ^= 1
    state.write_bytes(content)
    assert "was changed after it was written" in complaint(copy, "--resume")


def test_a_ledger_that_was_cut_short_is_refused(copy):
    lines = (copy / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "ledger.jsonl").write_bytes(b"".join(lines[:-2]))
    assert "cut short" in complaint(copy, "--resume")


def test_a_full_disk_leaves_the_old_checkpoint(undisturbed, tmp_path):
    out = tmp_path / "full"
    process = start_and_wait(out, 5)
    kill(process)
    state = out / "checkpoint" / "state.safetensors"
    before = state.read_bytes()
    # No file may be larger than the checkpoint is now less one byte: writing the next one fails half-way.
    limited = command(out, "--resume", "--limit", str(len(before) - 1))
    assert limited.wait() == 2
    assert limited.told.count("\n") == 1
    assert "cannot write" in limited.told
    assert "intact" in limited.told
    assert state.read_bytes() == before
    assert run(out, "--resume") == FINISHED
    assert_same(undisturbed, out)
