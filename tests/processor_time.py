"""Processor seconds of each test, of its own process and of those that it starts; a plugin of pytest.

`--processor-time FILE` appends a line for each test: its name, whether it is marked slow, all its seconds and those
without fixtures, which may serve other tests, too. `--slow-is-marked` fails a test that takes more than five without
its fixtures and is not marked slow. Unlike seconds on the clock, these hardly depend on what else the machine does.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 5.0
_START, _CALL = pytest.StashKey[float](), pytest.StashKey[float]()


def processor_seconds() -> float:
    """Of this process and of all that it started, whether they have ended or not."""
    running = sum(_with_ended_children(pid) for pid in _descendants(os.getpid()))
    return sum(os.times()[:4]) + running / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> Iterator[int]:
    try:  # by plain calls, as a test may have others fail
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return
    for task in tasks:  # systems without it count what has ended
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                found = [int(word) for word in children.read().split()]
        except OSError:  # the thread has ended
            continue
        for child in found:
            yield child
            yield from _descendants(child)


def _with_ended_children(pid: int) -> int:
    """In ticks of the clock."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended, and counts to its parent
        return 0
    return sum(int(ticks) for ticks in fields[11:15])


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processor time")
    group.addoption("--processor-time", metavar="FILE", type=Path, help="append each test's processor seconds to FILE")
    group.addoption("--slow-is-marked", action="store_true", help=f"fail what takes over {LIMIT:g} processor seconds")


def _measures(config: pytest.Config) -> bool:
    return config.getoption("--processor-time") is not None or bool(config.getoption("--slow-is-marked"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    if _measures(item.config):
        item.stash[_START] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if not _measures(item.config):
        return (yield)
    before = processor_seconds()
    try:
        return (yield)
    finally:
        item.stash[_CALL] = processor_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "teardown" and _START in item.stash:
        slow, alone = item.get_closest_marker("slow") is not None, item.stash.get(_CALL, 0.0)
        row = {"slow": slow, "seconds": processor_seconds() - item.stash[_START], "call": alone}
        report.user_properties.append(("processor time", row))
        if item.config.getoption("--slow-is-marked") and not slow and alone > LIMIT:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} took {alone:.1f} processor seconds: make it smaller, or mark it slow"
    return report


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--processor-time")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(file), "processor-time-writer")


class _Writer:
    """Where several processes run the tests, the one that collects their reports writes."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, row in report.user_properties:
            if name == "processor time":
                with self._file.open("a") as lines:
                    lines.write(json.dumps({"test": report.nodeid, **row}) + "\n")
