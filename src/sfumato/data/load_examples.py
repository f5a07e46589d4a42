"""One door to every kind of data for training by example: look at what a path holds and open it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sfumato._check import InputError, one_of
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import examples_from_users
from sfumato.data.examples.tokens import Tokenizer
from sfumato.data.image_files import OnError
from sfumato.data.load_users import load
from sfumato.data.ratings.examples import examples_from_ratings
from sfumato.data.ratings.read import ratings
from sfumato.data.ratings.records import is_movielens
from sfumato.data.readers.class_folder import class_folder
from sfumato.data.readers.csv_rows import is_delimited
from sfumato.data.readers.example_arrays import npy_examples, npz_examples
from sfumato.data.readers.idx import idx_images, is_idx_folder
from sfumato.data.readers.parquet_folder import is_parquet_folder
from sfumato.data.readers.part import MissingPart, Part
from sfumato.data.readers.text import looks_like_text, text_csv
from sfumato.data.store.examples import open_examples
from sfumato.data.store.facts import is_store
from sfumato.data.tables.load import examples_from_table, opens_texts
from sfumato.data.tables.open import is_table_file
from sfumato.data.tables.paths import refuse_folder
from sfumato.data.tables.with_schema import is_table, table
from sfumato.data.tars.shards import is_tars

UNDERSTOOD = (
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
        raise InputError(f"there is nothing at {path}; give {UNDERSTOOD}")
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
        raise InputError(f"{path} is none of: {UNDERSTOOD}")
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
