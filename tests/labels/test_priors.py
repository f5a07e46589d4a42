"""Priors: public ones, noisy counts, and clusters."""

from pathlib import Path

import numpy as np
import pytest

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.labels import Counted, clusters, label_counts
from sfumato.labels.priors import FileClusters, PriorTable, prior_of, smoothed
from sfumato.runs import Run

# Public priors: both shapes of a table, smoothing, and one line for whatever is no prior.


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_prior_stands_in_rows_of_any_order(tmp_path: Path):
    file = written(tmp_path / "p.csv", "class,probability", "b,0.25", "a,0.75")
    prior = PriorTable(file, ["a", "b"])
    assert prior.one is not None
    assert prior.one.tolist() == [0.75, 0.25]
    prior.require_rows(7)


def test_priors_of_rows_are_taken_in_order_whatever_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sfumato.labels.priors._ROWS", 3)
    file = written(tmp_path / "p.csv", "b,a,more", *(f"{i / 10},{1 - i / 10},x" for i in range(1, 8)))
    prior = PriorTable(file, ["a", "b"])
    assert prior.one is None
    rows = prior.rows()
    assert rows is not None
    taken = np.concatenate([rows.take(n) for n in (2, 0, 4, 1)])
    assert taken[:, 1] == pytest.approx(np.arange(1, 8) / 10)
    assert taken.sum(axis=1) == pytest.approx(1.0)
    with pytest.raises(InputError, match="7 rows for 8 labels"):
        prior.require_rows(8)


def test_smoothing_spreads_a_share_evenly(tmp_path: Path):
    file = written(tmp_path / "p.csv", "class,probability", "a,1", "b,0")
    prior = PriorTable(file, ["a", "b"], smoothing=0.2)
    assert prior.one is not None
    assert prior.one.tolist() == [0.9, 0.1]
    rows = np.array([[1.0, 0.0], [0.5, 0.5]])
    assert smoothed(rows, 0.5).tolist() == [[0.75, 0.25], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ("class,probability", "a,1", "b,0"),
            "is 0 for the class 'b', so it is hardly ever reported; give a smoo",
        ),
        (("class,probability", "a,0.5", "b,0.4"), "must sum to 1, got 0.9"),
        (("class,probability", "a,1.5", "b,-0.5"), r"must hold numbers in \[0, 1\], got -0.5"),
        (("class,probability", "a,1"), "the class 'b' has no probability there"),
        (("class,probability", "a,.5", "b,.3", "c,.2"), "the class 'c' is none of the classes"),
        (("class,probability", "a,.5", "b,.3", "a,.2"), "has the class 'a' twice"),
        (("class,probability", "a,.5", "b,much"), "must be numbers"),
        (("a,c", "1,0"), "has no column 'b'; a prior has the columns class and probability"),
    ],
)
def test_what_is_no_prior_is_refused(tmp_path: Path, lines, told):
    with pytest.raises(InputError, match=told):
        PriorTable(written(tmp_path / "p.csv", *lines), ["a", "b"])


def test_a_row_that_is_no_prior_is_refused_when_it_is_read(tmp_path: Path):
    rows = PriorTable(written(tmp_path / "p.csv", "a,b", "0.5,0.5", "0.5,0.6"), ["a", "b"]).rows()
    with pytest.raises(InputError, match=r"of row 1 must sum to 1, got 1\.1"):
        rows.take(2)


# Counted priors: what they cost, and what becomes of counts.


def release(counts: np.ndarray, epsilon: float, seed: int = 1, **settings: float) -> np.ndarray:
    with Run.open(None, plan={"plan": "test"}, seed=seed) as run:
        run.start("test")
        return Counted(epsilon=epsilon, **settings).release(run, counts)


def test_the_cost_is_epsilon_where_a_label_is_replaced():
    event = Counted(epsilon=0.04).event()
    assert acc.guarantee(event, "replace").epsilon(0.0) == pytest.approx(0.04, rel=1e-12)


def test_a_replaced_label_moves_two_counts_and_noise_covers_both():
    """By enumeration: the ratio of the chances of any two noisy counts, in the closed form of the noise."""
    rate = Counted(epsilon=0.5).event().rate
    noisy = np.arange(-40, 41)
    log_ratio = rate * (
        np.abs(noisy[:, None] - 1) + np.abs(noisy[None, :] + 1) - np.abs(noisy[:, None]) - np.abs(noisy)
    )
    assert np.abs(log_ratio).max() == pytest.approx(0.5)


def test_little_noise_gives_the_shares():
    found = release(np.array([[300_000, 100_000], [0, 500_000]]), epsilon=1.0)
    assert found == pytest.approx(np.array([[0.75, 0.25], [0.0, 1.0]]), abs=1e-3)


def test_counts_below_zero_are_zero_and_an_empty_group_is_uniform():
    found = prior_of(np.array([[5, -3, 5], [0, 0, 0], [-1, -9, -2]]), smoothing=0.0)
    assert found.tolist() == [[0.5, 0.0, 0.5], [1 / 3] * 3, [1 / 3] * 3]
    assert prior_of(np.array([[4, -1]]), smoothing=0.5).tolist() == [[0.75, 0.25]]


def test_the_noise_is_drawn_once_in_a_run_and_stands_in_its_ledger():
    histogram, counts = Counted(epsilon=0.1), np.zeros((2, 3), np.int64)
    with Run.open(None, plan={"plan": "test"}, seed=1) as run:
        run.start("test")
        first = histogram.release(run, counts)
        assert (histogram.release(run, counts) == first).all()
        assert run.spent() == histogram.event()


# Clusters of public inputs, and labels counted in them.


def test_inputs_that_lie_separate_have_clusters_of_their_own():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 600)
    inputs = rng.normal(0, 0.1, (600, 2)) + kinds[:, None] * 5
    groups = clusters(inputs, count=3, seed=1)
    counts = label_counts(groups, kinds, groups_count=3, classes=3)
    assert counts.sum() == 600
    assert sorted(counts.max(axis=1)) == sorted(np.bincount(kinds))


def test_a_cluster_without_rows_is_counted_as_empty_and_has_a_uniform_prior():
    counts = label_counts(np.array([0, 0, 2]), np.array([1, 1, 0]), groups_count=3, classes=2)
    assert counts.tolist() == [[0, 2], [0, 0], [1, 0]]
    assert prior_of(counts, smoothing=0.0)[1].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("groups", "labels", "reason"),
    [
        ([0, 0], [0, 3], "the label at position 1 must be in 0 … 2, got 3"),
        ([0, 0], [-1, 0], "the label at position 0 must be in 0 … 2, got -1"),
        ([0, 2], [0, 0], "the group at position 1 must be in 0 … 1, got 2"),
    ],
)
def test_a_label_of_no_class_is_counted_nowhere(groups, labels, reason: str):
    with pytest.raises(InputError, match=reason):
        label_counts(np.array(groups), np.array(labels), groups_count=2, classes=3)


def test_clusters_of_a_file_are_those_of_its_rows_however_many_are_asked_for(tmp_path):
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 10_000)
    np.save(tmp_path / "rows.npy", 10.0 * np.eye(3)[kinds] + rng.normal(size=(10_000, 3)))
    found = FileClusters(tmp_path / "rows.npy", count=3, seed=0)
    whole = found.of(0, 10_000)
    assert len(set(zip(kinds.tolist(), whole.tolist(), strict=True))) == 3
    assert np.array_equal(np.concatenate([found.of(0, 4097), found.of(4097, 5903)]), whole)
    with pytest.raises(InputError, match="has 10,000 rows, and the table more"):
        found.of(9_999, 2)
