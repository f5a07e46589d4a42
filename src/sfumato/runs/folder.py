"""The folder of a run: what may be published, what may not, and the checkpoint.

plan.json, statement.json, ledger.jsonl and model.safetensors hold nothing private, and follow the umask.
metrics.jsonl and evaluation.json mark what was computed from private records as "not private"; they and checkpoint/
are readable by their owner only.

**Numbers that a search found:** a run that goes on keeps those it began with. Searches end where the last digits of
their steps say, and these differ from one processor to another, and with the number of threads that share a product of
matrices. A script that calibrates its noise again before it resumes would come with another plan in the twelfth digit.
What is accounted is what the run's own plan.json says.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Plan:
...     noise_multiplier: float
>>> as_started(Plan(0.55871709799), {"noise_multiplier": 0.55871709783}, "noise_multiplier")
Plan(noise_multiplier=0.55871709783)
>>> as_started(Plan(0.56), {"noise_multiplier": 0.55871709783}, "noise_multiplier")  # another setting: as it is
Plan(noise_multiplier=0.56)
"""

import dataclasses
import fcntl
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from sfumato._check import InputError
from sfumato._files import (
    append,
    delete,
    delete_leftovers,
    parse_json,
    read_json,
    sync_file,
    sync_folder,
    write_atomic,
    write_json,
)
from sfumato._numbers import is_close
from sfumato._parts import flat
from sfumato.runs import checkpoint

_Plan = TypeVar("_Plan", bound=Any)


def as_started(plan: _Plan, recorded: Mapping[str, Any], *fields: str) -> _Plan:
    """The plan with the numbers of the run that it goes on with, if all of them are the same but for the search.

    Args:
        plan: a dataclass.
        recorded: what plan.json holds.
        fields: that a calibration may have found, each a number or None.

    Returns:
        the plan itself where one differs by more: `RunFolder.refuse_another` reports it.
    """
    found = {name: recorded.get(name) for name in fields}
    if not all(is_close(getattr(plan, name), found[name]) for name in fields):
        return plan
    return dataclasses.replace(plan, **found)


_NAMES = (
    "plan.json",
    "statement.json",
    "ledger.jsonl.kept",
    "model.safetensors",
    "metrics.jsonl",
    "evaluation.json",
    "vocabulary.txt",
    "frequent_rows.json",
    "report.html",
    "comparison.html",
)
_LONGEST_DIFFERENCE = 80  # characters of a setting, then and now, in a message
_NOT_A_SETTING = (
    "the settings are the same: it is the records, the shapes of the model, or a prefix_cache (--prefix-cache) then or "
    "now alone"
)


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: the folder; created by `start`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint"
        self.plan = self.path / "plan.json"
        self.statement = self.path / "statement.json"
        self.ledger = self.path / "ledger.jsonl"
        self.metrics = self.path / "metrics.jsonl"
        self.model = self.path / "model.safetensors"
        self._evaluation = self.path / "evaluation.json"
        self._lines = 0
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Create the folder for a new run.

        Raises:
            InputError: there is something in it already, or it cannot be created.
        """
        delete_leftovers(self.path, _NAMES)
        if self.path.is_dir() and any(self.path.iterdir()):
            if (self.checkpoint / checkpoint.STATE).exists():
                raise InputError(
                    f"{self.path} holds a run already; resume it (--resume; in Python resume = True), or choose "
                    "another folder"
                )
            started = self.plan.exists() or self.checkpoint.exists()
            hint = "; delete it if it is a run that was stopped at once" if started else ""
            raise InputError(f"{self.path} is not empty; choose another folder for the run{hint}")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.checkpoint.mkdir(mode=0o700, exist_ok=True)
            sync_folder(self.path)
            sync_folder(self.path.parent)
        except (NotADirectoryError, FileExistsError):
            raise InputError(f"{self.path} is not a folder; choose another path for the run") from None
        except OSError as error:
            raise InputError(f"cannot create {self.path}: {error.strerror}; choose another path") from None
        self.claim(resume=True)

    def claim(self, *, resume: bool) -> None:
        """Keep other processes away from this folder until this one ends; delete what dead ones have left half-written.

        Raises:
            InputError: another process is writing to it.
        """
        if not resume or not self.checkpoint.is_dir():
            return
        self._lock = open(  # noqa: SIM115  # held until the process ends
            self.checkpoint / "lock", "w", opener=lambda name, flags: os.open(name, flags, 0o600)
        )
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"another process is writing to {self.path}; let it end or stop it first") from None
        delete_leftovers(self.path, _NAMES)
        delete_leftovers(self.checkpoint, checkpoint.names(self.checkpoint))

    def release(self) -> None:
        """Let other processes at this folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def refuse_deleted(self) -> None:
        """Stop a run whose folder is gone."""
        if not self.path.is_dir():
            raise InputError(
                f"{self.path} was deleted while the run went on: what it held is gone, its key too; start a new run"
            )

    def unwritable(self, error: OSError) -> InputError:
        """The one line for a file of this folder that could not be written."""
        self.refuse_deleted()
        kept = f"the checkpoint before it is intact: make room and go on with resume=True (--resume {self.path})"
        if not (self.checkpoint / checkpoint.STATE).exists():
            kept = "nothing was saved before: make room and start the run in another folder"
        return InputError(f"cannot write {error.filename or self.path}: {error.strerror or error}; {kept}")

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Write plan.json."""
        write_json(self.plan, plan)

    def read_plan(self) -> dict[str, Any]:
        """Read plan.json."""
        try:
            return read_plan(self.plan)
        except FileNotFoundError:
            raise InputError(f"{self.path} holds no plan.json: it is not the folder of a run") from None
        except NotADirectoryError:
            raise InputError(f"{self.path} is a file, and no folder of a run; give that of a run (--out)") from None

    def recorded(self, *, resume: bool) -> dict[str, Any]:
        """What plan.json of a run that goes on holds; nothing for a new run, or where there is none to go on with."""
        return self.read_plan() if resume and self.plan.exists() else {}

    def refuse_another(self, plan: dict[str, Any]) -> None:
        """Refuse to go on with other settings, before anything is computed; what is under "about" is not compared.

        Args:
            plan: as `plan.json` would hold it.

        Raises:
            InputError: a setting differs from that of the run.
        """
        if self.plan.exists():  # where it does not, the run says so in its own words
            now = json.loads(json.dumps(plan))
            if {**self.read_plan(), "about": None} != {**now, "about": None}:
                raise self.another(plan)

    def another(self, plan: dict[str, Any]) -> InputError:
        """That the run cannot go on with this plan, and which fields differ: of the plan itself, and of what it says
        of model, optimiser and data."""
        then, now = (
            {
                **dict(flat({name: value for name, value in each.items() if name != "about"})),
                **(each.get("about") or {}),
            }
            for each in (self.read_plan(), json.loads(json.dumps(plan)))
        )
        changed = [(k, f"{_short(then.get(k))} → {_short(v)}") for k, v in now.items() if then.get(k) != v]
        changed = [f"{k} {values}" if len(values) <= _LONGEST_DIFFERENCE else f"another {k}" for k, values in changed]
        fields = ", ".join(changed) or _NOT_A_SETTING
        return InputError(
            f"the checkpoint in {self.path} is from another plan, model or data set ({fields}); resume with the same "
            "ones, or choose another folder"
        )

    def saved(self) -> checkpoint.Checkpoint:
        """The checkpoint of a run that may go on.

        Raises:
            InputError: there is none, it is damaged, or the run was closed.
        """
        saved = checkpoint.load(self.checkpoint)
        if saved.closed:
            raise InputError(f"{self.path} was closed, so it cannot go on; start a new run in another folder")
        return saved

    def has_ended(self) -> bool:
        """Whether all that was planned has run, and is stated.

        Raises:
            InputError: as for `saved`.
        """
        return self.saved().complete and self.statement.exists()

    def withdraw_statement(self) -> None:
        """Delete the statement of a run that goes on: it would state fewer releases than there are."""
        delete(self.statement)

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl; `flush_metrics` makes it last."""
        append(self.metrics, (json.dumps(row, allow_nan=False) + "\n").encode(), private=True)
        self._lines += 1

    def flush_metrics(self) -> None:
        """Put the lines so far on the disk, so that a checkpoint can count on them."""
        sync_file(self.metrics)

    @property
    def metrics_lines(self) -> int:
        """Lines of metrics.jsonl."""
        return self._lines

    def keep_metrics(self, lines: int) -> list[dict[str, Any]]:
        """Cut metrics.jsonl back to the first so many lines, and read them; says how many are missing.

        Raises:
            InputError: a line is damaged; names the first.
        """
        content = self.metrics.read_bytes() if self.metrics.exists() else b""
        kept = content.splitlines(keepends=True)[:lines]
        if kept and not kept[-1].endswith(b"\n"):
            kept.pop()
        rows = []
        for number, line in enumerate(kept, start=1):
            try:
                rows.append(_fields(parse_json(line)))
            except ValueError as error:
                raise InputError(
                    f"{self.metrics}, line {number} is damaged ({error!s:.500}); take a whole copy, or delete the "
                    "file: only its rows are lost then"
                ) from None
        if len(rows) < lines:
            warnings.warn(
                f"{lines - len(rows)} of the {lines} rows of {self.metrics} are missing: the run goes on without them",
                stacklevel=2,
            )
        write_atomic(self.metrics, b"".join(kept), private=True)
        self._lines = len(rows)
        return rows

    def evaluation(self) -> dict[str, Any]:
        """What evaluation.json holds for each model, so far."""
        return {name: row for name, row in self._evaluated({}).items() if isinstance(row, dict)}

    def add_evaluation(self, name: str, row: dict[str, Any], about: dict[str, Any]) -> None:
        """Put one model's evaluation into evaluation.json."""
        write_json(self._evaluation, {**self._evaluated(about), name: row}, private=True)

    def _evaluated(self, about: dict[str, Any]) -> dict[str, Any]:
        if not self._evaluation.exists():
            return about
        try:
            return _fields(read_json(self._evaluation))
        except ValueError as error:
            raise InputError(f"{self._evaluation} is damaged ({error!s:.500}); delete it to go on without it") from None


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan.json, in the folder of a run or elsewhere.

    Raises:
        FileNotFoundError: it is not there.
        InputError: it holds no plan.
    """
    try:
        plan = _fields(read_json(path))
        _fields(plan.get("about") or {})
        return plan
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error!s:.500}); take a whole copy") from None


def _short(value: Any) -> Any:
    """A setting as it is given: a whole number without its fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("it holds no fields")
    return value
