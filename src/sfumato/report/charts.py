"""Charts of lines and of bars as inline SVG: no scripts, no fonts, a title and a description for those who cannot see
them.

Guarantees equal bytes for equal numbers, ids that are unique on a page whose charts have different names, and colours
that follow the page: they are variables of its style sheet, so that a chart is legible in the light, in the dark and on
paper. Drawn small (400 units wide), so that the text stays readable when a telephone shows the chart at full width.

>>> chart = line_chart("c", "Loss", Axis("round"), Axis("loss"), [Series("a", [1, 2], [3.0, 1.5])])
>>> chart.startswith('<svg viewBox="0 0 400 250"'), "a: 3 at 1, 1.5 at 2." in chart
(True, True)

Bars are drawn by hand and not by matplotlib, so that long names have the whole width.

>>> from sfumato.metrics.tabular import Interval
>>> groups = [BarGroup("GRU", (Interval(0.9, 0.85, 0.95), None))]
>>> chart = bar_chart("b", "AUC", groups, ("real", "synthetic"), (0.5, 1.0))
>>> chart.startswith('<svg viewBox="0 0 400 93"'), "GRU: real 0.9 (0.85 to 0.95), synthetic not measured." in chart
(True, True)
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from sfumato.report.numbers import near, power_of_ten
from sfumato.report.plots import COLOURS, DARK_COLOURS, DASHES

if TYPE_CHECKING:
    from sfumato.metrics.tabular import Interval

_WIDTH, _HEIGHT, _FONT = 400, 250, 13
_RIGHT, _TOP, _BOTTOM, _PAD, _LETTER = 18, 26, 44, 9, 8.3  # room around the lines; a digit is _LETTER wide
_BARS_LEFT, _BARS_RIGHT = 2, 316
_NAME, _BAR, _STEP, _GAP, _AXIS = 19, 12, 18, 8, 30  # heights of a group's name, a bar, … of the bar chart
_MOST_POINTS = 400
_TINY = 1e-200
_DECIMALS = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_LINK = re.compile(r"url\(#([\w-]+)\)|^#([\w-]+)$")  # to another part of the drawing
_INK, _RULE, _GROUND = "#555d66", "#dcd8cf", "#fcfbf8"
_VARIABLES = {
    _INK: "var(--muted)",
    _RULE: "var(--rule)",
    _GROUND: "var(--ground)",
    **{colour: f"var(--line-{i})" for i, colour in enumerate(COLOURS)},
}
# Text stays text, so that it can be read, found and set in the page's font; a fixed salt for equal bytes.
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sfumato",
    "font.size": _FONT,
    "axes.titlesize": _FONT,
    "axes.labelsize": _FONT,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.autolimit_mode": "round_numbers",  # open ends go out to the next tick: the lines stay off the frame
    "axes.xmargin": 0,
    "axes.ymargin": 0,
    "text.color": _INK,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.major.pad": 7,
    "ytick.major.pad": 6,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "path.simplify": False,
}


@dataclass(frozen=True)
class Axis:
    """What an axis of a chart measures, and how far it goes.

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
    """The points of a line, and how it is drawn.

    Attributes:
        label: its name.
        x, y: the points, by rising x; None and what is not finite leave a gap.
        colour: index of a colour.
        dash: index of a dash.
        dots: mark each point, for figures that were taken now and then.
        loose: points only, hollow: figures that no line should join.
        fine: of loose points: small ones, for a cloud of hundreds.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0
    dash: int = 0
    dots: bool = False
    loose: bool = False
    fine: bool = False

    @property
    def hue(self) -> str:
        """Its colour on a light ground."""
        return COLOURS[self.colour % len(COLOURS)]

    @property
    def strokes(self) -> str:
        """Lengths of strokes and gaps, as SVG writes them; "" for a solid line."""
        return DASHES[self.dash % len(DASHES)]


def palette() -> str:
    """The colours of the lines as variables of a style sheet, in the light and in the dark."""

    def variables(colours: Iterable[str]) -> str:
        return ":root { " + " ".join(f"--line-{i}: {colour};" for i, colour in enumerate(colours)) + " }"

    return f"{variables(COLOURS)}\n@media screen and (prefers-color-scheme: dark) {{ {variables(DARK_COLOURS)} }}"


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
        name: unique on the page; all ids begin with it.
        title: what it shows.
        x_axis, y_axis: the axes.
        series: the lines, drawn in order.
        marks: places on the x axis to draw a faint vertical line at.
    """
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72))
        figure.patch.set_visible(False)
        axes = figure.subplots()
        _frame(axes, x_axis, y_axis)
        for i, line in enumerate(series):
            _draw(axes, _thinned(line), x_axis, y_axis, f"line-{i}")
        _limit(axes, x_axis, y_axis)
        labels = axes.yaxis.get_major_formatter().format_ticks(list(axes.get_yticks()))
        left = _PAD + _LETTER * max(map(len, labels), default=1)
        figure.subplots_adjust(left / _WIDTH, _BOTTOM / _HEIGHT, 1 - _RIGHT / _WIDTH, 1 - _TOP / _HEIGHT)
        for mark in marks:
            axes.axvline(mark, color=_INK, linewidth=0.8, dashes=(1, 3), clip_on=False)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(drawn.getvalue())
    return _inline(root, name, title, _description(x_axis, y_axis, series))


def swatch(series: Series) -> str:
    """A short stroke for the legend, for the eye only."""
    hue = _VARIABLES[series.hue]
    dash = f' stroke-dasharray="{series.strokes}"' if series.strokes else ""
    dot = ""
    if series.loose:
        dot = f'<circle cx="14" cy="6" r="4" style="fill: none; stroke: {hue}; stroke-width: 2"/>'
    elif series.dots:
        dot = f'<circle cx="14" cy="6" r="3" style="fill: {hue}"/>'
    joined = len(series.x) != 1 and not series.loose
    stroke = f'<path d="M1 6H27" style="stroke: {hue}"{dash}/>' if joined else ""
    return f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{stroke}{dot}</svg>'


def _frame(axes: Axes, x_axis: Axis, y_axis: Axis) -> None:
    """All but the lines."""
    axes.patch.set_visible(False)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.grid(visible=True, axis="y", color=_RULE, linewidth=0.8, clip_on=False)
    axes.set_axisbelow(True)
    axes.set_title(y_axis.label, loc="left", pad=8)
    axes.set_xlabel(x_axis.label, loc="right")
    for drawn, axis, set_scale in (
        (axes.xaxis, x_axis, axes.set_xscale),
        (axes.yaxis, y_axis, axes.set_yscale),
    ):
        set_scale("log" if axis.log else "linear")
        drawn.set_major_locator(LogLocator(numticks=7) if axis.log else MaxNLocator(5, steps=[1, 2, 5, 10]))
        drawn.set_minor_locator(NullLocator())
        drawn.set_major_formatter(FuncFormatter(_written_log if axis.log else _written))


def _draw(axes: Axes, line: Series, x_axis: Axis, y_axis: Axis, gid: str) -> None:
    x, y = _shown(line.x, x_axis), _shown(line.y, y_axis)
    kept = np.isfinite(x) & np.isfinite(y)
    if not kept.any():
        return
    joined = np.count_nonzero(kept) > 1 and not line.loose
    dashes: Any = (0, [float(length) / 2 for length in line.strokes.split()]) if line.strokes else "solid"
    (drawn,) = axes.plot(
        np.where(kept, x, np.nan),
        np.where(kept, y, np.nan),
        color=line.hue,
        linewidth=2,
        linestyle=dashes if joined else "none",  # dashes count in line widths
        marker="o" if line.dots or not joined else "none",
        markersize=4 if line.fine else 8 if line.loose else 6,
        markeredgewidth=(1 if line.fine else 2) if line.loose else 0,
        markerfacecolor=_GROUND if line.loose else line.hue,
        clip_on=False,
        zorder=3,
    )
    drawn.set_gid(gid)


def _shown(values: Sequence[float | None], axis: Axis) -> np.ndarray:
    """The values, moved into the limits; NaN where there is nothing to show."""
    shown = np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)
    shown[~np.isfinite(shown) | (axis.log & (shown <= _TINY))] = math.nan
    return shown if axis.low is None and axis.high is None else np.clip(shown, axis.low, axis.high)


def _limit(axes: Axes, x_axis: Axis, y_axis: Axis) -> None:
    """The limits that are given; matplotlib finds the others, so that they end at a tick."""
    if axes.lines:
        x, y = (tuple(axis.get_data_interval()) for axis in (axes.xaxis, axes.yaxis))
        ends = (
            [end if given is None else given for end, given in zip(found, (axis.low, axis.high), strict=True)]
            for found, axis in ((x, x_axis), (y, y_axis))
        )
        axes.update_datalim(np.array(list(zip(*ends, strict=True))))
        axes.autoscale_view()
    if x_axis.low is None or x_axis.low != x_axis.high:
        axes.set_xlim(x_axis.low, x_axis.high)
    if y_axis.low is None or y_axis.low != y_axis.high:
        axes.set_ylim(y_axis.low, y_axis.high)


def _written(tick: float, _: object) -> str:
    return near(tick, 9)


def _written_log(tick: float, _: object) -> str:
    exponent = round(math.log10(tick))
    return f"{tick:g}" if 0 <= exponent <= 2 else power_of_ten(exponent)


def _inline(root: Element, name: str, title: str, about: str) -> str:
    """matplotlib's drawing as a part of a page: without its own style sheet and fonts, and in the page's colours."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for attribute in list(element.attrib):
            value = element.attrib.pop(attribute)
            element.set(attribute.rpartition("}")[2], _DECIMALS.sub(_rounded, " ".join(value.split())))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    used = {"".join(link) for element in root.iter() for item in element.items() for link in _LINK.findall(item[1])}
    for element in root.iter():
        element.tail = None
        element.text = element.text if element.tag == "text" else None
        _adopt(element, name, used)
    _prune(root)
    root.attrib.clear()
    head = {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-labelledby": f"{name}-title {name}-about"}
    root.attrib.update(head)
    for place, (tag, text) in enumerate((("title", title), ("desc", about))):
        element = Element(tag, {"id": f"{name}-{'title' if tag == 'title' else 'about'}"})
        element.text = text
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _adopt(element: Element, name: str, used: set[str]) -> None:
    """Ids of this chart, the page's font, and its colours by their names."""
    given = element.attrib.pop("id", "")
    drawn = given.startswith("line-")
    if drawn or given in used:
        element.set("id", f"{name}-{given}")
    if drawn:
        element.set("class", "line")
    for attribute, value in element.attrib.items():
        element.set(attribute, _LINK.sub(lambda found: found[0].replace("#", f"#{name}-"), value))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if style := element.get("style"):
        style = re.sub(r"font-family: [^;]*; ", "", style)
        for colour, variable in _VARIABLES.items():
            style = style.replace(colour, variable)
        element.set("style", style)


def _prune(element: Element) -> None:
    """Remove groups that hold nothing, from the leaves up."""
    for child in list(element):
        _prune(child)
        if child.tag in ("g", "defs") and len(child) == 0:
            element.remove(child)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _description(x_axis: Axis, y_axis: Axis, series: Sequence[Series]) -> str:
    said = [f"{y_axis.label} against {x_axis.label}."]
    for line in series:
        points = [(a, b) for a, b in zip(line.x, line.y, strict=True) if b is not None and math.isfinite(b)]
        ends = points[:1] + points[-1:] if len(points) > 1 else points
        if ends:
            said.append(
                f"{line.label or 'points'}: " + ", ".join(f"{near(b, 3)} at {near(a, 3)}" for a, b in ends) + "."
            )
    return " ".join(said)


def _thinned(line: Series) -> Series:
    """The first point, and the last of each stretch: a few hundred, so that a page stays small."""
    if len(line.x) <= _MOST_POINTS:
        return line
    stride = math.ceil(len(line.x) / _MOST_POINTS)
    kept = sorted({0, *range(len(line.x) - 1, -1, -stride)})
    return replace(line, x=[line.x[i] for i in kept], y=[line.y[i] for i in kept])


@dataclass(frozen=True)
class BarGroup:
    """Bars that belong together.

    Attributes:
        name: of the group.
        values: one of each series, None where there is none.
    """

    name: str
    values: "tuple[Interval | None, ...]"


def bar_chart(
    name: str, title: str, groups: Sequence[BarGroup], series: Sequence[str], limits: tuple[float, float]
) -> str:
    """An SVG element.

    Args:
        name: unique on the page; all ids begin with it.
        title: what it shows.
        groups: from top to bottom, at least one.
        series: names of the bars of a group, for the description; a legend has their colours.
        limits: values at the left and the right end.
    """
    drawn, top = [], 0
    for group in groups:
        drawn.append(_text(_BARS_LEFT, top + 13, escape(group.name)))
        top += _NAME
        for place, value in enumerate(group.values):
            drawn += _bar(top, value, place, limits)
            top += _STEP
        top += _GAP
    drawn = [*_axis(top, limits), *drawn]
    height = top + _AXIS
    about = " ".join(_bars_in_words(group, series) for group in groups)
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


def _bar(top: int, value: "Interval | None", place: int, limits: tuple[float, float]) -> list[str]:
    if value is None:
        return [_text(_BARS_LEFT, top + 11, "not measured")]
    colour, middle = f"var(--line-{place})", top + _BAR / 2
    width = _at(value.value, limits) - _BARS_LEFT
    parts = [
        f'<rect class="line" x="{_BARS_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" '
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
    return _BARS_LEFT + (_BARS_RIGHT - _BARS_LEFT) * min(max(share, 0.0), 1.0)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    style = f"font-size: {_FONT}px; fill: var(--muted); text-anchor: {anchor}"
    return f'<text x="{x:.4g}" y="{y}" style="{style}">{text}</text>'


def _bars_in_words(group: BarGroup, series: Sequence[str]) -> str:
    values = [
        f"{name} not measured"
        if value is None
        else f"{name} {near(value.value, 3)}"
        + (f" ({near(value.low, 3)} to {near(value.high, 3)})" if value.low < value.high else "")
        for name, value in zip(series, group.values, strict=True)
    ]
    return f"{group.name}: {', '.join(values)}."
