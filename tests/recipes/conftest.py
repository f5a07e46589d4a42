"""Scripts of recipes as modules, and plans of a few steps of the baselines of EHR-Safe."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from made_up_patients import patients

# Recipes have scripts of the same names: what a test imports of one is gone before the next asks for another's.

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


# Plans of a few steps. The baselines are imported here, before any test file asks for them.

sys.path.insert(0, str(RECIPES))
ehr_baselines = importlib.import_module("ehr_baselines")

sys.path.remove(str(RECIPES))  # some of its scripts are called as libraries are

__all__ = ["patients"]

KINDS: dict[str, tuple[Any, dict]] = {
    "timegan": (ehr_baselines.TimeGAN, {"embedding_steps": 6, "supervised_steps": 4}),
    "rcgan": (ehr_baselines.RCGAN, {}),
    "crnngan": (ehr_baselines.CRNNGAN, {"pretraining_steps": 6}),
}


@pytest.fixture
def quick() -> Callable[..., Any]:
    """`quick(kind, **settings)`."""

    def make(kind: str, **settings) -> Any:
        plan, own = KINDS[kind]
        return plan(**{"hidden": 8, "noise": 4, "steps": 8, "batch_size": 16, "seed": 1, **own, **settings})

    return make
