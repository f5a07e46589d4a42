"""Labels and targets: declared classes, those that are found in the records, and numbers.

**Repairs:** what a table's values were taken for where they are not what the schema declares, counted by column.

>>> repair_notes(Repairs({(CLIPPED, "age"): 2, (FILLED, "age"): 0}), 1000)
('clipped to the declared bounds: age 2 of 1,000 rows (these counts are not private)',)

**Targets** from arrays: classes, or numbers, and whether classes were found in the records.

| given                       | becomes                     | is                                    |
| --------------------------- | --------------------------- | ------------------------------------- |
| text [N]                    | int64 [N], num_classes      | classes                               |
| whole numbers [N]           | int64 [N], num_classes      | classes, unless stated otherwise      |
| whole numbers [N, k]        | int64 [N, k]                | several answers, counts               |
| floats [N] or [N, k]        | float32, the same shape     | numbers                               |
| None                        | None                        | nothing: the loss reads outputs alone |

>>> checked_targets(np.array([0.5, np.inf]))
Traceback (most recent call last):
...
sfumato._check.InputError: targets must be finite in single precision, got inf in example 1; correct or drop it
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato._check import InputError, whole
from sfumato.data.domain import COUNT, NAMES
from sfumato.data.inputs import to_float32
from sfumato.data.mapped import Strings
from sfumato.data.safeguards import Where, name_notes

Repairs = Counter[tuple[str, str]]
"""How often values were taken for others: by what was done, and the column. It depends on the records."""


CLIPPED, FILLED, UNDECLARED = "clipped to the declared bounds", "missing and filled", "none of the declared values"
CUT = "cut to the declared number of values"


def repair_notes(repairs: Repairs, rows: int) -> tuple[str, ...]:
    """A line for each kind of repair that was made."""
    lines = []
    for what in (CLIPPED, FILLED, UNDECLARED, CUT):
        found = [f"{name} {count:,}" for (kind, name), count in repairs.items() if kind == what and count]
        if found:
            lines.append(f"{what}: {', '.join(found)} of {rows:,} rows (these counts are not private)")
    return tuple(lines)


# Numbers for labels that come as text: the declared values, or those that are found in the records.


class LabelCodes:
    """Numbers labels as they come, and knows the final order at the end.

    Args:
        values: the classes in the order of their numbers; None takes them from the records.
        remedy: what to do about a label that is none of the declared ones.

    Raises:
        InputError: fewer than one value, or a value twice.
    """

    def __init__(self, values: Sequence[object] | None, remedy: str) -> None:
        self._declared = values is not None
        self._remedy = remedy
        self._codes: dict[str, int] = {}
        for value in values or ():
            if str(value) in self._codes:
                raise InputError(f"the label {value!r} is declared twice")
            self._codes[str(value)] = len(self._codes)
        if self._declared and not self._codes:
            raise InputError("label values are declared but there are none; list the classes")

    def codes(self, labels: Sequence[str], where: Where) -> np.ndarray:
        """The numbers of some labels, int64 [n]; final only after `order`.

        Args:
            labels: as text.
            where: describes a row, for a message.

        Raises:
            InputError: a label is none of the declared values, or is empty.
        """
        numbers = np.empty(len(labels), np.int64)
        for i, label in enumerate(labels):
            code = self._codes.get(label)
            if code is None:
                if self._declared:
                    allowed = ", ".join(list(self._codes)[:8])
                    raise InputError(f"{where(i)}: the label {label!r} is none of {allowed}; {self._remedy}")
                if not label:
                    raise InputError(f"{where(i)}: the label is missing; fill it in or remove the row")
                code = self._codes[label] = len(self._codes)
            numbers[i] = code
        return numbers

    def order(self) -> tuple[np.ndarray, list[str], tuple[str, ...]]:
        """The final number of each code so far, int64 [classes]; the names in order; and what was found.

        Found names are ordered as numbers where all of them are whole numbers, else as text.
        """
        names = list(self._codes)
        if self._declared:
            return np.arange(len(names)), names, ()
        numeric = all(name.lstrip("+-").isdecimal() for name in names)
        ordered = sorted(names, key=(lambda name: (int(name), name)) if numeric else (lambda name: (0, name)))
        place = {name: i for i, name in enumerate(ordered)}
        return np.array([place[name] for name in names]), ordered, (NAMES,)


_BLOCK = 1 << 20  # targets checked in one go


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Targets, and the fields of an `ExampleDataset` that go with them.

    Attributes:
        values: int64 or float32, [N] or [N, k].
        num_classes: None for numbers.
        label_names: a name for each class, or None.
        found: what was taken from the records (`data.domain`).
        notes: lines for people, which depend on the records.
    """

    values: np.ndarray
    num_classes: int | None = None
    label_names: Sequence[str] | None = None
    found: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def checked_targets(
    targets: Any, *, classes: bool = True, num_classes: int | None = None, label_names: Sequence[str] | None = None
) -> Targets:
    """Targets as data sets keep them; arguments as for `examples_from_arrays`.

    Raises:
        InputError: text or whole numbers that are no classes of those that are declared, a number that is not finite,
            or another type or shape.
    """
    values = np.asanyarray(targets)
    if values.ndim not in (1, 2):
        raise InputError(f"targets must have shape [examples] or [examples, k], got {values.shape}; flatten them")
    if values.dtype.kind not in "USiuf":
        raise InputError(f"targets must be numbers or text, got {values.dtype}; cast them to int64 or float32")
    if classes and values.ndim == 1 and values.dtype.kind != "f":
        return _classes(values, num_classes, label_names)
    if values.dtype.kind in "US":
        raise InputError(f"targets that are text must be one class an example, got {values.shape}; give numbers")
    if num_classes is not None or label_names is not None:
        remedy = "cast class numbers to int64"
        if values.ndim == 2:  # one number an example in a column, or a one for its class in a row
            remedy = f"give class numbers: targets{'[:, 0]' if values.shape[1] == 1 else '.argmax(axis=1)'}"
        if not classes:
            remedy = "leave out classes=False, or what is said of classes"
        raise InputError(
            f"num_classes and label_names are for classes, got numbers, {values.dtype} {values.shape}; {remedy}"
        )
    if classes and values.dtype.kind != "f" and values.shape[1] == 1:
        raise InputError(
            f"targets of shape {values.shape} may be classes or counts; give classes as targets[:, 0], and counts with "
            "classes=False"
        )
    if values.dtype.kind != "f":
        return Targets(values=values if values.dtype == np.int64 else values.astype(np.int64))
    return Targets(values=to_float32(values, "targets"))


def _classes(labels: np.ndarray, num_classes: int | None, label_names: Sequence[str] | None) -> Targets:
    """Class numbers from whole numbers or text [N]."""
    said: list[str] = []
    notes: tuple[str, ...] = ()
    if labels.dtype.kind in "US":
        labels, label_names, taken = _numbered(labels.astype(str), label_names)
        said += taken
        notes = tuple(name_notes(label_names, "class")) if taken else ()
    if label_names is not None:
        num_classes = len(label_names) if num_classes is None else num_classes
    if num_classes is None:
        num_classes, _, taken = classes_of(labels)
        said += taken
        if not (labels == 0).any():
            notes = ("no example has class 0, for which the model gets an output; subtract 1 if classes begin at 1",)
    num_classes = num_classes or 0  # the check refuses 0 by name
    whole(num_classes=num_classes)
    _refuse_outside(labels, num_classes)
    return Targets(
        values=labels if labels.dtype == np.int64 else labels.astype(np.int64),
        num_classes=num_classes,
        label_names=label_names,
        found=tuple(said),
        notes=notes,
    )


def classes_of(*parts: np.ndarray | None) -> tuple[int | None, Sequence[str] | None, tuple[str, ...]]:
    """The classes that the labels of all parts hold: their number, their names, and what of it was found.

    Args:
        parts: labels [N] of each part, or None for a part that is not there.

    Returns:
        (None, None, ()) where they are neither whole numbers [N] nor text: no classes, or what the check then refuses.
    """
    given = [labels for labels in parts if labels is not None and labels.ndim == 1 and labels.size]
    if given and all(labels.dtype.kind in "US" for labels in given):
        names = np.unique(np.concatenate([np.unique(labels).astype(str) for labels in given])).tolist()
        return None, Strings.from_list(names), (NAMES,)
    if given and all(labels.dtype.kind in "iu" for labels in given):
        top = max(int(labels[i : i + _BLOCK].max()) for labels in given for i in range(0, len(labels), _BLOCK))
        count = max(1, top + 1)  # negative labels are refused with their position
        return count, None, (COUNT,)
    return None, None, ()


def _numbered(labels: np.ndarray, names: Sequence[str] | None) -> tuple[np.ndarray, Sequence[str], list[str]]:
    """Labels that are text as numbers, with the names and what of them was found."""
    found, codes = np.unique(labels, return_inverse=True)
    if names is None:
        return codes.astype(np.int64), Strings.from_list(found.tolist()), [NAMES]
    number: Mapping[str, int] = {name: i for i, name in enumerate(names)}
    unknown = [name for name in found.tolist() if name not in number]
    if unknown:
        at = int(np.flatnonzero(labels == unknown[0])[0])
        raise InputError(f"target {unknown[0]!r} at position {at} is none of label_names; add it or drop the record")
    return np.array([number[name] for name in found.tolist()], np.int64)[codes], names, []


def _refuse_outside(labels: np.ndarray, num_classes: int) -> None:
    for start in range(0, len(labels), _BLOCK):
        block = labels[start : start + _BLOCK]
        outside = (block < 0) | (block >= num_classes)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise InputError(
                f"targets must be in 0 … {num_classes - 1} (num_classes={num_classes}), got {int(block[at])} "
                f"at position {start + at}; number the classes from 0"
            )
