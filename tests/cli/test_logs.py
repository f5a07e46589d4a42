"""`--log`: where a command logs, what it leaves out, and one line for what is of no use before data are read."""

import json
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

NOWHERE = ("dpsgd", "--data", "nowhere.npz", "--noise", 1)
SMALL = (
    "--steps",
    3,
    "--cohort",
    20,
    "--noise",
    1,
    "--model",
    "lenet300_100",
    "--public-classes",
    "--task",
    "classes",
)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "digits.npz"
    np.savez(path, x_train=rng.integers(0, 256, (60, 8, 8), np.uint8), y_train=rng.integers(0, 3, 60))
    return path


@pytest.fixture
def scalars():
    """What TensorBoard reads from a folder: name → steps."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs the tensorboard extra"
    )

    def read(folder: Path) -> dict[str, list[int]]:
        found = reader.EventAccumulator(str(folder))
        found.Reload()
        return {name: [event.step for event in found.Scalars(name)] for name in found.Tags()["scalars"]}

    return read


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--log", "tensorbord:tb"), "got tensorbord:tb (did you mean tensorboard?)"),
        (("--log", "tensorboard"), "--log must be tensorboard:DIR"),
        (("--log", "tensorboard:"), "--log must be tensorboard:DIR"),
        (("--log", "wandb"), "--log must be tensorboard:DIR"),
        (("--log", "tensorboard:tb", "--log", "tensorboard:tb"), "--log tensorboard:tb is given twice"),
        (("--log", "tensorboard:notes.txt"), "notes.txt is a file"),
        (("--log", "mlflow:https://me:secret@example.org"), "MLFLOW_TRACKING_PASSWORD"),
        (("--log", "wandb:what?"), "PROJECT or ENTITY/PROJECT"),
        (("--log-private",), "--log-private says what is logged, and there is no log"),
        (("--public-evaluation",), "--public-evaluation says what is logged, and there is no log"),
    ],
)
def test_a_log_of_no_use_is_one_line_before_the_data_are_read(sfumato, tmp_path, monkeypatch, words, named):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("")
    assert named in sfumato(*NOWHERE, *words).line
    assert not Path("runs").exists()


@pytest.mark.parametrize(("log", "module"), [("wandb:faces", "wandb"), ("mlflow:faces", "mlflow")])
def test_a_missing_package_is_one_line_before_the_data_are_read(sfumato, monkeypatch, log, module):
    monkeypatch.setitem(sys.modules, module, None)
    assert f"pip install 'sfumato[{module}]'" in sfumato(*NOWHERE, "--log", log).line


def test_a_run_logs_into_a_folder_of_its_own_without_what_is_private(sfumato, scalars, digits, tmp_path):
    out, log = tmp_path / "first", tmp_path / "tb"
    words = ("--data", digits, *SMALL, "--validation-share", 0.2, "--evaluate-every", 1, "--out", out)
    shown = sfumato("dpsgd", *words, "--log", f"tensorboard:{log}")
    assert shown.code == 0, shown.err
    found = scalars(log / "first")
    assert found["epsilon"] == found["learning_rate"] == [1, 2, 3]
    assert found["statement/epsilon"] == [3]
    assert not [name for name in found if name.startswith(("private/", "validation/", "test/"))]


def test_each_log_that_is_named_is_written_and_private_numbers_are_called_that(sfumato, scalars, digits, tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    words = ("--data", digits, *SMALL, "--log", f"tensorboard:{one}", "--out", tmp_path / "run")
    shown = sfumato("dpsgd", *words, "--log-private", f"--log=tensorboard:{other}")
    assert shown.code == 0, shown.err
    assert scalars(one / "run") == scalars(other / "run")
    assert scalars(one / "run")["private/loss"] == [1, 2, 3]
    statement = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert any("logged to TensorBoard" in sentence["text"] for sentence in statement["assumptions"])


def test_measurements_are_logged_where_the_data_are_said_to_be_public(sfumato, scalars, digits, tmp_path):
    words = ("--data", digits, *SMALL, "--validation-share", 0.2, "--evaluate-every", 1, "--out", tmp_path / "run")
    shown = sfumato("dpsgd", *words, "--log", f"tensorboard:{tmp_path / 'tb'}", "--public-evaluation")
    assert shown.code == 0, shown.err
    assert scalars(tmp_path / "tb" / "run")["validation/accuracy"] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_in_the_same_log(process, sfumato, scalars, digits, tmp_path):
    """Killed for real, at any moment after a few steps."""
    out, log = tmp_path / "run", tmp_path / "tb"
    words = ("--data", digits, *SMALL, "--steps", 2000, "--checkpoint-every", 7, "--out", out, "--test-share", 0)
    child = process("dpsgd", *words, "--log", f"tensorboard:{log}")
    metrics, until = out / "metrics.jsonl", time.monotonic() + 100
    while not (metrics.exists() and metrics.read_text().count("\n") > 20) and time.monotonic() < until:
        assert child.poll() is None, child.errors
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(scalars(log / "run")["epsilon"])
    assert 20 <= before < 2000
    again = process("dpsgd", "--resume", out)
    while metrics.read_text().count("\n") < before + 20 and time.monotonic() < until:
        assert again.poll() is None, again.errors
        time.sleep(0.01)
    again.send_signal(signal.SIGTERM)
    assert again.wait() == 130
    steps = scalars(log / "run")["epsilon"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > before
    assert len(list((log / "run").iterdir())) == 2
