"""Writes one page a package into docs/reference/api/: what it makes public, by the rooms that it comes from.

python docs/make_reference_pages.py            writes the pages
python docs/make_reference_pages.py --check    tells whether they are up to date
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import bring

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "sfumato"


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of the page of each package that makes something public."""
    for door in sorted(SOURCE.glob("*/__init__.py")):
        by_room = _public(door) or _public_of_rooms(door.parent)
        if by_room:
            yield f"{door.parent.name}.md", _page(door.parent, by_room)


def _page(package: Path, by_room: dict[str, list[str]]) -> str:
    hidden = "    options:\n      members: false\n      show_root_heading: false\n      show_root_toc_entry: false\n"
    parts = [f"# sfumato.{package.name}\n", f"::: sfumato.{package.name}\n{hidden}"]
    for room in sorted(by_room):
        if room:
            said = ast.get_docstring(_parsed(package / room / "__init__.py")) or ""
            parts.append(f"## {room}\n\n{said.splitlines()[0]}\n")
        parts += [f"::: {path}\n" for path in by_room[room]]
    return "\n".join(parts)


def _public(door: Path) -> dict[str, list[str]]:
    """Room → the public names from its modules, as mkdocstrings finds them; "" for modules that lie in no room."""
    found: dict[str, list[str]] = {}
    package = f"sfumato.{door.parent.name}"
    for statement in ast.walk(_parsed(door)):
        if isinstance(statement, ast.ImportFrom) and re.match(r"sfumato\.(?!_lazy$)", statement.module or ""):
            assert statement.module
            first = statement.module.removeprefix(f"{package}.").split(".")[0]
            room = first if (door.parent / first).is_dir() else ""
            for name in (alias.name for alias in statement.names):
                found.setdefault(room, []).append(_path(package, statement.module, name))
    return found


def _public_of_rooms(folder: Path) -> dict[str, list[str]]:
    """Room → what it makes public itself, where the package leaves that to its rooms."""
    found = {}
    for door in sorted(folder.glob("*/__init__.py")):
        package = f"sfumato.{folder.name}.{door.parent.name}"
        names = [
            f"{package}.{alias.name}"
            for statement in _parsed(door).body
            if isinstance(statement, ast.ImportFrom) and statement.module
            for alias in statement.names
        ]
        if names:
            found[door.parent.name] = names
    return found


def _path(package: str, module: str, name: str) -> str:
    """Where mkdocstrings finds a public name: a module of the same name hides it in its package."""
    origin = SOURCE.parent.joinpath(*module.split("."))
    if (origin / f"{name}.py").exists():
        return f"{module}.{name}.{name}"
    hidden = (SOURCE.parent.joinpath(*package.split(".")) / f"{name}.py").exists()
    return f"{module if hidden else package}.{name}"


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(bring(DOCS / "reference" / "api", dict(pages())))
