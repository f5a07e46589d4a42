"""Finished stores, mapped: by user and of single examples."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from sfumato._check import InputError
from sfumato._types import stated_from_json, stated_to_json
from sfumato.data.domain import COUNT, NAMES
from sfumato.data.examples import ExampleDataset, examples_from_users
from sfumato.data.mapped import ChunkedRows, Strings
from sfumato.data.safeguards import refuse_undecodable
from sfumato.data.store.encoded import Encoded, EncodedRows
from sfumato.data.store.format import Column, Frame, read_table
from sfumato.data.store.seal import (
    CLASSES,
    EXAMPLES,
    ITEMS,
    PICTURES,
    USERS,
    content_digest,
    read_facts,
    verified_digest,
)
from sfumato.data.store.seal import NAMES as EXAMPLE_NAMES
from sfumato.data.store.writer import OWNER, TARGET, StoreWriter, refuse_full
from sfumato.data.users import UserDataset

# A finished store, mapped: what data sets by user and of single examples have in common.


class Opened:
    """A store whose index was checked, and whose examples were not read.

    Args:
        path: the store's folder.

    Attributes:
        facts: what store.json states.
        classes: names of the classes, or None.
        groups: groups of the classes, or None.
        items: names of the items that inputs name by their number, or None.
        names: of the examples, or None.

    Raises:
        InputError: there is no store, or it is unfinished, truncated, changed, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.facts = path, read_facts(path)
        try:
            columns = [Column(one["name"], tuple(one["shape"]), np.dtype(one["dtype"])) for one in self.facts["fields"]]
            self._frame = Frame(path / EXAMPLES, columns, self.facts["examples"])
            named = read_table(path / CLASSES, self.facts["classes"]) if CLASSES in self.facts["files"] else {}
            self.classes, self.groups = _texts(named, "name"), _texts(named, "group")
            items = read_table(path / ITEMS, self.facts["items"]) if ITEMS in self.facts["files"] else {}
            self.items = _texts(items, "name")
            named = (
                read_table(path / EXAMPLE_NAMES, self.facts["examples"]) if EXAMPLE_NAMES in self.facts["files"] else {}
            )
            self.names = _texts(named, "name")
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the store {path} is damaged ({type(error).__name__}); pack it again") from None

    def rows(self, name: str) -> ChunkedRows:
        """A column of the examples, as it is stored."""
        return self._frame.rows(name)

    def inputs(self, name: str) -> ChunkedRows | EncodedRows:
        """A column of inputs; pictures that are kept encoded are decoded when they are read."""
        how = self.facts.get("encoded", {}).get(name)
        return self.rows(name) if how is None else EncodedRows(self.rows(name), self.path / PICTURES, **how)

    def users(self) -> tuple[Strings, np.ndarray]:
        """Names of the users, and where each one's rows begin and the last one's end, int64 [users + 1]."""
        table = read_table(self.path / USERS, self.facts["users"])
        names = _texts(table, "name")
        starts, counts = (np.asarray(table.get(one, ()), np.int64) for one in ("start", "count"))
        offsets = np.append(starts, self.facts["examples"])
        if names is None or len(counts) != len(starts) or not np.array_equal(np.diff(offsets), counts):
            raise InputError(f"{self.path / USERS} does not say whose the examples are; pack the store again")
        return names, offsets

    def digest(self, anew: bool = False) -> str:
        """The digest of everything, as packing computed it.

        Args:
            anew: read everything, even where nothing hints at a change.

        Raises:
            InputError: examples.arrow does not hold any more what was packed.
        """
        encoded = self.facts.get("encoded", {})

        def holds() -> bool:
            content = content_digest(self._frame.content, self._frame.pieces)
            pictures = (self.inputs(name) for name in encoded)
            return content == self.facts["content_sha256"] and all(
                rows.hold() for rows in pictures if isinstance(rows, EncodedRows)
            )

        digest = verified_digest(self.path, self.facts, holds, anew)
        if not encoded:
            return digest
        decoding = json.dumps([PIL.__version__, encoded], sort_keys=True)
        return digest + hashlib.sha256(decoding.encode()).hexdigest()


def _texts(table: dict[str, Any], name: str) -> Strings | None:
    found = table.get(name)
    if found is not None and not isinstance(found, Strings):
        raise TypeError(f"{name} is no text")
    return found


# A store of users, opened: 10⁶ of them in well under two seconds, in memory that the examples do not count in.
#
# Nothing is read at the start but the tables of users and classes, to check their SHA-256; pages of `examples.arrow`
# are loaded when a user is asked for. Other programs open the same file:
#
#     datasets.Dataset.from_file("photos.store/examples.arrow")                # mapped
#     polars.scan_ipc("photos.store/examples.arrow")                           # mapped; reads what a query needs
#     pyarrow.ipc.open_stream("photos.store/examples.arrow").read_pandas()     # pandas, in memory
#
# Its columns are user (a row of `users.arrow`), target (a row of `classes.arrow`, where that is there) and inputs.


INPUTS = "inputs"


def user_columns(
    shape: tuple[int, ...], dtype: np.dtype, target_shape: tuple[int, ...] = (), target_dtype: np.dtype | None = None
) -> tuple[Column, ...]:
    """What a store of users holds of each example, next to the user.

    A sequence has a target for each of its tokens; targets are classes where no other type is given.
    """
    targets = target_dtype or np.dtype(dtype if target_shape else np.int64)
    return Column(TARGET, target_shape, targets), Column(INPUTS, shape, np.dtype(dtype))


def found_of(store: Opened) -> tuple[str, ...]:
    """What of the domain was found in the records; a store that does not say it had its classes from there."""
    facts = store.facts
    if "found" in facts:
        return tuple(facts["found"])
    shapes = {field["name"]: (field["shape"], field["dtype"]) for field in facts["fields"]}
    shape, kind = shapes.get(TARGET, ((), "float32"))
    if len(shape) or np.dtype(kind).kind == "f" or store.groups is not None:
        return ()
    return (COUNT,) if store.classes is None else (NAMES,)


def open_store(path: Path | str, verify: bool = False) -> UserDataset:
    """Open a packed store of users.

    Refused: a name that is no valid UTF-8. `notes` are those that were counted when the store was written.

    Args:
        path: the store's folder.
        verify: read every input and target too and compare the digest (as long as reading the whole store
            takes).

    Raises:
        InputError: there is no store, its examples have no users, or it is unfinished, truncated, changed, or of
            another version.
    """
    store = Opened(Path(path))
    if store.facts["users"] is None:
        raise InputError(f"the examples in {path} are not divided by user; open them with open_examples or dpsgd")
    names, offsets = store.users()
    refuse_undecodable(names)
    if verify:
        store.digest(anew=True)
    return UserDataset(
        inputs=store.inputs(INPUTS),
        labels=store.rows(TARGET),
        offsets=offsets,
        names=names,
        num_classes=store.facts["classes"],
        label_names=store.classes,
        label_groups=store.groups,
        assumptions=stated_from_json(store.facts.get("assumptions", ())),
        found=found_of(store),
        notes=tuple(store.facts["notes"]),
        contents=store.digest,
        item_names=store.items,
        example_names=store.names,
    )


# Single examples in a store: written as they come, in memory that does not grow with them, and opened mapped.
#
# The folder is that of every store (`facts.py`), without users: `examples.arrow` has the columns target, where there
# are targets, owner, where examples are of users, and inputs, or inputs_0, inputs_1 … where there are several.


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
        names: of all examples, or None.
        private: a folder for its owner's eyes only.

    Raises:
        InputError: the folder is not empty.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype | type],
        folder: Path | str | None,
        *,
        names: Sequence[str] | None = None,
        private: bool = False,
    ) -> None:
        self._names, self._private = names, private
        self.count = 0
        self._inputs = [
            Column(INPUTS if len(shapes) == 1 else f"{INPUTS}_{place}", tuple(shape), np.dtype(dtype))
            for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]
        self._targets: list[np.ndarray] = []
        self._owners: list[np.ndarray] = []
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

    def add(self, inputs: Sequence[np.ndarray], targets: np.ndarray | None, owners: np.ndarray | None = None) -> None:
        """Append examples.

        Args:
            inputs: one array [n, …] for each of the inputs.
            targets: int64 or float32 [n] or [n, k], or None.
            owners: whose each example is, int64 [n], or None.

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
            if owners is not None:
                self._owners.append(np.array(owners))
        else:
            self._store(self._folder, blocks, targets, owners)
        self.count += rows

    def finish(
        self,
        numbers: np.ndarray | None = None,
        *,
        skipped: Sequence[tuple[str, str]] = (),
        encoded: Encoded | None = None,
        **facts: Any,
    ) -> ExampleDataset:
        """Seal what was written and open it.

        Args:
            numbers: int64 [classes], the final number of each class as it was added; None leaves targets as they are.
            skipped: what was left out, with the reason.
            encoded: the pictures, where inputs are references to them.
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
            owners = np.concatenate(self._owners) if self._owners else None
            inputs = tuple(np.concatenate(b) for b in self._blocks)
            return ExampleDataset(inputs=inputs, targets=targets, owners=owners, **facts)
        for name in facts.pop("label_names", None) or ():
            self._writer.add_class(name)
        try:
            for name in self._names or ():
                self._writer.add_name(name)
            for what, reason in skipped:
                self._writer.skip(what, reason)
            facts = {**_FACTS, **facts, "assumptions": stated_to_json(facts.get("assumptions", ()))}
            return open_example_store(self._writer.finish(facts, numbers, encoded=encoded))
        except OSError as error:
            raise _unwritten(self._folder, error) from None

    def _store(
        self, folder: Path, blocks: list[np.ndarray], targets: np.ndarray | None, owners: np.ndarray | None
    ) -> None:
        columns = list(self._inputs)
        if owners is not None:
            columns.insert(0, Column(OWNER, (), np.dtype(np.int64)))
            blocks = [owners, *blocks]
        if targets is not None:
            columns.insert(0, Column(TARGET, targets.shape[1:], targets.dtype))
            blocks = [targets, *blocks]
        try:
            if self._writer is None:
                self._writer = StoreWriter(
                    folder,
                    columns,
                    users=False,
                    class_names=True,
                    example_names=self._names is not None,
                    options={},
                    resume=False,
                    private=self._private,
                )
            self._writer.add(*blocks)
        except OSError as error:
            raise _unwritten(folder, error) from None


def write_examples(
    dataset: ExampleDataset,
    destination: Path | str,
    *,
    private: bool = False,
    skipped: Sequence[tuple[str, str]] = (),
    encoded: Encoded | None = None,
) -> ExampleDataset:
    """Write a data set as a store in constant memory, decoding pictures once.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.
        private: for its owner's eyes only.
        skipped: what was left out while the data were read, with the reason.
        encoded: the pictures, where inputs are references to them.

    Returns:
        the store, opened.

    Raises:
        InputError: the destination is not empty, or the disk is full.
    """
    shapes, dtypes = dataset.input_shapes, [rows.dtype for rows in dataset.inputs]
    with ExampleWriter(shapes, dtypes, destination, names=dataset.example_names, private=private) as writer:
        for start, (inputs, targets) in zip(range(0, len(dataset), _BATCH), dataset.batches(_BATCH), strict=True):
            writer.add(inputs, targets, None if dataset.owners is None else dataset.owners[start : start + _BATCH])
        return writer.finish(
            num_classes=dataset.num_classes,
            label_names=dataset.label_names,
            vocabulary_sizes=dataset.vocabulary_sizes,
            columns=dataset.columns,
            input_names=dataset.input_names,
            assumptions=dataset.assumptions,
            found=dataset.found,
            notes=dataset.notes,
            skipped=skipped,
            encoded=encoded,
        )


def open_example_store(path: Path | str) -> ExampleDataset:
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
        inputs=tuple(store.inputs(name) for name in names if name not in (TARGET, OWNER)),
        targets=np.asarray(store.rows(TARGET)) if TARGET in names else None,
        num_classes=facts["num_classes"],
        label_names=store.classes,
        vocabulary_sizes=tuple(facts["vocabulary_sizes"]),
        columns=tuple(tuple(one) for one in facts["columns"]),
        input_names=tuple(facts.get("input_names", ())),  # stores from before there were names have none
        assumptions=stated_from_json(facts["assumptions"]),
        found=found_of(store),
        notes=tuple(facts["notes"]),
        example_names=store.names,
        owners=np.asarray(store.rows(OWNER)) if OWNER in names else None,
    )


def _unwritten(folder: Path | None, error: OSError) -> InputError:
    return InputError(f"{folder} cannot be written: {error.strerror}; make room or choose another folder")
