"""A round that is repeated with less memory is the same round, or none: no noise meets two sums."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adversarial.first_mean import Seen, Watched
from sfumato import data
from sfumato._check import InputError
from sfumato.central import DPSGD
from sfumato.central.gradients import GradientSum

COUNT, FEATURES, CLASSES, ROOM = 64, 6, 3, 16
PLAN = DPSGD(steps=2, batch_size=48, clip_norm=1.0, noise_multiplier=1000.0)


def first_mean(between: nn.Module, folder: Path, *, resume: bool) -> Tensor:
    inputs = np.random.default_rng(0).normal(size=(COUNT, FEATURES)).astype(np.float32)
    records = data.examples_from_arrays(inputs, np.arange(COUNT) % CLASSES, num_classes=CLASSES)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 16), between, nn.Linear(16, CLASSES))
    with pytest.raises(Seen) as shown:
        PLAN.fit(model, records, out=folder, resume=resume, server_optimizer=lambda given: Watched(given, lr=0.1))
    return shown.value.mean


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called on, memory runs out in steps of more than so many examples."""
    real = GradientSum._micro_batch

    def micro_batch(self: Any, examples: np.ndarray, *rest: Any) -> Any:
        return None if len(examples) > ROOM else real(self, examples, *rest)

    return lambda: monkeypatch.setattr(GradientSum, "_micro_batch", micro_batch)


def test_a_model_that_draws_is_not_put_through_in_smaller_pieces(tmp_path, little_room):
    first_mean(nn.Dropout(0.5), tmp_path / "run", resume=False)
    little_room()
    with pytest.raises(InputError, match="or go on with resume=True where there is room"):
        first_mean(nn.Dropout(0.5), tmp_path / "run", resume=True)


def test_one_that_draws_nothing_gives_the_same_sum_in_smaller_pieces(tmp_path, little_room):
    whole = first_mean(nn.Tanh(), tmp_path / "run", resume=False)
    little_room()
    with pytest.warns(UserWarning, match="memory ran out with .* going on with"):
        pieces = first_mean(nn.Tanh(), tmp_path / "run", resume=True)
    torch.testing.assert_close(pieces, whole, atol=1e-6, rtol=1e-6)
