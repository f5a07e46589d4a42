"""Processes that begin where torch is loaded already, which takes seconds: forked from a server that did nothing else.

Each is a process of its own, with its own number, signals and end; only the beginning of its interpreter is shared.
"""

import importlib.util
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
# torch._dynamo is what an optimizer loads when it is made.
_CONTEXT.set_forkserver_preload(["torch._dynamo", "sfumato.cli.main", "sfumato.central", "sfumato.federated"])


def script(path: Path) -> Any:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Forked:
    """A started `script(path).main(words)`.

    Args:
        path: of the script; its main gives the exit code.
        words: the arguments.
        told: where stdout goes.
        environment: of the process, beside that of this one.
        errors: where stderr goes; with stdout, if not given.
    """

    def __init__(
        self,
        path: Path,
        words: list[str],
        told: Path,
        environment: Mapping[str, str] | None = None,
        errors: Path | None = None,
    ) -> None:
        self._told, self._errors = told, errors or told
        heeds = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        given = path, words, told, self._errors, {**os.environ, **(environment or {})}, heeds
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        """The exit code; None while it runs, and negative where a signal ended it."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """As the system's kill."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout: float = 100) -> int:
        """Its exit code, at the end."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
        assert code is not None, f"still running after {timeout} s: {self.told}"
        return code

    @property
    def told(self) -> str:
        """What it printed."""
        return self._told.read_text() if self._told.exists() else ""

    @property
    def errors(self) -> str:
        """What it printed on stderr."""
        return self._errors.read_text() if self._errors.exists() else ""

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.join()


def team(path: Path, words: list[str], told: Path, size: int, timeout: float = 100) -> list[str]:
    """What each of so many processes of one run printed; torchrun would give them the same names."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(size)}
    members = [Forked(path, words, told.with_name(f"{told.name}.{i}"), {**where, "RANK": str(i)}) for i in range(size)]
    codes = [member.wait(timeout) for member in members]
    assert codes == [0] * size, [member.told for member in members]
    return [member.told for member in members]


def _run(path: Path, words: list[str], told: Path, errors: Path, environment: dict[str, str], heeds: bool) -> None:
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler if heeds else signal.SIG_IGN)
    for stream, file in ((1, told), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
    sys.exit(script(path).main(words))
