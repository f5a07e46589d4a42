"""Parts of single examples, chosen in a way that moves no other record.

An example with a name of its own (a picture's path in its folder) goes where a hash of the name sends it
(`sfumato.data.parts`). One without goes by its position: a record more or less at the end changes what is trained on by
that one record, in the middle it moves others, and the training part says so in `assumptions`.

>>> from sfumato.data.examples.arrays import examples_from_arrays
>>> data = examples_from_arrays(range(1000), [0] * 1000, num_classes=2)
>>> parts = split_examples(data, test=0.2, validation=0.1, seed=0)
>>> [len(part) for part in parts]
[681, 106, 213]
>>> len(parts.train.assumptions)
1
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.parts import Selection, divide


@dataclass(frozen=True, kw_only=True)
class ExampleSplit:
    """Three disjoint parts that are the whole together; a part may be empty.

    Attributes:
        train: what may be learned from.
        validation: for choosing settings.
        test: for the numbers that are reported.
        places: of the training part in the whole, int64.
    """

    train: ExampleDataset
    validation: ExampleDataset
    test: ExampleDataset
    places: np.ndarray

    def __iter__(self) -> Iterator[ExampleDataset]:
        """Train, validation, test."""
        return iter((self.train, self.validation, self.test))


def split_examples(
    dataset: ExampleDataset,
    *,
    test: Selection = 0.2,
    validation: Selection = 0,
    seed: int = 0,
    by_names: bool = True,
) -> ExampleSplit:
    """Divide examples at random; each part keeps the order of the whole.

    Args:
        dataset: what to divide.
        test: the share of examples for the test, in [0, 1): each goes there with that probability. Or their names or
            positions.
        validation: the same for validation.
        seed: public; not the seed of the training.
        by_names: shares go by the examples' names where they have some; False goes by position, for names that tell
            what is to be hidden.

    Raises:
        InputError: a share is out of range, an example is in two parts, or nothing is left to train on.
    """
    names = names_of(dataset) if by_names else None
    division = divide(len(dataset), names, "example", test=test, validation=validation, seed=seed)
    train, validation_part, test_part = (
        replace(view, assumptions=(*view.assumptions, *division.assumptions))
        for view in map(dataset.subset, division.parts)
    )
    return ExampleSplit(train=train, validation=validation_part, test=test_part, places=division.parts[0])


def order_of_content(dataset: ExampleDataset) -> np.ndarray | None:
    """An order of pictures that their folders do not decide, int64 [N]; None where nothing but positions is known.

    In one folder a class, order and names tell the label. This order follows from the pictures; only exact copies of
    one picture keep theirs.
    """
    digests = getattr(dataset.inputs[0], "digests", None)
    return None if digests is None else np.lexsort(np.asarray(digests).T[::-1])


def names_of(dataset: ExampleDataset) -> Sequence[str] | None:
    """The examples' own names, where their inputs have some, as pictures in a folder do; else None."""
    return getattr(dataset.inputs[0], "names", None)
