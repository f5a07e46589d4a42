"""Charts: every point at its place, whatever the numbers."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.report.chart import Axis, Series, line_chart

numbers = st.one_of(st.none(), st.floats(-1e12, 1e12), st.just(math.nan), st.just(math.inf), st.floats(0, 1e-9))
points = st.lists(st.tuples(st.floats(-1e6, 1e6), numbers), max_size=12)


@given(st.lists(points, max_size=3), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_any_numbers_give_a_whole_drawing_inside_its_frame(lines, log_x, log_y):
    series = [Series(f"<{i}>", [x for x, _ in line], [y for _, y in line], i) for i, line in enumerate(lines)]
    root = ElementTree.fromstring(line_chart("c", "a & b", Axis("x", log=log_x), Axis("y", log=log_y), series))
    for path in root.iter("path"):
        numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
        assert all(0 <= number <= 400 for number in numbers)


def coordinates(svg: str) -> list[tuple[float, float]]:
    line = next(p for p in ElementTree.fromstring(svg).iter("path") if p.get("class") == "line")
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line.get("d", ""))]


def test_a_log_axis_gives_equal_room_to_each_decade():
    x = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    drawn = coordinates(
        line_chart("c", "t", Axis("x", log=True), Axis("y", low=0, high=1), [Series("a", x, [0.5] * 5)])
    )
    steps = [after[0] - before[0] for before, after in pairwise(drawn)]
    assert steps == pytest.approx([steps[0]] * 4, abs=0.11)


def test_larger_is_higher():
    drawn = coordinates(line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", [0, 1, 2], [1.0, 2.0, 3.0])]))
    assert drawn[0][1] > drawn[1][1] > drawn[2][1]


def test_a_gap_stays_a_gap():
    svg = line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", [0, 1, 2, 3, 4], [1.0, 2.0, None, 2.0, 1.0])])
    line = re.search(r'class="line"[^>]* d="([^"]*)"', svg)[1]
    assert line.count("M") == 2
    assert line.count("L") == 2


def test_a_long_line_keeps_its_ends():
    y = [i**0.5 for i in range(100_001)]
    svg = line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", range(100_001), y)])
    assert len(svg) < 12_000
    drawn = coordinates(svg)
    short = coordinates(line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", [0, 100_000], [0.0, y[-1]])]))
    assert (drawn[0], drawn[-1]) == (short[0], short[-1])
