"""`sfumato data`: what writes data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sfumato._check import InputError
from sfumato.cli.console import Answer, bar
from sfumato.cli.parse import CommonOptions
from sfumato.cli.sources import refuse_text_options

if TYPE_CHECKING:
    from sfumato import data


# `sfumato data pack`: decode pictures, or read texts, once, into a store that is mapped into memory.


@dataclass(frozen=True, kw_only=True)
class PackOptions(CommonOptions):
    """Decode a folder of pictures into a store that opens at once; it can be stopped and goes on.

    Attributes:
        source: the folder: SRC/<user>/<picture> or SRC/<user>/<class>/<picture>; or, with --user, a table (.parquet,
            a folder of them, .csv, .tsv, .jsonl, or .tar shards as 'faces-*.tar') of pictures, of their paths or of
            numbers; or, with --text, JSON lines or a play.
        destination: the store's folder, which must not exist yet or be empty. The same command goes on with a store
            that was not finished; a table is read from the start.
        text: pack texts as characters or as words, see the training commands; train on the store with
            --loss next_token.
        vocabulary: for words: a public file with one word a line.
        length: for texts: tokens in a sequence; 80 characters or 20 words unless given.
        user: for a table: the column that says whose each row is; in tars an extension or a field, as json.person.
        input: for a table: the column of pictures, of paths of pictures or of lists of numbers. Without it, the only
            column of pictures or of paths.
        label: for a table: the column of classes. Without it each user is a class.
        folder: for a table of paths: the folder that they start at. Without it, that of the table.
        size: bring pictures to this side, or to this height and width; the middle is cut out where proportions differ.
            Without it they keep their size, which must be the same.
        channels: 1 for grey, 3 for RGB. Without it they keep what they have, which must be the same.
        labels: whether class folders of the same name are one class for all users (shared) or each user's own
            (per_user).
        on_error: what to do with files that are no readable pictures: refuse them and stop, or skip and list them.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SRC")]
    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    text: Literal["characters", "words"] | None = None
    vocabulary: Path | None = None
    length: int | None = None
    user: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    input: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    label: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    folder: Path | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None
    labels: Literal["shared", "per_user"] = "shared"
    on_error: Literal["refuse", "skip"] = "refuse"


def data_pack(options: PackOptions) -> Answer:
    """Write the store."""
    with bar("packing") as progress:
        return _stored(_packed(options, progress), options.destination)


def _packed(options: PackOptions, progress: Callable[[int, int], None]) -> data.UserDataset:
    from sfumato import data
    from sfumato.data.tables.tars import is_tars

    if options.text is not None:
        others = (options.size, options.channels, options.label, options.folder)
        if any(each is not None for each in others):
            raise InputError(
                "--size, --channels, --label and --folder are for pictures and tables; leave them out with --text"
            )
        return data.text_users(
            options.source,
            text=options.text,
            vocabulary=options.vocabulary,
            length=options.length,
            user=options.user,
            input=options.input,
            store=options.destination,
            progress=progress,
        )
    refuse_text_options(vocabulary=options.vocabulary, length=options.length)
    if options.source.suffix.lower() == ".npz":
        raise InputError(f"{options.source} needs no packing: give it to --data as it is")
    if (options.source / "store.json").exists():
        raise InputError(f"{options.source} is a packed store already: give it to --data as it is")
    if options.user is not None:
        if options.labels != "shared":
            raise InputError("--labels is for class folders, with --user a table is packed; leave it out")
        return data.from_table(
            options.source,
            user=options.user,
            input=options.input,
            label=options.label,
            folder=options.folder,
            size=options.size,
            channels=options.channels,
            on_error=options.on_error,
            store=options.destination,
            progress=progress,
        )
    columns = (options.input, options.label, options.folder)
    if any(each is not None for each in columns) or options.source.is_file() or is_tars(options.source):
        raise InputError(f"say whose the rows of the table {options.source} are: --user COLUMN")
    return data.pack(
        options.source,
        options.destination,
        options.size,
        options.channels,
        options.on_error,
        options.labels,
        progress,
    )


def _stored(store: data.UserDataset, path: Path) -> Answer:
    """What a new store holds."""
    facts = {
        "store": path,
        "users": len(store),
        "examples": store.num_examples,
        "classes": store.num_classes,
        "input_shape": store.input_shape,
        "notes": store.notes,
    }
    return Answer(facts, [*store.summary(), f"store: {path}"])


# `sfumato data glyphs`: the embedded default data as a store, to look at or to train on.


@dataclass(frozen=True, kw_only=True)
class GlyphOptions(CommonOptions):
    """Draw the embedded data (characters of the DejaVu fonts, 28x28, grey) and write them as a store.

    Attributes:
        destination: the store's folder, which must not exist yet or be empty.
        identities: characters; each is a user and a class.
        images: images of each.
        seed: other seeds give other characters and other images.
    """

    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    identities: int = 2300
    images: int = 10
    seed: int = 0


def data_glyphs(options: GlyphOptions) -> Answer:
    """Draw them."""
    from sfumato import data

    with bar("drawing") as progress:
        glyphs = data.glyphs(options.identities, options.images, options.seed, progress=progress)
    return _stored(data.write_store(glyphs, options.destination), options.destination)
