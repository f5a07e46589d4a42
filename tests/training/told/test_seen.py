"""People who took part are measured only where a task asks for it, and which of them follows from their number."""

import numpy as np
import pytest

from sfumato import data
from sfumato.training.monitoring import marked, who_took_part


class Asks:
    asks_seen = True


def people(count: int, value: float = 0.0) -> data.UserDataset:
    return data.from_arrays(np.full((count, 1), value), labels=np.zeros(count, int), users=np.arange(100, 100 + count))


@pytest.mark.parametrize(("took_part", "tested", "count"), [(100, 7, 7), (5, 9, 5), (9, 9, 9), (10, 1, 1)])
def test_at_most_as_many_as_are_tested_at_even_distances(took_part, tested, count):
    chosen = who_took_part(Asks(), people(took_part), people(tested))
    places = [int(name) - 100 for name in chosen.user_ids]
    assert len(places) == count
    assert set(np.diff(places)) <= {took_part // count, -(-took_part // count)}


def test_who_is_chosen_does_not_depend_on_what_they_hold():
    one, other = (who_took_part(Asks(), people(50, value), people(7)) for value in (0.0, 9.0))
    assert list(one.user_ids) == list(other.user_ids)


def test_nobody_is_measured_for_a_task_that_does_not_ask_or_without_a_test():
    assert who_took_part(object(), people(5), people(5)) is None
    assert who_took_part(Asks(), people(5), None) is None


def test_the_row_says_that_it_is_private():
    assert marked({"rmse": 1.0}, people(3)) == {
        "not_private": "measured without noise on people who took part", "users": 3, "rmse": 1.0,
    }  # fmt: skip
