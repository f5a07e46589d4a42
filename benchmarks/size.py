"""Lines, files and folders of each package, and the largest files; with --against, also how much they have changed.

Counts what git knows: the files of the working tree that are tracked, or those of a commit.

    python benchmarks/size.py
    python benchmarks/size.py --against origin/main
"""

import argparse
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "tests", "recipes", "benchmarks")
LARGEST = 10


@dataclass
class Size:
    """Of a package, or of all of a part of the tree."""

    lines: int = 0
    files: int = 0
    folders: set[str] = field(default_factory=set)

    def row(self, before: "Size | None") -> str:
        now = (self.lines, self.files, len(self.folders))
        then = now if before is None else (before.lines, before.files, len(before.folders))
        return "".join(
            f"{number:>10,}" + ("" if before is None else f"{number - old:>+8,}") for number, old in zip(now, then)
        )


def lines_of(commit: str | None) -> dict[str, int]:
    """Lines of each tracked Python file, by its path; of the working tree where there is no commit."""
    asked = ["git", "grep", "-c", "", *([] if commit is None else [commit]), "--", *(f"{part}/*.py" for part in PARTS)]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = (row.removeprefix(f"{commit}:").rsplit(":", 1) for row in found)
    return {path: int(count) for path, count in rows}


def sizes(lines: dict[str, int]) -> dict[str, Size]:
    """By part of the tree, and by package of the library."""
    found: dict[str, Size] = defaultdict(Size)
    for path, count in lines.items():
        part, *folders = path.split("/")[:-1]
        names = [part, f"{part}/{'/'.join(folders[:2])}"] if part == "src" and len(folders) > 1 else [part]
        for name in names:
            found[name].lines += count
            found[name].files += 1
            found[name].folders.add(path.rsplit("/", 1)[0])
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="a commit to compare with")
    options = parser.parse_args()
    lines = lines_of(None)
    now = sizes(lines)
    before = {} if options.against is None else sizes(lines_of(options.against))
    gap = "" if options.against is None else " " * 8
    print(f"{'':<32}{'lines':>10}{gap}{'files':>10}{gap}{'folders':>10}{gap}")
    for name in sorted(now.keys() | before.keys()):
        print(f"{name:<32}{now.get(name, Size()).row(None if options.against is None else before.get(name, Size()))}")
    print(f"\n{LARGEST} largest files of src:")
    of_src = sorted(((count, path) for path, count in lines.items() if path.startswith("src/")), reverse=True)
    print("\n".join(f"{count:>6,}  {path}" for count, path in of_src[:LARGEST]))


if __name__ == "__main__":
    main()
