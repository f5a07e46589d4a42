"""Events of correlated noise: trees, matrices, separated participations, and what is released jointly."""

import dataclasses
import json
import math
import subprocess
import sys
from functools import reduce
from itertools import combinations, pairwise, product
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato import mechanisms
from sfumato.accounting import (
    ClipCount,
    Composition,
    DiscreteGaussian,
    Gaussian,
    InputError,
    Joint,
    Laplace,
    MinSeparation,
    NonPrivate,
    Participation,
    Poisson,
    RandomizedResponse,
    calibrate,
    event_from_json,
    guarantee,
    joint,
)
from sfumato.accounting.accountants import rho_to_epsilon
from sfumato.accounting.events import Unknown
from sfumato.accounting.events.correlated import MatrixMechanism, TreeAggregation, cyclic_poisson
from sfumato.clipping.bounds import COUNT_SENSITIVITY, Adaptive
from sfumato.ledger import Ledger
from slow import by_profile

PRODUCTION = TreeAggregation(noise_multiplier=7.0, steps=2000, max_participations=6, min_separation=313)
CIFAR10 = TreeAggregation(
    noise_multiplier=46.3,
    steps=10_000,
    max_participations=100,
    min_separation=99,
    restart_every=2000,
    completion=True,
)
events = st.builds(
    TreeAggregation,
    noise_multiplier=st.floats(0.1, 100),
    steps=st.integers(1, 500),
    max_participations=st.one_of(st.none(), st.integers(1, 8)),
    min_separation=st.integers(30, 600),
    restart_every=st.integers(1, 600),
    completion=st.booleans(),
    max_per_tree=st.one_of(st.none(), st.integers(1, 4)),
)


def test_the_production_run_of_dp_ftrl() -> None:
    # "Federated learning with formal differential privacy guarantees", Google AI blog: rho 0.81, epsilon 8.9
    assert PRODUCTION.rho("zero_out") == pytest.approx(79 / 98, rel=1e-14)
    promise = guarantee(PRODUCTION, "zero_out")
    assert promise.method == "gaussian"
    assert promise.epsilon(1e-10) == pytest.approx(8.526093443452087, rel=1e-10)
    assert guarantee(PRODUCTION, "zero_out", "rdp").epsilon(1e-10) == pytest.approx(8.90, abs=5e-3)
    assert rho_to_epsilon(0.81, 1e-10) == pytest.approx(8.9223, abs=5e-4)  # with rho as it was printed


def test_restarts_with_completion() -> None:
    # google-research/DP-FTRL, privacy.py, main: CIFAR-10, batch 500, 100 epochs, a restart every 20
    assert (CIFAR10.squared_sensitivity, CIFAR10.exact) == (4129, True)
    renyi = guarantee(CIFAR10, "zero_out", "rdp").epsilon(1e-5)
    assert renyi == pytest.approx(6.922239480615223, rel=1e-4)
    assert renyi <= 6.922239480615223 + 1e-9
    assert guarantee(CIFAR10, "zero_out").epsilon(1e-5) == pytest.approx(6.42753, abs=5e-6)


def test_one_epoch_of_stack_overflow() -> None:
    # google/differential-privacy, rdp_privacy_accountant_test.py: at most 19.74, now 18.70961
    run = TreeAggregation(noise_multiplier=1.13, steps=1600)
    assert guarantee(run, "zero_out").epsilon(1e-6) == pytest.approx(17.66675, abs=5e-6)
    assert 18.7 < guarantee(run, "zero_out", "rdp").epsilon(1e-6) <= 18.70961  # at more orders than theirs


@given(st.floats(0.3, 30), st.integers(1, 10**6), st.integers(1, 20))
def test_a_tree_an_epoch_is_the_composition_of_trees(noise: float, steps: int, epochs: int) -> None:
    restarted = TreeAggregation(
        noise_multiplier=noise,
        steps=steps * epochs,
        max_participations=None,
        restart_every=steps,
        max_per_tree=1,
    )
    composed = reduce(add, [TreeAggregation(noise_multiplier=noise, steps=steps)] * epochs)
    assert restarted.squared_sensitivity == epochs * steps.bit_length()
    expected = guarantee(composed, "zero_out").epsilon(1e-6)
    assert guarantee(restarted, "zero_out").epsilon(1e-6) == pytest.approx(expected, rel=1e-9)


def test_likelihoods_of_a_whole_tree_agree_with_the_event() -> None:
    """All nodes of 3 rounds, simulated with and without a unit that takes part in rounds 0 and 1."""
    event = TreeAggregation(noise_multiplier=1.5, steps=3, max_participations=2)
    nodes = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    moved = nodes @ np.array([1.0, 1.0, 0.0])
    noise = 1.5 * np.random.default_rng(7).standard_normal((400_000, 4))
    losses = (noise @ moved + moved @ moved / 2) / 1.5**2  # log density ratio of what is released with the unit
    excess = np.maximum(0.0, -np.expm1(1.0 - losses))
    error = 5 * float(excess.std()) / math.sqrt(len(excess))  # false alarm: 6e-7
    assert guarantee(event, "zero_out").delta(1.0) == pytest.approx(float(excess.mean()), abs=error)


@given(events)
@settings(max_examples=by_profile(50), deadline=None)
def test_a_tree_is_one_gaussian(event: TreeAggregation) -> None:
    same = Gaussian(event.noise_multiplier / math.sqrt(event.squared_sensitivity))
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    for adjacency in ("zero_out", "replace"):
        assert event.rho(adjacency) == pytest.approx(same.rho(adjacency), rel=1e-12)
        assert event.gaussian_shift(adjacency) == pytest.approx(same.gaussian_shift(adjacency), rel=1e-12)
        np.testing.assert_allclose(event.renyi(orders, adjacency), orders * same.rho(adjacency), rtol=1e-12)
    assert event.rho("replace") == pytest.approx(4 * event.rho("zero_out"), rel=1e-12)


@given(events)
@settings(max_examples=by_profile(50), deadline=None)
def test_a_tree_survives_json(event: TreeAggregation) -> None:
    read = event_from_json(json.loads(json.dumps(event.to_json())))
    assert read == event
    assert hash(read) == hash(event)
    assert event + event == event * 2


def test_adding_a_unit_is_refused_with_the_remedy() -> None:
    with pytest.raises(Unknown, match=r'TreeAggregation .* add_remove.*adjacency="zero_out"'):
        guarantee(PRODUCTION)
    for method in ("pld", "rdp", "zcdp", "gaussian"):
        with pytest.raises(Unknown, match="zero_out"):
            guarantee(PRODUCTION, "add_remove", method).epsilon(1e-6)


def test_no_sampling_of_a_tree_is_claimed() -> None:
    with pytest.raises(Unknown, match=r"TreeAggregation.*noise is shared"):
        PRODUCTION.poisson(0.01)
    with pytest.raises(Unknown, match=r"TreeAggregation.*noise is shared"):
        PRODUCTION.without_replacement(10, 100)


def test_noise_is_calibrated_to_a_budget() -> None:
    def run(noise_multiplier: float) -> TreeAggregation:
        return TreeAggregation(noise_multiplier=noise_multiplier, steps=2000, max_participations=6, min_separation=313)

    noise = calibrate(run, epsilon=8.526093443452087, delta=1e-10, adjacency="zero_out")
    assert noise == pytest.approx(7.0, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be > 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be > 0"),
        ({"noise_multiplier": float("nan")}, "noise_multiplier must be a number"),
        ({"steps": 0}, r"steps must be in \[1, 1e\+12\], got 0"),
        ({"steps": 10**300}, r"steps must be in \[1, 1e\+12\]"),
        ({"steps": 2.5}, "rounds must be a whole number"),
        ({"max_participations": 0}, "max_participations must be a whole number >= 1"),
        ({"min_separation": -1}, "min_separation must be a whole number >= 0"),
        ({"restart_every": 0}, "restart_every must be a whole number >= 1"),
        ({"restart_every": 5, "max_per_tree": 0}, "max_per_tree must be a whole number >= 1"),
        ({"completion": True}, "completion and max_per_tree need restart_every"),
        ({"max_per_tree": 2}, "completion and max_per_tree need restart_every"),
        ({"restart_every": 5, "completion": "yes"}, "completion must be True or False"),
    ],
)
def test_what_no_tree_can_be_is_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TreeAggregation(**{"noise_multiplier": 1.0, "steps": 10} | given)  # type: ignore[arg-type]


def test_ten_million_rounds_are_no_trouble() -> None:
    run = TreeAggregation(noise_multiplier=5.0, steps=10**7, max_participations=5, min_separation=10**6)
    assert run.exact
    assert 0 < guarantee(run, "zero_out").epsilon(1e-9) < math.inf


def few(rounds: int) -> Participation:
    return Participation(rounds=rounds, max_participations=3, min_separation=4)


BANDED = MatrixMechanism.banded(2.0, few(20), bands=5, column_norms=np.linspace(1, 2, 20))
TOEPLITZ = MatrixMechanism.toeplitz(2.0, few(20), [1.0, 0.5, 0.25])
BLT = MatrixMechanism.blt(2.0, few(20), output_scales=[0.2, 0.1], buffer_decays=[0.9, 0.5])
MATRIX = MatrixMechanism.from_matrix(2.0, few(20), np.tril(np.ones((20, 20))))
LARGE = MatrixMechanism.toeplitz(2.0, few(10_000), 1 / np.sqrt(np.arange(1, 10_001)))
ALL = pytest.mark.parametrize("event", [BANDED, TOEPLITZ, BLT, MATRIX, LARGE], ids=lambda event: event.strategy)


def test_banded_noise_of_gboard() -> None:
    # google-research/federated, mf_dpftrl_matrices/privacy_accounting.ipynb: pt-BR, columns of norm 1
    limits = Participation(rounds=2000, max_participations=2, min_separation=1428)
    run = MatrixMechanism.banded(8.35, limits, bands=1000)
    assert run.exact
    assert run.rho("zero_out") == pytest.approx(0.014342572340349278, rel=1e-12)
    assert guarantee(run, "zero_out").epsilon(1e-10) == pytest.approx(0.9935500950539097, rel=1e-5)


def test_independent_noise_is_the_composition_of_its_rounds() -> None:
    limits = Participation(rounds=100, max_participations=None, min_separation=9)
    run = MatrixMechanism.toeplitz(3.0, limits, [1.0])
    expected = guarantee(Gaussian(3.0) * 10).epsilon(1e-6)
    assert guarantee(run, "zero_out").epsilon(1e-6) == pytest.approx(expected, rel=1e-9)


def test_likelihoods_of_a_run_agree_with_the_event() -> None:
    """C x + z, simulated with and without a unit in rounds 0 and 2, whose next contribution depends on the release."""
    coefficients = np.array([1.0, 0.6, 0.3, 0.2])
    limits = Participation(rounds=4, max_participations=2, min_separation=1)
    event = MatrixMechanism.toeplitz(1.5, limits, coefficients)
    matrix = np.array([[coefficients[t - j] if t >= j else 0.0 for j in range(4)] for t in range(4)])
    rng = np.random.default_rng(5)
    noise = 1.5 * rng.standard_normal((400_000, 4, 2))  # contributions are vectors in the plane
    direction = np.arctan2(noise[:, 0, 1] + coefficients[0], noise[:, 0, 0])  # of the first release
    first = np.broadcast_to([0.0, 1.0], (400_000, 2))
    second = np.stack([np.cos(direction), np.sin(direction)], axis=1)
    moved = matrix[:, 0, None] * first[:, None, :] + matrix[:, 2, None] * second[:, None, :]
    losses = ((noise * moved).sum(axis=(1, 2)) + (moved**2).sum(axis=(1, 2)) / 2) / 1.5**2
    excess = np.maximum(0.0, -np.expm1(0.5 - losses))
    error = 5 * float(excess.std()) / np.sqrt(len(excess))  # false alarm: 3e-7
    assert float(excess.mean()) <= guarantee(event, "zero_out").delta(0.5) + error
    aligned = matrix[:, 0] + matrix[:, 2]  # always the first direction: attains the bound
    assert event.squared_sensitivity == pytest.approx(aligned @ aligned, rel=1e-12)


@ALL
def test_a_run_is_one_gaussian(event: MatrixMechanism) -> None:
    same = Gaussian(event.noise_multiplier / event.squared_sensitivity**0.5)
    for adjacency in ("zero_out", "replace"):
        assert event.rho(adjacency) == pytest.approx(same.rho(adjacency), rel=1e-12)
        assert guarantee(event, adjacency).method == "gaussian"
    assert event.gaussian_shift("replace") == 2 * event.gaussian_shift("zero_out")
    with pytest.raises(Unknown, match=r'MatrixMechanism .*add_remove.*adjacency="zero_out"'):
        guarantee(event)


@ALL
def test_a_run_survives_json(event: MatrixMechanism) -> None:
    read = event_from_json(json.loads(json.dumps(event.to_json())))
    assert read == event
    assert hash(read) == hash(event)
    assert event + event == event * 2


@ALL
def test_no_sampling_is_claimed(event: MatrixMechanism) -> None:
    with pytest.raises(Unknown, match=r"MatrixMechanism.*noise is shared.*cyclic_poisson"):
        event.poisson(0.1)


@pytest.mark.parametrize("event", [BANDED, TOEPLITZ, BLT, MATRIX], ids=lambda event: event.strategy)
def test_a_smaller_sensitivity_in_a_ledger_is_noticed(event: MatrixMechanism) -> None:
    written = event.to_json()
    with pytest.raises(InputError, match="the event was changed"):
        event_from_json(written | {"squared_sensitivity": 0.9 * written["squared_sensitivity"]})
    with pytest.raises(InputError, match="the event was changed"):
        event_from_json(written | {"exact": not written["exact"]})
    event.verify(event.parameters)


def test_a_large_strategy_is_verified_by_its_parameters() -> None:
    coefficients = 1 / np.sqrt(np.arange(1, 10_001))
    assert not LARGE.parameters
    LARGE.verify(coefficients)
    with pytest.raises(InputError, match="digest"):
        LARGE.verify(coefficients * 1.01)
    with pytest.raises(InputError, match="the event was changed"):
        dataclasses.replace(LARGE, squared_sensitivity=1.0).verify(coefficients)


def test_what_is_not_known_exactly_says_so() -> None:
    assert all(event.exact for event in (BANDED, TOEPLITZ, BLT, LARGE))
    rising = MatrixMechanism.toeplitz(1.0, Participation(rounds=3, max_participations=2), [1.0, 2.0, 1.0])
    assert not rising.exact
    assert rising.squared_sensitivity >= 1 + 9 + 9  # rounds 0 and 1: column sums 1, 3, 3


@settings(max_examples=by_profile(30), deadline=None)
@given(st.floats(0.5, 20), st.integers(1, 300), st.integers(1, 12), st.floats(0.001, 0.999))
def test_one_band_is_dp_sgd(noise: float, steps: int, parts: int, rate: float) -> None:
    alone = cyclic_poisson(noise_multiplier=noise, steps=steps, parts=1, sampling_rate=rate)
    assert alone == Gaussian(noise).poisson(rate) * steps
    assert cyclic_poisson(noise_multiplier=noise, steps=steps, parts=steps, sampling_rate=1.0) == Gaussian(noise)
    turns = -(-steps // parts)
    assert cyclic_poisson(noise_multiplier=noise, steps=steps, parts=parts, sampling_rate=rate) == alone * 0 + (
        Gaussian(noise).poisson(rate) * turns
    )


def test_likelihoods_of_cyclic_sampling_agree_with_its_event() -> None:
    """Four rounds, two parts, two bands; another unit's contribution depends on what was released before."""
    noise_multiplier, rate, runs = 0.8, 0.3, 1_000_000
    second = np.sqrt(1 - 0.8**2)
    matrix = np.array([[0.8, 0, 0, 0], [second, 0.8, 0, 0], [0, second, 0.8, 0], [0, 0, second, 0.8]])
    event = cyclic_poisson(noise_multiplier=noise_multiplier, steps=4, parts=2, sampling_rate=rate)
    rng = np.random.default_rng(11)
    drawn = (rng.random((runs, 2)) < rate).astype(float)
    released = np.zeros((runs, 4))
    others = np.zeros((runs, 4))  # the contributions of somebody else, chosen from the releases before
    for t in range(4):
        others[:, t] = np.sign(released[:, t - 1]) if t else 1.0
        mine = np.stack([drawn[:, 0], np.zeros(runs), drawn[:, 1], np.zeros(runs)], axis=1)
        released[:, t] = (others + mine) @ matrix[t] + noise_multiplier * rng.standard_normal(runs)
    residual = released - others @ matrix.T
    log_ratio = np.zeros(runs)
    for j in (0, 2):
        shift = residual @ matrix[:, j] - 0.5
        log_ratio += np.log1p(rate * np.expm1(shift / noise_multiplier**2))
    excess = np.maximum(0.0, -np.expm1(0.5 - log_ratio))
    error = 5 * float(excess.std()) / np.sqrt(runs)  # false alarm: 6e-7
    promised = guarantee(event).delta(0.5)
    assert promised == pytest.approx(float(excess.mean()), abs=error)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatrixMechanism.banded(2.0, few(20), bands=6), "bands must be <= min_separation . 1 = 5, got 6"),
        (lambda: MatrixMechanism.banded(2.0, few(20), bands=0), "bands must be a whole number"),
        (lambda: MatrixMechanism.banded(2.0, few(20), bands=2, column_norms=[1, 2]), "column_norms must be one"),
        (lambda: MatrixMechanism.banded(2.0, few(2), bands=2, column_norms=[1, 0]), "column_norms must be > 0"),
        (lambda: MatrixMechanism.banded(2.0, few(10**13), bands=2), "steps must be in"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), []), "coefficients must be a list"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), [1, float("nan")]), "coefficients must be a list"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), "abc"), "coefficients must be numbers"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), [0, 1]), "first coefficient must not be zero"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), [1e200, 1]), "scale it down"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(9), [1e-200, 0]), "scale its entries up"),
        (lambda: MatrixMechanism.toeplitz(2.0, few(10**9), [1]), "steps must be in"),
        (lambda: MatrixMechanism.blt(2.0, few(9), [1], [1, 1]), "must be as many"),
        (lambda: MatrixMechanism.blt(2.0, few(9), [-1], [0.5]), "output_scales"),
        (lambda: MatrixMechanism.blt(2.0, few(9), [1], [1.5]), "buffer_decays"),
        (lambda: MatrixMechanism.from_matrix(2.0, few(3), np.ones((3, 2))), "matrix must be square"),
        (lambda: MatrixMechanism.from_matrix(2.0, few(3), np.ones((3, 3))), "zero above the diagonal"),
        (lambda: MatrixMechanism.from_matrix(2.0, few(3), np.zeros((3, 3))), "not be zero on the diagonal"),
        (lambda: MatrixMechanism.from_matrix(2.0, few(4), np.eye(3)), "no lower triangle of 4 rows"),
        (lambda: dataclasses.replace(TOEPLITZ, noise_multiplier=0.0), "noise_multiplier must be > 0"),
        (lambda: dataclasses.replace(TOEPLITZ, parameters=()), "either parameters or a digest"),
        (lambda: dataclasses.replace(TOEPLITZ, strategy="dense"), "strategy must be one of"),
        (lambda: dataclasses.replace(BLT, parameters=(float("nan"), 1.0)), "parameters must be"),
        (lambda: cyclic_poisson(noise_multiplier=0, steps=9, parts=2, sampling_rate=0.1), "noise_multiplier"),
        (lambda: cyclic_poisson(noise_multiplier=1, steps=9, parts=0, sampling_rate=0.1), "parts"),
        (lambda: cyclic_poisson(noise_multiplier=1, steps=9, parts=2, sampling_rate=1.1), "sampling_rate"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        make()  # type: ignore[operator]
    assert "\n" not in str(refusal.value)


def test_a_matrix_with_a_bound_for_its_sensitivity_claims_nothing_from_below():
    loose = MatrixMechanism.toeplitz(1.0, Participation(rounds=3, max_participations=2), [1.0, -1.0, 1.0])
    assert not loose.exact
    for method in ("auto", "gaussian", "pld"):
        low, high = guarantee(loose, "zero_out", method).epsilon_interval(1e-5)
        assert low == 0 < high
    tight = TreeAggregation(noise_multiplier=1.0, steps=7)
    assert guarantee(tight, "zero_out").epsilon_interval(1e-5)[0] > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: MatrixMechanism.banded(1.0, few(4), bands=None),  # type: ignore[arg-type]
        lambda: MatrixMechanism.toeplitz(1.0, few(4), [10**400]),
        lambda: MatrixMechanism.from_matrix(1.0, few(4), "eye"),  # type: ignore[arg-type]
    ],
)
def test_a_strategy_of_no_numbers_is_refused_in_one_line(make):
    with pytest.raises(InputError) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_a_digest_without_its_parameters_proves_nothing() -> None:
    forged = dataclasses.replace(LARGE, digest="0" * 64, squared_sensitivity=1e-6)
    read = event_from_json(json.loads(json.dumps(forged.to_json())))
    for event in (forged, read):
        for method in ("auto", "rdp", "zcdp"):
            with pytest.raises(Unknown, match="verify"):
                guarantee(event, "zero_out", method)
    with pytest.raises(InputError, match="does not follow"):
        guarantee(dataclasses.replace(LARGE, squared_sensitivity=LARGE.squared_sensitivity / 2), "zero_out")
    code = """
import json, sys
import numpy as np
from sfumato.accounting import InputError, event_from_json, guarantee
event = event_from_json(json.loads(sys.argv[1]))
try:
    guarantee(event, "zero_out")
except InputError as refusal:
    print("verify" in str(refusal))
event.verify(1 / np.sqrt(np.arange(1, 10_001)))
print(guarantee(event, "zero_out").epsilon(1e-6))
"""
    command = [sys.executable, "-c", code, json.dumps(LARGE.to_json())]
    refused, epsilon = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert refused == "True"
    assert float(epsilon) == guarantee(LARGE, "zero_out").epsilon(1e-6)


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
