import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError, NonPrivate
from sfumato.ledger import Ledger
from sfumato.ledger import entries as chain
from slow import by_profile

STEP = Gaussian(1.0).poisson(0.1)


def write(path: Path, entries: int) -> Ledger:
    ledger = Ledger.open(path)
    for index in range(entries):
        ledger.append(STEP if index % 3 else Gaussian(2.0), round=index, phase="train")
    return ledger


def test_it_says_what_was_released(tmp_path: Path) -> None:
    ledger = write(tmp_path / "a.jsonl", 10)
    assert len(ledger) == 10
    assert ledger.totals.event() == STEP * 6 + Gaussian(2.0) * 4
    assert [entry["round"] for entry in ledger] == list(range(10))
    with Ledger.open(tmp_path / "a.jsonl") as again:
        assert (again.totals.head, again.totals.event(), len(again)) == (ledger.totals.head, ledger.totals.event(), 10)


def test_equal_runs_write_equal_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 5)
    write(tmp_path / "b.jsonl", 5)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize("kept", [0, 1, 4, 6])
def test_going_back_and_on_again_leaves_no_trace(tmp_path: Path, kept: int) -> None:
    ledger = write(tmp_path / "a.jsonl", 6)
    ledger.truncate(kept)
    short = write(tmp_path / "b.jsonl", kept)
    assert (ledger.totals.head, ledger.totals.event(), len(ledger)) == (short.totals.head, short.totals.event(), kept)
    for each in (ledger, short):
        each.append(NonPrivate(), note="more")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_going_forward_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 2 entries, cannot go back to 3"):
        write(tmp_path / "a.jsonl", 2).truncate(3)


@settings(max_examples=by_profile(40), deadline=None)
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


def _say_twice(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"round":2', b'"round":9,"round":2')  # the first is what a person reads


def _space(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"\n", b" \n")


def _space_within(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"round":2', b'"round": 2')


def _spell_otherwise(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"train"', b'"tr\\u0061in"')


def _carriage_return(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"\n", b"\r\n")


def _beyond_double(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"round":2', b'"round":1e999')


def _nest(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b'"round":2', b'"round":' + b"[" * 200_000 + b"]" * 200_000)


TAMPERINGS = [_change, _cheapen, _remove, _swap, _repeat, _garbage, _say_twice, _space, _space_within]
TAMPERINGS += [_spell_otherwise, _carriage_return, _beyond_double, _nest]


@pytest.mark.parametrize("tamper", TAMPERINGS)
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
    with pytest.raises(InputError, match=r"another process is writing to .*; let it end or stop it first"):
        second.append(STEP)
    first.close()
    with pytest.raises(InputError, match=r"changed by another process .*; open it again"):
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


def test_phases_add_up_to_the_whole(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "a.jsonl")
    for phase, event in (("pretrain", STEP), (None, Gaussian(4.0)), ("train", STEP * 2), ("pretrain", STEP)):
        ledger.append(event, phase=phase)
    assert ledger.totals.phases() == ("pretrain", "", "train")
    assert ledger.totals.event("pretrain") == STEP * 2 == ledger.totals.event("train")
    assert ledger.totals.event("") == Gaussian(4.0)
    assert (
        sum((ledger.totals.event(phase) for phase in ledger.totals.phases()), NonPrivate() * 0) == ledger.totals.event()
    )
    assert Ledger.read(tmp_path / "a.jsonl").event("train") == STEP * 2
    with pytest.raises(InputError, match="no phase 'tune'; its phases are: 'pretrain', '', 'train'"):
        ledger.totals.event("tune")
    for phase in ("", 3):
        with pytest.raises(InputError, match="phase must be a name"):
            ledger.append(STEP, phase=phase)  # type: ignore[arg-type]


def test_an_identity_is_written_once_for_each_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for identity in ("a", "a", None, "b"):
        with Ledger.open(path, identity=identity) as ledger:
            ledger.append(STEP)
            ledger.append(STEP)
    found = [entry.get("run", "-") for entry in map(json.loads, path.read_text().splitlines())]
    assert found == ["a", "-", "-", "-", None, "-", "b", "-"]
    for identity in ("", "two\nlines", 7):
        with pytest.raises(InputError, match="identity must be a word"):
            Ledger.open(path, identity=identity)  # type: ignore[arg-type]


def forge(path: Path, **fields: object) -> None:
    """A ledger of one whole entry with these fields."""
    path.write_bytes(chain.line(chain.seal(dict(fields), index=0, previous=chain.ORIGIN)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"event": Gaussian(1.0).to_json(), "format": 2}, "newer version of sfumato .format 2, this one reads 1"),
        ({"kind": "audit", "what": 1}, "newer version of sfumato .an entry of kind 'audit'"),
        ({"event": {"event": "quantum", "noise": 1.0}}, "line 1: unknown event 'quantum'.*newer version"),
        ({"event": {"event": "gaussian", "noise_multiplier": 0.0}}, "line 1: noise_multiplier must be > 0"),
        ({"kind": "budget", "budget": {"epsilon": 1.0, "rounds": 3}}, "line 1: not a budget"),
        ({"kind": "budget", "budget": 3}, "line 1: not a budget"),
        ({"kind": "budget"}, "line 1: "),
        ({"note": "hello"}, "not an entry of a ledger"),
    ],
)
def test_what_this_version_does_not_know_is_refused_by_line(tmp_path: Path, fields: dict, words: str) -> None:
    path = tmp_path / "a.jsonl"
    forge(path, **fields)
    for check in (Ledger.verify, Ledger.open):
        with pytest.raises(InputError, match=words) as caught:
            check(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"years of work, in one line without an end",
        b'{"event":"gaussian","noise_multiplier":1.0}',
        b'{\n  "plan": "fedemb"\n}\n',
        b"\x89PNG\r\n\x1a\n\0\0",
        b"[1, 2]",
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    for check in (Ledger.verify, Ledger.open):
        with pytest.raises(InputError, match=r"line 1: not an entry of a ledger; give the ledger\.jsonl of a run"):
            check(path)
    assert path.read_bytes() == content


def test_a_first_line_that_a_crash_tore_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1).close()
    whole = path.read_bytes()
    for cut in (1, 2, 50, len(whole) - 2):
        path.write_bytes(whole[:-cut])
        with Ledger.open(path) as ledger:
            assert (len(ledger), ledger.recovered) == (0, len(whole) - cut)


def test_folders_and_permissions_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for check in (Ledger.verify, Ledger.open):
        with pytest.raises(InputError, match="is a folder; give"):
            check(tmp_path)
    with pytest.raises(InputError, match="its folder does not exist"):
        Ledger.open(tmp_path / "none" / "a.jsonl")
    write(tmp_path / "a.jsonl", 1).close()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(chain, "open", denied, raising=False)
    with pytest.raises(InputError, match="may not be read; ask its owner"):
        Ledger.verify(tmp_path / "a.jsonl")
    monkeypatch.setattr(sys.modules[Ledger.__module__], "open", denied, raising=False)
    with pytest.raises(InputError, match="may not be written; ask its owner"):
        Ledger.open(tmp_path / "a.jsonl")


def test_a_line_that_another_process_is_writing_is_not_taken_for_torn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = write(path, 2)
    with open(path, "ab") as file:
        file.write(b'{"event":')
    before = path.read_bytes()
    with pytest.raises(InputError, match="another process is writing to"):
        Ledger.open(path)
    assert path.read_bytes() == before
    assert Ledger.read(path, torn=True).entries == 2
    writer.close()
    with Ledger.open(path) as ledger:
        assert ledger.recovered == 9


def test_another_process_is_kept_out_while_this_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    code = f"""
from sfumato.accounting import Gaussian, InputError
from sfumato.ledger import Ledger
try:
    Ledger.open({str(path)!r}).append(Gaussian(1.0))
except InputError as error:
    print(error)
"""

    def elsewhere() -> str:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    with write(path, 2):
        assert "another process is writing to" in elsewhere()
    assert elsewhere() == ""
    assert Ledger.verify(path) == 3


def test_a_reader_is_told_how_far_it_is(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 5).close()
    told: list[tuple[int, int]] = []
    Ledger.read(tmp_path / "a.jsonl", show=lambda done, total: told.append((done, total)))
    size = (tmp_path / "a.jsonl").stat().st_size
    assert told[-1] == (size, size)


def test_it_refuses_a_budget_and_a_phase_that_are_none(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.jsonl") as ledger:
        ledger.append(STEP)
        with pytest.raises(InputError, match="budget"):
            ledger.replace_budget(1.0, reason="more")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="phase"):
            ledger.totals.event(["train"])  # type: ignore[arg-type]
