"""One way in for every kind of data: look at what a path holds and open it with the right reader.

Public examples without labels: pictures in one folder, arrays, or a column of a table.

>>> import tempfile
>>> import numpy as np
>>> with tempfile.TemporaryDirectory() as folder:
...     np.savez(Path(folder) / "pool.npz", x=np.zeros((5, 8, 8), np.uint8))
...     unlabelled(Path(folder) / "pool.npz")
ExampleDataset(5 examples of (8, 8, 1) uint8, no targets)
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.examples import ExampleDataset, examples_from_arrays, examples_from_users
from sfumato.data.files import MissingPart, Part, mapped, read_npz, read_npz_keys
from sfumato.data.gather import examples_from_table, from_table, opens_texts
from sfumato.data.glyphs import glyphs
from sfumato.data.picture_paths import refuse_folder
from sfumato.data.pictures import LAYOUTS, Labels, OnError, image_size
from sfumato.data.ratings import examples_from_ratings, ratings
from sfumato.data.readers.arrays import (
    INPUTS,
    array_file,
    fitted_dataset,
    idx_images,
    is_idx_folder,
    npy_examples,
    npz_examples,
)
from sfumato.data.readers.delimited import is_delimited
from sfumato.data.readers.emnist import emnist_leaf, emnist_tff
from sfumato.data.readers.folders import CACHE_BYTES, checked_pictures, class_folder, image_folder
from sfumato.data.readers.movielens import Duplicates, is_movielens
from sfumato.data.readers.omniglot import is_omniglot_folder, is_omniglot_npz, omniglot_folder, omniglot_npz
from sfumato.data.readers.schema_tables import is_table, table
from sfumato.data.readers.tables import is_parquet_folder, is_table_file, open_source
from sfumato.data.readers.tars import is_tars
from sfumato.data.readers.texts import looks_like_text, text_csv
from sfumato.data.store.opened import open_examples, open_store
from sfumato.data.store.seal import is_store
from sfumato.data.text import Tokenizer
from sfumato.data.users import UserDataset

# One door to every kind of data: look at what a path holds and open it with the right reader.


USERS_UNDERSTOOD = (
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
        raise InputError(f"there is nothing at {path}; give {USERS_UNDERSTOOD}")
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
        raise InputError(f"there is nothing at {path}; give {USERS_UNDERSTOOD}")
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
    raise InputError(f"{path} is none of: {USERS_UNDERSTOOD}")


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


# One door to every kind of data for training by example: look at what a path holds and open it.


EXAMPLES_UNDERSTOOD = (
    "a folder of pictures FOLDER/<class>/<picture>, a packed store, MNIST's idx files, .npz or a folder of .npy with "
    "x_train and y_train (or x, y or inputs, labels), .csv or .tsv of class and text, .csv or .parquet with a schema, "
    "a table (.parquet, .csv, .tsv, .jsonl, .tar) with input (pictures, their paths, numbers or texts) and label, "
    "ratings of MovieLens (folder, zip or file), "
    "or the word glyphs"
)


def load_examples(
    path: Path | str,
    part: Part = "train",
    *,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    classes: bool = True,
    num_classes: int | None = None,
    label_values: Sequence[object] | None = None,
    vocabulary: int | Path | str = 1 << 15,
    length: int = 128,
    schema: Mapping[str, Any] | Path | str | None = None,
    input: str | Sequence[str] | None = None,
    label: str | None = None,
    folder: Path | str | None = None,
    store: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Open any data set that sfumato understands, one example a record.

    Args:
        path: see `UNDERSTOOD`.
        part: "train" or "test", where the data come divided; else "train" is all, for `split_examples`.
        size: for pictures in folders and tables: side or (height, width) to bring them to.
        channels: for pictures in folders and tables: 1 or 3.
        on_error: for pictures in folders and tables: "refuse" or "skip" files that are not readable.
        classes: for arrays: whether whole numbers are classes; False takes them as numbers.
        num_classes: for arrays and idx files: number of classes, declared.
        label_values: for texts and folders: the classes, declared. For ratings: numbers that they are brought to, each
            of which is a class.
        vocabulary: for texts: number of ids to hash into, or a public file of tokens.
        length: for texts: ids a text.
        schema: for tables: what is public about the columns.
        input, label: for tables without a schema: columns, see `examples_from_table`; texts are turned into ids by
            `vocabulary` and `length`.
        folder: for such a table of paths of pictures: where relative ones start; None for the table's own folder.
        store: for texts and tables: a new folder to keep the numbers in, so that memory does not grow with the data.
        progress: called with (done, total or 0) where reading takes a while.

    Raises:
        InputError: there is nothing at `path`, it is none of these, or its reader refuses it.
    """
    one_of(("train", "test"), part=part)
    place = Path(path)
    if str(path) == "glyphs" and not place.exists():
        if part != "train":
            raise MissingPart("glyphs are not divided into train and test; use part='train' and divide them by a seed")
        return examples_from_users(load("glyphs", size, channels, progress=progress))
    if is_tars(place) or (is_table_file(place) and any(each is not None for each in (input, label, folder))):
        if part != "train":
            raise MissingPart(f"{path} is not divided into train and test; use part='train' and divide it by a seed")
        if schema is not None:
            raise InputError(f"give a schema for {path}, or input and label, not both")
        texts = opens_texts(place, input, folder)
        return examples_from_table(
            place,
            input=input,
            label=label,
            folder=folder,
            classes=classes,
            num_classes=num_classes,
            label_names=None if label_values is None else [str(value) for value in label_values],
            tokenize=Tokenizer(vocabulary, length) if texts else None,
            size=size,
            channels=channels,
            on_error=on_error,
            store=store,
            progress=progress,
        )
    if schema is None and is_movielens(place):
        if part != "train":
            raise MissingPart(f"{path} is not divided into train and test; use part='train' and divide it by a seed")
        return examples_from_ratings(ratings(place, progress=progress), classes=label_values)
    if not place.exists():
        raise InputError(f"there is nothing at {path}; give {EXAMPLES_UNDERSTOOD}")
    for name, value in (("input", input), ("label", label)):
        if value is not None:
            raise InputError(
                f"{name}={value!r} is a column of a table (.parquet, .csv, .tsv, .jsonl, .tar), {path} is none; leave "
                "it out"
            )
    refuse_folder(folder, path)
    loose = place.is_dir() and not is_store(place) and not is_parquet_folder(place)
    idx = loose and is_idx_folder(place)
    pictures = loose and not idx and not any(place.glob("*.npy"))
    # What would not be read is named: who gives it believes that it does something.
    if schema is not None and not is_table(place):
        raise InputError(f"schema is for tables (.csv, .tsv, .parquet), {place} is none; leave it out")
    for name, value in (("size", size), ("channels", channels)):
        if value is not None and not pictures:
            raise InputError(f"{name} is for folders of pictures, {place} is none; leave it out")
    if pictures:
        names = None if label_values is None else [str(value) for value in label_values]
        return class_folder(place, part, size, channels, on_error, label_names=names, progress=progress)
    if idx:
        return idx_images(place, part, num_classes=num_classes)
    if loose:
        return npy_examples(place, part, classes=classes, num_classes=num_classes)
    if place.suffix.lower() == ".npz":
        return npz_examples(place, part, classes=classes, num_classes=num_classes)
    if part != "train":
        raise MissingPart(f"{path} is not divided into train and test; use part='train' and divide it by a seed")
    if is_store(place):
        return open_examples(place)
    if not is_table(place):
        raise InputError(f"{path} is none of: {EXAMPLES_UNDERSTOOD}")
    if schema is not None:
        return table(place, schema, store=store, progress=progress)
    if not is_delimited(place) or not looks_like_text(place):
        raise InputError(
            f"{path} is a table: name its columns (--input COLUMN --label COLUMN), or give a schema (--schema FILE) "
            "that says what is public about each of them (numeric with low and high, category with buckets or values, "
            "label, target, count, drop); texts without names need a class first and then words in each row"
        )
    return text_csv(
        place, vocabulary=vocabulary, length=length, label_values=label_values, store=store, progress=progress
    )


UNLABELLED_UNDERSTOOD = (
    "a folder of pictures, an npz or npy file of inputs, or a table (.parquet, .csv, .tsv, .jsonl) with input"
)


def unlabelled(
    path: Path | str,
    *,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    input: str | None = None,
    folder: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Examples without targets.

    Args:
        path: see `UNDERSTOOD`.
        size, channels, on_error: for pictures, see `class_folder`.
        input: for a table: the column.
        folder: for a table of paths of pictures: where relative ones start, see `from_table`.
        progress: called with (done, total).

    Raises:
        InputError: there is nothing at `path`, it is none of these, or a file of it is refused.
    """
    place = Path(path)
    if is_table_file(place):
        return examples_from_table(
            place, input=input, folder=folder, size=size, channels=channels, on_error=on_error, progress=progress
        )
    refuse_folder(folder, path)
    if place.is_dir():
        found = checked_pictures(
            place,
            sorted(file.name for file in place.iterdir() if file.is_file() and not file.name.startswith(".")),
            fit=None if size is None else image_size(size),
            channels=channels,
            on_error=on_error,
            cache_bytes=CACHE_BYTES,
            layout="FOLDER/<picture>",
            progress=progress,
        )
        notes = (f"{len(found.bad):,} files were skipped, for example {found.bad[0]}",) if found.bad else ()
        return ExampleDataset(inputs=(found.rows,), notes=notes)
    if not place.exists():
        raise InputError(f"there is nothing at {path}; give {UNLABELLED_UNDERSTOOD}")
    if place.suffix.lower() == ".npy":
        return examples_from_arrays(mapped(place))
    if place.suffix.lower() == ".npz":
        arrays = read_npz(place)
        names = [f"{name}{ending}" for ending in ("_train", "") for name in INPUTS]
        found = next((name for name in names if name in arrays), None)
        if found is None:
            raise InputError(f"{path} has {', '.join(sorted(arrays)[:8]) or 'nothing'}; needed is x, inputs or images")
        return examples_from_arrays(arrays[found])
    raise InputError(f"{path} is none of: {UNLABELLED_UNDERSTOOD}")
