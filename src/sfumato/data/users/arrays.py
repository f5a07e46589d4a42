"""A data set of users from arrays in memory, in any order.

>>> from_arrays([[0.5], [1.5]], labels=[0, 1], users=["bo", "al"]).examples(0)[0].tolist()
[[1.5]]
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.domain import COUNT, NAMES
from sfumato.data.inputs import as_array, checked_inputs
from sfumato.data.safeguards import missing_name, name_notes
from sfumato.data.singles import as_singles
from sfumato.data.strings import Strings, as_text
from sfumato.data.users.dataset import UserDataset

_MOST_CLASSES = 1 << 31  # a byte each is taken to look which are held


def from_arrays(
    inputs: Any,
    labels: Any,
    users: Any,
    label_names: Sequence[str] | None = None,
    label_groups: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> UserDataset:
    """A data set from three arrays of the same length, in any order.

    Refused: a row without a name (null, NaN, empty or blank) or with one that is no valid UTF-8. Counted in `notes`:
    names that differ only in case, blanks, zeros or Unicode form, and names such as `NA` that often stand for a missing
    one. The rule is that of all readers, `sfumato.data.safeguards`.

    Args:
        inputs: [n, …]. Images are uint8 [n, H, W, C] with C = 1 or 3, or uint8 [n, H, W], which gets C = 1.
            Anything else (float features, token ids) passes as it is. Rows that are sorted by user are not
            copied.
        labels: [n], integers ≥ 0, or strings, which are numbered in sorted order; or integers of the inputs' shape [n,
            length], the token behind each one, 0 for padding, with names for all of the vocabulary. Or finite floats
            [n], which are values and no classes; they are kept as float32. Or booleans [n, attributes], a row of
            which several may be true.
        users: [n], the user of each row, integers or strings. Users are numbered in sorted order; the rows of
            one user keep their order.
        label_names: a name for each class or attribute; without it there are max(labels) + 1 classes, found in the
            records (declare them by `with_classes`).
        label_groups: the group of each class.
        notes: lines that `summary` shows.

    Raises:
        InputError: no rows, lengths that differ, labels that are not integers ≥ 0 or exceed the names, values that
            are not finite, or inputs that are not numbers.
    """
    inputs, labels, users = checked_inputs(as_array(inputs, "inputs")), np.asarray(labels), np.asarray(users)
    tokens = labels.ndim == 2 and labels.shape == inputs.shape and labels.shape[1] > 1 and labels.dtype.kind not in "fb"
    attributes = labels.ndim == 2 and labels.dtype == bool and labels.shape[1] > 0
    fits = labels.ndim == 1 or tokens or attributes
    if not len(inputs) == len(labels) == len(users) or not fits or users.ndim != 1:
        shapes = f"inputs {inputs.shape}, labels {labels.shape}, users {users.shape}"
        columns = [name for name, each in (("labels", labels), ("users", users)) if each.shape == (len(inputs), 1)]
        remedy = "".join(f"; flatten {name}: {name}[:, 0]" for name in columns)
        raise InputError(f"inputs, labels and users must have one row an example, got {shapes}{remedy}")
    if len(inputs) == 0:
        raise InputError("the data has no users: inputs, labels and users are empty")
    domain = (COUNT,) if label_names is None else ()
    if labels.dtype.kind in "US":
        domain = (NAMES,) if label_names is None else ()
        found, labels = np.unique(as_text(labels, "labels"), return_inverse=True)
        label_names = label_names if label_names is not None else Strings.from_list(found.tolist())
    if labels.dtype.kind == "f":
        if label_names is not None or label_groups is not None:
            raise InputError(f"labels of {labels.dtype} are values, which have no names; cast classes to int64")
        labels, num_classes, domain = as_singles(labels, "labels"), 0, ()
    elif attributes:
        num_classes, domain = labels.shape[1], ()
        _refuse_other_counts(num_classes, label_names, label_groups)
    else:
        num_classes = _class_count(inputs, labels, label_names, label_groups, tokens=tokens)
        labels = labels.astype(np.int64)
    absent = np.array([each is None or each != each for each in users.tolist()]) if users.dtype.kind in "fO" else None
    if absent is not None and absent.any():
        raise missing_name("the user", f"position {int(absent.argmax())}")
    if users.dtype.kind not in "iuUS":
        raise InputError(f"users must be whole numbers or strings, got {users.dtype}")
    if users.dtype.kind in "US":
        users = as_text(users, "users")
        blank = np.char.strip(users) == ""
        if blank.any():
            raise missing_name("the user", f"position {int(blank.argmax())}")
    names, owner, counts = np.unique(users, return_inverse=True, return_counts=True)
    order = None
    if (np.diff(owner) < 0).any():
        order = np.argsort(owner, kind="stable")
        inputs, labels = inputs[order], labels[order]
    return UserDataset(
        inputs=inputs,
        labels=labels,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        names=Strings.from_list(map(str, names.tolist())),
        num_classes=num_classes,
        label_names=label_names,
        label_groups=label_groups,
        found=domain,
        notes=(*(name_notes(names.tolist()) if names.dtype.kind == "U" else ()), *notes),
        places=order,
    )


def _refuse_other_counts(
    attributes: int, label_names: Sequence[str] | None, label_groups: Sequence[str] | None
) -> None:
    """Names and groups are one an attribute."""
    for what, given in (("label_names", label_names), ("label_groups", label_groups)):
        if given is not None and len(given) != attributes:
            raise InputError(f"{what} must have one entry an attribute ({attributes}), got {len(given)}")


def _class_count(
    inputs: np.ndarray,
    labels: np.ndarray,
    label_names: Sequence[str] | None,
    label_groups: Sequence[str] | None,
    *,
    tokens: bool,
) -> int:
    """How many classes there are; raises InputError where labels are none, or names and groups do not fit."""
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers >= 0 or strings, got {labels.dtype}; cast them to int64")
    if labels.min() < 0:
        raise InputError(f"labels must be >= 0, got {int(labels.min())}; number the classes from 0")
    num_classes = int(labels.max()) + 1
    if num_classes > _MOST_CLASSES:
        raise InputError(f"labels must be below {_MOST_CLASSES:,}, got {num_classes - 1:,}; number the classes from 0")
    if tokens and (label_names is None or inputs.dtype.kind not in "iu" or int(inputs.max()) >= len(label_names)):
        raise InputError(
            "labels of every token need inputs that are ids and label_names, a name for each id of the public "
            f"vocabulary; got inputs {inputs.dtype}, {0 if label_names is None else len(label_names)} names"
        )
    if label_names is not None:
        if num_classes > len(label_names):
            raise InputError(f"label {num_classes - 1} has no name: label_names has {len(label_names)} entries")
        num_classes = len(label_names)
    if label_groups is not None and len(label_groups) != num_classes:
        raise InputError(f"label_groups must have one entry a class ({num_classes}), got {len(label_groups)}")
    return num_classes
