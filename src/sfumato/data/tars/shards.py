"""Which tar files are meant: a file, a folder of them, or a pattern with `*`, `?`, `[…]` and `{…}`.

>>> braces("faces-{000..002}.tar")
['faces-000.tar', 'faces-001.tar', 'faces-002.tar']
>>> braces("{train,test}.tar")
['train.tar', 'test.tar']
"""

import glob
import re
from pathlib import Path

from sfumato._check import InputError
from sfumato.data.safeguards import refuse_same_files

SUFFIX = ".tar"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_GROUP = re.compile(r"\{([^{}]*)\}")
_MOST = 1_000_000  # names that a pattern may stand for


def is_tars(source: Path | str) -> bool:
    """Whether a path means tar files: by its name, or as a folder of them that has no folders."""
    place = Path(source)
    if place.is_dir():
        entries = list(place.iterdir())
        return any(_named(entry, (SUFFIX,)) for entry in entries) and not any(entry.is_dir() for entry in entries)
    return place.name.lower().endswith((SUFFIX, *PACKED))


def shards_of(source: Path | str) -> list[Path]:
    """The tar files, in sorted order, or in that of the braces.

    Raises:
        InputError: there are none, one is missing, packed, or there twice by a link.
    """
    if _named(Path(source), PACKED):
        raise InputError(f"{source} is packed, so samples cannot be found by their place; unpack it to {SUFFIX}")
    if Path(source).is_file():
        return [Path(source)]
    if Path(source).is_dir():
        entries = sorted(Path(source).iterdir())
        for entry in entries:
            if _named(entry, PACKED):
                raise InputError(f"{entry} is packed, and its samples would be left out; unpack it, or give a pattern")
        return _each_once([entry for entry in entries if _named(entry, (SUFFIX,))])
    found: dict[Path, None] = {}
    for pattern in braces(str(source)):
        here = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not here or not Path(here[0]).exists():
            raise InputError(
                f"there is nothing at {pattern}; give the path of a {SUFFIX}, a folder of them or a pattern"
            )
        found |= dict.fromkeys(map(Path, here))
    return _each_once(list(found))


def _named(path: Path, suffixes: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(suffixes)


def _each_once(shards: list[Path]) -> list[Path]:
    refuse_same_files(shards)
    return shards


def braces(pattern: str) -> list[str]:
    """The names that a pattern with {first..last} and {one,other} stands for; groups are not within each other.

    Raises:
        InputError: a group is none of these, or there are too many names.
    """
    names = [""]
    at = 0
    for group in _GROUP.finditer(pattern):
        choices = _choices(group[1], pattern)
        if len(names) * len(choices) > _MOST:
            raise InputError(f"{pattern} stands for more than {_MOST:,} files; give fewer, or their folder")
        names = [name + pattern[at : group.start()] + one for name in names for one in choices]
        at = group.end()
    return [name + pattern[at:] for name in names]


def _choices(inner: str, pattern: str) -> list[str]:
    numbers = re.fullmatch(r"(\d{1,12})\.\.(\d{1,12})", inner)
    if numbers is None:
        if "," in inner:
            return inner.split(",")
        raise InputError(f"{{{inner}}} in {pattern} must be {{first..last}} or {{one,other}}")
    first, last = int(numbers[1]), int(numbers[2])
    if last < first or last - first >= _MOST:
        raise InputError(f"{{{inner}}} in {pattern} must rise, and by less than {_MOST:,}")
    return [f"{number:0{len(numbers[1])}d}" for number in range(first, last + 1)]
