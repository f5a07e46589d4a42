"""Deferred noise: the law of dense noise, whatever is read when."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from sfumato._check import InputError
from sfumato._normals import Keystream, normals_of
from sfumato._random import RandomSource
from sfumato.mechanisms import Tree
from sfumato.mechanisms.deferred import History, RowState, cholesky
from sfumato.mechanisms.deferred_tree import TreeHistory
from sfumato.training.server import MovingAverage

SOURCE = RandomSource.from_seed(3)
OPTIMISERS = {
    "sgd": {},
    "weight decay": {"weight_decay": 0.3},
    "heavy ball": {"momentum": 0.8},
    "nesterov": {"momentum": 0.7, "nesterov": True, "weight_decay": 0.2},
    "averaged": {"averaged": True},
    "all": {"momentum": 0.6, "nesterov": True, "weight_decay": 0.1, "averaged": True},
}


def a_history(steps: int, settings: dict, seed: int = 0) -> History:
    """A run whose rate and noise change in every step."""
    rng, history = np.random.default_rng(seed), History(**settings)
    for step in range(steps):
        rate, noise = rng.uniform(0.1, 0.9), rng.uniform(0.5, 2.0)
        history.append(rate=rate, noise_std=noise, average=min(0.9, (1 + step) / (10 + step)))
    return history


def dense(history: History, start: int, end: int, owed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Φ and C step by step."""
    phi, covariance = np.eye(history.size), np.zeros((history.size, history.size))
    settings = history.settings()
    for step in range(start - owed, end):
        rate, noise, average = settings[step]
        through, inwards = history._matrices(rate, average)
        if step >= start:
            phi = through @ phi
        covariance = through @ covariance @ through.T if step >= start else covariance
        covariance = covariance + np.outer(inwards, inwards) * noise**2
    return phi, covariance


@pytest.mark.parametrize("name", OPTIMISERS)
def test_any_interval_is_put_together_from_blocks_as_step_by_step(name: str) -> None:
    history = a_history(21, OPTIMISERS[name])
    pairs = [(start, owed) for start, owed in product(range(22), (False, True)) if start or not owed]
    for end in (1, 2, 7, 8, 13, 16, 21):
        chosen = [pair for pair in pairs if pair[0] <= end]
        starts, owed = np.array([pair[0] for pair in chosen]), np.array([pair[1] for pair in chosen])
        phi, covariance = history.between(starts, end, noise_before=owed)
        for place, (start, too) in enumerate(chosen):
            one, other = dense(history, start, end, too)
            np.testing.assert_allclose(phi[place], one, atol=1e-12)
            np.testing.assert_allclose(covariance[place], other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_torch(name: str) -> None:
    settings, history = OPTIMISERS[name], a_history(9, OPTIMISERS[name])
    given = {key: value for key, value in settings.items() if key != "averaged"}
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(5, 3))
    parameter = nn.Parameter(torch.tensor(weight))
    optimiser = torch.optim.SGD([parameter], 1.0, **given)
    average = MovingAverage(parameter.data, decay=0.9)
    rows = RowState("table", weight.copy(), none := History(**settings))
    for step, (rate, _, decay) in enumerate(history.settings()):
        gradient = rng.normal(size=(5, 3))
        optimiser.param_groups[0]["lr"] = rate
        parameter.grad = torch.tensor(gradient)
        optimiser.step()
        average.add(step)
        rows.read(np.arange(5), SOURCE)
        none.append(rate=rate, noise_std=0.0, average=decay)
        assert rows.step(np.arange(5), gradient, step)
        np.testing.assert_allclose(rows.read(np.arange(5), SOURCE), parameter.detach(), rtol=1e-12)
        if "averaged" in settings:
            np.testing.assert_allclose(rows.read(np.arange(5), SOURCE, averaged=True), average.vector, rtol=1e-12)


READS = {1: "all", 2: "some", 5: "all", 6: "all", 9: "some"}
"""Steps in which rows are read, of 12; in the last two with a gradient, too."""


def deferred(settings: dict, draws: int, source: RandomSource, tree: Tree | None = None) -> np.ndarray:
    """What is read of one number in the steps of READS and at the end, [draws, reads + 1]."""
    made = a_history(12, settings)
    history = History(**settings) if tree is None else TreeHistory(tree, **settings)
    rows, found = RowState("table", np.zeros((draws, 1)), history), []
    everyone = np.arange(draws)
    for step, (rate, noise, average) in enumerate(made.settings()):
        if step in READS:
            found.append(rows.read(everyone, source)[:, 0].copy())
        history.append(rate=rate, noise_std=noise, average=average)
        if step in (6, 9):
            rows.step(everyone, np.full((draws, 1), 1.0 + step), step)
    rows.flush(source)
    return np.stack([*found, (rows._others[-1] if settings.get("averaged") else rows.weight)[:, 0]], axis=1)


def expected(settings: dict, rows_of_noise: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the same under dense noise, from all states as one linear map of all noises.

    Args:
        settings: of the optimiser.
        rows_of_noise: what a step's noise is in independent normal numbers, float64 [steps, steps].
    """
    drawn = np.eye(12) if rows_of_noise is None else rows_of_noise
    made = a_history(12, settings)
    size = made.size
    state, mean, lines, means = np.zeros((size, 12)), np.zeros(size), [], []
    for step, (rate, noise, average) in enumerate(made.settings()):
        if step in READS:
            lines.append(state[0].copy())
            means.append(mean[0])
        through, inwards = made._matrices(rate, average)
        state, mean = through @ state, through @ mean + inwards * (1.0 + step if step in (6, 9) else 0.0)
        state += np.outer(inwards * noise, drawn[step])
    last = size - 1 if settings.get("averaged") else 0
    weights = np.stack([*lines, state[last]])
    return np.array([*means, mean[last]]), weights @ weights.T


def refuse_another_law(found: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Fail where draws, float64 [draws, n], are not those of this joint normal law."""
    draws = len(found)
    scales = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((found - mean).mean(axis=0) / scales, 0.0, atol=5 / draws**0.5)
    correlations = np.cov((found - mean) / scales, rowvar=False)
    np.testing.assert_allclose(correlations, covariance / np.outer(scales, scales), atol=6 * (2 / draws) ** 0.5)
    for column, scale in enumerate(scales):
        assert stats.kstest((found[:, column] - mean[column]) / scale, "norm").pvalue > 1e-4
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (found - mean).T)  # jointly normal, and not each alone
    assert stats.kstest((whitened**2).sum(axis=0), "chi2", args=(len(mean),)).pvalue > 1e-4


@pytest.mark.parametrize("name", OPTIMISERS)
def test_all_that_is_read_has_the_law_of_dense_noise(name: str) -> None:
    refuse_another_law(deferred(OPTIMISERS[name], 100_000, SOURCE.within(name)), *expected(OPTIMISERS[name]))


TREE = Tree(estimator="plain", rounds=12, noise_multiplier=1.0)


def rows_of_a_tree() -> np.ndarray:
    """The noise of each step in fresh normal numbers, as dense noise of a tree makes it."""
    kept, rows = torch.zeros(TREE.vectors, 12), []
    for step in range(12):
        row = torch.zeros(12)
        row[step] = 1.0  # the fresh noise of this step, as a direction
        TREE.advance(kept, row, step)
        rows.append(row.double().numpy())
    return np.stack(rows)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_all_that_is_read_has_the_law_of_a_trees_dense_noise(name: str) -> None:
    settings, rows = OPTIMISERS[name], rows_of_a_tree()
    assert (rows < 0).any(), "later steps take noise back"
    refuse_another_law(deferred(settings, 100_000, SOURCE.within(f"tree {name}"), TREE), *expected(settings, rows))


def test_at_one_rate_a_row_has_the_nodes_on_the_stack_alone() -> None:
    history = TreeHistory(TREE)
    for _ in range(11):  # 1011: nodes of eight, of two and of one step
        history.append(rate=0.5, noise_std=2.0)
    rows = RowState("table", np.zeros((4, 3)), history)
    rows.flush(SOURCE)
    nodes = [SOURCE.stream("tree noise of rows", "table", node).normals_of(np.arange(4), 3) for node in (7, 9, 10)]
    np.testing.assert_allclose(rows.weight, -sum(nodes), rtol=1e-12)


def test_small_noise_after_large_noise_is_owed_in_full() -> None:
    history, stds = History(), np.maximum(1e-3, 1e6 * np.exp(-0.2 * np.arange(300)))
    for std in stds.tolist():
        history.append(rate=1.0, noise_std=std)
    starts = np.repeat(np.arange(1, 301), 2)
    before = np.tile([False, True], 300)
    owed = [math.sqrt(math.fsum(stds[first:] ** 2)) for first in (starts - before).tolist()]
    np.testing.assert_allclose(history.collected(starts, 300, noise_before=before), owed, rtol=1e-6)


def test_what_was_read_stays_and_no_noise_is_drawn_twice() -> None:
    history = a_history(5, {"momentum": 0.5})
    rows = RowState("table", np.zeros((6, 2)), history)
    one = rows.read(np.array([1, 4]), SOURCE)
    np.testing.assert_array_equal(rows.read(np.array([0, 1, 4]), SOURCE)[1:], one)
    rows.flush(SOURCE)
    np.testing.assert_array_equal(rows.weight[[1, 4]], one)
    assert len(np.unique(rows.weight)) == 12


def test_a_rows_noise_does_not_depend_on_which_others_are_read_with_it() -> None:
    alone, together = (RowState("table", np.zeros((9, 3)), a_history(4, {})) for _ in range(2))
    np.testing.assert_array_equal(alone.read(np.array([7]), SOURCE)[0], together.read(np.arange(9), SOURCE)[7])


def test_tables_rows_and_steps_have_noise_of_their_own() -> None:
    history, found = a_history(4, {}), []
    for name in ("one", "other"):
        rows = RowState(name, np.zeros((3, 4)), history)
        rows.flush(SOURCE)
        found.append(rows.weight)
    history.append(rate=1.0, noise_std=1.0)
    rows.flush(SOURCE)
    assert len(np.unique(np.stack([*found, rows.weight]))) == len(np.unique(np.stack(found))) == 24


@pytest.mark.parametrize("make", [History, lambda **settings: TreeHistory(TREE, **settings)], ids=["alone", "tree"])
def test_a_run_that_goes_on_from_a_checkpoint_repeats_itself(make) -> None:
    settings = OPTIMISERS["all"]
    history, rng = make(**settings), np.random.default_rng(2)
    history.load(a_history(6, settings).settings())
    rows = RowState("table", rng.normal(size=(8, 2)), history)
    rows.read(np.array([2, 3]), SOURCE)
    history.append(rate=0.2, noise_std=1.0)
    rows.step(np.array([2, 3]), rng.normal(size=(2, 2)), 6)
    saved = {name: each.copy() for name, each in rows.state().items()}, history.settings()
    again = RowState("table", np.zeros((8, 2)), other := make(**settings))
    other.load(saved[1])
    again.load(saved[0])
    for each in (rows, again):
        each.flush(SOURCE)
    for name, each in rows.state().items():
        np.testing.assert_array_equal(each, again.state()[name])


def test_a_run_whose_key_is_gone_draws_no_noise() -> None:
    history = History()
    state = RowState("table", np.zeros((4, 2)), history)
    history.append(rate=1.0, noise_std=1.0)
    state.flush(SOURCE)
    state.flush(None)
    history.append(rate=1.0, noise_std=1.0)
    with pytest.raises(InputError, match="lack noise whose key is gone"):
        state.flush(None)


def test_a_checkpoint_of_a_table_of_another_size_is_refused() -> None:
    rows = RowState("words", np.zeros((4, 2)), History())
    with pytest.raises(InputError, match=r"a table words of \[4, 2\], the model one of \[5, 2\]; resume"):
        RowState("words", np.zeros((5, 2)), History()).load(rows.state())


def test_a_row_that_was_not_read_in_a_step_cannot_take_it() -> None:
    history = a_history(3, {})
    rows = RowState("table", np.zeros((4, 2)), history)
    with pytest.raises(AssertionError, match="not read"):
        rows.step(np.array([1]), np.ones((1, 2)), 2)


def test_normal_numbers_of_rows_are_normal_and_come_from_the_keystream() -> None:
    key, rows = bytes(range(32)), np.array([5, 0, 70_000])
    found = normals_of(key, rows, 5)
    np.testing.assert_array_equal(found[1], normals_of(key, np.array([0]), 5)[0])
    words = np.frombuffer(Keystream(key).read(15, 48), "<i8")  # row 5 of three blocks each
    radius = np.sqrt(-2 * np.log(np.abs((words[:3] | 1).astype(float)) * 2.0**-63))
    angles = words[3:].astype(float) * np.pi * 2.0**-63
    np.testing.assert_allclose(found[0], np.concatenate([radius * np.cos(angles), radius * np.sin(angles)])[:5])
    many = normals_of(key, np.arange(20_000), 7)
    assert stats.kstest(many.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(many, rowvar=False), np.eye(7), atol=0.04)


def test_factors_of_matrices_of_lower_rank() -> None:
    rng = np.random.default_rng(4)
    full = rng.normal(size=(50, 3, 3))
    low = rng.normal(size=(50, 3, 1))
    matrices = np.concatenate([full @ full.transpose(0, 2, 1), low @ low.transpose(0, 2, 1), np.zeros((1, 3, 3))])
    factors = cholesky(matrices)
    np.testing.assert_allclose(factors @ factors.transpose(0, 2, 1), matrices, atol=1e-12)
    assert not np.triu(factors, 1).any()
