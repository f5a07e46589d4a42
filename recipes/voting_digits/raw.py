"""Agents that adapt to the server's digits without the public step that brings all pictures to one format.

    raw.py [--seeds N] [--out DIR]

All pictures are 28×28 and grey: MNIST as it is, MNIST-M's photographs by the mean of their colours, the server's 8×8
counts of ink enlarged. An agent trains on its own records, by itself or while it adapts to the pool (DANN, smoothness
as in VADA, both). Then statistics of batch norm stay, or are taken from the pool (AdaBN). How often are agents right
about 500 of the server's pictures, and how often is the winner of their votes, without noise? No student is trained,
and nothing is released. raw.json holds the results, and raw.md the table.

References:
    Li, Wang, Shi, Liu, Hou: Revisiting Batch Normalization for Practical Domain Adaptation. 2016 (AdaBN).
"""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED, mean_and_std
from run import ADAPTED, RECORDS, RECORDS_M, VOTE, server

from sfumato._files import read_json, write_json
from sfumato._random import RandomSource
from sfumato.data import to_tensor
from sfumato.training.supervised import outputs
from sfumato.voting import DANN

FOLDER = Path(__file__).resolve().parent
AGENTS = 40  # half of them with photographs
SIDE, EDGE = 28, 4  # pixels of a picture, and around the server's digits
MEASURES = ("agents of MNIST", "agents of MNIST-M", "winners of the vote")
ADAPTATIONS = {
    "by itself": None,
    "smooth on the pool": DANN(weight=None, smoothness=0.3),
    "DANN": DANN(weight=1.0),
    "DANN, smooth on the pool": DANN(weight=1.0, smoothness=0.3),
}


def pictures(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Records and labels of each agent, uint8 [n, 28, 28, 1]; first those of MNIST."""
    rng = np.random.default_rng(seed)
    plain, photographs = (np.load(SHARED / name) for name in ("mnist.npz", "mnist_m.npz"))
    edge = (photographs["x_train"].shape[1] - SIDE) // 2
    grey = photographs["x_train"][:, edge : edge + SIDE, edge : edge + SIDE].mean(3).astype(np.uint8)
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for shown, labels, records in (
        (plain["x_train"], plain["y_train"], RECORDS),
        (grey, photographs["y_train"], RECORDS_M),
    ):
        for rows in rng.permutation(len(shown))[: AGENTS // 2 * records].reshape(-1, records):
            found[0].append(shown[rows][..., None])
            found[1].append(labels[rows].astype(np.int64))
    return found


def enlarged(counts: np.ndarray) -> np.ndarray:
    """The server's pictures, uint8 [n, 8, 8, 1], at the size of the agents'."""
    inner = torch.from_numpy(counts[..., 0].astype(np.float32))[:, None]
    inner = functional.interpolate(inner, (SIDE - 2 * EDGE, SIDE - 2 * EDGE), mode="bilinear")
    return functional.pad(inner, [EDGE] * 4).byte().permute(0, 2, 3, 1).numpy()


def model() -> nn.Module:
    """Two convolutions and a hidden layer, with batch norm: 106,346 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1568, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10)),
    )


def adapt_statistics(trained: nn.Module, inputs: np.ndarray) -> None:
    """Take the statistics of all batch norm layers from these pictures, in place (AdaBN)."""
    layers = [layer for layer in trained.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over batches
    trained.train()
    with torch.no_grad():
        for rows in to_tensor(inputs).split(300):
            trained(rows)
    trained.eval()


def measured(seed: int, out: Path) -> list[dict[str, Any]]:
    """A row for each way to adapt, of one seed."""
    path = out / f"{seed}.json"
    if path.exists():
        return read_json(path)
    pool = server()[0]
    (shown,), classes = pool.examples(np.arange(len(pool)))
    assert classes is not None
    public = enlarged(np.asarray(shown))
    asked = np.sort(np.random.default_rng(1).permutation(len(public))[: VOTE.queries])
    records, labels = pictures(seed)
    torch.manual_seed(seed)
    begun, rows = model(), []
    for title, adaptation in ADAPTATIONS.items():
        added = None if adaptation is None else adaptation.towards(public)
        settings = VOTE.training if adaptation is None else ADAPTED.training
        votes: dict[str, list[np.ndarray]] = {"": [], ", AdaBN": []}
        for agent, (own, of_own) in enumerate(zip(records, labels, strict=True)):
            trained = settings.fit(begun, own, of_own, source=RandomSource.from_seed(agent), added=added)
            for ending, found in votes.items():
                if ending:
                    adapt_statistics(trained, public)
                found.append(outputs(trained, public[asked]).argmax(1))
        for ending, found in votes.items():
            each = np.stack(found)
            right = (each == classes[asked]).mean(1)
            winners = np.stack([(each == digit).sum(0) for digit in range(10)]).argmax(0)
            half = AGENTS // 2
            rows.append(
                {
                    "method": f"{title}{ending}",
                    MEASURES[0]: float(right[:half].mean()),
                    MEASURES[1]: float(right[half:].mean()),
                    MEASURES[2]: float((winners == classes[asked]).mean()),
                }
            )
            print(seed, *rows[-1].values(), flush=True)
    write_json(path, rows)
    return rows


def main() -> None:
    """All seeds, and the table."""
    parser = argparse.ArgumentParser(description="Domain adaptation on raw pictures.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs") / "voting_digits" / "raw")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = [measured(seed, options.out) for seed in range(options.seeds)]
    rows = [
        {
            "method": each[0]["method"],
            "dataset": f"MNIST and MNIST-M as they are, {AGENTS} agents → digits",
            "metric": "right about the server's pictures",
            "measure": measure,
            **mean_and_std([one[measure] for one in each]),
            "seeds": options.seeds,
            **dict.fromkeys(("epsilon", "delta", "unit", "paper")),
        }
        for each in zip(*found, strict=True)
        for measure in MEASURES
    ]
    write_json(FOLDER / "raw.json", rows)


if __name__ == "__main__":
    main()
