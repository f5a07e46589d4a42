"""The one way in for data: whatever a source is, its reader is found, and a data set made of what it reads.

What fits into 64 MiB is held in memory. What does not is written once to a private copy (`store.cache`), named in the
data set's notes, and trained from there; with `store` it is written to a folder of your choice, in any case.

>>> import pyarrow as pa
>>> visits = pa.table({"x": [[0.5, 1.0], [2.0, 0.0], [1.0, 1.0]], "ill": ["no", "yes", "no"], "who": [7, 4, 7]})
>>> open_users(visits, input="x", label="ill", user="who")
UserDataset(2 users, 3 examples of (2,) float64, 2 classes)
>>> open_examples(visits, input="x", label="ill")
ExampleDataset(3 examples of (2,) float64, 2 classes)
>>> open_users(visits, input="x", items=["a"], user="who")
Traceback (most recent call last):
...
sfumato._check.InputError: items=['a'] is for ratings, the table is a table; leave it out
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data import gather
from sfumato.data.columns import Duplicates, Tokenize
from sfumato.data.examples import ExampleDataset
from sfumato.data.files import MissingPart, Part
from sfumato.data.gather import Reading, examples_of_records, opens_texts, users_of_records, with_copy
from sfumato.data.pictures import LAYOUTS, Keep, OnError, fitted, image_size
from sfumato.data.readers import EXAMPLES, USERS
from sfumato.data.readers.folders import Labels
from sfumato.data.readers.tars import is_tars, shards_of
from sfumato.data.records import Reader, Records
from sfumato.data.store.build import write_store
from sfumato.data.store.cache import Cache
from sfumato.data.store.opened import open_example_store, open_store, write_examples
from sfumato.data.store.seal import is_store
from sfumato.data.text import Tokenizer
from sfumato.data.users import UserDataset

D = TypeVar("D", UserDataset, ExampleDataset)
Progress = Callable[[int, int], None]

USERS_UNDERSTOOD = (
    f"a packed store, {LAYOUTS}, Omniglot (folder or npz), npz with images or inputs, users, labels, "
    "federated EMNIST (.h5 or LEAF's JSON), a table (.parquet, .csv, .tsv, .jsonl, .tar) with a column of users and "
    "one of pictures, of their paths or of numbers, ratings "
    "of MovieLens (folder, zip or file) or a table with columns of users, items and values, or the "
    "word glyphs"
)
TEXTS_UNDERSTOOD = "; for texts say --text characters or words (text=)"
EXAMPLES_UNDERSTOOD = (
    "a folder of pictures FOLDER/<class>/<picture>, a packed store, MNIST's idx files, .npz or a folder of .npy with "
    "x_train and y_train (or x, y or inputs, labels), .csv or .tsv of class and text, .csv or .parquet with a schema, "
    "a table (.parquet, .csv, .tsv, .jsonl, .tar) with input (pictures, their paths, numbers or texts) and label, "
    "ratings of MovieLens (folder, zip or file), "
    "or the word glyphs; without targets: a folder of pictures, an npz or npy file of inputs, or a table with input"
)


class PictureOptions(TypedDict, total=False):
    """How pictures are read; None, or leaving an option out, keeps what they are, which must be the same for all.

    Attributes:
        size: side or (height, width) to bring pictures to: the middle of the right proportions is cut out, then scaled.
        channels: 1 (grey) or 3 (RGB) to convert pictures to.
        on_error: "refuse" names the first file that is no readable picture, "skip" leaves such ones out and counts
            them. A file of two users is refused by both.
        keep: what a store, or the private copy, has of pictures: "decoded" ones are fast, "encoded" are the bytes of
            their files, decoded each time they are read, to the same pixels. None takes the latter for a private copy
            that would take more than a tenth of the free disk else.
        invert: for Omniglot and EMNIST: exchange black and white.
    """

    size: int | Sequence[int] | None
    channels: int | None
    on_error: OnError
    keep: Keep | None
    invert: bool


class TableOptions(PictureOptions, total=False):
    """The columns of a table.

    Attributes:
        input: the column of inputs: pictures (bytes, paths of files, or Hugging Face's struct of both), numbers, lists
            of equally many numbers, or texts; or several columns of single numbers, which are one input. None takes the
            only column of pictures, or without any the only one whose first text ends like one, as in "ann/1.jpg".
        label: the column of classes, whole numbers ≥ 0 or text, or of values, numbers with a point.
        label_names: a name for each class; None takes those that Hugging Face keeps next to a column, if any. For
            folders by class and for texts: the classes, declared; any other one is refused.
        folder: where relative paths of pictures start; None for the folder of the table's file, or the working
            directory for a table in memory. With it and `input`, paths need not end like pictures: "ann/1" is then
            read as the only picture of that name.
        tokenize: for texts: a `Tokenizer`, or a function from a list of texts to equally many lists of ids, all of one
            length, as `lambda texts: hf(texts, padding="max_length", truncation=True, max_length=64)["input_ids"]`. It
            must look at each text by itself.
        vocabulary: for texts: a public file with one token a line; for texts with a class also a number of ids to hash
            into, 32,768 unless given.
        length: for texts: ids in a sequence. None for 128, or for users' 80 characters and 20 words.
    """

    input: str | Sequence[str] | None
    label: Any
    label_names: Sequence[object] | None
    folder: Path | str | None
    tokenize: Tokenize | None
    vocabulary: Any
    length: int | None


class RatingOptions(TypedDict, total=False):
    """Ratings: `item` or `value` makes a table one of them; MovieLens' columns need not be named.

    Attributes:
        user: for tables: the column that says whose each row is, whole numbers or text.
        item, value, time: the columns; time orders a user's ratings, which keep that of the file without.
        items: the public catalogue: a file with one id a line, a file of films of MovieLens, or the ids. None takes
            MovieLens' films next to the ratings, else the items of the records, which a guarantee refuses.
        value_range: the lowest and the highest value; others are refused.
        duplicates: several values of one user for one item are refused, or the last, or their mean is taken.
        on_unknown: an item that the catalogue does not have is refused, or left out and counted.
    """

    user: str | None
    item: str | None
    value: str | None
    time: str | None
    items: Path | str | Sequence[object] | None
    value_range: tuple[float, float] | None
    duplicates: Duplicates | None
    on_unknown: Literal["refuse", "skip"] | None


class UserOptions(TableOptions, RatingOptions, total=False):
    """How users are read.

    Attributes:
        labels: for folders: class folders of the same name are one class ("shared") or each user's own ("per_user").
        text: reads texts: a table with a user and a text in each row, or a play, into "characters" or "words".
        oov_buckets: for words: other words get one of so many ids behind all others, by a public hash.
        users: for Omniglot: whether a user is a "character" or a "drawer".
        classes: for EMNIST: class numbers to keep, renumbered 0, 1, …; None keeps all.
        verify: for stores: read everything and compare it with the digest.
    """

    labels: Labels
    text: Literal["characters", "words"] | None
    oov_buckets: int | None
    users: Literal["character", "drawer"]
    classes: Sequence[int] | None
    verify: bool


class ExampleOptions(TableOptions, RatingOptions, total=False):
    """How single examples are read.

    Attributes:
        targets: False reads inputs alone: of a folder of pictures, arrays, or a column of a table.
        classes: whether whole numbers are classes; False takes them as numbers.
        num_classes: number of classes, declared.
        vocabulary_sizes: how many ids there are, for ids; with a tokenizer it is known.
        named: whether the model gets each input by the name of its column, input_ids=… for example.
        schema: what is public about each column of a table (`read_schema`, `criteo_schema`); instead of input and
            label.
        rating_classes: for ratings: public numbers that they are brought to, each of which is a class.
        text: for a file of texts with a class: names or positions of the columns of text; None takes all others.
        header: for such a file: whether the first row names the columns; None looks for names such as label in it.
        delimiter: for it and for tables with a schema: None takes the tab for .tsv, else the comma.
    """

    targets: bool
    classes: bool
    num_classes: int | None
    vocabulary_sizes: Sequence[int]
    named: bool
    schema: Any
    rating_classes: Sequence[object] | None
    text: Sequence[str | int] | None
    header: bool | None
    delimiter: str | None


_USUAL = {
    "on_error": "refuse",
    "labels": "shared",
    "classes": True,
    "targets": True,
    "invert": False,
    "named": False,
    "verify": False,
    "oov_buckets": 0,
    "vocabulary_sizes": (),
}
"""Options that say what is done without them."""

_FOR = {
    **dict.fromkeys(["size", "channels", "on_error", "keep"], "pictures in folders and tables"),
    **dict.fromkeys(["user", "input", "label"], "tables (.parquet, .csv, .tsv, .jsonl, .tar)"),
    "folder": "paths of pictures in a table",
    **dict.fromkeys(["item", "value", "time", "items", "value_range", "duplicates", "on_unknown"], "ratings"),
    **dict.fromkeys(["vocabulary", "length", "oov_buckets", "tokenize"], "texts"),
    "schema": "tables (.csv, .tsv, .txt, .parquet)",
}


_MOST_SHOWN = 60  # characters of a value in a message


def open_users(
    source: Any,
    *,
    store: Path | str | None = None,
    on_demand: bool = False,
    progress: Progress | None = None,
    **options: Unpack[UserOptions],
) -> UserDataset:
    """Open data that are divided by user.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8, one file under two
    users, or in two parts of the data, by any link, and a key twice in an object. Counted in `notes`: names that differ
    only in case, blanks, zeros or Unicode form, names such as `NA` that often stand for a missing one, and a file twice
    for one user. The rule is that of all readers, `sfumato.data.safeguards`. Users in a file of text are texts: `7` and
    `007` are two.

    Args:
        source: a packed store; a folder of pictures, `FOLDER/<user>/<picture>` (the user is the class) or
            `FOLDER/<user>/<class>/<picture>`; Omniglot's folder or npz; an npz file of arrays; federated EMNIST; a
            table with a column of users, in rows of any order: a path to .parquet (or a folder of them, also in folders
            column=value), .csv, .tsv, .jsonl, .ndjson or .tar (WebDataset's shards, also a folder of them or a pattern
            as "faces-{000..012}.tar", whose columns are extensions and fields of JSON, as "json.person"), a
            `datasets.Dataset`, a pandas or polars DataFrame, a pyarrow Table; ratings, as a release of MovieLens (its
            folder, zip or file) or a table, or several files of them; with `text`, texts of users; or "glyphs" for the
            embedded data.
        store: a new folder to write the data to, as `sfumato data pack` does. It grows in `STORE.partial` until it is
            whole; the same call goes on where it was stopped.
        on_demand: decode the pictures of a folder when they are asked for, each time, and only then refuse those that
            cannot be read: to try something out on some of many.
        progress: called with (done, total, or 0 where that is not known) where reading takes a while.
        options: those of `UserOptions`: columns, pictures, ratings, texts. One that the source's reader does not read
            is refused.

    Returns:
        users in sorted order, by number where all are numbers; each one's rows keep their order.

    Raises:
        InputError: there is nothing at `source`, it is of no known kind, or its reader refuses it.
    """
    given = _requested(options)
    place, reader = _chosen(source, given, USERS, USERS_UNDERSTOOD + TEXTS_UNDERSTOOD)
    if store is not None and reader.name == "a packed store":
        raise InputError(f"{source} is a packed store already: give it as it is")
    return _opened(place, reader, given, store, progress, _users, (open_store, write_store), on_demand=on_demand)


def open_examples(
    source: Any,
    part: Part = "train",
    *,
    store: Path | str | None = None,
    on_demand: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ExampleOptions],
) -> ExampleDataset:
    """Open data whose every record stands alone; where records belong to people, use `open_users`.

    Args:
        source: a folder of pictures, `FOLDER/<class>/<picture>`, which may lie in folders train and test; MNIST's idx
            files; an npz file or a folder of .npy files with x_train, y_train, x_test and y_test, or x and y; a packed
            store; a table as for `open_users`, by its columns or by a schema; a .csv or .tsv of class and text;
            ratings; or "glyphs". With `targets=False`, a folder of pictures, arrays, or a column of a table.
        part: "train" or "test", where the data come divided; else "train" is all, for `split_examples`.
        store, on_demand: as for `open_users`.
        progress: called with (done, total, or 0 where that is not known) where reading takes a while.
        options: those of `ExampleOptions`; one that the source's reader does not read is refused, but for `num_classes`
            and `label_names` of data that say their classes themselves.

    Raises:
        MissingPart: the data have no such part.
        InputError: there is nothing at `source`, it is of no known kind, or its reader refuses it.
    """
    one_of(("train", "test"), part=part)
    given = _requested(options)
    if "schema" in given and {"input", "label", "folder"} & given.keys():
        raise InputError(f"give a schema for {source}, or input and label, not both")
    place, reader = _chosen(source, given, EXAMPLES, EXAMPLES_UNDERSTOOD, always={"num_classes", "label_names"})
    if part != "train" and not reader.parts:
        raise MissingPart(f"{source} is not divided into train and test; use part='train' and divide it by a seed")
    return _opened(
        place,
        reader,
        {**given, "part": part},
        store,
        progress,
        _examples,
        (open_example_store, write_examples),
        on_demand=on_demand,
    )


def _requested(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ask for something."""
    unusual = object()
    for name in options:
        if name not in UserOptions.__annotations__ | ExampleOptions.__annotations__:
            raise TypeError(f"there is no option {name!r}")
    return {
        name: value
        for name, value in options.items()
        if value is not None and not (type(value) is type(usual := _USUAL.get(name, unusual)) and value == usual)
    }


def _chosen(
    source: Any, given: Mapping[str, Any], readers: Sequence[Reader], understood: str, always: Iterable[str] = ()
) -> tuple[Any, Reader]:
    """The source, as a path where it is one, and what reads it; raises InputError for an option that is not read."""
    place = Path(source) if isinstance(source, str | Path) else source
    reader = next((each for each in readers if _reads(each, place, given)), None)
    title = source if isinstance(source, str | Path) else "the table"
    if reader is None:
        if isinstance(place, Path) and not place.exists():
            raise InputError(f"there is nothing at {source}; give {understood}")
        if isinstance(place, Path) and any(each.name == "a table" for each in readers):
            _refuse_unnamed(place, readers, given)
        raise InputError(f"{title} is none of: {understood}")
    for name, value in given.items():
        if name not in reader.options and name not in always:
            usual = " and ".join(dict.fromkeys(each.name for each in readers if name in each.options))
            raise InputError(
                f"{name}={_shown(value)} is for {_FOR.get(name, usual)}, {title} is {reader.name}; leave it out"
            )
    return place, reader


def _reads(reader: Reader, source: Any, given: Mapping[str, Any]) -> bool:
    """Whether a source is of a reader's format."""
    endings = reader.endings
    named = endings is None or not isinstance(source, Path) or source.name.lower().endswith(endings)
    return (named or not source.is_file()) and reader.recognises(source, given)


def _shown(value: Any) -> str:
    shown = repr(str(value) if isinstance(value, Path) else value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def _refuse_unnamed(place: Path, readers: Sequence[Reader], given: Mapping[str, Any]) -> None:
    """Refuse a table of examples of which nothing says what its columns are."""
    named = {**given, "input": ""}
    if any(each.name == "a table" and _reads(each, place, named) for each in readers):
        raise InputError(
            f"{place} is a table; name its columns (--input COLUMN --label COLUMN) or give a schema (--schema "
            "FILE); rows of texts hold a class, then words"
        )


def _opened(
    place: Any,
    reader: Reader,
    given: Mapping[str, Any],
    store: Path | str | None,
    progress: Progress | None,
    made: Callable[[Records, Mapping[str, Any], Reading], D],
    stored: tuple[Callable[[Path], D], Callable[..., D]],
    *,
    on_demand: bool,
) -> D:
    """Read a source, in memory or into a store."""
    reopen, write = stored
    cache = None
    if isinstance(place, Path) and "tokenize" not in given:
        cache = Cache(
            [reader.name, sorted(given.items(), key=str), *_public(given)], place, lambda: _files(place, reader)
        )
        if store is None and not is_store(place) and (copy := cache.place()).exists():
            return with_copy(reopen(copy), copy)
    always = {name: value for name, value in (("store", store), ("progress", progress)) if value is not None}
    found = reader.read(place, {**given, **always})
    if isinstance(found, Records):
        how = Reading(
            size=given.get("size"),
            channels=given.get("channels", found.channels),
            on_error=given.get("on_error", "refuse"),
            invert=given.get("invert", False),
            tokenize=given.get("tokenize"),
            keep=given.get("keep"),
            store=None if store is None else Path(store),
            cache=cache,
            on_demand=on_demand and store is None,
            progress=progress,
        )
        return made(found, {**given, "source": place}, how)
    found = _sized(found, place, given)
    if store is not None:
        return found if (Path(store) / "store.json").exists() else write(found, Path(store))
    if cache is None or is_store(place) or _held(found) <= gather.MEMORY:
        return found
    copy = cache.place()
    with cache.building(copy) as there:
        return with_copy(reopen(copy) if there else write(found, copy, private=True), copy)


def _users(records: Records, given: Mapping[str, Any], how: Reading) -> UserDataset:
    if records.owners is None and "user" not in given:
        raise InputError(
            f"{records.title} is a table: say whose each row is, --user COLUMN or user=, of {records.has}; or --text "
            "for texts"
        )
    names = ("user", "input", "label", "label_names")
    return users_of_records(_with_folder(records, given), **{n: given[n] for n in names if n in given}, how=how)


def _examples(records: Records, given: Mapping[str, Any], how: Reading) -> ExampleDataset:
    records = _with_folder(records, given)
    names = ["input", "label", "classes", "num_classes", "label_names", "vocabulary_sizes", "named"]
    if records.labelled is not None:
        names = []
    read = {name: given[name] for name in names if name in given}
    if "label_names" in read:
        read["label_names"] = [str(value) for value in read["label_names"]]
    from_file = isinstance(given["source"], Path) or {"vocabulary", "length"} & given.keys()
    if how.tokenize is None and from_file and opens_texts(records, given.get("input")):
        rule = Tokenizer(given.get("vocabulary", 1 << 15), given.get("length", 128))
        how = Reading(**{**vars(how), "tokenize": rule})
    return examples_of_records(records, **read, how=how)


def _with_folder(records: Records, given: Mapping[str, Any]) -> Records:
    """The records, whose paths start at the folder that was named."""
    return replace(records, folder=Path(given["folder"])) if "folder" in given else records


def _sized(dataset: D, place: Any, given: Mapping[str, Any]) -> D:
    """A data set of arrays whose pictures have this size and these channels; a store has those that it has.

    Raises:
        InputError: the inputs are no pictures, or a store was packed with others.
    """
    size, channels = given.get("size"), given.get("channels")
    if size is None and channels is None:
        return dataset
    rows = dataset.inputs if isinstance(dataset, UserDataset) else dataset.inputs[0]
    shape = tuple(rows.shape[1:])
    if rows.dtype != np.uint8 or len(shape) != 3:
        raise InputError(f"size and channels are for pictures; {place} holds {rows.dtype} {shape}")
    wanted = (*(shape[:2] if size is None else image_size(size)), shape[2] if channels is None else channels)
    if isinstance(place, Path) and is_store(place):
        if wanted != shape:
            raise InputError(
                f"the store {place} was packed as {shape[0]}×{shape[1]}×{shape[2]}, asked for "
                f"{wanted[0]}×{wanted[1]}×{wanted[2]}; leave size and channels out, or pack the pictures again with "
                f"--size {' '.join(map(str, wanted[:1] if wanted[0] == wanted[1] else wanted[:2]))} --channels "
                f"{wanted[2]}"
            )
        return dataset
    pixels = fitted(np.asarray(rows[0 : rows.shape[0]]), size, channels)
    return dataset.with_inputs(pixels) if isinstance(dataset, UserDataset) else replace(dataset, inputs=(pixels,))


def _held(dataset: UserDataset | ExampleDataset) -> int:
    """Bytes of inputs in memory; those of mapped files do not count."""
    inputs = (dataset.inputs,) if isinstance(dataset, UserDataset) else dataset.inputs
    return sum(rows.nbytes for rows in inputs if isinstance(rows, np.ndarray) and not _is_mapped(rows))


def _is_mapped(rows: Any) -> bool:
    while isinstance(rows, np.ndarray):
        if isinstance(rows, np.memmap):
            return True
        rows = rows.base
    return False


def _files(place: Path, reader: Reader) -> list[Path]:
    """The files that a path stands for, but for those that rows name."""
    if place.is_file():
        return [place]
    if is_tars(place):
        return shards_of(place)
    if not place.is_dir():
        return [place] if place.exists() else []
    return [] if reader.names_files else sorted(each for each in place.rglob("*") if each.is_file())


def _public(given: Mapping[str, Any]) -> list[object]:
    """How files look that options name, such as vocabularies."""
    named = [Path(value) for value in given.values() if isinstance(value, str | Path)]
    return [[each.stat().st_size, each.stat().st_mtime_ns] for each in named if each.is_file()]
