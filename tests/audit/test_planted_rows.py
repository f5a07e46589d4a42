"""Rows of a table that one example alone has: who looks at them learns who took part, but from no released model.

8,000 rows are planted, each for an example of its own; a coin decides which of the examples are in the data. All that
moves such a row is its example and noise. So one run has as many trials on either of two neighbours, whose rows differ
in what the coins decided; the layer that all examples share hardly changes.

In tables that owe noise, as in the checkpoint of a run that goes on, a row has moved if and only if its example took
part: the statement's ε is exceeded at once, which is why such a checkpoint is private and never released. In the model
that is released all rows have their noise, as they have with dense noise: the attack gives a lower bound that is below
the stated ε and not far from it.
"""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato.audit.lower_bound import epsilon_lower_bound
from sfumato.central import DPSGD
from sfumato.mechanisms.deferred import History
from sfumato.runs import checkpoint
from sfumato.training import Callback, Result, RunOptions

ROWS, COHORT, STEPS = 8000, 3600, 4
NOISE, RATE, DELTA = 2.0, 0.5, 1e-6
TAKEN = np.random.default_rng(0).permutation(np.arange(ROWS) % 2 == 0)
"""Whose example is in the data; half of the rows."""


class Planted(nn.Module):
    """Nearly all of an example's gradient is that of its row, and of one sign."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, 1, _weight=torch.zeros(ROWS, 1))
        self.dense = nn.Linear(1, 2)
        self.dense.weight.data = torch.tensor([[-1.0], [1.0]])
        self.dense.bias.data = torch.zeros(2)

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Logits [n, 2]."""
        return self.dense(10 * self.table(ids[:, 0]) + 0 * numbers)


class Dies(Callback):
    """Ends the work before the last step."""

    def on_round(self, row: dict) -> None:
        """Fail once all examples have had several chances."""
        if row["round"] == STEPS - 1:
            raise RuntimeError("killed")


def trained(tables: str, **options) -> Result:
    ids = np.flatnonzero(TAKEN)[:, None]
    records = data.examples_from_arrays(
        (np.zeros((len(ids), 1), np.float32), ids), np.ones(len(ids), np.int64), num_classes=2
    )
    plan = DPSGD(steps=STEPS, cohort=COHORT, noise=NOISE, clipping=1.0, server=RATE, seed=3, delta=DELTA, tables=tables)
    return plan.fit(Planted(), records, **options)


def found(moved: np.ndarray) -> float:
    """The lower bound from how many rows of those who took part, and of the others, an attacker counts as moved."""
    return epsilon_lower_bound(int(moved[TAKEN].sum()), int(moved[~TAKEN].sum()), runs=ROWS // 2, delta=DELTA)


def in_released(result: Result, *, least: float = 2 * NOISE * STEPS**0.5) -> float:
    """Of an attacker who counts a row as moved from so many clipped steps on: two standard deviations of the noise."""
    rows = result.model.state_dict()["table.weight"].numpy()[:, 0]
    assert rows.all()  # no row is as it was
    return found(rows > least * RATE / COHORT)


def test_rows_that_owe_noise_show_who_took_part_and_released_rows_do_not(tmp_path) -> None:
    with pytest.raises(RuntimeError, match="killed"):
        trained("deferred", out=tmp_path / "run", options=RunOptions(checkpoint_every=1, callbacks=[Dies()]))
    kept = checkpoint.load(tmp_path / "run" / "checkpoint").tensors["tables.table/weight"].numpy()[:, 0]
    assert not (tmp_path / "run" / "model.safetensors").exists()
    released = trained("deferred", out=tmp_path / "run", resume=True)
    stated = released.statement.epsilon
    assert found(kept != 0) > stated
    assert stated / 4 < in_released(released) <= stated


@pytest.mark.slow
def test_with_dense_noise_the_attack_finds_as_much() -> None:
    dense = trained("dense")
    assert dense.statement.epsilon / 4 < in_released(dense) <= dense.statement.epsilon


@pytest.mark.slow
def test_a_run_that_forgets_the_noise_that_it_owes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = History.collected
    monkeypatch.setattr(History, "collected", lambda *words, **more: 0.1 * usual(*words, **more))
    broken = trained("deferred")
    assert in_released(broken, least=STEPS / 2) > broken.statement.epsilon
