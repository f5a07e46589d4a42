"""Splitting off rare large losses, against direct convolution."""

import math

import numpy as np
import pytest

from sfumato.accounting.loss.curve import split
from sfumato.accounting.loss.grid import Atoms

from .test_compose import atoms, exact_delta


def lognormal(count: int) -> tuple[Atoms, int]:
    """Losses with a tail that no tilt makes light."""
    losses = np.arange(1, 40)
    masses = np.concatenate([[1.0], 1e-12 * np.exp(-2 * np.log(losses) ** 2)])
    return atoms(masses.tolist(), 0.25, 0), count


@pytest.mark.parametrize("others", [[], [(atoms([0.2, 0.5, 0.3], 0.25, -1), 2)]])
@pytest.mark.parametrize("count", [1, 7, 60])
def test_the_terms_add_up_to_the_convolution(count, others) -> None:
    parts = [lognormal(count), *others]
    for epsilon in (3.0, 6.1):
        truth = exact_delta(parts, epsilon)
        mixed = split(parts, epsilon, math.log(truth), 0.0)
        assert mixed is not None
        low, high = (math.exp(mixed.log_delta(epsilon, above)) for above in (False, True))
        assert low <= truth * (1 + 1e-12)
        assert truth <= high * (1 + 1e-12)
        assert high <= low * (1 + 1e-3)


def test_an_infinite_loss_counts_once() -> None:
    steps, _ = lognormal(1)
    infinite = Atoms(steps.gap, steps.offset, steps.first, steps.masses * 0.9, 0.1, 0.0)
    parts = [(infinite, 3), (atoms([0.2, 0.5, 0.3], 0.25, -1, infinity=0.2), 1)]
    truth = exact_delta(parts, 3.0)
    mixed = split(parts, 3.0, math.log(truth - (1 - 0.9**3 * 0.8)), 1 - 0.9**3 * 0.8)
    assert mixed is not None
    assert math.exp(mixed.log_delta(3.0, False)) <= truth <= math.exp(mixed.log_delta(3.0, True))
    assert math.exp(mixed.log_delta(3.0, True)) == pytest.approx(truth, rel=1e-9)


def test_without_rare_losses_there_is_nothing_to_split() -> None:
    even = atoms([1.0] * 20, 0.25, -10)
    assert split([(even, 1000)], 1.0, math.log(1e-3), 0.0) is None
