"""Options that declare which classes there are, so that a run with a guarantee takes none from the records."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sfumato._check import InputError
from sfumato.data import ExampleDataset, UserDataset
from sfumato.data.domain import read_names

D = TypeVar("D", ExampleDataset, UserDataset)


@dataclass(frozen=True, kw_only=True)
class ClassOptions:
    """Which classes there are.

    Attributes:
        class_names: a public file with one class a line, in the order of their numbers; a record of another one is
            refused. Without it, and where the data do not declare them, a run with a guarantee is refused.
        num_classes: how many classes there are, where they have numbers and no names.
        public_classes: take the classes that the records have, and declare them public, as those of a benchmark are:
            who alone has a class is then not hidden.
    """

    class_names: Path | None = None
    num_classes: int | None = None
    public_classes: bool = False

    @property
    def names(self) -> list[str] | None:
        """The declared names.

        Raises:
            InputError: the file is of no use.
        """
        return None if self.class_names is None else read_names(self.class_names)

    def given(self) -> dict[str, object]:
        """What was given, by the option's name.

        Raises:
            InputError: both a file and a number, which say the same.
        """
        found = {name: getattr(self, name) for name in ("class_names", "num_classes", "public_classes")}
        found = {name: value for name, value in found.items() if value not in (None, False)}
        if {"class_names", "num_classes"} <= found.keys():
            raise InputError("--class-names and --num-classes both say which classes there are; give one of them")
        return found

    def declare(self, data: D) -> D:
        """The data with the classes that were declared.

        Raises:
            InputError: a record has another one, or the labels are no classes.
        """
        if not self.given():
            return data
        return data.with_classes(self.names or self.num_classes)
