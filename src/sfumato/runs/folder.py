"""The folder of a run: what may be published, what may not, and the checkpoint.

plan.json, statement.json, ledger.jsonl and model.safetensors hold nothing private. metrics.jsonl and evaluation.json
mark what was computed from private records as "not private"; checkpoint/ is for the owner of the data.
"""

import fcntl
import json
from pathlib import Path
from typing import IO, Any

from sfumato._check import InputError
from sfumato._files import read_json, write_atomic, write_json
from sfumato.runs import checkpoint


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: the folder; created by `start`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        self.ledger = self.path / "ledger.jsonl"
        self.metrics = self.path / "metrics.jsonl"
        self.model = self.path / "model.safetensors"
        self._lines = 0
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Create the folder for a new run.

        Raises:
            InputError: there is something in it already, or it cannot be created.
        """
        if self.path.is_dir() and any(self.path.iterdir()):
            if (self.checkpoint / checkpoint.STATE).exists():
                raise InputError(f"{self.path} holds a run already; resume it (--resume) or choose another folder")
            hint = "; delete it if it is a run that was stopped at once" if (self.path / "plan.json").exists() else ""
            raise InputError(f"{self.path} is not empty; choose another folder for the run{hint}")
        try:
            self.checkpoint.mkdir(parents=True, exist_ok=True)
        except (NotADirectoryError, FileExistsError):
            raise InputError(f"{self.path} is not a folder; choose another path for the run") from None
        except OSError as error:
            raise InputError(f"cannot create {self.path}: {error.strerror}; choose another path") from None
        self.claim(resume=True)

    def claim(self, *, resume: bool) -> None:
        """Keep other processes away from this folder until this one ends.

        Raises:
            InputError: another process is writing to it.
        """
        if not resume or not self.checkpoint.is_dir():
            return
        self._lock = open(self.checkpoint / "lock", "w")  # noqa: SIM115  # held until the process ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is writing to {self.path}; let it end or stop it first") from None

    def release(self) -> None:
        """Let other processes at this folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Write plan.json."""
        write_json(self.path / "plan.json", plan)

    def read_plan(self) -> dict[str, Any]:
        """Read plan.json."""
        try:
            return read_json(self.path / "plan.json")
        except FileNotFoundError:
            raise InputError(f"{self.path} holds no plan.json: it is not the folder of a run") from None
        except ValueError as error:
            raise InputError(f"{self.path / 'plan.json'} is damaged ({error}); take a whole copy") from None

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with open(self.metrics, "a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        self._lines += 1

    @property
    def metrics_lines(self) -> int:
        """Lines of metrics.jsonl."""
        return self._lines

    def keep_metrics(self, lines: int) -> list[dict[str, Any]]:
        """Cut metrics.jsonl back to the first so many lines, and read them."""
        kept = self.metrics.read_text().splitlines()[:lines] if self.metrics.exists() else []
        write_atomic(self.metrics, "".join(line + "\n" for line in kept).encode())
        self._lines = len(kept)
        return [json.loads(line) for line in kept]

    def evaluation(self) -> dict[str, Any]:
        """What evaluation.json holds for each model, so far."""
        path = self.path / "evaluation.json"
        whole = read_json(path) if path.exists() else {}
        return {name: row for name, row in whole.items() if isinstance(row, dict)}

    def add_evaluation(self, name: str, row: dict[str, Any], about: dict[str, Any]) -> None:
        """Put one model's evaluation into evaluation.json."""
        path = self.path / "evaluation.json"
        whole = read_json(path) if path.exists() else about
        whole[name] = row
        write_json(path, whole)
