"""The measures of models that give numbers: on the page, in comparisons, and in what is said of a run of no use."""

import json
import re
from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.report.page import render, result
from sfumato.report.run_record import read_run, trouble

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


def test_a_page_tells_why_a_classifier_s_log_loss_and_auc_are_missing(make_numbers):
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


@pytest.mark.parametrize(("measures", "name"), [(REGRESSION, "r2"), (COUNTS, "deviance_explained")])
@pytest.mark.parametrize(("explained", "told"), [(-0.5, True), (0.0, True), (0.01, False)])
def test_a_model_no_better_than_a_constant_learned_nothing(make_numbers, measures, name, explained, told):
    first = next(iter(measures))
    run = make_numbers("run", untrained={**measures, first: 9.0}, trained={**measures, name: explained})
    assert trouble(read_run(run)).startswith("The model learned nothing: its") == told


def test_a_score_that_holds_no_measure_is_damaged(make_numbers):
    with pytest.raises(InputError, match="no other measure"):
        read_run(make_numbers("empty", untrained={}, trained=REGRESSION))


def test_a_run_whose_people_have_a_part_of_their_own_is_told_by_what_was_measured(make_numbers):
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
