"""Public lists in the folder of a run, such as its items: one name a line, by their numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.cli.console import leads
from sfumato.data import UserDataset
from sfumato.training import Callback

ITEMS, CLASSES = "items.txt", "classes.txt"
"""In the folder of a run: names of the items and of the classes."""


def public_lists(data: UserDataset) -> dict[str, Sequence[str]]:
    """The lists of a data set of users: what its inputs and its labels stand for."""
    if data.item_names is not None:
        return {ITEMS: data.item_names}
    return {CLASSES: data.label_names} if data.label_names is not None and not data.of_sequences else {}


def read_list(file: Path) -> list[str]:
    """The names.

    Raises:
        InputError: the file is missing or no text.
    """
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}); take a whole copy of the run") from None


class PublicLists(Callback):
    """Written as soon as the folder is there.

    Args:
        folder: of the run.
        lists: names by the file's name.

    Raises:
        InputError: a name has a line break.
    """

    def __init__(self, folder: Path, lists: Mapping[str, Sequence[str]]) -> None:
        for file, names in lists.items():
            if (broken := next((name for name in names if len(name.splitlines()) != 1), None)) is not None:
                raise InputError(f"the name {broken!r} is no line of {file}, which has one a line; change it")
        self._folder, self._lists = folder, lists

    def on_start(self, plan: dict[str, Any], rounds: int, done: int) -> None:
        """Write them, in the first of several processes."""
        if leads():
            for name, names in self._lists.items():
                write_atomic(self._folder / name, "".join(f"{each}\n" for each in names).encode())
