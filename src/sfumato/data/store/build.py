"""Stores that are built from other records: decode or compute once, train often."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato._types import Stated, stated_to_json
from sfumato.data.mapped import Chosen, ChunkedRows
from sfumato.data.safeguards import Listing
from sfumato.data.store.encoded import Encoded
from sfumato.data.store.format import Column
from sfumato.data.store.opened import INPUTS, Opened, open_store, user_columns
from sfumato.data.store.seal import read_facts
from sfumato.data.store.writer import StoreWriter, disk_full
from sfumato.data.users import UserDataset

# Any data set, or any stream of users, as a store: written in one go, in constant memory.


def write_users(
    users: Iterable[tuple[str, np.ndarray, np.ndarray]],
    destination: Path | str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    *,
    target_shape: tuple[int, ...] = (),
    target_dtype: np.dtype | None = None,
    num_classes: int = 0,
    label_names: Sequence[str] | None = None,
    label_groups: Sequence[str] | None = None,
    item_names: Sequence[str] | None = None,
    assumptions: Sequence[Stated] = (),
    found: Sequence[str] = (),
    notes: Sequence[str] = (),
    example_names: Sequence[str] | None = None,
    skipped: Sequence[tuple[str, str]] = (),
    private: bool = False,
    encoded: Encoded | None = None,
) -> UserDataset:
    """Write users as they come as a store, in constant memory.

    Refused: a name that is blank or no valid UTF-8, and a user who comes twice. Counted in `notes`: names that differ
    only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing one. The rule is
    that of all readers, `sfumato.data.safeguards`. Names take some ten bytes a user.

    Args:
        users: (name, inputs [n, *shape], labels [n, *target_shape]) of each user, once; users without examples are left
            out.
        destination: a folder that does not exist or is empty.
        shape: the shape of one input.
        dtype: the type of the inputs.
        target_shape: the shape of one label: (length,) for sequences, whose labels are ids as the inputs are.
        target_dtype: the type of the labels: float32 for values; None for classes.
        num_classes: number of classes; with `label_names` it follows from them.
        label_names: the classes' names.
        label_groups: the classes' groups.
        item_names: the public names of the numbers in column 0 of the inputs.
        assumptions: sentences that a guarantee for these users rests on.
        found: what of the domain was found in the records.
        notes: lines that `summary` shows.
        example_names: of all examples in their order, or None.
        skipped: what was left out while the data were read, with the reason.
        private: for its owner's eyes only.
        encoded: the pictures, where inputs are references to them.

    Returns:
        the store, opened.

    Raises:
        InputError: the destination is not empty, the disk is full, or there are no users.
    """
    writer = StoreWriter(
        Path(destination),
        user_columns(shape, dtype, target_shape, target_dtype),
        class_names=label_names is not None,
        class_groups=label_groups is not None,
        example_names=example_names is not None,
        private=private,
        options={},
        resume=False,  # nothing shows whether an earlier run wrote these users
    )
    listing = Listing()
    try:
        for label in range(num_classes if label_names is None else len(label_names)):
            name = None if label_names is None else label_names[label]
            writer.add_class(name, None if label_groups is None else label_groups[label])
        for name, inputs, labels in users:
            if len(labels):
                listing.add(name)
                writer.add(labels, inputs)
                writer.end_user(name)
        for name in example_names or ():
            writer.add_name(name)
        for what, reason in skipped:
            writer.skip(what, reason)
        all_notes = list(dict.fromkeys([*listing.notes(), *notes]))
        facts = {"notes": all_notes, "assumptions": stated_to_json(assumptions), "found": list(found)}
        return open_store(writer.finish(facts, items=item_names, encoded=encoded))
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()


def write_store(
    dataset: UserDataset,
    destination: Path | str,
    progress: Callable[[int, int], None] | None = None,
    *,
    private: bool = False,
    skipped: Sequence[tuple[str, str]] = (),
    encoded: Encoded | None = None,
) -> UserDataset:
    """Write any data set as a store, user by user in constant memory.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.
        progress: called with (users done, users).
        private: for its owner's eyes only.
        skipped: what was left out while the data were read, with the reason.
        encoded: the pictures, where inputs are references to them.

    Returns:
        the store, opened.

    Raises:
        InputError: the destination is not empty, the disk is full, or labels are attributes.
    """
    dataset.refuse_attributes("be packed into a store; keep them in memory")

    def users() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for user, name in enumerate(dataset.user_ids):
            yield name, *dataset.examples(user)
            if progress is not None:
                progress(user + 1, len(dataset))

    return write_users(
        users(),
        destination,
        dataset.input_shape,
        dataset.dtype,
        target_shape=dataset.labels.shape[1:],
        target_dtype=np.dtype(np.float32) if dataset.of_values else None,
        num_classes=dataset.num_classes,
        label_names=dataset.label_names,
        label_groups=dataset.label_groups,
        item_names=dataset.item_names,
        assumptions=dataset.assumptions,
        found=dataset.found,
        notes=dataset.notes,
        example_names=None if dataset.example_names is None else Chosen(dataset.example_names, dataset.rows()),
        skipped=skipped,
        private=private,
        encoded=encoded,
    )


# Rows that are computed from records, as a store: written in a stream, taken up after a stop, opened mapped.
#
# The folder is that of every store (`seal.py`), with one column and neither users nor classes. `origin`, JSON values
# that are sealed with it, states what the rows were computed from and how: a store of another origin is refused, never
# used, and one that was not finished goes on where it stopped.
#
# Such rows are as private as the records, so the folder is for its owner only.


_SAFE_EVERY = 20.0  # seconds between points that a stop goes back to


@dataclass(frozen=True)
class StoredRows:
    """Rows of a finished store.

    Attributes:
        rows: [n, *shape], mapped.
        digest: gives the SHA-256 of all of them; reads them again only where the file looks different.
    """

    rows: ChunkedRows
    digest: Callable[[], str]


def stored_rows(
    path: Path,
    column: tuple[tuple[int, ...], np.dtype],
    count: int,
    origin: dict[str, Any],
    compute: Callable[[int, int], np.ndarray],
    *,
    block: int,
    progress: Callable[[int, int], None] | None = None,
    description: str = "",
    meaning: Mapping[str, str] | None = None,
) -> StoredRows:
    """Open computed rows, or compute and write those that are not there yet.

    Args:
        path: the store's folder.
        column: shape and type of a row.
        count: rows, >= 1.
        origin: what they follow from; JSON.
        compute: gives the rows from one number to another, [stop − start, *shape].
        block: rows computed at once, >= 1: all that is held in memory, next to a batch of the file.
        progress: called with (rows done, rows).
        description: a line on what the rows are, kept in store.json.
        meaning: for each name of `origin`, what it means that it differs.

    Raises:
        InputError: the folder holds something else, rows of another origin or damaged ones; another process writes it;
            or the disk is full.
    """
    if path.exists():
        return _opened(path, origin, meaning or {})
    shape, dtype = column
    writer = StoreWriter(
        path,
        [Column(INPUTS, shape, dtype)],
        users=False,
        class_names=False,
        options=origin,
        private=True,
    )
    try:
        _fill(writer, count, compute, block, progress)
        writer.finish({"notes": [description], "assumptions": []})
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()
    return _opened(path, origin, meaning or {})


def _fill(
    writer: StoreWriter,
    count: int,
    compute: Callable[[int, int], np.ndarray],
    block: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    saved = time.monotonic()
    try:
        while writer.examples < count:
            start = writer.examples
            writer.add(compute(start, min(start + block, count)))
            writer.mark()
            if time.monotonic() - saved > _SAFE_EVERY:
                writer.commit()
                saved = time.monotonic()
            if progress is not None:
                progress(writer.examples, count)
    except BaseException:  # ctrl-C, too: what was computed is not computed again
        writer.commit()
        raise


def _opened(path: Path, origin: dict[str, Any], meaning: Mapping[str, str]) -> StoredRows:
    try:
        found = read_facts(path)["options"]
        if found == origin:
            store = Opened(path)
            store.digest()
            return StoredRows(store.rows(INPUTS), store.digest)
    except InputError as error:
        what = str(error).rpartition(";")[0] or str(error)
        raise InputError(f"{what}; delete {path}, and it is made again") from None
    differ = [name for name, value in origin.items() if found.get(name) != value]
    what = ", ".join(f"{name} {_short(found.get(name))} then, {_short(origin[name])} now" for name in differ)
    means = " and ".join(meaning[name] for name in differ if name in meaning)
    raise InputError(
        f"{path} was made of something else ({what}){means and f': {means}'}; give another folder, or delete this one "
        "and it is made again"
    )


def _short(value: Any) -> str:
    """A digest by its first digits."""
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else f"{value}"
