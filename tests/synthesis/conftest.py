"""Small health records, and plans that learn them in seconds."""

from collections.abc import Callable

import pytest

from contract.pipelines import patients as declared
from made_up_patients import patients
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe

__all__ = ["patients"]


@pytest.fixture(scope="session")
def ranged() -> Callable[..., EHRDataset]:
    """Made-up patients whose schema has ranges: `ranged(count, seed=1)`."""
    return declared


@pytest.fixture(scope="session")
def private() -> Callable[..., EHRSafe]:
    """A private plan of few rounds: `private(**settings)`."""

    def make(**settings) -> EHRSafe:
        quick = {"hidden": 8, "latent": 6, "noise": 6, "gan_hidden": 8, "embedding": 3, "static_embedding": 3}
        quick |= {"category_steps": 5, "epochs": 1, "batch_size": 8, "gan_steps": 3, "critic_steps": 2}
        quick |= {"gan_batch_size": 8, "calibrated_on": 30, "cells": 8, "max_visits": 6, "horizon": 1500.0}
        return EHRSafe(**{**quick, "epsilon": 8.0, "delta": 1e-3, "seed": 1, **settings}).sized(8)

    return make


@pytest.fixture(scope="session")
def small() -> Callable[..., EHRSafe]:
    """A plan of few steps: `small(**settings)`."""

    def make(**settings) -> EHRSafe:
        quick = {"hidden": 16, "latent": 8, "noise": 8, "gan_hidden": 16, "embedding": 4, "static_embedding": 4}
        quick |= {"category_steps": 10, "epochs": 3, "batch_size": 16, "gan_steps": 20, "gan_batch_size": 32, "seed": 1}
        quick |= {"calibrated_on": 60}
        return EHRSafe(**{**quick, **settings}).sized(8)

    return make
