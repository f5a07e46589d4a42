"""Two copies of a stopped run may go on in different ways; no noise meets two sums."""

import shutil
from pathlib import Path

import pytest
import torch

from sfumato import accounting as acc
from sfumato.ledger import Ledger
from sfumato.runs import Run
from sfumato.statement import Facts

FACTS = Facts(
    unit="example", adjacency="add_remove", population=100, delta=1e-4, sampling="everyone", mechanism="counts"
)
COUNTS = {"ages": 41.0, "incomes": 7.0, "votes": 13.0}
COST = acc.Gaussian(noise_multiplier=3.0)


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
            found[phase] = run.release(phase, COST, noisy(COUNTS[phase] + shift), **public)["n"]
            shift += 1.0
        if resume:
            run.finish({}, FACTS)
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
def test_a_copy_that_goes_on_alike_draws_the_same_noise(tmp_path, seed):
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
