"""Ratings with a second column of inputs that says whose each is, for models on a server that know all users."""

import numpy as np

from sfumato.data.users.dataset import UserDataset


def with_user_column(dataset: UserDataset) -> UserDataset:
    """The same ratings with inputs (item, user).

    The user's number is that in the whole data set, so it stays the same in every part of a split.

    Args:
        dataset: inputs [n, columns] of whole numbers.

    Returns:
        inputs int64 [n, columns + 1] in memory.

    >>> from sfumato.data.users.arrays import from_arrays
    >>> films = from_arrays([[7], [8], [7]], labels=[3.5, 1.0, 5.0], users=["bo", "al", "al"])
    >>> with_user_column(films).subset([1]).examples(0)[0].tolist()
    [[7, 1]]
    """
    rows = np.asarray(dataset.inputs[0 : dataset.inputs.shape[0]], np.int64)
    users = np.repeat(np.arange(len(dataset.offsets) - 1), np.diff(dataset.offsets))
    return dataset.with_inputs(np.column_stack([rows, users]))
