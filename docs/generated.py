"""Pages that a script makes: written, or compared with what lies there."""

import sys
from collections.abc import Mapping
from pathlib import Path


def bring(folder: Path, wanted: Mapping[str, str]) -> int:
    """Make a folder hold these pages and no others; with --check on the command line only tell what differs.

    Args:
        folder: where the pages lie.
        wanted: name of each page → its text.

    Returns:
        the exit code.
    """
    lying = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    stale = sorted(name for name in {*wanted, *lying} if wanted.get(name) != lying.get(name))
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is out of date; run python docs/{Path(sys.argv[0]).name}")
        return 1 if stale else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in wanted:
            (folder / name).write_text(wanted[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    print(f"{len(stale)} pages written or removed, {len(wanted)} in all")
    return 0
