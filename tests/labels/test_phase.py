"""Randomised labels in a run: once, in any blocks, and found again by a run that goes on."""

from pathlib import Path

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._types import Assumption
from sfumato.labels import label_facts, randomized
from sfumato.labels.numbers import BinnedResponse
from sfumato.labels.reports import reports_of, words_of
from sfumato.labels.response import LabelResponse
from sfumato.runs import Run

RESPONSE = LabelResponse(epsilon=1.0, classes=5)
LABELS = np.arange(200) % 5


def run(out: Path | None = None, **settings):
    return Run.open(out, plan={"plan": "test"}, **settings)


def test_asked_again_a_run_gives_the_first_reports_at_no_cost():
    with run(seed=1) as open_run:
        open_run.start("test")
        first = randomized(open_run, RESPONSE, LABELS)
        assert (randomized(open_run, RESPONSE, LABELS) == first).all()
        assert open_run.spent() == RESPONSE.event()
        with pytest.raises(InputError, match="give what follows a name of its own"):
            randomized(open_run, LabelResponse(epsilon=2.0, classes=5), LABELS)


def test_a_run_that_goes_on_finds_its_reports(tmp_path: Path):
    with run(tmp_path / "run") as open_run:
        open_run.start("test")
        first = randomized(open_run, RESPONSE, LABELS)
    with run(tmp_path / "run", resume=True) as open_run:
        open_run.saved("test")
        open_run.start("test")
        assert (randomized(open_run, RESPONSE, LABELS) == first).all()
        statement = open_run.finish({}, label_facts(population=200, mechanism="randomised response"))
    assert (statement.unit, statement.adjacency, statement.epsilon, statement.delta) == ("label", "replace", 1.0, 0.0)
    assert not (tmp_path / "run" / "checkpoint" / "key").exists()


def test_blocks_of_words_change_nothing(monkeypatch: pytest.MonkeyPatch):
    prior = np.random.default_rng(0).dirichlet(np.ones(5), 200)

    def drawn() -> list[int]:
        with run(seed=3) as open_run:
            open_run.start("test")
            return randomized(open_run, RESPONSE, LABELS, prior).tolist()

    whole = drawn()
    monkeypatch.setattr("sfumato.labels.reports._ROWS", 7)
    assert drawn() == whole


def test_numbers_are_reported_as_numbers():
    response = BinnedResponse.best(np.arange(5.0), np.full(5, 0.2), epsilon=3.0)
    reports = reports_of(response, LABELS, words_of(RandomSource.from_seed(0)))
    assert set(reports) <= set(response.outputs)


def test_the_statement_says_what_is_not_hidden():
    facts = label_facts(population=10, mechanism="randomised response")
    assert Assumption("label_only") in facts.assumptions
    with run(seed=1) as open_run:
        open_run.start("test")
        statement = open_run.finish({}, facts)
    told = " ".join(statement.assumptions)
    assert "model after every round" not in told
    assert "floating-point" not in told
