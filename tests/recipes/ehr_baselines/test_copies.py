"""Copies of patients give everything away, and what measures records finds them."""

import numpy as np
import pytest
from ehr_baselines import Copies

from made_up_patients import records
from sfumato.audit.ehr import evaluate
from sfumato.synthesis import IndependentColumns


def test_everybody_is_copied_once_before_anybody_is_copied_again(patients):
    data = patients(30)
    (found,) = Copies(data).sample(75, seed=0)
    rows = [tuple(np.nan_to_num(one.numbers, nan=-1.0).ravel()) for one in (found.take([i]) for i in range(75))]
    real = {tuple(np.nan_to_num(data.take([i]).numbers, nan=-1.0).ravel()) for i in range(30)}
    assert set(rows[:30]) == set(rows[30:60]) == real
    assert set(rows[60:]) <= real
    assert found.ids == tuple(f"synthetic-{place + 1:06}" for place in range(75))


@pytest.mark.slow
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


def test_the_same_seed_draws_the_same_records_and_another_one_others(patients):
    data = patients(40)
    first, again, other = (next(Copies(data).sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other
