"""Every stream of random numbers has one use: no two parts of a run draw under the same labels."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sfumato import _random

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sfumato"
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
