"""What the recurrent GANs generate: valid records, and something of what they have learned from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ehr_baselines import load_baseline
from scipy import stats

from sfumato._check import InputError
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Schema, numeric
from slow import one_in

KINDS = ("timegan", "rcgan", "crnngan")


@pytest.mark.parametrize("kind", KINDS)
def test_every_gan_generates_valid_records(patients, quick, kind: str):
    """Times that ascend, codes of the schema and whole numbers are what an EHRDataset refuses otherwise."""
    data = patients(60)
    plan = quick(kind)
    made = plan.fit(data).synthesizer
    blocks = list(made.sample(25, seed=1, block=10))
    assert [len(block) for block in blocks] == [10, 10, 5]
    assert blocks[-1].ids[-1] == "synthetic-000025"
    (found,) = made.sample(200, seed=0)
    assert found.schema == data.schema
    assert found.lengths.max() <= np.quantile(data.lengths, plan.longest, method="higher")
    assert found.times.max() <= data.times.max()
    low, high = np.nanmin(data.numbers, axis=0), np.nanmax(data.numbers, axis=0)
    observed = ~np.isnan(found.numbers)
    assert ((found.numbers >= low) & (found.numbers <= high))[observed].all()
    assert not observed.all()
    assert (found.codes < 0).any()
    assert np.isnan(found.static_numbers).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same_records_and_another_one_others(patients, quick, kind: str):
    made = quick(kind).fit(patients(40)).synthesizer
    first, again, other = (next(made.sample(40, seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_learns_the_same_and_another_one_something_else(patients, quick, kind: str):
    data = patients(40)
    found = [quick(kind, seed=seed).fit(data).synthesizer.state()[0] for seed in (1, 1, 2)]
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())
    assert not all(torch.equal(value, found[2][name]) for name, value in found[0].items())


@pytest.mark.parametrize("given", [{"died": "yes"}, {"sex": "f", "age": (45, 65)}])
def test_what_is_given_holds_for_every_record(patients, quick, given: dict):
    (found,) = quick("rcgan").fit(patients(60)).synthesizer.sample(30, given=given, seed=1)
    assert len(found) == 30
    for place, column in enumerate(found.schema.static_categorical):
        if column.name in given:
            assert (found.static_codes[:, place] == column.code(given[column.name])).all()
    if "age" in given:
        assert ((found.static_numbers >= 45) & (found.static_numbers <= 65)).all()


def test_a_condition_that_names_nothing_is_refused_before_anything_is_drawn(patients, quick):
    with pytest.raises(InputError, match="given must name static columns"):
        quick("timegan").fit(patients(30)).synthesizer.sample(10, given={"bili": (1, 2)})


@pytest.mark.slow
def test_outcomes_of_an_rcgan_follow_those_of_real_patients(patients, quick):
    """They are drawn by their shares, however little was learned: false alarms one in 10,000."""
    data = patients(300)
    (found,) = quick("rcgan").fit(data).synthesizer.sample(2_000, seed=0)
    counts = [np.bincount(each.outcome(), minlength=2) for each in (data, found)]
    share = counts[0][1] / len(data)
    assert stats.binomtest(int(counts[1][1]), 2_000, share).pvalue > 1e-4


@pytest.mark.parametrize(("kind", "kept"), one_in(2, KINDS, [{"bili"}, {"stage"}]))
def test_a_kind_of_column_that_there_is_not_is_no_matter(patients, quick, kind: str, kept: set[str], tmp_path: Path):
    """Without static columns and outcome, and with numbers alone or categories alone."""
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
    quick(kind).fit(bare, out=tmp_path / "run")
    (found,) = load_baseline(tmp_path / "run").sample(50, seed=1)
    assert len(found) == 50


@pytest.mark.parametrize("kind", KINDS)
def test_one_patient_with_one_visit_can_be_learned_from(patients, quick, kind: str):
    data = patients(20)
    one = data.take([int(data.lengths.argmin())])
    (found,) = quick(kind, batch_size=4).fit(one).synthesizer.sample(5, seed=1)
    assert (found.lengths <= one.lengths[0]).all()


def two_kinds(count: int, seed: int) -> EHRDataset:
    """Patients of two kinds, half each: both numbers of both visits are low, or all are high."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(rng.integers(0, 2, count), 2)
    return EHRDataset(
        schema=Schema(id="id", time="day", time_unit="days", static=(), temporal=(numeric("a"), numeric("b"))),
        ids=tuple(f"{seed}-{place}" for place in range(count)),
        static_numbers=np.empty((count, 0)),
        static_codes=np.empty((count, 0)),
        offsets=2 * np.arange(count + 1),
        times=np.tile([0.0, 30.0], count),
        numbers=(2.0 + 6.0 * kind.reshape(-1, 1)) + 0.3 * rng.standard_normal((2 * count, 2)),
        codes=np.empty((2 * count, 0)),
    )


LEARNS = {
    "timegan": {"steps": 150, "embedding_steps": 150, "supervised_steps": 20},
    "rcgan": {"steps": 600},
    "crnngan": {"steps": 500, "pretraining_steps": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_kinds_of_patients_are_learned_better_than_by_independent_noise(quick, kind: str):
    """Both numbers go together, which those of noise never do; where more than means is matched, there are two modes.

    C-RNN-GAN's features are matched in the mean only, and records of one mode between the two have the same.
    """
    data = two_kinds(300, 0)
    plan = quick(kind, hidden=24, noise=8, batch_size=64, learning_rate=3e-3, **LEARNS[kind])
    (found,) = plan.fit(data).synthesizer.sample(500, seed=1)
    there = ~np.isnan(found.numbers).any(axis=1)
    assert there.mean() > 0.9
    assert abs(found.lengths.mean() - 2) < 0.1
    noise = np.random.default_rng(0).uniform(data.numbers.min(), data.numbers.max(), (2_000, 2))
    together, apart = (float(np.asarray(np.corrcoef(each.T))[0, 1]) for each in (found.numbers[there], noise))
    assert together > 0.8 > 0.1 > abs(apart)
    if kind != "crnngan":
        for place in range(2):
            real, made = data.numbers[:, place], found.numbers[there, place]
            assert stats.wasserstein_distance(made, real) < stats.wasserstein_distance(noise[:, place], real)
