"""What a patient's visits come to, against a walk through them."""

import numpy as np

from sfumato.synthesis.ehr_safe.outline.summaries import OF_NUMBERS, summaries, summary_width


def test_summaries_are_those_of_a_walk_through_each_patient(patients):
    data = patients(60)
    found = summaries(data)
    assert found.shape == (60, summary_width(data.schema)) == (60, 2 * OF_NUMBERS + 1)
    for patient in range(60):
        rows = slice(data.offsets[patient], data.offsets[patient + 1])
        wanted = []
        for values in data.numbers[rows].T:
            there = values[~np.isnan(values)]
            parts = [len(there) / len(values), there.mean(), there[-1], there.min(), there.max()] if len(there) else []
            wanted += parts or [np.nan] * OF_NUMBERS
        wanted.append((data.codes[rows, 0] >= 0).mean() or np.nan)
        np.testing.assert_allclose(found[patient], wanted)
