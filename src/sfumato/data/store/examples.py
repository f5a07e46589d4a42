"""Single examples in a store: written as they come, in memory that does not grow with them, and opened mapped.

The folder is that of every store (`facts.py`), without users: `examples.arrow` has the columns target, where there are
targets, and inputs, or inputs_0, inputs_1 … where there are several.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.examples.dataset import ExampleDataset
from sfumato.data.examples.from_users import examples_from_users
from sfumato.data.store.arrow import Column
from sfumato.data.store.opened import Opened
from sfumato.data.store.users import INPUTS, found_of, open_store
from sfumato.data.store.writer import TARGET, StoreWriter, refuse_full

_BATCH = 1 << 10  # examples copied in one go
_FACTS: dict[str, Any] = {
    "num_classes": None,
    "vocabulary_sizes": (),
    "columns": (),
    "input_names": (),
    "assumptions": (),
    "found": (),
    "notes": (),
}


class ExampleWriter:
    """Collects blocks of examples, in memory or in a store; use it as a context.

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
        self._inputs = [
            Column(INPUTS if len(shapes) == 1 else f"{INPUTS}_{place}", tuple(shape), np.dtype(dtype))
            for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        self._targets: list[np.ndarray] = []
        self._blocks: list[list[np.ndarray]] = [[] for _ in shapes]
        self._folder = None if folder is None else Path(folder)
        self._writer: StoreWriter | None = None
        if self._folder is not None:
            refuse_full(self._folder)

    def __enter__(self) -> "ExampleWriter":
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def add(self, inputs: Sequence[np.ndarray], targets: np.ndarray | None) -> None:
        """Append examples: one array [n, …] for each of the inputs; and int64 or float32 [n] or [n, k], or None.

        Raises:
            InputError: the disk is full.
        """
        rows = len(inputs[0])
        blocks = [
            np.ascontiguousarray(array, column.dtype).reshape(rows, *column.shape)
            for array, column in zip(inputs, self._inputs, strict=True)
        ]
        if self._folder is None:
            for held, block in zip(self._blocks, blocks, strict=True):
                held.append(block)
            if targets is not None:
                self._targets.append(np.array(targets))
        else:
            self._store(self._folder, blocks, targets)
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
        if self._writer is None:
            targets = np.concatenate(self._targets) if self._targets else None
            if targets is not None and numbers is not None:
                targets = numbers[targets]
            return ExampleDataset(inputs=tuple(np.concatenate(b) for b in self._blocks), targets=targets, **facts)
        for name in facts.pop("label_names", None) or ():
            self._writer.add_class(name)
        try:
            return open_examples(self._writer.finish({**_FACTS, **facts}, numbers))
        except OSError as error:
            raise _unwritten(self._folder, error) from None

    def _store(self, folder: Path, blocks: list[np.ndarray], targets: np.ndarray | None) -> None:
        columns = list(self._inputs)
        if targets is not None:
            columns.insert(0, Column(TARGET, targets.shape[1:], targets.dtype))
            blocks = [targets, *blocks]
        try:
            if self._writer is None:
                self._writer = StoreWriter(folder, columns, users=False, class_names=True, options={}, resume=False)
            self._writer.add(*blocks)
        except OSError as error:
            raise _unwritten(folder, error) from None


def write_examples(dataset: ExampleDataset, destination: Path | str) -> ExampleDataset:
    """Write a data set as a store in constant memory, decoding pictures once.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.

    Returns:
        the store, opened.

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
            input_names=dataset.input_names,
            assumptions=dataset.assumptions,
            found=dataset.found,
            notes=dataset.notes,
        )


def open_examples(path: Path | str) -> ExampleDataset:
    """Open a store as single examples; nothing is read but the targets, unless the files were copied or touched.

    Examples that belong to users stand for themselves then, and an assumption says so.

    Raises:
        InputError: there is no store, or it is unfinished, truncated, changed, or of another version.
    """
    path = Path(path)
    store = Opened(path)
    facts = store.facts
    if facts["users"] is not None:
        return examples_from_users(open_store(path))
    store.digest()
    names = [field["name"] for field in facts["fields"]]
    return ExampleDataset(
        inputs=tuple(store.rows(name) for name in names if name != TARGET),
        targets=np.asarray(store.rows(TARGET)) if TARGET in names else None,
        num_classes=facts["num_classes"],
        label_names=store.classes,
        vocabulary_sizes=tuple(facts["vocabulary_sizes"]),
        columns=tuple(tuple(one) for one in facts["columns"]),
        input_names=tuple(facts.get("input_names", ())),  # stores from before there were names have none
        assumptions=tuple(facts["assumptions"]),
        found=found_of(store),
        notes=tuple(facts["notes"]),
    )


def _unwritten(folder: Path | None, error: OSError) -> InputError:
    return InputError(f"{folder} cannot be written: {error.strerror}; make room or choose another folder")
