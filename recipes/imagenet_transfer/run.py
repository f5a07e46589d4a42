"""Private training that starts from public weights, as at the scale of ImageNet: what is frozen, what it gives.

    run.py [--quick] [--seeds N] [--jobs N] [--out DIR] [--data DIR]

Without --data: MNIST → Omniglot and Omniglot → MNIST. With it: DIR/public/<class>/<picture> →
DIR/private/<class>/<picture>. See README.md.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from classifier_recipe import fit
from classifier_recipe import table as table_of
from public_weights import last_stage, network, public_weights
from tasks import Task, digits, folders, letters
from torch import nn

from sfumato.central import DPSGD
from sfumato.models import transfer_weights

DELTA = 1e-5
QUICK_STEPS = 2
BASE_RATE = 0.03  # the paper's, for a batch of 256
BATCH, EPOCHS = 512, 5
PAPER_BATCH = 65_536


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table.

    Attributes:
        dataset: the task, under its name in the table.
        pretrained: start from the public weights.
        trained: "all", "last stage" (and the head, as in the paper), or "head", the last layer.
        epsilon: budget; None for no privacy.
        batch: expected examples a step; None for all of them.
        epochs: expected passes.
        rate: learning rate; None for the paper's rule, 0.03 · batch / 256.
        paper: no published accuracy is of these data.
    """

    dataset: str
    pretrained: bool
    trained: str
    epsilon: float | None
    batch: int | None
    epochs: float
    rate: float | None = None
    paper: None = None


def plan_of(row: Row, model: nn.Module, population: int) -> DPSGD:
    """The plan of a row for a public number of examples: cosine after a warm-up of one epoch, Nesterov, C = 1."""
    batch = population if row.batch is None else min(row.batch, population)
    steps = max(1, round(row.epochs * population / batch))
    plan = DPSGD(
        steps=steps,
        cohort=batch,
        server={
            "learning_rate": BASE_RATE * batch / 256 if row.rate is None else row.rate,
            "momentum": 0.9,
            "nesterov": True,
            "schedule": "cosine",
            "warm_up": max(1, steps // round(row.epochs)),
        },
        clipping=None if row.epsilon is None else 1.0,
        noise=0 if row.epsilon is None else None,
        trainable={"all": "all", "last stage": last_stage(model), "head": "last"}[row.trained],
    )
    if row.epsilon is None:
        return plan
    delta = DELTA if DELTA * population < 1 else population**-1.1
    return plan.calibrate(epsilon=row.epsilon, delta=delta, population=population)


def public_plan(population: int, epochs: float, rate: float, steps: int | None = None) -> DPSGD:
    """Training on so many public pictures: no clipping, no noise, no unit; for some epochs, or a number of steps."""
    return DPSGD(
        epochs=epochs if steps is None else None,
        steps=steps,
        cohort=min(128, population),
        server={"learning_rate": rate, "momentum": 0.9, "nesterov": True, "schedule": "cosine", "warm_up": 100},
        clipping=None,
        noise=0,
        seed=0,
    )


LETTERS, DIGITS, FOLDERS = "MNIST → ten alphabets of Omniglot", "Omniglot → 6,000 digits of MNIST", "folders"
TASKS: dict[str, Callable[[Path | None], Task]] = {
    LETTERS: lambda _: letters(),
    DIGITS: lambda _: digits(),
    FOLDERS: folders,
}
PUBLIC = {LETTERS: (3, 0.05), DIGITS: (6, 0.1), FOLDERS: (12, 0.05)}  # epochs and rate on public pictures
FROZEN_RATE = {LETTERS: 2.0, DIGITS: 1.0, FOLDERS: 1.0}
EPSILON = {LETTERS: 8.0, DIGITS: 2.0, FOLDERS: 8.0}


def rows_of(task: str) -> dict[str, Row]:
    """The rows of a task, by unique names; the rates and epochs were chosen on held-out pictures, see README.md."""
    scratch = Row(
        dataset=task, pretrained=False, trained="all", epsilon=EPSILON[task], batch=BATCH, epochs=EPOCHS, rate=1.0
    )
    pretrained = replace(scratch, pretrained=True)
    head = replace(pretrained, trained="head", rate=2.0)
    table = {
        "from scratch": scratch,
        "pretrained, all layers": pretrained,
        "pretrained, first layers frozen": replace(pretrained, trained="last stage", rate=FROZEN_RATE[task]),
        "pretrained, last layer": head,
    }
    if task != DIGITS:
        plain = replace(scratch, epsilon=None, batch=64, epochs=6, rate=0.02)
        table = {"not private, from scratch": plain, **table}
    if task == LETTERS:
        table["pretrained, last layer, all data in a step"] = replace(head, batch=None, epochs=20, rate=8.0)
    if task == FOLDERS:
        table["pretrained, first layers frozen, as in the paper"] = replace(
            pretrained, trained="last stage", batch=PAPER_BATCH, epochs=70, rate=None
        )
    return {f"{task}: {name}": row for name, row in table.items()}


def cell(name: str, seed: int, folder: Path, quick: bool, data: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    row = ROWS[name]
    task = TASKS[row.dataset](data)
    steps = QUICK_STEPS if quick else None
    plan = plan_of(row, network(task.train), len(task.train))

    def model() -> nn.Module:
        fresh = network(task.train)
        if row.pretrained:
            public = public_plan(len(task.public), *PUBLIC[row.dataset], steps)
            kept = "".join(c if c.isalnum() else "-" for c in row.dataset.lower())
            transfer_weights(fresh, public_weights(task.public, public, folder.parent / f"public-{kept}"))
        return fresh

    fit(plan, model, task.private(pretrained=row.pretrained), task.test, seed=seed, folder=folder, steps=steps)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """The rows, under names that the data set need not be part of."""
    return [{**row, "method": row["method"].split(": ", 1)[1]} for row in table_of(ROWS, place, seeds, quick)]


GIVEN = any(word == "--data" or word.startswith("--data=") for word in sys.argv)
ROWS = rows_of(FOLDERS) if GIVEN else rows_of(LETTERS) | rows_of(DIGITS)

if __name__ == "__main__":
    cells.main(Path(__file__).resolve().parent, list(ROWS), cell, table, data="optional")
