import json
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato import mechanisms
from sfumato.accounting import (
    ClipCount,
    Gaussian,
    InputError,
    Joint,
    NonPrivate,
    Poisson,
    Unknown,
    event_from_json,
    guarantee,
    joint,
)
from sfumato.clipping.bounds import COUNT_SENSITIVITY, Adaptive
from sfumato.ledger import Ledger

noises = st.floats(0.05, 1e3)
parts = st.lists(st.one_of(st.builds(Gaussian, noises), st.builds(ClipCount, noises)), min_size=2, max_size=5)
ADJACENCIES = ("add_remove", "replace", "zero_out")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_two_sums_together_show_what_the_plane_shows(adjacency: str) -> None:
    """The curve of N((a, b), I) against N(0, I) by integration over the plane."""
    event = joint(Gaussian(1.5), Gaussian(0.8))
    moved = 2.0 if adjacency == "replace" else 1.0
    axis = np.linspace(-8, 12, 1601)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    still = np.exp(-(x**2 + y**2) / 2) / (2 * np.pi)
    shifted = np.exp(-((x - moved / 1.5) ** 2 + (y - moved / 0.8) ** 2) / 2) / (2 * np.pi)
    for epsilon in (0.0, 1.0, 3.0):
        found = np.maximum(shifted - np.exp(epsilon) * still, 0).sum() * (axis[1] - axis[0]) ** 2
        assert guarantee(event, adjacency).delta(epsilon) == pytest.approx(found, abs=2e-5)  # pyright: ignore[reportArgumentType]


@given(parts)
def test_a_joint_release_costs_what_its_parts_cost_without_sampling(events: list) -> None:
    together = joint(*events)
    apart = sum(events)
    for adjacency in ADJACENCIES:
        assert together.gaussian_shift(adjacency) == pytest.approx(  # pyright: ignore[reportArgumentType]
            math.hypot(*(event.gaussian_shift(adjacency) for event in events)), rel=1e-14
        )
        assert together.rho(adjacency) == pytest.approx(sum(event.rho(adjacency) for event in events), rel=1e-12)  # pyright: ignore[reportArgumentType]
    assert guarantee(together).epsilon(1e-6) == pytest.approx(guarantee(apart).epsilon(1e-6), rel=1e-12)


@given(parts, st.integers(1, 5))
def test_its_parts_survive_json(events: list, count: int) -> None:
    event = joint(*events)
    for written in (event, event * count, event.poisson(0.1) * count):
        again = event_from_json(json.loads(json.dumps(written.to_json())))
        assert again == written
        assert hash(again) == hash(written)
    assert [part["event"] for part in event.to_json()["events"]] == [part.kind for part in events]
    assert event + event == event * 2


def test_one_sample_is_drawn_for_all_parts() -> None:
    both = joint(Gaussian(1.1), Gaussian(20.0))
    sampled = both.poisson(0.01)
    assert isinstance(sampled, Poisson)
    assert sampled.event == both
    merged = (Gaussian(1.1) + Gaussian(20.0)).poisson(0.01)
    assert guarantee(sampled * 100).epsilon(1e-6) == pytest.approx(guarantee(merged * 100).epsilon(1e-6), rel=1e-6)
    fixed = both.without_replacement(10, 1000)
    assert guarantee(fixed * 10, "replace").epsilon(1e-6) > guarantee(
        Gaussian(1.1).without_replacement(10, 1000) * 10, "replace"
    ).epsilon(1e-6)


def test_nesting_and_repeating_keep_the_cost() -> None:
    a, b = Gaussian(2.0), Gaussian(3.0)
    assert joint(joint(a, b), b) == joint(a, b, b)
    assert joint(a) == a
    assert joint(a * 4).gaussian_shift("add_remove") == 1.0
    assert joint(a * 2, b).gaussian_shift("add_remove") == pytest.approx(math.sqrt(2 / 4 + 1 / 9))
    assert event_from_json(joint(a * 2, b).to_json()) == joint(a * 2, b)


def test_a_clipped_sum_and_a_count_with_one_noise() -> None:
    """A unit moves the sum by at most r and the count by one, as vectors: the norm of the whole decides."""
    radius, noise = 0.6, 1.7
    event = joint(Gaussian(noise / radius), Gaussian(noise))
    assert event.gaussian_shift("add_remove") == pytest.approx(math.sqrt(1 + radius**2) / noise, rel=1e-15)
    three = joint(Gaussian(4.0), Gaussian(5.0 / 2), Gaussian(6.0 / 3))
    assert three.gaussian_shift("zero_out") == pytest.approx(math.sqrt(1 / 16 + 4 / 25 + 9 / 36))
    angles = np.linspace(0, 2 * np.pi, 60)
    contributions = np.array(
        [(radius * length * np.cos(a), radius * length * np.sin(a), 1.0) for a in angles for length in (0.3, 1.0)]
    )
    added = np.linalg.norm(contributions, axis=1).max()
    replaced = np.linalg.norm(contributions[:, None] - contributions[None], axis=2).max()
    assert added / noise == pytest.approx(event.gaussian_shift("add_remove"))
    assert replaced / noise <= event.gaussian_shift("replace")


@pytest.mark.parametrize(("z", "clients", "count_noise"), [(0.62, 32, None), (1.0, 100, 3.0), (5.0, 1000, 2.6)])
def test_the_sum_and_the_count_of_adaptive_clipping_are_one_gaussian(
    z: float, clients: int, count_noise: float | None
) -> None:
    rule = Adaptive(quantile=0.5, count_noise=count_noise)
    count = ClipCount(rule.count_noise_std(clients=clients, noise_multiplier=z))
    noise = mechanisms.Gaussian(noise_multiplier=z).sharing(count.noise_std / COUNT_SENSITIVITY)
    together = joint(noise.single(1.0), count)
    for adjacency in ADJACENCIES:
        assert together.gaussian_shift(adjacency) == pytest.approx(Gaussian(z).gaussian_shift(adjacency), rel=1e-12)  # pyright: ignore[reportArgumentType]
    for method in ("auto", "rdp"):
        runs = (event.poisson(0.01) * 500 for event in (together, Gaussian(z)))
        ours, theirs = (guarantee(run, method=method).epsilon(1e-6) for run in runs)  # pyright: ignore[reportArgumentType]
        assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("z", [0.6, 1.1, 7.0])
def test_a_round_with_a_noisy_count_of_clipped_contributions_is_one_event(z: float, adjacency: str, tmp_path) -> None:
    """Andrew et al. 2021, Theorem 1: z^-2 = z_sum^-2 + (2 sigma_b)^-2, on one and the same sample."""
    std = 5.0
    z_sum = (z**-2 - (2 * std) ** -2) ** -0.5
    both, one = joint(Gaussian(z_sum), ClipCount(noise_std=std)), Gaussian(z)
    assert both.gaussian_shift(adjacency) == pytest.approx(one.gaussian_shift(adjacency), rel=1e-12)
    for sampled in (
        lambda event: event,
        lambda event: event.poisson(0.01),
        lambda event: event.without_replacement(10, 1000),
        lambda event: event.truncated_poisson(0.01, 20, 1000),
        lambda event: event.min_separation(100, 9),
    ):
        run, same = sampled(both) * 50, sampled(one) * 50
        assert guarantee(run, adjacency).epsilon(1e-6) == pytest.approx(
            guarantee(same, adjacency).epsilon(1e-6), rel=1e-9
        )
        assert guarantee(run, adjacency).rho() == pytest.approx(guarantee(same, adjacency).rho(), rel=1e-12)
        with Ledger.open(tmp_path / f"{type(run).__name__}-{hash(run)}.jsonl") as ledger:
            ledger.append(run)
            assert Ledger.read(ledger.path).event() == run


def test_the_sensitivity_of_the_count_is_what_bits_can_do() -> None:
    def total(bits: tuple[int, ...]) -> float:
        return sum(bit - 0.5 for bit in bits)

    others = list(product((0, 1), repeat=3))
    added = max(abs(total((bit, *rest)) - total(rest)) for rest in others for bit in (0, 1))
    replaced = max(
        abs(total((one, *rest)) - total((two, *rest))) for rest in others for one in (0, 1) for two in (0, 1)
    )
    event = ClipCount(noise_std=4.0)
    assert event.gaussian_shift("add_remove") == event.gaussian_shift("zero_out") == added / 4.0
    assert event.gaussian_shift("replace") == replaced / 4.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "x"])
def test_a_count_needs_noise(bad: object) -> None:
    with pytest.raises(InputError, match="noise_std must be") as raised:
        ClipCount(bad)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(raised.value)


def test_what_cannot_be_joined_is_refused_in_one_line() -> None:
    for events, words in (
        ((), "at least one event"),
        ((Gaussian(1.0), NonPrivate()), "joint release of NonPrivate"),
        ((Gaussian(1.0), Gaussian(1.0).poisson(0.1)), "joint release of Poisson"),
        ((Gaussian(1.0), 3), "takes events such as"),
    ):
        with pytest.raises(InputError, match=words) as raised:
            joint(*events)  # pyright: ignore[reportArgumentType]
        assert "\n" not in str(raised.value)
    with pytest.raises(Unknown):
        joint(Gaussian(1.0)).poisson(0.5).poisson(0.5)
    with pytest.raises(InputError, match="tuple of events"):
        Joint(Gaussian(1.0))  # pyright: ignore[reportArgumentType]
