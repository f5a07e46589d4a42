"""Ratings as single examples, for training that hides one rating: who rated what goes in, the value is the label.

>>> from sfumato.data.users.arrays import from_arrays
>>> films = from_arrays([[7], [8], [7]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"])
>>> data = examples_from_ratings(films)
>>> data, data.examples([2])[0][0].tolist()
(ExampleDataset(3 examples of (2,) int64, a number each), [[7, 1]])
>>> examples_from_ratings(films, classes=[1, 2, 3, 4, 5]).targets.tolist()  # 3.5, the last one, goes up
[0, 4, 3]
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sfumato._check import InputError
from sfumato.data.domain import ITEMS
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import examples_from_users
from sfumato.data.ratings.user_column import with_user_column
from sfumato.data.strings import Strings
from sfumato.data.users.dataset import UserDataset


def examples_from_ratings(ratings: UserDataset, *, classes: Sequence[object] | None = None) -> ExampleDataset:
    """Each rating as an example of its own.

    Args:
        ratings: of `sfumato.data.ratings`, or a part of them; users keep their numbers.
        classes: makes the values classes: each goes to the nearest of these public numbers, the upper one of two. None
            leaves them numbers.

    Returns:
        inputs int64 [n, 2], the numbers of item and user, of which `vocabulary_sizes` tells how many there are; targets
        float32 [n], or int64 [n].

    Raises:
        InputError: the data are no ratings, or the classes are not two or more numbers in ascending order.
    """
    if not ratings.of_values or ratings.input_shape != (1,):
        raise InputError(f"needed are ratings of items by users, got {ratings}; read them with sfumato.data.ratings")
    found = examples_from_users(with_user_column(ratings))
    items = int(np.max(ratings.inputs[:])) + 1 if ratings.item_names is None else len(ratings.item_names)
    public = "Who rated which item is public, and so is how many ratings there are: only their values are labels."
    data = replace(
        found,
        vocabulary_sizes=(items, len(ratings.offsets) - 1),
        columns=(("item", "user"),),
        assumptions=(*found.assumptions, public),
        found=tuple(each for each in found.found if each != ITEMS),  # who rated what is public here
    )
    return data if classes is None else _of_classes(data, classes)


def _of_classes(data: ExampleDataset, classes: Sequence[object]) -> ExampleDataset:
    try:
        values = np.array(list(classes), np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the classes of ratings must be numbers, got {', '.join(map(str, classes))}") from None
    if len(values) < 2 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
        given = ", ".join(f"{value:g}" for value in values)
        raise InputError(f"the classes of ratings must be two or more ascending numbers, got {given}; as 1 2 3 4 5")
    assert data.targets is not None
    middles = (values[1:] + values[:-1]) / 2
    return replace(
        data,
        targets=np.searchsorted(middles, data.targets, side="right").astype(np.int64),
        num_classes=len(values),
        label_names=Strings.from_list([f"{value:g}" for value in values]),
    )
