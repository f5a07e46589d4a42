"""`sfumato data pack`: decode a folder of pictures once, into a store that is mapped into memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sfumato import data
from sfumato.cli.console import bar, say, say_json
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class PackOptions(CommonOptions):
    """What to pack.

    Attributes:
        source: the folder: SRC/<user>/<picture> or SRC/<user>/<class>/<picture>.
        destination: the store's folder, which must not exist yet or be empty. The same command goes on with a store
            that was not finished.
        size: bring pictures to this side, or to this height and width; the middle is cut out where proportions differ.
            Without it they keep their size, which must be the same.
        channels: 1 for grey, 3 for RGB. Without it they keep what they have, which must be the same.
        labels: whether class folders of the same name are one class for all users (shared) or each user's own
            (per_user).
        on_error: what to do with files that are no readable pictures: refuse them and stop, or skip and list them.
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SRC")]
    destination: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DST")]
    size: int | tuple[int, int] | None = None
    channels: Literal[1, 3] | None = None
    labels: Literal["shared", "per_user"] = "shared"
    on_error: Literal["refuse", "skip"] = "refuse"


def data_pack(argv: Sequence[str]) -> int:
    about = "Decode a folder of pictures into a store that opens at once; it can be stopped and goes on."
    options = parse(PackOptions, argv, command="data pack", about=about)
    with bar("packing") as progress:
        store = data.pack(
            options.source,
            options.destination,
            options.size,
            options.channels,
            options.on_error,
            options.labels,
            progress,
        )
    show_store(store, options.destination, as_json=options.json)
    return 0


def show_store(store: data.UserDataset, path: Path, *, as_json: bool) -> None:
    """Tell what a new store holds."""
    if as_json:
        say_json(
            {
                "store": path,
                "users": len(store),
                "examples": store.num_examples,
                "classes": store.num_classes,
                "input_shape": store.input_shape,
                "notes": store.notes,
            }
        )
        return
    for line in store.summary():
        say(line)
    say(f"store: {path}")
