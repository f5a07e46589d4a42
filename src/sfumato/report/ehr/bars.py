"""Horizontal bars with intervals as inline SVG: a group a row, its name above the bars, their values behind them.

Drawn by hand and not by matplotlib, so that long names have the whole width; 400 units wide as the other charts, in the
page's colours and font, with a title and a description for those who cannot see it.

>>> chart = bar_chart("b", "AUC", [Group("GRU", (Interval(0.9, 0.85, 0.95), None))], ("real", "synthetic"), (0.5, 1.0))
>>> chart.startswith('<svg viewBox="0 0 400 93"'), "GRU: real 0.9 (0.85 to 0.95), synthetic not measured." in chart
(True, True)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from sfumato.metrics.tabular.bootstrap import Interval
from sfumato.report.numbers import near

_WIDTH, _LEFT, _RIGHT = 400, 2, 316
_NAME, _BAR, _STEP, _GAP, _AXIS = 19, 12, 18, 8, 30
_FONT = 13


@dataclass(frozen=True)
class Group:
    """Bars that belong together.

    Attributes:
        name: of the group.
        values: one of each series, None where there is none.
    """

    name: str
    values: tuple[Interval | None, ...]


def bar_chart(
    name: str, title: str, groups: Sequence[Group], series: Sequence[str], limits: tuple[float, float]
) -> str:
    """An SVG element.

    Args:
        name: unique on the page; all ids begin with it.
        title: what it shows.
        groups: from top to bottom, at least one.
        series: names of the bars of a group, for the description; a legend tells them by their colours.
        limits: values at the left and the right end.
    """
    drawn, top = [], 0
    for group in groups:
        drawn.append(_text(_LEFT, top + 13, escape(group.name)))
        top += _NAME
        for place, value in enumerate(group.values):
            drawn += _bar(top, value, place, limits)
            top += _STEP
        top += _GAP
    drawn = [*_axis(top, limits), *drawn]
    height = top + _AXIS
    about = " ".join(_told(group, series) for group in groups)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{name}-title {name}-about">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-about">{escape(about)}</desc>'
        f"{''.join(drawn)}</svg>"
    )


def square(place: int) -> str:
    """The colour of a series for the legend, for the eye only."""
    colour = f"var(--line-{place})"
    shape = f'<rect x="1" y="0" width="26" height="12" style="fill: {colour}; fill-opacity: 0.45"/>'
    return f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{shape}</svg>'


def _bar(top: int, value: Interval | None, place: int, limits: tuple[float, float]) -> list[str]:
    if value is None:
        return [_text(_LEFT, top + 11, "not measured")]
    colour, middle = f"var(--line-{place})", top + _BAR / 2
    width = _at(value.value, limits) - _LEFT
    parts = [
        f'<rect class="line" x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" '
        f'style="fill: {colour}; fill-opacity: 0.45"/>'
    ]
    if value.low < value.high:
        low, high = (_at(end, limits) for end in (value.low, value.high))
        path = f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} {top + 2}v{_BAR - 4}M{high:.1f} {top + 2}v{_BAR - 4}"
        parts.append(f'<path d="{path}" style="fill: none; stroke: {colour}; stroke-width: 2"/>')
    return [*parts, _text(_WIDTH - 4, top + 11, near(value.value, 3), "end")]


def _axis(bottom: int, limits: tuple[float, float]) -> list[str]:
    """Faint lines at the ends and in the middle, with their values below."""
    ticks = (limits[0], (limits[0] + limits[1]) / 2, limits[1])
    parts = []
    for tick, anchor in zip(ticks, ("start", "middle", "end"), strict=True):
        x = _at(tick, limits)
        parts.append(f'<path d="M{x:.1f} 0V{bottom}" style="stroke: var(--rule); stroke-width: 0.8"/>')
        parts.append(_text(x, bottom + 16, near(tick, 3), anchor))
    return parts


def _at(value: float, limits: tuple[float, float]) -> float:
    share = (value - limits[0]) / (limits[1] - limits[0])
    return _LEFT + (_RIGHT - _LEFT) * min(max(share, 0.0), 1.0)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    style = f"font-size: {_FONT}px; fill: var(--muted); text-anchor: {anchor}"
    return f'<text x="{x:.4g}" y="{y}" style="{style}">{text}</text>'


def _told(group: Group, series: Sequence[str]) -> str:
    values = [
        f"{name} not measured"
        if value is None
        else f"{name} {near(value.value, 3)}"
        + (f" ({near(value.low, 3)} to {near(value.high, 3)})" if value.low < value.high else "")
        for name, value in zip(series, group.values, strict=True)
    ]
    return f"{group.name}: {', '.join(values)}."
