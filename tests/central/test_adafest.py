"""DP-AdaFEST: noisy counts of rows select what a step changes."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

from central.test_deferred import EXAMPLES, ROWS, Dies, clicks, plan, records
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central import DPSGD
from sfumato.clipping import Adaptive, ClippedSum, Flat, RowCounts, RowSum
from sfumato.clipping.clipped_sum import Layout
from sfumato.mechanisms import Gaussian, Tree
from sfumato.training import RunOptions
from sfumato.training.row_tables import CountedTables, above
from sfumato.training.server import Optimizer, Server
from sfumato.training.table_training import SelectedTables

SOURCE = RandomSource.from_seed(5)


def adafest(**fields) -> DPSGD:
    return plan(**{"tables": SelectedTables(), "server": 0.5, **fields})


def test_without_noise_it_is_the_dense_run() -> None:
    one, other = (
        plan(noise=0.0, server=0.5, tables=each).fit(clicks(), records()).model for each in ("dense", "adafest")
    )
    for name, value in one.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_counts_of_an_example_have_norm_one_and_each_row_once() -> None:
    counts = RowCounts(1.0, ["a", "b"])
    counts.add({"a": torch.tensor([[3, 3, 1], [2, 2, 2]]), "b": torch.tensor([[0], [5]])})
    rows, found = counts.sums["a"].gathered()
    assert rows.tolist() == [1, 2, 3]
    expected = torch.tensor([[3**-0.5], [2**-0.5], [3**-0.5]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
    assert (found <= expected).all()  # rounded towards zero
    rng = np.random.default_rng(0)
    for norm in (0.5, 1.0, 3.0):
        alone = RowCounts(norm, ["a", "b", "c"])
        alone.add({name: torch.tensor(rng.integers(0, 9, (1, 4))) for name in "abc"})
        total = sum(float((each.gathered()[1] ** 2).sum()) for each in alone.sums.values())
        assert total <= norm**2


def test_an_example_moves_the_counts_of_a_step_by_its_own_only() -> None:
    contribution = adafest().contribution(clicks(), records(), "cpu", 0)
    from sfumato.sampling import Cohort
    from sfumato.training.contribution import RoundContext

    def counts(chosen: np.ndarray) -> dict[str, torch.Tensor]:
        context = RoundContext(
            contribution.trained.vector.clone(),
            Cohort.of_single_units(chosen),
            1,
            adafest().clipping,
            0.5,
            SOURCE,
        )
        share = contribution.clipped_sum(context)
        assert share.counts is not None
        found = {}
        for name, total in share.counts.sums.items():
            rows, values = total.gathered()
            found[name] = torch.zeros(ROWS, dtype=torch.float64).index_add_(0, rows, values[:, 0])
        return found

    every, without = counts(np.arange(EXAMPLES)), counts(np.arange(1, EXAMPLES))
    moved = math.sqrt(sum(float(((every[name] - without[name]) ** 2).sum()) for name in every))
    assert 0.99 < moved <= 1.0 + 1e-9
    first = records().inputs[1][0]
    for name, columns in (("tables.0.weight", [0]), ("tables.1.weight", [1, 2])):
        changed = set(torch.nonzero((every[name] - without[name]).abs() > 1e-9).flatten().tolist())
        assert changed == {int(first[column]) for column in columns}


def test_a_step_costs_what_one_gaussian_sum_costs() -> None:
    run = adafest(noise=1.3)
    sums = run.private_sum(EXAMPLES)
    single = acc.guarantee(sums.event(12), adjacency="add_remove").epsilon(delta=1e-5)
    plain = plan(noise=1.3, tables="dense").private_sum(EXAMPLES).event(12)
    assert single == pytest.approx(acc.guarantee(plain, adjacency="add_remove").epsilon(delta=1e-5), rel=1e-6)
    selected, summed = run.tables.multipliers(1.3)
    assert selected**-2 + summed**-2 == pytest.approx(1.3**-2)
    assert sums.sum_mechanism(0).multiplier == pytest.approx(summed)
    assert sums.selection_multiplier == pytest.approx(selected)


def test_the_ledger_has_both_noises_and_the_statement_says_so(tmp_path) -> None:
    found = adafest().fit(clicks(), records(), out=tmp_path / "run")
    entries = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    kept = next(entry for entry in entries if "selection_noise_std" in json.dumps(entry))
    assert "joint" in json.dumps(kept)
    assert "with noisy counts that select rows of tables" in " ".join(found.statement.text().split())
    dense = plan(tables="dense", server=0.5).fit(clicks(), records())
    assert found.statement.epsilon == pytest.approx(dense.statement.epsilon, rel=1e-6)


@pytest.mark.parametrize("share", [1e-4, 0.02, 0.4])
def test_places_are_chosen_independently_with_one_probability(share: float) -> None:
    size, runs = 20_000, 40
    found = [above(size, share, SOURCE.stream("test", run)) for run in range(runs)]
    assert all((np.diff(each) > 0).all() and each.min(initial=0) >= 0 and each.max(initial=0) < size for each in found)
    total = sum(map(len, found))
    assert stats.binomtest(total, size * runs, share).pvalue > 1e-4
    places = np.concatenate(found)
    assert stats.kstest(places / size, "uniform").pvalue > 1e-4
    gaps = np.concatenate([np.diff(each) for each in found])
    if len(gaps) > 1000:
        assert (gaps == 1).mean() == pytest.approx(share, abs=5 * math.sqrt(share / len(gaps)))


@pytest.mark.parametrize("expected", [1e-30, 1e-12, 1.0, 400.0])
def test_the_threshold_leaves_the_expected_false_survivors_however_few(expected: float) -> None:
    threshold = SelectedTables(false_survivors=expected, count_norm=3.0).threshold(2.0, rows=1000)
    assert 1000 * stats.norm.sf(threshold / 6.0) == pytest.approx(expected)


def test_rows_survive_by_their_count_and_others_by_noise_alone() -> None:
    tables = CountedTables({"words": torch.nn.Embedding(50_000, 1)}, SelectedTables(false_survivors=30.0))
    read, std, threshold = (
        np.arange(0, 40_000, 20),
        2.0,
        SelectedTables(false_survivors=30.0).threshold(2.0, rows=50_000),
    )
    totals, alone = [], []
    for round in range(20):
        tables.source = SOURCE
        counted = RowSum(1)
        counted.index_add_(0, torch.from_numpy(read), torch.full((len(read), 1), 6.0, dtype=torch.float64))
        found = tables._survivors("words", 50_000, counted, round, std, threshold)
        totals.append(np.isin(found, read).sum())
        alone.append((~np.isin(found, read)).sum())
        assert (np.diff(found) > 0).all()
    chance = float(stats.norm.sf((threshold - 6.0) / std))
    assert stats.binomtest(int(sum(totals)), 20 * len(read), chance).pvalue > 1e-4
    others = 50_000 - len(read)
    assert stats.binomtest(int(sum(alone)), 20 * others, 30 / 50_000).pvalue > 1e-4


def test_a_step_changes_few_rows_and_these_by_sum_and_noise() -> None:
    model = clicks()
    found = adafest(steps=1, noise=0.5, tables=SelectedTables(false_survivors=20.0)).fit(model, records()).model
    changed, std = [], 0.5 * SelectedTables().multipliers(0.5)[1] * 0.5 / 32
    for name in ("tables.0.weight", "tables.1.weight"):
        moved = (found.state_dict()[name] - model.state_dict()[name]).detach().numpy()
        rows = np.flatnonzero(np.abs(moved).sum(axis=1))
        assert (moved[rows] != 0).all()
        changed.append(moved[rows])
    rows = np.concatenate(changed)
    assert 10 < len(rows) < 100  # of 6,000, about 20 by noise alone and some common ones
    assert rows.std() == pytest.approx(std, rel=0.5)


def test_killed_and_resumed_it_is_byte_identical(tmp_path) -> None:
    for name in ("whole", "killed"):
        options = RunOptions(checkpoint_every=3, callbacks=[Dies()] if name == "killed" else [])
        try:
            adafest().fit(clicks(), records(), out=tmp_path / name, options=options)
        except RuntimeError:
            adafest().fit(clicks(), records(), out=tmp_path / name, resume=True)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == other


def test_selected_rows_take_the_steps_of_sparse_adam() -> None:
    table = torch.nn.Embedding(40, 3)
    tables = CountedTables({"words": table}, SelectedTables())
    weight = torch.nn.Parameter(table.weight.detach().clone())
    server = Server(Optimizer("adam", learning_rate=0.1, momentum=0.9), [torch.zeros(2)])
    tables.start(server.row_steps(), Gaussian(noise_multiplier=0.0))
    peer = torch.optim.SparseAdam([weight], 0.1, betas=(0.9, 0.999))
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        rows = torch.randperm(40, generator=generator)[:7].sort().values
        gradient = torch.randn(7, 3, generator=generator)
        share = ClippedSum(Flat(norm=1.0), 1.0, Layout((), ()), tables=tables.sums())
        share.counts = tables.counts()
        assert share.counts is not None
        share.tables["words.weight"].index_add_(0, rows, 8.0 * gradient.double())
        share.counts.sums["words.weight"].index_add_(0, rows, torch.ones(7, 1, dtype=torch.float64))
        assert tables.step(share, round=step, denominator=8.0, noise_std=0.0, selection=0.0)
        weight.grad = torch.sparse_coo_tensor(rows[None], gradient, weight.shape, check_invariants=True)
        peer.step()
    torch.testing.assert_close(tables.first()["words"], weight.detach(), rtol=1e-5, atol=1e-6)


def test_adam_of_selected_rows_goes_on_after_a_stop(tmp_path) -> None:
    server = Optimizer("adam", learning_rate=0.01, momentum=0.9)
    for name in ("whole", "killed"):
        options = RunOptions(checkpoint_every=3, callbacks=[Dies()] if name == "killed" else [])
        try:
            adafest(server=server).fit(clicks(), records(), out=tmp_path / name, options=options)
        except RuntimeError:
            adafest(server=server).fit(clicks(), records(), out=tmp_path / name, resume=True)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed"))
    assert one == other


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"server": Optimizer(momentum=0.9)}, "needs SGD without momentum, weight_decay and ema_decay"),
        ({"server": "adagrad"}, "need plain SGD, or Adam with tables=adafest, got Adagrad; use"),
        ({"server": "yogi"}, "got Yogi; use server=sgd, or tables=dense"),
        ({"server": Optimizer("adam", ema_decay=0.9)}, "or Adam without the last two"),
        ({"clipping": Adaptive()}, "with a fixed clip norm"),
        ({"cohort": "shuffled"}, "cohort=poisson"),
        ({"noise": Tree(noise_multiplier=1.0), "cohort": "shuffled"}, "independent noise in each round"),
        ({"tables": SelectedTables(false_survivors=3000.0)}, "below half of the 6,000 rows, got 3000"),
        ({"tables.count_norm": 0.0}, "count_norm must be > 0"),
        ({"tables.count_noise": math.nan}, "count_noise must be"),
    ],
)
def test_what_cannot_select_rows_is_refused(fields: dict, words: str) -> None:
    with pytest.raises(InputError) as refused:
        adafest(**fields).fit(clicks(), records())
    assert words in str(refused.value)
