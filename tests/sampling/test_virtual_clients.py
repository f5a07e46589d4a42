"""Virtual clients."""

import numpy as np
from scipy import stats

from sfumato._random import RandomSource
from sfumato.sampling import Cohort, OwnClients, VirtualClients

SOURCE = RandomSource.from_seed(5)


def slots_of(cohort: Cohort) -> dict[int, int]:
    return {user: int(slot) for i, slot in enumerate(cohort.slots) for user in cohort.members(i).tolist()}


def test_one_user_more_leaves_everybody_elses_group_alone():
    users = np.arange(0, 60, 3)
    for other in (0, 30, 57):
        clients = VirtualClients(clients=7)
        whole = slots_of(clients.group(users, 2, SOURCE))
        without = slots_of(clients.group(users[users != other], 2, SOURCE))
        del whole[other]
        assert without == whole


def test_users_are_spread_uniformly_and_independently():
    counts = np.zeros((4, 4))
    for index in range(3000):
        slots = slots_of(VirtualClients(clients=4).group(np.array([3, 9]), index, SOURCE))
        counts[slots[3], slots[9]] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-6


def test_empty_groups_are_left_out_and_nobody_is_lost():
    cohort = VirtualClients(clients=50).group(np.arange(10), 0, SOURCE)
    assert (np.diff(cohort.offsets) > 0).all()
    assert (np.diff(cohort.slots) > 0).all()
    assert sorted(slots_of(cohort)) == sorted(cohort.units.tolist()) == list(range(10))
    assert len(VirtualClients(clients=3).group(np.arange(0), 0, SOURCE)) == 0


def test_own_clients_are_named_by_the_user():
    assert slots_of(OwnClients(clients=4).group(np.array([2, 8]), 0, SOURCE)) == {2: 2, 8: 8}


def test_by_how_much_one_user_moves_the_sum():
    assert OwnClients(clients=1).contributions_moved("add_remove") == 1
    assert OwnClients(clients=1).contributions_moved("replace") == 2
    assert VirtualClients(clients=1).contributions_moved("add_remove") == 2
    assert VirtualClients(clients=1).contributions_moved("replace") == 2
