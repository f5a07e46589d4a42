"""A run that learned nothing is called that at the top of its page, and nothing private is told on a public one."""

import json
from pathlib import Path

import pytest

from sfumato.report.page import render
from sfumato.report.run_record import read_run, trouble


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


def test_rounds_that_drew_nobody_have_no_loss_and_no_blame(make_run):
    assert trouble(read_run(change(make_run(), 36, loss=None, units=0))) == ""


@pytest.mark.parametrize(("lost", "told"), [(10, False), (17, True), (35, True)])
def test_contributions_that_are_not_finite_count_from_a_half_on(make_run, lost, told):
    found = trouble(read_run(change(make_run(), 30, non_finite=lost, units=33)))
    assert (f"{3 * lost} of the last 99 contributions were not finite" in found) == told
    assert bool(found) == told


@pytest.mark.parametrize(("auc", "told"), [(0.42, True), (0.5, True), (0.503, True), (0.52, False)])
def test_an_area_of_a_half_is_guessing(make_run, auc, told):
    run = measure(measure(make_run(), auc=auc), "untrained", auc=0.4)
    found = trouble(read_run(run))
    assert ("learned nothing" in found and "guessing gives 0.5" in found) == told
    assert trouble(read_run(run), measured=False) == ""


def test_an_accuracy_no_better_than_guessing_is_none(make_run):
    run = measure(make_run(), accuracy=0.1, auc=None)
    whole = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps({**whole, "classes": 10}))
    assert "guessing among 10 gives 0.1" in trouble(read_run(run))
    assert trouble(read_run(measure(run, accuracy=0.3))) == ""


def test_a_training_that_brought_nothing_is_said_to_have_brought_nothing(make_run):
    run = measure(measure(make_run(), auc=0.7), "untrained", auc=0.71)
    assert trouble(read_run(run)) == (
        "The training brought nothing on the test data: area under the ROC curve 0.71 before and 0.7 after."
    )
