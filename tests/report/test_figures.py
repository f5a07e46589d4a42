"""Figures of a page: charts, plots, what was learned and what was measured."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sfumato._check import InputError
from sfumato.report import extrapolate, extrapolation_figure
from sfumato.report.charts import Axis, Series, line_chart, palette, swatch
from sfumato.report.page import render, result
from sfumato.report.plots import COLOURS, DARK_COLOURS
from sfumato.report.run_record import read_run, trouble
from slow import by_profile

# Charts: every point at its place, whatever the numbers, and in the colours of the page.

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


def test_ticks_are_distinguished_and_read_like_numbers():
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


# The figure of privacy against computation shows every point that was computed.


@pytest.fixture(scope="module")
def rows():
    return extrapolate(
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


# A run that learned nothing is called that at the top of its page, and nothing private is told on a public one.


def change(run: Path, first: int, **private) -> Path:
    """Overwrite private figures of the rounds from this one on."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if "not_private" in row and row["round"] >= first:
            row["not_private"] |= private
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def measure(run: Path, which: str = "trained", **scores) -> Path:
    measured = json.loads((run / "evaluation.json").read_text())
    measured[which] |= scores
    (run / "evaluation.json").write_text(json.dumps(measured))
    return run


def test_a_run_that_learned_is_in_no_trouble(make_run):
    assert trouble(read_run(make_run())) == ""
    assert trouble(read_run(make_run("untested", tested=False, validated=False))) == ""
    assert "learned nothing" not in render([read_run(make_run("again"))])


def test_losses_that_are_not_finite_at_the_end_are_a_divergence(make_run):
    run = change(make_run(), 31, loss=None)
    told = trouble(read_run(run))
    assert told.startswith("The model learned nothing: the loss of the last 3 rounds is not finite")
    page = render([read_run(run)])
    assert page.index(told) < page.index("ε = ")
    assert told not in render([read_run(run)], public=True)  # a loss was computed without noise


def test_a_loss_that_came_back_is_none(make_run):
    assert trouble(read_run(change(change(make_run(), 31, loss=None), 40, loss=0.5))) == ""


def test_rounds_that_drew_no_one_have_no_loss_and_no_blame(make_run):
    assert trouble(read_run(change(make_run(), 36, loss=None, units=0))) == ""


@pytest.mark.parametrize(("lost", "told"), [(10, False), (17, True), (35, True)])
def test_contributions_that_are_not_finite_count_from_a_half_on(make_run, lost, told):
    found = trouble(read_run(change(make_run(), 30, non_finite=lost, units=33)))
    assert (f"{3 * lost} of the last 99 contributions were not finite" in found) == told
    assert bool(found) == told


def baseline(name: str, measures: dict, **gain: tuple[float, float, float]) -> dict:
    return {"baselines": {name: {**measures, "gain": {each: list(ends) for each, ends in gain.items()}}}}


@pytest.mark.parametrize(
    ("low", "high", "told"), [(-0.3, -0.1, "worse than"), (-0.1, 0.1, "not measurably better than"), (0.01, 0.2, "")]
)
def test_a_model_within_the_interval_of_a_baseline_is_said_to_be_no_better(make_run, low, high, told):
    run = make_run()
    measure(run, accuracy=0.55, likely_cause="Likeliest cause: noise.")
    measure(run, **baseline("constant", {"accuracy": 0.5}, accuracy=((low + high) / 2, low, high)))
    found = trouble(read_run(run))
    if told:
        assert found.startswith(f"The model is {told} a constant prediction: accuracy is 0.55 against 0.5 on the test")
        assert found.endswith("Likeliest cause: noise.")
        page = render([read_run(run)]).replace("\N{NO-BREAK SPACE}", " ")
        assert page.index(found) < page.index("ε = ")
    else:
        assert found == ""
    assert trouble(read_run(run), measured=False) == ""


def test_an_interval_too_wide_to_tell_blames_the_test_data(make_run):
    run = measure(make_run(), auc=0.79, likely_cause="Likeliest cause: noise.")
    found = trouble(read_run(measure(run, **baseline("random", {"auc": 0.5}, auc=(0.29, -1.4, 2.0)))))
    assert found.endswith("(gain −0.5 to +0.5, 95 % interval). The test data are too few to decide: measure on more.")


def test_one_measure_that_is_better_is_enough(make_run):
    run = measure(make_run(), accuracy=0.9, auc=0.8)
    gains = {"accuracy": (0.0, -0.1, 0.1), "auc": (0.3, 0.2, 0.4)}
    assert trouble(read_run(measure(run, **baseline("constant", {"accuracy": 0.9, "auc": 0.5}, **gains)))) == ""


@pytest.mark.parametrize(("low", "high", "told"), [(-0.4, -0.2, True), (-0.1, 0.1, False)])
def test_probabilities_worse_than_a_constant_s_are_named_though_classes_are_told_apart(make_run, low, high, told):
    run = measure(make_run(), accuracy=0.9, auc=0.8, log_loss=0.6, likely_cause="Likeliest cause: clipping.")
    gains = {"accuracy": (0.0, -0.1, 0.1), "auc": (0.3, 0.2, 0.4), "log_loss": ((low + high) / 2, low, high)}
    row = {"accuracy": 0.9, "auc": 0.5, "log_loss": 0.3}
    found = trouble(read_run(measure(run, **baseline("constant", row, **gains))))
    if told:
        assert found.startswith("The model's probabilities are worse than those of a constant prediction")
        assert "log loss is 0.6 against 0.3" in found
        assert found.endswith("Likeliest cause: clipping.")
    else:
        assert found == ""


def test_the_baselines_stand_next_to_the_measures(make_numbers):
    more = baseline("constant", {"rmse": 0.875}, rmse=(0.6, 0.5, 0.7))
    page = render([read_run(make_numbers("run", untrained=REGRESSION, trained={**REGRESSION, "rmse": 0.2, **more}))])
    assert "constant 0.875" in page


def test_a_training_that_brought_nothing_is_said_to_have_brought_nothing(make_run):
    run = measure(measure(make_run(), auc=0.7), "untrained", auc=0.71)
    assert trouble(read_run(run)) == (
        "The training brought nothing on the test data: area under the ROC curve 0.71 before and 0.7 after."
    )


# The measures of models that give numbers: on the page, in comparisons, and in what is said of a run of no use.

REGRESSION = {"rmse": 0.25, "mae": 0.125, "r2": 0.8, "not_finite": 0}
COUNTS = {"poisson_log_loss": -1.5, "deviance_explained": 0.4, "mean_rate": 3.25, "mean_count": 3.5, "not_finite": 0}


@pytest.fixture
def make_numbers(make_run):
    """`make_numbers(name, untrained={…}, trained={…})`: a run whose model gives numbers, measured every tenth round."""

    def make(name: str, *, untrained: dict, trained: dict) -> Path:
        run = make_run(name, validated=False)
        scores = {"untrained": untrained, "trained": trained}
        (run / "evaluation.json").write_text(json.dumps({"data": "test", "examples": 500, **scores}))
        rows = [{"round": at, "evaluation": "validation", **trained} for at in (10, 20, 30, 40)]
        with open(run / "metrics.jsonl", "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return run

    return make


def rows_of(page: str) -> list[list[str]]:
    table = re.search(r"On test data.*?<tbody>(.*?)</tbody>", page, re.S).group(1)
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)]


def test_a_page_shows_the_measures_of_the_task_and_no_others(make_numbers):
    before = {**REGRESSION, "rmse": 1.5, "r2": -3.0}
    run = read_run(make_numbers("flats", untrained=before, trained=REGRESSION))
    page = render([run])
    expected = [["RMSE", "1.5", "0.25"], ["MAE", "0.125", "0.125"], ["R²", "-3", "0.8"]]
    assert rows_of(page) == expected
    assert result(run) == ("RMSE", "1.5 → 0.25")
    assert "RMSE against rounds" in page
    assert "Recall at FAR" not in page
    assert "ccuracy" not in page
    public = render([run], public=True)
    assert "RMSE" not in public


def test_a_measure_that_is_not_finite_is_a_dash(make_numbers):
    page = render([read_run(make_numbers("wild", untrained=REGRESSION, trained={"not_finite": 3}))])
    assert rows_of(page)[0] == ["RMSE", "0.25", "–"]
    assert "3 of 500 test examples gave no finite output from the trained model; measures that are not" in page


def test_a_page_reports_why_a_classifier_s_log_loss_and_auc_are_missing(make_numbers):
    broken = {"accuracy": 0.5, "not_finite": 1}
    page = render([read_run(make_numbers("broken", untrained=broken, trained=broken))])
    assert "1 of 500 test examples gave no finite output; the log loss is left out." in page
    whole = {"accuracy": 0.5, "log_loss": 1.0, "not_finite": 0}
    assert "no finite output" not in render([read_run(make_numbers("whole", untrained=whole, trained=whole))])


def test_a_comparison_has_a_column_for_the_first_measure_of_each_task(make_numbers, make_run):
    before = {**REGRESSION, "rmse": 1.5}
    flats = make_numbers("flats", untrained=before, trained=REGRESSION)
    visits = make_numbers("visits", untrained={**COUNTS, "poisson_log_loss": 1.0}, trained=COUNTS)
    page = render([read_run(run) for run in (flats, visits, make_run("faces"))])
    comparison = page[: page.index("<article")]
    header = re.findall(r"<th[^>]*>([^<]+)</th>", comparison[comparison.index("<thead") : comparison.index("</thead>")])
    assert [name for name in header if name in ("RMSE", "Poisson log loss", "MAE", "Loss", "Accuracy")] == [
        "RMSE",
        "Poisson log loss",
    ]
    assert "1.5 → 0.25" in comparison
    assert "1 → -1.5" in comparison
    assert "RMSE against rounds" in comparison


def test_a_training_that_brought_nothing_is_called_that_where_less_is_better(make_numbers):
    run = make_numbers("idle", untrained={**REGRESSION, "rmse": 0.2}, trained=REGRESSION)
    assert trouble(read_run(run)) == "The training brought nothing on the test data: RMSE 0.2 before and 0.25 after."
    assert trouble(read_run(run), measured=False) == ""
    better = make_numbers("busy", untrained={**REGRESSION, "rmse": 0.3}, trained=REGRESSION)
    assert trouble(read_run(better)) == ""
    before, after = {"rmse": 0.3, "within_half": 0.5}, {"rmse": 0.2, "within_half": 0.4}
    assert trouble(read_run(make_numbers("stars", untrained=before, trained=after))) == ""


def test_a_score_that_holds_no_measure_is_damaged(make_numbers):
    with pytest.raises(InputError, match="no other measure"):
        read_run(make_numbers("empty", untrained={}, trained=REGRESSION))


def test_a_run_whose_people_have_a_part_of_their_own_is_reported_by_what_was_measured(make_numbers):
    group = {"records": "2 to 9", "users": 7, "values": 20}
    score = {"values": 20, "rmse": 1.5, "within_half": 0.125, "mae": 1.25}
    trained = {**score, "rmse": 0.75, "by_records": [{**group, "rmse": 0.75}]}
    run = make_numbers("stars", untrained=score, trained=trained)
    told = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps({**told, "users": 9, "values": 20}))
    assert result(read_run(run)) == ("RMSE", "1.5 → 0.75")
    page = render([read_run(run)])
    assert ["within ½", "0.125", "0.125"] in rows_of(page)
    assert "Accuracy" not in page
    assert "All examples" not in page
    groups = page[page.index("By how many records") :]
    assert re.findall(r"<td>([^<]*)", groups[: groups.index("</table>")]) == ["7", "0.75", "7", "0.75"]
