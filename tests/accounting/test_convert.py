"""Events that go to dp-accounting and come back, and cost the same on both sides."""

import dp_accounting
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from dp_accounting_events import from_dp_event, to_dp_event
from sfumato import accounting as acc

EVENTS = [
    acc.Gaussian(1.1),
    acc.Gaussian(1.1).poisson(0.01) * 100,
    acc.Laplace(2.0) * 3,
    acc.Laplace(2.0).poisson(0.1),
    acc.DiscreteLaplace(0.5, 2),
    acc.RandomizedResponse(0.3, 4),
    acc.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.5, 0.25, 0.25)),
    acc.ZCDP(0.1),
    acc.ZCDP(0.1, xi=0.2),
    acc.NonPrivate(),
    acc.Gaussian(2.0).without_replacement(10, 1000) * 5,
    acc.Gaussian(1.0).truncated_poisson(0.5, 2, 4),
    acc.TreeAggregation(noise_multiplier=1.13, steps=1600) * 2,
    acc.Gaussian(3.0) * 2 + acc.Laplace(4.0) + acc.Gaussian(2.0).poisson(0.5) * 7,
]


@pytest.mark.parametrize("event", EVENTS)
def test_there_and_back_again(event: acc.Event) -> None:
    assert from_dp_event(to_dp_event(event)) == event


@pytest.mark.parametrize(
    "event",
    [
        dp.GaussianDpEvent(1.0),
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.0)), 20),
        dp.ComposedDpEvent([dp.LaplaceDpEvent(2.0), dp.DiscreteLaplaceDpEvent(0.5, 1), dp.GaussianDpEvent(2.0)]),
        dp.PoissonSampledDpEvent(0.2, dp.LaplaceDpEvent(0.5)),
    ],
)
def test_both_libraries_agree_on_the_cost(event: dp.DpEvent) -> None:
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(1e-5)
    low, high = acc.guarantee(from_dp_event(event)).epsilon_interval(1e-5)
    assert low <= theirs * (1 + 1e-6)
    assert high == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (dp.NoOpDpEvent(), acc.Composition(())),
        (dp.GaussianDpEvent(0.0), acc.NonPrivate()),
        (
            dp.SingleEpochTreeAggregationDpEvent(1.5, [3, 1000, 20]),
            acc.TreeAggregation(noise_multiplier=1.5, steps=1000),
        ),
        (dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 0), acc.Composition(())),
    ],
)
def test_special_cases(event: dp.DpEvent, expected: acc.Event) -> None:
    assert from_dp_event(event) == expected


@pytest.mark.parametrize(
    "event",
    [
        dp.UnsupportedDpEvent(),
        dp.SampledWithReplacementDpEvent(100, 10, dp.GaussianDpEvent(1.0)),
        dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(1.0), 2.0, 1.0),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(event: dp.DpEvent) -> None:
    with pytest.raises(acc.Unknown, match="counterpart"):
        from_dp_event(event)


@given(
    steps=st.integers(1, 300),
    restart=st.none() | st.integers(1, 100),
    filled=st.booleans(),
    limit=st.sampled_from([1, None]),
)
def test_a_tree_costs_as_much_on_the_other_side_or_is_refused(steps, restart, filled, limit) -> None:
    event = acc.TreeAggregation(
        noise_multiplier=2.0,
        steps=steps,
        max_participations=limit,
        min_separation=20,
        restart_every=restart,
        completion=filled and restart is not None,
    )
    try:
        there = to_dp_event(event)
    except acc.Unknown:
        assert event.participation.most > 1
        return
    back = from_dp_event(there)
    assert isinstance(back, acc.TreeAggregation)
    assert back.squared_sensitivity == event.squared_sensitivity
    accountant = RdpAccountant([2.0], dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    assert accountant.compose(there)._rdp[0] == pytest.approx(2 * event.rho("zero_out"), rel=1e-12)


def test_our_own_events_are_refused_by_name() -> None:
    with pytest.raises(acc.Unknown, match="ExponentialMechanism has no counterpart"):
        to_dp_event(acc.ExponentialMechanism(1.0))


@pytest.mark.parametrize("convert", [from_dp_event, to_dp_event])
def test_anything_else_is_refused(convert) -> None:
    with pytest.raises(acc.InputError, match="expected"):
        convert("gaussian")
