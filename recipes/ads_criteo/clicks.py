"""Criteo's clicks: a public schema, a model, and what trains on them.

The table is that of the AdKDD 2021 challenge: 19 columns of hashed values, whether a shown product was clicked, and
whether it was bought. Buckets of a column are a public number of hashes, half as many again as the column has levels in
its public description. A fifth of the rows is kept to measure on, a tenth to choose settings by.
"""

import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED, refuse_stopped

from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, Split, open_examples, split_examples
from sfumato.models import classifier
from sfumato.statement import Statement
from sfumato.training import RunOptions

FILE = "criteo_adkdd21_train.parquet"
LEVELS = (7643, 9, 11, 400, 10, 2, 14, 12, 15, 9, 3940, 40, 1605, 103, 40413, 9, 506, 16025, 5)
HIDDEN = (64, 64)
BATCH = 1024
PLAIN, DEFERRED, ADAFEST = "without privacy", "DP-SGD, deferred noise", "DP-AdaFEST"
TABLES: dict[str, Any] = {PLAIN: "deferred", DEFERRED: "deferred", ADAFEST: "adafest"}
EPSILONS = (0.5, 1.0, 3.0, 5.0, 10.0, 30.0)


def epsilons(method: str) -> tuple[float | None, ...]:
    """At which a method is run; None for no noise."""
    return (None,) if method == PLAIN else EPSILONS


@cache
def parts(folder: Path | None) -> Split[ExampleDataset]:
    """Rows to train on, to choose settings by, and to measure on; always the same ones."""
    columns = {f"hash_{at}": {"kind": "category", "buckets": max(8, 3 * size // 2)} for at, size in enumerate(LEVELS)}
    schema = {**columns, "click": {"kind": "label", "values": ["0", "1"]}, "sale": "drop"}
    rows = open_examples((folder or SHARED) / FILE, schema=schema)
    return split_examples(rows, test=0.2, validation=0.1, seed=0)


def network(data: ExampleDataset, seed: int) -> nn.Module:
    """The click model, with small first embeddings."""
    sizes = data.vocabulary_sizes
    generator = torch.Generator().manual_seed(seed)
    model = classifier("ctr", 2, data.input_shapes, vocabulary_sizes=sizes, hidden=HIDDEN, generator=generator)
    with torch.no_grad():
        for table in model.tables:  # type: ignore[union-attr]
            table.weight.mul_(0.05)
    return model


def planned(population: int, method: str, epsilon: float | None, **settings: Any) -> DPSGD:
    """The plan for so many rows; `settings` are fields of it."""
    plan = DPSGD(cohort=BATCH, tables=TABLES[method], **{"clipping": 1.0, **settings})
    return plan.replace(noise=0.0) if epsilon is None else plan.calibrate(epsilon=epsilon, population=population)


def trained(
    train: ExampleDataset, method: str, epsilon: float | None, seed: int, *, epochs: float, **settings: Any
) -> tuple[nn.Module, Statement]:
    """A model of the clicks; `settings` are fields of the plan."""
    plan = planned(len(train), method, epsilon, seed=seed, epochs=epochs, **settings)
    result = plan.fit(network(train, seed), train, options=RunOptions(evaluate_every=0))
    refuse_stopped(result.finished)
    return result.model, result.statement


def scores(model: nn.Module, data: ExampleDataset) -> dict[str, float]:
    """Log loss, 1 − AUC, and how many times as many clicks are predicted as there are."""
    logits, targets = [], []
    with torch.inference_mode():
        for start in range(0, len(data), 4096):
            inputs, found = data.examples(np.arange(start, min(start + 4096, len(data))))
            logits.append(model(*map(torch.from_numpy, inputs)))
            targets.append(torch.from_numpy(np.asarray(found)))
    whole, true = torch.cat(logits), torch.cat(targets)
    chances = whole.softmax(dim=1)[:, 1]
    return {
        "log_loss": float(functional.cross_entropy(whole, true)),
        "auc_loss": 1.0 - area(chances, true),
        "calibration": float(chances.mean() / true.double().mean()),
    }


def constant(folder: Path | None) -> dict[str, float]:
    """The scores of the training rows' share of clicks, for every row."""
    split = parts(folder)
    share, clicked = (float(np.asarray(each.targets).mean()) for each in (split.train, split.test))
    loss = -clicked * math.log(share) - (1 - clicked) * math.log(1 - share)
    return {"log_loss": loss, "auc_loss": 0.5, "calibration": share / clicked}


def area(chances: Tensor, true: Tensor) -> float:
    """Under the ROC curve, ties counted half."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(true.numpy(), chances.numpy()))
