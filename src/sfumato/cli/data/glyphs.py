"""`sfumato data glyphs`: the embedded default data as a store, to look at or to train on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sfumato import data
from sfumato.cli.console import bar
from sfumato.cli.data.pack import show_store
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class GlyphOptions(CommonOptions):
    """What to draw.

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


def data_glyphs(argv: Sequence[str]) -> int:
    about = "Draw the embedded data (characters of the DejaVu fonts, 28x28, grey) and write them as a store."
    options = parse(GlyphOptions, argv, command="data glyphs", about=about)
    with bar("drawing") as progress:
        glyphs = data.glyphs(options.identities, options.images, options.seed, progress=progress)
    store = data.write_store(glyphs, options.destination)
    show_store(store, options.destination, as_json=options.json)
    return 0
