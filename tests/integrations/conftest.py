"""A small run, and the event files that it leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fitting import fit_plan
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, examples_from_arrays
from sfumato.training import Callback, Result, RunOptions


@pytest.fixture
def records() -> ExampleDataset:
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    return examples_from_arrays(inputs, (inputs[:, 0] > 0).astype(np.int64))


@pytest.fixture
def fit(records: ExampleDataset) -> Callable[..., Result]:
    """`fit(log, …)`: six steps of DP-SGD with a schedule, measured every third, saved every second."""

    def run(*callbacks: Callback, steps: int = 6, **options: Any) -> Result:
        plan = DPSGD(steps=steps, cohort=16, noise=1.0, server={"schedule": "cosine", "warm_up": 0}, seed=1)
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
