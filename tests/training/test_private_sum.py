"""The private sum: what is recorded round by round, what a whole run costs, and what runs are one and the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import accounting as acc
from sfumato._check import InputError
from sfumato.clipping import AdaptiveClipNorm, AutomaticClipNorm, ConstantClipNorm, PerLayerClipNorm, QuantileRule
from sfumato.mechanisms.gaussian import IndependentGaussian
from sfumato.sampling import FixedSizeSampling, OwnClients, PoissonSampling, VirtualClients
from sfumato.training import PrivateSum

POISSON = PoissonSampling(sampling_rate=0.1, population=100)
FIXED = FixedSizeSampling(size=10, population=100)


def private_sum(**changes) -> PrivateSum:
    parts = {
        "sampler": POISSON,
        "grouping": OwnClients(clients=10),
        "bound": ConstantClipNorm(clip_norm=1.0),
        "mechanism": IndependentGaussian(noise_multiplier=1.1),
        "rounds": 6,
    }
    return PrivateSum(**{**parts, **changes})


def adaptive(**changes) -> AdaptiveClipNorm:
    return AdaptiveClipNorm(initial=1.0, rule=QuantileRule(quantile=0.5, **changes))


BOUNDS = {
    "flat": ConstantClipNorm(clip_norm=0.3),
    "per layer": PerLayerClipNorm(clip_norm=0.3),
    "automatic": AutomaticClipNorm(clip_norm=0.3),
    "adaptive": adaptive(count_noise=0.8),
    "adaptive for four rounds": adaptive(rounds=4),
}


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("grouping", [OwnClients(clients=10), VirtualClients(clients=5)], ids=["own", "virtual"])
@pytest.mark.parametrize("sampler", [POISSON, FIXED], ids=["poisson", "fixed"])
@pytest.mark.parametrize("noise", [0.0, 1.1])
def test_entries_of_independent_rounds_compose_to_the_event_of_the_run(bound, grouping, sampler, noise):
    rounds = private_sum(
        bound=bound, grouping=grouping, sampler=sampler, mechanism=IndependentGaussian(noise_multiplier=noise)
    )
    for count in (1, 4, 6):
        spent: dict[acc.Event, int] = {}
        for index in range(count):
            entry = rounds.entry(index)
            assert entry is not None
            spent[entry] = spent.get(entry, 0) + 1
        assert acc.compose(spent) == rounds.event(count)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize(
    ("grouping", "sampler", "single"),
    [
        (OwnClients(clients=10), POISSON, acc.Gaussian(1.1)),
        (VirtualClients(clients=5), POISSON, acc.Gaussian(0.55)),
        (OwnClients(clients=10), FIXED, acc.Gaussian(1.1)),  # accountants double it for "replace" themselves
        (VirtualClients(clients=5), FIXED, acc.Gaussian(1.1)),
    ],
    ids=["own, poisson", "virtual, poisson", "own, fixed", "virtual, fixed"],
)
def test_a_round_costs_its_multiplier_whatever_the_bound_and_whether_a_count_shares_it(
    bound, grouping, sampler, single
):
    rounds = private_sum(bound=bound, grouping=grouping, sampler=sampler)
    expected = acc.guarantee(sampler.account(single), sampler.adjacency).epsilon(1e-6)
    assert acc.guarantee(rounds.entry(0), sampler.adjacency).epsilon(1e-6) == pytest.approx(expected, rel=1e-6)


@given(noise=st.floats(0.2, 5.0), count_noise=st.floats(0.6, 20.0))
def test_sum_and_count_together_are_one_gaussian_of_the_rounds_multiplier(noise, count_noise):
    """Andrew et al. 2021, Theorem 1, with independent arithmetic: multipliers add up as inverse squares."""
    if count_noise <= 0.5 * noise * 1.01:
        return
    rounds = private_sum(bound=adaptive(count_noise=count_noise), mechanism=IndependentGaussian(noise_multiplier=noise))
    on_sum, on_count = rounds.sum_mechanism(0).noise_multiplier, rounds.count_mechanism().noise_multiplier
    assert on_count == pytest.approx(2 * count_noise)
    assert on_sum**-2 + on_count**-2 == pytest.approx(noise**-2)
    assert on_sum > noise


def test_a_round_after_the_last_count_gives_all_of_its_budget_to_the_sum():
    rounds = private_sum(bound=adaptive(rounds=2))
    assert [rounds.counts(index) for index in range(4)] == [True, True, False, False]
    assert rounds.sum_mechanism(1).noise_multiplier > 1.1
    assert rounds.sum_mechanism(2) == rounds.mechanism
    assert "count_noise_std" in rounds.record(1, 1.0)
    assert "count_noise_std" not in rounds.record(2, 1.0)


def test_what_the_ledger_keeps_beside_the_event_follows_from_the_parts():
    rounds = private_sum(grouping=VirtualClients(clients=5), bound=BOUNDS["per layer"])
    assert rounds.record(3, 0.3) == {
        "round": 4,
        "clip_norm": 0.3,
        "sensitivity": pytest.approx(0.6),
        "noise_std": pytest.approx(0.33),
        "denominator": 5,
    }
    plain = private_sum(bound=ConstantClipNorm(clip_norm=None), mechanism=IndependentGaussian(noise_multiplier=0.0))
    assert (plain.record(0, None)["sensitivity"], plain.record(0, None)["noise_std"]) == (None, 0.0)


def test_a_contributor_costs_half_of_what_a_user_in_a_virtual_client_costs():
    rounds = private_sum(grouping=VirtualClients(clients=5))
    assert rounds.contributor_event(6) == acc.Gaussian(1.1).poisson(0.1) * 6
    assert rounds.event(6) == acc.Gaussian(0.55).poisson(0.1) * 6


def test_a_stream_is_recorded_whole_before_its_first_release_and_costs_that_whenever_it_stops(drifting):
    rounds = private_sum(mechanism=drifting())
    assert rounds.entry(0) == acc.Gaussian(1.5 / 6**0.5)
    assert [rounds.entry(index) for index in range(1, 6)] == [None] * 5
    assert [rounds.event(count) for count in (1, 3, 6)] == [rounds.entry(0)] * 3


def test_noise_that_rounds_share_cannot_be_shared_with_a_count(drifting):
    with pytest.raises(
        InputError,
        match=r"accounted round by round, and a run with .* and drifting sums is not; use clipping=flat",
    ):
        private_sum(mechanism=drifting(), bound=adaptive())


def test_a_sampler_that_nothing_is_proven_for_is_refused_when_the_parts_meet(drifting):
    with pytest.raises(ValueError, match="nothing is proven"):
        private_sum(mechanism=drifting(), sampler=FIXED)


def test_noise_without_a_bound_is_no_private_sum():
    with pytest.raises(InputError, match="needs a clip_norm: noise on an unbounded sum protects nobody"):
        private_sum(bound=ConstantClipNorm(clip_norm=None))


def test_a_count_that_leaves_nothing_for_the_sum_is_no_private_sum():
    with pytest.raises(InputError, match=r"adaptive_clip_count_noise 0\.5 leaves nothing"):
        private_sum(bound=adaptive(count_noise=0.5))
