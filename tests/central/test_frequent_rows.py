"""DP-FEST: which rows of tables are kept is chosen from noisy counts, whose cost is in the ledger and the statement."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato import accounting as acc
from sfumato import data, models
from sfumato._check import InputError
from sfumato.central import DPSGD, FrequentRows
from sfumato.data import ExampleDataset
from sfumato.runs import Run
from sfumato.training import Callback, RunOptions

SIZES = (300, 40, 0, 0)
"""One id, and up to three, of which 0 is none."""


def records(examples: int = 120, *, users: int | None = None) -> ExampleDataset:
    rng = np.random.default_rng(0)
    several = rng.integers(0, 40, (examples, 3)) * rng.integers(0, 2, (examples, 3))
    ids = np.column_stack([rng.zipf(1.4, examples) % 300, several])
    return data.examples_from_arrays(
        (rng.normal(size=(examples, 2)).astype(np.float32), ids),
        rng.integers(0, 2, examples),
        num_classes=2,
        vocabulary_sizes=SIZES,
        users=None if users is None else np.arange(examples) * users // examples,
    )


@pytest.mark.parametrize("users", [None, 15], ids=["examples", "users"])
@pytest.mark.parametrize("norm", [0.5, 1.0, 3.0])
def test_a_unit_that_leaves_moves_the_counts_by_its_own_rows_and_the_norm_at_most(users, norm) -> None:
    everyone = records(users=users)
    rule = FrequentRows(rows=5, noise_multiplier=1.0, count_norm=norm, unit="example" if users is None else "user")
    owners = np.arange(len(everyone)) if users is None else everyone.owners
    ids = everyone.inputs[1][:]
    for unit in range(12):
        without = everyone.subset(np.flatnonzero(owners != unit))
        moved = [one - other for one, other in zip(rule.counts(everyone), rule.counts(without), strict=True)]
        mine = ids[owners == unit]
        expected = [set(mine[:, 0].tolist()), set(mine[:, 1:].ravel().tolist()) - {0}]
        assert [set(np.flatnonzero(np.abs(each) > 1e-9).tolist()) for each in moved] == expected
        found = np.sqrt(sum(float((each**2).sum()) for each in moved))
        rows = sum(map(len, expected))
        assert found <= norm + 1e-9
        assert found == pytest.approx(min(norm, rows**0.5), rel=1e-3)


def released(rule: FrequentRows, held: ExampleDataset, seed: int) -> list[np.ndarray]:
    with Run.open(None, plan={"plan": "test"}, seed=seed) as run:
        run.start("test")
        found = rule.initial_release(held).release(run, held, "add_remove")
        assert run.spent() == acc.Gaussian(rule.noise_multiplier)
    return found


@pytest.mark.parametrize("norm", [0.5, 1.0])
def test_the_highest_noisy_counts_win_with_the_chance_that_the_noise_gives_them(norm: float) -> None:
    """False alarms: 1 in 1,000 seeds."""
    held = data.examples_from_arrays(
        np.array([[0]] * 6 + [[1]] * 4), np.arange(10) % 2, num_classes=2, vocabulary_sizes=(2,)
    )
    rule = FrequentRows(rows=1, noise_multiplier=2.0, count_norm=norm)
    wins = sum(released(rule, held, seed)[0].tolist() == [0] for seed in range(200))
    chance = stats.norm.cdf(2 * norm / (2.0 * norm * 2**0.5))  # the difference of two counts, and of their noise
    assert stats.binomtest(wins, 200, chance).pvalue > 1e-3


def test_kept_rows_have_numbers_of_their_own_and_all_others_one() -> None:
    held = records()
    rule = FrequentRows(rows=3, noise_multiplier=1.0).initial_release(held)
    kept = rule.prepare([np.array([1, 7]), np.array([12])], held)
    assert kept.vocabulary_sizes == (3, 2, 0, 0)
    before, after = held.inputs[1][:], kept.examples(range(len(held)))[0][1]
    assert (after[:, 0] == np.select([before[:, 0] == 1, before[:, 0] == 7], [1, 2], 0)).all()
    assert (after[:, 1:] == (before[:, 1:] == 12)).all()
    assert (kept.subset([5, 2]).examples([0, 1])[0][1] == after[[5, 2]]).all()


def test_whole_numbers_next_to_the_ids_are_not_taken_for_ids() -> None:
    inputs = np.array([[5, 6], [5, 6], [5, 6]]), np.array([[1, 2], [1, 2], [1, 3]])
    held = data.examples_from_arrays(inputs, [0, 1, 0], num_classes=2, vocabulary_sizes=(9, 9))
    rule = FrequentRows(rows=2, noise_multiplier=1.0, count_norm=2.0).initial_release(held)
    assert [np.flatnonzero(each).tolist() for each in rule.counts(held)] == [[1], [2, 3]]
    (numbers, ids), _ = rule.prepare([np.array([1]), np.array([2])], held).examples([0, 2])
    assert (numbers.tolist(), ids.tolist()) == ([[5, 6], [5, 6]], [[1, 1], [1, 0]])


class Dies(Callback):
    """Ends the work after the second step."""

    def on_round(self, row: dict) -> None:
        """Fail."""
        if row["round"] == 2:
            raise RuntimeError("killed")


def network(public: ExampleDataset) -> nn.Module:
    assert len(public) == 0
    sizes = public.vocabulary_sizes
    with_seed = {"generator": torch.Generator().manual_seed(0)}
    return models.classifier("ctr", 2, public.input_shapes, vocabulary_sizes=sizes, hidden=(4,), **with_seed)


def test_the_choice_is_recorded_before_it_is_drawn_paid_for_with_the_steps_and_not_repeated(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, counted, usual = records(), [], FrequentRows.counts
    rule = FrequentRows(rows=20, noise_multiplier=4.0).initial_release(held)
    plan = DPSGD(steps=3, cohort=30, noise=1.0, clipping=1.0, server=0.1, seed=1, tables="deferred")

    def counts(rule: FrequentRows, of: ExampleDataset) -> list[np.ndarray]:
        counted.append([json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()])
        return usual(rule, of)

    monkeypatch.setattr(FrequentRows, "counts", counts)
    folder = tmp_path / "whole"
    whole = plan.fit(network, held, out=folder, options=RunOptions(initial_release=rule))
    (before,) = counted
    assert [(entry["phase"], entry["event"]) for entry in before if "event" in entry] == [
        ("frequent rows", acc.Gaussian(4.0).to_json())
    ]
    event = acc.Gaussian(4.0) + acc.Gaussian(1.0).poisson(30 / 120) * 3
    assert whole.statement.epsilon == pytest.approx(acc.guarantee(event).epsilon(whole.statement.delta), rel=1e-9)
    assert "counts of the rows that each example reads" in whole.statement.mechanism
    kept = json.loads((folder / "frequent_rows.json").read_text())
    assert sum(map(len, kept)) == 20
    tables = [weight for name, weight in whole.model.state_dict().items() if name.startswith("tables")]
    assert [len(table) for table in tables] == [1 + len(each) for each in kept]
    folder = tmp_path / "killed"
    options = RunOptions(initial_release=rule, checkpoint_every=1)
    with pytest.raises(RuntimeError, match="killed"):
        plan.fit(network, held, out=folder, options=replace(options, callbacks=[Dies()]))
    plan.fit(network, held, out=folder, resume=True, options=options)
    assert len(counted) == 2
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FrequentRows(rows=340, noise_multiplier=1.0).initial_release(records()), "below the 340 rows"),
        (lambda: FrequentRows(rows=0, noise_multiplier=1.0), "rows must be"),
        (lambda: FrequentRows(rows=1, noise_multiplier=0.0), "noise_multiplier must be > 0"),
        (lambda: FrequentRows(rows=1, noise_multiplier=1.0, unit="user").initial_release(records()), "have no users"),
        (
            lambda: FrequentRows(rows=1, noise_multiplier=1.0).initial_release(
                data.examples_from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], num_classes=2)
            ),
            "declare the columns as categories",
        ),
        (
            lambda: DPSGD(steps=1, cohort=10, noise=1.0, seed=1, **{"examples.per_user": 2}).fit(
                network,
                records(users=20),
                options=RunOptions(
                    initial_release=FrequentRows(rows=9, noise_multiplier=1.0).initial_release(records(users=20))
                ),
            ),
            r"\(frequent rows\) has the unit example, and the plan user",
        ),
    ],
)
def test_what_is_of_no_use_is_refused(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_a_choice_that_is_hardly_better_than_chance_is_warned_of() -> None:
    rule = FrequentRows(rows=5, noise_multiplier=100.0).initial_release(records())
    assert "noise alone lifts 5 rows above a count of" in rule.warning(100)
    assert not rule.warning(100_000)
    assert acc.guarantee(rule.event("replace"), adjacency="replace").epsilon(1e-5) == pytest.approx(
        acc.guarantee(acc.Gaussian(50.0)).epsilon(1e-5), rel=1e-6
    )
