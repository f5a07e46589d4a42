"""DP-SGD on MNIST: LeNet-5 without norm layers, with layer norm and with public batch norm; scattering features.

Public batch norm takes its statistics from letters of Omniglot, or from 128 digits that are set aside: they are
declared public, no one trains on them, and they have no guarantee. The paper takes 128 pictures of KMNIST, which is not
at hand. A hybrid has public batch norm after the convolutions and group norm, with one group, after the dense layers.

See README.md. The features of the pictures are computed once and kept in .cache. --quick takes one budget only.
"""

import os
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import SHARED
from classifier_recipe import Method, main

from sfumato import models
from sfumato.central import DPSGD
from sfumato.data import ExampleDataset, examples_from_arrays, open_examples, open_users, to_tensor

ROOT = Path(__file__).resolve().parents[2]
QUICK = "--quick" in sys.argv
# Epsilon: examples a step and steps. Less budget, fewer steps. Chosen like the learning rates below on 10,000 training
# examples held out, one seed; see README.md.
STEPS = {7.0: (1024, 500), 3.0: (1024, 400), 1.0: (1024, 250), 0.5: (1024, 150), 0.1: (1024, 80), 0.05: (1024, 40)}
RATES = {
    "none": (4.0, 4.0, 4.0, 4.0, 4.0, 4.0),
    "layer": (4.0, 4.0, 4.0, 4.0, 4.0, 8.0),
    "public_batch": (4.0, 4.0, 4.0, 4.0, 4.0, 8.0),
    "public_batch_digits": (4.0, 4.0, 4.0, 4.0, 4.0, 8.0),
    "hybrid": (4.0, 4.0, 4.0, 4.0, 4.0, 4.0),
}
PAPER = {  # Davody et al. 2020, table for MNIST and LeNet-5; their batch norm is not private
    "none": (0.9701, 0.9634, 0.9411, 0.9110, 0.8300, 0.7896),
    "layer": (0.9735, 0.9705, 0.9668, 0.9481, 0.8745, 0.7576),
    "public_batch": (0.9868, 0.9818, 0.9761, 0.9683, 0.9068, 0.8815),
    "public_batch_digits": (0.9868, 0.9818, 0.9761, 0.9683, 0.9068, 0.8815),
    "hybrid": (None,) * len(STEPS),
}
TITLES = {
    "none": "LeNet-5",
    "layer": "LeNet-5, layer norm",
    "public_batch": "LeNet-5, public batch norm",
    "public_batch_digits": "LeNet-5, batch norm from 128 public digits",
    "hybrid": "LeNet-5, public batch norm, then group norm",
}
SET_ASIDE = np.linspace(0, 59_999, 128).astype(int)


def mnist(_: Path | None) -> tuple[ExampleDataset, ExampleDataset]:
    """The pictures; few to measure on in a quick table."""
    train, test = open_examples(SHARED / "mnist.npz"), open_examples(SHARED / "mnist.npz", part="test")
    return train, test.subset(range(1_000)) if QUICK else test


@cache
def public_pictures() -> torch.Tensor:
    """128 letters of other alphabets, float [128, 1, 28, 28] in [-1, 1), turned to bright on dark as the digits."""
    letters = open_users(SHARED / "omniglot_background.npz")
    chosen = np.linspace(0, len(letters.labels) - 1, 128).astype(int)
    return to_tensor(255 - np.asarray(letters.inputs[chosen]))


def mnist_but_public(_: Path | None) -> tuple[ExampleDataset, ExampleDataset]:
    """The pictures without the 128 that are declared public."""
    train, test = mnist(None)
    return train.subset(np.setdiff1d(np.arange(len(train)), SET_ASIDE)), test


@cache
def public_digits() -> torch.Tensor:
    """The 128 training digits that no one trains on, float [128, 1, 28, 28] in [-1, 1)."""
    return to_tensor(mnist(None)[0].examples(SET_ASIDE)[0][0])


def features(_: Path | None) -> tuple[ExampleDataset, ExampleDataset]:
    """Scattering features of the pictures, in half precision; a fixed function of each picture."""
    train, test = mnist(None)
    if QUICK:
        train, test = train.subset(range(5_000)), test.subset(range(500))
    return _features_of(train, "train"), _features_of(test, "test")


def _features_of(pictures: ExampleDataset, part: str) -> ExampleDataset:
    file = ROOT / ".cache" / "normalisation_mnist" / f"{part}-{len(pictures)}.npy"
    labels = np.concatenate([labels for _, labels in pictures.batches(4096)])
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        partial_file = file.with_suffix(f".{os.getpid()}.npy")
        model = models.scatternet_linear()
        shape = (len(pictures), *model.transform.feature_shape)
        kept = np.lib.format.open_memmap(partial_file, "w+", np.float16, shape)
        start = 0
        for (inputs,), _ in pictures.batches(1024):
            kept[start : start + len(inputs)] = model.features(to_tensor(inputs)).numpy()
            start += len(inputs)
        kept.flush()
        partial_file.replace(file)
    return examples_from_arrays(np.load(file, mmap_mode="r"), labels, num_classes=10)


def lenet5(norm: str) -> torch.nn.Module:
    """A fresh LeNet-5."""
    if norm == "public_batch":
        return models.lenet5(normalisation="public_batch", public_inputs=public_pictures())
    if norm == "public_batch_digits":
        return models.lenet5(normalisation="public_batch", public_inputs=public_digits())
    if norm == "hybrid":
        model = models.lenet5(normalisation="public_batch", public_inputs=public_pictures())
        model.norm3, model.norm4 = torch.nn.GroupNorm(1, 120), torch.nn.GroupNorm(1, 84)
        return model
    return models.lenet5(normalisation="layer" if norm == "layer" else "none")


def methods() -> dict[str, Method]:
    """The rows."""
    rows = {}
    for norm, title in TITLES.items():
        model = partial(lenet5, norm)
        data = mnist_but_public if norm == "public_batch_digits" else mnist
        plain = DPSGD(epochs=3, cohort=128, server={"learning_rate": 0.05, "momentum": 0.9}, clipping=None, noise=0)
        rows[f"{title}, not private"] = Method(dataset="MNIST", plan=plain, data=data, model=model)
        for (epsilon, (batch, steps)), rate, paper in zip(STEPS.items(), RATES[norm], PAPER[norm], strict=True):
            if QUICK and epsilon != 3.0:
                continue
            plan = DPSGD(steps=steps, cohort=batch, server={"learning_rate": rate}, clipping=0.5)
            rows[f"{title}, ε {epsilon:g}"] = Method(
                dataset="MNIST", plan=plan, data=data, model=model, paper=paper, epsilon=epsilon
            )
        if not QUICK:  # what the smallest budget's few clipped steps reach when nothing is added to them
            batch, steps = STEPS[0.05]
            plan = DPSGD(steps=steps, cohort=batch, server={"learning_rate": RATES[norm][-1]}, clipping=0.5, noise=0)
            rows[f"{title}, not private: the steps of ε 0.05 without noise"] = Method(
                dataset="MNIST", plan=plan, data=data, model=model
            )
    plan = DPSGD(epochs=25, cohort=4096, server={"learning_rate": 4.0, "momentum": 0.9}, clipping=0.1)
    rows["scattering features, linear, ε 3"] = Method(
        dataset="MNIST", plan=plan, data=features, model=models.scatternet_linear, paper=0.987, epsilon=3.0
    )
    return rows


if __name__ == "__main__":
    main(Path(__file__).resolve().parent, methods())
