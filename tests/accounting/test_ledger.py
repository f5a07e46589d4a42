import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError, Ledger, NonPrivate

STEP = Gaussian(1.0).poisson(0.1)


def write(path: Path, entries: int) -> Ledger:
    ledger = Ledger.open(path)
    for index in range(entries):
        ledger.append(STEP if index % 3 else Gaussian(2.0), round=index, phase="train")
    return ledger


def test_it_says_what_was_released(tmp_path: Path) -> None:
    ledger = write(tmp_path / "a.jsonl", 10)
    assert len(ledger) == 10
    assert ledger.event() == STEP * 6 + Gaussian(2.0) * 4
    assert [entry["round"] for entry in ledger] == list(range(10))
    with Ledger.open(tmp_path / "a.jsonl") as again:
        assert (again.head, again.event(), len(again)) == (ledger.head, ledger.event(), 10)


def test_equal_runs_write_equal_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 5)
    write(tmp_path / "b.jsonl", 5)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize("kept", [0, 1, 4, 6])
def test_going_back_and_on_again_leaves_no_trace(tmp_path: Path, kept: int) -> None:
    ledger = write(tmp_path / "a.jsonl", 6)
    ledger.truncate(kept)
    short = write(tmp_path / "b.jsonl", kept)
    assert (ledger.head, ledger.event(), len(ledger)) == (short.head, short.event(), kept)
    for each in (ledger, short):
        each.append(NonPrivate(), note="more")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_going_forward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 2 entries, cannot go back to 3"):
        write(tmp_path / "a.jsonl", 2).truncate(3)


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 400))
def test_a_torn_last_line_is_dropped_and_nothing_else(tmp_path_factory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "a.jsonl"
    write(path, 3).close()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    cut = min(cut, len(lines[-1]) - 1)
    path.write_bytes(whole[:-cut])
    with pytest.raises(InputError, match="line 3: torn"):
        Ledger.verify(path)
    with Ledger.open(path) as ledger:
        assert len(ledger) == 2
        assert ledger.recovered == len(lines[-1]) - cut
    assert path.read_bytes() == b"".join(lines[:2])
    assert Ledger.verify(path) == 2


def _change(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"round":2', b'"round":7')


def _cheapen(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"0.1", b"0.01")


def _remove(lines: list[bytes]) -> None:
    del lines[2]


def _swap(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _repeat(lines: list[bytes]) -> None:
    lines.insert(2, lines[1])


def _garbage(lines: list[bytes]) -> None:
    lines[2] = b"\xff[]\n"


@pytest.mark.parametrize("tamper", [_change, _cheapen, _remove, _swap, _repeat, _garbage])
def test_tampering_is_found_and_the_first_line_named(tmp_path: Path, tamper) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 6).close()
    lines = path.read_bytes().splitlines(keepends=True)
    tamper(lines)
    path.write_bytes(b"".join(lines))
    for check in (Ledger.verify, Ledger.open):
        with pytest.raises(InputError, match="line 3: ") as caught:
            check(path)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"".join(lines)


def test_two_writers_are_noticed(tmp_path: Path) -> None:
    first, second = Ledger.open(tmp_path / "a.jsonl"), Ledger.open(tmp_path / "a.jsonl")
    first.append(STEP)
    with pytest.raises(InputError, match="another process is writing to .*; let it end or stop it first"):
        second.append(STEP)
    first.close()
    with pytest.raises(InputError, match="changed by another process .*; open it again"):
        second.append(STEP)
    second.close()
    assert Ledger.verify(tmp_path / "a.jsonl") == 1


def test_what_json_cannot_write_is_refused_and_leaves_the_file_alone(tmp_path: Path) -> None:
    ledger = write(tmp_path / "a.jsonl", 2)
    before = (tmp_path / "a.jsonl").read_bytes()
    for fields in ({"value": float("nan")}, {"value": object()}, {"hash": "x"}):
        with pytest.raises(InputError):
            ledger.append(STEP, **fields)
    with pytest.raises(InputError, match="accounting event"):
        ledger.append(1.0)  # type: ignore[arg-type]
    assert (tmp_path / "a.jsonl").read_bytes() == before
    ledger.append(STEP)
    assert Ledger.verify(tmp_path / "a.jsonl") == 3


def test_entries_are_one_json_object_a_line(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 2).close()
    entries = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [sorted(entry) for entry in entries] == [["event", "hash", "index", "phase", "previous", "round"]] * 2
    assert entries[0]["previous"] == "0" * 64
    assert entries[1]["previous"] == entries[0]["hash"]


def test_appending_stays_cheap_when_the_ledger_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    ledger = write(tmp_path / "a.jsonl", 5000)
    start = time.process_time()
    for _ in range(100):
        ledger.append(STEP)
    assert (time.process_time() - start) / 100 < 1e-3


def test_a_missing_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no ledger at"):
        Ledger.verify(tmp_path / "none.jsonl")


def test_fields_are_hashed_as_they_will_be_read(tmp_path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(Gaussian(1.0), extra={9: 1, 10: 2}, pair=(1, 2))
    assert Ledger.verify(path) == 1
