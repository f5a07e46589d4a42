"""Any data set, or any stream of users, as a store: written in one go, in constant memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sfumato.data.safeguards import Listing
from sfumato.data.store.users import open_store, user_columns
from sfumato.data.store.writer import StoreWriter, disk_full
from sfumato.data.users.dataset import UserDataset


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
    assumptions: Sequence[str] = (),
    found: Sequence[str] = (),
    notes: Sequence[str] = (),
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
        options={},
        resume=False,  # nothing tells whether an earlier run wrote these users
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
        told = list(dict.fromkeys([*listing.notes(), *notes]))
        return open_store(
            writer.finish({"notes": told, "assumptions": list(assumptions), "found": list(found)}, items=item_names)
        )
    except OSError as error:
        raise disk_full(error, writer) or error from None
    finally:
        writer.close()


def write_store(
    dataset: UserDataset, destination: Path | str, progress: Callable[[int, int], None] | None = None
) -> UserDataset:
    """Write any data set as a store, user by user in constant memory.

    Args:
        dataset: what to write.
        destination: a folder that does not exist or is empty.
        progress: called with (users done, users).

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
    )
