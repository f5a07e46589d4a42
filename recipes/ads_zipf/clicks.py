"""Generated clicks whose truth is known: a log, a small model with five million rows of embeddings, and what trains it.

Values of the six columns come by Zipf's law. A tenth of the rows is kept to choose settings by, two tenths to measure
on. The tables have 5,000,000 rows together, of which the rows to train on read about one in a hundred.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import refuse_stopped

from sfumato._files import read_json
from sfumato.accounting import Gaussian, calibrate
from sfumato.central import DPSGD, FrequentRows
from sfumato.central.frequent_rows import FILE
from sfumato.data import ExampleDataset, Split, ZipfClicks, split_examples
from sfumato.statement import Statement
from sfumato.training import Callback, RunOptions
from sfumato.training.table_training import DeferredTables, SelectedTables

LOG = ZipfClicks(
    vocabulary_sizes=(4_000_000, 900_000, 90_000, 9_000, 990, 10), numeric=2, strength=2.0, bias=-2.0, seed=17
)
ROWS = 100_000
BATCH = 8192
PLAIN, DEFERRED = "without privacy", "DP-SGD, deferred noise"
ADAFEST, FEST = "DP-AdaFEST", "DP-FEST"
METHODS = (PLAIN, DEFERRED, ADAFEST, FEST)
EPSILONS = (0.5, 1.0, 3.0, 5.0, 10.0, 30.0)
SHARE = 0.3
"""Of ε, which DP-FEST's choice of rows would cost by itself."""


def epsilons(method: str) -> tuple[float | None, ...]:
    """At which a method is run; None for no noise."""
    return (None,) if method == PLAIN else EPSILONS


@cache
def parts(quick: bool = False) -> Split[ExampleDataset]:
    """Rows to train on, to choose settings by, and to measure on; always the same ones; quick: few."""
    sizes = tuple(max(10, size // 100) for size in LOG.vocabulary_sizes)
    log, rows = (replace(LOG, vocabulary_sizes=sizes), ROWS // 20) if quick else (LOG, ROWS)
    return split_examples(log.examples(rows), test=0.2, validation=0.1, seed=0)


class ClickModel(nn.Module):
    """A number for each value and a weight for each numeric column, added up to log odds: a truth is of this form."""

    def __init__(self, sizes: tuple[int, ...], numeric: int) -> None:
        super().__init__()
        first = (torch.zeros(size, 1) for size in sizes)
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(each, freeze=False) for each in first)
        self.numbers = nn.Linear(numeric, 1)
        nn.init.zeros_(self.numbers.weight)
        nn.init.zeros_(self.numbers.bias)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Map float [n, a] and int64 [n, b] to logits [n, 2]."""
        rows = [table(ids[:, place]) for place, table in enumerate(self.tables)]
        odds = torch.stack([self.numbers(numbers), *rows]).sum(dim=0)
        return torch.cat([torch.zeros_like(odds), odds], dim=1)


def network(data: ExampleDataset) -> ClickModel:
    """A model for the tables of these data, that gives even odds."""
    return ClickModel(data.vocabulary_sizes, data.input_shapes[0][0])


class Changed(Callback):
    """Counts the rows of tables that every tenth step changes, in a model that trains in place."""

    def __init__(self, model: ClickModel) -> None:
        self._tables = [layer.weight for layer in model.modules() if isinstance(layer, nn.Embedding)]
        self._before: list[Tensor] = []
        self.counts: list[int] = []

    def on_round(self, row: dict[str, Any]) -> None:
        """Keep the rows before such a step, and compare them after it."""
        if row["round"] % 10 == 9:
            self._before = [table.detach().clone() for table in self._tables]
        elif row["round"] % 10 == 0:
            pairs = zip(self._tables, self._before, strict=True)
            self.counts.append(sum(int((now != before).any(dim=1).sum()) for now, before in pairs))


@dataclass(frozen=True)
class Trained:
    """A model of the clicks.

    Attributes:
        model: reads what `reads` gives.
        reads: examples → the same ones as the model reads them.
        statement: of the run.
        rows: of tables that the noisy gradient of a step has, the mean over steps.
    """

    model: nn.Module
    reads: Callable[[ExampleDataset], ExampleDataset]
    statement: Statement
    rows: float


USUAL: dict[str, Any] = {"cohort": BATCH, "server.schedule": "cosine"}


def planned(
    population: int, method: str, epsilon: float | None, *, count_noise: float | None = None, **settings: Any
) -> DPSGD:
    """The plan for so many rows, of all methods but DP-FEST; `settings` are fields of it."""
    selection = {} if count_noise is None else {"count_noise": count_noise}
    tables = SelectedTables(in_place=True, **selection) if method == ADAFEST else DeferredTables(in_place=True)
    plan = DPSGD(tables=tables, **{**USUAL, **settings})
    return plan.replace(noise=0.0) if epsilon is None else plan.calibrate(epsilon=epsilon, population=population)


def trained(train: ExampleDataset, method: str, epsilon: float | None, seed: int, **settings: Any) -> Trained:
    """Train; `settings` are fields of the plan, `count_noise` of DP-AdaFEST and `rows` of DP-FEST."""
    if method == FEST:
        assert epsilon is not None
        return _by_frequent_rows(train, epsilon, seed, **{**USUAL, **settings})
    plan = planned(len(train), method, epsilon, seed=seed, **settings)
    model = network(train)
    changed = Changed(model)
    watched = [] if method == DEFERRED else [changed]  # there every step changes all rows, when they are next read
    result = plan.fit(model, train, options=RunOptions(evaluate_every=0, callbacks=watched))
    refuse_stopped(result.finished)
    rows = float(np.mean(changed.counts)) if changed.counts else float(sum(train.vocabulary_sizes))
    return Trained(result.model, lambda data: data, result.statement, rows)


def choice(plan: DPSGD, rows: int, epsilon: float, population: int) -> FrequentRows:
    """How DP-FEST chooses its rows: by counts that would cost a share of ε by themselves."""
    noise = calibrate(Gaussian, epsilon=SHARE * epsilon, delta=plan.delta_for(population))
    return FrequentRows(rows=rows, noise_multiplier=noise)


def _by_frequent_rows(train: ExampleDataset, epsilon: float, seed: int, *, rows: int, **settings: Any) -> Trained:
    """With the rows that noisy counts choose before the first step."""
    plan = DPSGD(seed=seed, **settings)
    chosen = choice(plan, rows, epsilon, len(train)).initial_release(train)
    before = chosen.event(plan.cohort.adjacency)
    plan = plan.calibrate(epsilon=epsilon, population=len(train), before=before)
    options = RunOptions(evaluate_every=0, initial_release=chosen)
    with tempfile.TemporaryDirectory() as folder:
        result = plan.fit(network, train, out=folder, options=options)
        refuse_stopped(result.finished)
        found = [np.asarray(each, np.int64) for each in read_json(Path(folder) / FILE)]
    kept = float(rows + len(found))
    return Trained(result.model, lambda data: chosen.prepare(found, data), result.statement, kept)


def scores(chances: np.ndarray, data: ExampleDataset) -> dict[str, float]:
    """Log loss, 1 − AUC, and how many times as many clicks are predicted as there are, of chances float64 [n]."""
    from sklearn.metrics import log_loss, roc_auc_score

    true = np.asarray(data.targets)
    return {
        "log_loss": float(log_loss(true, chances)),
        "auc_loss": 1.0 - float(roc_auc_score(true, chances)),
        "calibration": float(chances.mean() / true.mean()),
    }


def measured(found: Trained, data: ExampleDataset) -> dict[str, float]:
    """The scores of a model, and the rows of tables in a step's gradient."""
    inputs, _ = found.reads(data).examples(np.arange(len(data)))
    with torch.inference_mode():
        chances = found.model(*map(torch.from_numpy, inputs)).double().softmax(dim=1)[:, 1]
    return {**scores(chances.numpy(), data), "rows": found.rows}


def planted(data: ExampleDataset) -> dict[str, float]:
    """The scores of the chances by which the clicks were drawn: no model has a lower expected log loss."""
    (numbers, ids), _ = data.examples(np.arange(len(data)))
    return scores(1 / (1 + np.exp(-LOG.scores(numbers, ids))), data)


def constant(split: Split[ExampleDataset]) -> dict[str, float]:
    """The scores of the training rows' share of clicks, for every row."""
    share = float(np.asarray(split.train.targets).mean())
    return scores(np.full(len(split.test), share), split.test)
