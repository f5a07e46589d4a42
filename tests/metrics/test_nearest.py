"""Nearest rows: those of brute force in double precision, whatever the blocks; of equals the first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.metrics import nearest


@settings(deadline=None)  # scikit-learn is imported by the first one
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 12))
def test_the_blocks_do_not_matter(seed: int, sizes: list[int], count: int):
    random = np.random.default_rng(seed)
    queries, rows = random.normal(size=(3, 4)), random.normal(size=(sum(sizes), 4))
    blocks = np.split(rows, np.cumsum(sizes)[:-1])
    places, similar = nearest(queries, blocks, count=count)
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, rows)]
    cosines = unit[0] @ unit[1].T
    assert places.shape == similar.shape == (3, min(count, len(rows)))
    # float32 rows of four numbers: their products are off by less than 1e-6
    np.testing.assert_allclose(similar, np.take_along_axis(cosines, places, axis=1), atol=1e-6)
    np.testing.assert_allclose(similar, -np.sort(-cosines, axis=1)[:, :count], atol=1e-6)
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_of_equals_the_first_comes_first():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [4.0, 0.0]])
    assert nearest(rows[:1], [rows[:2], rows[2:]], count=3)[0].tolist() == [[0, 2, 3]]


def test_lengths_do_not_matter_even_extreme_ones():
    rows = np.array([[1e-300, 0.0], [0.0, 1e300], [-1e-300, 0.0]])
    places, similar = nearest(np.array([[1e200, 0.0]]), [rows], count=3)
    assert places.tolist() == [[0, 1, 2]]
    assert similar.tolist() == [[1.0, 0.0, -1.0]]


@pytest.mark.parametrize(
    ("queries", "rows", "said"),
    [
        ([[1.0, 2.0]], [[1.0]], "2 dimensions and the gallery 1"),
        ([[1.0, np.inf]], [[1.0, 1.0]], "queries: row 0 is not finite"),
        ([[1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]], "gallery: row 1 is zero"),
    ],
)
def test_what_has_no_direction_is_refused(queries, rows, said):
    with pytest.raises(InputError, match=said):
        nearest(np.array(queries), [np.array(rows)], count=1)


def test_a_row_is_told_by_its_place_in_the_whole_gallery():
    blocks = [np.ones((3, 2)), np.array([[1.0, 1.0], [np.nan, 1.0]])]
    with pytest.raises(InputError, match="gallery: row 4 is not finite"):
        nearest(np.ones((1, 2)), blocks, count=1)
