"""A system that works in stages and dies in one of them ends as if it had not: the same bytes, nothing paid twice."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from contract.pipelines import PIPELINES
from sfumato._check import InputError
from sfumato.statement import Statement
from sfumato.statement.facts import prepared_alone
from sfumato.statement.sentences import render
from slow import one_in, slow_but

pytestmark = pytest.mark.fresh

PRIVATE_FILES = ("checkpoint", "metrics.jsonl", "evaluation.json", "table.parquet")
STOPS = [(name, *stop) for name, pipeline in PIPELINES.items() for stop in pipeline.stops]
QUICK = [(name, *pipeline.stops[0]) for name, pipeline in PIPELINES.items()]
ASKED = [name for name, pipeline in PIPELINES.items() if pipeline.asked]


class Died(BaseException):
    """What no code of ours catches."""


def dies(stage: str, step: int):
    """Progress that ends the run there."""

    def progress(what: str, done: int, of: int) -> None:
        if (what, done) == (stage, step):
            raise Died

    return progress


def files(folder: Path) -> dict[str, bytes]:
    """What it leaves for others, as bytes."""
    left = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {str(path.relative_to(folder)): path for path in left}
    return {name: path.read_bytes() for name, path in named.items() if not set(path.parts) & set(PRIVATE_FILES)}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ballots are kept, and blocks of a table end, often enough for a small run."""
    monkeypatch.setattr("sfumato.voting.run._SAVE_EVERY", 0.0)
    monkeypatch.setattr("sfumato.labels.files._PARQUET_ROWS", 100)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    """`whole(name)`: the folder of a run without a stop, which is only read or copied, and its steps."""
    runs: dict[str, tuple[Path, list[Any]]] = {}

    def run(name: str) -> tuple[Path, list[Any]]:
        if name not in runs:
            folder, steps = tmp_path_factory.mktemp("whole"), []
            PIPELINES[name].start(folder, progress=lambda *done: steps.append(done))
            runs[name] = folder, steps
        return runs[name]

    return run


@pytest.mark.parametrize(("name", "stage", "step"), slow_but(STOPS, *QUICK))
def test_it_dies_in_a_stage_and_goes_on_to_the_same_bytes(name, stage, step, whole, tmp_path):
    (folder, all_steps), start, steps = whole(name), PIPELINES[name].start, []
    with pytest.raises(Died):
        start(tmp_path, progress=dies(stage, step))
    assert all(name.endswith(("plan.json", "ledger.jsonl", "answers.csv")) for name in files(tmp_path))  # no half file
    start(tmp_path, resume=True, progress=lambda *done: steps.append(done))
    assert files(tmp_path) == files(folder)
    if (name, stage, step) in QUICK and not PIPELINES[name].anew:
        assert len(steps) < len(all_steps)


@pytest.mark.parametrize(("name", "stage", "step"), QUICK)
def test_two_copies_with_a_key_of_their_own_draw_the_same_and_forget_the_key(name, stage, step, tmp_path):
    start = PIPELINES[name].start
    with pytest.raises(Died):
        start(tmp_path / "one", seed=None, progress=dies(stage, step))
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for folder in (tmp_path / "one", tmp_path / "other"):
        assert list(folder.rglob("checkpoint/key"))
        start(folder, seed=None, resume=True)
        assert not list(folder.rglob("checkpoint/key"))
    assert files(tmp_path / "one") == files(tmp_path / "other")


@pytest.mark.parametrize("name", slow_but(ASKED, ASKED[0]))
def test_asked_to_stop_it_ends_its_step_and_says_so(name, whole, tmp_path, sigint):
    stage, step = PIPELINES[name].stops[0]

    def ask(what: str, done: int, of: int) -> None:
        if (what, done) == (stage, step):
            os.kill(os.getpid(), signal.SIGINT)

    expected = files(whole(name)[0])
    stopped = PIPELINES[name].start(tmp_path, progress=ask)
    assert not stopped.finished
    assert stopped.statement.epsilon == float("inf") or "stopped before its end" in str(stopped.statement.assumptions)
    assert PIPELINES[name].start(tmp_path, resume=True).finished
    assert files(tmp_path) == expected


@pytest.mark.parametrize("name", PIPELINES)
def test_it_goes_on_only_as_itself(name, tmp_path):
    stage, step = PIPELINES[name].stops[0]
    with pytest.raises(Died):
        PIPELINES[name].start(tmp_path, progress=dies(stage, step))
    before = files(tmp_path)
    for changes in ({"records": 5}, *PIPELINES[name].others):
        with pytest.raises(InputError, match="from another plan, model or data set"):
            PIPELINES[name].start(tmp_path, resume=True, **changes)
        assert files(tmp_path) == before


@pytest.mark.parametrize("name", PIPELINES)
def test_records_that_others_changed_before_are_a_condition_of_its_statement_where_there_is_noise(name, whole):
    (file,) = whole(name)[0].rglob("statement.json")
    statement = Statement.load(file)
    assert statement.assumptions.count(render(prepared_alone(statement.unit))) == (statement.epsilon < float("inf"))


@pytest.mark.parametrize("name", one_in(3, PIPELINES))
def test_what_has_ended_does_nothing_again(name, whole, tmp_path):
    folder = shutil.copytree(whole(name)[0], tmp_path / "copy")
    refused = "is complete; there is nothing to go on with" if name.startswith("table") else None
    with pytest.raises(InputError, match="average the noise away" if refused else "holds a run already"):
        PIPELINES[name].start(folder)
    if refused:
        with pytest.raises(InputError, match=refused):
            PIPELINES[name].start(folder, resume=True)
    else:
        told = set()
        PIPELINES[name].start(folder, resume=True, progress=lambda what, *_: told.add(what))
        assert not told & {"agents", "steps", "categories", "sequences", "gan"}
    assert files(folder) == files(whole(name)[0])
