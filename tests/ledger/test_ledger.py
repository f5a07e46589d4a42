"""Ledgers: what is written is what was released, merged once each, within a budget, or refused."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from sfumato.accounting import ApproximateDP, Composition, Event, Gaussian, InputError, Laplace, NonPrivate, guarantee
from sfumato.accounting.accountants import RdpAccountant
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger import entries as chain
from sfumato.ledger.budget import Meter, PlanMeter, meter
from sfumato.ledger.entries import ORIGIN, line, seal
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


def test_a_reader_is_reported_how_far_it_is(tmp_path: Path) -> None:
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


# Merging counts every release exactly once, and guesses nothing.


EVENTS: tuple[Event, ...] = (Gaussian(1.0), Gaussian(2.0).poisson(0.1), Gaussian(3.0))


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def add(path: Path, kinds: list[int], identity: str | None = None, budget: Budget | None = None) -> Path:
    with Ledger.open(path, identity=identity, budget=budget) as ledger:
        for kind in kinds:
            ledger.append(EVENTS[kind], phase=f"kind {kind}")
    return path


def total(kinds: list[int]) -> Event:
    return sum((EVENTS[kind] for kind in kinds), Composition(()))


def fork(folder: Path, prefix: list[int], tails: list[list[int]], name: str = "") -> list[Path]:
    """A ledger that was copied after `prefix`, each copy with a tail by a writer of its own."""
    first = add(folder / f"{name}origin.jsonl", prefix, identity=f"{name}first")
    paths = []
    for i, tail in enumerate(tails):
        paths.append(folder / f"{name}{i}.jsonl")
        shutil.copy(first, paths[-1])
        add(paths[-1], tail, identity=f"{name}writer {i}")
    return paths


kinds = st.lists(st.integers(0, 2), max_size=5)


@settings(max_examples=by_profile(60), deadline=None)
@given(
    prefix=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    tails=st.lists(kinds, min_size=1, max_size=4),
    data=st.data(),
)
def test_a_shared_beginning_counts_once_and_every_tail_counts(tmp_path_factory, prefix, tails, data) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = fork(folder, prefix, tails)
    expected = total([*prefix, *(kind for tail in tails for kind in tail)])
    order = data.draw(st.permutations(paths))
    merged = Ledger.merge(order, folder / "merged.jsonl")
    assert merged.event() == expected
    assert merged.releases == len(prefix) + sum(map(len, tails))
    assert Ledger.verify(folder / "merged.jsonl") == merged.entries
    # what is in it already adds nothing, in whichever order
    again = data.draw(st.permutations([folder / "merged.jsonl", *data.draw(st.permutations(paths))[:2]]))
    assert Ledger.merge(again, folder / "again.jsonl").event() == expected
    assert Ledger.merge([folder / "merged.jsonl", paths[0]], folder / "same.jsonl").event() == expected
    # a copy of the merged ledger that went on is no stranger either
    shutil.copy(folder / "merged.jsonl", folder / "on.jsonl")
    add(folder / "on.jsonl", [1], identity="later")
    assert Ledger.merge([paths[-1], folder / "on.jsonl"], folder / "all.jsonl").event() == expected + EVENTS[1]


def test_equal_ledgers_merge_to_themselves_and_a_beginning_adds_nothing(tmp_path: Path) -> None:
    whole = fork(tmp_path, [0, 1], [[2, 2]])[0]
    shutil.copy(whole, tmp_path / "copy.jsonl")
    beginning = tmp_path / "origin.jsonl"
    for i, paths in enumerate([[whole, tmp_path / "copy.jsonl"], [whole, whole], [beginning, whole], [whole]]):
        Ledger.merge(paths, tmp_path / f"merged{i}.jsonl")
        assert (tmp_path / f"merged{i}.jsonl").read_bytes() == whole.read_bytes()


def test_the_origin_of_what_was_chained_anew_is_kept(tmp_path: Path) -> None:
    one, other = fork(tmp_path, [0], [[1], [2, 2]])
    Ledger.merge([one, other], tmp_path / "merged.jsonl")
    assert (tmp_path / "merged.jsonl").read_bytes().startswith(one.read_bytes())
    with Ledger.open(tmp_path / "merged.jsonl") as merged, Ledger.open(other) as source:
        added, there = list(merged)[2:], list(source)[1:]
        assert [entry["origin"]["hash"] for entry in added] == [entry["hash"] for entry in there]
        assert {entry["origin"]["head"] for entry in added} == {source.totals.head}
        assert all(entry["origin"]["file"].endswith("1.jsonl") for entry in added)
        assert added[0]["run"] == "writer 1"
        assert merged.totals.phases() == ("kind 0", "kind 1", "kind 2")
    third = shutil.copy(tmp_path / "merged.jsonl", tmp_path / "third.jsonl")
    add(third, [0], identity="third")
    Ledger.merge([other, third], tmp_path / "second.jsonl")
    with Ledger.open(tmp_path / "second.jsonl") as again:
        assert again.totals.event() == total([0, 1, 2, 2, 0])


def test_two_independent_runs_of_one_plan_are_never_taken_for_one(tmp_path: Path) -> None:
    """Equal lines of anonymous writers: both readings are possible, so the caller has to say which it is."""
    one, other = add(tmp_path / "a.jsonl", [0, 0]), add(tmp_path / "b.jsonl", [0, 0, 1])
    assert other.read_bytes().startswith(one.read_bytes())
    with pytest.raises(InputError, match="share entries of a writer without identity") as caught:
        Ledger.merge([one, other], tmp_path / "merged.jsonl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "merged.jsonl").exists()
    assert Ledger.merge([one, other], tmp_path / "copies.jsonl", same_run=True).event() == total([0, 0, 1])
    assert Ledger.merge([one, other], tmp_path / "two.jsonl", unrelated=True).event() == total([0, 0, 0, 0, 1])
    named = [add(tmp_path / f"{name}.jsonl", [0, 0], identity=name) for name in ("c", "d")]
    with pytest.raises(InputError, match="no release in common"):
        Ledger.merge(named, tmp_path / "merged.jsonl")
    assert Ledger.merge(named, tmp_path / "phases.jsonl", unrelated=True).event() == total([0] * 4)


def test_copies_that_go_on_without_an_identity_are_not_guessed_at(tmp_path: Path) -> None:
    """The prefix is known; the equal tails share entries of a writer without identity."""
    first = add(tmp_path / "a.jsonl", [0], identity="first")
    second = shutil.copy(first, tmp_path / "b.jsonl")
    for path in (first, second):
        add(path, [1])
    with pytest.raises(InputError, match="share entries of a writer without identity"):
        Ledger.merge([first, second], tmp_path / "merged.jsonl")
    assert Ledger.merge([first, second], tmp_path / "two.jsonl", unrelated=True).event() == total([0, 1, 1])
    assert Ledger.merge([first, second], tmp_path / "one.jsonl", same_run=True).event() == total([0, 1])


def test_a_chain_of_copies_is_related_and_a_stranger_is_named(tmp_path: Path) -> None:
    paths = fork(tmp_path, [0], [[1], [2]])
    stranger = add(tmp_path / "stranger.jsonl", [1], identity="stranger")
    with pytest.raises(InputError, match=r"stranger\.jsonl have no release in common"):
        Ledger.merge([*paths, stranger], tmp_path / "merged.jsonl")
    assert Ledger.merge([*paths, stranger], tmp_path / "all.jsonl", unrelated=True).event() == total([0, 1, 2, 1])


def test_the_tightest_budget_holds_and_what_happened_counts_even_beyond_it(tmp_path: Path) -> None:
    first = add(tmp_path / "a.jsonl", [], identity="x", budget=Budget(epsilon=9.0, delta=1e-4))
    add(first, [2], identity="x")
    second = shutil.copy(first, tmp_path / "b.jsonl")
    add(first, [2, 2], identity="y")
    add(second, [2, 2], identity="z", budget=Budget(epsilon=5.0, delta=1e-5))
    merged = Ledger.merge([first, second], tmp_path / "merged.jsonl")
    assert merged.budget == Budget(epsilon=5.0, delta=1e-5)
    assert merged.event() == total([2] * 5)
    with Ledger.open(tmp_path / "merged.jsonl") as ledger, pytest.raises(InputError, match="budget"):
        ledger.append(Gaussian(0.5))
    third = add(tmp_path / "c.jsonl", [0], identity="w", budget=Budget(rho=1.0))
    with pytest.raises(InputError, match="cannot be compared; give budget="):
        Ledger.merge([first, third], tmp_path / "no.jsonl", unrelated=True)
    chosen = Ledger.merge([first, third], tmp_path / "yes.jsonl", unrelated=True, budget=Budget(rho=0.1))
    assert chosen.budget == Budget(rho=0.1)


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path) -> None:
    one, other = fork(tmp_path, [0], [[1], [2]])
    out = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match="no ledger to merge"):
        Ledger.merge([], out)
    with pytest.raises(InputError, match="exists already"):
        Ledger.merge([one, other], other)
    with pytest.raises(InputError, match="no ledger at"):
        Ledger.merge([one, tmp_path / "none.jsonl"], out)
    other.write_bytes(other.read_bytes()[:-5])
    with pytest.raises(InputError, match="line 2: torn"):
        Ledger.merge([one, other], out)
    other.write_bytes(one.read_bytes().replace(b"kind 1", b"kind 7"))
    with pytest.raises(InputError, match="line 2: was changed"):
        Ledger.merge([one, other], out)
    assert not out.exists()


def test_an_empty_ledger_adds_nothing(tmp_path: Path) -> None:
    one = fork(tmp_path, [0], [[1]])[0]
    empty = add(tmp_path / "empty.jsonl", [])
    Ledger.merge([empty, one], tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == one.read_bytes()
    assert Ledger.merge([empty], tmp_path / "nothing.jsonl").entries == 0


def test_an_origin_that_no_merge_wrote_is_named_with_its_line(tmp_path: Path) -> None:
    one = add(tmp_path / "a.jsonl", [0])
    entry = seal({"event": EVENTS[0].to_json(), "origin": "elsewhere"}, index=0, previous=ORIGIN)
    (tmp_path / "b.jsonl").write_bytes(line(entry))
    with pytest.raises(InputError, match=r"b\.jsonl, line 1"):
        Ledger.merge([one, tmp_path / "b.jsonl"], tmp_path / "c.jsonl", unrelated=True)
    with pytest.raises(InputError, match="list of paths"):
        Ledger.merge(one, tmp_path / "c.jsonl")  # type: ignore[arg-type]


# A budget admits exactly what the tightest accountant allows, is written in the ledger, and costs little to ask.


BUDGETED = Gaussian(1.0).poisson(0.02)


def admit_all(asked: Meter, steps: list[Event]) -> int:
    """How many of the steps the meter admits before it refuses one."""
    for done, step in enumerate(steps):
        try:
            asked.admit(step)
        except BudgetExceeded:
            return done
        asked.spend(step)
    return len(steps)


def test_equal_steps_end_exactly_where_the_tightest_accountant_says_and_it_is_asked_rarely() -> None:
    plan = PlanMeter(Budget(epsilon=4.0, delta=1e-5, fixed_plan=True), {})
    done = admit_all(plan, [BUDGETED] * 10_000)
    assert guarantee(BUDGETED * done).epsilon(1e-5) <= 4.0 < guarantee(BUDGETED * (done + 1)).epsilon(1e-5)
    assert guarantee(BUDGETED * done, method="rdp").epsilon(1e-5) > 4.0  # Renyi accounting would have ended earlier
    assert plan.questions <= 40
    assert done > 1000


def test_mixed_steps_end_where_their_composition_says() -> None:
    pattern = [BUDGETED, Gaussian(30.0), BUDGETED, Gaussian(2.0).poisson(0.01)]
    plan = PlanMeter(Budget(epsilon=3.0, delta=1e-6, fixed_plan=True), {})
    done = admit_all(plan, pattern * 500)
    told = [guarantee(sum(pattern * (n // 4) + pattern[: n % 4])).epsilon(1e-6) for n in (done, done + 1)]  # type: ignore[arg-type]
    assert told[0] <= 3.0 < told[1]
    assert plan.questions <= 150


@settings(max_examples=by_profile(40), deadline=None)
@given(
    noises=st.lists(st.floats(0.7, 40.0), min_size=1, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    epsilon=st.floats(0.05, 8.0),
)
def test_gaussian_steps_are_admitted_while_their_closed_form_is_within_the_budget(noises, order, epsilon) -> None:
    """Balle and Wang 2018, Theorem 8: n Gaussians are one, with mu the root of the sum of 1/z^2."""
    delta = 1e-5

    def excess(mu: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    plan, squares = meter(Budget(epsilon=epsilon, delta=delta, fixed_plan=True), {}), 0.0
    for index in order:
        noise = noises[index % len(noises)]
        beyond = excess(math.sqrt(squares + noise**-2))
        try:
            plan.admit(Gaussian(noise))
            assert beyond < 1e-9 * delta
        except BudgetExceeded:
            assert beyond > -1e-9 * delta
            return
        plan.spend(Gaussian(noise))
        squares += noise**-2


@pytest.mark.parametrize(
    "budget",
    [
        Budget(epsilon=1.0, delta=1e-6),
        Budget(epsilon=1.0, delta=1e-6, fixed_plan=True),
        Budget(rho=0.1, adjacency="replace"),
    ],
)
def test_remaining_is_exact(tmp_path: Path, budget: Budget) -> None:
    with Ledger.open(tmp_path / "a.jsonl", budget=budget) as ledger:
        ledger.append(Gaussian(9.0))
        left = ledger.remaining(Gaussian(20.0))
        assert left == ledger.remaining(Gaussian(20.0))
        for _ in range(int(left)):
            ledger.append(Gaussian(20.0))
        assert ledger.remaining(Gaussian(20.0)) == 0
        with pytest.raises(BudgetExceeded):
            ledger.append(Gaussian(20.0))
        assert ledger.remaining(BUDGETED * 0) == math.inf
        assert ledger.remaining(NonPrivate()) == 0


def test_a_budget_in_rho_allows_its_share_of_gaussians_and_no_more() -> None:
    assert admit_all(meter(Budget(rho=1.0), {}), [Gaussian(4.0)] * 100) == 32  # 1/32 each
    assert admit_all(meter(Budget(rho=1.0, adjacency="replace"), {}), [Gaussian(4.0)] * 100) == 8
    assert admit_all(meter(Budget(rho=1.0), {}), [Gaussian(4.0).poisson(0.01)] * 100) == 32  # sampling does not help


def test_a_refused_step_leaves_no_trace_and_the_refusal_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    ledger = Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5, fixed_plan=True))
    ledger.append(Gaussian(6.0))
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded) as caught:
        ledger.append(Gaussian(1.0))
    line = str(caught.value)
    spent, after = (guarantee(event).epsilon(1e-5) for event in (Gaussian(6.0), Gaussian(6.0) + Gaussian(1.0)))
    for words in (str(path), "epsilon 1 at delta 1e-05", f"{spent:.6g}", f"{after:.6g}", "replace_budget"):
        assert words in line
    assert "\n" not in line
    assert path.read_bytes() == before
    ledger.append(Gaussian(60.0))
    assert Ledger.verify(path) == 3


def test_a_later_opener_is_held_to_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)).close()
    with Ledger.open(path) as ledger, pytest.raises(BudgetExceeded):
        ledger.append(Gaussian(1.0))
    lines = path.read_bytes()
    path.write_bytes(lines.replace(b'"epsilon":1.0', b'"epsilon":9.0'))
    with pytest.raises(InputError, match="line 1: was changed"):
        Ledger.open(path)


def test_a_budget_can_be_tightened_by_opening_and_loosened_only_openly(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)).close()
    with Ledger.open(path, budget=Budget(epsilon=0.5, delta=1e-5)) as ledger:
        assert (len(ledger), ledger.totals.releases) == (2, 0)
    before = path.read_bytes()
    looser = (
        Budget(epsilon=1.0, delta=1e-5),
        Budget(epsilon=0.5, delta=1e-4),
        Budget(epsilon=0.1, delta=1e-5, adjacency="replace"),
        Budget(rho=0.001),
        Budget(epsilon=0.1, delta=1e-5, fixed_plan=True),
    )
    for budget in looser:
        with pytest.raises(InputError, match="is not tighter"):
            Ledger.open(path, budget=budget)
    Ledger.open(path, budget=Budget(epsilon=0.5, delta=1e-5)).close()
    assert path.read_bytes() == before
    with Ledger.open(path) as ledger:
        with pytest.raises(InputError, match="needs a reason"):
            ledger.replace_budget(looser[0], reason=" ")
        ledger.replace_budget(looser[0], reason="The board agreed on 1.")
        ledger.append(Gaussian(8.0))
    last = json.loads(path.read_text().splitlines()[2])
    assert (last["budget"]["epsilon"], last["reason"]) == (1.0, "The board agreed on 1.")
    assert path.read_bytes().startswith(before)


def test_a_budget_that_is_spent_already_opens_and_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(Gaussian(1.0))
    with Ledger.open(path, budget=Budget(epsilon=1.0, delta=1e-5)) as ledger:
        assert ledger.totals.event() == Gaussian(1.0)
        assert ledger.remaining(Gaussian(1000.0)) == 0
        with pytest.raises(BudgetExceeded, match="is spent already"):
            ledger.append(Gaussian(1000.0))


def test_going_back_never_loses_the_budget(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.jsonl") as ledger:
        for _ in range(3):
            ledger.append(Gaussian(8.0))
    with Ledger.open(tmp_path / "a.jsonl", budget=Budget(epsilon=4.0, delta=1e-5)) as ledger:
        left = ledger.remaining(Gaussian(8.0))
        ledger.append(Gaussian(8.0))
        ledger.truncate(4)
        assert ledger.remaining(Gaussian(8.0)) == left
        ledger.truncate(2)
        assert ledger.totals.budget == Budget(epsilon=4.0, delta=1e-5)
        assert ledger.remaining(Gaussian(8.0)) == left + 1
        assert (len(ledger), ledger.totals.releases) == (3, 2)


def test_what_no_accountant_knows_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Mystery(Event):
        pass

    for fixed in (False, True):
        asked = meter(Budget(epsilon=1.0, delta=1e-5, fixed_plan=fixed), {})
        with pytest.raises(BudgetExceeded, match=r"cannot be shown to stay within .* Mystery"):
            asked.admit(Mystery())
        asked.admit(Gaussian(10.0))
    assert admit_all(meter(Budget(epsilon=1e6, delta=1e-5), {}), [NonPrivate()]) == 0


def test_a_step_of_a_long_run_costs_far_less_than_a_millisecond(tmp_path: Path) -> None:
    total = guarantee(BUDGETED * 3000).epsilon(1e-5)
    with Ledger.open(tmp_path / "a.jsonl", budget=Budget(epsilon=total, delta=1e-5, fixed_plan=True)) as ledger:
        start = time.process_time()
        for index in range(3000):
            ledger.append(BUDGETED, round=index)
        assert (time.process_time() - start) / 3000 < 1e-3
        assert ledger.remaining(BUDGETED) == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "epsilon and delta, or rho alone"),
        ({"epsilon": 1.0}, "epsilon and delta, or rho alone"),
        ({"epsilon": 1.0, "delta": 1e-5, "rho": 1.0}, "epsilon and delta, or rho alone"),
        ({"epsilon": -1.0, "delta": 1e-5}, "epsilon must be >= 0"),
        ({"epsilon": math.inf, "delta": 1e-5}, "epsilon must be >= 0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be in"),
        ({"rho": 1.0, "fixed_plan": True}, "belong to a budget in epsilon"),
        ({"rho": 1.0, "order": 8.0}, "belong to a budget in epsilon"),
        ({"epsilon": 1.0, "delta": 1e-5, "order": 1.0}, "order must be in"),
        ({"epsilon": 1.0, "delta": 1e-5, "order": 8.0, "fixed_plan": True}, "order is for a plan that is not fixed"),
        ({"epsilon": 1.0, "delta": 0.0, "order": 8.0}, "order is for a plan that is not fixed"),
        ({"epsilon": 1.0, "delta": 1e-5, "fixed_plan": "yes"}, "fixed_plan must be one of"),
        ({"rho": math.nan}, "rho must be a number"),
        ({"rho": 1.0, "adjacency": "swap"}, "adjacency must be one of"),
    ],
)
def test_impossible_budgets_are_refused(fields: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Budget(**fields)


def test_asking_without_a_budget_is_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.jsonl") as ledger, pytest.raises(InputError, match="has no budget"):
        ledger.remaining(BUDGETED)
    with pytest.raises(InputError, match="budget must be a Budget"):
        Ledger.open(tmp_path / "a.jsonl", budget=1.0)  # type: ignore[arg-type]


def test_costs_add_up_at_one_order_whatever_comes_after_the_first_release() -> None:
    """A filter that took the best order anew for each step would admit steps that no single order allows."""
    budget = Budget(epsilon=2.0, delta=1e-6)
    order = budget.settled(BUDGETED).order
    assert order is not None
    asked = meter(budget, {})
    steps: list[Event] = [BUDGETED, *[Gaussian(12.0)] * 50, *[Gaussian(1.5).poisson(0.1)] * 500]
    done = admit_all(asked, steps)
    at_order = [RdpAccountant(sum(steps[:n]), orders=(order,)).epsilon(1e-6) for n in (done, done + 1)]  # type: ignore[arg-type]
    assert at_order[0] <= 2.0 < at_order[1]
    assert RdpAccountant(sum(steps[: done + 1])).epsilon(1e-6) < 2.0  # type: ignore[arg-type]
    assert asked.spent() == pytest.approx(at_order[0], rel=1e-12)


def test_the_order_is_the_same_after_the_ledger_was_closed(tmp_path: Path) -> None:
    step = Gaussian(1.5).poisson(0.02)
    budget, others = Budget(epsilon=2.0, delta=1e-6), [Gaussian(40.0), step, Gaussian(30.0)]
    with Ledger.open(tmp_path / "a.jsonl", budget=budget) as ledger:
        for other in others:
            ledger.append(other)
        left = ledger.remaining(step)
    with Ledger.open(tmp_path / "a.jsonl") as ledger:
        assert ledger.remaining(step) == left
    assert Ledger.read(tmp_path / "a.jsonl").remaining(step) == left
    suited = Budget(epsilon=2.0, delta=1e-6, order=budget.settled(step).order)
    assert meter(suited, dict.fromkeys(others, 1)).remaining(step) > left  # the order that suits most of the run
    assert Budget.from_json(suited.to_json()) == suited


def test_a_pure_budget_counts_largest_losses_and_a_claim_has_no_renyi_cost() -> None:
    assert admit_all(meter(Budget(epsilon=1.0, delta=0.0), {}), [Laplace(4.0)] * 9) == 4
    assert admit_all(meter(Budget(epsilon=1.0, delta=1e-5), {}), [ApproximateDP(0.01, 1e-9)]) == 0
    plan = Budget(epsilon=1.0, delta=1e-5, fixed_plan=True)
    assert admit_all(meter(plan, {}), [ApproximateDP(0.01, 1e-9)] * 3) == 3
