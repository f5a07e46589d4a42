"""A run: what it is bound to, what it spends and keeps, and what disturbs it."""

import itertools
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger import ledger as binding
from sfumato.mechanisms import Gaussian
from sfumato.report import write_report
from sfumato.runs import Alternative, Facts, Run, RunFolder, checkpoint
from sfumato.statement import Statement
from small_runs import EVENT, ROUNDS, work

# A run without a loop: releases in phases, one ledger, one key, one statement.

PLAN = {"plan": "histogram and votes", "bins": 4}
COST = {"histogram": acc.Laplace(scale=2.0), "votes": acc.Gaussian(noise_multiplier=3.0)}
FACTS = Facts(
    unit="example",
    adjacency="add_remove",
    population=100,
    delta=1e-4,
    sampling="everyone",
    mechanism="a histogram and votes",
)


class Killed(BaseException):
    """What a process does not survive."""


def draw(phase: str, calls: list[str]):
    def make(source) -> dict[str, torch.Tensor]:
        calls.append(phase)
        return {phase: torch.from_numpy(source.stream(phase).normal(4))}

    return make


def both(out: Path | None, calls: list[str], *, dies_after: str | None = None, resume: bool = False, **options):
    """A histogram, then votes; dies after a phase on request."""
    with Run.open(out, plan=PLAN, resume=resume, **options) as run:
        if resume:
            run.saved("of this data")
        run.start("of this data")
        released = {}
        for phase in COST:
            released.update(run.release(phase, COST[phase], draw(phase, calls), bins=4))
            if dies_after == phase:
                raise Killed
        return run.finish(released, FACTS, metadata={"bins": 4})


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("plan.json", "statement.json", "ledger.jsonl")} | {
        "model": (folder / "model.safetensors").read_bytes()
    }


def test_phases_stand_in_one_ledger_and_one_statement_covers_them(tmp_path):
    statement = both(tmp_path / "run", calls := [], seed=1)
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl")
    assert ledger.phases() == ("histogram", "votes")
    assert [ledger.event(phase) for phase in ledger.phases()] == list(COST.values())
    cost = acc.guarantee(COST["histogram"] + COST["votes"])
    assert statement.epsilon == pytest.approx(cost.epsilon(1e-4))
    assert statement.epsilon > max(acc.guarantee(event).epsilon(1e-4) for event in COST.values())
    assert Statement.load(tmp_path / "run" / "statement.json") == statement
    assert calls == ["histogram", "votes"]
    entries = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [entry.get("bins") for entry in entries] == [4, 4, None]  # the last one names the statement


def test_a_phase_is_released_once_and_paid_once(tmp_path):
    calls: list[str] = []
    with Run.open(tmp_path / "run", plan=PLAN, seed=1) as run:
        run.start("of this data")
        first = run.release("histogram", COST["histogram"], draw("histogram", calls))
        again = run.release("histogram", COST["histogram"], draw("histogram", calls))
        assert torch.equal(first["histogram"], again["histogram"])
        assert run.spent() == COST["histogram"]
    assert calls == ["histogram"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_phase_that_was_released_is_not_another_one_at_another_cost(tmp_path, folder):
    """Else the second release would give the first result again, and nobody would notice."""
    out = tmp_path / "run" if folder else None
    with Run.open(out, plan=PLAN, seed=1) as run:
        run.start("of this data")
        run.release("histogram", COST["histogram"], draw("histogram", []))
        with pytest.raises(InputError, match="give what follows a name of its own"):
            run.release("histogram", COST["votes"], draw("votes", []))


@pytest.mark.parametrize("folder", [True, False])
def test_a_phase_that_the_budget_refused_may_be_released_at_a_lower_cost(tmp_path, folder):
    out, dear = tmp_path / "run" if folder else None, COST["histogram"] * 1000
    budget = Budget(epsilon=acc.guarantee(COST["histogram"]).epsilon(1e-4) * 1.01, delta=1e-4)
    with Run.open(out, plan=PLAN, seed=1, budget=budget) as run:
        run.start("of this data")
        with pytest.raises(BudgetExceeded):
            run.release("histogram", dear, draw("histogram", []))
        run.release("histogram", COST["histogram"], draw("histogram", calls := []))
        assert calls == ["histogram"]
        assert run.spent() == COST["histogram"]


def test_a_run_that_goes_on_knows_what_each_phase_was_released_at(tmp_path):
    for resume in (False, True):
        with Run.open(tmp_path / "run", plan=PLAN, seed=1, resume=resume) as run:
            if resume:
                run.saved("of this data")
            run.start("of this data")
            if not resume:
                run.spend(COST["votes"], phase="histogram")  # beside the release
            run.release("histogram", COST["histogram"], draw("histogram", calls := []))
            assert calls == ([] if resume else ["histogram"])
            with pytest.raises(InputError, match="give what follows a name of its own"):
                run.release("histogram", acc.Gaussian(77.0), draw("histogram", []))


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("phase", ["histogram", "votes"])
def test_killed_between_phases_and_resumed_it_pays_and_draws_nothing_again(tmp_path, seed, phase):
    """Also with a key of the operating system: a run that is released never draws a second time."""
    calls: list[str] = []
    with pytest.raises(Killed):
        both(tmp_path / "run", calls, dies_after=phase, seed=seed)
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    both(tmp_path / "run", calls, seed=seed, resume=True)
    assert calls == ["histogram", "votes"]
    after = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    assert after.startswith(before)
    assert Ledger.read(tmp_path / "run" / "ledger.jsonl").releases == 2
    assert not (tmp_path / "run" / "checkpoint" / "key").exists()
    if seed is not None:
        both(tmp_path / "whole", [], seed=seed)
        assert files(tmp_path / "run") == files(tmp_path / "whole")


@pytest.mark.parametrize("recorded", [True, False])
def test_killed_in_the_middle_of_a_release_it_draws_the_same_and_records_it_once(tmp_path, monkeypatch, recorded):
    """Between the ledger's line and the release, or between the release and the checkpoint."""
    released: list[torch.Tensor] = []

    def votes(source):
        if recorded and not released:
            released.append(source.stream("votes").normal(4))
            raise Killed
        released.append(source.stream("votes").normal(4))
        return {"votes": torch.from_numpy(released[-1])}

    def go(resume: bool) -> None:
        with Run.open(tmp_path / "run", plan=PLAN, resume=resume) as run:
            if resume:
                run.saved("of this data")
            run.start("of this data")
            run.release("votes", COST["votes"], votes)
            run.finish({}, FACTS)

    if not recorded:
        monkeypatch.setattr(checkpoint, "save_release", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        go(resume=False)
    monkeypatch.undo()
    go(resume=True)
    assert len(released) == 2
    assert (released[0] == released[1]).all()
    assert Ledger.read(tmp_path / "run" / "ledger.jsonl").releases == 1


def test_a_finished_run_reports_the_same_again(tmp_path):
    calls: list[str] = []
    first = both(tmp_path / "run", calls)
    before = files(tmp_path / "run")
    assert both(tmp_path / "run", calls, resume=True) == first
    assert files(tmp_path / "run") == before
    assert calls == ["histogram", "votes"]


@pytest.mark.parametrize("folder", [True, False])
def test_a_release_beyond_the_budget_is_refused_before_it_happens(tmp_path, folder):
    out, calls = (tmp_path / "run" if folder else None), []
    enough = acc.guarantee(COST["histogram"]).epsilon(1e-4)
    with pytest.raises(BudgetExceeded, match="does not allow this step"):
        both(out, calls, seed=1, budget=Budget(epsilon=enough * 1.01, delta=1e-4))
    assert calls == ["histogram"]
    if out is not None:
        assert Ledger.read(out / "ledger.jsonl").event() == COST["histogram"]


def test_a_resumed_run_is_held_to_its_budget(tmp_path):
    calls: list[str] = []
    budget = Budget(epsilon=acc.guarantee(COST["histogram"]).epsilon(1e-4) * 1.01, delta=1e-4)
    with pytest.raises(Killed):
        both(tmp_path / "run", calls, dies_after="histogram", seed=1, budget=budget)
    with pytest.raises(BudgetExceeded):
        both(tmp_path / "run", calls, seed=1, resume=True)
    assert calls == ["histogram"]


def test_a_run_without_a_folder_costs_and_releases_the_same(tmp_path):
    kept = both(tmp_path / "run", [], seed=1)
    in_memory = both(None, [], seed=1)
    assert in_memory.disclosure["verification"].startswith("Nothing: the run was kept in memory, without a ledger")
    told = {**kept.disclosure, "verification": in_memory.disclosure["verification"]}
    assert in_memory == replace(kept, ledger=None, disclosure=told)
    with Run.open(None, plan=PLAN, seed=1) as run:
        run.start("of this data")
        released = run.release("histogram", COST["histogram"], draw("histogram", []), bins=4)
        run.note({"seen": 1})
        assert (run.history, run.spent()) == ([{"seen": 1}], COST["histogram"])
    assert torch.equal(load_file(tmp_path / "run" / "model.safetensors")["histogram"], released["histogram"])


def test_a_run_without_a_folder_cannot_be_resumed():
    with pytest.raises(InputError, match="resume needs the folder"), Run.open(None, plan=PLAN, resume=True):
        pass


def test_nothing_is_written_before_the_start(tmp_path):
    with Run.open(tmp_path / "run", plan=PLAN, seed=1):
        pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", ["plan", "fingerprint"])
def test_a_run_goes_on_only_as_itself(tmp_path, change):
    both(tmp_path / "run", [], seed=1)
    plan = {**PLAN, "bins": 5} if change == "plan" else PLAN
    told = r"\(bins 4 → 5\)" if change == "plan" else "the settings are the same: it is the records"
    with (
        Run.open(tmp_path / "run", plan=plan, seed=1, resume=True) as run,
        pytest.raises(InputError, match=told),
    ):
        run.saved("of other data")


def test_a_run_that_released_without_noise_claims_nothing(tmp_path):
    with Run.open(None, plan=PLAN, seed=1) as run:
        run.start("of this data")
        run.release("histogram", COST["histogram"], draw("histogram", []))
        run.release("means", acc.NonPrivate(), draw("means", []))
        statement = run.finish({}, FACTS)
    assert statement.epsilon == math.inf
    assert statement.assumptions == ("No noise was added: there is no differential privacy guarantee.",)


def test_other_conventions_stand_next_to_the_statement_with_their_own_numbers():
    import dataclasses

    facts = dataclasses.replace(
        FACTS,
        alternatives=(
            Alternative(name="by Rényi accounting", unit="example", method="rdp"),
            Alternative(name="one contributor", unit="virtual_client", event=acc.Gaussian(6.0)),
        ),
    )
    with Run.open(None, plan=PLAN, seed=1) as run:
        run.start("of this data")
        run.release("votes", COST["votes"], draw("votes", []))
        statement = run.finish({}, facts)
    rows = {row["unit"]: row for row in statement.alternatives}
    assert rows["example"]["epsilon"] == pytest.approx(acc.guarantee(COST["votes"], method="rdp").epsilon(1e-4))
    assert rows["virtual_client"]["epsilon"] == pytest.approx(acc.guarantee(acc.Gaussian(6.0)).epsilon(1e-4))


def test_nothing_is_released_after_the_statement_that_would_have_to_cover_it(tmp_path):
    calls: list[str] = []
    with Run.open(tmp_path / "run", plan=PLAN) as run:
        run.start("of this data")
        run.release("histogram", COST["histogram"], draw("histogram", calls))
        statement = run.finish({}, FACTS)
        with pytest.raises(RuntimeError, match="the run has finished"):
            run.release("votes", COST["votes"], draw("votes", calls))
        with pytest.raises(RuntimeError, match="the run has finished"):
            run.spend(COST["votes"])
    assert calls == ["histogram"]
    ledger = Ledger.read(tmp_path / "run" / "ledger.jsonl").event()
    assert statement.epsilon >= acc.guarantee(ledger).epsilon(FACTS.delta) * (1 - 1e-9)


def test_phases_that_name_their_streams_similar_meet_different_noise():
    def sums(source) -> dict[str, torch.Tensor]:
        return {"n": Gaussian(noise_multiplier=1.0).release(torch.zeros(4), scale=1.0, round=0, source=source)}

    with Run.open(None, plan=PLAN) as run:
        run.start("of this data")
        found = [run.release(phase, acc.Gaussian(1.0), sums)["n"] for phase in ("one", "two")]
        found.append(sums(run.source)["n"])  # a loop's
    assert all(not torch.isclose(a, b).any() for a, b in itertools.combinations(found, 2))


def test_what_was_drawn_before_the_run_died_is_not_drawn_of_something_else(tmp_path, monkeypatch):
    """Two results with one noise differ by the records, and the first of them may have been seen."""

    def go(count: float, *, resume: bool) -> None:
        with Run.open(tmp_path / "run", plan=PLAN, resume=resume) as run:
            if resume:
                run.saved("of this data")
            run.start("of this data")
            run.release(
                "votes", COST["votes"], lambda source: {"v": torch.from_numpy(source.stream().normal(4)) + count}
            )
            run.finish({}, FACTS)

    def save(folder: Path, state: checkpoint.Checkpoint) -> None:
        if state.phases:
            raise Killed
        whole(folder, state)

    whole = checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        with pytest.raises(Killed):
            go(1.0, resume=False)
    with pytest.raises(InputError, match="votes was drawn before this run died and differs now"):
        go(2.0, resume=True)
    go(1.0, resume=True)


def test_another_convention_that_knows_only_a_part_of_the_releases_is_left_out():
    loop_only = Alternative(name="one contributor", unit="virtual_client", event=COST["votes"])
    with Run.open(None, plan=PLAN, seed=1) as run:
        run.start("of this data")
        for phase in COST:
            run.release(phase, COST[phase], draw(phase, []))
        statement = run.finish({}, replace(FACTS, alternatives=(loop_only,)))
    assert statement.epsilon > acc.guarantee(COST["votes"]).epsilon(FACTS.delta)
    assert statement.alternatives == ()


@pytest.mark.parametrize("unit", ["label", "identity", "agent"])
def test_a_statement_on_labels_or_identities_does_not_speak_of_users(unit):
    with Run.open(None, plan=PLAN, seed=1) as run:
        run.start("of this data")
        run.release("votes", COST["votes"], draw("votes", []))
        statement = run.finish({}, replace(FACTS, unit=unit))
    assert not any("user" in line for line in statement.assumptions)
    assert "user" not in statement.disclosure["several_units"]
    assert unit in statement.disclosure["several_units"]


def test_seeded_releases_are_not_called_random_by_who_goes_on_without_the_seed(tmp_path):
    both(tmp_path / "run", [], seed=1)
    with pytest.raises(InputError, match="the releases in the ledger were seeded"):
        both(tmp_path / "run", [], resume=True)
    assert both(tmp_path / "run", [], seed=1, resume=True).seeded


# A statement and its ledger name each other: neither can be cut, exchanged or changed alone without being found.


def cut(run: Path) -> None:
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:2]))


def cut_the_seal(run: Path) -> None:
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))


def another_ledger(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    with Ledger.open(run / "ledger.jsonl") as ledger:
        for index in range(ROUNDS):
            ledger.append(EVENT, round=index + 1)


def another_run_s_ledger(run: Path) -> None:
    work(run.parent / "other")
    shutil.copy(run.parent / "other" / "ledger.jsonl", run / "ledger.jsonl")


def another_run_s_statement(run: Path) -> None:
    work(run.parent / "other")
    shutil.copy(run.parent / "other" / "statement.json", run / "statement.json")


def change(name: str, value: object):
    def changed(run: Path) -> None:
        stated = json.loads((run / "statement.json").read_text())
        stated[name] = value
        (run / "statement.json").write_text(json.dumps(stated))

    changed.__name__ = f"change_{name}"
    return changed


def change_the_plan(run: Path) -> None:
    (run / "plan.json").write_text((run / "plan.json").read_text().replace('"rounds": 4', '"rounds": 3'))


def change_the_model(run: Path) -> None:
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (run / "model.safetensors").write_bytes(content)


TAMPERINGS = [
    (cut, "lines were cut off"),
    (cut_the_seal, "entry 5 should name the statement"),
    (another_ledger, "entry 5 should name the statement"),
    (another_run_s_ledger, "the ledger is another one"),
    (another_run_s_statement, "the ledger is another one"),
    (change("unit", "virtual_client"), "the statement is another one"),
    (change("population", 10), "the statement is another one"),
    (change("epsilon", 99.0), "the statement is another one"),
    (change("ledger", None), "this one names no ledger"),
    (change_the_plan, "plan.json is not the file that its statement was made for"),
    (change_the_model, "model.safetensors is not the file that its statement was made for"),
]


@pytest.mark.parametrize(("tamper", "words"), TAMPERINGS, ids=lambda x: getattr(x, "__name__", ""))
def test_whatever_is_exchanged_is_found_by_anyone_who_reads_the_folder(finished, told, tmp_path, tamper, words):
    assert told("ledger", "verify", finished)[0] == 0
    tamper(finished)
    for command in (("ledger", "verify", finished), ("report", finished), ("compare", finished, finished)):
        code, said = told(*command)
        assert code == 2, command
        assert said.count("\n") == 1
        assert words in said


def test_a_whole_folder_is_borne_out_and_a_released_bundle_too(finished, told):
    assert "its statement is the one that was made of it" in told("ledger", "verify", finished)[1]
    for private in ("checkpoint", "metrics.jsonl", "model.safetensors"):
        path = finished / private
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "its statement is the one that was made of it" in told("ledger", "verify", finished)[1]
    write_report([finished])


def test_answers_of_the_author_are_added_without_breaking_the_bond_and_verify_says_so(finished, told):
    path = finished / "statement.json"
    Statement.load(path).answer(public_data="None.").save(path)
    assert (
        "the answers under disclosure in statement.json can be added to later" in told("ledger", "verify", finished)[1]
    )
    assert "not under the statement's digest" in Statement.load(path).disclosure["verification"]
    assert binding.compare(Ledger.read(finished / "ledger.jsonl"), Statement.load(path), finished)


def test_what_is_recorded_after_the_statement_does_not_count_as_tampering(finished):
    with Ledger.open(finished / "ledger.jsonl") as ledger:
        ledger.append(EVENT, phase="later")
    stated = Statement.load(finished / "statement.json")
    totals = Ledger.read(finished / "ledger.jsonl")
    assert binding.compare(totals, stated, finished)
    assert stated.verdict(totals.event()).contradicted


def test_a_statement_by_hand_is_said_to_name_no_ledger(finished, told):
    change("ledger", None)(finished)
    another_ledger(finished)
    code, said = told("ledger", "verify", finished)
    assert (code, "would not show" in said) == (0, True)


def test_a_run_that_goes_on_withdraws_the_statement_that_would_be_untrue(stopped):
    def gone(index, run):
        assert not (stopped / "statement.json").exists()

    assert (stopped / "statement.json").exists()
    work(stopped, resume=True, each=gone)
    assert binding.compare(Ledger.read(stopped / "ledger.jsonl"), Statement.load(stopped / "statement.json"), stopped)


@pytest.mark.parametrize("name", ["ledger.jsonl"])
def test_a_ledger_of_another_run_is_refused_and_left_alone_when_a_run_goes_on(stopped, tmp_path, name):
    work(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, stopped / name)
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(acc.InputError, match=r"another key|another run's"):
        work(stopped, resume=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_ledger_that_is_gone_is_not_made_anew_when_a_run_goes_on(stopped):
    RunFolder(stopped).ledger.unlink()
    with pytest.raises(acc.InputError, match=r"ledger\.jsonl is missing"):
        work(stopped, resume=True)
    assert not RunFolder(stopped).ledger.exists()


# What somebody does to the files of a run while it goes on: it stops with one line, and nothing is lost.


def replace_file(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    os.replace(path.with_suffix(".copy"), path)


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def delete(path: Path) -> None:
    path.unlink()


def rewrite(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"round":1', b'"round":7'))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize(
    ("disturb", "words"),
    [
        (replace_file, "was replaced by another file"),
        (delete, "was deleted"),
        (shorten, "was changed"),
        (rewrite, "was changed"),
    ],
)
def test_a_ledger_that_somebody_touches_stops_the_run_before_the_next_release(tmp_path, disturb, words):
    out = tmp_path / "run"
    whole: list[bytes] = []

    def each(index, run):
        if index == 3:
            whole.append((out / "ledger.jsonl").read_bytes())
            disturb(out / "ledger.jsonl")

    with pytest.raises(InputError, match=words) as caught:
        work(out, each=each)
    assert "\n" not in str(caught.value)
    if disturb in (replace_file, delete):  # what only the open file held is kept
        assert (out / "ledger.jsonl.kept").read_bytes() == whole[0]
        os.replace(out / "ledger.jsonl.kept", out / "ledger.jsonl")
        work(out, resume=True)
        assert Ledger.read(out / "ledger.jsonl").releases == 4


def test_a_folder_that_is_deleted_is_reported_as_that(tmp_path):
    for index in range(4):
        out = tmp_path / f"run{index}"
        with pytest.raises(InputError, match="was deleted while the run went on") as caught:
            work(out, each=lambda at, run, index=index, out=out: shutil.rmtree(out) if at == index else None)
        assert "\n" not in str(caught.value)
        assert not out.exists()


# Two copies of a stopped run may go on in different ways; no noise meets two sums.

TWO_PHASES = Facts(
    unit="example", adjacency="add_remove", population=100, delta=1e-4, sampling="everyone", mechanism="counts"
)
COUNTS = {"ages": 41.0, "incomes": 7.0, "votes": 13.0}
COSTS = acc.Gaussian(noise_multiplier=3.0)


def noisy(count: float):
    return lambda source: {"n": count + 3.0 * torch.from_numpy(source.stream("noise").normal(4))}


def go_on(folder: Path | None, phases: list[str], *, resume: bool = True, seed: int | None = None, **public):
    """Noisy counts, in this order; what is counted depends on what was released before, as a program may choose."""
    found, shift = {}, 0.0
    with Run.open(folder, plan={"plan": "counts"}, resume=resume, seed=seed) as run:
        if resume:
            run.saved("of this data")
        run.start("of this data")
        for phase in phases:
            found[phase] = run.release(phase, COSTS, noisy(COUNTS[phase] + shift), **public)["n"]
            shift += 1.0
        if resume:
            run.finish({}, TWO_PHASES)
    return found


def stopped(folder: Path, **options) -> tuple[Path, Path]:
    """Two copies of a run that stopped before its first release."""
    go_on(folder / "one", [], resume=False, **options)
    shutil.copytree(folder / "one", folder / "two")
    return folder / "one", folder / "two"


def is_exact(difference: torch.Tensor) -> bool:
    """Whether the difference of two releases is one number: that of two counts, without noise."""
    return bool((difference - difference[0]).abs().max() < 1e-9)


def test_a_copy_that_has_released_something_else_before_draws_other_noise(tmp_path):
    one, two = stopped(tmp_path)
    first, then = go_on(one, ["votes"]), go_on(two, ["ages", "votes"])
    assert not is_exact(first["votes"] - then["votes"])


@pytest.mark.parametrize("seed", [1, None])
def test_a_copy_that_releases_in_another_order_draws_other_noise(tmp_path, seed):
    one, two = stopped(tmp_path, seed=seed)
    first, then = go_on(one, ["ages", "votes"], seed=seed), go_on(two, ["votes", "ages"], seed=seed)
    assert not is_exact(first["votes"] - then["votes"])
    assert not is_exact(first["ages"] - then["ages"])


def test_a_copy_that_says_something_else_of_the_same_phase_draws_other_noise(tmp_path):
    one, two = stopped(tmp_path)
    first, then = go_on(one, ["votes"], of="the young"), go_on(two, ["votes"], of="the old")
    assert not is_exact(first["votes"] - then["votes"])


@pytest.mark.parametrize("seed", [1, None])
def test_a_copy_that_goes_on_similar_draws_the_same_noise(tmp_path, seed):
    """Else the mean of many copies would have none."""
    one, two = stopped(tmp_path, seed=seed)
    first, then = (go_on(folder, list(COUNTS), seed=seed) for folder in (one, two))
    assert all(torch.equal(first[phase], then[phase]) for phase in COUNTS)
    assert (one / "ledger.jsonl").read_bytes() == (two / "ledger.jsonl").read_bytes()


def test_a_run_in_memory_draws_what_one_in_a_folder_draws(tmp_path):
    kept = go_on(tmp_path / "run", list(COUNTS), resume=False, seed=1)
    in_memory = go_on(None, list(COUNTS), resume=False, seed=1)
    assert all(torch.equal(kept[phase], in_memory[phase]) for phase in COUNTS)


def test_merged_ledgers_of_copies_count_each_draw_of_noise_once(tmp_path):
    """The promise that merging rests on: after the same entries the same release, after others another."""
    one, two = stopped(tmp_path)
    first, then = go_on(one, ["ages", "votes"]), go_on(two, ["ages", "incomes", "votes"])
    assert torch.equal(first["ages"], then["ages"])
    merged = tmp_path / "merged.jsonl"
    Ledger.merge([one / "ledger.jsonl", two / "ledger.jsonl"], merged)
    releases = [*first.values(), *then.values()]
    draws = {tuple((release - release[0]).round(decimals=6).tolist()) for release in releases}
    assert Ledger.read(merged).releases == len(draws) == 4


def test_what_is_made_in_one_process_refuses_several_before_it_writes(tmp_path, monkeypatch):
    with Run.open(tmp_path / "run", plan=PLAN) as run:
        monkeypatch.setattr(run.team, "size", 2)
        with pytest.raises(InputError, match="votes are made in one process, got 2"):
            run.begin("of this data", "add_remove", resume=False, what="votes")
    assert not (tmp_path / "run" / "plan.json").exists()


def test_a_budget_that_does_not_allow_what_a_new_run_releases_is_refused_before_it_writes(tmp_path):
    budget = Budget(epsilon=1e-3, delta=1e-5, adjacency="add_remove")
    refused = pytest.raises(BudgetExceeded, match="the budget has to allow votes")
    with Run.open(tmp_path / "run", plan=PLAN, budget=budget) as run, refused:
        run.begin("of this data", "add_remove", resume=False, what="votes", costs=[COST["votes"]])
    assert not (tmp_path / "run" / "plan.json").exists()
