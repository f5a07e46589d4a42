"""Figures in files: how all of them are written, the colours of lines, and privacy against computation.

A figure shows numbers that others found and guarantees nothing of its own; equal numbers give equal bytes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.report.extrapolation import ExtrapolationRow

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5a7a", "#b4540a", "#2f7048", "#85378a", "#7a6000", "#a8233b", "#4b5563", "#0d6f75")
"""Dark enough for text on a light ground; distinguished by people who are colour-blind with the dashes below."""
DARK_COLOURS = ("#7fb8dc", "#f0a35e", "#86c79b", "#d29ad6", "#d8bf55", "#f08a9b", "#a9b4c2", "#6cc7cd")
"""The same on a dark ground."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")

_METHODS = {"pld": ("PLD", "-"), "rdp": ("RDP", "--"), "zcdp": ("zCDP (no gain from sampling)", ":")}
_NOISES = {"tree": (0, (1, 3)), "banded": (0, (6, 2, 1, 2)), "blt": (0, (3, 1, 1, 1)), "bisr": (0, (8, 2))}
_MOST_TICKS = 8
_INK, _RULE = "#1d2329", "#dcd8cf"


def save(path: Path, size: tuple[float, float], fill: "Callable[[Figure], None]") -> None:
    """Write a figure; text stays text, so that it can be read and found.

    Args:
        path: an .svg, .png or .pdf file.
        size: width and height in inches.
        fill: draws it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    kind = path.suffix.lower().lstrip(".")
    settings: Any = {"svg.hashsalt": "sfumato", "svg.fonttype": "none", "font.size": 9.5, "text.color": _INK}
    metadata: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        fill(figure)
        write_atomic(path, lambda temporary: figure.savefig(temporary, format=kind, dpi=160, metadata=metadata))


def pictures_figure(rows: Mapping[str, "np.ndarray"], path: Path) -> None:
    """Draw pictures in rows, such as what a decoder makes of each kind of released vector, next to each other.

    Args:
        rows: name of a row → its pictures, uint8 [n, height, width, 3]; rows may differ in length.
        path: the file; its suffix decides the format.

    Raises:
        InputError: there are no pictures.
    """
    columns = max((len(pictures) for pictures in rows.values()), default=0)
    if not columns:
        raise InputError("nothing to draw: give a row with at least one picture")

    def fill(figure: "Figure") -> None:
        grid = figure.subplots(len(rows), columns, squeeze=False)
        for line, (name, pictures) in zip(grid, rows.items(), strict=True):
            line[0].set_title(name, loc="left")
            for place, axes in enumerate(line):
                axes.axis("off")
                if place < len(pictures):
                    axes.imshow(pictures[place])

    save(Path(path), (1.3 * columns + 0.2, 1.6 * len(rows)), fill)


def extrapolation_figure(rows: Sequence[ExtrapolationRow], path: Path) -> None:
    """Draw the rows of `extrapolate` into a PNG or SVG file: ε against the users of a round, by population.

    For one user on the left, under the paper's convention (one virtual client) on the right. After Xu et al. 2022
    (arXiv 2211.10844), Figure 3.

    Args:
        rows: points of all populations; infinite ε are left out.
        path: the file; its suffix decides the format.

    Raises:
        InputError: no rows, no finite ε among them, another suffix, or no such folder.
    """
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in ("png", "svg"):
        raise InputError(f"{path}: the figure is written as .png or .svg; give a name that ends in one of them")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    if not any(0 < value < math.inf for row in rows for value in (*row.epsilon.values(), *row.epsilon_user.values())):
        raise InputError("nothing to draw: no row has a finite epsilon; give populations and multipliers")
    save(path, (9, 4.4), lambda figure: _draw(figure, rows))


def _draw(figure: "Figure", rows: Sequence[ExtrapolationRow]) -> None:
    from matplotlib.lines import Line2D

    populations = sorted({row.population for row in rows})
    methods = [name for name in _METHODS if any(name in row.epsilon for row in rows)]
    methods += sorted({name for row in rows for name in row.epsilon} - set(methods))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    _panel(left, rows, populations, methods, user=True)
    _panel(right, rows, populations, methods, user=False)
    noises = list(rows[0].epsilon_correlated)
    for index, population in enumerate(populations):
        for noise in noises:
            points = [
                (row.users_per_round, row.epsilon_correlated[noise]) for row in rows if row.population == population
            ]
            style: Any = {"color": _colour(index), "linestyle": _NOISES[noise], "gid": f"{population} {noise} user"}
            left.plot(*zip(*sorted(points), strict=True), marker="s", markersize=3, linewidth=1.6, **style)
    left.set_title("For one user", loc="left")
    right.set_title("The paper's convention: one virtual client", loc="left")
    left.set_ylabel("ε")
    handles = [Line2D([], [], color=_colour(i)) for i in range(len(populations))]
    labels = [f"{population:,} users" for population in populations]
    handles += [Line2D([], [], color=_INK, linestyle=_style(name)) for name in methods]
    labels += [_METHODS.get(name, (name, ""))[0] for name in methods]
    handles += [Line2D([], [], color=_INK, linestyle=_NOISES[name], marker="s", markersize=3) for name in noises]
    labels += [f"{name} noise, no sampling (DP-FTRL)" for name in noises]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)


def _panel(
    axes: "Axes", rows: Sequence[ExtrapolationRow], populations: list[int], methods: list[str], *, user: bool
) -> None:
    for index, population in enumerate(populations):
        for method in methods:
            points = sorted(
                (row.users_per_round, epsilons[method])
                for row in rows
                for epsilons in [row.epsilon_user if user else row.epsilon]
                if row.population == population and 0 < epsilons.get(method, math.inf) < math.inf
            )
            if points:
                x, y = zip(*points, strict=True)
                name = f"{population} {method} {'user' if user else 'virtual client'}"
                style: Any = {"color": _colour(index), "linestyle": _style(method), "gid": name}
                axes.plot(x, y, marker="o", markersize=3, linewidth=1.6, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("users a round")
    cohorts = sorted({row.users_per_round for row in rows})
    # Factors of two, as a rule: the ticks of a decade would say less, and run into each other.
    axes.set_xticks(cohorts if len(cohorts) <= _MOST_TICKS else [cohorts[0], cohorts[-1]])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.minorticks_off()
    axes.grid(visible=True, which="major", color=_RULE, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _style(method: str) -> Any:
    return _METHODS.get(method, (method, "-."))[1]
