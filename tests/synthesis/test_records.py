"""Batches of records, the parts of the networks, and a fit on real patients."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato import data
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe
from sfumato.synthesis.decoder import EVEN, RowCalibration, knots_of, mapped
from sfumato.synthesis.networks import CategoryCodec, Chain, Critic, Networks
from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import Scales

# Batches: what a decoder knows before a visit, and that padding tells nothing.


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
            near = np.abs(scale.positions(back) - scale.positions(data.numbers[seen, place]))
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
    missing = (batch.observed[..., 0] == 0) & (batch.valid > 0)
    assert missing.any()
    rows, width = networks.codec.visit_rows, networks.temporal.width
    x = torch.zeros(*batch.valid.shape, rows.embedding.in_features - 3)
    before = rows.losses(x, batch.observed, batch.scores, batch.codes, networks.temporal)
    with torch.no_grad():
        rows.numbers.straight.bias[0] += 5.0
    after = rows.losses(x, batch.observed, batch.scores, batch.codes, networks.temporal)
    assert width == rows.embedding.out_features
    torch.testing.assert_close(before[missing], after[missing])
    assert (before != after)[batch.observed[..., 0] == 1].all()


def test_without_masks_everything_is_taken_as_observed(patients):
    data = patients(20)
    records = Records(data, Scales.fit(data), masks=False)
    batch = records.batch(np.arange(20), records.draw(0))
    assert (batch.observed == 1).all()
    assert (batch.codes >= 0).all()
    common = np.bincount(data.codes[data.codes >= 0]).argmax()
    places = np.flatnonzero(data.codes[:, 0] < 0)
    assert (records.codes[places, 0] == common).all()


# The small parts: categories, chains, maps, the critic's penalty.


def test_a_chain_draws_what_it_has_learned_column_by_column():
    torch.manual_seed(0)
    chain = Chain(5)
    torch.nn.init.normal_(chain.weight)
    base, moved = torch.randn(7, 5), torch.randn(5, 7)
    values = chain.drawn(base, lambda place, told: told + moved[place])
    torch.testing.assert_close(chain(base, values) + moved.T, values, rtol=1e-5, atol=1e-5)


def test_a_column_of_a_chain_knows_nothing_of_those_behind_it():
    torch.manual_seed(0)
    chain = Chain(4)
    torch.nn.init.normal_(chain.weight)
    values = torch.randn(4, requires_grad=True)
    for place in range(4):
        (gradient,) = torch.autograd.grad(chain(torch.zeros(4), values)[place], values)
        assert (gradient[place:] == 0).all()
        assert (gradient[:place] != 0).all()


def test_missing_categories_count_in_no_loss():
    codec = CategoryCodec([3, 2], embedding=4)
    logits = torch.randn(2, 5)
    full = codec.losses(logits, torch.tensor([[1, 0], [1, 0]]))
    first = codec.losses(logits, torch.tensor([[1, -1], [-1, -1]]))
    torch.testing.assert_close(first[0], -logits[0, :3].log_softmax(0)[1])
    assert first[1] == 0
    assert (full > first).all()


def test_categories_are_drawn_with_their_probabilities():
    """20,000 draws; each share within five standard deviations."""
    codec = CategoryCodec([3, 2], embedding=None)
    shares = torch.tensor([0.7, 0.2, 0.1, 0.4, 0.6])
    codes = codec.drawn(shares.log().expand(20_000, -1), torch.Generator().manual_seed(0))
    found = torch.cat([torch.bincount(codes[:, 0], minlength=3), torch.bincount(codes[:, 1], minlength=2)]) / 20_000
    assert (found - shares).abs().max() < 5 * 0.5 / 20_000**0.5


@given(st.integers(0, 1_000), st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_a_map_keeps_ranks_and_makes_numbers_normal(seed: int, scale: float, shift: float):
    raw = torch.from_numpy(np.random.default_rng(seed).gamma(2.0, scale, 2_000) + shift).float()
    scores = mapped(raw, knots_of(raw))
    assert (scores[raw.argsort()].diff() >= -1e-5).all()
    assert abs(scores.median().item()) < 0.02
    assert abs(scores.std().item() - 1.0) < 0.05


def test_a_map_of_normal_scores_changes_next_to_nothing():
    raw = torch.linspace(-2.5, 2.5, 101)
    torch.testing.assert_close(mapped(raw, EVEN), raw, atol=1e-3, rtol=0)


def test_shifts_move_shares_to_where_they_should_be():
    """What is observed follows the shift alone here, so one whole step is enough."""
    generator = torch.Generator().manual_seed(0)
    wanted = np.array([0.2, 0.9, 0.0, 1.0])
    told = RowCalibration.none(4, 0)
    for _ in range(4):
        seen = (torch.rand(50_000, 4, generator=generator) < torch.sigmoid(told.masks + 0.5)).float()
        codes = torch.zeros(50_000, 0, dtype=torch.int64)
        told = told.improved(
            raw=None, observed=seen, codes=codes, sizes=(), rates=wanted, shares=np.zeros(0), stride=1.0
        )
    found = torch.sigmoid(told.masks + 0.5).numpy()
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_the_critic_is_penalised_for_gradients_that_are_not_one():
    """A linear critic with weights w has the gradient w everywhere."""
    critic = Critic(3, 4)
    linear = torch.nn.Linear(3, 1, bias=False)
    linear.weight.data = torch.tensor([[3.0, 0.0, 4.0]])
    critic.layers = torch.nn.Sequential(linear)
    zero = torch.zeros(2, 3)
    losses = critic.losses(zero, zero, torch.full((2, 1), 0.5), penalty=10.0)
    torch.testing.assert_close(losses, torch.full((2,), 160.0))


# Real patients: the visits of 312 with a liver disease.


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
