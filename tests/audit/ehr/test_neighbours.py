"""The vote against scikit-learn's, and what a record counts that was drawn twice or not at all."""

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from sfumato.audit.ehr.attacks import Placed, Votes


def sides(seed: int = 0):
    rng = np.random.default_rng(seed)
    queries, records = rng.normal(size=(50, 4)), rng.normal(size=(80, 4))
    return queries, records, rng.integers(0, 3, 80).astype(float)


def placed(rows: np.ndarray) -> Placed:
    return Placed(rows, np.zeros((len(rows), 0), np.int32))


def weights(distances: np.ndarray) -> np.ndarray:
    return 1 / (distances**2 + 1e-6)


def test_the_vote_is_that_of_scikit_learn():
    queries, records, values = sides()
    classes = KNeighborsClassifier(5, weights=weights, algorithm="brute").fit(records, values.astype(int))
    votes = Votes(placed(queries), placed(records), values, numeric=False)
    np.testing.assert_array_equal(votes.outcome(), classes.predict(queries))
    numbers = KNeighborsRegressor(5, weights=weights, algorithm="brute").fit(records, values)
    votes = Votes(placed(queries), placed(records), values, numeric=True)
    np.testing.assert_allclose(votes.outcome(), numbers.predict(queries), rtol=1e-5)


def test_a_record_that_was_drawn_twice_votes_twice_and_one_that_was_not_does_not():
    queries, records, values = sides()
    times = np.random.default_rng(1).poisson(1.5, 80)
    drawn = np.repeat(np.arange(80), times)
    for numeric in (True, False):
        votes = Votes(placed(queries), placed(records), values, numeric=numeric)
        again = Votes(placed(queries), placed(records[drawn]), values[drawn], numeric=numeric)
        np.testing.assert_allclose(votes.outcome(times), again.outcome(), rtol=1e-6)


def test_nobody_votes_where_all_that_are_near_were_left_out():
    queries, records, values = sides()
    for numeric in (True, False):
        votes = Votes(placed(queries), placed(records), values, numeric=numeric)
        assert np.isnan(votes.outcome(np.zeros(80, int))).all()


def test_a_copy_outvotes_the_others():
    queries, records, _ = sides()
    records[7] = queries[3]
    values = np.zeros(80)
    values[7] = 1
    assert Votes(placed(queries), placed(records), values, numeric=False).outcome()[3] == 1
