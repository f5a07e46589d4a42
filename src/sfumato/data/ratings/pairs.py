"""Pairs of a user and an item without values: what a model is asked for.

>>> import pyarrow as pa
>>> table = pa.table({"who": ["bo", "al"], "film": [17, 4]})
>>> asked = pairs(table, user="who", item="film", users=["al", "bo"], items=["4", "17"])
>>> asked.users.tolist(), asked.items.tolist(), asked.left_out
([1, 0], [1, 0], 0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sfumato._check import InputError, one_of
from sfumato.data.ratings.columns import Codes
from sfumato.data.ratings.records import columns_of, parts_of


@dataclass(frozen=True)
class Pairs:
    """Whom a model is asked about, and which item, in the order of the files.

    Attributes:
        users, items: int64 [rows], positions in the lists that were given.
        left_out: rows of items that are not in the list.
    """

    users: np.ndarray
    items: np.ndarray
    left_out: int


def pairs(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    users: Sequence[str],
    items: Sequence[str],
    on_unknown: Literal["refuse", "skip"] = "refuse",
) -> Pairs:
    """Read pairs.

    Args:
        source: as for `ratings`; other columns are not looked at.
        user, item: the columns; those of MovieLens need not be named.
        users: who can be asked about.
        items: which items there are.
        on_unknown: whether an item that there is not is refused, or left out and counted.

    Raises:
        InputError: a file is missing or damaged, a column is not there, or a user or item is none of these.
    """
    one_of(("refuse", "skip"), on_unknown=on_unknown)
    number = {name: place for place, name in enumerate(items)}
    position = {name: place for place, name in enumerate(users)}
    found: list[tuple[np.ndarray, np.ndarray]] = []
    left_out = 0
    for part in parts_of(source):
        columns = columns_of(part, user=user, item=item)
        start, names, things = 0, Codes("user"), Codes("item")
        for block in part.blocks(tuple(columns.values())):

            def where(row: int, first: int = start, part: Any = part) -> str:
                return f"{part.told} {part.place(first + row)}"

            owner, thing = names.add(block[columns["user"]], where), things.add(block[columns["item"]], where)
            owner = np.array([position.get(name, -1) for name in names.names], np.int64)[owner]
            thing = np.array([number.get(name, -1) for name in things.names], np.int64)[thing]
            if (nobody := owner < 0).any():
                row = int(nobody.argmax())
                told = str(block[columns["user"]][row].as_py()).strip()
                raise InputError(f"{where(row)} asks about {told!r}, of whom the records hold nothing; add some")
            if (unknown := thing < 0).any() and on_unknown == "refuse":
                row = int(unknown.argmax())
                told = str(block[columns["item"]][row].as_py()).strip()
                raise InputError(
                    f"{where(row)} asks about the item {told!r}, which the model does not know; leave such rows out "
                    "with on_unknown=skip (--on-unknown skip)"
                )
            left_out += int(unknown.sum())
            found.append((owner[~unknown], thing[~unknown]))
            start += len(owner)
    if not sum(len(owner) for owner, _ in found):
        raise InputError("nobody is asked about; name a user and an item in each row")
    return Pairs(np.concatenate([each for each, _ in found]), np.concatenate([each for _, each in found]), left_out)
