"""The two controls: copies give everything away, and independent columns are right one by one only."""

import numpy as np

from made_up_patients import records
from sfumato.audit.ehr import evaluate
from sfumato.synthesis import Copies, IndependentColumns


def test_everybody_is_copied_once_before_anybody_is_copied_again(patients):
    data = patients(30)
    (found,) = Copies(data).sample(75, seed=0)
    rows = [tuple(np.nan_to_num(one.numbers, nan=-1.0).ravel()) for one in (found.take([i]) for i in range(75))]
    real = {tuple(np.nan_to_num(data.take([i]).numbers, nan=-1.0).ravel()) for i in range(30)}
    assert set(rows[:30]) == set(rows[30:60]) == real
    assert set(rows[60:]) <= real
    assert found.ids == tuple(f"synthetic-{place + 1:06}" for place in range(75))


def test_the_attacks_find_copies_and_not_independent_columns_and_the_detector_these():
    real, holdout = records(150, 1), records(150, 2)
    copies, apart = (
        evaluate(real, holdout, next(each.sample(150, seed=0)), seed=0)
        for each in (Copies(real), IndependentColumns(real))
    )
    membership = [found.attacks[0].measures[0] for found in (copies, apart)]
    assert membership[0].above
    assert membership[0].found.value > 0.9 > 0.65 > membership[1].found.value
    gaps = [found.fidelity.synthetic.correlation.mean or 0.0 for found in (copies, apart)]
    assert gaps[1] > 0.1 > gaps[0]
    detector = apart.fidelity.synthetic.detector
    assert detector is not None
    assert detector.value > 0.7


def test_independent_columns_follow_the_real_ones_one_by_one(patients):
    """Shares of 3,000 draws against those of the real cells, within 0.05."""
    data = patients(200)
    blocks = list(IndependentColumns(data).sample(3_000, seed=0, block=1_000))
    assert [len(block) for block in blocks] == [1_000] * 3
    codes, numbers = (np.concatenate([getattr(each, name) for each in blocks]) for name in ("codes", "numbers"))
    real = np.bincount(data.codes[:, 0] + 1, minlength=4) / len(data.codes)
    np.testing.assert_allclose(np.bincount(codes[:, 0] + 1, minlength=4) / len(codes), real, atol=0.05)
    np.testing.assert_allclose(np.isnan(numbers).mean(0), np.isnan(data.numbers).mean(0), atol=0.05)
    np.testing.assert_allclose(np.nanmean(numbers, 0), np.nanmean(data.numbers, 0), rtol=0.05)
    lengths = np.concatenate([each.lengths for each in blocks])
    assert abs(lengths.mean() / data.lengths.mean() - 1) < 0.05


def test_the_same_seed_draws_the_same_records_and_another_one_others(patients):
    data = patients(40)
    for control in (Copies(data), IndependentColumns(data)):
        first, again, other = (next(control.sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
        assert first == again != other
