"""The domains: what the agents hold, and three parts of the server's domain.

The server's pictures are divided by a public seed: a half is the pool that is asked about, a fifth is for choosing
settings, and the rest is the test.
"""

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import scipy.io
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cells

from sfumato import _check
from sfumato.data import ExampleDataset, UserDataset, examples_from_arrays, from_arrays, to_tensor
from sfumato.models import features_of, imagenet_features

OFFICE = ("amazon", "Caltech10", "dslr", "webcam")
DIGITS = ("MNIST", "MNIST-M", "scikit-learn digits")
CLASSES = 10
MOST = 2000  # pictures of a domain of digits

Scaling = Literal["lengths", "roots", "standardised"]
"""How a record is brought to length 1: as it is; after the root of every entry (Hellinger's distance between
histograms); or after the root and after public numbers of the pool, its means and deviations, which are the same for
all records."""


@dataclass(frozen=True, eq=False)
class World:
    """One server domain: the agents of the others, and its own three parts."""

    agents: UserDataset
    pool: ExampleDataset
    validation: ExampleDataset
    test: ExampleDataset


def office(domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of 800 visual words, and classes 0 … 9."""
    found = scipy.io.loadmat(cells.SHARED / "office_caltech10_surf" / f"{domain}_SURF_L10.mat")
    return found["fts"].astype(np.float32), found["labels"].reshape(-1).astype(np.int64) - 1


def digits(domain: str) -> tuple[np.ndarray, np.ndarray]:
    """SqueezeNet's features of up to 2,000 digits, each picture by itself; none is below 0."""
    if domain == "scikit-learn digits":
        found = load_digits()
        pictures, labels = np.rint(found.images * (255 / 16)).astype(np.uint8)[..., None], found.target
    else:
        with np.load(cells.SHARED / ("mnist.npz" if domain == "MNIST" else "mnist_m.npz")) as arrays:
            pictures, labels = arrays["x_train"][:MOST], arrays["y_train"][:MOST]
        pictures = pictures[..., None] if pictures.ndim == 3 else pictures
    network = imagenet_features(cells.SHARED / "squeezenet1_0_imagenet.safetensors")
    return features_of(network, to_tensor(pictures)), labels.astype(np.int64).reshape(-1)


@cache
def domain_of(name: str, kept: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes of a domain; those of digits are kept in a folder, as a network has to look at each."""
    if name in OFFICE:
        return office(name)
    file = kept / f"{name.replace(' ', '-')}-features.npz"
    if not file.exists():
        rows, labels = digits(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, rows=rows, labels=labels)
        part.replace(file)
    with np.load(file) as found:
        return found["rows"], found["labels"]


def scaled(rows: np.ndarray, scaling: Scaling, pool: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row depends on itself and on the public pool alone.

    Args:
        rows: float [n, features], >= 0.
        scaling: see `Scaling`.
        pool: float [m, features], public.
    """
    _check.one_of(get_args(Scaling), scaling=scaling)
    if scaling != "lengths":
        rows, pool = _to_length_one(np.sqrt(rows)), _to_length_one(np.sqrt(pool))
    if scaling == "standardised":
        deviation = pool.std(axis=0)
        rows = (rows - pool.mean(axis=0)) / (deviation + deviation.mean())  # a word that the pool lacks has none
    return _to_length_one(rows)


def _to_length_one(rows: np.ndarray) -> np.ndarray:
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)


@cache
def world(server: str, kept: Path, *, scaling: Scaling, records: int) -> World:
    """Agents with so many records each, of one of the other domains, and the parts of the server's.

    Args:
        server: the server's domain.
        kept: folder for features of digits.
        scaling: see `Scaling`.
        records: of an agent; what is left of a domain is one more agent.
    """
    rng = np.random.default_rng(0)
    rows, classes = domain_of(server, kept)
    parts = np.split(rng.permutation(len(rows)), [len(rows) // 2, len(rows) * 7 // 10])
    pool = rows[parts[0]]
    inputs, labels, owners = [], [], []
    for name in OFFICE if server in OFFICE else DIGITS:
        if name != server:
            theirs, reported = domain_of(name, kept)
            order = rng.permutation(len(theirs))
            inputs.append(scaled(theirs[order], scaling, pool))
            labels.append(reported[order])
            owners += [f"{name} {place // records}" for place in range(len(theirs))]
    names = [f"class {c}" for c in range(CLASSES)]
    return World(
        from_arrays(np.concatenate(inputs), np.concatenate(labels), owners, label_names=names),
        *(examples_from_arrays(scaled(rows[part], scaling, pool), classes[part], label_names=names) for part in parts),
    )
