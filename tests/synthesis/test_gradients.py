"""The gradients that are cut: those of one patient at a time, whoever else is there."""

import numpy as np
import pytest
import torch

from sfumato._random import RandomSource
from sfumato.clipping import ConstantClipNorm
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.sampling import Cohort
from sfumato.synthesis.budget import Spending
from sfumato.synthesis.gradients import CriticGradients, SequenceGradients
from sfumato.synthesis.networks import Networks
from sfumato.synthesis.records import Records
from sfumato.synthesis.run import first_visits
from sfumato.synthesis.training import gan_optimizer

COUNT = 24


@pytest.fixture
def parts(ranged, private):
    """Networks with weights that are not those of a beginning, and records under noisy scales."""

    def make(**settings):
        plan, data = private(**settings), ranged(COUNT)
        spending = Spending.of(plan, data.schema, len(data))
        cut = first_visits(data, max_visits=plan.max_visits, horizon=plan.horizon)
        noisy = spending.tables.clipped_sum(cut).numpy() + np.random.default_rng(0).normal(
            size=sum(spending.tables.counting.sizes().values())
        )
        torch.manual_seed(0)
        networks = Networks(plan, data.schema)
        with torch.no_grad():
            for part in (networks.codec, networks.critic):
                for value in part.parameters():
                    value.add_(0.1 * torch.randn_like(value))
        return plan, networks, Records(cut, spending.tables.scales(noisy), masks=plan.masks)

    return make


def critic_of(plan, networks, latents) -> CriticGradients:
    return CriticGradients(networks.critic, networks.generator, latents, {}, plan, gan_optimizer(plan), "here")


@pytest.mark.parametrize("settings", [{}, {"layers": 2}, {"category_encoder": False}, {"masks": False}])
def test_gradients_of_the_autoencoder_are_those_of_one_patient_at_a_time(parts, settings):
    """Against ordinary backward passes of single patients, who are padded with nobody."""
    plan, networks, records = parts(**settings)
    given = SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here")
    drawn = records.draw(3)
    noise = 0.1 * torch.randn(COUNT, plan.latent)
    assert len(set(records.lengths.tolist())) > 3  # padding matters
    recording, losses = given.recorded(np.arange(COUNT), drawn, noise)
    parameters = list(networks.codec.parameters())
    sums = recording.weighted_sum(torch.ones(COUNT), given.trained.parameters)
    total, norms = [torch.zeros_like(value) for value in parameters], []
    for place in range(COUNT):
        loss = networks.codec.losses(
            records.batch(np.array([place]), drawn),
            noise[place : place + 1],
            time_weight=plan.time_weight,
            visits=records.scales.visits,
        )
        torch.testing.assert_close(loss[0].detach(), losses[place], rtol=1e-4, atol=1e-4)
        found = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True)
        norms.append(torch.cat([each.flatten() for each in found]).double().norm().square())
        for one, each in zip(total, found, strict=True):
            one.add_(each)
    torch.testing.assert_close(recording.squared_norms(), torch.stack(norms), rtol=1e-3, atol=1e-6)
    for name, ours, theirs in zip(given.trained.layout.names, sums, total, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3, msg=lambda told, name=name: f"{name}: {told}")


def test_gradients_of_the_critic_are_those_of_one_patient_at_a_time(parts):
    """Against autograd, twice, on `Critic.losses`: the penalty's part among them."""
    plan, networks, _ = parts()
    real, made = torch.tanh(torch.randn(COUNT, plan.latent)), torch.tanh(torch.randn(COUNT, plan.latent))
    between = torch.rand(COUNT, 1)
    given = critic_of(plan, networks, real[None])
    found = given.gradients(real, made, between)
    parameters = list(networks.critic.parameters())
    for place in range(COUNT):
        one = slice(place, place + 1)
        loss = networks.critic.losses(real[one], made[one], between[one], penalty=plan.gradient_penalty)
        wanted = torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(found[place], torch.cat([each.flatten() for each in wanted]), rtol=1e-4, atol=1e-5)


def sums(given, clip_norm: float, patients: list[int], round: int = 0):
    """The clipped sum of these patients."""
    return given.clipped_sum(
        given.trained.initial.clone(),
        Cohort.of_single_units(np.array(patients, np.int64)),
        round,
        ConstantClipNorm(clip_norm=clip_norm),
        clip_norm,
        RandomSource.from_seed(2),
        None,
    )


def test_a_patient_more_moves_the_autoencoders_sum_by_the_clip_norm_at_most(parts):
    plan, networks, records = parts()
    given = SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here")
    for place in (0, int(records.lengths.argmax()), int(records.lengths.argmin())):
        others = [other for other in range(COUNT) if other != place]
        moved = sums(given, 0.5, list(range(COUNT))).total - sums(given, 0.5, others).total
        assert 0.49 < moved.norm() <= 0.5 * 1.001


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_no_wild_patient_adds_more_than_the_clip_norm(ranged, private, scale):
    """One with 10,000 visits that go up and down from end to end, one with nothing, one alone at the horizon: each by
    itself, and in company, at ordinary weights and at those of a run that goes astray."""
    plan, data = private(max_visits=300), ranged(6)
    visits = 10_000

    def wild(name: str, numbers: np.ndarray, codes: np.ndarray, times: np.ndarray, static: float) -> EHRDataset:
        return EHRDataset(
            schema=data.schema,
            ids=(name,),
            static_numbers=np.full((1, 1), static),
            static_codes=np.full((1, 3), -1 if np.isnan(static) else 1),
            offsets=np.array([0, len(times)]),
            times=times,
            numbers=numbers,
            codes=codes,
        )

    turn = np.where(np.arange(visits) % 2, 1e300, -1e300)[:, None] * np.ones(3)
    people = [
        data,
        wild("turns", turn, (np.arange(visits) % 4)[:, None], np.arange(visits) * 1e-3, 1e300),
        wild("same", np.full((visits, 3), 3.0), np.zeros((visits, 1), int), np.arange(visits) * 1e-9, 50.0),
        wild("nothing", np.full((400, 3), np.nan), np.full((400, 1), -1), np.arange(400.0), np.nan),
        wild("late", np.full((1, 3), -1e300), np.full((1, 1), 3), np.array([1e300]), -1e300),
    ]
    parts = {
        name: np.concatenate([getattr(each, name) for each in people])
        for name in ("static_numbers", "static_codes", "times", "numbers", "codes")
    }
    lengths = np.concatenate([each.lengths for each in people])
    everybody = EHRDataset(
        schema=data.schema,
        ids=tuple(one for each in people for one in each.ids),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        **parts,
    )
    spending = Spending.of(plan, data.schema, len(everybody))
    cut = first_visits(everybody, max_visits=plan.max_visits, horizon=plan.horizon)
    scales = spending.tables.scales(spending.tables.clipped_sum(cut).numpy())
    torch.manual_seed(0)
    networks = Networks(plan, data.schema)
    with torch.no_grad():
        for value in networks.codec.parameters():
            value.mul_(scale)
    given = SequenceGradients(networks.codec, torch.zeros(0), Records(cut, scales), plan, "here")
    alone = [sums(given, 0.5, [place]) for place in range(len(everybody))]
    for share in alone:
        assert share.tally["units"] == 1
        assert share.total.norm() <= 0.5
    finite = [share for share in alone if not share.tally["non_finite"]]
    assert len(finite) == len(alone)
    assert max(float(share.total.norm()) for share in alone) > 0.49
    together = sums(given, 0.5, list(range(len(everybody)))).total
    for place in range(len(everybody)):
        others = [other for other in range(len(everybody)) if other != place]
        assert (together - sums(given, 0.5, others).total).norm() <= 0.5 * 1.001


def test_a_patient_more_moves_the_critics_sum_by_the_clip_norm_at_most(parts):
    """One of them with numbers beyond what an encoder gives."""
    plan, networks, _ = parts()
    latents = torch.tanh(torch.randn(2, COUNT, plan.latent))
    latents[:, 5] = 1e6
    given = critic_of(plan, networks, latents)
    for place in (0, 5, COUNT - 1):
        others = [other for other in range(COUNT) if other != place]
        moved = sums(given, 0.5, list(range(COUNT)), 1).total - sums(given, 0.5, others, 1).total
        assert 0.49 < moved.norm() <= 0.5 * 1.001


@pytest.mark.parametrize("value", [1e30, float("nan"), float("inf")])
def test_a_patient_with_impossible_numbers_is_cut_or_left_out(parts, value):
    plan, networks, _ = parts()
    latents = torch.full((1, COUNT, plan.latent), value)
    given = critic_of(plan, networks, latents)
    share = sums(given, 0.5, [3])
    assert share.total.norm() <= 0.5 * 1.001
    assert torch.isfinite(share.total).all()


def test_an_empty_cohort_adds_nothing(parts):
    plan, networks, records = parts()
    for given in (
        SequenceGradients(networks.codec, torch.zeros(0), records, plan, "here"),
        critic_of(plan, networks, torch.zeros(1, COUNT, plan.latent)),
    ):
        share = sums(given, 0.5, [], 1)
        assert share.total.abs().max() == 0
        assert share.tally["units"] == 0


def test_the_generator_learns_from_the_critic_alone(parts):
    """With the same critic it takes the same step, whoever is in the cohort and whatever their latent vectors are."""
    plan, _, _ = parts()
    found = []
    for patients, latents in (([], torch.zeros(1, COUNT, plan.latent)), ([1, 5], torch.ones(1, COUNT, plan.latent))):
        _, networks, _ = parts()
        given = critic_of(plan, networks, latents)
        before = given.tensors()["generator.parameters"]
        sums(given, 0.5, patients, plan.critic_steps)
        found.append(given.tensors()["generator.parameters"])
        assert not torch.equal(before, found[-1])
    assert torch.equal(*found)
