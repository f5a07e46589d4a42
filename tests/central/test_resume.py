"""A DP-SGD run that was killed and resumed is the run that was never killed; two processes do the work of one."""

import shutil
import signal
import time
from pathlib import Path

import pytest

from forked import Forked, script, team
from resumable import assert_equal_up_to_rounding

WORKER = Path(__file__).with_name("worker.py")
FILES = ("model.safetensors", "ledger.jsonl", "statement.json", "plan.json")


def run(out: Path, *flags: str) -> int:
    return script(WORKER).main([str(out), *flags])


def start_and_kill(out: Path, rounds: int, *flags: str) -> None:
    """Start a slow run, and kill it when it has done so many rounds."""
    process = Forked(WORKER, [str(out), "--slow", "0.02", *flags], out.with_suffix(".told"))
    metrics, deadline = out / "metrics.jsonl", time.monotonic() + 100
    while not metrics.exists() or len(metrics.read_text().splitlines()) < rounds:
        assert process.poll() is None, process.told
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert run(out) == 0
    return out


def assert_same(one: Path, other: Path) -> None:
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_killed_in_mid_run_and_resumed_it_is_byte_identical(undisturbed, tmp_path):
    out = tmp_path / "killed"
    start_and_kill(out, 5)
    assert len((out / "ledger.jsonl").read_text().splitlines()) < 12
    assert run(out, "--resume") == 0
    assert_same(undisturbed, out)


def test_a_released_run_resumes_with_its_own_key_and_forgets_it_at_the_end(tmp_path):
    out, copy = tmp_path / "released", tmp_path / "copy"
    start_and_kill(out, 5, "--seed", "-1")
    assert (out / "checkpoint" / "key").exists()
    shutil.copytree(out, copy)
    for folder in (out, copy):
        assert run(folder, "--resume", "--seed", "-1") == 0
        assert not (folder / "checkpoint" / "key").exists()
    assert_same(out, copy)  # the same steps were repeated with the same noise


def test_the_micro_batch_of_a_run_is_kept_for_its_resumption(undisturbed):
    from sfumato.runs import checkpoint

    saved = checkpoint.load(undisturbed / "checkpoint")
    assert saved.state["contribution"]["micro_batch"] == 16


@pytest.mark.slow
def test_two_processes_give_the_result_of_one_with_one_draw_of_noise(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(one, "--dropout", "0") == 0  # masks are drawn by micro-batch, which processes divide in their own way
    assert team(WORKER, [str(two), "--dropout", "0"], tmp_path / "told", 2) == ["finished\n", ""]
    assert_equal_up_to_rounding(one, two)
