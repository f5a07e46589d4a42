"""Small runs without a loop: `work(folder)` releases noisy counts, saves, and finishes, as a training would."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from small_runs import work


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished run with a key from the operating system."""
    work(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a run that was asked to stop after two of its four rounds."""
    work(tmp_path / "stopped", stop=2)
    return tmp_path / "stopped"


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command in this process: `told("ledger", "verify", folder)` → its exit code and all that it printed."""
    from sfumato.cli.main import main

    def run(*words: Any) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out + captured.err

    return run
