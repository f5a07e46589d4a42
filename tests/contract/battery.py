"""What the battery does to a private sum and a contribution, whoever made them: an algorithm's plan or the toy."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from contract.specimen import UNITS
from sfumato._random import RandomSource
from sfumato.accounting import Event, compose, event_from_json
from sfumato.clipping import ClippedSum
from sfumato.runs import Run
from sfumato.sampling import Cohort
from sfumato.training import Cadence, Contribution, Loop, Optimizer, PrivateSum, RoundContext, Server

ROUND_OFF = UNITS * 2.0**-20
"""What single precision adds to a sum of `UNITS` contributions, relative to the bound of one."""

SOURCE = RandomSource.from_seed(1)


class Nobody:
    """A sampler whose coins all fell on the other side."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def draw(self, present: int, round: int, source: RandomSource) -> np.ndarray:
        return np.empty(0, np.int64)


def clipped_sum(contribution: Contribution, parts: PrivateSum, cohort: Cohort, *, seed: int = 1) -> ClippedSum:
    """Of a cohort in round 0, at the model that the run starts from."""
    theta, bound = contribution.trained.initial.clone(), parts.bound
    return contribution.clipped_sum(RoundContext(theta, cohort, 0, bound, bound.norm, RandomSource.from_seed(seed)))


def summed(contribution: Contribution, parts: PrivateSum, units: np.ndarray | None = None) -> ClippedSum:
    """Of these units, or of everybody."""
    chosen = np.arange(contribution.population) if units is None else units
    return clipped_sum(contribution, parts, parts.grouping.group(chosen, 0, SOURCE))


def alone(contribution: Contribution, parts: PrivateSum, units: np.ndarray) -> dict[int, torch.Tensor]:
    """What each contributor of a cohort of these units adds by itself, by its slot."""
    cohort = parts.grouping.group(units, 0, SOURCE)
    ones = [slice(i, i + 1) for i in range(len(cohort))]
    return {int(cohort.slots[one][0]): clipped_sum(contribution, parts, cohort.take(one)).total for one in ones}


def assert_moves_at_most(parts: PrivateSum, moved: float, one: ClippedSum, other: ClippedSum) -> None:
    """Two sums are no further apart than so many of the stated bounds."""
    scale = parts.scale(parts.bound.norm)
    assert scale > 0
    assert (one.total - other.total).norm().item() <= (moved + ROUND_OFF) * scale


def assert_leaves_no_trace(present: Contribution, absent: Contribution, parts: PrivateSum, unit: int) -> None:
    """A unit that is not drawn changes nothing, and one that is drawn adds its contributor's part and no more.

    Args:
        present, absent: on the same records, of which the second lack the unit or hold others for it.
        parts: the private sum.
        unit: the last one.
    """
    everybody, others = np.arange(unit + 1), np.arange(unit)
    assert torch.equal(summed(present, parts, others).total, summed(absent, parts, others).total)
    with_it, without = alone(present, parts, everybody), alone(absent, parts, others)
    cohort = parts.grouping.group(everybody, 0, SOURCE)
    its = next(int(cohort.slots[i]) for i in range(len(cohort)) if unit in cohort.members(i))
    assert len(with_it) > 1
    for slot, part in with_it.items():
        assert slot == its or torch.equal(part, without[slot])
    whole, rest = summed(present, parts, everybody).total, sum(part for slot, part in with_it.items() if slot != its)
    tolerance = ROUND_OFF * max(part.norm().item() for part in with_it.values())
    assert (whole - rest - with_it[its]).norm().item() <= tolerance


def assert_counts_as_zero(contribution: Contribution, parts: PrivateSum, unit: int) -> None:
    """The contribution of this unit, which is not finite, adds nothing and is counted."""
    everybody = np.arange(unit + 1)
    share, each = summed(contribution, parts, everybody), alone(contribution, parts, everybody)
    assert share.tally["non_finite"] == 1
    assert share.tally["units"] == len(each)
    zero = [slot for slot, part in each.items() if not part.any()]
    cohort = parts.grouping.group(everybody, 0, SOURCE)
    assert [unit in cohort.members(list(cohort.slots).index(slot)) for slot in zero] == [True]
    assert (share.total - sum(each.values())).norm().item() <= ROUND_OFF * parts.scale(parts.bound.norm)


@dataclass(frozen=True)
class Rounds:
    """What the loop left.

    Attributes:
        moved: float64 [size], the model before less the model after.
        entries: of the ledger.
        rows: of the metrics.
    """

    moved: np.ndarray
    entries: list[dict[str, Any]]
    rows: list[dict[str, Any]]


def run_rounds(contribution: Contribution, parts: PrivateSum, folder: Path, *, seed: int = 1) -> Rounds:
    """All rounds, by the loop, with plain steps of rate 1."""
    with Run.open(folder, plan={"plan": "battery"}, seed=seed) as run:
        theta = contribution.trained.initial.clone()
        server = Server(Optimizer(learning_rate=1.0), contribution.trained.views(theta))
        loop = Loop(private_sum=parts, contribution=contribution, server=server, theta=theta, run=run)
        run.start("battery")
        loop.rounds(Cadence())
        moved = (contribution.trained.initial.double() - theta.double()).numpy()
        return Rounds(moved, ledger_of(folder), run.history)


def assert_an_empty_cohort_steps(contribution: Contribution, parts: PrivateSum, folder: Path, std: float) -> None:
    """Pure noise is released, of the std in the ledger, which is the one that was worked out without the ledger.

    The test of the std is two-sided at a level of 1e-6, and so is that of the distribution; the seed is fixed.
    """
    empty = replace(parts, sampler=Nobody(parts.sampler), rounds=1)
    done = run_rounds(contribution, empty, folder)
    (entry,) = done.entries
    assert done.rows[0]["not_private"]["units"] == 0
    assert event_of(entry) == empty.entry(0)
    assert math.isclose(entry["noise_std"], std, rel_tol=1e-12)
    assert entry["sensitivity"] == parts.relative_sensitivity * parts.scale(parts.bound.norm)
    noise = done.moved * parts.grouping.clients
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], noise.size)
    assert low < (noise**2).sum() / std**2 < high
    assert stats.kstest(noise / std, "norm").pvalue > 1e-6


def ledger_of(folder: Path) -> list[dict[str, Any]]:
    """The entries of releases."""
    entries = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [entry for entry in entries if "event" in entry]


def event_of(entry: dict[str, Any]) -> Event:
    """What an entry records."""
    return event_from_json(entry["event"])


def composed(entries: list[dict[str, Any]]) -> Event:
    """What all entries record."""
    counts: dict[Event, int] = {}
    for entry in entries:
        counts[event_of(entry)] = counts.get(event_of(entry), 0) + 1
    return compose(counts)


PUBLISHED = ("plan.json", "statement.json", "ledger.jsonl", "model.safetensors")


def published(folder: Path) -> dict[str, bytes]:
    """The files of a run that may be published, as bytes."""
    return {name: (folder / name).read_bytes() for name in PUBLISHED}
