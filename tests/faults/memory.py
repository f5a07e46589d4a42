"""The peak of a process's resident memory while something runs, whatever it held before."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST = 1_000_000_000
"""Bytes that a process which reads damaged files, or is given random command lines, may hold at its peak."""

_SHARE = MOST // 2  # of it that may be new, where the tests before have left much


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Fail if the peak is above `MOST`, or if more than half of it was added to a process that is large already.

    The peak is printed: `pytest -rP` shows it.
    """
    before = _resident("VmRSS")
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    yield
    peak = _resident("VmHWM")
    print(f"{what}: peak of resident memory {peak / 1e6:.0f} MB, {before / 1e6:.0f} MB before")
    assert peak <= max(MOST, before + _SHARE), f"{what}: {peak / 1e6:.0f} MB, {before / 1e6:.0f} MB before"


def _resident(field: str) -> int:
    """Bytes by /proc; elsewhere the peak of the process's whole life."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
