"""Public pictures to learn from without privacy, and private ones to learn with it.

MNIST → Omniglot's letters, Omniglot's letters → MNIST, or any two folders of pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cells import SHARED

from sfumato._check import InputError
from sfumato.data import ExampleDataset, examples_from_arrays, open_examples, split_examples
from sfumato.data.files import read_npz

ALPHABETS = 10
DIGITS = 6_000
LAST_DRAWERS = (17, 18, 19, 20)
SHARE = 0.2  # of a folder that is not divided


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one table is about.

    Attributes:
        public: what the weights come from; none of it is private.
        public_name: what it is called in the statement.
        train: the private examples.
        test: examples that no one trained on, not for choosing settings.
    """

    public: ExampleDataset
    public_name: str
    train: ExampleDataset
    test: ExampleDataset

    def private(self, *, pretrained: bool) -> ExampleDataset:
        """The private examples; with the assumption that a start from public weights makes."""
        if not pretrained:
            return self.train
        said = (
            f"The model starts from weights that were trained without privacy on {self.public_name}: these pictures "
            "are assumed to be public, and none of the private records is among them."
        )
        return replace(self.train, assumptions=(*self.train.assumptions, said))


def letters() -> Task:
    """MNIST → which of ten alphabets a letter is of; the last four drawers are for testing."""
    return Task(
        public=open_examples(SHARED / "mnist.npz", num_classes=10),
        public_name="MNIST's 60,000 training digits",
        train=alphabets(range(1, LAST_DRAWERS[0])),
        test=alphabets(LAST_DRAWERS),
    )


def digits() -> Task:
    """Omniglot's characters → MNIST's first digits; MNIST's own test part is for testing."""
    arrays = read_npz(SHARED / "omniglot_background.npz")
    return Task(
        public=examples_from_arrays(_bright(arrays), arrays["character"].astype(np.int64)),
        public_name="Omniglot's 964 characters",
        train=open_examples(SHARED / "mnist.npz", num_classes=10).subset(np.arange(DIGITS)),
        test=open_examples(SHARED / "mnist.npz", part="test", num_classes=10),
    )


def folders(path: Path | None) -> Task:
    """`path/public/<class>/<picture>` → `path/private/<class>/<picture>`; private/train and private/test if divided."""
    if path is None:
        raise InputError("folders of pictures need --data DIR with DIR/public and DIR/private")
    public, private = open_examples(path / "public"), path / "private"
    if (private / "train").is_dir() and (private / "test").is_dir():
        train, test = open_examples(private), open_examples(private, part="test")
    else:
        train, _, test = split_examples(open_examples(private), test=SHARE, seed=0)
    if public.input_shapes != train.input_shapes:
        shapes = " and ".join("×".join(map(str, data.input_shapes[0])) for data in (public, train))
        raise InputError(f"the public and the private pictures are {shapes}; bring them to one size and one colour")
    return Task(public=public, public_name=f"{path.name}/public", train=train, test=test)


def alphabets(drawers: Sequence[int]) -> ExampleDataset:
    """The letters of the ten largest alphabets by some drawers, bright on dark as MNIST; a class is an alphabet."""
    arrays = read_npz(SHARED / "omniglot_background.npz")
    alphabet = arrays["alphabet"].astype(np.int64)
    largest = np.sort(np.argsort(-np.bincount(alphabet), kind="stable")[:ALPHABETS])
    chosen = np.isin(arrays["drawer"], list(drawers)) & np.isin(alphabet, largest)
    return examples_from_arrays(
        _bright(arrays)[chosen],
        np.searchsorted(largest, alphabet[chosen]),
        label_names=[str(arrays["alphabet_names"][index]) for index in largest],
    )


def _bright(arrays: dict[str, Any]) -> np.ndarray:
    """Ink as 255."""
    return 255 - arrays["images"]
