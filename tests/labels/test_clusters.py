"""Clusters of public inputs, and labels counted in them."""

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.labels import clusters, label_counts
from sfumato.labels.priors import FileClusters, prior_of


def test_inputs_that_lie_apart_have_clusters_of_their_own():
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
    ("inputs", "count", "told"),
    [
        (np.zeros((3, 2)), 4, "count must be at most the number of rows, 3, got 4"),
        (np.full((3, 2), np.nan), 2, "finite"),
        (np.zeros(3), 2, "rows, features"),
        (np.zeros((3, 2)), 0, "count must be a whole number >= 1"),
    ],
)
def test_bad_input_is_refused(inputs, count, told):
    with pytest.raises(InputError, match=told):
        clusters(inputs, count=count, seed=0)


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
