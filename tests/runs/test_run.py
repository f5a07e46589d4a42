"""A run without a loop: releases in phases, one ledger, one key, one statement."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.runs import Run, checkpoint
from sfumato.statement import Alternative, Facts, Statement

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


def test_a_finished_run_tells_the_same_again(tmp_path):
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


def test_other_conventions_stand_beside_the_statement_with_their_own_numbers():
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


def test_phases_that_name_their_streams_alike_meet_different_noise():
    def sums(source) -> dict[str, torch.Tensor]:
        return {
            "n": IndependentGaussian(noise_multiplier=1.0).release(torch.zeros(4), scale=1.0, round=0, source=source)
        }

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
    with pytest.raises(InputError, match="votes was drawn before this run died, and is something else now"):
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
