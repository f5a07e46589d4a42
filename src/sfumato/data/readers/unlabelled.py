"""Public examples without labels: pictures in one folder, arrays, or a column of a table.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     np.savez(Path(folder) / "pool.npz", x=np.zeros((5, 8, 8), np.uint8))
...     unlabelled(Path(folder) / "pool.npz")
ExampleDataset(5 examples of (8, 8, 1) uint8, no targets)
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.digest import row_digest
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import GatheredRows
from sfumato.data.image_files import BadImage, OnError, Picture, decode, image_size, refuse_difference
from sfumato.data.numpy_files import mapped, read_npz
from sfumato.data.readers.example_arrays import INPUTS
from sfumato.data.readers.image_folder import LazyImages
from sfumato.data.store.pack import refusal
from sfumato.data.strings import Strings
from sfumato.data.tables.load import examples_from_table
from sfumato.data.tables.open import is_table_file

_CACHE = 1 << 26
UNDERSTOOD = "a folder of pictures, an npz or npy file of inputs, or a table (.parquet, .csv, .jsonl) with input"


def unlabelled(
    path: Path | str,
    *,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    input: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Examples without targets.

    Args:
        path: see `UNDERSTOOD`.
        size, channels, on_error: for pictures, see `class_folder`.
        input: for a table: the column.
        progress: called with (done, total).

    Raises:
        InputError: there is nothing at `path`, it is none of these, or a file of it is refused.
    """
    place = Path(path)
    if is_table_file(place):
        return examples_from_table(
            place, input=input, size=size, channels=channels, on_error=on_error, progress=progress
        )
    if place.is_dir():
        return _pictures(place, size, channels, on_error, progress)
    if not place.exists():
        raise InputError(f"there is nothing at {path}; give {UNDERSTOOD}")
    if place.suffix.lower() == ".npy":
        return examples_from_arrays(mapped(place))
    if place.suffix.lower() == ".npz":
        arrays = read_npz(place)
        names = [f"{name}{ending}" for ending in ("_train", "") for name in INPUTS]
        found = next((name for name in names if name in arrays), None)
        if found is None:
            raise InputError(f"{path} has {', '.join(sorted(arrays)[:8]) or 'nothing'}; needed is x, inputs or images")
        return examples_from_arrays(arrays[found])
    raise InputError(f"{path} is none of: {UNDERSTOOD}")


def _pictures(
    root: Path,
    size: int | Sequence[int] | None,
    channels: int | None,
    on_error: OnError,
    progress: Callable[[int, int], None] | None,
) -> ExampleDataset:
    fit = None if size is None else image_size(size)
    names = sorted(file.name for file in root.iterdir() if file.is_file() and not file.name.startswith("."))
    kept: list[str] = []
    digests = bytearray()
    first: tuple[str, Picture] | None = None
    skipped = 0
    for done, name in enumerate(names, 1):
        try:
            picture = decode(root / name, fit, channels)
        except BadImage as error:
            if on_error == "refuse":
                raise InputError(refusal(root / name, str(error))) from None
            skipped += 1
            continue
        first = first or (name, picture)
        refuse_difference((root / first[0], first[1].pixels.shape), (root / name, picture.pixels.shape))
        kept.append(name)
        digests += row_digest(picture.pixels)
        if progress is not None:
            progress(done, len(names))
    if first is None:
        raise InputError(f"{root} has no readable pictures; it needs FOLDER/<picture>")
    height, width, depth = first[1].pixels.shape
    known = np.frombuffer(digests, np.uint8).reshape(-1, 32)
    rows = LazyImages(root, Strings.from_list(kept), (height, width, depth), (fit, channels), False, _CACHE, known)
    notes = (f"{skipped:,} files skipped that are no readable pictures",) if skipped else ()
    return ExampleDataset(inputs=(GatheredRows(rows),), notes=notes)
