"""Counts of a round, which are private."""

import math

import pytest
import torch

from sfumato.clipping import Tally


def test_amounts_add_up_and_tallies_of_several_processes_are_added_as_vectors():
    one, other = Tally("cpu"), Tally("cpu")
    one.add(units=3, below=2, loss=torch.tensor(1.5))
    one.add(units=1, clipped=1)
    other.add(units=4, loss=0.5)
    one.values += other.values
    assert [one[name] for name in ("units", "below", "clipped", "loss")] == [8, 2, 1, 2]
    assert one.row()["loss"] == 0.25


def test_a_round_with_nobody_has_no_means():
    row = Tally("cpu").row()
    assert (row["units"], row["examples"], row["non_finite"]) == (0, 0, 0)
    assert row["loss"] is row["clipped"] is row["norm_mean"] is None


def test_means_are_over_those_that_have_the_figure():
    tally = Tally("cpu")
    tally.add(units=4, clipped=1, non_finite=2, norms=3.0, loss=8.0, examples=20)
    row = tally.row()
    assert (row["units"], row["examples"], row["non_finite"]) == (4, 20, 2)
    assert row["norm_mean"] == 1.5  # of two finite ones
    assert row["clipped"] == 0.25
    assert row["loss"] == 2.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_figure_that_is_not_finite_is_left_out_so_that_json_can_hold_the_row(bad):
    tally = Tally("cpu")
    tally.add(units=1, loss=bad, norms=bad)
    assert tally.row()["loss"] is None
    assert tally.row()["norm_mean"] is None


def test_a_field_that_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="not in tuple"):
        Tally("cpu").add(guests=1)
