"""Real patients (the Mayo Clinic's trial of primary biliary cirrhosis): good and bad generators on purpose."""

import numpy as np
import pandas as pd
import pytest

from made_up_patients import copied, shuffled
from sfumato.audit.ehr import (
    Scale,
    attribute_inference,
    fidelity,
    flatten,
    membership_inference,
    reidentification,
)
from sfumato.audit.ehr.flat import pooled
from sfumato.audit.ehr.utility import utility
from sfumato.data.ehr.tables import ehr_from_tables

pytestmark = pytest.mark.shared


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


def test_copies_are_caught_by_each_attack_and_fresh_patients_by_none(sides):
    real, holdout, fresh = sides
    for noise in (0.0, 0.02):
        assert all(attack.above for attack in attacks(real, holdout, copied(real, 150, 3, noise)))
    assert not any(attack.above for attack in attacks(real, holdout, fresh))


def test_columns_by_themselves_pass_alone_and_fail_together(sides):
    real, holdout, _ = sides
    found = fidelity(real, holdout, shuffled(real, 3), np.random.default_rng(0))
    assert found.synthetic.good == (1.0, 1.0) or all(each.fit.distance == 0 for each in found.columns)
    assert found.synthetic.detector.low > max(0.8, found.ideal.detector.high)
    assert found.synthetic.correlation.mean > found.ideal.correlation.mean


@pytest.mark.slow
def test_columns_by_themselves_teach_less_than_real_patients(sides):
    real, holdout, fresh = sides
    assert utility(real, holdout, shuffled(real, 3), 0).gap.low > 0.1
    assert utility(real, holdout, fresh, 0).gap.value < 0.1
