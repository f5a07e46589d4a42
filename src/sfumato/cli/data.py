"""`sfumato data`: what writes data sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from sfumato.cli.console import Answer, Table, bar
from sfumato.cli.parse import CommonOptions
from sfumato.cli.sources import ReadingOptions

if TYPE_CHECKING:
    from sfumato import data


# `sfumato data pack`: decode pictures, or read texts, once, into a store that is mapped into memory.


@dataclass(frozen=True, kw_only=True)
class PackOptions(ReadingOptions, CommonOptions):
    """Decode a folder of pictures into a store that opens at once. A stopped command goes on where it was.

    Attributes:
        source: the folder: SRC/<user>/<picture> or SRC/<user>/<class>/<picture>; or, with --user, a table (.parquet,
            a folder of them, .csv, .tsv, .jsonl, or .tar shards as 'faces-*.tar') of pictures, of their paths or of
            numbers; or, with --text, a table of texts or a play.
        destination: the store's folder, which must not exist yet or be empty. The same command goes on with a store
            that was not finished.
        text: pack texts as characters or as words, see the training commands; train on the store with
            --loss next_token.
        vocabulary: for words: a public file with one word a line.
        length: for texts: tokens in a sequence; 80 characters or 20 words unless given.
        size: bring pictures to this side, or to this height and width; the middle is cut out where proportions differ.
            Without it they keep their size, which must be the same.
        channels: 1 for grey, 3 for RGB. Without it they keep what they have, which must be the same.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SRC")]
    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    text: Literal["characters", "words"] | None = None
    vocabulary: Path | None = None
    length: int | None = None
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None

    def of_kind(self) -> dict[str, Any]:
        """The options for texts."""
        return {"text": self.text, "vocabulary": self.vocabulary, "length": self.length}


def data_pack(options: PackOptions) -> Answer:
    """Write the store."""
    source, destination = str(options.source), options.destination
    return _stored(options.load(source, options.size, options.channels, store=destination), destination)


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


# `sfumato data stores`: the private copies of data that did not fit into memory.


@dataclass(frozen=True, kw_only=True)
class StoreOptions(CommonOptions):
    """List the private copies of data that did not fit into memory, or remove one.

    Attributes:
        remove: delete the copy of this key, finished or not; it is made again when its data are read the next time.
    """

    remove: Annotated[str | None, tyro.conf.arg(metavar="KEY")] = None


def data_stores(options: StoreOptions) -> Answer:
    """List them, or remove one."""
    from sfumato.data.store.cache import copies, folder, remove

    found = copies() if options.remove is None else [remove(options.remove)]
    facts = {"folder": folder(), "removed": options.remove, "stores": [vars(each) for each in found]}
    if options.remove is not None:
        return Answer(facts, [f"removed {found[0].path}, a copy of {found[0].source}"])
    lines: list[str | Table] = []
    for each in found:
        held = "not finished" if each.users is None and each.examples is None else f"{each.examples:,} examples"
        held = held if each.users is None else f"{each.users:,} users, {held}"
        lines.append(f"{each.key}  {each.size / 1e6:>10,.1f} MB  {held}, of {each.source}")
    return Answer(facts, [*lines, f"{len(found)} in {folder()}; --remove KEY removes one"])


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
