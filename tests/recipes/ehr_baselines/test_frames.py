"""Frames of records, there and back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ehr_baselines.frames import Frames


def test_records_come_back_from_their_own_frames(patients):
    """Exact frames leave nothing to draw."""
    data = patients(50)
    frames = Frames.fit(data, longest=1.0)
    found = frames.records(frames.of(data), None, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(found.lengths, data.lengths)
    np.testing.assert_allclose(found.times, data.times, rtol=1e-5, atol=1e-3)
    for name in ("codes", "static_codes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name))
    for name in ("numbers", "static_numbers"):
        np.testing.assert_allclose(getattr(found, name), getattr(data, name), rtol=1e-5, atol=1e-5)


def test_what_is_behind_the_longest_record_is_cut(patients):
    data = patients(50)
    frames = Frames.fit(data, longest=0.5)
    found = frames.records(frames.of(data), None, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(found.lengths, np.minimum(data.lengths, frames.steps))
    assert frames.lost(data) == pytest.approx(1 - found.lengths.sum() / data.lengths.sum())
    assert frames.lost(data) > 0


def test_frames_are_zero_behind_a_record_but_for_its_static_columns(patients):
    data = patients(50)
    frames = Frames.fit(data, longest=1.0)
    x = frames.of(data).numpy()
    short = int(data.lengths.argmin())
    behind = x[short, data.lengths[short] :]
    assert (behind.any(axis=0) <= (x[short, 0] == behind[0])).all()
    assert ((x >= 0) & (x <= 1)).all()


def test_a_state_holds_all_of_it(patients):
    data = patients(30)
    frames = Frames.fit(data, longest=0.9)
    again = Frames.from_state(*frames.state())
    assert torch.equal(frames.of(data), again.of(data))
    assert (again.steps, again.width) == (frames.steps, frames.width)
    np.testing.assert_array_equal(again.outcomes, frames.outcomes)


def test_a_missing_outcome_is_drawn_as_often_as_it_is_missing(patients):
    """Three shares of 4,000 draws, each within five standard deviations."""
    data = patients(100)
    codes = data.static_codes.copy()
    codes[:30, 1] = -1
    frames = Frames.fit(replace(data, static_codes=codes), longest=1.0)
    drawn = frames.outcome_drawn(4_000, torch.Generator().manual_seed(0))
    shares = np.array([*drawn.mean(0).tolist(), float((drawn.sum(1) == 0).float().mean())])
    np.testing.assert_allclose(shares, frames.outcomes, atol=5 * 0.5 / np.sqrt(4_000))
    assert frames.outcomes[-1] == pytest.approx(0.3)
