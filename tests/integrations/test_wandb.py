"""What is written for Weights & Biases, without a network."""

import json

import pytest

from sfumato.integrations import WandB
from sfumato.training import Callback

wandb = pytest.importorskip("wandb", reason="needs the wandb extra")


class Talk(Callback):
    def on_round(self, row):
        print("on the terminal: loss", row["not_private"]["loss"])


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    yield
    wandb.teardown()  # else the next test finds the settings of this one


def written(tmp_path) -> list[bytes]:
    wandb.teardown()  # its process writes the last rows now
    return [file.read_bytes() for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]


def test_a_run_has_its_plan_rounds_and_statement_there_and_nothing_else(fit, tmp_path):
    fit(WandB("faces"), Talk())
    (content,) = written(tmp_path)
    for word in (b"epsilon", b"learning_rate", b"noise_multiplier", b"statement/epsilon", b"Guarantee"):
        assert word in content
    for word in (b"loss", b"private/", b"accuracy", b"terminal", b"CPython", b"requirements.txt"):
        assert word not in content


def test_what_is_private_is_written_where_it_is_asked_for(fit, tmp_path):
    fit(WandB("faces", private=True))
    (content,) = written(tmp_path)
    assert b"private/loss" in content
    assert b"private/validation/accuracy" in content


def test_a_resumed_run_goes_on_under_the_same_name(fit, tmp_path):
    for resume in (False, True):
        fit(WandB("faces", run=tmp_path / "run"), out=tmp_path / "run", resume=resume)
    (name,) = json.loads((tmp_path / "run" / "logs.json").read_text()).values()
    first, second = written(tmp_path)
    assert name.encode() in first
    assert name.encode() in second
