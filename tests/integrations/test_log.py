"""What every log is told: what the guarantee covers, by one process, and that a run outlives its log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from forked import team
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.integrations import Log, MLflow, TensorBoard, WandB
from sfumato.integrations.loggers import package


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


def test_only_what_the_guarantee_covers_is_told_unless_asked_for(fit):
    log = Kept()
    result = fit(log)
    assert log.names == PUBLIC
    assert [round for round, _ in log.rows] == [1, 2, 3, 4, 5, 6, 6]
    assert log.rows[-1][1] == {"statement/epsilon": result.statement.epsilon, "statement/delta": result.statement.delta}
    assert log.plan["noise_multiplier"] == 1.0
    assert log.finished
    assert log.statement == result.statement.text()
    assert "logged" not in log.statement


def test_what_is_private_is_named_so_and_the_statement_says_that_it_was_told(fit):
    log = Kept(private=True)
    result = fit(log)
    told = {name for name in log.names if not name.startswith("private/")}
    assert told == PUBLIC
    assert {"private/loss", "private/units", "private/seconds", "private/validation/accuracy"} < log.names
    assert "private/test/accuracy" in log.names
    row = result.history[1]
    assert log.rows[1][1]["private/loss"] == row["not_private"]["loss"]
    assert any("logged to a list" in sentence for sentence in result.statement.assumptions)


def test_measurements_on_public_data_are_told_without_that_mark(fit):
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
def test_what_was_measured_on_who_took_part_is_told_only_as_private(fit, told):
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


def test_a_run_outlives_its_log_and_tells_once(fit):
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


def test_a_run_without_a_guarantee_tells_no_epsilon(records):
    log = Kept()
    DPSGD(steps=2, batch_size=16, noise_multiplier=0.0, seed=1).fit(nn.Linear(4, 2), records, callbacks=[log])
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


def test_of_several_processes_one_logs(tmp_path: Path):
    team(Path(__file__).with_name("team_worker.py"), [str(tmp_path)], tmp_path / "told", 2)
    told = {int(file.stem): json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert told == {0: [1, 2, 2], 1: []}
