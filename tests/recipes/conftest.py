"""Recipes have scripts of the same names: what a test imports of one is gone before the next asks for another's."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test imports anew, whatever the tests before it in the same process have imported."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    _forget()
    yield
    _forget()


@pytest.fixture
def script() -> Callable[..., ModuleType]:
    """A script of a recipe as a module: `script("fedemb_glyphs", "choose")`; its modules are imported as it does."""

    def load(recipe: str, name: str = "run") -> ModuleType:
        _forget(keep=recipe)
        sys.path[:0] = [str(RECIPES / recipe), str(RECIPES)]
        return importlib.import_module(name)

    return load


def _forget(keep: str | None = None) -> None:
    """Drop the modules of recipes; with `keep` those stay that lie in this recipe or that several import."""
    kept = (RECIPES, RECIPES / keep, RECIPES / "ehr_baselines") if keep else ()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(f"{RECIPES}{os.sep}") and Path(file).parent not in kept:
            del sys.modules[name]
