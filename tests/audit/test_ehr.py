"""Generated records are judged: fidelity, utility, and attacks that catch a generator that memorises."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from made_up_patients import SCHEMA, copied, records, shuffled
from sfumato._check import InputError
from sfumato.audit.ehr import Scale, attribute_inference, evaluate, membership_inference, reidentification
from sfumato.audit.ehr import attacks as module
from sfumato.audit.ehr.attacks import (
    Placed,
    Votes,
    accuracy_at,
    agreement,
    best_threshold,
    ideal_tpr,
    nearest_distances,
    squared_distances,
    tpr_at_fpr,
)
from sfumato.audit.ehr.fidelity import fidelity
from sfumato.audit.ehr.flat import flatten, pooled
from sfumato.audit.ehr.utility import MODELS, scores_of_test, utility
from sfumato.data.ehr.tables import ehr_from_tables
from sfumato.metrics import roc_auc
from sfumato.metrics.tabular import kolmogorov_smirnov
from slow import slow_but

# Fidelity, utility and the whole evaluation of generated records.

# The whole evaluation: the same for the same seed, in JSON, and what cannot be compared is refused by name.
TRAIN, HOLDOUT = records(60, 1), records(60, 2)


def test_a_copy_is_reported_whole_and_again_by_the_same_seed():
    made, told = copied(TRAIN, 60, 3), []
    first = evaluate(TRAIN, HOLDOUT, made, seed=0, progress=lambda *done: told.append(done))
    assert told == [(done, 20) for done in range(1, 21)]
    assert all(attack.above for attack in first.attacks)
    assert [attack.name for attack in first.attacks] == [
        "membership inference",
        "re-identification",
        "attribute inference",
    ]
    second = evaluate(TRAIN, HOLDOUT, made, seed=0)
    written = json.dumps(first.to_json(), allow_nan=False)
    assert written == json.dumps(second.to_json(), allow_nan=False)
    assert first.fidelity.projections == second.fidelity.projections
    assert "no guarantee" not in written
    assert first.to_json()["guarantee"].startswith("none")


def test_no_more_patients_are_looked_at_than_were_asked_for():
    bare = replace(SCHEMA, outcome=None)
    sides = [replace(side, schema=bare) for side in (TRAIN, HOLDOUT, records(50, 3))]
    found = evaluate(*sides, seed=0, most=30, sensitive=["clinic"])
    assert (found.sizes.real, found.sizes.most) == (60, 30)
    assert found.attacks[0].records == 60
    assert found.utility is None
    assert [measure.name for measure in found.attacks[2].measures] == ["clinic"]


def test_other_schemas_are_refused_with_the_first_difference():
    def changed(**fields):
        return replace(TRAIN, schema=replace(SCHEMA, **fields))

    for other, said in (
        (changed(time_unit="hours"), "time_unit is 'days' there and 'hours' here"),
        (changed(outcome=None), "outcome is 'died' there and None here"),
        (
            changed(temporal=(replace(SCHEMA.temporal[0], name="sodium"), *SCHEMA.temporal[1:])),
            "the temporal column 'bili' is a numeric column there and no column here",
        ),
        (
            changed(static=(*SCHEMA.static[:3], replace(SCHEMA.static[3], categories=("a", "b", "c")))),
            "the static column 'clinic' is a categorical column there and one with other categories",
        ),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(TRAIN, HOLDOUT, other, seed=0)


def test_generated_stays_have_no_patients_and_are_compared_all_the_same():
    schema = replace(SCHEMA, unit="stay", subject="person")
    real, holdout = (replace(side, schema=schema, subjects=side.ids) for side in (TRAIN, HOLDOUT))
    made = replace(records(9, 3), schema=replace(SCHEMA, unit="stay"))
    with pytest.raises(InputError, match="got 9 synthetic ones"):  # the schemas pass
        evaluate(real, holdout, made, seed=0)


def test_patients_on_both_real_sides_are_refused():
    both = TRAIN.take(np.arange(30))
    with pytest.raises(InputError, match="30 patients are in the real and in the held-out records, '1-0' for one"):
        evaluate(TRAIN, both, HOLDOUT, seed=0)


def test_too_few_patients_are_refused():
    with pytest.raises(InputError, match="needs 20 patients on each side, got 9 synthetic ones"):
        evaluate(TRAIN, HOLDOUT, records(9, 3), seed=0)
    with pytest.raises(InputError, match="no static column 'weight'"):
        evaluate(TRAIN, HOLDOUT, records(30, 3), seed=0, sensitive=["weight"])


@pytest.mark.slow
def test_copies_are_caught_where_few_of_many_are_asked_about():
    """Of 1,500 patients and their copies 60 each: some of the one hardly meet their originals among some of the
    other."""
    bare = replace(SCHEMA, outcome=None)
    sides = [records(1500, 1), records(600, 2)]
    sides = [replace(side, schema=bare) for side in (*sides, copied(sides[0], 1500, 3))]
    found = evaluate(*sides, seed=0, most=60, sensitive=["clinic"])
    membership, again, _ = found.attacks
    assert membership.measures[0].found.low > 0.9
    assert again.measures[0].found.low > 0.9
    assert membership.records == 120


# Fidelity: fresh patients are at the ideal; columns drawn by themselves pass column by column and fail together.
MANY, HELD_OUT = records(500, 1), records(400, 2)


@pytest.fixture(scope="module")
def fresh_fidelity():
    return fidelity(MANY, HELD_OUT, records(500, 3), np.random.default_rng(0))


@pytest.fixture(scope="module")
def apart():
    return fidelity(MANY, HELD_OUT, shuffled(MANY, 3), np.random.default_rng(0))


def test_fresh_patients_are_about_as_far_as_those_held_out(fresh_fidelity):
    assert abs(fresh_fidelity.synthetic.detector.value - 0.5) < 0.07
    assert abs(fresh_fidelity.ideal.detector.value - 0.5) < 0.07
    assert fresh_fidelity.synthetic.correlation.largest < 0.25
    assert fresh_fidelity.synthetic.missing_error < 0.02
    assert all(each.fit.distance < 0.12 for each in fresh_fidelity.columns)
    assert all(each.ideal < 0.12 for each in fresh_fidelity.columns)


def test_columns_by_themselves_pass_alone_and_fail_together(apart):
    assert apart.synthetic.good == (1.0, 1.0)
    assert all(each.fit.distance == 0 for each in apart.columns)
    assert apart.synthetic.detector.low > 0.8
    assert apart.synthetic.correlation.largest > 0.5
    pair = [apart.correlation_columns[place] for place in apart.synthetic.correlation.pair]
    assert pair == ["bili mean", "albumin mean"]
    assert apart.synthetic.association.largest > 2 * apart.ideal.association.largest
    assert [apart.association_columns[place] for place in apart.synthetic.association.pair] == ["died", "stage last"]


def test_visits_and_the_time_between_them_are_columns_too(fresh_fidelity):
    by_name = {each.name: each for each in fresh_fidelity.columns}
    assert list(by_name)[-2:] == ["visits", "days between visits"]
    made = records(500, 3)
    assert by_name["visits"].fit.ks == kolmogorov_smirnov(MANY.lengths, made.lengths)
    gaps = [
        np.concatenate([np.diff(side.times[a:b]) for a, b in zip(side.offsets, side.offsets[1:], strict=False)])
        for side in (MANY, made)
    ]
    assert by_name["days between visits"].fit.ks == kolmogorov_smirnov(*gaps)


def test_both_parts_are_projected_and_the_points_stay_out_of_json(fresh_fidelity):
    assert list(fresh_fidelity.projections) == ["static", "temporal"]
    assert {len(each.real) for each in fresh_fidelity.projections.values()} == {300}
    told = str(fresh_fidelity.to_json())
    assert "cdf" not in told
    assert len(told) < 10_000


# The flat table against a loop over patients in pandas, and what is never there.
def test_it_is_what_pandas_finds_patient_by_patient():
    data = records(500, 1)
    flat = flatten(data)
    names = [each.name for each in flat.number_columns]
    for place, column in enumerate(data.schema.temporal_numeric):
        by_patient = pd.DataFrame({"owner": data.owners, "value": data.numbers[:, place]}).groupby("owner")["value"]
        for what, expected in (
            ("last", by_patient.last()),
            ("mean", by_patient.mean()),
            ("least", by_patient.min()),
            ("most", by_patient.max()),
            ("count", by_patient.count()),
        ):
            np.testing.assert_allclose(flat.numbers[:, names.index(f"{column.name} {what}")], expected, err_msg=what)
    stages = pd.Series(data.codes[:, 0]).where(data.codes[:, 0] >= 0).groupby(data.owners)
    modes = stages.agg(lambda codes: codes.mode().min()).fillna(-1)
    np.testing.assert_array_equal(flat.codes[:, -1], modes)
    np.testing.assert_array_equal(flat.codes[:, -2], stages.last().fillna(-1))
    np.testing.assert_array_equal(flat.numbers[:, names.index("visits")], data.lengths)
    assert np.isnan(flat.numbers).any()
    assert (flat.codes[:, -1] == -1).any()


def test_the_columns_of_one_source_go_together():
    flat = flatten(records(5, 1))
    assert flat.sources == ("age", "day", "bili", "albumin", "weight", "stage", "sex", "died", "clinic")
    rest = flat.without("bili", "died")
    assert not any("bili" in each.name or each.name == "died" for each in (*rest.number_columns, *rest.code_columns))
    assert rest.numbers.shape[1] == len(rest.number_columns) == flat.numbers.shape[1] - 5
    assert rest.codes.shape[1] == len(rest.code_columns) == flat.codes.shape[1] - 1


def test_rows_are_taken_and_put_together():
    flat = flatten(records(6, 1))
    both = pooled(flat.take(np.array([4])), flat)
    assert len(both) == 7
    np.testing.assert_array_equal(both.numbers[0], flat.numbers[4])
    np.testing.assert_array_equal(both.codes[1:], flat.codes)


def test_a_generator_of_columns_by_themselves_is_what_it_says():
    data = records(50, 1)
    made = shuffled(data, 2)
    np.testing.assert_array_equal(np.sort(made.numbers, 0), np.sort(data.numbers, 0))


# Classifiers learn from records that are good, and not from those whose columns do not hang together.
TRAINED, TESTED = records(250, 1), records(150, 2)


def with_outcome(data, outcome: np.ndarray):
    codes = data.static_codes.copy()
    codes[:, 1] = outcome
    return replace(data, static_codes=codes)


@pytest.fixture(scope="module")
def fresh_utility():
    told = []
    found = utility(TRAINED, TESTED, records(250, 3), 0, progress=lambda *done: told.append(done))
    assert told == [(done, 8) for done in range(1, 9)]
    return found


@pytest.mark.slow
def test_fresh_patients_teach_as_much_as_the_real_ones(fresh_utility):
    assert [each.model for each in fresh_utility.models] == list(MODELS)
    for each in fresh_utility.models:
        assert each.real.low > 0.75
        assert each.synthetic.low > 0.75
        assert abs(each.real.value - each.synthetic.value) < 0.06
    assert fresh_utility.gap.low <= 0 <= fresh_utility.gap.high
    assert fresh_utility.outcome == ("died", "yes")
    assert (fresh_utility.test_patients, fresh_utility.events) == (150, int(TESTED.outcome().sum()))
    assert fresh_utility.warnings == ()


@pytest.mark.slow
def test_the_gap_is_between_the_best_of_either_side(fresh_utility):
    best = [max(getattr(each, side).value for each in fresh_utility.models) for side in ("real", "synthetic")]
    assert fresh_utility.gap.value == pytest.approx(best[0] - best[1])


@pytest.mark.slow
def test_columns_by_themselves_teach_nothing_of_use():
    found = utility(TRAINED, TESTED, records(250, 3), 0, baseline=shuffled(TRAINED, 4))
    best = {side: max(getattr(each, side).value for each in found.models) for side in ("synthetic", "baseline")}
    assert found.gain.low > 0.1
    assert found.gain.value == pytest.approx(best["synthetic"] - best["baseline"])
    assert utility(TRAINED, TESTED, shuffled(TRAINED, 4), 0).gap.low > 0.1


def test_there_is_no_gain_over_a_baseline_of_one_outcome():
    found = utility(TRAINED, TESTED, TRAINED, 0, baseline=with_outcome(TRAINED, np.zeros(250, int)))
    assert found.gain is None
    assert [each.baseline for each in found.models] == [None] * len(MODELS)
    assert found.gap.value == 0.0


def test_no_classifier_sees_the_outcome_of_those_it_scores():
    upside_down = with_outcome(TESTED, 1 - TESTED.outcome())
    for model in MODELS:
        first, second = (scores_of_test(model, TRAINED, TRAINED.outcome(), test, 0) for test in (TESTED, upside_down))
        np.testing.assert_array_equal(first, second)


def test_the_same_seed_gives_the_same_scores_and_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (scores_of_test("GRU", TRAINED, TRAINED.outcome(), TESTED, 3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_the_gru_sees_in_which_order_things_happened():
    """Bili rises in one half of the patients and falls in the other: no figure of the flat table but the last tells."""
    rng = np.random.default_rng(0)

    def made(n: int, seed: int):
        data = records(n, seed)
        rising = rng.random(n) < 0.5
        numbers = rng.normal(size=data.numbers.shape)
        place = (np.arange(len(data.times)) - data.offsets[:-1][data.owners]) / data.lengths[data.owners]
        numbers[:, 0] = np.where(rising[data.owners], place, (data.lengths[data.owners] > 1) * (1 - place))
        kept = np.flatnonzero(data.lengths >= 3)
        return with_outcome(replace(data, numbers=numbers), rising.astype(int)).take(kept)

    train, test = made(500, 1), made(200, 2)
    scores = scores_of_test("GRU", train, train.outcome(), test, 0)
    assert roc_auc(scores, test.outcome()) > 0.95


def test_synthetic_records_with_one_outcome_give_a_warning_and_no_auc():
    found = utility(TRAINED, TESTED, with_outcome(TRAINED, np.zeros(250, int)), 0)
    assert all(each.synthetic is None for each in found.models)
    assert found.gap is None
    (warning,) = found.warnings
    assert "do not have both categories of 'died'" in warning


def test_patients_without_an_outcome_are_left_out_and_counted():
    outcome = TRAINED.outcome()
    outcome[:5] = -1
    nobody = with_outcome(TRAINED, np.full(250, -1))
    found = utility(with_outcome(TRAINED, outcome), TESTED, nobody, 0)
    assert found.warnings[0] == "5 real records have no 'died' and are left out here."
    assert found.warnings[1] == "250 synthetic records have no 'died' and are left out here."
    assert len(found.warnings) == 3


@pytest.mark.parametrize("model", MODELS)
def test_a_column_in_which_nothing_is_ever_generated_teaches_nothing(model: str):
    numbers = TRAINED.numbers.copy()
    numbers[:, 1] = np.nan
    bare = replace(TRAINED, numbers=numbers)
    found = scores_of_test(model, bare, bare.outcome(), TESTED, 0)
    assert roc_auc(found, TESTED.outcome()) > 0.75


def test_real_records_with_one_outcome_are_refused():
    with pytest.raises(InputError, match="all held-out records have one 'died'"):
        utility(TRAINED, with_outcome(TESTED, np.ones(150, int)), TRAINED, 0)
    bare = replace(TRAINED, schema=replace(TRAINED.schema, outcome=None))
    assert utility(bare, bare, bare, 0) is None


# Real patients (the Mayo Clinic's trial of primary biliary cirrhosis): good and bad generators on purpose.
@pytest.fixture
def sides(shared):
    """Patients to learn from, held-out ones, and fresh ones."""
    table = pd.read_csv(shared / "pbcseq.csv")
    table["died"] = np.where(table["status"] == 2, "yes", "no")
    table = table.drop(columns=["rownames", "futime", "status"])
    told = ["trt", "sex", "ascites", "hepato", "spiders", "edema", "stage"]
    data = ehr_from_tables(table, id="id", time="day", outcome="died", categorical=told)
    order = np.random.default_rng(1).permutation(len(data))
    return [data.take(order[start:end]) for start, end in ((0, 150), (150, 230), (230, 312))]


def attacks(real, holdout, made):
    flats = [flatten(side) for side in (real, holdout, made)]
    scale, rng = Scale(pooled(*flats[:2])), np.random.default_rng(0)
    return (
        membership_inference(*(scale.place(flat) for flat in flats), rng),
        reidentification(*flats, rng),
        attribute_inference(*flats, ["sex", "trt"], rng),
    )


@pytest.mark.slow
@pytest.mark.shared
def test_copies_are_caught_by_each_attack_and_fresh_patients_by_none(sides):
    real, holdout, fresh = sides
    for noise in (0.0, 0.02):
        assert all(attack.above for attack in attacks(real, holdout, copied(real, 150, 3, noise)))
    assert not any(attack.above for attack in attacks(real, holdout, fresh))


@pytest.mark.slow
@pytest.mark.shared
def test_columns_of_real_patients_by_themselves_pass_alone_and_fail_together(sides):
    real, holdout, _ = sides
    found = fidelity(real, holdout, shuffled(real, 3), np.random.default_rng(0))
    assert found.synthetic.good == (1.0, 1.0) or all(each.fit.distance == 0 for each in found.columns)
    assert found.synthetic.detector.low > max(0.8, found.ideal.detector.high)
    assert found.synthetic.correlation.mean > found.ideal.correlation.mean


@pytest.mark.shared
@pytest.mark.slow
def test_columns_by_themselves_teach_less_than_real_patients(sides):
    real, holdout, fresh = sides
    assert utility(real, holdout, shuffled(real, 3), 0).gap.low > 0.1
    assert utility(real, holdout, fresh, 0).gap.value < 0.1


# Attacks on generated records: each catches a generator that memorises, and is at the ideal for fresh patients.

# Each attack catches a generator that memorises, and is at the ideal for fresh patients.
MEMBERS, OTHERS = records(400, 1), records(200, 2)


def all_attacks(made, seed: int = 0):
    sides = [flatten(side) for side in (MEMBERS, OTHERS, made)]
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
    membership, again, attribute = all_attacks(copied(MEMBERS, 400, 3, noise))
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
    for attack in all_attacks(records(400, seed), seed):
        for measure in attack.measures:
            assert measure.excess.low <= 0 <= measure.excess.high, (attack.name, measure)


@pytest.mark.slow
def test_columns_by_themselves_leak_less_than_copies():
    membership, again, _ = all_attacks(shuffled(MEMBERS, 5))
    assert membership.measures[0].found.value < 0.65
    assert again.measures[0].found.value < 0.1


def test_a_few_remembered_patients_show_at_a_low_false_positive_rate():
    made = records(400, 20)
    few = copied(MEMBERS.take(np.arange(40)), 40, 3)
    sides = [flatten(side) for side in (MEMBERS, OTHERS)]
    scale = Scale(pooled(*sides))
    mixed = pooled(flatten(made), flatten(few))
    found = membership_inference(*(scale.place(s) for s in (*sides, mixed)), np.random.default_rng(0))
    assert not found.measures[0].found.low > 0.55
    assert found.measures[1].found.value > 0.08
    assert found.measures[1].above


@pytest.mark.slow
def test_a_generator_that_keeps_away_from_its_members_reports_them():
    """Fresh patients, of whom those near to a member are dropped: that is a common remedy, and says who was there."""
    sides = [flatten(side) for side in (MEMBERS, OTHERS)]
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
    assert all_attacks(made, 4) == all_attacks(made, 4)
    assert all_attacks(made, 4) != all_attacks(made, 5)


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
    sides = [flatten(side) for side in (MEMBERS, OTHERS, OTHERS)]
    with pytest.raises(InputError, match="no static column 'bili'; sensitive ones may be sex, died, clinic, age"):
        attribute_inference(*sides, ["bili"], np.random.default_rng(0))


def test_one_column_has_no_halves():
    sides = [flatten(side).where(lambda each: each.column == "age") for side in (MEMBERS, OTHERS, OTHERS)]
    with pytest.raises(InputError, match="two columns at least, got 1"):
        reidentification(*sides, np.random.default_rng(0))


def test_a_generator_that_leaves_the_sensitive_column_out_reports_nothing():
    made = records(200, 8)
    codes = made.static_codes.copy()
    codes[:, 2] = -1
    from dataclasses import replace

    sides = [flatten(side) for side in (MEMBERS, OTHERS, replace(made, static_codes=codes))]
    (measure,) = attribute_inference(*sides, ["clinic"], np.random.default_rng(0)).measures
    assert measure.found.value == 0
    assert not measure.above


# The vote against scikit-learn's, and what a record counts that was drawn twice or not at all.
def queried(seed: int = 0):
    rng = np.random.default_rng(seed)
    queries, records = rng.normal(size=(50, 4)), rng.normal(size=(80, 4))
    return queries, records, rng.integers(0, 3, 80).astype(float)


def placed(rows: np.ndarray) -> Placed:
    return Placed(rows, np.zeros((len(rows), 0), np.int32))


def weights(distances: np.ndarray) -> np.ndarray:
    return 1 / (distances**2 + 1e-6)


def test_the_vote_is_that_of_scikit_learn():
    queries, records, values = queried()
    classes = KNeighborsClassifier(5, weights=weights, algorithm="brute").fit(records, values.astype(int))
    votes = Votes(placed(queries), placed(records), values, numeric=False)
    np.testing.assert_array_equal(votes.outcome(), classes.predict(queries))
    numbers = KNeighborsRegressor(5, weights=weights, algorithm="brute").fit(records, values)
    votes = Votes(placed(queries), placed(records), values, numeric=True)
    np.testing.assert_allclose(votes.outcome(), numbers.predict(queries), rtol=1e-5)


def test_a_record_that_was_drawn_twice_votes_twice_and_one_that_was_not_does_not():
    queries, records, values = queried()
    times = np.random.default_rng(1).poisson(1.5, 80)
    drawn = np.repeat(np.arange(80), times)
    for numeric in (True, False):
        votes = Votes(placed(queries), placed(records), values, numeric=numeric)
        again = Votes(placed(queries), placed(records[drawn]), values[drawn], numeric=numeric)
        np.testing.assert_allclose(votes.outcome(times), again.outcome(), rtol=1e-6)


def test_no_one_votes_where_all_that_are_near_were_left_out():
    queries, records, values = queried()
    for numeric in (True, False):
        votes = Votes(placed(queries), placed(records), values, numeric=numeric)
        assert np.isnan(votes.outcome(np.zeros(80, int))).all()


def test_a_copy_outvotes_the_others():
    queries, records, _ = queried()
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


def test_a_copy_is_at_zero_and_no_one_else_is():
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
