"""Pictures by their files: each is checked once, and decoded again whenever it is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.digest import row_digest
from sfumato.data.examples.from_users import GatheredRows
from sfumato.data.image_files import BadImage, OnError, Picture, decode, refuse_difference
from sfumato.data.readers.image_folder import LazyImages
from sfumato.data.store.pack import refusal
from sfumato.data.strings import Strings


@dataclass(frozen=True)
class Checked:
    """Pictures that can be read.

    Attributes:
        rows: uint8 [n, height, width, channels], decoded on demand.
        places: of each, among the files that were given.
        bad: what was left out, and why.
    """

    rows: GatheredRows
    places: list[int]
    bad: tuple[str, ...]


def checked_pictures(
    root: Path,
    files: Sequence[str],
    *,
    fit: tuple[int, int] | None,
    channels: int | None,
    on_error: OnError,
    cache_bytes: int,
    layout: str,
    progress: Callable[[int, int], None] | None,
) -> Checked:
    """Look at every file.

    Args:
        root: their folder.
        files: below it.
        fit: (height, width) to bring each to; None if all have the same.
        channels: 1 or 3 to convert each to; None if all have the same.
        on_error: "refuse" names the first file that is no readable picture; "skip" leaves such files out.
        cache_bytes: memory for decoded pictures.
        layout: what is needed, for messages.
        progress: called with (pictures checked, pictures).

    Raises:
        InputError: a bad file, pictures of different sizes or channels, or none that can be read.
    """
    places: list[int] = []
    bad: list[str] = []
    digests = bytearray()
    first: tuple[str, Picture] | None = None
    for place, file in enumerate(files):
        try:
            picture = decode(root / file, fit, channels)
        except BadImage as error:
            if on_error == "refuse":
                raise InputError(refusal(root / file, str(error))) from None
            bad.append(f"{file} ({error})")
        else:
            first = first or (file, picture)
            refuse_difference((root / first[0], first[1].pixels.shape), (root / file, picture.pixels.shape))
            places.append(place)
            digests += row_digest(picture.pixels)
        if progress is not None:
            progress(place + 1, len(files))
    if first is None:
        raise InputError(f"{root} has no readable pictures; it needs {layout}")
    height, width, depth = first[1].pixels.shape
    known = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    paths = Strings.from_list([files[place] for place in places])
    rows = LazyImages(root, paths, (height, width, depth), (fit, channels), False, cache_bytes, known)
    return Checked(GatheredRows(rows), places, tuple(bad))
