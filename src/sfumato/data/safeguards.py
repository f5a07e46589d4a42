"""What every reader checks before a guarantee is given for users: that one person is one unit, and two are two.

The unit is a person. Two spellings of one person divide one unit into two, so the true ε is that of a group of two;
one file under two people does likewise; a key that is there twice silently merges or drops people. Each of these is
refused or counted, by every reader, by the same rule and in the same words:

| what a reader finds                                                     | what becomes of it                     |
| ----------------------------------------------------------------------- | -------------------------------------- |
| names that differ only in case, blanks, zeros in front or Unicode form  | counted: each is a user of its own     |
| a name that is missing: null, NaN, empty or blank                       | refused, with its row                  |
| a name that often stands for a missing one: `NA`, `null`, `NaN`, …      | counted: it is a name as any other     |
| a name that is no valid UTF-8                                           | refused                                |
| a user who is there twice, where a format lists each once               | refused                                |
| one file under two users, or in two parts of a data set, by any link    | refused                                |
| one file twice for one user, or for two examples                        | counted                                |
| a key twice in an object of JSON, an array twice in an npz              | refused                                |

A name is a text, also where all are numbers: `7` and `007` are two names, `NA` is one, and only what a format itself
keeps as missing (null, NaN among numbers, an empty field) is missing. Names are taken as they are; the blanks around a
field of a delimited file are no part of it.

>>> name_notes(["Ann", "ann ", "bo"])[0]
"2 of 3 users have names that differ only in case, blanks, zeros or Unicode form, 'Ann' and 'ann ' for example: ..."
>>> name_notes(["ann", "NA"])
["1 of 2 users have names that often stand for a missing one, 'NA' for example; ..."]
>>> name_notes(["ann", "bo"])
[]
>>> name_notes(["ann", "bo", "ann"])
Traceback (most recent call last):
...
sfumato._check.InputError: the user 'ann' is there twice; list each user once

**Values** that are written in several ways, or look like a missing one: each counts as a value of its own.

>>> odd_values("the classes", ["No", "Yes", "no", "YES "])[0]
"the classes: 4 of 4 values differ from another one only in case, blanks or Unicode form, as 'No' and 'no', ..."
>>> odd_values("the classes", ["a", "b", "NA"])
["the classes: 'NA' looks like a missing value and counts as a value; where it is missing, drop its rows"]
>>> odd_values("the classes", ["no", "yes"])
[]
"""

import hashlib
import os
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato.data.mapped import Strings

Where = Callable[[int], str]
"""Describes a row, for a message."""

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""What a missing value looks like in a file of text."""


_MOST = 10_000  # values that are looked at


def odd_values(title: str, values: Sequence[str]) -> list[str]:
    """Lines for readers that count such values, at most two; none where there are none.

    Args:
        title: what the lines call them.
        values: each once; more than 10,000 are names rather than answers, and are not looked at.
    """
    if len(values) > _MOST:
        return []
    forms: dict[str, list[str]] = {}
    for value in values:
        form = " ".join(unicodedata.normalize("NFKC", value).split()).casefold()
        forms.setdefault(form, []).append(value)
    several = [same for same in forms.values() if len(same) > 1]
    lines = []
    if several:
        one, other = map(ascii, several[0][:2])
        lines.append(
            f"{title}: {sum(map(len, several)):,} of {len(values):,} values differ from another one only in case, "
            f"blanks or Unicode form, as {one} and {other}, and each counts by itself; write equal ones in one way"
        )
    if missing := [value for value in values if value.strip() in MISSING]:
        lines.append(
            f"{title}: {missing[0]!r} looks like a missing value and counts as a value; where it is missing, drop its "
            "rows"
        )
    return lines


Kind = Literal["user", "class"]
"""What names are of."""


_WHOLE = re.compile(r"\+?0*(\d+)(\.0*)?")
_MISSING = frozenset({"na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "nil", "?"})
_KEY_TWICE = re.compile(r"Column\(/(.*)\) was specified twice in row \d+")
_PLURAL = {"user": "users", "class": "classes"}
_LOOK = {
    "user": "each is protected as another person; where they are one person, write the name in one way",
    "class": "each is a class of its own; where they are one, write the name in one way",
}
_DIGITS = tuple("+0123456789")
_SHOWN = 80  # characters of a name in a message


def name_notes(names: Sequence[str], kind: Kind = "user") -> list[str]:
    """Check the names of all users, or of classes, each once: one call for each data set that is read.

    Args:
        names: each user once, in any order.
        kind: what they are of.

    Returns:
        lines that count names that may be of one person, and names that may stand for a missing one.

    Raises:
        InputError: a name is empty or blank, is no valid UTF-8, or is there twice.
    """
    refuse_undecodable(names, kind)
    first: dict[str, int] = {}
    others: dict[str, int] = {}
    pair = "", ""
    missing: list[str] = []
    for place, name in enumerate(names):
        if not name.strip():
            raise InputError(f"a {kind} has an empty or blank name; give the {kind} a name, or drop the rows")
        form = _folded(name)
        before = first.setdefault(form, place)
        if before != place:
            others[form] = others.get(form, 0) + 1
            pair = (names[before], name) if len(others) == 1 and others[form] == 1 else pair
        if form in _MISSING:
            missing.append(name)
    if others:
        refuse_twice(names, kind)
    notes = []
    if others:
        notes.append(
            f"{sum(others.values()) + len(others):,} of {len(names):,} {_PLURAL[kind]} have names that differ only in "
            f"case, blanks, zeros or Unicode form, {_shown(pair[0])} and {_shown(pair[1])} for example: {_LOOK[kind]}"
        )
    if missing and kind == "user":
        notes.append(
            f"{len(missing):,} of {len(names):,} users have names that often stand for a missing one, "
            f"{_shown(missing[0])} for example; each counts as one person: drop rows without a user's name"
        )
    return notes


def refuse_twice(names: Iterable[str], kind: str = "user", at: Where | None = None) -> None:
    """Refuse a name that is there twice, where each is listed once.

    Args:
        names: in their order.
        kind: what they are of.
        at: describes where one stands, by its position.

    Raises:
        InputError: names the first.
    """
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        before = seen.setdefault(name, position)
        if before != position:
            where = f", at {at(before)} and {at(position)}" if at is not None else ""
            raise InputError(f"the {kind} {_shown(name)} is there twice{where}; list each {kind} once")


def refuse_undecodable(names: Sequence[str], kind: str = "user") -> None:
    """Refuse names that are no valid UTF-8: half a character (a surrogate), or bytes of another encoding.

    Raises:
        InputError: names the first.
    """
    if isinstance(names, Strings):
        content, offsets = (pa.py_buffer(np.ascontiguousarray(each)) for each in names.arrays)
        try:  # all in one go, without a copy
            pa.Array.from_buffers(pa.large_string(), len(names), [None, offsets, content]).validate(full=True)
            return
        except pa.ArrowInvalid:
            pass
    for name in names:
        refuse_undecodable_name(name, kind)


def refuse_undecodable_name(name: str, kind: str = "user", where: str = "") -> None:
    """Refuse one name that is no valid UTF-8.

    Args:
        name: with what cannot be decoded as surrogates.
        kind: what it is of.
        where: the place, for the message.

    Raises:
        InputError: it is none.
    """
    if not name.isascii() and any("\ud800" <= each <= "\udfff" for each in name):
        raise InputError(
            f"{where}{': ' if where else ''}the name of the {kind} {_shown(name)} is no valid UTF-8; write it anew in "
            "UTF-8 (rename a folder)"
        )


def missing_name(title: str, where: str) -> InputError:
    """The refusal of a row that names no one.

    Args:
        title: the column, as "the user 'who'".
        where: the row.
    """
    return InputError(f"{title} is missing (null, NaN, empty or blank) at {where}; fill it in or drop the row")


def refuse_blank(name: str, title: str, where: str) -> None:
    """Refuse a name that is empty or blank.

    Raises:
        InputError: it is; see `missing_name`.
    """
    if not name.strip():
        raise missing_name(title, where)


def names_in(
    column: pa.Array, title: str, where: Where, *, kind: pa.DataType | None = None
) -> tuple[list[str | int], np.ndarray]:
    """The distinct names in a block of a column, and which of them each row has.

    Args:
        column: texts or whole numbers, of a type that `plain` gives.
        title: what messages call the column.
        where: describes a row.
        kind: the type that it has in the table, for messages; None for that of `column`.

    Returns:
        the names, as texts or whole numbers, and positions among them, int64 [rows].

    Raises:
        InputError: a row has no name, or they are neither texts nor whole numbers.
    """
    absent = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    if absent.any():
        raise missing_name(title, where(int(absent.argmax())))
    kind, text = kind or column.type, pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        raise InputError(f"{title} has bytes ({kind}), which are no text in UTF-8; write it as text in UTF-8")
    if len(column) and not (text or pa.types.is_integer(column.type)):
        raise InputError(f"{title} must be whole numbers or text, got {kind}; cast it to text")
    coded = column.dictionary_encode()
    rows = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = coded.dictionary.to_pylist()
    blank = [place for place, name in enumerate(names) if text and not name.strip()]
    if blank:
        raise missing_name(title, where(int((rows == blank[0]).argmax())))
    return names, rows


def key_twice(error: Exception) -> str:
    """What is wrong with JSON in one line, in the same words for every parser.

    The row that Arrow names is left out, as it counts from the block that it was reading.
    """
    message = " ".join(str(error).split())
    found = _KEY_TWICE.search(message)
    return f"{found[1].replace('/', '.')!r} is there twice in an object" if found else message


class Files:
    """Which of many files are one and the same: by their device and number there, so that no link hides it.

    It takes 24 bytes a file.
    """

    def __init__(self) -> None:
        self._keys, self._owners, self._looks = array("Q"), array("q"), hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of size, times and inode of all files in their order, which a change of one changes."""
        return self._looks.hexdigest()

    def add(self, facts: os.stat_result, owner: int = 0) -> None:
        """Add a file.

        Args:
            facts: of the file, links followed.
            owner: whose it is.
        """
        self._keys.extend((facts.st_dev, facts.st_ino))
        looks = facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_dev, facts.st_ino
        self._looks.update(b"%d %d %d %d %d;" % looks)
        self._owners.append(owner)

    def repeats(self) -> "Repeats | None":
        """Files that are there again; None where there are none."""
        keys = np.frombuffer(self._keys, np.uint64).reshape(-1, 2)
        order = np.lexsort(keys.T)  # those of one file lie side by side, in their order
        again = (keys[order[1:]] == keys[order[:-1]]).all(1)
        if not again.any():
            return None
        first, second = order[:-1][again], order[1:][again]
        owners = np.frombuffer(self._owners, np.int64)
        two = owners[first] != owners[second]
        shared = None
        if two.any():
            place = int(second[two].argmin())
            shared = int(first[two][place]), int(second[two][place])
        place = int(second.argmin())
        return Repeats(count=len(second), example=(int(first[place]), int(second[place])), shared=shared)


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Files that are there again.

    Attributes:
        count: how many times.
        example: positions of the first that is there again, as it was and as it is again.
        shared: the same, of a file of two owners; None where no file has two.
    """

    count: int
    example: tuple[int, int]
    shared: tuple[int, int] | None


def refuse_shared(one: str, other: str) -> None:
    """Refuse a file that is named for two users.

    To leave it out would make what is known of a user depend on another one.

    Args:
        one, other: where it is named, with the user.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"{other} names the same file as {one}: a file of two users is hidden with neither; keep it for one of them, "
        "or for none"
    )


def repeat_note(count: int, one: str, other: str, *, of_users: bool, what: str = "file") -> str:
    """The line that counts files that are there again for one user, or as another example.

    Args:
        count: how many times.
        one, other: the place of the first, and where it is again.
        of_users: whether rows belong to users.
        what: what names the files, "row" or "file".
    """
    whose = "each counts as a picture of that user" if of_users else "each is an example of its own"
    return (
        f"{count:,} {what}{'s' * (count > 1)} name{'s' * (count == 1)} a file that a {what} before names, {other} that "
        f"of {one} for example: {whose}"
    )


def refuse_same_files(paths: Iterable[Path]) -> None:
    """Refuse a part of a data set that is there under two names, by a link.

    Raises:
        InputError: names both.
    """
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if path.exists():
            facts = path.stat()
            other = found.setdefault((facts.st_dev, facts.st_ino), path)
            if other is not path:
                raise InputError(f"{path} and {other} are the same file, and its records would count twice; keep one")


def refuse_shared_files(paths: Sequence[Path]) -> None:
    """Refuse one file under two names where each file is one user's, named by it.

    Raises:
        InputError: names both.
    """
    found = Files()
    for owner, path in enumerate(paths):
        found.add(path.stat(), owner)
    repeats = found.repeats()
    if repeats is not None and repeats.shared is not None:
        refuse_shared(*(f"{paths[place]} (user {paths[place].stem!r})" for place in repeats.shared))


class Listing:
    """Names as they come, each once, to be checked when all are there; it takes their bytes and 8 more for each."""

    def __init__(self) -> None:
        self._content, self._ends = bytearray(), array("q", [0])

    def add(self, name: str) -> None:
        """Add the name of the next user.

        Raises:
            InputError: it is no valid UTF-8.
        """
        refuse_undecodable_name(name)
        self._content += name.encode()
        self._ends.append(len(self._content))

    def notes(self) -> list[str]:
        """What `name_notes` says of them all."""
        return name_notes(Strings(np.frombuffer(bytes(self._content), np.uint8), np.array(self._ends, np.int64)))


def _folded(name: str) -> str:
    """What names that are written almost equally have in common; the name itself where nothing of it can be seen."""
    form = name
    if name.isascii() and name.isprintable():
        if " " not in name and not name.startswith(_DIGITS):
            return name.lower()
    else:
        form = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        form = "".join(" " if each.isspace() else each for each in form if each.isspace() or each.isprintable())
    whole = _WHOLE.fullmatch(form.strip())
    return whole[1] if whole else " ".join(form.split()).casefold() or name


def _shown(name: str) -> str:
    return ascii(name if len(name) < _SHOWN else name[:_SHOWN] + "…")
