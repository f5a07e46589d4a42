"""Generated logs: the law of their values, the planted truth, users, and rows that do not depend on their number."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data import ZipfClicks, open_examples
from sfumato.data.zipf_clicks import zipf


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.3])
def test_values_come_by_the_law_of_zipf(exponent: float) -> None:
    draws = zipf(RandomSource.from_seed(3).stream("zipf", str(exponent)), 40, exponent, 200_000)
    expected = np.arange(1, 41) ** -exponent
    found = np.bincount(draws, minlength=40)
    assert len(found) == 40
    assert stats.chisquare(found, expected / expected.sum() * len(draws)).pvalue > 1e-3


def test_ten_million_values_take_no_memory_of_their_number(tmp_path: Path) -> None:
    log = ZipfClicks(vocabulary_sizes=(10_000_000,) * 3, exponent=0.6, numeric=1, seed=1)
    tracemalloc.start()
    data = log.examples(20_000, store=tmp_path / "log")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20  # a number for each value of one column takes 80 MB
    ids = np.asarray(data.inputs[1][:])
    assert 9_000_000 < ids.max() < 10_000_000
    assert len(np.unique(ids)) > 30_000
    assert open_examples(tmp_path / "log").fingerprint() == log.examples(20_000).fingerprint()


def test_clicks_follow_the_planted_scores() -> None:
    log = ZipfClicks(vocabulary_sizes=(500, 20), numeric=2, users=300, taste=0.5, strength=1.5, seed=2)
    data = log.examples(60_000)
    (numbers, ids), clicks = data.examples(np.arange(len(data)))
    assert data.num_users == 300  # all have a row, so that their numbers are those of the log
    rates = 1 / (1 + np.exp(-log.scores(numbers, ids, data.owners)))
    for chosen in np.array_split(np.argsort(rates), 10):
        spread = np.sqrt((rates[chosen] * (1 - rates[chosen])).sum())
        assert abs((clicks[chosen] - rates[chosen]).sum()) < 4.5 * spread
    without = 1 / (1 + np.exp(-log.scores(numbers, ids)))
    assert np.corrcoef(rates, without)[0, 1] < 0.98


def test_counts_follow_the_planted_scores() -> None:
    log = ZipfClicks(vocabulary_sizes=(50,), bias=0.0, strength=0.5, counts=True, seed=2)
    data = log.examples(30_000)
    (numbers, ids), counts = data.examples(np.arange(len(data)))
    assert data.num_classes is None
    rates = np.exp(log.scores(numbers, ids))
    for chosen in np.array_split(np.argsort(rates), 5):
        assert abs((counts[chosen] - rates[chosen]).sum()) < 4.5 * np.sqrt(rates[chosen].sum())


@pytest.mark.parametrize("count", [1, 8192, 8193])
def test_more_rows_leave_the_first_ones_as_they_are(count: int) -> None:
    log = ZipfClicks(vocabulary_sizes=(500, 20), numeric=2, counts=True, seed=2)
    some, more = log.examples(count), log.examples(20_000)
    for one, other in zip((*some.inputs, some.targets), (*more.inputs, more.targets), strict=True):
        np.testing.assert_array_equal(one[:], other[:count])


def test_a_few_users_have_many_rows_and_those_without_one_are_left_out() -> None:
    data = ZipfClicks(vocabulary_sizes=(5,), users=100_000, seed=4).examples(3000)
    rows = np.bincount(data.owners)
    assert rows.min() == 1
    assert rows.max() > 100
    assert data.num_users < 3000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocabulary_sizes": ()}, "needs a number of ids for each column"),
        ({"vocabulary_sizes": (0,)}, "vocabulary_sizes must be a whole number >= 1, got 0"),
        ({"exponent": 0.0}, "exponent must be > 0"),
        ({"strength": -1.0}, "strength must be"),
        ({"taste": 1.0}, "say how many users there are"),
        ({"users": 0}, "users must be a whole number >= 1"),
    ],
)
def test_a_log_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ZipfClicks(**{"vocabulary_sizes": (5,), **fields})
