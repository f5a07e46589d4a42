"""Parts of single examples, chosen by a public seed in a way that moves no other record.

A record's place in the order comes from the seed and its position alone. So a record more or less, at the end, changes
what is trained on by that one record, and the guarantee for the training part holds for the whole collection too. (A
shuffle of all N positions would send other records elsewhere when N changes.)

>>> from sfumato.data.examples.arrays import examples_from_arrays
>>> data = examples_from_arrays(np.arange(1000.0), np.zeros(1000, int), num_classes=2)
>>> parts = split_examples(data, test=200, validation=0.1, seed=0)
>>> [len(part) for part in parts]
[723, 77, 200]
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfumato._check import InputError, between, whole
from sfumato._random import RandomSource
from sfumato.data.examples.dataset import ExampleDataset


@dataclass(frozen=True, kw_only=True)
class ExampleSplit:
    """Three disjoint parts that are the whole together; a part may be empty.

    Attributes:
        train: what may be learned from.
        validation: for choosing settings.
        test: for the numbers that are reported.
    """

    train: ExampleDataset
    validation: ExampleDataset
    test: ExampleDataset

    def __iter__(self) -> Iterator[ExampleDataset]:
        """Train, validation, test."""
        return iter((self.train, self.validation, self.test))


def split_examples(
    dataset: ExampleDataset, *, test: int | float = 0.2, validation: int | float = 0, seed: int = 0
) -> ExampleSplit:
    """Divide examples at random; each part keeps the order of the whole.

    Args:
        dataset: what to divide.
        test: a whole number of examples, or a share below 1 (a float): each example goes there with that probability.
        validation: the same, of what test leaves.
        seed: public; not the seed of the training.

    Raises:
        InputError: a number is out of range, or nothing is left to train on.
    """
    whole(seed=seed, at_least=0)
    source = RandomSource.from_seed(seed)
    left = np.arange(len(dataset))
    parts = []
    for name, amount in (("test", test), ("validation", validation)):
        keys = source.stream("examples", name).uniform(len(dataset))[left]
        chosen = _chosen(keys, amount, name)
        parts.append(left[chosen])
        left = left[~chosen]
    if len(left) == 0:
        raise InputError(
            f"{len(dataset):,} examples cannot be divided into test={test} and validation={validation} "
            "with one left to train on; take fewer"
        )
    return ExampleSplit(train=dataset.subset(left), validation=dataset.subset(parts[1]), test=dataset.subset(parts[0]))


def _chosen(keys: np.ndarray, amount: int | float, name: str) -> np.ndarray:
    """Which records are in a part, boolean [n]: those with the smallest keys."""
    if isinstance(amount, float | np.floating):
        between(0, 1, ends="[)", remedy="a whole number is a count, a float below 1 a share", **{name: amount})
        return keys < amount
    if isinstance(amount, bool) or not isinstance(amount, int | np.integer) or amount < 0:
        raise InputError(f"{name} must be a whole number >= 0, or a share below 1, got {amount}")
    chosen = np.zeros(len(keys), bool)
    chosen[np.argsort(keys, kind="stable")[:amount]] = True
    return chosen
