"""One door to every kind of data: look at what a path holds and open it with the right reader."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from sfumato._check import InputError
from sfumato.data.image_files import LAYOUTS, Labels, OnError, image_size
from sfumato.data.numpy_files import read_npz_keys
from sfumato.data.ratings.duplicates import Duplicates
from sfumato.data.ratings.read import ratings
from sfumato.data.ratings.records import is_movielens
from sfumato.data.readers.emnist import emnist_leaf, emnist_tff
from sfumato.data.readers.image_folder import image_folder
from sfumato.data.readers.omniglot import is_omniglot_folder, is_omniglot_npz, omniglot_folder, omniglot_npz
from sfumato.data.readers.user_arrays import array_file, fitted_dataset
from sfumato.data.store.facts import is_store
from sfumato.data.store.users import open_store
from sfumato.data.tables.load import from_table
from sfumato.data.tables.open import is_table_file, open_source
from sfumato.data.tables.paths import refuse_folder
from sfumato.data.tars.shards import is_tars
from sfumato.data.users.dataset import UserDataset
from sfumato.data.users.glyphs import glyphs

UNDERSTOOD = (
    f"a packed store, {LAYOUTS}, Omniglot (folder or npz), npz with images or inputs, users, labels, "
    "federated EMNIST (.h5 or LEAF's JSON), a table (.parquet, .csv, .tsv, .jsonl, .tar) with a column of users and "
    "one of pictures, of their paths or of numbers, ratings "
    "of MovieLens (folder, zip or file) or a table with columns of users, items and values, or the "
    "word glyphs; for texts say --text characters or words (data.text_users)"
)


def load(
    path: Path | str,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    labels: Labels = "shared",
    progress: Callable[[int, int], None] | None = None,
    *,
    user: str | None = None,
    input: str | None = None,
    label: str | None = None,
    folder: Path | str | None = None,
    item: str | None = None,
    value: str | None = None,
    time: str | None = None,
    items: Path | str | Sequence[object] | None = None,
    value_range: tuple[float, float] | None = None,
    duplicates: Duplicates | None = None,
    on_unknown: Literal["refuse", "skip"] | None = None,
) -> UserDataset:
    """Open any data set that sfumato understands.

    Args:
        path: a packed store; a folder of pictures; Omniglot's folder or npz; an npz file of arrays; a folder of
            federated EMNIST; a table in a file (.parquet, .csv, .tsv, .jsonl) or in tar shards; ratings, as a release
            of MovieLens or a table; or "glyphs" for the embedded data.
        size: side or (height, width) to bring pictures to. A store has the size that it was packed with.
        channels: 1 or 3 to convert pictures to.
        on_error: for pictures in folders and tables: "refuse" or "skip" files that are not readable.
        labels: for folders: "shared" or "per_user" classes.
        progress: called with (done, total) where reading takes a while.
        user, input, label: for tables: columns, see `from_table`; `user` is needed.
        folder: for a table of paths of pictures: where relative ones start; None for the table's own folder.
        item, value, time, items, duplicates, on_unknown: for ratings, see `ratings`; `item` or `value` makes a table
            one of ratings, MovieLens' are known without.
        value_range: for ratings: the lowest and the highest value.

    Raises:
        InputError: there is nothing at `path`, it is none of these, or its reader refuses it.
    """
    place = Path(path)
    named = {"item": item, "value": value, "time": time, "items": items}
    rules = {"value_range": value_range, "duplicates": duplicates, "on_unknown": on_unknown}
    if item is not None or value is not None or (input is None and label is None and is_movielens(place)):
        others = {"size": size, "channels": channels, "input": input, "label": label, "folder": folder}
        for name, given in others.items():
            if given is not None:
                raise InputError(f"{name}={given!r} is for pictures and other tables, {path} has ratings; leave it out")
        low, high = value_range or (None, None)
        return ratings(
            path,
            user=user,
            **named,
            low=low,
            high=high,
            duplicates=duplicates or "refuse",
            on_unknown=on_unknown or "refuse",
            progress=progress,
        )
    for name, given in (named | rules).items():
        if given is not None:
            raise InputError(
                f"{name}={given!r} is for ratings; name their columns too (user, item and value), or leave it out"
            )
    if is_tars(place) or (is_table_file(place) and place.exists()):
        columns = {"input": input, "label": label}
        return _table(place, size, channels, on_error, labels, progress, user=user, **columns, folder=folder)
    if is_table_file(place) and not place.exists():
        raise InputError(f"there is nothing at {path}; give {UNDERSTOOD}")
    for name, value in (("user", user), ("input", input), ("label", label)):
        if value is not None:
            raise InputError(
                f"{name}={value!r} is a column of a table (.parquet, .csv, .tsv, .jsonl, .tar), {path} is none; leave "
                "it out"
            )
    refuse_folder(folder, path)
    if str(path) == "glyphs" and not place.exists():
        return fitted_dataset(glyphs(progress=progress), size, channels)
    if is_store(place):
        return _as_packed(open_store(place), place, size, channels)
    if not place.exists():
        raise InputError(f"there is nothing at {path}; give {UNDERSTOOD}")
    if place.is_dir():
        if any(place.glob("fed_emnist*.h5")):
            return fitted_dataset(emnist_tff(place, progress=progress), size, channels)
        if any(place.glob("train/*.json")) or any(place.glob("*.json")):
            return fitted_dataset(emnist_leaf(place, progress=progress), size, channels)
        if is_omniglot_folder(place):
            dataset = omniglot_folder(place, size=size, on_error=on_error, progress=progress)
            return dataset if channels in (None, 1) else fitted_dataset(dataset, None, channels)
        if any(entry.is_dir() for entry in place.iterdir()):
            return image_folder(place, size, channels, on_error, labels, progress=progress)
    elif place.suffix == ".npz":
        if is_omniglot_npz(read_npz_keys(place)):
            return fitted_dataset(omniglot_npz(place), size, channels)
        return array_file(place, size, channels)
    elif place.suffix in (".h5", ".json"):
        reader = emnist_tff if place.suffix == ".h5" else emnist_leaf
        return fitted_dataset(reader(place, progress=progress), size, channels)
    raise InputError(f"{path} is none of: {UNDERSTOOD}")


def _table(
    path: Path,
    size: int | Sequence[int] | None,
    channels: int | None,
    on_error: OnError,
    labels: Labels,
    progress: Callable[[int, int], None] | None,
    *,
    user: str | None,
    input: str | None,
    label: str | None,
    folder: Path | str | None,
) -> UserDataset:
    """A table as people; who they are must be said."""
    if user is None:
        raise InputError(
            f"{path} is a table: say whose each row is, --user COLUMN or user=, of {open_source(path).has}; or "
            "--text for texts"
        )
    if labels != "shared":
        raise InputError(f"labels={labels!r} is for class folders, {path} is a table; leave it out")
    return from_table(
        path,
        user=user,
        input=input,
        label=label,
        folder=folder,
        size=size,
        channels=channels,
        on_error=on_error,
        progress=progress,
    )


def _as_packed(dataset: UserDataset, path: Path, size: int | Sequence[int] | None, channels: int | None) -> UserDataset:
    """A store as it is; another size than it was packed with is refused."""
    if size is None and channels is None:
        return dataset
    shape = dataset.input_shape
    if dataset.dtype != np.uint8 or len(shape) != 3:
        raise InputError(f"size and channels are for pictures; {path} holds {dataset.dtype} {shape}")
    wanted = (*(shape[:2] if size is None else image_size(size)), shape[2] if channels is None else channels)
    if wanted != shape:
        raise InputError(
            f"the store {path} was packed as {shape[0]}×{shape[1]}×{shape[2]}, asked for "
            f"{wanted[0]}×{wanted[1]}×{wanted[2]}; leave size and channels out, or pack the pictures again with "
            f"--size {' '.join(map(str, wanted[:1] if wanted[0] == wanted[1] else wanted[:2]))} --channels {wanted[2]}"
        )
    return dataset
