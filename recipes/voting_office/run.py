"""Nearest neighbours that vote across domains, beside noisy gradients: Office-Caltech10 and digits.

The server has public pictures of one domain without labels; agents hold parts of the other domains. kNN-DPFL
protects one record: agents vote by their nearest records in public features, and a linear student learns from the noisy
answers. Beside it, at the same budget for one record, a linear model by DP-SGD on the records of all agents, which is
DP-FedSGD where every agent's records are sampled and clipped one by one; and FedSGD for a whole agent, which promises
more. All are measured on other pictures of the server's domain. See README.md.
"""

import dataclasses
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import torch
from sklearn.datasets import load_digits
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato._files import read_json
from sfumato.central import DPSGD
from sfumato.data import (
    ExampleDataset,
    UserDataset,
    examples_from_arrays,
    examples_from_users,
    from_arrays,
    to_tensor,
)
from sfumato.federated import FedSGD
from sfumato.models import features_of, imagenet_features
from sfumato.training import Cadence
from sfumato.voting import KNNDPFL

FOLDER = Path(__file__).resolve().parent
OFFICE = ("amazon", "Caltech10", "dslr", "webcam")
DIGITS = ("MNIST", "MNIST-M", "scikit-learn digits")
CLASSES, NEIGHBOURS, RECORDS = 10, 8, 50
EPSILONS = (1.0, 8.0)
MOST = 2000  # pictures of a domain of digits

# Fixed before any of them was run, and the same for all domains.
KNN = KNNDPFL(
    neighbours=NEIGHBOURS,
    distance="cosine",
    few_records="share",
    opens="counts",
    student_epochs=100,
    student_optimizer="adam",
    student_learning_rate=0.01,
)
SGD = DPSGD(epochs=40, batch_size=256, clip_norm=1.0, learning_rate=2.0)
FEDSGD = FedSGD(rounds=60, clients_per_round=10, clip_norm=1.0, loss="cross_entropy", server_learning_rate=1.0)

METHODS: dict[str, tuple[Any, float]] = {
    # What the votes can tell at best: the noise is next to nothing, and so is the promise.
    "kNN-DPFL, hardly any noise": (KNN, 10_000.0),
    **{
        f"{title}, ε {epsilon:g}": (plan, epsilon)
        for epsilon in EPSILONS
        for title, plan in (
            ("kNN-DPFL", KNN),
            ("DP-FedSGD of single records (DP-SGD)", SGD),
            ("FedSGD, an agent", FEDSGD),
        )
    },
}


def office(domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of visual words, each brought to length 1 after its root was taken; classes 0 … 9."""
    found = scipy.io.loadmat(cells.SHARED / "office_caltech10_surf" / f"{domain}_SURF_L10.mat")
    counts = found["fts"].astype(np.float32)
    roots = np.sqrt(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    return roots, found["labels"].reshape(-1).astype(np.int64) - 1


def digits(domain: str) -> tuple[np.ndarray, np.ndarray]:
    """SqueezeNet's features of up to 2,000 digits, each picture by itself."""
    if domain == "scikit-learn digits":
        found = load_digits()
        pictures, labels = np.rint(found.images * (255 / 16)).astype(np.uint8)[..., None], found.target
    else:
        with np.load(cells.SHARED / ("mnist.npz" if domain == "MNIST" else "mnist_m.npz")) as arrays:
            pictures, labels = arrays["x_train"][:MOST], arrays["y_train"][:MOST]
        pictures = pictures[..., None] if pictures.ndim == 3 else pictures
    network = imagenet_features(cells.SHARED / "squeezenet1_0_imagenet.safetensors")
    rows = features_of(network, to_tensor(pictures))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels.astype(np.int64).reshape(-1)


@cache
def domain_of(name: str, kept: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes of a domain; those of pictures are kept in the folder of the runs."""
    if name in OFFICE:
        return office(name)
    file = kept / f"{name.replace(' ', '-')}.npz"
    if not file.exists():
        rows, labels = digits(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, rows=rows, labels=labels)
        part.replace(file)
    with np.load(file) as found:
        return found["rows"], found["labels"]


def world(server: str, kept: Path) -> tuple[UserDataset, ExampleDataset, ExampleDataset]:
    """Agents of the other domains, the server's pool, and its test: two halves of one domain, by a public seed."""
    rng = np.random.default_rng(0)
    inputs, labels, owners = [], [], []
    for name in OFFICE if server in OFFICE else DIGITS:
        if name == server:
            continue
        rows, classes = domain_of(name, kept)
        order = rng.permutation(len(rows))
        inputs.append(rows[order])
        labels.append(classes[order])
        owners += [f"{name} {place // RECORDS}" for place in range(len(rows))]
    names = [f"class {c}" for c in range(CLASSES)]
    agents = from_arrays(np.concatenate(inputs), np.concatenate(labels), owners, label_names=names)
    rows, classes = domain_of(server, kept)
    order = rng.permutation(len(rows))
    half = len(rows) // 2
    pool, test = (
        examples_from_arrays(rows[part], classes[part], num_classes=CLASSES) for part in (order[:half], order[half:])
    )
    return agents, pool, test


def title_of(server: str) -> str:
    kind = "Office-Caltech10" if server in OFFICE else "digits"
    return f"{kind}, the server has {server}"


def cell(name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
    """One method with one seed on every domain."""
    base, epsilon = METHODS[name]
    for server in OFFICE if quick else (*OFFICE, *DIGITS):
        place = folder / server.replace(" ", "-")
        if (place / "evaluation.json").exists():
            continue
        agents, pool, test = world(server, folder.parent)
        fit(dataclasses.replace(base, seed=seed), epsilon, agents, pool, test, place, quick=quick)


def fit(
    plan: Any,
    epsilon: float,
    agents: UserDataset,
    pool: ExampleDataset,
    test: ExampleDataset,
    place: Path,
    *,
    quick: bool,
) -> None:
    """Run one plan, its noise set for the budget."""
    torch.manual_seed(plan.seed)
    model = nn.Linear(agents.input_shape[0], CLASSES)
    # The same δ for all: one in a hundred times the records.
    delta = 0.01 / agents.num_examples
    if isinstance(plan, KNNDPFL):
        different = len(np.unique(np.asarray(pool.inputs[0][np.arange(len(pool))]), axis=0))  # copies are asked once
        plan = dataclasses.replace(plan, queries=min(500, different))
        plan = plan.calibrate(epsilon=epsilon, delta=delta, population=agents.num_examples)
        plan.fit(agents, pool, "pixels", student=model, test=test, out=place)
        return
    if isinstance(plan, DPSGD):
        plan = dataclasses.replace(plan, epochs=2) if quick else plan
        plan = plan.calibrate(epsilon=epsilon, delta=delta, population=agents.num_examples)
        plan.fit(model, examples_from_users(agents), out=place, test=test, cadence=Cadence(checkpoint_every=100))
        return
    plan = dataclasses.replace(plan, rounds=2) if quick else plan
    plan = plan.calibrate(epsilon=epsilon, delta=delta, population=len(agents))
    users = from_arrays(test.inputs[0][np.arange(len(test))], test.targets, ["server"] * len(test), agents.label_names)
    plan.fit(model, agents, out=place, test=users, cadence=Cadence(checkpoint_every=100))


def table(place: Callable[[str, int], Path], seeds: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of every domain: accuracy on the server's other pictures."""
    rows = []
    for server in OFFICE if quick else (*OFFICE, *DIGITS):
        for name in METHODS:
            folders = [place(name, seed) / server.replace(" ", "-") for seed in range(seeds)]
            found = [read_json(folder / "evaluation.json")["trained"]["accuracy"] for folder in folders]
            statement = read_json(folders[0] / "statement.json")
            rows.append(
                {
                    "method": name,
                    "dataset": title_of(server),
                    "metric": "accuracy",
                    **cells.mean_and_std(found),
                    "seeds": seeds,
                    "epsilon": statement["epsilon"],
                    "delta": statement["delta"],
                    "unit": statement["unit"],
                    "paper": None,
                }
            )
    return rows


if __name__ == "__main__":
    cells.main(FOLDER, list(METHODS), cell, table)
