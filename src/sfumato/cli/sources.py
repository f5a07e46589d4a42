"""Options that choose which records are read, and what a command reads by them: users, or single examples."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from sfumato import models
from sfumato._check import InputError, positive, whole
from sfumato.cli.console import bar, print_line

if TYPE_CHECKING:
    from sfumato.data import ExampleDataset, Split, UncountedTexts, UserDataset
    from sfumato.federated import Centralized, FederatedPlan, PrivateVocabulary


# Public lists in the folder of a run, such as its items: one name a line, by their numbers.


ITEMS, CLASSES = "items.txt", "classes.txt"


"""In the folder of a run: names of the items and of the classes."""


def public_lists(data: UserDataset) -> dict[str, Sequence[str]]:
    """The lists of a data set of users: what its inputs and its labels stand for."""
    if data.item_names is not None:
        return {ITEMS: data.item_names}
    return {CLASSES: data.label_names} if data.label_names is not None and not data.of_sequences else {}


def read_list(file: Path) -> list[str]:
    """The names.

    Raises:
        InputError: the file is missing or no text.
    """
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take a whole copy of the run") from None


# The one check of a share that is kept out of training, whether of users or of examples.


def refuse_share(**shares: float) -> None:
    """Refuse what is no share in [0, 1).

    Raises:
        InputError: a share is out of range; for a whole number, the message states how to get one.
    """
    for name, share in shares.items():
        if not 0 <= share < 1:  # NaN, too
            remedy = "0 keeps none back; for an exact number name them, or give --test"
            raise InputError(f"{name} must be a share >= 0 and below 1, got {share:g}; {remedy}")


# Options that choose which columns of a table are ratings, and what becomes of odd ones.


@dataclass(frozen=True, kw_only=True)
class RatingOptions:
    """How ratings are read.

    Attributes:
        item: for ratings in a table: the column of items; with --user and --value. MovieLens needs none of them.
        value: for ratings in a table: the column of values.
        time: for ratings in a table: the column of times, numbers or dates; each user's ratings are put into its order.
        items: for ratings: the public catalogue of items, a file with one id a line. Without it MovieLens' films next
            to the ratings, else the items that were rated, which a guarantee refuses.
        value_range: for ratings: the lowest and the highest value; others are refused.
        duplicates: for ratings: several values of one user for one item are refused, or the last is taken, or their
            mean. Refused unless given.
        on_unknown: for ratings: an item that the catalogue does not have is refused, or left out and counted. Refused
            unless given.
    """

    item: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    value: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    time: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    items: Path | None = None
    value_range: tuple[float, float] | None = None
    duplicates: Literal["refuse", "last", "mean"] | None = None
    on_unknown: Literal["refuse", "skip"] | None = None

    def of_kind(self) -> dict[str, Any]:
        """The options for ratings, as `data.open_users` takes them; None for what was not given."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(RatingOptions)}


# Options that declare which classes there are, so that a run with a guarantee takes none from the records.


D = TypeVar("D", "ExampleDataset", "UserDataset")


@dataclass(frozen=True, kw_only=True)
class ClassOptions:
    """Which classes there are.

    Attributes:
        class_names: a public file with one class a line, in the order of their numbers; a record of another one is
            refused. Without it, and where the data do not declare them, a run with a guarantee is refused.
        num_classes: how many classes there are, where they have numbers and no names.
        public_classes: take the classes that the records have, and declare them public, as those of a benchmark are. A
            user who alone has a class is then not hidden.
    """

    class_names: Path | None = None
    num_classes: int | None = None
    public_classes: bool = False

    @property
    def names(self) -> list[str] | None:
        """The declared names.

        Raises:
            InputError: the file is of no use.
        """
        from sfumato.data.domain import read_names

        return None if self.class_names is None else read_names(self.class_names)

    def chosen_classes(self) -> dict[str, object]:
        """What was given, by the option's name.

        Raises:
            InputError: both a file and a number, which say the same.
        """
        found = {name: getattr(self, name) for name in ("class_names", "num_classes", "public_classes")}
        found = {name: value for name, value in found.items() if value not in (None, False)}
        if {"class_names", "num_classes"} <= found.keys():
            raise InputError("--class-names and --num-classes both say which classes there are; give one of them")
        return found

    def declare(self, data: D) -> D:
        """The data with the classes that were declared.

        Raises:
            InputError: a record has another one, or the labels are no classes.
        """
        if not self.chosen_classes():
            return data
        return data.with_classes(self.names or self.num_classes)


_NAMED = 3  # people or classes in a warning


PRIVATE = "private"


"""The vocabulary that the run counts itself."""


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How records are read, wherever they are.

    Attributes:
        user: for a table: the column that says whose each row is; in tars an extension or a field, as json.person.
        input: for a table: the column of pictures, of paths of pictures or of lists of numbers. Without it, the only
            column of pictures or of paths.
        label: for a table: the column of classes. Without it each user is a class.
        folder: for a table of paths: the folder that they start at. Without it, that of the table.
        labels: whether class folders of the same name are one class for all users (shared) or each user's own
            (per_user).
        on_error: what to do with files that are no readable pictures: refuse them and stop, or skip and count them.
        keep: what a store has of pictures: their pixels (decoded), or the bytes of their files (encoded), which take
            less room and are decoded each time they are read. Unless given, the latter where a private copy of the
            former would take more than a tenth of the free disk.
    """

    user: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    input: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    label: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    folder: Path | None = None
    labels: Literal["shared", "per_user"] = "shared"
    on_error: Literal["refuse", "skip"] = "refuse"
    keep: Literal["decoded", "encoded"] | None = None

    def load(
        self,
        path: str,
        size: int | tuple[int, int] | None,
        channels: int | None,
        *,
        store: Path | None = None,
        on_demand: bool = False,
    ) -> UserDataset:
        """Open a data set.

        Args:
            path: as --data takes it.
            size: to bring pictures to.
            channels: to convert pictures to.
            store: a new folder to write it to; None keeps what memory does not hold in a private copy.
            on_demand: decode files of pictures when they are asked for.

        Raises:
            InputError: it is not there, not understood, or holds something that is refused.
        """
        from sfumato import data as datasets

        with bar("reading") as progress:
            return datasets.open_users(
                path,
                progress=progress,
                size=size,
                channels=channels,
                on_error=self.on_error,
                keep=self.keep,
                labels=self.labels,
                user=self.user,
                input=self.input,
                label=self.label,
                folder=self.folder,
                store=store,
                on_demand=on_demand,
                **self.of_kind(),
            )

    def of_kind(self) -> dict[str, Any]:
        """The options for one kind of records, where a command reads several; the reader of another kind refuses it."""
        return {}


@dataclass(frozen=True, kw_only=True)
class DataOptions(ClassOptions, RatingOptions, ReadingOptions):
    """The records.

    Attributes:
        data: a packed store, a folder of pictures (FOLDER/<user>/<picture> or FOLDER/<user>/<class>/<picture>),
            Omniglot (folder or npz), an npz with images, users and labels, federated EMNIST, or the word glyphs for the
            embedded data. With --user, a table: .parquet, .csv, .tsv, .jsonl, or .tar shards as 'faces-*.tar'. Ratings:
            a folder or zip file of MovieLens, or a table with --user, --item and --value. With --text, a table with a
            user and a text in each row (.csv, .tsv, .parquet, .jsonl; --user and --input name the columns), or a play
            as plain text, whose roles are users.
        text: train on texts: each of their characters is a token, of a fixed public alphabet, or each of their words,
            of a --vocabulary.
        vocabulary: for words: a public file with one word a line, chosen without looking at the records, or the word
            private. A private run first counts the words of its training users under noise, within its budget. A file
            of that name is ./private.
        vocabulary_noise: for a private vocabulary: the count's noise multiplier. With --epsilon, unless given, the one
            at which the count alone costs a tenth of it.
        vocabulary_words: for a private vocabulary: release so many words at most; all above the threshold unless given.
        words_per_user: for a private vocabulary: different words that a user has a vote for, 64 unless given.
        length: for texts: tokens in a sequence; longer texts are cut into several. 80 characters or 20 words unless
            given.
        oov_buckets: for words: so many ids for words outside of the vocabulary, by a hash of the word. They are inputs
            of a model with vectors for them (lstm); 0 gives them one id.
        size: bring pictures to this side, or to this height and width; needed where they differ.
        channels: convert pictures to grey (1) or RGB (3); needed where they differ.
        store: a new folder that keeps --data, so that memory does not grow with them; give it as --data from then on.
            Without it, what memory does not hold is kept in a private copy, see sfumato data stores.
        test: test data from a place of their own, instead of a share of --data.
        split_by: what the split keeps together: whole users, whole classes (label), or groups of classes such as
            alphabets (group).
        test_share: the share kept for the test, below 1. Each user (class, group) goes there with this probability, by
            a hash of its name. So the number is near the share, and no one moves when another joins. 0.2 unless --test
            or --test-names is given; 0 for no test.
        test_names: a text file that names those kept for the test, one a line, for an exact number of them.
        validation_share: the same share for the validation data, which are measured during the run.
        negatives: for fedemb: a public data set, whose classes join every client's head; see --negatives-per-client.
        split_seed: public; chooses who goes where.
    """

    data: str | None = None
    text: Literal["characters", "words"] | None = None
    vocabulary: Annotated[str | None, tyro.conf.arg(metavar="FILE|private")] = None
    vocabulary_noise: float | None = None
    vocabulary_words: int | None = None
    words_per_user: int | None = None
    length: int | None = None
    oov_buckets: int = 0
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None
    store: Path | None = None
    test: str | None = None
    split_by: Literal["user", "label", "group"] = "user"
    test_share: float | None = None
    test_names: Path | None = None
    validation_share: float = 0.0
    negatives: str | None = None
    split_seed: int = 0

    @property
    def counts_vocabulary(self) -> bool:
        """Whether the run counts its vocabulary itself."""
        return self.vocabulary == PRIVATE

    def of_kind(self) -> dict[str, Any]:
        """The options for ratings and for texts."""
        texts = ("text", "vocabulary", "length", "oov_buckets")
        return {**super().of_kind(), **{name: getattr(self, name) for name in texts}}

    def refuse_unread(self) -> None:
        """Refuse options of a vocabulary that is counted without one, and others with it.

        Raises:
            InputError: one was given.
        """
        for name in ("vocabulary_noise", "vocabulary_words", "words_per_user"):
            if getattr(self, name) is not None and not self.counts_vocabulary:
                raise InputError(f"{name} is for --vocabulary private; leave it out, or choose that")
        if not self.counts_vocabulary:
            return
        if self.text != "words":
            raise InputError("--vocabulary private counts words; add --text words, or leave it out")
        read = ("text", "vocabulary", "length")
        others = {name: value for name, value in self.of_kind().items() if name not in read}
        others |= {name: getattr(self, name) for name in ("size", "channels", "label", "folder", "store")}
        for name, value in {**others, **self.chosen_classes()}.items():
            if value:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} does not go with --vocabulary private; leave it out, or declare the words")

    def open(self, path: str, *, on_demand: bool = False) -> Opened:
        """Open a data set, or read texts; arguments and errors as for `ReadingOptions.load`."""
        from sfumato import data as datasets

        self.refuse_unread()
        if not self.counts_vocabulary:
            store = self.store if path == self.data else None
            return Opened(self.load(path, self.size, self.channels, store=store, on_demand=on_demand))
        with bar("reading") as progress:
            given = {"length": self.length, "user": self.user, "input": self.input, "progress": progress}
            texts = datasets.uncounted_texts(path, **given)
        return Opened(texts.blank, texts)


@dataclass(frozen=True)
class Opened:
    """What was read.

    Attributes:
        users: all of them.
        texts: where they are from, if their vocabulary is not counted yet; None otherwise.
    """

    users: UserDataset
    texts: UncountedTexts | None = None

    def summary(self) -> list[str]:
        """Lines for people."""
        return self.users.summary() if self.texts is None else self.texts.summary()


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What to train on, to watch and to test on; None for a part that is not wanted.

    Attributes:
        train, validation, test: the parts.
        negatives: the public data with them, if there are any.
        texts: those that they are views of, where the run counts their vocabulary: of the training part first.
    """

    train: UserDataset
    validation: UserDataset | None
    test: UserDataset | None
    texts: tuple[UncountedTexts, ...] = ()
    negatives: UserDataset | None = None


def read_parts(options: DataOptions, *, quiet: bool, on_demand: bool = False) -> Parts:
    """Open the records and split them.

    Args:
        options: what to read and how to split it.
        quiet: print nothing on stdout.
        on_demand: decode files of pictures when they are asked for.

    Raises:
        InputError: as `ReadingOptions.load`; or too few users to split, or to hide one among others.
    """
    if options.data is None:
        raise InputError(
            "which records? give --data FOLDER, --data STORE, or --data glyphs for the embedded data; a "
            "--dry-run does without, with --population"
        )
    opened = options.open(options.data, on_demand=on_demand)
    whole, texts = options.declare(opened.users), [opened.texts]
    if len(whole) < 2:
        raise InputError(f"{options.data} has {_users(len(whole))}; a private sum needs at least 2")
    share = options.test_share
    if sum((options.test is not None, options.test_names is not None, bool(share))) > 1:
        raise InputError("give one of --test, --test-names and --test-share, not both")
    if share is None:
        share = 0.2 if options.test is None else 0.0
    split = _split(whole, options, share)
    if len(split.train) < 2:
        raise InputError(
            f"{options.data} has {_users(len(whole))}, and {_users(len(split.train))} left to train on; add users, or "
            "keep none back with --test-share 0"
        )
    test = split.test if len(split.test) else None
    if options.test is not None:
        # Nothing but the size and the kind of pictures must agree, so the test data come to the training data's.
        elsewhere = _opened(_like(whole, options), options.test, "--test", on_demand=on_demand)
        test = elsewhere.users
        texts.append(elsewhere.texts)
        _warn_common(split.train, test, options)
    if not quiet:
        _describe(opened, split, test, options, share)
    return Parts(
        train=split.train,
        validation=split.validation if len(split.validation) else None,
        test=test,
        texts=tuple(each for each in texts if each is not None),
        negatives=None
        if options.negatives is None
        else _opened(_like(whole, options), options.negatives, "--negatives", on_demand=on_demand).users,
    )


def _opened(options: DataOptions, path: str, flag: str, *, on_demand: bool) -> Opened:
    """What an option other than --data names; errors name the option."""
    try:
        return options.open(path, on_demand=on_demand)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


def _split(whole: UserDataset, options: DataOptions, share: float) -> Split:
    from sfumato import data as datasets

    by = {"user": datasets.split_users, "label": datasets.split_labels, "group": datasets.split_groups}
    refuse_share(test_share=share, validation_share=options.validation_share)
    if options.test_names is None:
        return by[options.split_by](whole, test=share, validation=options.validation_share, seed=options.split_seed)
    names = _names(options.test_names)
    try:
        return by[options.split_by](whole, test=names, validation=options.validation_share, seed=options.split_seed)
    except InputError as error:
        raise InputError(f"{options.test_names}: {error}") from None


def _names(file: Path) -> list[str]:
    """The lines of a file of names."""
    try:
        names = [line.strip() for line in file.read_text("utf-8-sig", "surrogateescape").splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; it needs one name a line") from None
    if not names:
        raise InputError(f"{file} holds no names; it needs one a line, or leave it out with --test-share 0")
    return names


def _like(whole: UserDataset, options: DataOptions) -> DataOptions:
    if len(whole.input_shape) != 3:
        return options
    height, width, channels = whole.input_shape
    return dataclasses.replace(options, size=(height, width), channels=channels)


def _warn_common(train: UserDataset, test: UserDataset, options: DataOptions) -> None:
    """Warn where the test has people or classes of the training data, as far as names show."""
    people = _common(train.user_ids, test.user_ids)
    if people:
        warnings.warn(
            f"{len(people):,} users of {options.test} are trained on, by their names ({_first(people)}), so no result "
            "is on unseen users; take them out, or keep users of --data back (--test-share)",
            stacklevel=2,
        )
    if train.label_names is None or test.label_names is None or train.of_sequences:
        return
    ours, theirs = (
        {names[int(label)] for label in part.classes_present().nonzero()[0]}
        for part, names in ((train, train.label_names), (test, test.label_names))
    )
    common = sorted((ours & theirs).difference(people))  # where users are the classes, the warning above has it
    if common:
        warnings.warn(
            f"{len(common):,} classes of {options.test} are trained on ({_first(common)}), so recall is not on unseen "
            "identities; leave them out of one of the two",
            stacklevel=2,
        )


def _common(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """Names that are in both, sorted; the smaller list alone is held."""
    small, large = sorted((ours, theirs), key=len)
    held = set(small)
    return sorted({name for name in large if name in held})


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _describe(opened: Opened, split: Split, test: UserDataset | None, options: DataOptions, share: float) -> None:
    for line in opened.summary():
        print_line(f"data: {line}")
    parts = [f"{_users(len(split.train))} to train on"]
    if len(split.validation):
        parts.append(f"{_users(len(split.validation))} to watch")
    if test is None:
        parts.append("none to test on" + (", by the chance of this --split-seed" if share else ""))
    elif options.test is not None:
        parts.append(f"{_users(len(test))} of {options.test} to test on")
    else:
        default = options.test_share is None and options.test_names is None
        chosen = f" (each with probability {share:g}; --test-share or --test chooses another test)" if default else ""
        what = _users(len(test)) if options.split_by == "user" else f"{test.num_classes:,} classes"
        parts.append(f"{what} never trained on, to test on{chosen}")
    print_line(f"data: {'; '.join(parts)}")


def _users(count: int) -> str:
    return f"{count:,} user{'s' * (count != 1)}"


# Options that choose which examples are read, and which of them are kept out of training to test on.


@dataclass(frozen=True, kw_only=True)
class LabelledDataOptions(ClassOptions):
    """The records.

    Attributes:
        data: a folder of pictures (FOLDER/<class>/<picture>), MNIST's idx files, .npz or a folder of .npy with x_train
            and y_train (or x and y), a packed store, or the word glyphs for the embedded data. Also .csv or .tsv of
            class and text, or a table with --schema or --label. With a --task other than classes, whole numbers in
            arrays are numbers.
        size: bring pictures to this side, or to this height and width; needed where they differ.
        channels: convert pictures to grey (1) or RGB (3); needed where they differ.
        on_error: what to do with files that are no readable pictures: refuse them and stop, or skip and count them.
        keep: what a store has of pictures: their pixels (decoded), or the bytes of their files (encoded), which take
            less room and are decoded each time they are read. Unless given, the latter where a private copy of the
            former would take more than a tenth of the free disk.
        vocabulary: for texts: ids to hash words into.
        length: for texts: words of each that are read.
        input: for a table (.parquet, .csv, .tsv, .jsonl, or .tar shards as 'cats-*.tar') without --schema. It names the
            column of pictures, paths of pictures, texts, numbers or lists of numbers. Without it, the only column of
            pictures or of paths.
        label: for such a table: the column of classes, or of numbers with --task. In tars it is an extension or a
            field, as cls or json.age.
        folder: for such a table of paths: the folder that they start at. Without it, that of the table.
        schema: for tables: a YAML or JSON file with what is public about each column. It also names the label, the
            target or the count to predict. Or criteo, criteo-attribution or
            criteo-attribution-conversions for these logs, with criteo:BUCKETS for another number of hash buckets a
            column than 10,000.
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
    keep: Literal["decoded", "encoded"] | None = None
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

    def of_kind(self) -> dict[str, Any]:
        """The options for one kind of records, where a command reads several; the reader of another kind refuses it."""
        return {}


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

    def of_kind(self) -> dict[str, Any]:
        """The options for ratings."""
        return {**super().of_kind(), "user": self.user, "rating_classes": self.rating_classes or None}


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
    on_demand: bool = False,
) -> ExampleDataset:
    """Open a data set as the options say.

    Args:
        path: where it is.
        options: how it is read.
        part: of data that come divided.
        label_values: the classes, where they are known; texts and folders are read by them.
        classes: whether whole numbers in arrays are classes.
        on_demand: decode files of pictures when they are asked for.

    Raises:
        InputError: it is not there, not understood, or holds something that is refused.
    """
    from sfumato import data as datasets
    from sfumato.data.store.seal import is_store

    with bar("reading") as progress:
        options.chosen_classes()  # refuses two
        stored = is_store(Path(path))
        if stored and path == options.data and options.test is not None:  # they say how the test set is read
            options = replace(options, schema=None, input=None, label=None)
        names = label_values or options.names
        read = datasets.open_examples(
            path,
            part,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            keep=options.keep,
            classes=classes or options.schema is not None or stored,  # these state what is a class
            num_classes=options.num_classes,
            label_names=names,
            vocabulary=options.vocabulary if options.vocabulary != 1 << 15 else None,
            length=options.length if options.length != 128 else None,
            schema=options.schema,
            input=options.input,
            label=options.label,
            folder=options.folder,
            store=options.store if path == options.data else None,
            on_demand=on_demand,
            progress=progress,
            **options.of_kind(),
        )
    return options.declare(read) if read.num_classes is not None else read


def read_example_parts(
    options: LabelledDataOptions,
    *,
    classes: bool = True,
    labels_alone: bool = False,
    quiet: bool,
    on_demand: bool = False,
) -> ExampleParts:
    """Open the records and split them.

    Args:
        options: what to read and how to split it.
        classes: whether whole numbers in arrays are classes.
        labels_alone: only labels are private: then pictures in one folder a class are put into an order, and divided,
            by what they show, since a picture's folder shows its label.
        quiet: print nothing on stdout.
        on_demand: decode files of pictures when they are asked for; not those that are put into an order.

    Raises:
        InputError: as `read_examples`; or nothing is left to train on.
    """
    from sfumato import data as datasets

    whole(at_least=0, split_seed=options.split_seed)
    if options.data is None:
        raise InputError("which records? give --data PATH, or --data glyphs for the embedded data")
    if options.test is not None and options.test_share:
        raise InputError("give --test or --test-share, not both")
    read = functools.partial(read_examples, classes=classes, on_demand=on_demand and not labels_alone)
    whole_data = read(options.data, options)
    order = datasets.order_of_content(whole_data) if labels_alone else None
    whole_data = whole_data if order is None else whole_data.subset(order)
    test, share = None, options.test_share
    if options.test is not None:
        test, share = read(options.test, options, _part_of(options.test, read, options), whole_data.label_names), 0
    elif share is None:
        test = _separate_test(read, options)
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
        _describe_examples(whole_data, split.train, validation, test)
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


def _separate_test(read: Callable[..., ExampleDataset], options: LabelledDataOptions) -> ExampleDataset | None:
    """The test part that the data come with, if they do."""
    from sfumato import data as datasets

    assert options.data is not None
    try:
        return read(options.data, options, "test")
    except datasets.MissingPart:
        return None


def _part_of(path: str, read: Callable[..., ExampleDataset], options: LabelledDataOptions) -> Literal["train", "test"]:
    """The part to test on of a place that may be divided itself."""
    from sfumato import data as datasets

    try:
        read(path, options, "test")
    except datasets.MissingPart:
        return "train"
    return "test"


def _describe_examples(
    whole: ExampleDataset, train: ExampleDataset, validation: ExampleDataset | None, test: ExampleDataset | None
) -> None:
    for line in whole.summary():
        print_line(f"data: {line}")
    parts = [f"{len(train):,} examples to train on"]
    if validation is not None:
        parts.append(f"{len(validation):,} to watch")
    parts.append("none to test on" if test is None else f"{len(test):,} never trained on, to test on")
    print_line(f"data: {'; '.join(parts)}")
    from sfumato.statement.sentences import render as sentence

    for line in train.assumptions:
        print_line(f"data: assumed: {sentence(line)}")


# What a plan trains by unless chosen: the loss that its kind of data has, and how many clients at once.


P = TypeVar("P", bound="FederatedPlan | Centralized")


Kind = Literal["texts", "values", "classes"]


def kind_of(data: UserDataset) -> Kind:
    """What the labels are."""
    return "texts" if data.of_sequences else "values" if data.of_values else "classes"


def fitted(plan: P, kind: Kind, chosen: Collection[str]) -> P:
    """The plan with the loss that such data have, and with rates and steps of clients for them.

    Args:
        plan: as it was given.
        kind: of the data.
        chosen: fields that were set by hand; they stay.

    Raises:
        InputError: a loss of embeddings was chosen for other data, or the plan has none for these.
    """
    from sfumato.federated import FedAvg, FedRecon
    from sfumato.federated.losses import LOSSES, ClassLoss, NextTokenLoss, SquaredLoss, without_head
    from sfumato.training.defaults import TEXT_CLIENT_RATE, VALUES_REBUILT

    usual = {"texts": NextTokenLoss(), "values": SquaredLoss(), "classes": ClassLoss()}[kind]
    fits = type(plan.loss) is type(usual)
    if kind == "classes":
        fits = not isinstance(plan.loss, NextTokenLoss | SquaredLoss)
    if not fits and "client.loss" not in chosen:
        plan = replace(plan, client=replace(plan.client, loss=usual))
    if kind != "classes" and not without_head(plan.loss):  # tasks refuse all other losses that do not fit
        loss = LOSSES.word(plan.loss)
        raise InputError(
            f"--client.loss {loss} compares embeddings, and {kind} have {LOSSES.word(usual)}; leave it out"
        )
    if kind == "texts" and isinstance(plan, FedAvg):
        rates = {"learning_rate": TEXT_CLIENT_RATE, "momentum": 0.0}
        rates = {name: value for name, value in rates.items() if f"client.{name}" not in chosen}
        plan = replace(plan, client=replace(plan.client, **rates))
    if isinstance(plan, FedRecon) and kind == "texts" and "client.at_once" not in chosen:
        # a recurrence over many clients at once is slower than one by one
        plan = replace(plan, client=replace(plan.client, at_once=1))
    steps = {"client", "client.local", "client.local.joint", *(f"client.local.{name}" for name in VALUES_REBUILT)}
    if isinstance(plan, FedRecon) and kind == "values" and not steps & set(chosen):
        local = replace(plan.client.local, **VALUES_REBUILT)
        plan = replace(plan, client=replace(plan.client, local=local))
    return plan


# Which vocabulary a run counts in its own texts, before its first round.


_SHARE = 0.1  # of epsilon, for the count


def refuse_uncountable(options: Any) -> None:
    """Refuse what does not go with a vocabulary that is counted; without the records.

    Raises:
        InputError: something does not.
    """
    if not _counts(options):
        return
    if not options.plan.private:
        raise InputError(
            f"{options.plan.name} has no guarantee that a private vocabulary could be a part of; give --vocabulary FILE"
        )
    if models.is_custom_model(options.model.model):
        raise InputError(
            f"--model {options.model.model} fixes the number of words, which --vocabulary private decides in "
            "the run; take lstm or transformer, or use RunOptions.initial_release"
        )
    if options.model.weights is not None:
        raise InputError(
            "--weights are of a model with another vocabulary than --vocabulary private will release; leave them out"
        )
    if options.data.vocabulary_noise is None and options.budget.epsilon is None:
        raise InputError(
            "--vocabulary private with a noise multiplier (--noise) needs a --vocabulary-noise, 4 for example; with "
            "--epsilon it is chosen"
        )


def counted_vocabulary(options: Any, population: int) -> PrivateVocabulary | None:
    """The rule by which the run counts its vocabulary, with its noise; None where it counts none.

    Args:
        options: all options of the command.
        population: public number of users.

    Raises:
        InputError: a number out of range, or no noise is enough.
    """
    from sfumato.federated import PrivateVocabulary

    if not _counts(options):
        return None
    data, plan = options.data, options.plan
    if data.vocabulary_noise is not None:
        positive(vocabulary_noise=data.vocabulary_noise)
    if data.vocabulary_words is not None:
        whole(vocabulary_words=data.vocabulary_words)
    given = {} if data.words_per_user is None else {"words_per_user": data.words_per_user}
    delta = plan.delta_for(population)
    rule = PrivateVocabulary(noise_multiplier=data.vocabulary_noise, size=data.vocabulary_words, **given).resolved(
        delta
    )
    if rule.noise_multiplier is not None:
        return rule
    adjacency = plan.sampler(population).adjacency
    return rule.calibrate(epsilon=_SHARE * options.budget.epsilon, delta=delta, adjacency=adjacency)


def _counts(options: Any) -> bool:
    return isinstance(options.data, DataOptions) and options.data.counts_vocabulary
