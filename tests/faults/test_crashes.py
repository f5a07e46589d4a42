"""Whichever operation on the disk fails, and however, the run is whole afterwards or says what is the matter.

After the fault, either the run goes on and ends with the bytes of one that was never disturbed, or nothing had been
released and one line says so. What was released is in the ledger in any case. Every operation of a small run fails
once in each way; of the slow kind, real processes that are killed, only some do, unless SFUMATO_ALL_FAULTS=1.
"""

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.disk import Died, Disk, Fault, save_file
from forked import Forked
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.ledger import Budget, Ledger
from sfumato.ledger import ledger as binding
from sfumato.runs import Run, RunFolder, checkpoint
from sfumato.runs import run as run_module
from sfumato.statement import Statement
from small_runs import ROUNDS, work

ALL = os.environ.get("SFUMATO_ALL_FAULTS") == "1"
FILES = ("plan.json", "model.safetensors", "ledger.jsonl", "statement.json", "metrics.jsonl")
BUDGET = Budget(epsilon=3.0, delta=1e-5)
FAULTS: tuple[Fault, ...] = ("error", "kill", "cut", "torn cut")


@pytest.fixture(autouse=True)
def _one_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every new run draws the same key, so that runs can be compared; one that goes on must not need it."""
    monkeypatch.setattr(checkpoint, "save_file", save_file)
    monkeypatch.setattr(run_module, "save_file", save_file)
    monkeypatch.setattr(RandomSource, "from_os", staticmethod(lambda: RandomSource(bytes(range(32)), "os")))
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the disk that fails keeps account of it by itself
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def other_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomSource, "from_os", staticmethod(lambda: RandomSource(bytes(32), "os")))


@pytest.fixture
def undisturbed(tmp_path: Path) -> dict[str, bytes]:
    work(tmp_path / "undisturbed", budget=BUDGET)
    return contents(tmp_path / "undisturbed")


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


class Attempt:
    """One run with one fault.

    Attributes:
        released: rounds whose noise was drawn before the fault.
        failed: whether the fault came at all.
        count: operations.
    """

    def __init__(self, folder: Path, fault: Fault, at: int, after: Path, **options: Any) -> None:
        self.released = 0
        self.folder = folder if fault == "error" else after
        disk = Disk(folder, fault, at, after)
        refusal = ""
        with disk.watched():
            try:
                work(folder, each=self._see, budget=BUDGET, **options)
            except Died:
                pass
            except InputError as error:
                refusal = str(error)
        assert "\n" not in refusal
        assert not refusal or (disk.failed and "No space left" in refusal), refusal
        self.failed, self.count = disk.failed, disk.count

    def _see(self, index: int, run: Run) -> None:
        self.released = index  # the rounds before this one


def recover(attempt: Attempt, undisturbed: dict[str, bytes], where: str) -> None:
    """Go on after a fault, and compare."""
    folder = attempt.folder
    ledger = folder / "ledger.jsonl"
    if (folder / "checkpoint" / checkpoint.STATE).exists():
        recorded = Ledger.read(ledger, torn=True).releases
        assert recorded >= attempt.released, where
        if (folder / "statement.json").exists():
            statement = Statement.load(folder / "statement.json")
            said = statement.disclosure["cryptographic_noise"]
            assert ("still holds the key" in said) == (folder / "checkpoint" / "key").exists(), where
        work(folder, resume=True, budget=BUDGET)
        assert contents(folder) == undisturbed, where
        assert binding.compare(Ledger.read(ledger), Statement.load(folder / "statement.json"), folder)
        assert not list(folder.rglob("*.tmp")), where
        assert not (folder / "checkpoint" / "key").exists()
        return
    assert attempt.released == 0, where
    if ledger.exists() and ledger.stat().st_size:
        assert Ledger.read(ledger, torn=True).releases == 0, where
    if folder.exists() and any(path.suffix != ".tmp" for path in folder.iterdir()):
        with pytest.raises(InputError, match="delete it if it is a run that was stopped at once"):
            work(folder, budget=BUDGET)
        return
    work(folder, budget=BUDGET)
    assert contents(folder) == undisturbed, where


def every(first: int, run: Callable[[int], Attempt], check: Callable[[int, Attempt], None]) -> int:
    """Let each operation fail in turn until the run has no more of them; how many there were."""
    at = first
    while True:
        attempt = run(at)
        if not attempt.failed:
            return at - 1
        check(at, attempt)
        at += 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_new_run_survives_a_fault_at_every_operation(tmp_path, undisturbed, monkeypatch, fault):
    def run(at: int) -> Attempt:
        return Attempt(tmp_path / f"run{at}", fault, at, tmp_path / f"after{at}")

    def check(at: int, attempt: Attempt) -> None:
        recover(attempt, undisturbed, f"{fault} at operation {at}")
        shutil.rmtree(attempt.folder)

    assert every(1, run, check) > 60  # so many operations there are, and all were tried


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_goes_on_survives_a_fault_at_every_operation(tmp_path, undisturbed, monkeypatch, fault):
    class Killed(BaseException):
        pass

    def die(index: int, run: Run) -> None:
        if index == 3:  # one round behind the checkpoint
            raise Killed

    with pytest.raises(Killed):
        work(tmp_path / "killed", each=die, budget=BUDGET)
    other_key(monkeypatch)

    def run(at: int) -> Attempt:
        shutil.copytree(tmp_path / "killed", tmp_path / f"run{at}")
        RunFolder(tmp_path / f"run{at}").release()
        return Attempt(tmp_path / f"run{at}", fault, at, tmp_path / f"after{at}", resume=True)

    def check(at: int, attempt: Attempt) -> None:
        recover(attempt, undisturbed, f"{fault} at operation {at} of a run that went on")
        shutil.rmtree(attempt.folder)

    assert every(1, run, check) > 30


def test_a_real_process_that_ends_without_a_word_is_like_one_that_is_played(tmp_path, undisturbed):
    for at in range(1, 200) if ALL else (3, 27, 44, 61):
        root = tmp_path / f"run{at}"
        child = Forked(Path(__file__).with_name("disk.py"), [str(root), str(at)], tmp_path / "told")
        code = child.wait()
        if code == 0:
            assert at > 60
            return
        assert code == 9, child.told
        attempt = Attempt.__new__(Attempt)
        attempt.folder, attempt.released = root, 0 if at < 40 else 1
        recover(attempt, undisturbed, f"a process that ended at operation {at}")


def test_a_run_that_a_signal_ends_between_operations_goes_on(tmp_path):
    code = "import sys; from pathlib import Path; sys.path.insert(0, {0!r}); from small_runs import work; import time\n"
    code += "work(Path({1!r}), seed=5, each=lambda i, run: (print(i, flush=True), time.sleep(0.05)))"
    out = tmp_path / "run"
    words = [sys.executable, "-c", code.format(str(Path(__file__).resolve().parents[1]), str(out))]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    while child.stdout.readline().strip() != str(ROUNDS - 1):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    work(out, seed=5, resume=True)
    work(tmp_path / "whole", seed=5)
    assert contents(out) == contents(tmp_path / "whole")
