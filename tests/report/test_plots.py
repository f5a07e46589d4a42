"""The figure of privacy against computation shows every point that was computed."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.report import extrapolation_figure


@pytest.fixture(scope="module")
def rows():
    return acc.extrapolate(
        noise_multiplier=0.62,
        rounds=200,
        clients_per_round=32,
        users_per_client=8,
        populations=[3_000_000, 10_000_000],
        multipliers=[1, 2, 4],
        methods=["rdp", "zcdp"],
    )


def curves(path) -> dict[str, list[tuple[float, float]]]:
    """Corner points of each curve in an SVG, by the name that the figure gives it."""
    found = {}
    for group in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}g"):
        if re.fullmatch(r"\d+ \w+ [a-z ]+", group.get("id", "")):
            line = group.find("{http://www.w3.org/2000/svg}path").get("d")
            found[group.get("id")] = [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", line)]
    return found


def test_each_population_and_method_is_a_falling_curve_in_both_panels(rows, tmp_path):
    extrapolation_figure(rows, tmp_path / "figure.svg")
    drawn = curves(tmp_path / "figure.svg")
    assert len(drawn) == 2 * 2 * 2
    for points in drawn.values():
        assert len(points) == 3
        assert all(b[0] > a[0] and b[1] > a[1] for a, b in pairwise(points))  # y grows downwards
    for population in (3_000_000, 10_000_000):
        user, client = (drawn[f"{population} rdp {who}"] for who in ("user", "virtual client"))
        assert all(u[1] < c[1] for u, c in zip(user, client, strict=True))  # one user costs more


def test_curves_follow_the_numbers(rows, tmp_path):
    extrapolation_figure(rows, tmp_path / "figure.svg")
    drawn = curves(tmp_path / "figure.svg")
    # On log axes positions are linear in the logarithm: two points fix the scale, all others must fit it.
    everything = [
        (math.log(epsilons["rdp"]), drawn[f"{row.population} rdp {who}"][i % 3][1])
        for i, row in enumerate(rows)
        for who, epsilons in (("user", row.epsilon_user), ("virtual client", row.epsilon))
    ]
    (a, ya), (b, yb) = min(everything), max(everything)
    for value, y in everything:
        assert y == pytest.approx(ya + (yb - ya) * (value - a) / (b - a), abs=0.01)


def test_a_third_accountant_gets_its_own_curves(rows, tmp_path):
    more = [
        replace(
            row,
            epsilon={**row.epsilon, "pld": row.epsilon["rdp"] / 2},
            epsilon_user={**row.epsilon_user, "pld": row.epsilon_user["rdp"] / 2},
        )
        for row in rows
    ]
    extrapolation_figure(more, tmp_path / "figure.svg")
    assert len(curves(tmp_path / "figure.svg")) == 12
    assert ">PLD<" in (tmp_path / "figure.svg").read_text()


def test_equal_rows_give_equal_bytes(rows, tmp_path):
    for suffix in ("svg", "png"):
        first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
        extrapolation_figure(rows, first)
        extrapolation_figure(rows, second)
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1000


def test_mistakes_are_one_line(rows, tmp_path):
    with pytest.raises(InputError, match=r"written as \.png or \.svg"):
        extrapolation_figure(rows, tmp_path / "figure.gif")
    with pytest.raises(InputError, match="there is no folder"):
        extrapolation_figure(rows, tmp_path / "none" / "figure.svg")
    with pytest.raises(InputError, match="nothing to draw"):
        extrapolation_figure([], tmp_path / "figure.svg")
