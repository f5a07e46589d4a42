"""Spans: what was drawn becomes possible, and gaps leave room for those behind them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.synthesis.scales import Scales
from sfumato.synthesis.summaries import Spans


@pytest.fixture
def scales(patients) -> Scales:
    """Of patients with gaps of 7, 14 and 30 days, up to 8 visits, the first one on day 0."""
    return Scales.fit(patients(200))


def spans(scales: Scales, *rows: tuple[float, float, float]) -> Spans:
    """Of patients with these numbers of visits, first and last times."""
    return Spans.of(*np.array(rows).T, horizon=scales.horizon, least=7.0, middle=14.0)


def test_what_is_possible_stays_as_it_was_drawn(scales):
    found = spans(scales, (3, 5.0, 90.0), (2, 0.0, 7.0), (1, 4.0, 4.0))
    assert found.visits.tolist() == [3, 2, 1]
    assert found.start.tolist() == [5.0, 0.0, 4.0]
    assert found.end.tolist() == [90.0, 7.0, 4.0]


def test_an_end_that_is_too_early_moves_and_one_visit_has_no_end_of_its_own(scales):
    """Three gaps take at least 21 days; without any end, gaps of 14 days are the middle ones."""
    found = spans(scales, (4, 5.0, 12.0), (4, 5.0, 5.0), (4, 5.0, 1.0), (1, 5.0, 60.0), (np.nan, 5.0, np.nan))
    assert found.end.tolist() == [26.0, 47.0, 47.0, 5.0, 5.0]
    assert found.visits.tolist() == [4, 4, 4, 1, 1]


def test_visits_that_do_not_fit_before_the_horizon_are_left_out(scales):
    found = spans(scales, (8, scales.horizon - 15, scales.horizon), (8, 2 * scales.horizon, 0.0))
    assert found.visits.tolist() == [3, 1]
    assert found.end.tolist() == [scales.horizon] * 2


@given(st.integers(2, 8), st.integers(0, 20), st.integers(-30, 200), st.lists(st.integers(1, 400), min_size=8))
def test_whatever_gaps_are_asked_for_all_visits_fit_and_the_last_is_at_the_end(visits, start, end, asked):
    """A walk that takes each gap as it is asked for, as long as there is room."""
    spans = Spans(np.array([visits]), np.array([float(start)]), np.array([float(max(end, start + 7 * visits))]), 7.0)
    times = [float(start)]
    for step in range(1, visits):
        room = spans.room(np.array(times[-1:]), step)
        assert spans.ends(1, step)[0] == (step == visits - 1)
        times.append(float(spans.end[0]) if spans.ends(1, step)[0] else times[-1] + min(asked[step], room[0]))
    assert times[-1] == spans.end[0]
    assert min(np.diff(times)) >= min(7.0, *asked)
