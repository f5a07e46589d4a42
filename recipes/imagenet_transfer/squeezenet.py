"""Private training from ImageNet's weights: SqueezeNet → MNIST-M, and → the alphabets of Omniglot.

    squeezenet.py [--quick] [--seeds N] [--jobs N] [--out DIR]

Writes squeezenet.json. What is frozen is computed once for each run (`prefix_cache`). See squeezenet.md.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells
from cells import SHARED
from classifier_recipe import fit
from classifier_recipe import table as table_of
from imagenet_classifier import ImageNetClassifier, imagenet_classifier
from tasks import LAST_DRAWERS, alphabets

from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, open_examples

FOLDER, RESULTS = Path(__file__).resolve().parent, "squeezenet.json"
WEIGHTS = SHARED / "squeezenet1_0_imagenet.safetensors"
SIDE = 48
DELTA = 1e-5
EPSILONS = (1.0, 2.0, 8.0)
QUICK_STEPS, QUICK_PICTURES = 2, 64
TRAINED = {"all": "all", "last blocks": "last_blocks:2+last", "head": "last"}
CLASSES = 10
PUBLIC = (
    "The model starts from weights that were trained without privacy on ImageNet: its pictures are assumed to be "
    "public, and none of the private records is among them."
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell of the table, but for the seed.

    Attributes:
        dataset: the private data, under their name in the table.
        pretrained: start from ImageNet's weights.
        trained: "all", "last blocks" (the last two fire modules and the linear layer) or "head".
        epsilon: budget for one picture at δ = 10⁻⁵.
        batch: expected pictures a step; None for all of them.
        steps: how many.
        rate: learning rate.
        paper: no published accuracy is of this setting.
    """

    dataset: str
    pretrained: bool
    trained: str
    epsilon: float
    batch: int | None
    steps: int
    rate: float
    paper: None = None


def mnist_m() -> tuple[ExampleDataset, ExampleDataset]:
    """6,000 digits over photographs, and 9,001 for testing."""
    file = SHARED / "mnist_m.npz"
    return open_examples(file, num_classes=CLASSES), open_examples(file, part="test", num_classes=CLASSES)


def omniglot() -> tuple[ExampleDataset, ExampleDataset]:
    """Which of ten alphabets a letter is of; the last four drawers are for testing."""
    return alphabets(range(1, LAST_DRAWERS[0])), alphabets(LAST_DRAWERS)


COLOURS, LETTERS = "ImageNet → 6,000 digits of MNIST-M", "ImageNet → ten alphabets of Omniglot"
DATA: dict[str, Callable[[], tuple[ExampleDataset, ExampleDataset]]] = {COLOURS: mnist_m, LETTERS: omniglot}
METHODS = {
    "scratch": {"pretrained": False, "trained": "all", "batch": 1024, "steps": 24, "rate": 0.5},
    "features + linear": {"pretrained": True, "trained": "head", "batch": 1024, "steps": 60, "rate": 2.0},
    "features + linear, all data in a step": {
        "pretrained": True,
        "trained": "head",
        "batch": None,
        "steps": 40,
        "rate": 4.0,
    },
    "last blocks": {"pretrained": True, "trained": "last blocks", "batch": 1024, "steps": 24, "rate": 0.5},
    "all": {"pretrained": True, "trained": "all", "batch": 1024, "steps": 24, "rate": 0.5},
}
ROWS = {
    f"{data}: {method}: ε = {epsilon:g}": Row(dataset=data, epsilon=epsilon, **setting)
    for data in DATA
    for method, setting in METHODS.items()
    for epsilon in EPSILONS
}


def plan_of(row: Row, population: int) -> DPSGD:
    """The plan of a row for a public number of pictures."""
    plan = DPSGD(
        steps=row.steps,
        cohort=population if row.batch is None else min(row.batch, population),
        server={"learning_rate": row.rate, "momentum": 0.9, "schedule": "cosine"},
        clipping=1.0,
        noise=None,
        trainable=TRAINED[row.trained],
    )
    return plan.calibrate(epsilon=row.epsilon, delta=DELTA, population=population)


def cell(name: str, seed: int, folder: Path, quick: bool, data: Path | None) -> None:
    """Train one row with one seed, or go on with it."""
    row = ROWS[name]
    train, test = DATA[row.dataset]()
    if quick:
        train, test = (each.subset(range(QUICK_PICTURES)) for each in (train, test))
    plan = plan_of(row, len(train))
    if row.pretrained:
        train = replace(train, assumptions=(*train.assumptions, PUBLIC))

    def model() -> ImageNetClassifier:
        return imagenet_classifier(CLASSES, SIDE, WEIGHTS if row.pretrained else None)

    steps = QUICK_STEPS if quick else None
    cache = None if row.trained == "all" else folder.parent / "caches" / folder.name
    fit(plan, model, train, test, seed=seed, folder=folder, steps=steps, prefix_cache=cache)


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """The rows, a column for each ε; those whose runs are not all here stay as they are in squeezenet.json."""
    shown = []
    kept = cells.kept_rows(None if quick else FOLDER / RESULTS, ("dataset", "method", "epsilon_wanted"))
    for name, row in ROWS.items():
        method = name.split(": ")[1]
        files = (place(name, seed) / "evaluation.json" for seed in range(seeds))
        before = cells.row_before(kept, (row.dataset, method, row.epsilon), files)
        if before is not None:
            shown.append(before)
            continue
        (found,) = table_of({name: row}, place, seeds, quick)
        shown.append({**found, "method": method, "epsilon_wanted": row.epsilon})
    return shown


if __name__ == "__main__":
    cells.main(FOLDER, list(ROWS), cell, table, results=RESULTS)
