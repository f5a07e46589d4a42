"""Fresh processes: what becomes of a trial where none can be had."""

import errno
import os

import pytest

from sfumato.guard.fresh import histories


@pytest.mark.parametrize("left", [0, 1])
def test_no_more_processes_is_no_trial_and_no_traceback(monkeypatch: pytest.MonkeyPatch, left: int):
    fork, begun = os.fork, []

    def limited() -> int:
        begun.append(1)
        if len(begun) > left:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    before = len(os.listdir("/proc/self/fd"))
    assert histories([lambda: 1, lambda: 2]) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_trial_that_raises_is_none():
    assert histories([lambda: 1, lambda: 1 / 0]) is None
    assert histories([lambda: 1, lambda: 2]) == [1, 2]
