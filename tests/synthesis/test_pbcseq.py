"""Real patients: the visits of 312 with a liver disease."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sfumato import data
from sfumato.synthesis import EHRSafe


@pytest.mark.shared
@pytest.mark.slow
def test_marginals_lengths_and_missing_values_of_real_patients_are_kept(shared: Path):
    """The target is that of the paper's figures, a Kolmogorov-Smirnov distance below 0.05 for most columns."""
    records = data.ehr_from_tables(shared / "pbcseq.csv", id="id", time="day", drop=["rownames", "futime", "status"])
    plan = EHRSafe(epochs=10, hidden=32, latent=16, gan_hidden=64, gan_steps=200, calibrated_on=500, seed=1)
    synthesizer = plan.fit(records).synthesizer
    assert synthesizer is not None
    (found,) = synthesizer.sample(1_500, seed=1)
    distances = []
    for place, _ in enumerate(records.schema.temporal_numeric):
        ours, theirs = (each.numbers[:, place] for each in (found, records))
        distances.append(stats.ks_2samp(ours[~np.isnan(ours)], theirs[~np.isnan(theirs)])[0])
    assert np.mean(np.array(distances) < 0.05) > 0.5
    assert abs(found.lengths.mean() / records.lengths.mean() - 1) < 0.15
    missing = np.isnan(found.numbers).mean(axis=0) - np.isnan(records.numbers).mean(axis=0)
    assert np.abs(missing).max() < 0.05
