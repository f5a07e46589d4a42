"""Shuffled epochs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sampling.rounds import drawn, keeps_its_promise
from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato._random import RandomSource, Stream
from sfumato.sampling import ShuffledEpochs

SOURCE = RandomSource.from_seed(5)


@given(st.integers(1, 6), st.integers(0, 12), st.integers(1, 12), st.booleans(), st.integers(0, 99))
def test_no_unit_is_in_more_rounds_than_promised_or_sooner(size, more, rounds, reshuffle, seed):
    epochs = ShuffledEpochs(size=size, population=size + more, rounds=rounds, reshuffle=reshuffle)
    assert keeps_its_promise(epochs, RandomSource.from_seed(seed))
    assert all(len(batch) == size for batch in drawn(epochs, RandomSource.from_seed(seed)))


def test_the_promise_is_no_larger_than_what_can_happen():
    assert ShuffledEpochs(size=2, population=7, rounds=7).participation(7) == acc.Participation(
        rounds=7, max_participations=3, min_separation=0
    )
    assert ShuffledEpochs(size=2, population=7, rounds=7, reshuffle=False).participation(7) == acc.Participation(
        rounds=7, max_participations=3, min_separation=2
    )
    assert ShuffledEpochs(size=2, population=7, rounds=7).participation(3) == acc.Participation(
        rounds=3, max_participations=1, min_separation=2
    )


def test_consecutive_rounds_happen_where_the_order_is_new():
    epochs = ShuffledEpochs(size=1, population=3, rounds=300)
    batches = np.concatenate(drawn(epochs, SOURCE))
    assert (batches[2:-1:3] == batches[3::3]).any()  # a third of 99 borders: none with probability 4e-18


def test_an_epoch_goes_through_every_unit_once():
    epochs = ShuffledEpochs(size=3, population=12, rounds=8)
    batches = drawn(epochs, SOURCE)
    for epoch in (batches[:4], batches[4:]):
        assert sorted(np.concatenate(epoch)) == list(range(12))


def test_other_units_are_left_out_of_each_epoch_unless_one_order_serves_all():
    new = ShuffledEpochs(size=3, population=11, rounds=60)
    used = [np.concatenate(drawn(new, SOURCE)[start : start + 3]) for start in range(0, 60, 3)]
    assert len({tuple(sorted(each)) for each in used}) > 1
    same = replace(new, reshuffle=False)
    batches = drawn(same, SOURCE)
    assert len(np.unique(np.concatenate(batches))) == 9
    assert all(np.array_equal(batch, batches[index % 3]) for index, batch in enumerate(batches))


@pytest.mark.parametrize("step", [0, 1])
def test_all_batches_are_equally_likely(step):
    epochs = ShuffledEpochs(size=2, population=5, rounds=8000)
    seen = Counter(tuple(epochs.draw(5, 2 * epoch + step, SOURCE).tolist()) for epoch in range(4000))
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-6  # the false alarm rate, at a fixed seed


def test_any_order_of_asking_gives_the_same_batches():
    epochs = ShuffledEpochs(size=3, population=11, rounds=12)
    first = drawn(epochs, SOURCE)
    other = RandomSource.from_seed(6)
    assert not all(map(np.array_equal, first, drawn(epochs, other)))  # one key's order is not another's
    for index in [11, 0, 5, 5, 4]:
        assert np.array_equal(epochs.draw(11, index, SOURCE), first[index])
        assert np.array_equal(replace(epochs).draw(11, index, SOURCE), first[index])


def test_an_epoch_is_put_in_order_once(monkeypatch):
    made = []
    permutation = Stream.permutation
    monkeypatch.setattr(Stream, "permutation", lambda self, n: made.append(n) or permutation(self, n))
    drawn(ShuffledEpochs(size=2, population=20, rounds=20), SOURCE)
    assert made == [20, 20]


def test_a_round_has_no_event_of_its_own():
    epochs = ShuffledEpochs(size=2, population=10, rounds=20)
    with pytest.raises(InputError, match="at most 4 of 20 rounds; account the run as a whole"):
        epochs.account(acc.Gaussian(1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 11}, "a batch of 11 cannot be filled from 10 units"),
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ({"population": 2.5}, "population must be a whole number"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"reshuffle": 2}, "reshuffle must be one of True, False, got 2"),
    ],
)
def test_bad_values_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        ShuffledEpochs(**{"size": 3, "population": 10, "rounds": 9, **changes})


def test_what_was_not_planned_is_refused():
    epochs = ShuffledEpochs(size=3, population=10, rounds=9)
    with pytest.raises(InputError, match="planned for 10 units but 9 are present"):
        epochs.draw(9, 0, SOURCE)
    with pytest.raises(InputError, match="planned for 9 rounds, got round 10"):
        epochs.draw(10, 9, SOURCE)
    with pytest.raises(InputError, match="planned for 9 rounds, got 10"):
        epochs.participation(10)


def test_the_statement_says_how_often_and_who_is_left_out():
    epochs = ShuffledEpochs(size=3, population=11, rounds=9)
    assert epochs.describe() == (
        "shuffled epochs of 3 batches of 3 of 11, a new order for each, 2 left out of each, "
        "each unit in at most 3 rounds"
    )
    assert replace(epochs, reshuffle=False).describe() == (
        "shuffled epochs of 3 batches of 3 of 11, one order for all, 2 left out of all, "
        "each unit in at most 3 rounds, 2 or more rounds between two of them"
    )
    assert epochs.adjacency == "zero_out"
