"""A store of users, opened: 10⁶ of them in well under two seconds, in memory that the examples do not count in.

Nothing is read at the start but the tables of users and classes, to check their SHA-256; pages of `examples.arrow` are
loaded when a user is asked for. Other programs open the same file:

    datasets.Dataset.from_file("photos.store/examples.arrow")                # mapped
    polars.scan_ipc("photos.store/examples.arrow")                           # mapped; reads what a query needs
    pyarrow.ipc.open_stream("photos.store/examples.arrow").read_pandas()     # pandas, in memory

Its columns are user (a row of `users.arrow`), target (a row of `classes.arrow`, where that is there) and inputs.
"""

from pathlib import Path

import numpy as np

from sfumato._check import InputError
from sfumato.data.domain import COUNT, NAMES
from sfumato.data.safeguards import refuse_undecodable
from sfumato.data.store.arrow import Column
from sfumato.data.store.opened import Opened
from sfumato.data.store.writer import TARGET
from sfumato.data.users.dataset import UserDataset

INPUTS = "inputs"


def user_columns(
    shape: tuple[int, ...], dtype: np.dtype, target_shape: tuple[int, ...] = (), target_dtype: np.dtype | None = None
) -> tuple[Column, ...]:
    """What a store of users holds of each example, beside the user.

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
        raise InputError(f"the examples in {path} are not divided by user; open them with load_examples or dpsgd")
    names, offsets = store.users()
    refuse_undecodable(names)
    if verify:
        store.digest(anew=True)
    return UserDataset(
        inputs=store.rows(INPUTS),
        labels=store.rows(TARGET),
        offsets=offsets,
        names=names,
        num_classes=store.facts["classes"],
        label_names=store.classes,
        label_groups=store.groups,
        assumptions=tuple(store.facts.get("assumptions", ())),
        found=found_of(store),
        notes=tuple(store.facts["notes"]),
        contents=store.digest,
        item_names=store.items,
    )
