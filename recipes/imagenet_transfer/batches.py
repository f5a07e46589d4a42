"""Larger batches at constant steps and constant noise on the mean gradient: ε falls, and accuracy stays.

    batches.py [--quick] [--seeds N] [--jobs N] [--out DIR]

Writes batches.json, for the page batches.md. A linear layer on SqueezeNet's frozen features is trained, as in
squeezenet.py. The noise multiplier is in proportion to the batch, so that all rows add the same noise to the mean
gradient; the batch of squeezenet.py has ε = 8.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import cells
import squeezenet
from classifier_recipe import fit
from classifier_recipe import table as table_of
from imagenet_classifier import ImageNetClassifier, imagenet_classifier
from squeezenet import CLASSES, DATA, PUBLIC, SIDE, WEIGHTS, Row

from sfumato.central import DPSGD

EPSILON, BATCHES = 8.0, (256, 512, 1024, 2048, 4096)
"""Of the batch in the middle; the others."""

METHOD = "features + linear"


def name_of(data: str, batch: int) -> str:
    """What a row is called."""
    return f"{data}: batches of {batch:,}"


ROWS = {
    name_of(data, batch): (Row(dataset=data, epsilon=EPSILON, **squeezenet.METHODS[METHOD]), batch)
    for data in DATA
    for batch in BATCHES
}


@cache
def plan_of(name: str, population: int) -> DPSGD:
    """The plan of a row for a public number of pictures."""
    row, batch = ROWS[name]
    usual = squeezenet.plan_of(row, population)
    assert row.batch is not None
    noise = usual.noise.noise_multiplier
    assert noise is not None
    return usual.replace(cohort=batch, noise=noise * batch / row.batch, delta=squeezenet.DELTA)


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    row, _batch = ROWS[name]
    train, test = DATA[row.dataset]()
    plan = plan_of(name, len(train))
    if quick:
        train, test = (each.subset(range(squeezenet.QUICK_PICTURES)) for each in (train, test))
        plan = plan.replace(cohort=squeezenet.QUICK_PICTURES // 2)
    train = replace(train, assumptions=(*train.assumptions, PUBLIC))

    def model() -> ImageNetClassifier:
        return imagenet_classifier(CLASSES, SIDE, WEIGHTS)

    steps = squeezenet.QUICK_STEPS if quick else None
    cache_folder = folder.parent / "caches" / folder.name
    fit(plan, model, train, test, seed=seed, folder=folder, steps=steps, prefix_cache=cache_folder)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """The rows, with the passes over the data."""
    shown = []
    for name, (row, batch) in ROWS.items():
        (found,) = table_of({name: row}, place, seeds, quick)
        count = len(DATA[row.dataset]()[0])
        shown.append({**found, "method": f"batches of {batch:,}", "passes": round(row.steps * batch / count, 2)})
    return shown


if __name__ == "__main__":
    cells.main(Path(__file__).resolve().parent, list(ROWS), cell, table, results="batches.json")
