import json
import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import (
    ClipCount,
    Composition,
    DiscreteGaussian,
    Gaussian,
    InputError,
    Laplace,
    MinSeparation,
    NonPrivate,
    RandomizedResponse,
    Unknown,
    event_from_json,
    guarantee,
)

settings_of_runs = st.tuples(st.integers(1, 10**6), st.integers(0, 10**4), st.one_of(st.none(), st.integers(1, 50)))


@pytest.mark.parametrize("rounds", range(1, 9))
@pytest.mark.parametrize("separation", range(5))
def test_participations_are_the_most_that_any_pattern_has(rounds: int, separation: int) -> None:
    for most in (None, 1, 2, 3):
        fitting = [
            len(pattern)
            for size in range(rounds + 1)
            for pattern in combinations(range(rounds), size)
            if all(later - earlier - 1 >= separation for earlier, later in pairwise(pattern))
            and (most is None or size <= most)
        ]
        event = Gaussian(1.0).min_separation(rounds, separation, most)
        assert event.participations == max(fitting)  # pyright: ignore[reportAttributeAccessIssue]


@given(st.floats(0.1, 50), settings_of_runs, st.sampled_from(["add_remove", "replace", "zero_out"]))
def test_it_costs_its_participations(noise: float, run: tuple[int, int, int | None], adjacency: str) -> None:
    step = Gaussian(noise) + ClipCount(3 * noise)
    event = step.min_separation(*run)
    repeated = step * event.participations  # pyright: ignore[reportAttributeAccessIssue]
    ours, theirs = (guarantee(each, adjacency) for each in (event, repeated))  # pyright: ignore[reportArgumentType]
    assert ours.method == "gaussian"
    assert ours.epsilon(1e-6) == pytest.approx(theirs.epsilon(1e-6), rel=1e-12)
    assert ours.rho() == pytest.approx(theirs.rho(), rel=1e-12)
    orders = np.array([1.5, 4.0])
    np.testing.assert_allclose(
        event.renyi(orders, adjacency),  # pyright: ignore[reportArgumentType]
        orders * theirs.rho(),  # pyright: ignore[reportOperatorIssue]
        rtol=1e-12,
    )


@given(st.floats(0.1, 50), settings_of_runs, st.integers(1, 4))
def test_it_survives_json(noise: float, run: tuple[int, int, int | None], count: int) -> None:
    event = Gaussian(noise).min_separation(*run) * count
    again = event_from_json(json.loads(json.dumps(event.to_json())))
    assert again == event
    assert hash(again) == hash(event)
    written = Gaussian(noise).min_separation(*run).to_json()
    assert (written["rounds"], written["separation"], written["max_participations"]) == run


def test_a_closer_or_longer_run_costs_more() -> None:
    def epsilon(rounds: int, separation: int, most: int | None) -> float:
        return guarantee(Gaussian(7.0).min_separation(rounds, separation, most)).epsilon(1e-10)

    assert epsilon(2000, 313, 7) == epsilon(2000, 313, 100) > epsilon(2000, 313, 6)
    assert epsilon(2000, 399, None) < epsilon(2001, 399, None)
    assert epsilon(100, 0, None) == pytest.approx(guarantee(Gaussian(7.0) * 100).epsilon(1e-10), rel=1e-12)


def test_two_runs_add_up() -> None:
    run = Gaussian(5.0).min_separation(100, 24)
    assert run + run == run * 2
    assert guarantee(run * 2).epsilon(1e-6) == pytest.approx(guarantee(Gaussian(5.0) * 8).epsilon(1e-6), rel=1e-12)


def test_what_has_no_guarantee_stays_without() -> None:
    assert guarantee(NonPrivate().min_separation(10, 1)).epsilon(1e-6) == math.inf


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1, 1), "rounds must be a whole number >= 1"),
        ((float("nan"), 1, 1), "rounds must be a number"),
        ((10, -1, 1), "separation must be a whole number >= 0"),
        ((10, 0.5, 1), "separation must be a whole number"),
        ((10, 1, 0), "max_participations must be a whole number >= 1"),
    ],
)
def test_bad_values_are_refused_in_one_line(arguments: tuple, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        Gaussian(1.0).min_separation(*arguments)
    assert "\n" not in str(raised.value)


def test_sampling_does_not_mix_with_it() -> None:
    with pytest.raises(Unknown, match="min-separation of Poisson"):
        Gaussian(1.0).poisson(0.1).min_separation(10, 1)
    with pytest.raises(Unknown, match="MinSeparation"):
        Gaussian(1.0).min_separation(10, 1).poisson(0.1)
    with pytest.raises(InputError, match="empty composition"):
        Composition(()).min_separation(10, 1)
    with pytest.raises(InputError, match="takes events"):
        MinSeparation("run", 10, 1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("method", ["auto", "pld"])
@pytest.mark.parametrize(
    "step", [DiscreteGaussian(3.0), DiscreteGaussian(0.3), Laplace(2.0), RandomizedResponse(0.5, 4)]
)
def test_any_event_costs_what_its_participations_cost_in_the_tightest_way(step, method) -> None:
    event = step.min_separation(100, 9) + Gaussian(5.0)
    ours, theirs = (guarantee(each, "replace", method) for each in (event, step * 10 + Gaussian(5.0)))
    assert ours.epsilon_interval(1e-6) == theirs.epsilon_interval(1e-6)
    assert ours.delta_interval(0.5) == theirs.delta_interval(0.5)
    assert ours.rho() == pytest.approx(theirs.rho(), rel=1e-12)
