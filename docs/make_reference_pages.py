"""Writes one page a package into docs/reference/api/: what it makes public, by subpackages.

python docs/make_reference_pages.py            writes the pages
python docs/make_reference_pages.py --check    tells whether they are up to date
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import bring

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS.parent / "src" / "sfumato"


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of the page of each package that makes something public."""
    for init in sorted(SOURCE.glob("*/__init__.py")):
        by_part = _public(init) or _public_of_subpackages(init.parent)
        if by_part:
            yield f"{init.parent.name}.md", _page(init.parent, by_part)


def _page(package: Path, by_part: dict[str, list[str]]) -> str:
    hidden = "    options:\n      members: false\n      show_root_heading: false\n      show_root_toc_entry: false\n"
    parts = [f"# sfumato.{package.name}\n", f"::: sfumato.{package.name}\n{hidden}"]
    for part in sorted(by_part):
        if part:
            said = ast.get_docstring(_parsed(package / part / "__init__.py")) or ""
            parts.append(f"## {part}\n\n{said.splitlines()[0]}\n")
        parts += [f"::: {path}\n" for path in by_part[part]]
    return "\n".join(parts)


def _public(init: Path) -> dict[str, list[str]]:
    """Subpackage → the public names from its modules, as mkdocstrings finds them; "" for the package's own modules."""
    found: dict[str, list[str]] = {}
    package = f"sfumato.{init.parent.name}"
    for statement in ast.walk(_parsed(init)):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("sfumato."):
            assert statement.module
            if statement.module == "sfumato._lazy":
                continue
            first = statement.module.removeprefix(f"{package}.").split(".")[0]
            part = first if (init.parent / first).is_dir() else ""
            for name in (alias.name for alias in statement.names):
                found.setdefault(part, []).append(_path(package, statement.module, name))
    return found


def _public_of_subpackages(folder: Path) -> dict[str, list[str]]:
    """Subpackage → what it makes public itself, where the package leaves that to its subpackages."""
    found = {}
    for init in sorted(folder.glob("*/__init__.py")):
        package = f"sfumato.{folder.name}.{init.parent.name}"
        names = [
            f"{package}.{alias.name}"
            for statement in _parsed(init).body
            if isinstance(statement, ast.ImportFrom) and statement.module
            for alias in statement.names
        ]
        if names:
            found[init.parent.name] = names
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
