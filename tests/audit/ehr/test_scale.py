"""The distance of two patients, term by term, in blocks of any size."""

import numpy as np
import pytest

from made_up_patients import records
from sfumato.audit.ehr import attacks as module
from sfumato.audit.ehr.attacks import Scale, nearest_distances, squared_distances
from sfumato.audit.ehr.flat import flatten


def by_hand(reference, first, second) -> float:
    """The sum in the module's docstring, for two rows."""
    total = 0.0
    for place, known in enumerate(reference.numbers.T):
        known = known[~np.isnan(known)]
        a, b = first.numbers[0, place], second.numbers[0, place]
        ranks = [0.5 if np.isnan(v) else ((known < v).mean() + (known <= v).mean()) / 2 for v in (a, b)]
        total += (ranks[0] - ranks[1]) ** 2 + (np.isnan(a) != np.isnan(b))
    return total + float((first.codes != second.codes).sum())


def test_it_is_the_sum_over_all_columns():
    flat, others = flatten(records(40, 1)), flatten(records(8, 2))
    scale = Scale(flat)
    ((_, found),) = squared_distances(scale.place(others), scale.place(flat))
    for i in range(8):
        for j in range(40):
            expected = by_hand(flat, others.take(np.array([i])), flat.take(np.array([j])))
            assert found[i, j] == pytest.approx(expected, abs=1e-8)


def test_a_copy_is_at_zero_and_nobody_else_is():
    flat = flatten(records(300, 1))
    placed = Scale(flat).place(flat)
    ((_, found),) = squared_distances(placed, placed)
    assert (np.diag(found) == 0).all()
    assert (found + np.eye(300) > 0).all()


def test_units_and_outliers_do_not_matter():
    data = records(50, 1)
    flat = flatten(data)
    first = Scale(flat).place(flat).numbers
    flat.numbers[:] = np.exp(flat.numbers / 20)
    np.testing.assert_array_equal(Scale(flat).place(flat).numbers, first)


def test_blocks_change_nothing(monkeypatch):
    flat = flatten(records(60, 1))
    placed = Scale(flat).place(flat)
    others = Scale(flat).place(flatten(records(25, 2)))
    whole = nearest_distances(others, placed)
    monkeypatch.setattr(module, "_BLOCK", 130)
    blocks = list(squared_distances(others, placed))
    assert len(blocks) == 13
    np.testing.assert_allclose(nearest_distances(others, placed), whole, atol=1e-8)
