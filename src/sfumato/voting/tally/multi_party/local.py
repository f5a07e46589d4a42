"""Talliers as processes of this machine, which end with the one that started them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from sfumato._check import InputError
from sfumato.voting.tally.multi_party.peers import free_address

_STARTING = 120.0  # seconds


class LocalTalliers:
    """So many `sfumato tally` processes on free ports of the loopback interface.

    Args:
        count: an odd number of at least 3.
        folder: where their keys and memories are, a folder each; None makes one that is deleted in the end.
        seed: for simulation.
    """

    def __init__(self, count: int, *, folder: Path | None, seed: int | None) -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        folder = Path(self._temporary.name) if self._temporary else Path(str(folder))
        self.addresses = tuple(str(free_address()) for _ in range(count))
        self.processes = [self._started(place, folder / f"tallier {place}", seed) for place in range(1, count + 1)]
        try:
            for process in self.processes:
                self._await(process)
        except BaseException:
            self.close()
            raise

    def _started(self, place: int, folder: Path, seed: int | None) -> subprocess.Popen:
        words = [sys.executable, "-m", "sfumato", "tally", "--once", "--index", str(place), "--out", str(folder)]
        words += ["--talliers", *self.addresses]
        words += [] if seed is None else ["--seed", str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("RANK", None)  # of several processes that train together, ours speak up, too
        return subprocess.Popen(
            words,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # ctrl-C is for the one that started them, and it ends them
        )

    def _await(self, process: subprocess.Popen) -> None:
        """Read until it says that all are connected."""
        guard = threading.Timer(_STARTING, process.kill)
        guard.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "is connected" in line:
                    return
        finally:
            guard.cancel()
        _, told = process.communicate()
        raise InputError(f"a tallier did not start: {(told.strip().splitlines() or ['it was killed'])[-1]}")

    def close(self) -> None:
        """End them, and wait until they are gone."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.terminate()
        for process in self.processes:
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        if self._temporary:
            self._temporary.cleanup()
