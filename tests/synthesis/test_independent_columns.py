"""Independent columns are right one by one."""

import numpy as np

from sfumato.synthesis import IndependentColumns


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
    first, again, other = (next(IndependentColumns(data).sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other
