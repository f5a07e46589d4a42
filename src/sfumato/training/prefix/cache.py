"""What the frozen first layers make of the records, computed once and kept on the disk.

    CACHE/README.txt            what this is, and that it is private
    CACHE/private-data          a store: a row for each record of the data to train on, and of all that are views of the
                                same records, such as a test part that was split off
    CACHE/private-validation    of validation data from a place of their own
    CACHE/private-test          of test data from a place of their own

**As private as the records.** A row follows from one record and public weights, and mostly gives the record away. The
folders are for their owner only, and nothing of them is released: a run's folder holds no row.

A store is bound to the layers (stages, weights, shape of inputs) and to the records by their digests; another one is
refused. Some rows are computed again when it is opened: what changed in the code since shows there. One that was not
finished goes on where it stopped.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.digest import digest_of
from sfumato.data.store.rows import StoredRows, stored_rows
from sfumato.guard.placeholders import placeholder
from sfumato.training.prefix.split import Split, split

_BLOCK = 32  # records between two looks at the weights
_SOME = 6  # that are looked at
_DRIFT = 1e-3  # of the length of a row, by which other processors and libraries may round it
_OURS = ("README.txt", "private-")
_README = """\
PRIVATE. What the frozen first layers of a model make of private records, one row a record. It tells about as much of
them as the records themselves, and no guarantee covers it: keep it where the records are, for the same eyes, and delete
it with them. sfumato makes it again where it is missing.
"""
_MEANING = {"layers": "other weights, or another cut as other layers are trained", "records": "other records"}

Progress = Callable[[str, int, int], None]
"""Is told of which data, how many records are done, and of how many."""


class PrefixCache:
    """The folder, for one model.

    Args:
        folder: where rows are kept; it is made if it is not there.
        halves: the model.
        device: where the layers run.
        progress: is told how it goes.

    Raises:
        InputError: the folder is a file, or holds something else than a cache.
    """

    def __init__(self, folder: Path, halves: Split, *, device: str, progress: Progress | None = None) -> None:
        refuse_folder(folder)
        self._folder, self._split, self._device, self._progress = folder, halves, device, progress
        self._kept: dict[str, StoredRows] = {}

    def through(self, data: Any, name: str) -> Any:
        """The same data set, behind the frozen layers.

        Args:
            data: of users or of examples.
            name: "data", "validation", "test" or "negatives".

        Raises:
            InputError: the rows that are kept are of other layers or records, or damaged; the layers change; or the
                folder cannot be written.
        """
        rows, digest = _rows(data), _digest(data)
        if digest not in self._kept:
            try:
                self._kept[digest] = self._stored(rows, digest, name)
            except OSError as error:  # else it would be told of the run's folder, which is another one
                raise InputError(
                    f"prefix_cache {self._folder} cannot be written: {error.strerror or error}; make room and run the "
                    "same command again, or name another folder (--prefix-cache)"
                ) from None
        kept = self._kept[digest]
        if isinstance(data, UserDataset):
            return data.with_inputs(kept.rows, lambda: digest_of((digest, kept.digest())))
        return replace(data, inputs=(kept.rows,), vocabulary_sizes=(), columns=())

    def _stored(self, rows: Any, digest: str, name: str) -> StoredRows:
        self._begin()
        path = self._folder / f"private-{name}"
        shape = tuple(rows.shape[1:])
        kept = stored_rows(
            path,
            (self._split.shape, np.dtype(np.float32)),
            int(rows.shape[0]),
            {"layers": self._split.digest(shape), "records": digest, "input_shape": [*shape]},
            lambda start, stop: self._computed(rows[start:stop]),
            block=_BLOCK,
            progress=None if self._progress is None else (lambda done, of: self._progress(name, done, of)),  # pyright: ignore[reportOptionalCall]
            told=" ".join(_README.split()),
            meaning=_MEANING,
        )
        for place in _places(int(rows.shape[0])):
            row, now = kept.rows[place : place + 1], self._computed(rows[place : place + 1])
            if not np.linalg.norm(np.nan_to_num(row - now)) <= _DRIFT * np.linalg.norm(np.nan_to_num(now)) + 1e-30:
                raise InputError(
                    f"{path} holds other rows than the layers give now (row {place}): their code has changed; delete "
                    "it, and it is made again"
                )
        return kept

    def _computed(self, rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return self._split.alone(to_tensor(rows).to(self._device)).float().cpu().numpy()

    def _begin(self) -> None:
        """The folder and the word of warning in it."""
        readme = self._folder / "README.txt"
        if not readme.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(readme, _README.encode(), private=True)


def refuse_folder(folder: Path) -> None:
    """Refuse a place for rows that is something else.

    Raises:
        InputError: it is a file, or holds what no cache does.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"prefix_cache must be a folder, and {folder} is a file; name another one")
    other = next((path.name for path in _sorted(folder) if not path.name.lstrip(".").startswith(_OURS)), None)
    if other is not None:  # pictures, which may be public, and shared together with what would come to lie there
        raise InputError(f"prefix_cache must be a new folder or a cache, and {folder} holds {other}; name another one")


def cut_for(model: torch.nn.Module, trainable: str, data: Any, device: str) -> Split:
    """A model in two, tried out on some of the records.

    Raises:
        InputError: as `split`; or the data have several inputs an example, or none.
    """
    return split(model, trainable, _some(_rows(data), device))


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def _rows(data: Any) -> Any:
    """The inputs of all records."""
    if isinstance(data, UserDataset):
        return data.inputs
    if not isinstance(data, ExampleDataset) or len(data.inputs) != 1 or data.input_names:
        raise InputError(
            "prefix_cache is for records of one input each, by position; leave it out (--prefix-cache) for several"
        )
    return data.inputs[0]


def _digest(data: Any) -> str:
    return data.whole_digest() if isinstance(data, UserDataset) else digest_of("inputs", data.inputs[0])


def _some(rows: Any, device: str) -> Tensor:
    """Some records, and others that are made up: they may be many of a kind."""
    if not rows.shape[0]:
        raise InputError("there are no records to put through the frozen layers")
    real = to_tensor(np.concatenate([np.asarray(rows[place : place + 1]) for place in _places(int(rows.shape[0]))]))
    return torch.cat([real, placeholder(real[:1].expand(2, *real.shape[1:]))]).to(device)


def _places(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, _SOME).astype(np.int64)).tolist()
