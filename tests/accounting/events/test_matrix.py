import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, InputError, Participation, TreeAggregation, event_from_json, guarantee
from sfumato.accounting.events import Unknown
from sfumato.accounting.events.correlated import MatrixMechanism, cyclic_poisson
from slow import by_profile


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
