"""A finished store, mapped: what data sets by user and of single examples have in common."""

from pathlib import Path
from typing import Any

import numpy as np

from sfumato._check import InputError
from sfumato.data.chunked import ChunkedRows
from sfumato.data.store.arrow import Column, Frame, read_table
from sfumato.data.store.facts import CLASSES, EXAMPLES, ITEMS, USERS, read_facts, verified_digest
from sfumato.data.strings import Strings


class Opened:
    """A store whose index was checked, and whose examples were not read.

    Args:
        path: the store's folder.

    Attributes:
        facts: what store.json tells.
        classes: names of the classes, or None.
        groups: groups of the classes, or None.
        items: names of the items that inputs name by their number, or None.

    Raises:
        InputError: there is no store, or it is unfinished, truncated, changed, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.facts = path, read_facts(path)
        try:
            told = [Column(one["name"], tuple(one["shape"]), np.dtype(one["dtype"])) for one in self.facts["fields"]]
            self._frame = Frame(path / EXAMPLES, told, self.facts["examples"])
            named = read_table(path / CLASSES, self.facts["classes"]) if CLASSES in self.facts["files"] else {}
            self.classes, self.groups = _texts(named, "name"), _texts(named, "group")
            items = read_table(path / ITEMS, self.facts["items"]) if ITEMS in self.facts["files"] else {}
            self.items = _texts(items, "name")
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"the store {path} is damaged ({type(error).__name__}); pack it again") from None

    def rows(self, name: str) -> ChunkedRows:
        """A column of the examples."""
        return self._frame.rows(name)

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
        return verified_digest(self.path, self.facts, self._frame.content, self._frame.pieces, anew)


def _texts(table: dict[str, Any], name: str) -> Strings | None:
    found = table.get(name)
    if found is not None and not isinstance(found, Strings):
        raise TypeError(f"{name} is no text")
    return found
