"""Plans of a few steps. The baselines are imported here, before any test file asks for them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from random_patients import patients

RECIPES = str(Path(__file__).resolve().parents[3] / "recipes")
sys.path.insert(0, RECIPES)
from ehr_baselines import CRNNGAN, RCGAN, BaselinePlan, TimeGAN  # noqa: E402  # pyright: ignore[reportMissingImports]

sys.path.remove(RECIPES)  # some of its scripts are called as libraries are

__all__ = ["patients"]

KINDS: dict[str, tuple[type[BaselinePlan], dict]] = {
    "timegan": (TimeGAN, {"embedding_steps": 6, "supervised_steps": 4}),
    "rcgan": (RCGAN, {}),
    "crnngan": (CRNNGAN, {"pretraining_steps": 6}),
}


@pytest.fixture
def quick() -> Callable[..., BaselinePlan]:
    """`quick(kind, **settings)`."""

    def make(kind: str, **settings) -> BaselinePlan:
        plan, own = KINDS[kind]
        return plan(**{"hidden": 8, "noise": 4, "steps": 8, "batch_size": 16, "seed": 1, **own, **settings})

    return make
