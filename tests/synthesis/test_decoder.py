"""Batches of records, the networks on them, and what is generated from any plan and condition."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.synthesis import EHRSafe, Synthesizer
from sfumato.synthesis.decoder import EVEN, RowCalibration, knots_of, mapped
from sfumato.synthesis.networks import CategoryCodec, Chain, Critic, Networks
from sfumato.synthesis.records import Records
from sfumato.synthesis.scales import ADDED, Scales
from sfumato.synthesis.summaries import (
    OF_NUMBERS,
    CountFeatures,
    Spans,
    aims,
    brought,
    counts_of,
    summaries,
    summary_width,
)
from slow import one_in, slow_but

# Batches of records, the parts of the networks, and a fit on real patients.


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


# What is generated: valid records within their spans and summaries, of every plan and for every condition.


# What is generated: valid records, of every plan and for every condition.
@pytest.fixture(scope="module")
def made(patients, small):
    """A synthesizer that has hardly learned: what holds for it holds for any."""
    return small().fit(patients(60)).synthesizer


def together(blocks, name: str) -> np.ndarray:
    return np.concatenate([getattr(block, name) for block in blocks])


ABLATIONS = [
    {},
    {"stochastic_normalisation": False},
    {"category_encoder": False},
    {"masks": False},
    {"summaries": False},
    {"stochastic_normalisation": False, "category_encoder": False, "masks": False},
    {"rounding": 0.5, "min_count": 5},
    {"gan_optimizer": "rmsprop", "layers": 2},
]


@pytest.mark.parametrize("settings", slow_but(ABLATIONS, *ABLATIONS[:1], *ABLATIONS[5:7]), ids=str)
def test_every_variant_generates_valid_records(patients, small, settings: dict):
    """Times that ascend, codes of the schema and whole numbers are what an EHRDataset refuses otherwise."""
    data = patients(60)
    made = small(**settings).fit(data).synthesizer
    (found,) = made.sample(200, seed=0)
    assert len(found) == 200
    assert found.times.max() <= data.times.max()
    assert found.ids[0] == "synthetic-000001"
    assert not set(found.ids) & set(data.ids)
    if settings.get("masks", True):
        assert np.isnan(found.numbers).any()
        assert (found.codes < 0).any()
    else:
        assert not np.isnan(found.numbers).any()
        assert not np.isnan(found.static_numbers).any()
        assert (found.codes >= 0).all()


@pytest.mark.slow
def test_lengths_are_generated_and_follow_those_of_real_patients(patients, small):
    """Each length's share, within four standard deviations of that of 3,000 patients, after hardly any learning."""
    data = patients(200)
    found = together(list(small(calibrated_on=1_000).fit(data).synthesizer.sample(3_000, seed=0)), "offsets")
    lengths = np.diff(found)
    lengths = lengths[lengths > 0]
    real = np.bincount(data.lengths, minlength=10) / len(data)
    share = np.bincount(lengths, minlength=10)[:10] / len(lengths)
    assert len(share) == len(real)
    assert np.abs(share - real).max() < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("stochastic", [True, False])
def test_first_and_last_times_follow_the_real_ones_and_stay_whole(patients, small, stochastic: bool):
    """Patients with two visits or more; that who has many ends late has to be learned.

    A scale by range knows nothing of the distribution, so there only the form is looked at.
    """
    data = patients(300)
    data = data.take(np.flatnonzero(data.lengths > 1))
    late = np.random.default_rng(0).integers(0, 5, len(data))
    data = replace(data, times=data.times + np.repeat(late, data.lengths))
    plan = small(calibrated_on=1_000, epochs=15, gan_steps=200, stochastic_normalisation=stochastic)
    found = next(plan.fit(data).synthesizer.sample(3_000, seed=0, block=3_000))
    assert (found.times == np.floor(found.times)).all()
    assert np.delete(np.diff(found.times), found.offsets[1:-1] - 1).min() >= 7
    if stochastic:
        first = [each.times[each.offsets[:-1]] for each in (found, data)]
        last = [each.times[each.offsets[1:] - 1] for each in (found, data)]
        assert stats.ks_2samp(*first)[0] < 0.05
        assert stats.ks_2samp(*last)[0] < 0.08


@pytest.mark.slow
def test_values_were_observed_and_marginals_follow_the_real_ones(patients, small):
    """Scores are mapped by their own distribution, so marginals hold however badly the networks have learned."""
    data = patients(300)
    blocks = list(small(calibrated_on=1_000).fit(data).synthesizer.sample(2_000, seed=0))
    real, found = data.numbers, together(blocks, "numbers")
    for place in range(real.shape[1]):
        ours, theirs = (each[~np.isnan(each)] for each in (found[:, place], real[:, place]))
        assert set(ours) <= set(theirs)
        assert stats.ks_2samp(ours, theirs)[0] < 0.05
    missing = np.isnan(found).mean(axis=0) - np.isnan(real).mean(axis=0)
    assert np.abs(missing).max() < 0.1


def test_a_column_that_is_always_there_stays_so(patients, small):
    data = patients(60)
    numbers = data.numbers.copy()
    numbers[:, 0] = np.nan_to_num(numbers[:, 0], nan=1.0)
    (found,) = small().fit(replace(data, numbers=numbers)).synthesizer.sample(300, seed=0)
    assert not np.isnan(found.numbers[:, 0]).any()


def test_where_every_visit_has_a_value_every_generated_one_has(patients, small):
    data = patients(60)
    numbers = data.numbers.copy()
    empty = np.isnan(numbers).all(axis=1) & (data.codes[:, 0] < 0)
    numbers[empty, 0] = 1.0
    (found,) = small().fit(replace(data, numbers=numbers)).synthesizer.sample(500, seed=0)
    assert (~np.isnan(found.numbers).all(axis=1) | (found.codes[:, 0] >= 0)).all()


def test_the_same_seed_draws_the_same_records_and_another_one_others(made):
    first, again, other = (next(made.sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


def test_records_come_in_blocks_under_names_of_their_own(made):
    blocks = list(made.sample(25, seed=1, block=10))
    assert [len(block) for block in blocks] == [10, 10, 5]
    names = [name for block in blocks for name in block.ids]
    assert names[-1] == "synthetic-000025"
    assert len(set(names)) == 25


@pytest.mark.parametrize("given", [{"sex": "f"}, {"died": "yes"}, {"sex": "m", "age": (50, 60)}])
def test_what_is_given_holds_for_every_record(made, given: dict):
    (found,) = made.sample(80, conditions=given, seed=1)
    assert len(found) == 80
    for place, column in enumerate(found.schema.static_categorical):
        if column.name in given:
            assert (found.static_codes[:, place] == column.code(given[column.name])).all()
    if "age" in given:
        assert ((found.static_numbers >= 50) & (found.static_numbers <= 60)).all()


def test_conditional_records_are_those_of_all_that_meet_the_condition(made):
    """The share of deaths among women: two samples of 2,000 and about 1,000; false alarms one in 10,000."""
    every = next(made.sample(4_000, seed=1, block=4_000))
    women = every.static_codes[every.static_codes[:, 0] == 0]
    given = next(made.sample(2_000, conditions={"sex": "f"}, seed=2)).static_codes
    counts = [[(codes[:, 1] == code).sum() for code in (0, 1)] for codes in (women, given)]
    assert stats.fisher_exact(counts)[1] > 1e-4


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sex": "w"}, "condition sex must be one of f, m, got w"),
        ({"sexx": "f"}, r"conditions must name static columns .* got sexx \(did you mean sex\?\)"),
        ({"bili": (1, 2)}, "conditions must name static columns"),
        ({"age": "old"}, "condition age must be a range"),
        ({"age": (60, 50)}, "condition age must be a range"),
    ],
)
def test_a_condition_that_names_nothing_is_refused_before_anything_is_drawn(made, given: dict, told: str):
    with pytest.raises(InputError, match=told):
        made.sample(10, conditions=given)


def test_a_condition_that_no_record_meets_is_refused(made):
    with pytest.raises(InputError, match="generated records meet age="):
        list(made.sample(10, conditions={"age": (200, 300)}, seed=1))


@pytest.mark.parametrize(("kept", "encoder"), one_in(2, [{"bili"}, {"stage"}], [True, False]))
def test_a_kind_of_column_that_there_is_not_is_no_matter(
    patients, small, kept: set[str], encoder: bool, tmp_path: Path
):
    """Without static columns, and with numbers alone or categories alone."""
    data = patients(30)
    temporal = tuple(column for column in data.schema.temporal if column.name in kept)
    bare = replace(
        data,
        schema=replace(data.schema, static=(), temporal=temporal, outcome=None),
        static_numbers=np.empty((30, 0)),
        static_codes=np.empty((30, 0)),
        numbers=data.numbers[:, :1] if "bili" in kept else np.empty((len(data.times), 0)),
        codes=data.codes if "stage" in kept else np.empty((len(data.times), 0)),
    )
    small(category_encoder=encoder).fit(bare, out=tmp_path / "run")
    (found,) = Synthesizer.load(tmp_path / "run").sample(50, seed=1)
    assert len(found) == 50


def test_threads_draw_what_one_thread_draws(made):
    before = torch.get_num_threads()
    alone = [block.fingerprint() for block in made.sample(50, seed=1, block=10)]
    torch.set_num_threads(3)
    beside = [block.fingerprint() for block in made.sample(50, seed=1, block=10)]
    torch.set_num_threads(before)
    assert alone == beside


def test_patients_with_one_visit_each_can_be_learned_from(patients, small):
    """There is no gap to learn from, and none to draw."""
    data = patients(20)
    first = data.offsets[:-1]
    one = replace(
        data,
        offsets=np.arange(21),
        times=np.arange(20.0),
        numbers=data.numbers[first],
        codes=data.codes[first],
    )
    (found,) = small(batch_size=4).fit(one).synthesizer.sample(30, seed=1)
    assert (found.lengths == 1).all()
    assert set(found.times) <= set(one.times)


def test_counts_that_were_drawn_are_kept(patients, small):
    """Each column is there as often as was drawn first; a visit may be empty here, or one more would be needed."""
    data = patients(60)
    data = replace(data, numbers=np.where(np.arange(len(data.times))[:, None] % 7 == 0, np.nan, data.numbers))
    data = replace(data, codes=np.where(np.arange(len(data.times))[:, None] % 7 == 0, -1, data.codes))
    decoder = (made := small().fit(data).synthesizer).decoder
    assert decoder.scales.empty
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        latent = made.networks.drawn(100, generator)
        statics = decoder.statics(latent, generator)
        values = decoder.static_values(statics)
        visits = decoder.visits(latent, statics, values, generator)
    wanted, _ = aims(values[:, 1:-ADDED], data.schema, visits.lengths, decoder.scales.count_features)
    starts = np.cumsum([0, *visits.lengths[:-1]])
    np.testing.assert_array_equal(np.add.reduceat(visits.rows.observed.numpy(), starts), wanted)
    assert wanted.std(axis=0).min() > 0
    features = decoder.scales.count_features
    np.testing.assert_array_equal(
        features.counts(features.numbers(counts_of(data), data.lengths), data.lengths), counts_of(data)
    )


# Spans: what was drawn becomes possible, and gaps leave room for those behind them.
@pytest.fixture
def scales(patients) -> Scales:
    """Of patients with gaps of 7, 14 and 30 days, up to 8 visits, the first one on day 0."""
    return Scales.fit(patients(200))


def spans(scales: Scales, *rows: tuple[float, float, float]) -> Spans:
    """Of patients with these numbers of visits, first and last times."""
    return Spans.of(*np.array(rows).T, horizon=scales.horizon, least=7.0, middle=14.0)


def test_what_is_possible_stays_as_it_was_drawn(scales):
    found = spans(scales, (3, 5.0, 90.0), (2, 0.0, 7.0), (1, 4.0, 4.0))
    assert found.visits.tolist() == [3, 2, 1]
    assert found.start.tolist() == [5.0, 0.0, 4.0]
    assert found.end.tolist() == [90.0, 7.0, 4.0]


def test_an_end_that_is_too_early_moves_and_one_visit_has_no_end_of_its_own(scales):
    """Three gaps take at least 21 days; without any end, gaps of 14 days are the middle ones."""
    found = spans(scales, (4, 5.0, 12.0), (4, 5.0, 5.0), (4, 5.0, 1.0), (1, 5.0, 60.0), (np.nan, 5.0, np.nan))
    assert found.end.tolist() == [26.0, 47.0, 47.0, 5.0, 5.0]
    assert found.visits.tolist() == [4, 4, 4, 1, 1]


def test_visits_that_do_not_fit_before_the_horizon_are_left_out(scales):
    found = spans(scales, (8, scales.horizon - 15, scales.horizon), (8, 2 * scales.horizon, 0.0))
    assert found.visits.tolist() == [3, 1]
    assert found.end.tolist() == [scales.horizon] * 2


@given(st.integers(2, 8), st.integers(0, 20), st.integers(-30, 200), st.lists(st.integers(1, 400), min_size=8))
def test_whatever_gaps_are_asked_for_all_visits_fit_and_the_last_is_at_the_end(visits, start, end, asked):
    """A walk that takes each gap as it is asked for, as long as there is room."""
    spans = Spans(np.array([visits]), np.array([float(start)]), np.array([float(max(end, start + 7 * visits))]), 7.0)
    times = [float(start)]
    for step in range(1, visits):
        room = spans.longest_gaps(np.array(times[-1:]), step)
        assert spans.ends(1, step)[0] == (step == visits - 1)
        times.append(float(spans.end[0]) if spans.ends(1, step)[0] else times[-1] + min(asked[step], room[0]))
    assert times[-1] == spans.end[0]
    assert min(np.diff(times)) >= min(7.0, *asked)


# What a patient's visits come to, and what is still needed for it, against a walk through them.
def test_summaries_are_those_of_a_walk_through_each_patient(patients):
    data = patients(60)
    scores = np.random.default_rng(0).standard_normal(data.numbers.shape)
    found = summaries(data, scores, CountFeatures.plain(3))
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


def test_counts_of_a_panel_are_differences_and_only_frequent_columns_have_shares():
    """Three columns: at most visits, at few of them whatever their number, and one that is there with the second."""
    rng = np.random.default_rng(0)
    visits = rng.integers(20, 200, 500).astype(float)
    share = np.round(visits * rng.uniform(0.7, 0.9, 500))
    count = rng.integers(0, 6, 500).astype(float)
    panel = np.where(rng.random(500) < 0.9, count, np.minimum(count + 1, visits))
    counts = np.column_stack([share, count, panel])
    features = CountFeatures.fit(counts, visits)
    assert features.references.tolist() == [-1, -1, 1]
    assert features.shares[:2].tolist() == [True, False]
    numbers = features.numbers(counts, visits)
    assert (np.isnan(numbers) == (counts == 0)).all()
    np.testing.assert_array_equal(features.counts(numbers, visits), counts)
    assert (numbers[panel > 0, 2] == (panel - count)[panel > 0]).all()


def test_scales_of_files_without_count_features_have_shares_of_the_visits(patients):
    scales = Scales.fit(patients(60))
    tensors, plain = scales.state()
    before = Scales.of(
        scales.schema, {name: t for name, t in tensors.items() if name not in ("references", "counted_by_share")}, plain
    )
    assert before.count_features.references.tolist() == [-1, -1, -1]
    assert before.count_features.shares.all()
    again = Scales.of(scales.schema, tensors, plain).count_features
    np.testing.assert_array_equal(again.references, scales.references)
    np.testing.assert_array_equal(again.shares, scales.counted_by_share)


def test_counts_are_possible_whatever_numbers_ask_for():
    """At least 1 and at most the visits where a column is there; a column without its reference counts from 0."""
    features = CountFeatures(np.array([-1, 0]), np.array([False, False]))
    found = features.counts(np.array([[9.0, 0.0], [-2.0, 1.0], [np.nan, 2.0], [3.0, np.nan]]), np.array([4, 4, 4, 4]))
    assert found.tolist() == [[4, 4], [1, 2], [0, 2], [3, 0]]


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
            middle = scales.scores(scale.draw(scale.positions(values), np.full(len(values), 0.5)))
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
