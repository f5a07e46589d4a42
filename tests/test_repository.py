"""Rules of this repository: tests mirror packages, packages only re-export, and random streams have one use each."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfumato import _random

# Folders of tests mirror packages; a package says what it holds and does nothing else.

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sfumato"
TESTS = ROOT / "tests"
PACKAGES = sorted({file.parent for file in SOURCE.rglob("*.py")})
MODULES = sorted(file for file in SOURCE.rglob("*.py") if file.name != "__init__.py")

ACROSS = {
    "contract": "one battery for every algorithm",
    "reference": "published numbers and other libraries",
    "statistical": "distributions of what is drawn",
    "adversarial": "what an attacker sees or sends",
    "recipes": "mirrors recipes/",
    "docs": "mirrors docs/",
    "faults": "what fails below a run: disks, files, command lines",
}
"""Folders of tests that mirror no single package, and what they are for."""


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def test_every_folder_of_tests_mirrors_a_package():
    folders = {file.parent.relative_to(TESTS).parts[:1] for file in TESTS.rglob("*.py")}
    strange = [first for (first,) in filter(None, folders) if not (SOURCE / first).is_dir() and first not in ACROSS]
    assert not strange, f"{strange}: move the tests to where the source lies, or say in ACROSS what the folder is for"


def test_the_folders_of_tests_across_packages_are_no_packages():
    assert [name for name in ACROSS if (SOURCE / name).exists()] == []


REGISTRIES = {SOURCE / "data" / "readers"}
"""Packages whose __init__.py is the list of their modules' entries, and exports nothing else."""


_LATE = (
    "from typing import TYPE_CHECKING",
    "from sfumato._lazy import lazily",
    "__getattr__, __dir__ = lazily(__name__)",
)
"""What a package does that imports what it re-exports when it is asked for, beside imports for type checkers."""


def _statements(package: Path) -> list[ast.stmt]:
    """What an __init__.py does; one that re-exports late does all that this takes, or it re-exports nothing."""
    statements = _tree(package / "__init__.py").body
    shown = [s for s in statements if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING" and not s.orelse]
    if not shown:
        return statements
    assert [s for s in map(ast.unparse, statements) if s in _LATE] == list(_LATE)
    rest = [s for s in statements if s not in shown and ast.unparse(s) not in _LATE]
    return [*rest, *itertools.chain.from_iterable(s.body for s in shown)]


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in REGISTRIES], ids=_name)
def test_a_package_says_what_it_holds_and_does_nothing_but_re_export(package: Path):
    assert ast.get_docstring(_tree(package / "__init__.py"))
    for statement in _statements(package)[1:]:
        match statement:
            case ast.ImportFrom(module=str(origin)) if origin.startswith("sfumato."):
                pass
            case ast.Assign(targets=[ast.Name(id="__all__" | "__version__")]):
                pass
            case _:
                pytest.fail(f"{_name(package)}/__init__.py does more than re-export: {ast.unparse(statement)}")


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in REGISTRIES], ids=_name)
def test_what_a_package_re_exports_is_what_it_names(package: Path):
    statements = _statements(package)
    imported = [name.asname or name.name for s in statements if isinstance(s, ast.ImportFrom) for name in s.names]
    named = [s.value for s in statements if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "__all__"]
    assert sorted(imported) == sorted(ast.literal_eval(named[0]) if named else [])


def test_no_module_imports_from_its_own_package():
    """The contract on imports cannot see this cycle: the package imports the module, and the module the package."""
    circles = []
    for file in MODULES:
        for node in ast.walk(_tree(file)):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            room = ROOT.joinpath("src", *node.module.split("."))
            if room != SOURCE and room in file.parents:  # sfumato itself imports nothing
                rooms = {path.stem for path in room.iterdir()}
                circles += [f"{_name(file)}: {ast.unparse(node)}" for name in node.names if name.name not in rooms]
    assert circles == []


# Every stream of random numbers has one use: no two parts of a run draw under the same labels.

DRAWS = ("stream", "seed64")

Use = tuple[str, str]
"""The labels that are words, "/" between them, and the module."""


def uses_in(code: str, module: str) -> Iterator[Use]:
    """What a module draws; a label in a field `label` is its default, or what is given for it anywhere."""
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and node.args)
    for node in calls:
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in DRAWS:
            continue
        if isinstance(node.args[0], ast.Constant):
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield "/".join(word for word in words if isinstance(word, str)), module
        else:
            assert ast.unparse(node.args[0]).endswith(".label"), f"{module}: {ast.unparse(node)}"
            yield from ((word, module) for word in sorted(labels_given()))


def labels_given() -> set[str]:
    """Defaults of fields `label` and arguments `label=`, in the whole package."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None
            given = node.arg if isinstance(node, ast.keyword) else name
            value = node.value if isinstance(node, (ast.keyword, ast.AnnAssign)) else None
            if given == "label" and isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.add(value.value)
    return found


def all_uses() -> list[Use]:
    """Of the package, one entry for each place in the code."""
    files = (file for file in sorted(SOURCE.rglob("*.py")) if file.name != "_random.py")
    names = ((file, ".".join(file.relative_to(SOURCE).with_suffix("").parts)) for file in files)
    return [use for file, name in names for use in uses_in(file.read_text(encoding="utf-8"), name)]


def table() -> dict[str, tuple[str, ...]]:
    """From labels to modules, as the docstring has it."""
    found = {}
    for row in re.findall(r"^\| `(.+?)` \|(.*?)\| .+ \| (.+) \|$", _random.__doc__ or "", re.MULTILINE):
        label, further, modules = row
        words = [label, *re.findall("`(.+?)`", further)]
        assert "/".join(words) not in found
        found["/".join(words)] = tuple(re.findall("`(.+?)`", modules))
    return found


def test_every_use_has_a_line_of_its_own_in_the_table():
    """A second use under the same labels, in whatever module, is one place in the code too many."""
    told = sorted((labels, module) for labels, modules in table().items() for module in modules)
    assert sorted(all_uses()) == told


def test_a_second_use_of_a_label_is_found():
    code = 'source.stream("noise", round)\nother.seed64("noise")\nthird.stream(self.label)'
    found = list(uses_in(code, "new"))
    assert found[:2] == [("noise", "new")] * 2
    assert {labels for labels, _ in found[2:]} == {"noise", "count noise"} == labels_given()


def test_the_page_on_randomness_knows_the_labels_of_runs():
    page = (ROOT / "docs" / "explanation" / "randomness.md").read_text(encoding="utf-8")
    told = set(re.findall(r'^\| `"(.+?)"`', page, re.MULTILINE))
    assert told == {labels for labels in table() if labels.partition("/")[0] not in ("examples", "glyphs")}
