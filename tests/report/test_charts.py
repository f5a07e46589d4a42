"""Charts: every point at its place, whatever the numbers, and in the colours of the page."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.report.charts import Axis, Series, line_chart, palette, swatch
from sfumato.report.plots import COLOURS, DARK_COLOURS
from slow import by_profile

numbers = st.one_of(st.none(), st.floats(-1e12, 1e12), st.just(math.nan), st.just(math.inf), st.floats(0, 1e-9))
points = st.lists(st.tuples(st.floats(-1e6, 1e6), numbers), max_size=12)


def whole(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@given(st.lists(points, max_size=3), st.booleans(), st.booleans())
@settings(max_examples=by_profile(40), deadline=None, derandomize=True)
def test_any_numbers_give_a_whole_drawing_inside_its_frame(lines, log_x, log_y):
    series = [Series(f"<{i}>", [x for x, _ in line], [y for _, y in line], i) for i, line in enumerate(lines)]
    root = whole(line_chart("c", "a & b", Axis("x", log=log_x), Axis("y", log=log_y), series))
    assert root.get("viewBox") == "0 0 400 250"
    for path in root.iter("path"):
        if path.get("id") is None:  # the shape of a marker stands about its own origin
            assert all(-1 <= float(text) <= 401 for text in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", "")))
    for text in root.iter("text"):
        assert 0 <= float(text.get("x", "nan")) <= 400
        assert 0 <= float(text.get("y", "nan")) <= 250


def path(svg: str) -> str:
    line = next(group for group in whole(svg).iter("g") if group.get("class") == "line")
    return next(line.iter("path")).get("d", "")


def coordinates(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", path(svg))]


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
    assert (path(svg).count("M"), path(svg).count("L")) == (2, 2)


def test_ticks_are_told_apart_and_read_like_numbers():
    def labels(y: list[float], **axis) -> list[str]:
        svg = line_chart("c", "t", Axis("x"), Axis("y", **axis), [Series("a", [0, 1, 2], y)])
        return [str(text.text) for text in whole(svg).iter("text") if "end" in text.get("style", "")]

    assert {"10⁶", "10¹²"} < set(labels([1.0, 1e9, 1e15], log=True))
    near = labels([1000001.0, 1000003.0, 1000002.0])
    assert len(set(near)) == len(near) > 3


def test_a_long_line_keeps_its_ends():
    y = [i**0.5 for i in range(100_001)]
    svg = line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", range(100_001), y)])
    assert len(svg) < 12_000
    drawn = coordinates(svg)
    short = coordinates(line_chart("c", "t", Axis("x"), Axis("y"), [Series("a", [0, 100_000], [0.0, y[-1]])]))
    assert (drawn[0], drawn[-1]) == (short[0], short[-1])


def every_kind(name: str) -> str:
    lines = [
        Series("a", [1, 2, 3], [3.0, 1.0, 2.0], 0, 1),
        Series("b", [1, 3], [1.0, 2.0], 1, dots=True),
        Series("c", [1, 3], [2.0, 1.0], 2, loose=True),
    ]
    return line_chart(name, "t", Axis("x", low=0), Axis("y"), lines, marks=[2.0])


def test_equal_numbers_give_equal_bytes_and_two_charts_share_no_id():
    assert every_kind("c") == every_kind("c")
    ids = [set(re.findall(r' id="([^"]+)"', every_kind(name))) for name in ("one", "two")]
    assert all(len(found) >= 5 for found in ids)
    assert not ids[0] & ids[1]
    links = set(re.findall(r'href="#([^"]+)"', every_kind("one")))
    assert links
    assert links <= ids[0]


def test_a_chart_takes_all_its_colours_and_its_font_from_the_page():
    svg = every_kind("c")
    drawn = svg + swatch(Series("a", [1, 2], [1.0, 2.0], 3, 1, dots=True)) + swatch(Series("", [1], [1.0], loose=True))
    assert not re.search(r"#[0-9a-f]{6}\b|font-family|<style|https?:", drawn)
    used = set(re.findall(r"var\((--[\w-]+)\)", drawn))
    assert used == {"--muted", "--rule", "--ground", "--line-0", "--line-1", "--line-2", "--line-3"}
    for colours in (COLOURS, DARK_COLOURS):
        assert all(f"--line-{i}: {colour};" in palette() for i, colour in enumerate(colours))
    assert len(COLOURS) == len(DARK_COLOURS)
