"""Which items can be rated: a public list, in its own order, that does not depend on who rated what.

>>> catalogue_of(["Alien", "Brazil"]).names
('Alien', 'Brazil')
>>> catalogue_of(["Alien", "Alien"])
Traceback (most recent call last):
...
sfumato._check.InputError: the item catalogue has 'Alien' twice; remove one
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato._check import InputError
from sfumato.data.ratings.places import Place, place_of

_MOVIELENS = {"movies.csv": ",", "movies.dat": ":", "u.item": "|"}  # the delimiter behind the number of a film
_PUBLIC = "is assumed to be public: chosen without looking at who rated what."


@dataclass(frozen=True)
class Catalogue:
    """Items.

    Attributes:
        told: what messages call it.
        names: of the items, in the order of their numbers.
        assumption: the sentence for the statement; None where the items were found in the records.
    """

    told: str
    names: tuple[str, ...]
    assumption: str | None


def catalogue_of(items: Path | str | Sequence[object]) -> Catalogue:
    """The catalogue that was given.

    Args:
        items: a file with one id a line, or a file of films of MovieLens; or the ids.

    Raises:
        InputError: the file is missing, empty or no text, or an item is there twice.
    """
    if isinstance(items, str | Path):
        path = Path(items)
        if not path.is_file():
            raise InputError(f"there is no file of items {path}; give one with an id a line")
        return _of_file(place_of(path), f"The item catalogue {path.name}")
    names = _checked((str(item) for item in items), "the item catalogue")
    return Catalogue("the item catalogue", names, f"The item catalogue ({len(names):,} items) {_PUBLIC}")


def catalogue_beside(place: Place | None) -> Catalogue | None:
    """The catalogue of films beside MovieLens' ratings, where there is one."""
    found = None if place is None else next(filter(None, map(place.beside, _MOVIELENS)), None)
    return None if found is None else _of_file(found, f"The item catalogue {found.name} beside the ratings")


def catalogue_of_records(names: Sequence[str]) -> Catalogue:
    """The items that were rated, in the order that was chosen."""
    return Catalogue("the records", tuple(names), None)


def _of_file(place: Place, told: str) -> Catalogue:
    try:
        with place.open() as file:
            text = file.read()
    except (OSError, EOFError) as error:
        raise InputError(f"{place.told} cannot be read: {' '.join(str(error).split())}") from None
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        if place.name not in _MOVIELENS:
            raise InputError(f"{place.told} is no text in UTF-8; give a file with an id a line") from None
        lines = text.decode("latin-1").splitlines()
    delimiter = _MOVIELENS.get(place.name)
    if delimiter is not None:
        rows = csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter)
        lines = [row[0] for row in rows if row][place.name.endswith(".csv") :]
    names = _checked(lines, place.told)
    return Catalogue(place.name, names, f"{told} ({len(names):,} items) {_PUBLIC}")


def _checked(names: Iterable[str], told: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for each in names:
        name = each.strip()
        if name in found:
            raise InputError(f"{told} has {name!r} twice; remove one")
        if name:
            found[name] = None
    if not found:
        raise InputError(f"{told} is empty; write one id a line")
    return tuple(found)
