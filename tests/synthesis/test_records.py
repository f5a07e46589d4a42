"""Batches: what a decoder knows before a visit, and that padding tells nothing."""

import numpy as np
import pytest
import torch

from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis.networks import Networks
from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import Scales


@pytest.fixture
def learned(patients, small):
    """Data, records and networks with random weights."""
    data: EHRDataset = patients(20)
    torch.manual_seed(0)
    return data, Records(data, Scales.fit(data)), Networks(small(), data.schema)


def test_what_is_known_before_a_visit_is_the_last_value_and_its_age(learned):
    """Against a walk through each patient's visits."""
    data, records, _ = learned
    drawn = records.draw(0)
    batch = records.batch(np.arange(len(data)), drawn)
    for patient in range(len(data)):
        last: dict[int, int] = {}
        for step, row in enumerate(range(data.offsets[patient], data.offsets[patient + 1])):
            before = batch.before
            for column in range(2):
                known = column in last
                score = drawn.scores[last[column], column] if known else 0.0
                previous = data.times[max(row - 1, data.offsets[patient])]
                age = np.log1p((previous - data.times[last[column]]) / records.scales.pace) if known else 0.0
                assert before.known[patient, step, column] == known
                assert before.scores[patient, step, column] == pytest.approx(score)
                assert before.waited[patient, step, column] == pytest.approx(age)
            code = data.codes[last[2], 0] if 2 in last else -1
            assert before.codes[patient, step, 0] == code
            seen = [*(~np.isnan(data.numbers[row])), data.codes[row, 0] >= 0]
            last |= {column: row for column in range(3) if seen[column]}


def test_scores_of_an_epoch_are_drawn_anew_and_lie_in_the_same_intervals(learned):
    data, records, _ = learned
    one, other = records.draw(0), records.draw(1)
    assert not np.array_equal(one.scores, other.scores)
    scales = records.scales
    for place, scale in enumerate(scales.temporal):
        seen = ~np.isnan(data.numbers[:, place])
        for drawn in (one, other):
            back = scale.inverse(scales.numbers(drawn.scores[seen, place].astype(np.float64)))
            near = np.abs(scale.places(back) - scale.places(data.numbers[seen, place]))
            assert near.max() <= 1  # single precision may move a number over the edge of its interval
            assert (near > 0).mean() < 0.02


def test_an_epoch_has_every_patient_once(learned):
    data, records, _ = learned
    source = RandomSource.from_seed(1)
    for epoch in range(3):
        rows = records.batches(6, source, epoch)
        assert sorted(np.concatenate(rows).tolist()) == list(range(len(data)))
        assert max(map(len, rows)) <= 6
    assert not np.array_equal(rows[0], records.batches(6, source, 0)[0])


def test_padding_and_other_patients_leave_no_trace_in_a_loss(learned):
    data, records, networks = learned
    drawn = records.draw(0)
    order = np.argsort(data.lengths)
    shortest, longest = int(order[0]), int(order[-1])
    assert data.lengths[shortest] < data.lengths[longest]

    def losses(rows: list[int]) -> torch.Tensor:
        batch = records.batch(np.array(rows), drawn)
        return networks.codec.losses(batch, torch.zeros(len(rows), 8), time_weight=0.1, visits=3.0)

    alone, beside = losses([shortest]), losses([shortest, longest])
    torch.testing.assert_close(alone[0], beside[0], rtol=1e-5, atol=1e-5)


def test_what_is_missing_counts_in_no_loss(learned):
    """A decoder that says something else of a missing number has the same loss."""
    data, records, networks = learned
    batch = records.batch(np.arange(len(data)), records.draw(0))
    missing = (batch.seen[..., 0] == 0) & (batch.valid > 0)
    assert missing.any()
    rows, width = networks.codec.visit_rows, networks.temporal.width
    x = torch.zeros(*batch.valid.shape, rows.embedding.in_features - 3)
    before = rows.losses(x, batch.seen, batch.scores, batch.codes, networks.temporal)
    with torch.no_grad():
        rows.numbers.straight.bias[0] += 5.0
    after = rows.losses(x, batch.seen, batch.scores, batch.codes, networks.temporal)
    assert width == rows.embedding.out_features
    torch.testing.assert_close(before[missing], after[missing])
    assert (before != after)[batch.seen[..., 0] == 1].all()


def test_without_masks_everything_is_taken_as_observed(patients):
    data = patients(20)
    records = Records(data, Scales.fit(data), masks=False)
    batch = records.batch(np.arange(20), records.draw(0))
    assert (batch.seen == 1).all()
    assert (batch.codes >= 0).all()
    common = np.bincount(data.codes[data.codes >= 0]).argmax()
    places = np.flatnonzero(data.codes[:, 0] < 0)
    assert (records.codes[places, 0] == common).all()
