"""Options that say which examples are read, and which of them are kept out of training to test on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from sfumato import data as datasets
from sfumato._check import InputError, whole
from sfumato.cli.console import bar, say
from sfumato.cli.options.classes import ClassOptions
from sfumato.cli.options.ratings import RatingOptions
from sfumato.cli.options.share import refuse_share
from sfumato.data import ExampleDataset
from sfumato.data.ratings.records import is_movielens


@dataclass(frozen=True, kw_only=True)
class LabelledDataOptions(ClassOptions):
    """The records.

    Attributes:
        data: a folder of pictures (FOLDER/<class>/<picture>), MNIST's idx files, .npz or a folder of .npy with x_train
            and y_train (or x and y), .csv or .tsv of class and text, a table with --schema or with --label, a packed
            store, or the word glyphs for the embedded data. With a --task other than classes, whole numbers in arrays
            are numbers.
        size: bring pictures to this side, or to this height and width; needed where they differ.
        channels: convert pictures to grey (1) or RGB (3); needed where they differ.
        on_error: what to do with files that are no readable pictures: refuse them and stop, or skip and count them.
        vocabulary: for texts: ids to hash words into.
        length: for texts: words of each that are read.
        input: for a table (.parquet, .csv, .tsv, .jsonl, or .tar shards as 'cats-*.tar') without --schema: the column
            of pictures, paths of pictures, texts, numbers or lists of numbers. Without it, the only column of pictures
            or of paths.
        label: for such a table: the column of classes, or of numbers with --task; in tars an extension or a field, as
            cls or json.age.
        folder: for such a table of paths: the folder that they start at. Without it, that of the table.
        schema: for tables: a YAML or JSON file that says what is public about each column, and which one is the label,
            the target or the count to predict.
        store: for texts and tables: a new folder that keeps the numbers of --data, so that memory does not grow with
            them.
        test: test data from a place of their own.
        test_share: the share kept for the test, below 1: each example goes there with this probability, so the number
            is near the share. Without it, the test part that the data come with, else 0.2; 0 for no test.
        split_seed: public; chooses which examples go where.
    """

    data: str | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None
    on_error: Literal["refuse", "skip"] = "refuse"
    vocabulary: int = 1 << 15
    length: int = 128
    input: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    label: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    folder: Path | None = None
    schema: Path | None = None
    store: Path | None = None
    test: str | None = None
    test_share: float | None = None
    split_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class RatedDataOptions(RatingOptions, LabelledDataOptions):
    """The records, which may be ratings: who rated what is public, and the value is the label.

    Attributes:
        user: for ratings in a table: the column of users.
        rating_classes: for ratings: public numbers, ascending, each of which is a class: 1 2 3 4 5, for example. Every
            value goes to the nearest one. Without them values are numbers.
    """

    user: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    rating_classes: tuple[float, ...] = ()

    def rated(self, path: str) -> bool:
        """Whether a place holds ratings."""
        if self.item is not None or self.value is not None:
            return True
        return self.input is None and self.label is None and self.schema is None and is_movielens(Path(path))

    def refuse_rules(self, path: str) -> None:
        """Refuse what would not be read of other data.

        Raises:
            InputError: names the first such option.
        """
        given = {"user": self.user, **self.of_ratings(), "rating_classes": self.rating_classes or None}
        for name, value in given.items():
            if value is not None:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} is for ratings, which {path} has not; name --user, --item and --value, too")


@dataclass(frozen=True, kw_only=True)
class ExampleDataOptions(LabelledDataOptions):
    """The records, of which some are watched.

    Attributes:
        validation_share: the share kept for the validation data, which are measured during the run; as --test-share.
    """

    validation_share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ExampleParts:
    """What to train on, to watch and to test on; None for a part that is not wanted.

    Attributes:
        places: of what to train on among the records that were read, int64.
        count: of those records.
    """

    train: ExampleDataset
    validation: ExampleDataset | None
    test: ExampleDataset | None
    places: np.ndarray
    count: int


def read_examples(
    path: str,
    options: LabelledDataOptions,
    part: Literal["train", "test"] = "train",
    label_values: Sequence[str] | None = None,
    *,
    classes: bool = True,
) -> ExampleDataset:
    """Open a data set as the options say.

    Args:
        path: where it is.
        options: how it is read.
        part: of data that come divided.
        label_values: the classes, where they are known; texts and folders are read by them.
        classes: whether whole numbers in arrays are classes.

    Raises:
        InputError: it is not there, not understood, or holds something that is refused.
    """
    with bar("reading") as progress:
        if isinstance(options, RatedDataOptions):
            if options.rated(path):
                return _ratings(path, options, part, progress)
            options.refuse_rules(path)
        options.given()  # refuses two
        names = label_values or options.names
        read = datasets.load_examples(
            path,
            part,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            classes=classes,
            num_classes=options.num_classes,
            label_values=names,
            vocabulary=options.vocabulary,
            length=options.length,
            schema=options.schema,
            input=options.input,
            label=options.label,
            folder=options.folder,
            store=options.store if path == options.data else None,
            progress=progress,
        )
    return options.declare(read) if read.num_classes is not None else read


def _ratings(
    path: str, options: RatedDataOptions, part: Literal["train", "test"], progress: Callable[[int, int], None]
) -> ExampleDataset:
    """Each rating as an example."""
    if part != "train":
        raise datasets.MissingPart(f"{path} is not divided into train and test; give a --test-share")
    found = datasets.load(path, user=options.user, **options.of_ratings(), progress=progress)
    return datasets.examples_from_ratings(found, classes=options.rating_classes or None)


def read_example_parts(
    options: LabelledDataOptions, *, classes: bool = True, labels_alone: bool = False, quiet: bool
) -> ExampleParts:
    """Open the records and split them.

    Args:
        options: what to read and how to split it.
        classes: whether whole numbers in arrays are classes.
        labels_alone: only labels are private: then pictures in one folder a class are put into an order, and divided,
            by what they show, since a picture's folder tells its label.
        quiet: tell nothing on stdout.

    Raises:
        InputError: as `read_examples`; or nothing is left to train on.
    """
    whole(at_least=0, split_seed=options.split_seed)
    if options.data is None:
        raise InputError("which records? give --data PATH, or --data glyphs for the embedded data")
    if options.test is not None and options.test_share:
        raise InputError("give --test or --test-share, not both")
    whole_data = read_examples(options.data, options, classes=classes)
    order = datasets.order_of_content(whole_data) if labels_alone else None
    whole_data = whole_data if order is None else whole_data.subset(order)
    test, share = None, options.test_share
    if options.test is not None:
        part, names = _part_of(options.test, options, classes), whole_data.label_names
        test, share = read_examples(options.test, options, part, names, classes=classes), 0
    elif share is None:
        test = _own_test(options, classes)
        share = 0.2 if test is None else 0
    watched = options.validation_share if isinstance(options, ExampleDataOptions) else 0.0
    refuse_share(test_share=share, validation_share=watched)
    split = datasets.split_examples(
        whole_data, test=share, validation=watched, seed=options.split_seed, by_names=not labels_alone
    )
    validation = split.validation if len(split.validation) else None
    test = test if test is not None else split.test if len(split.test) else None
    if test is not None and test.input_shapes != whole_data.input_shapes:
        raise InputError(
            f"the test data have inputs of shape {test.input_shapes}, the training data {whole_data.input_shapes}; "
            "bring them to one shape"
        )
    if test is not None:
        _refuse_other_targets(whole_data, test)
    if not quiet:
        _describe(whole_data, split.train, validation, test)
    places = split.places if order is None else order[split.places]
    return ExampleParts(train=split.train, validation=validation, test=test, places=places, count=len(whole_data))


def _refuse_other_targets(train: ExampleDataset, test: ExampleDataset) -> None:
    """A class must have one number in both parts, else the accuracy would be that of other classes."""
    kinds = [(part.num_classes is None, part.targets is not None and part.targets.shape[1:]) for part in (train, test)]
    if kinds[0] != kinds[1]:
        raise InputError(f"the training data are {train}, the test data {test}; give both the same kind of targets")
    names = [None if part.label_names is None else list(part.label_names) for part in (train, test)]
    if None not in names and names[0] != names[1]:
        differ = sorted(set(names[0] or ()) ^ set(names[1] or ()))[:3]
        raise InputError(
            f"the training data and the test data have other classes ({', '.join(differ) or 'in another order'}); give "
            "both the same ones"
        )
    if train.num_classes is not None and test.num_classes is not None and test.num_classes > train.num_classes:
        raise InputError(
            f"the test data have {test.num_classes} classes, the training data {train.num_classes}; give both the "
            "same ones, or --num-classes"
        )


def _own_test(options: LabelledDataOptions, classes: bool) -> ExampleDataset | None:
    """The test part that the data come with, if they do."""
    assert options.data is not None
    try:
        return read_examples(options.data, options, "test", classes=classes)
    except datasets.MissingPart:
        return None


def _part_of(path: str, options: LabelledDataOptions, classes: bool) -> Literal["train", "test"]:
    """The part to test on of a place that may be divided itself."""
    try:
        read_examples(path, options, "test", classes=classes)
    except datasets.MissingPart:
        return "train"
    return "test"


def _describe(
    whole: ExampleDataset, train: ExampleDataset, validation: ExampleDataset | None, test: ExampleDataset | None
) -> None:
    for line in whole.summary():
        say(f"data: {line}")
    parts = [f"{len(train):,} examples to train on"]
    if validation is not None:
        parts.append(f"{len(validation):,} to watch")
    parts.append("none to test on" if test is None else f"{len(test):,} never trained on, to test on")
    say(f"data: {'; '.join(parts)}")
    for line in train.assumptions:
        say(f"data: assumed: {line}")
