"""A network of one's own by the name of its module and class, in every command that takes a model."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

NETWORKS = '''
import torch
from torch import nn


class Digits(nn.Module):
    """Logits of three classes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, pictures):
        return self.layers(pictures)


class Coupled(Digits):
    """The same with batch norm."""

    def __init__(self):
        super().__init__()
        self.layers.insert(2, nn.BatchNorm1d(8))


class Ranks(Digits):
    """Approved by its layers, and it mixes examples all the same."""

    def forward(self, pictures):
        found = super().forward(pictures)
        return found - found.mean(dim=0)


class Faces(nn.Module):
    """Embeddings of four numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.out = nn.Linear(16, 4)

    def forward(self, pictures):
        return self.out(self.layers(pictures))
'''
STEPS = ("--steps", 2, "--cohort", 8, "--noise", 1, "--delta", 1e-3, "--seed", 1, "--test-share", 0)
STEPS += ("--public-classes",)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package of networks, in which the commands run, and records for them."""
    package = tmp_path / "own_networks"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "small.py").write_text(NETWORKS)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (32, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "digits.npz", images=pictures, labels=np.arange(32) % 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_check_model_approves_the_run_and_its_dry_run_take(sfumato, mine: Path) -> None:
    model, data = "own_networks.small:Digits", mine / "digits.npz"
    assert sfumato("check-model", model, "--data", data).code == 0
    words = ("dpsgd", "--data", data, "--model", model, *STEPS)
    assert "model and data were tried out" in sfumato(*words, "--dry-run").out
    assert not (mine / "runs").exists()
    assert sfumato(*words, "--out", mine / "run").code == 0
    assert json.loads((mine / "run" / "plan.json").read_text())["about"]["model"] == model


@pytest.mark.parametrize(("kind", "said"), [("Coupled", "fix_model|BatchNorm1d"), ("Ranks", "mixes them|coupled")])
def test_what_check_model_refuses_the_run_and_its_dry_run_refuse(sfumato, mine: Path, kind: str, said: str) -> None:
    model, data = f"own_networks.small:{kind}", mine / "digits.npz"
    for words in (
        ("check-model", model, "--data", data),
        ("dpsgd", "--data", data, "--model", model, *STEPS, "--dry-run"),
        ("dpsgd", "--data", data, "--model", model, *STEPS, "--out", mine / "run"),
    ):
        shown = sfumato(*words)
        assert shown.code == 2, words
        assert re.search(said, shown.line), words


def test_a_run_goes_on_with_the_same_start(sfumato, mine: Path) -> None:
    words = ("dpsgd", "--data", mine / "digits.npz", "--model", "own_networks.small:Digits", *STEPS)
    for name in ("one", "two"):
        assert sfumato(*words, "--out", mine / name).code == 0
    assert (mine / "one" / "model.safetensors").read_bytes() == (mine / "two" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("command", ["fedemb", "fedavg", "fedsgd", "centralized"])
def test_plans_of_users_take_it_and_embed_finds_it_again(sfumato, mine: Path, people: Path, command: str) -> None:
    words = [command, "--data", people, "--model", "own_networks.small:Faces", "--rounds", 1]
    if command == "fedemb":
        words += ["--cohort.users-per-client", 2]
    if command != "centralized":
        words += ["--cohort", 3, "--noise", 1, "--delta", 1e-3, "--public-classes"]
    assert sfumato(*words, "--dry-run").code == 0, command
    shown = sfumato(*words, "--embedding-dim", 9, "--out", mine / "run")
    assert shown.code == 2
    assert "own_networks.small:Faces decides it itself: leave it out" in shown.line
    shown = sfumato(*words, "--out", mine / "run")
    assert shown.code == 0, shown.err
    assert sfumato("embed", mine / "run", people, "--out", mine / "people.parquet").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("dpsgd", "--model", "own_networks.small:Nobody", "--noise", 1, "--delta", 1e-3),
        ("fedemb", "--model", "own_networks.small:Nobody", "--noise", 1, "--population", 99),
    ],
)
def test_a_dry_run_finds_what_is_not_there(sfumato, mine: Path, words: tuple[object, ...]) -> None:
    given = (*words, *(("--data", mine / "digits.npz") if words[0] == "dpsgd" else ()), "--dry-run")
    shown = sfumato(*given)
    assert shown.code == 2
    assert "own_networks.small has no Nobody" in shown.line


def test_settings_of_our_models_are_refused_beside_it(sfumato, mine: Path) -> None:
    words = ("dpsgd", "--data", mine / "digits.npz", "--model", "own_networks.small:Digits", *STEPS, "--dry-run")
    shown = sfumato(*words, "--model-options", "hidden=3")
    assert shown.code == 2
    assert "--model-options is for the models of this package" in shown.line
