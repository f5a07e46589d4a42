"""Classifiers learn from records that are good, and not from those whose columns do not hang together."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from made_up_patients import records, shuffled
from sfumato._check import InputError
from sfumato.audit.ehr.utility import MODELS, scores_of_test, utility
from sfumato.metrics import roc_auc

TRAIN, HOLDOUT = records(250, 1), records(150, 2)


def with_outcome(data, outcome: np.ndarray):
    codes = data.static_codes.copy()
    codes[:, 1] = outcome
    return replace(data, static_codes=codes)


@pytest.fixture(scope="module")
def fresh():
    told = []
    found = utility(TRAIN, HOLDOUT, records(250, 3), 0, progress=lambda *done: told.append(done))
    assert told == [(done, 8) for done in range(1, 9)]
    return found


@pytest.mark.slow
def test_fresh_patients_teach_as_much_as_the_real_ones(fresh):
    assert [each.model for each in fresh.models] == list(MODELS)
    for each in fresh.models:
        assert each.real.low > 0.75
        assert each.synthetic.low > 0.75
        assert abs(each.real.value - each.synthetic.value) < 0.06
    assert fresh.gap.low <= 0 <= fresh.gap.high
    assert fresh.outcome == ("died", "yes")
    assert (fresh.test_patients, fresh.events) == (150, int(HOLDOUT.outcome().sum()))
    assert fresh.warnings == ()


@pytest.mark.slow
def test_the_gap_is_between_the_best_of_either_side(fresh):
    best = [max(getattr(each, side).value for each in fresh.models) for side in ("real", "synthetic")]
    assert fresh.gap.value == pytest.approx(best[0] - best[1])


@pytest.mark.slow
def test_columns_by_themselves_teach_nothing_of_use():
    found = utility(TRAIN, HOLDOUT, shuffled(TRAIN, 4), 0)
    assert found.gap.low > 0.1


def test_no_classifier_sees_the_outcome_of_those_it_scores():
    upside_down = with_outcome(HOLDOUT, 1 - HOLDOUT.outcome())
    for model in MODELS:
        first, second = (scores_of_test(model, TRAIN, TRAIN.outcome(), test, 0) for test in (HOLDOUT, upside_down))
        np.testing.assert_array_equal(first, second)


def test_the_same_seed_gives_the_same_scores_and_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = (scores_of_test("GRU", TRAIN, TRAIN.outcome(), HOLDOUT, 3) for _ in range(2))
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
    found = utility(TRAIN, HOLDOUT, with_outcome(TRAIN, np.zeros(250, int)), 0)
    assert all(each.synthetic is None for each in found.models)
    assert found.gap is None
    (warning,) = found.warnings
    assert "do not have both categories of 'died'" in warning


def test_patients_without_an_outcome_are_left_out_and_counted():
    outcome = TRAIN.outcome()
    outcome[:5] = -1
    nobody = with_outcome(TRAIN, np.full(250, -1))
    found = utility(with_outcome(TRAIN, outcome), HOLDOUT, nobody, 0)
    assert found.warnings[0] == "5 real records have no 'died' and are left out here."
    assert found.warnings[1] == "250 synthetic records have no 'died' and are left out here."
    assert len(found.warnings) == 3


@pytest.mark.parametrize("model", MODELS)
def test_a_column_in_which_nothing_is_ever_generated_teaches_nothing(model: str):
    numbers = TRAIN.numbers.copy()
    numbers[:, 1] = np.nan
    bare = replace(TRAIN, numbers=numbers)
    found = scores_of_test(model, bare, bare.outcome(), HOLDOUT, 0)
    assert roc_auc(found, HOLDOUT.outcome()) > 0.75


def test_real_records_with_one_outcome_are_refused():
    with pytest.raises(InputError, match="all held-out records have one 'died'"):
        utility(TRAIN, with_outcome(HOLDOUT, np.ones(150, int)), TRAIN, 0)
    bare = replace(TRAIN, schema=replace(TRAIN.schema, outcome=None))
    assert utility(bare, bare, bare, 0) is None
