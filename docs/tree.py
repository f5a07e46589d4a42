"""The tree in README and the layers in CONTRIBUTING, drawn from the packages and from the contract on imports.

A package's line is the first line of its docstring, without its own name; the order is that of the layers in
`pyproject.toml`, the highest first. `python docs/tree.py` reports whether the pages show the tree as it is; `--update`
draws it anew.
"""

import argparse
import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sfumato"
_COLUMN = 20
BLOCKS = {"README.md": "tree", "CONTRIBUTING.md": "layers"}
"""Which page holds which block, behind `<!-- NAME -->`: the body of a fence, or a table."""


def layers() -> list[list[str]]:
    """The packages and modules of each layer, the highest first; layers without any are left out.

    Modules with an underscore lie below all packages and count as one layer.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    found, lowest = [], []
    for layer in next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers"):
        names = [name.strip(" ()").removeprefix("sfumato.") for name in layer.split("|")]
        names = [name for name in names if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()]
        if all(name.startswith("_") for name in names):
            lowest += names
        else:
            found.append(names)
    return [*found, lowest]


def tree() -> str:
    """Every package, a line each."""
    names = (name for layer in layers()[:-1] for name in layer)
    return "\n".join(["src/sfumato/", *(_line(SOURCE / name) for name in names)]) + "\n"


def table() -> str:
    """The layers and their packages."""
    rows = layers()
    lines = ["| layer | packages |", "| --- | --- |"]
    for place, names in enumerate(rows):
        lines.append(f"| {len(rows) - 1 - place} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def _line(package: Path) -> str:
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not said:
        raise AssertionError(f"{file} has no docstring; its first line says what it is for")
    line = said.splitlines()[0].removesuffix(".")
    line = re.sub(rf"^(The )?{package.name}: ", "", line, flags=re.I)
    first = line.split()[0]
    line = first.lower() + line[len(first) :] if first[1:] == first[1:].lower() else line
    name = f"{package.name}/" if package.is_dir() else file.name
    return f"  {name}".ljust(_COLUMN) + line


def redrawn(page: Path) -> str:
    """The text of a page, with its block as it should be."""
    text = page.read_text(encoding="utf-8")
    name = BLOCKS[page.name]
    if name == "tree":
        pattern, drawn = rf"(<!-- {name} -->\n\n?```text\n)src/sfumato/\n(?:  .*\n)*", tree()
    else:
        pattern, drawn = rf"(<!-- {name} -->\n\n?)(?:\|.*\n)*", table()
    text, count = re.subn(pattern, lambda match: match[1] + drawn, text)
    if count != 1:
        raise AssertionError(f"{page}: needs one block behind <!-- {name} -->, found {count}")
    return text


def main() -> int:
    """Compare, or draw anew."""
    parser = argparse.ArgumentParser(description="The tree in README and the layers in CONTRIBUTING.")
    parser.add_argument("--update", action="store_true", help="draw them anew")
    options = parser.parse_args()
    stale = [page for page in map(ROOT.joinpath, BLOCKS) if redrawn(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        if options.update:
            page.write_text(redrawn(page), encoding="utf-8")
        print(f"{page.name}: {'drawn anew' if options.update else 'shows another tree'}")
    return 1 if stale and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
