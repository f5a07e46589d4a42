"""Attacks on generated records: each catches a generator that memorises, and is at the ideal for fresh patients."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from made_up_patients import copied, records, shuffled
from sfumato._check import InputError
from sfumato.audit.ehr import attacks as module
from sfumato.audit.ehr.attacks import (
    Placed,
    Scale,
    Votes,
    accuracy_at,
    agreement,
    attribute_inference,
    best_threshold,
    ideal_tpr,
    membership_inference,
    nearest_distances,
    reidentification,
    squared_distances,
    tpr_at_fpr,
)
from sfumato.audit.ehr.flat import flatten, pooled
from slow import slow_but

# Each attack catches a generator that memorises, and is at the ideal for fresh patients.

TRAIN, HOLDOUT = records(400, 1), records(200, 2)


def attacks(made, seed: int = 0):
    sides = [flatten(side) for side in (TRAIN, HOLDOUT, made)]
    scale = Scale(pooled(*sides[:2]))
    placed = [scale.place(side) for side in sides]
    rng = np.random.default_rng(seed)
    return (
        membership_inference(*placed, rng),
        reidentification(*sides, rng),
        attribute_inference(*sides, ["clinic", "sex", "age"], rng),
    )


@pytest.mark.parametrize("noise", slow_but([0.0, 0.02], 0.0))
def test_each_attack_catches_a_generator_that_memorises(noise):
    membership, again, attribute = attacks(copied(TRAIN, 400, 3, noise))
    assert membership.measures[0].found.low > 0.9
    assert membership.measures[1].found.low > 0.9
    assert again.measures[0].found.low > 0.9
    assert again.measures[0].ideal.high < 0.1
    assert attribute.measures[0].excess.low > 0.1
    clinic = next(measure for measure in attribute.measures if measure.name == "clinic")
    assert clinic.ideal.value == pytest.approx(1 / 3, abs=0.1)  # nothing else tells it
    assert clinic.found.value > 0.6
    assert all(attack.above for attack in (membership, again, attribute))


@pytest.mark.parametrize("seed", slow_but([10, 11, 12], 10))
def test_fresh_patients_are_at_the_ideal(seed):
    """Three seeds of seven measures: 1 in 40 is above by chance. The seeds are fixed."""
    for attack in attacks(records(400, seed), seed):
        for measure in attack.measures:
            assert measure.excess.low <= 0 <= measure.excess.high, (attack.name, measure)


def test_columns_by_themselves_leak_less_than_copies():
    membership, again, _ = attacks(shuffled(TRAIN, 5))
    assert membership.measures[0].found.value < 0.65
    assert again.measures[0].found.value < 0.1


def test_a_few_remembered_patients_show_at_a_low_false_positive_rate():
    made = records(400, 20)
    few = copied(TRAIN.take(np.arange(40)), 40, 3)
    sides = [flatten(side) for side in (TRAIN, HOLDOUT)]
    scale = Scale(pooled(*sides))
    mixed = pooled(flatten(made), flatten(few))
    found = membership_inference(*(scale.place(s) for s in (*sides, mixed)), np.random.default_rng(0))
    assert not found.measures[0].found.low > 0.55
    assert found.measures[1].found.value > 0.08
    assert found.measures[1].above


def test_a_generator_that_keeps_away_from_its_members_tells_them():
    """Fresh patients, of whom those near to a member are dropped: that is a common remedy, and says who was there."""
    sides = [flatten(side) for side in (TRAIN, HOLDOUT)]
    scale = Scale(pooled(*sides))
    members, outsiders = map(scale.place, sides)
    made = scale.place(flatten(records(4000, 30)))
    near = nearest_distances(made, members)
    kept = made.take(np.flatnonzero(near > np.median(near)))
    assert not membership_inference(members, outsiders, made, np.random.default_rng(0)).above
    found = membership_inference(members, outsiders, kept, np.random.default_rng(0)).measures[0]
    assert found.found.low > 0.6
    assert found.above


def test_the_same_seed_gives_the_same_attacks():
    made = records(100, 9)
    assert attacks(made, 4) == attacks(made, 4)
    assert attacks(made, 4) != attacks(made, 5)


def test_the_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 9, 40).astype(float), rng.integers(2, 12, 30).astype(float)
    best = accuracy_at(best_threshold(inside, outside), inside, outside)
    assert best == max(accuracy_at(each, inside, outside) for each in (-np.inf, *range(-1, 13)))
    assert best_threshold(outside + 100, inside) == -np.inf


def test_the_ideal_share_at_a_low_false_positive_rate_is_that_of_strangers():
    """Mean and 97.5 % point of 4,000 draws; the mean's standard error is 0.0004."""
    rng = np.random.default_rng(0)
    found = [tpr_at_fpr(rng.normal(size=60), rng.normal(size=150)) for _ in range(4000)]
    ideal = ideal_tpr(60, 150)
    assert np.mean(found) == pytest.approx(ideal.value, abs=0.0015)
    assert np.mean(np.array(found) > ideal.high) < 0.03
    assert np.mean(np.array(found) >= ideal.high) > 0.02


def test_equally_near_records_share_the_agreement():
    """By the first half records 0 and 1 are nearest, by the second 1, 2 and 3: 1 draw in 6 agrees."""
    codes = np.array([[0, 9], [0, 5], [1, 5], [1, 5]])
    halves = [Placed(np.zeros((4, 0)), codes[:, [side]]) for side in (0, 1)]
    query = [Placed(np.zeros((1, 0)), np.array([[code]])) for code in (0, 5)]
    assert agreement(query, halves) == pytest.approx([1 / 6])


def test_a_column_that_is_not_static_is_refused():
    sides = [flatten(side) for side in (TRAIN, HOLDOUT, HOLDOUT)]
    with pytest.raises(InputError, match="no static column 'bili'; sensitive ones may be sex, died, clinic, age"):
        attribute_inference(*sides, ["bili"], np.random.default_rng(0))


def test_one_column_has_no_halves():
    sides = [flatten(side).where(lambda each: each.column == "age") for side in (TRAIN, HOLDOUT, HOLDOUT)]
    with pytest.raises(InputError, match="two columns at least, got 1"):
        reidentification(*sides, np.random.default_rng(0))


def test_a_generator_that_leaves_the_sensitive_column_out_tells_nothing():
    made = records(200, 8)
    codes = made.static_codes.copy()
    codes[:, 2] = -1
    from dataclasses import replace

    sides = [flatten(side) for side in (TRAIN, HOLDOUT, replace(made, static_codes=codes))]
    (measure,) = attribute_inference(*sides, ["clinic"], np.random.default_rng(0)).measures
    assert measure.found.value == 0
    assert not measure.above


# The vote against scikit-learn's, and what a record counts that was drawn twice or not at all.


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


# The distance of two patients, term by term, in blocks of any size.


def by_hand(reference, first, second) -> float:
    """The sum in the module's docstring, for two rows."""
    total = 0.0
    for place, known in enumerate(reference.numbers.T):
        known = known[~np.isnan(known)]
        a, b = first.numbers[0, place], second.numbers[0, place]
        ranks = [0.5 if np.isnan(v) else ((known < v).mean() + (known <= v).mean()) / 2 for v in (a, b)]
        total += (ranks[0] - ranks[1]) ** 2 + (np.isnan(a) != np.isnan(b))
    return total + float((first.codes != second.codes).sum())


def test_it_is_the_sum_over_all_columns():
    flat, others = flatten(records(40, 1)), flatten(records(8, 2))
    scale = Scale(flat)
    ((_, found),) = squared_distances(scale.place(others), scale.place(flat))
    for i in range(8):
        for j in range(40):
            expected = by_hand(flat, others.take(np.array([i])), flat.take(np.array([j])))
            assert found[i, j] == pytest.approx(expected, abs=1e-8)


def test_a_copy_is_at_zero_and_nobody_else_is():
    flat = flatten(records(300, 1))
    placed = Scale(flat).place(flat)
    ((_, found),) = squared_distances(placed, placed)
    assert (np.diag(found) == 0).all()
    assert (found + np.eye(300) > 0).all()


def test_units_and_outliers_do_not_matter():
    data = records(50, 1)
    flat = flatten(data)
    first = Scale(flat).place(flat).numbers
    flat.numbers[:] = np.exp(flat.numbers / 20)
    np.testing.assert_array_equal(Scale(flat).place(flat).numbers, first)


def test_blocks_change_nothing(monkeypatch):
    flat = flatten(records(60, 1))
    placed = Scale(flat).place(flat)
    others = Scale(flat).place(flatten(records(25, 2)))
    whole = nearest_distances(others, placed)
    monkeypatch.setattr(module, "_BLOCK", 130)
    blocks = list(squared_distances(others, placed))
    assert len(blocks) == 13
    np.testing.assert_allclose(nearest_distances(others, placed), whole, atol=1e-8)
