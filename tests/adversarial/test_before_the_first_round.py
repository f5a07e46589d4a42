"""Two copies of a run that died before its first round go on with two models, and meet no noise twice."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adversarial.first_mean import Seen, Watched
from sfumato import data
from sfumato.central import DPSGD
from sfumato.federated import FedAvg
from sfumato.training import Callback

FEATURES, CLASSES = 6, 3
INPUTS = np.random.default_rng(0).normal(size=(24, FEATURES)).astype(np.float32)
LABELS = np.arange(24) % CLASSES
NOISY: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1000.0}
RUNS = {
    "examples": (
        DPSGD(steps=2, batch_size=6, **NOISY),
        lambda: data.examples_from_arrays(INPUTS, LABELS, num_classes=CLASSES),
    ),
    "users": (
        FedAvg(rounds=2, clients_per_round=4, **NOISY),
        lambda: data.from_arrays(INPUTS, LABELS, np.arange(24) // 4),
    ),
}


class Died(BaseException):
    """The process ends."""


class DiesAtStart(Callback):
    """After the folder is there, and before the first round: while the untrained model is measured, for example."""

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        raise Died


def network(between: nn.Module, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), between, nn.Linear(16, CLASSES))


def go(kind: str, folder: Path, model: nn.Module, **options: Any) -> None:
    plan, records = RUNS[kind]
    plan.fit(model, records(), out=folder, server_optimizer=lambda given: Watched(given, lr=0.1), **options)


def copies(kind: str, folder: Path) -> tuple[Path, Path]:
    with pytest.raises(Died):
        go(kind, folder / "one", network(nn.Tanh()), callbacks=[DiesAtStart()])
    shutil.copytree(folder / "one", folder / "two")
    return folder / "one", folder / "two"


def first_mean(kind: str, folder: Path, model: nn.Module) -> Tensor:
    """What a copy that goes on shows of its first round."""
    with pytest.raises(Seen) as shown:
        go(kind, folder, model, resume=True)
    return shown.value.mean


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("other", [(nn.Tanh, 1), (nn.ReLU, 0)], ids=["weights", "function"])
def test_copies_that_go_on_with_two_models_draw_two_noises(kind, other, tmp_path):
    one, two = copies(kind, tmp_path)
    between, seed = other
    first, then = first_mean(kind, one, network(nn.Tanh())), first_mean(kind, two, network(between(), seed))
    assert (first - then).norm() > 0.5 * first.norm()  # the sums alone differ by a thousandth of that


@pytest.mark.parametrize("kind", RUNS)
def test_copies_that_go_on_alike_draw_the_same_noise(kind, tmp_path):
    """Else the mean of many copies would have none."""
    one, two = copies(kind, tmp_path)
    first, then = first_mean(kind, one, network(nn.Tanh())), first_mean(kind, two, network(nn.Tanh()))
    assert torch.equal(first, then)
