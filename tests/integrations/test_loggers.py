"""What logs hold of a run: what the guarantee covers, by one process, also after a stop."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fitting import fit_plan
from forked import team
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.integrations import Log, MLflow, TensorBoard, WandB
from sfumato.integrations.loggers import package
from sfumato.training import Callback, Result, RunOptions

# A small run, and the event files that it leaves.


@pytest.fixture
def records() -> ExampleDataset:
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    return examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64))


@pytest.fixture
def fit(records: ExampleDataset) -> Callable[..., Result]:
    """`fit(log, …)`: six steps of DP-SGD with a schedule, measured every third, saved every second."""

    def run(*callbacks: Callback, steps: int = 6, **options: Any) -> Result:
        plan = DPSGD(
            steps=steps, cohort=16, noise=1.0, server={"learning_rate": 0.5, "schedule": "cosine", "warm_up": 0}, seed=1
        )
        torch.manual_seed(0)
        options = {"validation": records, "test": records} | options
        return fit_plan(
            plan,
            nn.Linear(4, 2),
            records,
            options=RunOptions(evaluate_every=3, checkpoint_every=2, callbacks=callbacks),
            **options,
        )

    return run


@pytest.fixture
def events() -> Callable[[Path], Any]:
    """What TensorBoard itself reads from a folder."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs the tensorboard extra"
    )

    def read(folder: Path) -> Any:
        found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        found.Reload()
        return found

    return read


# What logs hold of a run: what the guarantee covers, by one process, also after a stop.


# What every log is told: what the guarantee covers, by one process, and that a run outlives its log.
class Kept(Log):
    """Keeps what it is told."""

    service = "a list"
    where = "memory"

    def __init__(self, *, breaks_in: int | None = None, **what: bool) -> None:
        super().__init__(**what)
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.plan, self.statement, self.finished = {}, "", False
        self._breaks_in = breaks_in

    def begin(self, plan, done):
        self.plan = dict(plan)
        if self._breaks_in == 0:
            raise OSError("nobody answers")

    def write(self, round, numbers):
        if round == self._breaks_in:
            raise OSError("the line is cut")
        self.rows.append((round, dict(numbers)))

    def end(self, round, numbers, statement, *, finished):
        self.rows.append((round, dict(numbers)))
        self.statement, self.finished = statement, finished

    @property
    def names(self) -> set[str]:
        return {name for _, row in self.rows for name in row}


PUBLIC = {"epsilon", "clip_norm", "learning_rate", "cohort_planned", "statement/epsilon", "statement/delta"}


def test_only_what_the_guarantee_covers_is_reported_unless_asked_for(fit):
    log = Kept()
    result = fit(log)
    assert log.names == PUBLIC
    assert [round for round, _ in log.rows] == [1, 2, 3, 4, 5, 6, 6]
    assert log.rows[-1][1] == {"statement/epsilon": result.statement.epsilon, "statement/delta": result.statement.delta}
    assert log.plan["noise"]["noise_multiplier"] == 1.0
    assert log.finished
    assert log.statement == result.statement.text()
    assert "logged" not in log.statement


def test_what_is_private_is_named_so_and_the_statement_says_that_it_was_reported(fit):
    log = Kept(private=True)
    result = fit(log)
    told = {name for name in log.names if not name.startswith("private/")}
    assert told == PUBLIC
    assert {"private/loss", "private/units", "private/seconds", "private/validation/accuracy"} < log.names
    assert "private/test/accuracy" in log.names
    row = result.history[1]
    assert log.rows[1][1]["private/loss"] == row["not_private"]["loss"]
    assert any("logged to a list" in sentence for sentence in result.statement.assumptions)


def test_measurements_on_public_data_are_reported_without_that_mark(fit):
    log = Kept(public_evaluation=True)
    result = fit(log)
    measured = log.names - PUBLIC
    assert measured >= {"validation/accuracy", "validation/log_loss", "test/accuracy", "test/log_loss"}
    assert {name.partition("/")[0] for name in measured} == {"validation", "test"}
    assert [row["validation/accuracy"] for _, row in log.rows if "validation/accuracy" in row] == [
        row["accuracy"] for row in result.history if "evaluation" in row
    ]
    assert not any("logged" in sentence for sentence in result.statement.assumptions)


@pytest.mark.parametrize("told", [{}, {"public_evaluation": True}, {"private": True}])
def test_what_was_measured_on_who_took_part_is_reported_only_as_private(fit, told):
    result = fit(Kept())
    result.evaluation["seen"] = {"not_private": "said", "users": 3, "accuracy": 0.5}
    log = Kept(**told)
    log.on_start({}, 1, 0)
    log.on_end(result)
    found = {name for name in log.names if "seen" in name}
    assert found == ({"private/seen/users", "private/seen/accuracy"} if "private" in told else set())


def test_the_learning_rate_is_that_of_the_schedule(fit):
    log = Kept()
    fit(log)
    rates = [row["learning_rate"] for _, row in log.rows if "learning_rate" in row]
    assert rates == pytest.approx([0.5 * (1 + c) / 2 for c in (1, 0.8660254, 0.5, 0, -0.5, -0.8660254)])


def test_a_run_outlives_its_log_and_reports_once(fit):
    broken, whole = Kept(breaks_in=3), Kept()
    with pytest.warns(UserWarning, match=r"a list \(memory\) takes no more .*the line is cut") as told:
        result = fit(broken, whole)
    assert len(told) == 1
    assert result.finished
    assert [round for round, _ in broken.rows] == [1, 2]
    assert len(whole.rows) == 7


def test_a_log_that_cannot_be_opened_is_one_line_before_the_first_round(fit):
    with pytest.raises(InputError, match=r"a list \(memory\) cannot be opened: OSError: nobody answers"):
        fit(Kept(breaks_in=0))


def test_a_run_without_a_guarantee_reports_no_epsilon(records):
    log = Kept()
    DPSGD(steps=2, cohort=16, noise=0.0, seed=1).fit(nn.Linear(4, 2), records, options=RunOptions(callbacks=[log]))
    assert log.names == PUBLIC - {"epsilon", "statement/epsilon"}


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (lambda: TensorBoard("tb"), "torch.utils.tensorboard", "tensorboard"),
        (lambda: WandB("faces"), "wandb", "wandb"),
        (lambda: MLflow("faces"), "mlflow", "mlflow"),
    ],
)
def test_a_missing_package_is_one_line_that_names_the_extra(monkeypatch, make, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"needs the package {extra}.*pip install 'sfumato\[{extra}\]'"):
        make()


def test_nothing_is_imported_before_a_log_is_made():
    code = (
        "import sys, sfumato.integrations; print([m for m in ('tensorboard', 'wandb', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_package_that_is_there_is_given():
    assert package("json") is json


@pytest.mark.slow
def test_of_several_processes_one_logs(tmp_path: Path):
    team(Path(__file__), [str(tmp_path)], tmp_path / "told", 2)
    told = {int(file.stem): json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert told == {0: [1, 2, 2], 1: []}


# A run with a log, in the processes of one run: main([FOLDER]).
def main(words: list[str]) -> int:
    """Train; each process writes which rounds it logged."""
    torch.set_num_threads(1)
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    records = examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64))
    log = Kept()
    DPSGD(steps=2, cohort=16, noise=1.0, seed=1).fit(nn.Linear(4, 2), records, options=RunOptions(callbacks=[log]))
    rounds = [round for round, _ in log.rows]
    (Path(words[0]) / f"{os.environ['RANK']}.json").write_text(json.dumps(rounds))
    return 0


# What MLflow holds of a run, also of one that was killed and goes on.
class KillFifth(Callback):
    def on_round(self, row):
        if row["round"] == 5:
            raise KeyboardInterrupt


@pytest.fixture
def uri(tmp_path) -> str:
    pytest.importorskip("mlflow", reason="needs the mlflow extra")
    pytest.importorskip("sqlalchemy", reason="MLflow keeps its database with it")
    return f"sqlite:///{tmp_path}/mlflow.db"


def run_of(uri: str):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("faces").experiment_id])
    return client, found


def test_a_run_has_its_plan_rounds_and_statement_there(fit, uri):
    result = fit(MLflow("faces", uri=uri))
    client, found = run_of(uri)
    assert found.info.status == "FINISHED"
    assert found.data.params["noise_multiplier"] == "1.0"
    assert found.data.tags["statement"] == result.statement.text()[:5000]
    assert found.data.metrics["statement/epsilon"] == result.statement.epsilon
    told = client.get_metric_history(found.info.run_id, "epsilon")
    rows = [(row["round"], row["epsilon"]) for row in result.history if "epsilon" in row]
    assert sorted((each.step, each.value) for each in told) == rows
    assert len({each.timestamp for each in told}) == 1
    assert not [name for name in found.data.metrics if name.startswith(("private", "validation", "test"))]


def test_a_run_that_was_killed_and_goes_on_has_each_step_once(fit, uri, tmp_path):
    log = {"uri": uri, "run": tmp_path / "run", "public_evaluation": True}
    with pytest.raises(KeyboardInterrupt):
        fit(MLflow("faces", **log), KillFifth(), out=tmp_path / "run")
    fit(MLflow("faces", **log), out=tmp_path / "run", resume=True)
    client, found = run_of(uri)
    assert found.info.run_name == "run"
    assert found.info.run_id in json.loads((tmp_path / "run" / "logs.json").read_text()).values()
    steps = {
        name: sorted(each.step for each in client.get_metric_history(found.info.run_id, name))
        for name in ("epsilon", "validation/accuracy", "statement/epsilon")
    }
    assert steps == {
        "epsilon": [1, 2, 3, 4, 5, 6],
        "validation/accuracy": [0, 3, 6],
        "statement/epsilon": [6],
    }


def test_a_uri_of_no_use_is_one_line(uri):
    with pytest.raises(InputError, match=r"strange://somewhere.*cannot be opened.*unsupported URI"):
        MLflow("faces", uri="strange://somewhere")


# What TensorBoard reads from the event files, also of a run that was killed and goes on.
class Killed(Exception):
    pass


class KillAfter(Callback):
    """Ends the process's work after a round, as a crash would."""

    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, row):
        if row["round"] == self._after:
            raise Killed


def steps(found, name: str) -> list[int]:
    return [event.step for event in found.Scalars(name)]


def test_the_event_file_holds_the_rounds_the_plan_and_the_statement(fit, events, tmp_path):
    result = fit(TensorBoard(tmp_path))
    found = events(tmp_path)
    rows = [row for row in result.history if "epsilon" in row]
    for name in ("epsilon", "clip_norm", "learning_rate"):
        assert steps(found, name) == [1, 2, 3, 4, 5, 6]
        assert [each.value for each in found.Scalars(name)] == pytest.approx([row[name] for row in rows])
    assert found.Scalars("statement/epsilon")[0].value == pytest.approx(result.statement.epsilon)
    assert not [name for name in found.Tags()["scalars"] if "private" in name or "validation" in name]
    text = found.Tensors("statement/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text == result.statement.text()
    assert b"noise_multiplier" in found.PluginTagToContent("hparams")["_hparams_/session_start_info"]


def test_the_times_of_the_events_do_not_report_how_long_rounds_took(fit, events, tmp_path):
    fit(TensorBoard(tmp_path / "public"))
    fit(TensorBoard(tmp_path / "private", private=True))
    times = {kind: {e.wall_time for e in events(tmp_path / kind).Scalars("epsilon")} for kind in ("public", "private")}
    assert len(times["public"]) == 1
    assert len(times["private"]) == 6
    assert "private/seconds" in events(tmp_path / "private").Tags()["scalars"]


@pytest.mark.parametrize(("after", "before"), [(5, [1, 2, 3, 4, 5]), (1, [1])])  # saved after 4, and before the first
def test_a_killed_run_that_goes_on_has_each_step_once_in_event_files(fit, events, tmp_path, after, before):
    log = {"public_evaluation": True}
    with pytest.raises(Killed):
        fit(TensorBoard(tmp_path / "tb", **log), KillAfter(after), out=tmp_path / "run")
    assert steps(events(tmp_path / "tb"), "epsilon") == before
    fit(TensorBoard(tmp_path / "tb", **log), out=tmp_path / "run", resume=True)
    fit(TensorBoard(tmp_path / "whole", **log))
    resumed, whole = events(tmp_path / "tb"), events(tmp_path / "whole")
    for name in ("epsilon", "learning_rate", "validation/accuracy", "statement/epsilon"):
        told = [(event.step, event.value) for event in whole.Scalars(name)]
        assert [(event.step, event.value) for event in resumed.Scalars(name)] == told
    assert steps(resumed, "validation/accuracy") == [0, 3, 6]
    assert "_hparams_/session_start_info" in resumed.PluginTagToContent("hparams")


def test_a_run_that_is_over_already_is_not_logged_twice(fit, events, tmp_path):
    for resume in (False, True):
        fit(TensorBoard(tmp_path / "tb"), out=tmp_path / "run", resume=resume)
    assert steps(events(tmp_path / "tb"), "statement/epsilon") == [6]
    assert steps(events(tmp_path / "tb"), "epsilon") == [1, 2, 3, 4, 5, 6]


def test_a_new_run_hides_what_an_earlier_one_wrote_into_its_folder(fit, events, tmp_path):
    fit(TensorBoard(tmp_path), steps=8)
    fit(TensorBoard(tmp_path))
    assert steps(events(tmp_path), "epsilon") == [1, 2, 3, 4, 5, 6]


def test_no_two_event_files_of_a_folder_begin_in_the_same_second(fit, events, tmp_path):
    for _ in range(3):
        fit(TensorBoard(tmp_path), steps=1)
    seconds = [file.name.split(".")[3] for file in tmp_path.glob("events.out.tfevents.*")]
    assert len(set(seconds)) == len(seconds) == 3


def test_a_file_in_the_place_of_the_folder_is_one_line(events, tmp_path):
    (tmp_path / "notes").write_text("")
    with pytest.raises(InputError, match=r"needs a folder, and .*notes is a file"):
        TensorBoard(tmp_path / "notes" / "run")


# What is written for Weights & Biases, without a network.
class Talk(Callback):
    def on_round(self, row):
        print("on the terminal: loss", row["not_private"]["loss"])


@pytest.fixture
def written(monkeypatch, tmp_path):
    """The files of Weights & Biases, as bytes; it writes without a network."""
    wandb = pytest.importorskip("wandb", reason="needs the wandb extra")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))

    def read() -> list[bytes]:
        wandb.teardown()  # its process writes the last rows now
        return [file.read_bytes() for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]

    yield read
    wandb.teardown()  # else the next test finds the settings of this one


def test_a_run_has_its_plan_rounds_and_statement_there_and_nothing_else(fit, written, tmp_path):
    fit(WandB("faces"), Talk())
    (content,) = written()
    for word in (b"epsilon", b"learning_rate", b"noise_multiplier", b"statement/epsilon", b"Guarantee"):
        assert word in content
    for word in (b"loss", b"private/", b"accuracy", b"terminal", b"CPython", b"requirements.txt"):
        assert word not in content


def test_what_is_private_is_written_where_it_is_asked_for(fit, written, tmp_path):
    fit(WandB("faces", private=True))
    (content,) = written()
    assert b"private/loss" in content
    assert b"private/validation/accuracy" in content


def test_a_resumed_run_goes_on_under_the_same_name(fit, written, tmp_path):
    for resume in (False, True):
        fit(WandB("faces", run=tmp_path / "run"), out=tmp_path / "run", resume=resume)
    (name,) = json.loads((tmp_path / "run" / "logs.json").read_text()).values()
    first, second = written()
    assert name.encode() in first
    assert name.encode() in second
