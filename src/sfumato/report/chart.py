"""Line charts as inline SVG: no scripts, no fonts, a title and a description for those who cannot see them.

Drawn small (400 units wide), so that the text stays readable when a telephone shows the chart at full width.

>>> chart = line_chart("c", "Loss", Axis("round"), Axis("loss"), [Series("a", [1, 2], [3.0, 1.5])])
>>> chart.startswith('<svg viewBox="0 0 400 250"'), "a: 3 at 1, 1.5 at 2." in chart
(True, True)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from sfumato.report.numbers import near, power_of_ten

COLOURS = ("#1f5a7a", "#b4540a", "#2f7048", "#85378a", "#7a6000", "#a8233b", "#4b5563", "#0d6f75")
"""Dark enough for text on the page's ground; told apart by people who are colour-blind with the dashes below."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")

_WIDTH, _HEIGHT = 400, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 38
_MOST_POINTS = 400
_TINY = 1e-200


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: quantity and unit.
        log: logarithmic; values <= 0 are left out.
        low, high: limits; None takes those of the data.
    """

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line.

    Attributes:
        label: its name.
        x, y: the points, by rising x; None and what is not finite leave a gap.
        colour: index of a colour.
        dash: index of a dash.
        dots: mark each point, for figures that were taken now and then.
        loose: points only, hollow: figures that no line should join.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0
    dash: int = 0
    dots: bool = False
    loose: bool = False

    @property
    def hue(self) -> str:
        """Its colour."""
        return COLOURS[self.colour % len(COLOURS)]

    @property
    def strokes(self) -> str:
        """Its dashes."""
        return DASHES[self.dash % len(DASHES)]


class _Scale:
    """From values to positions."""

    def __init__(self, axis: Axis, values: list[float], start: float, end: float) -> None:
        values = [v for v in values if math.isfinite(v) and (v > _TINY or not axis.log)] or [1.0]
        low = min(values) if axis.low is None else axis.low
        high = max(values) if axis.high is None else axis.high
        size = max(abs(low), abs(high))
        if axis.log and high <= low * (1 + 1e-9):
            low, high = low / 10, low * 10
        elif not axis.log and high - low <= max(1e-9 * size, _TINY):  # a level line: give it some room
            room = size / 10 if size > _TINY else 1.0
            low, high = low if axis.low is not None else low - room, high + room
        self.log, self.start, self.end = axis.log, start, end
        self.ticks = _decades(low, high) if axis.log else _round_steps(low, high)
        if not axis.log and len(self.ticks) > 1:
            # Open ends go out to the next tick, so that the lines stay off the frame.
            step, slack = self.ticks[1] - self.ticks[0], 1e-9
            low = low if axis.low is not None else step * math.floor(low / step + slack)
            high = high if axis.high is not None else step * math.ceil(high / step - slack)
            self.ticks = _round_steps(low, high)
        self.low, self.high = self._place(low), self._place(high)

    def _place(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float | None) -> float | None:
        """The position; None for what cannot be shown."""
        if value is None or not math.isfinite(value) or (self.log and value <= _TINY):
            return None
        return self.at(value)

    def at(self, value: float) -> float:
        """The position of a value that can be shown."""
        share = (self._place(value) - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Text of a tick."""
        if self.log:
            exponent = round(math.log10(tick))
            return f"{tick:g}" if 0 <= exponent <= 2 else power_of_ten(exponent)
        return f"{tick:,g}" if abs(tick) < 1e6 else near(tick, 3)


def line_chart(
    name: str,
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    series: Sequence[Series],
    *,
    marks: Sequence[float] = (),
) -> str:
    """An SVG element.

    Args:
        name: unique on the page; names the chart's title and description.
        title: what it shows.
        x_axis, y_axis: the axes.
        series: the lines, drawn in order.
        marks: places on the x axis to draw a faint vertical line at.
    """
    lines = [_thinned(line) for line in series]
    x = _Scale(x_axis, [v for line in lines for v in line.x], _LEFT, _WIDTH - _RIGHT)
    y = _Scale(y_axis, [v for line in lines for v in line.y if v is not None], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{name}-title {name}-about">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-about">{escape(_description(x_axis, y_axis, series))}</desc>',
    ]
    for tick in y.ticks:
        at = y.at(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(y.label(tick))}</text>')
    for mark in marks:
        parts.append(f'<path class="mark" d="M{x.at(mark):.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
    parts.append(f'<path class="axis" d="M{_LEFT} {_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}"/>')
    for tick in x.ticks:
        at = x.at(tick)
        anchor = "end" if at > _WIDTH - _RIGHT - 12 else "middle"
        parts.append(f'<path class="axis" d="M{at:.1f} {_HEIGHT - _BOTTOM}v4"/>')
        parts.append(
            f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{escape(x.label(tick))}</text>'
        )
    parts.append(f'<text class="label" x="4" y="13">{escape(y_axis.label)}</text>')
    parts.append(
        f'<text class="label" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 5}" text-anchor="end">{escape(x_axis.label)}</text>'
    )
    for line in lines:
        parts.append(_drawn(line, x, y))
    return "".join([*parts, "</svg>"])


def swatch(series: Series) -> str:
    """A short stroke for the legend, for the eye only."""
    dash = f' stroke-dasharray="{series.strokes}"' if series.strokes else ""
    dot = _dot(series, 14, 6) if series.dots or series.loose else ""
    stroke = f'<path d="M1 6H27" stroke="{series.hue}"{dash}/>' if len(series.x) != 1 and not series.loose else ""
    return f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{stroke}{dot}</svg>'


def _drawn(line: Series, x: _Scale, y: _Scale) -> str:
    path, pen, dots = [], "M", []
    for across, value in zip(line.x, line.y, strict=True):
        at, up = x(across), y(value)
        if at is None or up is None:
            pen = "M"
            continue
        path.append(f"{pen}{at:.1f} {up:.1f}")
        dots.append(_dot(line, at, up))
        pen = "L"
    dash = f' stroke-dasharray="{line.strokes}"' if line.strokes else ""
    joined = len(path) > 1 and not line.loose
    stroke = f'<path class="line" stroke="{line.hue}"{dash} d="{"".join(path)}"/>' if joined else ""
    return stroke + ("".join(dots) if line.dots or not joined else "")


def _dot(line: Series, x: float, y: float) -> str:
    if line.loose:
        return f'<circle class="hollow" cx="{x:.1f}" cy="{y:.1f}" r="4" stroke="{line.hue}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.hue}"/>'


def _description(x_axis: Axis, y_axis: Axis, series: Sequence[Series]) -> str:
    told = [f"{y_axis.label} against {x_axis.label}."]
    for line in series:
        points = [(a, b) for a, b in zip(line.x, line.y, strict=True) if b is not None and math.isfinite(b)]
        ends = points[:1] + points[-1:] if len(points) > 1 else points
        if ends:
            told.append(
                f"{line.label or 'points'}: " + ", ".join(f"{near(b, 3)} at {near(a, 3)}" for a, b in ends) + "."
            )
    return " ".join(told)


def _thinned(line: Series) -> Series:
    """The first point, and the last of each stretch: a few hundred, so that a page stays small."""
    if len(line.x) <= _MOST_POINTS:
        return line
    stride = math.ceil(len(line.x) / _MOST_POINTS)
    kept = sorted({0, *range(len(line.x) - 1, -1, -stride)})
    return replace(line, x=[line.x[i] for i in kept], y=[line.y[i] for i in kept])


def _round_steps(low: float, high: float) -> list[float]:
    """About five ticks at 1, 2 or 5 times a power of ten."""
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [0.0 if i == 0 else float(f"{i * step:.12g}") for i in range(first, last + 1)] or [low]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, (last - first) // 6 + 1) if last - first > 6 else 1
    return [10.0**i for i in range(first, last + 1, stride)] or [low]
