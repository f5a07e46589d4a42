"""Small health records, and a plan that learns them in a second."""

from collections.abc import Callable

import pytest

from random_patients import patients
from sfumato.synthesis import EHRSafe

__all__ = ["patients"]


@pytest.fixture
def small() -> Callable[..., EHRSafe]:
    """A plan of few steps: `small(**settings)`."""

    def make(**settings) -> EHRSafe:
        quick = {"hidden": 16, "latent": 8, "noise": 8, "gan_hidden": 16, "embedding": 4, "static_embedding": 4}
        quick |= {"category_steps": 10, "epochs": 3, "batch_size": 16, "gan_steps": 20, "gan_batch_size": 32, "seed": 1}
        quick |= {"calibrated_on": 60}
        return EHRSafe(**{**quick, **settings})

    return make
