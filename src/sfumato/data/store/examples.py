"""Examples written as they come into a folder of .npy files, and opened mapped: memory does not grow with the data.

    inputs0.npy, inputs1.npy …   one file for each of the inputs
    targets.npy                  int64 or float32, [N] or [N, k]; not there without targets
    examples.json                format, version, counts, classes, columns, assumptions, notes

The folder is written beside its place and renamed when it is whole. The .npy files are NumPy's own format, so any
other program can read them too.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._files import beside, read_json, write_json
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.numpy_files import mapped
from sfumato.data.store.writer import refuse_full
from sfumato.data.strings import Strings

_FORMAT = "sfumato examples"
_VERSION = 2
_FILE = "examples.json"
_BATCH = 1 << 10  # examples copied in one go


class ExampleWriter:
    """Collects blocks of examples, in memory or in a folder; use it as a context.

    Args:
        shapes: the shape of one example in each of the inputs.
        dtypes: their types.
        folder: where to write them; None keeps them in memory.

    Raises:
        InputError: the folder is not empty.
    """

    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype | type], folder: Path | str | None
    ) -> None:
        self.count = 0
        self._shapes = [tuple(shape) for shape in shapes]
        self._dtypes = [np.dtype(dtype) for dtype in dtypes]
        self._targets: list[np.ndarray] = []
        self._blocks: list[list[np.ndarray]] = [[] for _ in shapes]
        self._folder = None if folder is None else Path(folder)
        self._files: list[Any] = []
        if self._folder is not None:
            refuse_full(self._folder)
            self._partial = beside(self._folder, after=".writing")
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)
            for place in range(len(self._shapes)):
                self._files.append((self._partial / f"inputs{place}.npy").open("w+b"))
                self._header(place)

    def __enter__(self) -> "ExampleWriter":
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()
        if self._folder is not None:
            shutil.rmtree(self._partial, ignore_errors=True)

    def add(self, inputs: Sequence[np.ndarray], targets: np.ndarray | None) -> None:
        """Append examples: one array [n, …] for each of the inputs; and int64 or float32 [n] or [n, k], or None."""
        rows = len(inputs[0])
        for place, array in enumerate(inputs):
            block = np.ascontiguousarray(array, self._dtypes[place]).reshape(rows, *self._shapes[place])
            if self._files:
                _written(self._folder, self._files[place].write, block.tobytes())
            else:
                self._blocks[place].append(block)
        if targets is not None:
            self._targets.append(np.array(targets))
        self.count += rows

    def finish(self, numbers: np.ndarray | None = None, **facts: Any) -> ExampleDataset:
        """Seal what was written and open it.

        Args:
            numbers: int64 [classes], the final number of each class as it was added; None leaves targets as they are.
            facts: the other fields of the `ExampleDataset`.

        Raises:
            InputError: there are no examples, or the disk is full.
        """
        if self.count == 0:
            raise InputError("the data has no examples")
        targets = np.concatenate(self._targets) if self._targets else None
        if targets is not None and numbers is not None:
            targets = numbers[targets]
        if self._folder is None:
            return ExampleDataset(inputs=tuple(np.concatenate(b) for b in self._blocks), targets=targets, **facts)
        for place, file in enumerate(self._files):
            _written(self._folder, file.flush)
            file.seek(0)
            self._header(place)
            _written(self._folder, file.close)
        if targets is not None:
            _written(self._folder, np.save, self._partial / "targets.npy", targets)
        names = facts.pop("label_names", None)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "examples": self.count,
            "inputs": len(self._shapes),
            "targets": targets is not None,
            "num_classes": None,
            "label_names": None if names is None else list(names),
            "vocabulary_sizes": (),
            "columns": (),
            "assumptions": (),
            "notes": (),
            **facts,
        }
        _written(self._folder, write_json, self._partial / _FILE, content)
        if self._folder.is_dir():
            self._folder.rmdir()  # it is empty
        os.rename(self._partial, self._folder)
        return open_examples(self._folder)

    def _header(self, place: int) -> None:
        """The .npy header, which NumPy pads so that a larger count does not change its length."""
        facts = {
            "descr": np.lib.format.dtype_to_descr(self._dtypes[place]),
            "fortran_order": False,
            "shape": (self.count, *self._shapes[place]),
        }
        np.lib.format.write_array_header_1_0(self._files[place], facts)


def write_examples(dataset: ExampleDataset, destination: Path | str) -> ExampleDataset:
    """Write a data set as a folder of .npy files in constant memory, decoding pictures once.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.

    Returns:
        the folder, opened.

    Raises:
        InputError: the destination is not empty, or the disk is full.
    """
    with ExampleWriter(dataset.input_shapes, [rows.dtype for rows in dataset.inputs], destination) as writer:
        for inputs, targets in dataset.batches(_BATCH):
            writer.add(inputs, targets)
        return writer.finish(
            num_classes=dataset.num_classes,
            label_names=dataset.label_names,
            vocabulary_sizes=dataset.vocabulary_sizes,
            columns=dataset.columns,
            assumptions=dataset.assumptions,
            notes=dataset.notes,
        )


def open_examples(path: Path | str) -> ExampleDataset:
    """Open a folder that `write_examples` or a reader's `store` wrote; nothing is read but the targets.

    Raises:
        InputError: it is not such a folder, is of a newer version, or is damaged.
    """
    path = Path(path)
    again = "write it again"
    try:
        facts = read_json(path / _FILE)
        if facts["format"] != _FORMAT or facts["version"] != _VERSION:
            raise InputError(f"{path} is {facts['format']} {facts['version']}, read are {_FORMAT} {_VERSION}; {again}")
        inputs = tuple(mapped(path / f"inputs{place}.npy") for place in range(facts["inputs"]))
        targets = np.array(mapped(path / "targets.npy")) if facts["targets"] else None
        if {len(array) for array in (*inputs, *([] if targets is None else [targets]))} != {facts["examples"]}:
            raise InputError(f"{path} should have {facts['examples']:,} examples and does not; {again}")
        num_classes = facts["num_classes"]
        if targets is not None and num_classes is not None and (targets.min() < 0 or targets.max() >= num_classes):
            raise InputError(f"the targets in {path} are not in 0 … {num_classes - 1}; {again}")
        if targets is not None and not np.isfinite(targets).all():
            raise InputError(f"the targets in {path} are not all finite; {again}")
        return ExampleDataset(
            inputs=inputs,
            targets=targets,
            num_classes=num_classes,
            label_names=None if facts["label_names"] is None else Strings.from_list(facts["label_names"]),
            vocabulary_sizes=tuple(facts["vocabulary_sizes"]),
            columns=tuple(tuple(names) for names in facts["columns"]),
            assumptions=tuple(facts["assumptions"]),
            notes=tuple(facts["notes"]),
        )
    except FileNotFoundError:
        raise InputError(f"{path} has no {_FILE}; write a data set there with write_examples") from None
    except (KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{path / _FILE} is damaged ({type(error).__name__}); {again}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path / _FILE} cannot be read as JSON; {again}") from None


def is_example_store(path: Path) -> bool:
    """Whether a folder was written by `write_examples`."""
    return (path / _FILE).exists()


def _written(folder: Path | None, write: Any, *content: Any) -> None:
    """Call a function that writes, and turn a full disk into one line."""
    try:
        write(*content)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; make room or choose another folder") from None
