"""Options that say which records are read, and which of them are kept out of training to test on."""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from sfumato import data as datasets
from sfumato._check import InputError
from sfumato.cli.console import bar, say
from sfumato.cli.options.classes import ClassOptions
from sfumato.cli.options.ratings import RatingOptions
from sfumato.cli.options.share import refuse_share
from sfumato.data import Split, UncountedTexts, UserDataset

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
    """

    user: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    input: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    label: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    folder: Path | None = None
    labels: Literal["shared", "per_user"] = "shared"
    on_error: Literal["refuse", "skip"] = "refuse"

    def load(self, path: str, size: int | tuple[int, int] | None, channels: int | None) -> UserDataset:
        """Open a data set.

        Args:
            path: as --data takes it.
            size: to bring pictures to.
            channels: to convert pictures to.

        Raises:
            InputError: it is not there, not understood, or holds something that is refused.
        """
        with bar("reading") as progress:
            return datasets.load(
                path,
                size,
                channels,
                self.on_error,
                self.labels,
                progress,
                user=self.user,
                input=self.input,
                label=self.label,
                folder=self.folder,
                **self.of_ratings(),
            )

    def of_ratings(self) -> dict[str, Any]:
        """What is said of ratings, where a command reads them."""
        return {}


@dataclass(frozen=True, kw_only=True)
class DataOptions(ClassOptions, RatingOptions, ReadingOptions):
    """The records.

    Attributes:
        data: a packed store, a folder of pictures (FOLDER/<user>/<picture> or FOLDER/<user>/<class>/<picture>),
            Omniglot (folder or npz), an npz with images, users and labels, federated EMNIST, a table (.parquet,
            .csv, .tsv, .jsonl, or .tar shards as 'faces-*.tar') with --user, ratings (a folder or zip file of
            MovieLens, or a table with --user, --item and --value), or the word glyphs for the embedded data.
            With --text: JSON lines of objects with a user and a text (.jsonl, also .gz; other names by --user and
            --input), or a play as plain text, whose roles are the users.
        text: train on texts: each of their characters is a token, of a fixed public alphabet, or each of their words,
            of a --vocabulary.
        vocabulary: for words: a public file with one word a line, chosen without looking at the records; or private:
            the run counts the words of those it trains on under noise, before its first round and within its budget
            (a file of that name is ./private).
        vocabulary_noise: for a private vocabulary: the count's noise multiplier. With --epsilon, unless given, the one
            at which the count alone costs a tenth of it.
        vocabulary_words: for a private vocabulary: release so many words at most; all above the threshold unless given.
        words_per_user: for a private vocabulary: different words that a user has a vote for, 64 unless given.
        length: for texts: tokens in a sequence; longer texts are cut into several. 80 characters or 20 words unless
            given.
        oov_buckets: for words: so many ids, by a hash of the word, tell words outside of the vocabulary apart as
            inputs, for a model with vectors for them (lstm); 0 gives them one id.
        size: bring pictures to this side, or to this height and width; needed where they differ.
        channels: convert pictures to grey (1) or RGB (3); needed where they differ.
        test: test data from a place of their own, instead of a share of --data.
        split_by: what the split keeps together: whole users, whole classes (label), or groups of classes such as
            alphabets (group).
        test_share: the share kept for the test, below 1. Each user (class, group) goes there with this probability, by
            a hash of the own name, so the number is near the share and nobody moves when somebody else joins. 0.2
            unless --test or --test-names is given; 0 for no test.
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

    def refuse_unread(self) -> None:
        """Refuse options that the chosen kind of records or of vocabulary does not read.

        Raises:
            InputError: one was given.
        """
        counting = {
            "vocabulary_noise": self.vocabulary_noise,
            "vocabulary_words": self.vocabulary_words,
            "words_per_user": self.words_per_user,
        }
        for name, value in counting.items():
            if value is not None and not self.counts_vocabulary:
                raise InputError(
                    f"--{name.replace('_', '-')} is for --vocabulary private; leave it out, or choose that"
                )
        if self.text is None:
            refuse_text_options(vocabulary=self.vocabulary, length=self.length, oov_buckets=self.oov_buckets or None)
            return
        others = {"size": self.size, "channels": self.channels, "label": self.label, "folder": self.folder}
        others |= {**self.of_ratings(), **self.given()}
        for name, value in others.items():
            if value is not None:
                option = name.replace("_", "-")
                raise InputError(f"--{option} is for pictures and tables; leave it out with --text")
        if self.counts_vocabulary and self.text != "words":
            raise InputError("--vocabulary private counts words; add --text words, or leave it out")
        if self.counts_vocabulary and self.oov_buckets:
            raise InputError("--oov-buckets goes with a public vocabulary; leave it out with --vocabulary private")

    def open(self, path: str) -> "Opened":
        """Open a data set, or read texts; errors as for `ReadingOptions.load`."""
        self.refuse_unread()
        if self.text is None:
            return Opened(self.load(path, self.size, self.channels))
        with bar("reading") as progress:
            given = {"length": self.length, "user": self.user, "input": self.input, "progress": progress}
            if self.counts_vocabulary:
                texts = datasets.uncounted_texts(path, **given)
                return Opened(texts.blank, texts)
            given = {**given, "vocabulary": self.vocabulary, "oov_buckets": self.oov_buckets}
            return Opened(datasets.text_users(path, text=self.text, **given))


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


def refuse_text_options(**options: object) -> None:
    """Refuse what is only for texts.

    Raises:
        InputError: one of the options was given.
    """
    for name, value in options.items():
        if value is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is for texts; add --text characters or --text words, or leave it out")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What to train on, to watch and to test on; None for a part that is not wanted.

    Attributes:
        train, validation, test: the parts.
        negatives: the public data beside them, if there are any.
        texts: those that they are views of, where the run counts their vocabulary: of the training part first.
    """

    train: UserDataset
    validation: UserDataset | None
    test: UserDataset | None
    texts: tuple[UncountedTexts, ...] = ()
    negatives: UserDataset | None = None


def read_parts(options: DataOptions, *, quiet: bool) -> Parts:
    """Open the records and split them.

    Args:
        options: what to read and how to split it.
        quiet: tell nothing on stdout.

    Raises:
        InputError: as `ReadingOptions.load`; or too few users to split, or to hide one among others.
    """
    if options.data is None:
        raise InputError(
            "which records? give --data FOLDER, --data STORE, or --data glyphs for the embedded data; a "
            "--dry-run does without, with --population"
        )
    opened = options.open(options.data)
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
            "keep nobody back with --test-share 0"
        )
    test = split.test if len(split.test) else None
    if options.test is not None:
        # Nothing but the size and the kind of pictures must agree, so the test data come to the training data's.
        elsewhere = _opened(_like(whole, options), options.test, "--test")
        test = elsewhere.users
        texts.append(elsewhere.texts)
        _tell_common(split.train, test, options)
    if not quiet:
        _describe(opened, split, test, options, share)
    return Parts(
        train=split.train,
        validation=split.validation if len(split.validation) else None,
        test=test,
        texts=tuple(each for each in texts if each is not None),
        negatives=None
        if options.negatives is None
        else _opened(_like(whole, options), options.negatives, "--negatives").users,
    )


def _opened(options: DataOptions, path: str, flag: str) -> Opened:
    """What an option names, beside --data; what is wrong with it is told by the option's name."""
    try:
        return options.open(path)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


def _split(whole: UserDataset, options: DataOptions, share: float) -> Split:
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


def _tell_common(train: UserDataset, test: UserDataset, options: DataOptions) -> None:
    """Warn where the test has people or classes of the training data, as far as names tell."""
    people = _common(train.user_ids, test.user_ids)
    if people:
        warnings.warn(
            f"{len(people):,} users of {options.test} have the names of users who are trained on ({_first(people)}): "
            "unless these are other people, nothing is measured on unseen ones; take them out of one of the two, or "
            "keep people of --data back instead (--test-share)",
            stacklevel=2,
        )
    if train.label_names is None or test.label_names is None or train.of_sequences:
        return
    ours, theirs = (
        {names[int(label)] for label in part.classes_present().nonzero()[0]}
        for part, names in ((train, train.label_names), (test, test.label_names))
    )
    common = sorted((ours & theirs).difference(people))  # where users are the classes, all is said
    if common:
        warnings.warn(
            f"{len(common):,} classes of {options.test} are trained on ({_first(common)}): recall is not on unseen "
            "identities; leave them out of one of the two where it should be",
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
        say(f"data: {line}")
    parts = [f"{_users(len(split.train))} to train on"]
    if len(split.validation):
        parts.append(f"{_users(len(split.validation))} to watch")
    if test is None:
        parts.append("nobody to test on" + (", by the chance of this --split-seed" if share else ""))
    elif options.test is not None:
        parts.append(f"{_users(len(test))} of {options.test} to test on")
    else:
        default = options.test_share is None and options.test_names is None
        chosen = f" (each with probability {share:g}; --test-share or --test chooses another test)" if default else ""
        what = _users(len(test)) if options.split_by == "user" else f"{test.num_classes:,} classes"
        parts.append(f"{what} never trained on, to test on{chosen}")
    say(f"data: {'; '.join(parts)}")


def _users(count: int) -> str:
    return f"{count:,} user{'s' * (count != 1)}"
