"""What of a data set's domain was found in its records, and the one rule about it under a guarantee.

Noise hides what a record adds to a sum, and not a class, an item or a word that is there because one record has it. So
what a released model has a place for is declared, comes from a public file, or is released under noise. Data sets keep
what their reader found in `found`; a run with a guarantee refuses what it would take from there.

>>> refuse_found((NAMES,))
Traceback (most recent call last):
...
sfumato._check.InputError: the names of the classes were found in the private records, which no guarantee covers;
declare them: --class-names FILE (label_names=…, data.with_classes([…])), or --public-classes if they are public anyway
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from sfumato._check import InputError, whole
from sfumato._types import Assumption

COUNT = "the number of classes was"
NAMES = "the names of the classes were"
ITEMS = "the list of items was"
"""What a reader may find in records; a data set has some of these in `found`."""

_REMEDIES = {
    COUNT: "declare it: --num-classes N (num_classes=…, data.with_classes(N)), or --public-classes if it is public "
    "anyway",
    NAMES: "declare them: --class-names FILE (label_names=…, data.with_classes([…])), or --public-classes if they are "
    "public anyway",
    ITEMS: "give the public catalogue: --items FILE (items=…), a file with one id a line",
}

DECLARED_PUBLIC = Assumption("classes_declared")
"""The sentence for classes that were declared public on the command line or by `with_classes(None)`."""

BUILT = Assumption("model_built_before")
"""The sentence for a model that is given."""


def refuse_found(found: Iterable[str]) -> None:
    """Refuse what was found in private records.

    Raises:
        InputError: there is something; with the option that declares it.
    """
    for what in found:
        raise InputError(f"{what} found in the private records, which no guarantee covers; {_REMEDIES[what]}")


def read_names(file: Path) -> list[str]:
    """The lines of a public file of names, in their order.

    Raises:
        InputError: the file cannot be read, is empty, or has a name twice.
    """
    try:
        names = [line.strip() for line in file.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); it needs one name a line, in UTF-8") from None
    if not names:
        raise InputError(f"{file} holds no names; it needs one a line")
    if len(set(names)) < len(names):
        raise InputError(f"{file} has {next(name for name in names if names.count(name) > 1)!r} twice; remove one")
    return names


def renumbered(
    classes: int | Sequence[str], count: int, names: Sequence[str] | None, present: np.ndarray
) -> tuple[np.ndarray, int, Sequence[str] | None]:
    """The declared number of each class that a data set has.

    Args:
        classes: how many there are, or their names in the order of their numbers.
        count: of classes of the data set.
        names: of these, or None.
        present: bool [count], which of them a record has.

    Returns:
        int64 [count], -1 for a class that no record has and that is not declared; how many classes there are; and their
        names.

    Raises:
        InputError: a record has a class that is not declared; or one has names and the other none.
    """
    numbers = np.arange(count)
    if isinstance(classes, int):
        whole(num_classes=classes)
        if names is not None:  # a number would take the names, and their order, from the records
            raise InputError(
                f"the classes have names ({names[0]!r} …); declare these (--class-names FILE), not a number"
            )
        wanted, given = classes, None
    elif names is None:
        wanted, given = len(classes), list(classes)
    else:
        place = {name: number for number, name in enumerate(classes)}
        numbers = np.array([place.get(name, -1) for name in names], np.int64)
        wanted, given = len(classes), list(classes)
    numbers = np.where(numbers < wanted, numbers, -1)
    if (wrong := present & (numbers < 0)).any():
        lost = int(wrong.argmax())
        shown = lost if names is None else repr(names[lost])
        raise InputError(
            f"a record has the class {shown}, which is none of the {wanted:,} that are declared; declare it, or leave "
            "such records out"
        )
    return numbers, wanted, given
