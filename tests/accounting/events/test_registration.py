"""Every kind of event is known by name, whatever was imported before."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sfumato.accounting.events import event as event_module

FOLDER = Path(event_module.__file__).parent
JSON = {"event": "gaussian", "noise_multiplier": 1.0}


def registers(path: Path) -> bool:
    """Whether a module gives a class its name in JSON, or a method of `Event` what it calls."""
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    decorators = [each for node in found for each in getattr(node, "decorator_list", ())]
    calls = [each.func for each in decorators if isinstance(each, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id in ("event_kind", "derivation") for call in calls)


@pytest.fixture
def first() -> Iterator[ModuleType]:
    """The module of `Event` as the first one of accounting that is imported, without any other kind of event."""
    ours = {name: module for name, module in sys.modules.items() if f"{name}.".startswith("sfumato.accounting.")}
    for name in ours:
        del sys.modules[name]
    try:
        for name in ("sfumato.accounting", "sfumato.accounting.events"):  # their __init__ would import the others
            empty = ModuleType(name)
            empty.__path__ = ours[name].__path__
            sys.modules[name] = empty
        yield importlib.import_module("sfumato.accounting.events.event")
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith("sfumato.accounting.")]:
            del sys.modules[name]
        sys.modules.update(ours)


def test_every_module_that_registers_something_is_listed() -> None:
    found = {path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py") if registers(path)}
    named = {".".join(path.parts) for path in found} - {"event"}
    assert named == set(event_module._MODULES)


def test_json_is_read_where_no_kind_was_imported(first: ModuleType) -> None:
    assert "sfumato.accounting.events.gaussian" not in sys.modules
    assert first.event_from_json(JSON).to_json() == JSON


@pytest.mark.parametrize(
    ("method", "numbers", "kind"),
    [
        ("poisson", (0.1,), "poisson"),
        ("without_replacement", (3, 10), "without_replacement"),
        ("truncated_poisson", (0.1, 3, 10), "truncated_poisson"),
        ("min_separation", (10, 3), "min_separation"),
    ],
)
def test_an_event_is_derived_where_only_its_own_kind_was_imported(first: ModuleType, method, numbers, kind) -> None:
    one = importlib.import_module("sfumato.accounting.events.gaussian").Gaussian(1.0)
    assert "sfumato.accounting.events.sampled" not in sys.modules
    assert getattr(one, method)(*numbers).kind == kind
