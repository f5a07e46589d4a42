"""Public examples without labels: pictures in one folder, arrays, or a column of a table.

>>> import tempfile
>>> import numpy as np
>>> with tempfile.TemporaryDirectory() as folder:
...     np.savez(Path(folder) / "pool.npz", x=np.zeros((5, 8, 8), np.uint8))
...     unlabelled(Path(folder) / "pool.npz")
ExampleDataset(5 examples of (8, 8, 1) uint8, no targets)
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from sfumato._check import InputError
from sfumato.data.examples.arrays import examples_from_arrays
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.image_files import OnError, image_size
from sfumato.data.numpy_files import mapped, read_npz
from sfumato.data.readers.example_arrays import INPUTS
from sfumato.data.readers.image_folder import CACHE_BYTES
from sfumato.data.readers.pictures import checked_pictures
from sfumato.data.tables.load import examples_from_table
from sfumato.data.tables.open import is_table_file
from sfumato.data.tables.paths import refuse_folder

UNDERSTOOD = "a folder of pictures, an npz or npy file of inputs, or a table (.parquet, .csv, .tsv, .jsonl) with input"


def unlabelled(
    path: Path | str,
    *,
    size: int | Sequence[int] | None = None,
    channels: int | None = None,
    on_error: OnError = "refuse",
    input: str | None = None,
    folder: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ExampleDataset:
    """Examples without targets.

    Args:
        path: see `UNDERSTOOD`.
        size, channels, on_error: for pictures, see `class_folder`.
        input: for a table: the column.
        folder: for a table of paths of pictures: where relative ones start, see `from_table`.
        progress: called with (done, total).

    Raises:
        InputError: there is nothing at `path`, it is none of these, or a file of it is refused.
    """
    place = Path(path)
    if is_table_file(place):
        return examples_from_table(
            place, input=input, folder=folder, size=size, channels=channels, on_error=on_error, progress=progress
        )
    refuse_folder(folder, path)
    if place.is_dir():
        found = checked_pictures(
            place,
            sorted(file.name for file in place.iterdir() if file.is_file() and not file.name.startswith(".")),
            fit=None if size is None else image_size(size),
            channels=channels,
            on_error=on_error,
            cache_bytes=CACHE_BYTES,
            layout="FOLDER/<picture>",
            progress=progress,
        )
        notes = (f"{len(found.bad):,} files were skipped, for example {found.bad[0]}",) if found.bad else ()
        return ExampleDataset(inputs=(found.rows,), notes=notes)
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
