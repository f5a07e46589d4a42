import math

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.accounting import NoisyVote, VoteCostRelease, event_from_json, guarantee
from sfumato.accounting.events.event import Unknown

RELEASE = VoteCostRelease(0.01, 30.0, 40.0, "instance", "replace")


def test_the_two_numbers_cost_the_sum_of_their_divergences():
    """At one pair of neighbours: S falls by e^-beta, the cost moves by the smaller S, log S moves by beta."""
    beta, first, second = RELEASE.beta, RELEASE.cost_noise, RELEASE.sensitivity_noise
    here, there = first, first * math.exp(-beta)
    for order in (2.0, 8.0, 20.0):
        mixed = order * there**2 + (1 - order) * here**2
        gaussian = order * (there / first) ** 2 / (2 * mixed)
        gaussian += math.log(here ** (1 - order) * there**order / math.sqrt(mixed)) / (1 - order)
        log_moved = order / (2 * second**2)
        found = float(RELEASE.renyi(np.array([order]), "replace")[0])
        assert found >= gaussian + log_moved - 1e-12
        assert found < 1.5 * (gaussian + log_moved) + 1e-9


def test_it_is_known_for_its_own_neighbours_only():
    with pytest.raises(Unknown, match="replace"):
        RELEASE.renyi(np.array([2.0]), "add_remove")


def test_it_adds_to_the_answers_in_one_guarantee():
    votes = NoisyVote(40.0, "instance") * 100
    both = guarantee(votes + RELEASE, "replace").epsilon(1e-6)
    assert guarantee(votes, "replace").epsilon(1e-6) < both < math.inf


def test_it_survives_json():
    assert event_from_json(RELEASE.to_json()) == RELEASE


@pytest.mark.parametrize("values", [(0.0, 1.0, 1.0), (0.1, math.inf, 1.0), (0.1, 1.0, -1.0), (0.1, 1.0, 1.0, "user")])
def test_impossible_releases_are_refused(values):
    with pytest.raises(InputError):
        VoteCostRelease(*values)
