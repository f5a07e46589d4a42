"""Plans of a few steps."""

from collections.abc import Callable

import pytest

from sfumato.synthesis import CRNNGAN, RCGAN, TimeGAN
from sfumato.synthesis.baselines.plan import BaselinePlan

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
