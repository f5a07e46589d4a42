"""What a patient's visits come to, and what is still needed for it, against a walk through them."""

import numpy as np
import pytest

from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import Scales
from sfumato.synthesis.summaries import OF_NUMBERS, brought, summaries, summary_width


def test_summaries_are_those_of_a_walk_through_each_patient(patients):
    data = patients(60)
    scores = np.random.default_rng(0).standard_normal(data.numbers.shape)
    found = summaries(data, scores)
    assert found.shape == (60, summary_width(data.schema)) == (60, 2 * OF_NUMBERS + 1)
    for patient in range(60):
        rows = slice(data.offsets[patient], data.offsets[patient + 1])
        wanted = []
        for values, score in zip(data.numbers[rows].T, scores[rows].T, strict=True):
            known = ~np.isnan(values)
            there, told = values[known], score[known]
            parts = [known.mean(), told.mean(), there[-1], there.min(), there.max()] if len(there) else []
            wanted += parts or [np.nan] * OF_NUMBERS
        wanted.append((data.codes[rows, 0] >= 0).mean() or np.nan)
        np.testing.assert_allclose(found[patient], wanted)


def test_what_is_needed_before_a_visit_is_what_is_left_of_the_summary(patients):
    """The share of the visits to come is exact; the mean is that of scores in the middle of their intervals, less the
    drawn scores so far, so before the first visit it is the summary's mean.
    """
    data = patients(40)
    scales = Scales.fit(data)
    records = Records(data, scales)
    batch = records.batch(np.arange(40), records.draw(0))
    needed = batch.before.needed.numpy()
    for patient in range(40):
        rows = slice(data.offsets[patient], data.offsets[patient + 1])
        seen = np.column_stack([~np.isnan(data.numbers[rows]), data.codes[rows] >= 0])
        for step in range(len(seen)):
            np.testing.assert_allclose(needed[patient, step, 2:], seen[step:].mean(axis=0), rtol=1e-5)
            assert (needed[patient, step, :2][~seen[step:, :2].any(axis=0)] == 0).all()
        for column in range(2):
            values = data.numbers[rows, column]
            values = values[~np.isnan(values)]
            scale = scales.temporal[column]
            middle = scales.scores(scale.draw(scale.places(values), np.full(len(values), 0.5)))
            mean = middle.mean() if len(values) else 0.0
            assert needed[patient, 0, column] == pytest.approx(mean, abs=1e-5)


def test_scores_are_brought_to_the_summary_and_keep_their_ranks():
    """Three records: one of four scores, one of one, one that nothing is known of; the second visit has none."""
    raw, seen = np.array([0.0, 9.0, 1.0, 2.0, 5.0, 0.3, 0.7, 0.8]), np.array([1, 0, 1, 1, 1, 1, 1, 1], bool)
    wanted = np.array([[1.0, 1.5, -1.0, 3.0], [0.2, 0.4, 0.4, 0.4], [np.nan] * 4])
    found = brought(raw, seen, np.array([0, 5, 6]), wanted)
    np.testing.assert_allclose(found, [-1.0, 0.0, 0.0, 1.0, 1.5, 0.4, 0.7, 0.8])
    before_the_last = brought(raw, seen, np.array([0, 5, 6]), np.array([[1.0, 3.0, -1.0, 3.0], *wanted[1:]]))
    np.testing.assert_allclose(before_the_last[:5], [-1.0, 0.0, 0.0, 1.0, 3.0])
