"""Numbers for labels that come as text: the declared values, or those that are found in the records."""

from collections.abc import Sequence

import numpy as np

from sfumato._check import InputError
from sfumato.data.domain import NAMES


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

    def codes(self, labels: Sequence[str], where: Sequence[str]) -> np.ndarray:
        """The numbers of some labels, int64 [n]; final only after `order`.

        Args:
            labels: as text.
            where: the place of each, for a message.

        Raises:
            InputError: a label is none of the declared values, or is empty.
        """
        numbers = np.empty(len(labels), np.int64)
        for i, label in enumerate(labels):
            code = self._codes.get(label)
            if code is None:
                if self._declared:
                    allowed = ", ".join(list(self._codes)[:8])
                    raise InputError(f"{where[i]}: the label {label!r} is none of {allowed}; {self._remedy}")
                if not label:
                    raise InputError(f"{where[i]}: the label is missing; fill it in or remove the row")
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
