"""Fidelity, utility and the whole evaluation of generated records."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from made_up_patients import SCHEMA, copied, records, shuffled
from sfumato._check import InputError
from sfumato.audit.ehr import Scale, attribute_inference, evaluate, membership_inference, reidentification
from sfumato.audit.ehr.fidelity import fidelity
from sfumato.audit.ehr.flat import flatten, pooled
from sfumato.audit.ehr.utility import MODELS, scores_of_test, utility
from sfumato.data.ehr.tables import ehr_from_tables
from sfumato.metrics import roc_auc
from sfumato.metrics.tabular import kolmogorov_smirnov

# The whole evaluation: the same for the same seed, in JSON, and what cannot be compared is refused by name.

TRAIN, HOLDOUT = records(60, 1), records(60, 2)


def test_a_copy_is_told_whole_and_again_by_the_same_seed():
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


def test_patients_on_both_real_sides_are_refused():
    both = TRAIN.take(np.arange(30))
    with pytest.raises(InputError, match="30 patients are in the real and in the held-out records, '1-0' for one"):
        evaluate(TRAIN, both, HOLDOUT, seed=0)


def test_too_few_patients_are_refused():
    with pytest.raises(InputError, match="needs 20 patients on each side, got 9 synthetic ones"):
        evaluate(TRAIN, HOLDOUT, records(9, 3), seed=0)
    with pytest.raises(InputError, match="no static column 'weight'"):
        evaluate(TRAIN, HOLDOUT, records(30, 3), seed=0, sensitive=["weight"])


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


@pytest.mark.shared
def test_copies_are_caught_by_each_attack_and_fresh_patients_by_none(sides):
    real, holdout, fresh = sides
    for noise in (0.0, 0.02):
        assert all(attack.above for attack in attacks(real, holdout, copied(real, 150, 3, noise)))
    assert not any(attack.above for attack in attacks(real, holdout, fresh))


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
