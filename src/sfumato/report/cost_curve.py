"""Epsilon against the number of steps, a line for each accountant: the figure of `sfumato account --plot`.

Shows bounds that `sfumato.accounting` found and guarantees nothing of its own. After the figure with which Connecting
the Dots was presented (Doroshenko et al. 2022): there, steps of noise 0.5 at sampling rate 2e-5, delta 1e-8.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._types import Adjacency, Method
from sfumato.report.plots import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PER_DECADE = 2


_RULE = "#dcd8cf"


@dataclass(frozen=True)
class Look:
    """How an accountant is drawn.

    Attributes:
        name: in the legend.
        colour: of the line.
        dashes: of the line, in matplotlib's notation.
    """

    name: str
    colour: str
    dashes: str


LOOKS: dict[Method, Look] = {
    "pld": Look("connecting the dots", "#1f5a7a", "-"),
    "rdp": Look("Rényi", "#2f7048", ":"),
}


"""The accountants that are drawn, in the order of the legend."""


@dataclass(frozen=True)
class Point:
    """What a number of steps costs.

    Attributes:
        steps: how often the event happened.
        bounds: (lower, upper) bound on epsilon by accountant; the lower one is 0 where an accountant gives none, and
            what an accountant does not know is left out.
    """

    steps: int
    bounds: dict[str, tuple[float, float]]

    def to_json(self) -> dict[str, Any]:
        """The same for `json`."""
        return {"steps": self.steps, **{name: list(pair) for name, pair in self.bounds.items()}}


def points(one: acc.Event, delta: float, adjacency: Adjacency, last: Point) -> list[Point]:
    """Bounds at numbers of steps from 1 on, evenly spread on a logarithmic axis.

    Args:
        one: what a step releases.
        delta: in (0, 1).
        adjacency: how two neighbouring data sets differ.
        last: the point with the largest number of steps, >= 2, which is known already.
    """
    count = max(4, round(_PER_DECADE * math.log10(last.steps)) + 1)
    numbers = {round(last.steps ** (index / (count - 1))) for index in range(count)} - {last.steps}
    return [Point(number, bounds(one * number, delta, adjacency)) for number in sorted(numbers)] + [last]


def bounds(event: acc.Event, delta: float, adjacency: Adjacency) -> dict[str, tuple[float, float]]:
    """Bounds on epsilon by the accountants that know the event at this delta."""
    found: dict[str, tuple[float, float]] = {}
    for method in LOOKS:
        try:
            promise = acc.guarantee(event, adjacency, method)
            found[method] = promise.epsilon_interval(delta) if method == "pld" else (0.0, promise.epsilon(delta))
        except InputError:
            continue
    return found


def draw(curve: Sequence[Point], path: Path, title: str) -> None:
    """Write the figure.

    Args:
        curve: the points.
        path: an .svg, .png or .pdf file in a folder that exists.
        title: what ran.

    Raises:
        InputError: there is no finite epsilon to draw.
    """
    if not any(_finite(point, name) for point in curve for name in LOOKS):
        raise InputError("nothing to draw: no accountant gives an epsilon between 0 and infinity for this event")

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        lines(axes, curve, LOOKS)
        axes.set_title(title, loc="left", fontsize=10)
        axes.legend(frameon=False)

    save(path, (7.0, 4.4), fill)


def lines(axes: "Axes", curve: Sequence[Point], looks: Mapping[Any, Look]) -> None:
    """Draw the upper bounds, and the room down to the lower one where connecting the dots gives it.

    Args:
        axes: where to draw.
        curve: the points.
        looks: of the accountants to draw, in the order of the legend.
    """
    for name, look in looks.items():
        known = [point for point in curve if _finite(point, name)]
        if not known:
            continue
        steps = [point.steps for point in known]
        lower, upper = zip(*(point.bounds[name] for point in known), strict=True)
        label = f"{look.name}, lower to upper" if name == "pld" else f"{look.name}, upper"
        axes.plot(steps, upper, color=look.colour, linestyle=look.dashes, linewidth=1.7, label=label, gid=name)
        if name == "pld":
            axes.fill_between(steps, lower, upper, color=look.colour, alpha=0.3, linewidth=0, gid="pld interval")
    plain(axes)
    axes.set_ylabel("ε")


def plain(axes: "Axes") -> None:
    """Logarithmic axes with short numbers, a light grid, no frame."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("steps")
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(visible=True, which="major", color=_RULE, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def _short(steps: float) -> str:
    """1, 10, 100, then powers: long numbers would run into each other."""
    power = round(math.log10(steps))
    return f"{steps:g}" if power < 3 else "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))


def _finite(point: Point, name: str) -> bool:
    return name in point.bounds and 0 < point.bounds[name][1] < math.inf
