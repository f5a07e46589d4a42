"""Merging counts every release exactly once, and guesses nothing."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Composition, Event, Gaussian, InputError
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.entries import ORIGIN, line, seal
from slow import by_profile

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
