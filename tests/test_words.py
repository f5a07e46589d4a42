"""The words of the project: terms of the field, in names and in sentences; the list stands in retired_words.txt."""

import ast
import re
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OLD_NAME = "# old name"
"""At the end of a line: the word is a name in files that were written earlier, and is read there."""


def _retired() -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for line in (ROOT / "tests" / "retired_words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            words = parts.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            words.append(line.partition(" ->")[0])
    return parts


RETIRED = _retired()
# A word is also counted within a name: `_told_by` has `told`.
# The method of files, `.tell()`, is Python's.
EVERYWHERE = re.compile(
    rf"(?<![a-z])(?!(?<=\.)tell\(\))({'|'.join(map(re.escape, RETIRED['everywhere']))})(?![a-z])", re.IGNORECASE
)
NAMES = re.compile(rf"(?:^|_)({'|'.join(RETIRED['names'])})(?:_|$)")


def _places(path: Path) -> Iterator[str]:
    """`file:line: text` for each line with a word that is refused everywhere."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        rest = reduce(lambda text, label: text.replace(label, ""), RETIRED["labels of streams"], line)
        if EVERYWHERE.search(rest) and OLD_NAME not in line:
            yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def _names(tree: ast.AST) -> Iterator[str]:
    """Names of classes and functions, and of fields of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def _packages() -> list[str]:
    return sorted({path.relative_to(ROOT / "src" / "sfumato").parts[0] for path in _sources()})


def _sources() -> list[Path]:
    return sorted((ROOT / "src" / "sfumato").rglob("*.py"))


def _in(package: str) -> list[Path]:
    return [path for path in _sources() if path.relative_to(ROOT / "src" / "sfumato").parts[0] == package]


@pytest.mark.parametrize("package", _packages())
def test_no_source_uses_a_retired_word(package):
    assert [place for path in _in(package) for place in _places(path)] == []


@pytest.mark.parametrize("package", _packages())
def test_no_class_function_or_file_has_a_retired_name(package):
    found = set()
    for path in _in(package):
        found |= {name for name in _names(ast.parse(path.read_text("utf-8"))) if NAMES.search(_snake(name))}
        found |= {path.stem} if NAMES.search(path.stem) else set()
    assert sorted(found) == []


def test_no_page_uses_a_retired_word():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "recipes").rglob("*.md"))]
    assert [place for path in pages for place in _places(path)] == []


@pytest.mark.parametrize("folder", ["recipes", "benchmarks", "docs"])
def test_no_script_uses_a_retired_word(folder):
    assert [place for path in sorted((ROOT / folder).rglob("*.py")) for place in _places(path)] == []


def test_the_words_are_found():
    """In sentences, in names, and in names of which they are a part; not within another word."""
    assert all(EVERYWHERE.search(text) for text in ("It tells so.", "told_by", "_as_told", "Beside it", "made up"))
    assert not any(EVERYWHERE.search(text) for text in ("besides", "intelligible", "accompany", "department"))
    assert all(NAMES.search(_snake(name)) for name in ("OwnLoop", "_kept_key", "first_look"))
    assert not any(NAMES.search(_snake(name)) for name in ("Owner", "disown", "opened"))
