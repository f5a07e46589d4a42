"""Folders of tests mirror packages; a package says what it holds and does nothing else."""

import ast
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
    "architectures": "small networks of other libraries, which tests and benchmarks build",
    "house": "rules of this tree",
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


_LAZILY = "__getattr__, __dir__ = lazily(__name__)"


def _statements(package: Path) -> list[ast.stmt]:
    """What an __init__.py does; those that re-export late have their imports for type checkers, and two functions."""
    statements = _tree(package / "__init__.py").body
    if ast.unparse(statements[-1]) != _LAZILY:
        return statements
    shown = [s.body if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING" else [s] for s in statements]
    late = ("typing", "sfumato._lazy")
    return [
        statement
        for statement in itertools.chain.from_iterable(shown)
        if not (isinstance(statement, ast.ImportFrom) and statement.module in late)
        and ast.unparse(statement) != _LAZILY
    ]


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
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


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_what_a_package_re_exports_is_what_it_names(package: Path):
    statements = _statements(package)
    imported = [name.asname or name.name for s in statements if isinstance(s, ast.ImportFrom) for name in s.names]
    named = [s.value for s in statements if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "__all__"]
    assert sorted(imported) == sorted(ast.literal_eval(named[0]) if named else [])


def test_no_module_comes_in_through_the_door_of_its_own_room():
    """The contract on imports cannot see this circle: the door imports the module, and the module the door."""
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


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_no_module_has_the_name_of_something_that_its_package_imports_late(package: Path):
    if ast.unparse(_tree(package / "__init__.py").body[-1]) != _LAZILY:
        return
    names = {name.name for s in _statements(package) if isinstance(s, ast.ImportFrom) for name in s.names}
    assert names & {path.stem for path in package.iterdir()} == set()
