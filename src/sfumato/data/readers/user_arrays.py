"""Users in an npz file of arrays, and pictures in memory brought to one size."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.image_files import fitted
from sfumato.data.numpy_files import read_npz
from sfumato.data.strings import Strings
from sfumato.data.users.arrays import from_arrays
from sfumato.data.users.dataset import UserDataset


def array_file(path: Path | str, size: int | Sequence[int] | None = None, channels: int | None = None) -> UserDataset:
    """An npz file of arrays: `images` or `inputs` [n, …], `users` [n], and `labels` [n].

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, and an array that is
    there twice. Counted in `notes`: names that differ only in case, blanks, zeros or Unicode form, and names such as
    `NA` that often stand for a missing one. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        path: the file. Without `labels` each user is a class.
        size: side or (height, width) to scale pictures to.
        channels: 1 or 3 to convert pictures to.

    Raises:
        InputError: the file is missing, damaged, or has other keys, or its arrays do not fit together.
    """
    arrays = read_npz(path)
    inputs = arrays.get("inputs", arrays.get("images"))
    if inputs is None or "users" not in arrays:
        raise InputError(
            f"{path} has the keys {', '.join(arrays)}; needed are images or inputs, users, and labels "
            "(without labels each user is a class)"
        )
    if "inputs" not in arrays and inputs.dtype != np.uint8:
        raise InputError(
            f"{path}: images must be uint8 [n, height, width] or [n, height, width, channels], got {inputs.dtype} "
            f"{inputs.shape}; bring pixels to whole numbers from 0 to 255, or name the array inputs if they are no "
            "pictures"
        )
    users = arrays["users"]
    labels = arrays["labels"] if "labels" in arrays else users.astype(str)
    names = arrays.get("label_names")
    if names is not None and names.ndim != 1:
        raise InputError(f"{path}: label_names must be a list of names, got shape {names.shape}")
    dataset = from_arrays(inputs, labels, users, None if names is None else Strings.from_list(map(str, names)))
    return fitted_dataset(dataset, size, channels)


def fitted_dataset(dataset: UserDataset, size: int | Sequence[int] | None, channels: int | None) -> UserDataset:
    """A data set in memory whose pictures have this size and these channels.

    Raises:
        InputError: the inputs are not pictures.
    """
    if size is None and channels is None:
        return dataset
    if dataset.dtype != np.uint8 or len(dataset.input_shape) != 3:
        raise InputError(f"size and channels are for pictures; these inputs are {dataset.dtype} {dataset.input_shape}")
    return dataset.with_inputs(fitted(np.asarray(dataset.inputs[0 : dataset.inputs.shape[0]]), size, channels))
