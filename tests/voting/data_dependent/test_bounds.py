import importlib.util
import itertools
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting.events.votes import NoisyVote
from sfumato.voting.data_dependent import log_wrong, renyi, theorem6, theorem7, tradeoff

spec = importlib.util.spec_from_file_location("exact", Path(__file__).with_name("exact.py"))
exact = importlib.util.module_from_spec(spec)
spec.loader.exec_module(exact)

BOUNDS = (theorem6, theorem7, tradeoff)
ORDERS = np.array([1.001, 1.5, 2.0, 5.0, 12.0, 40.0, 200.0])
LOG_Q = st.floats(-1e4, -1e-9)
RHO = st.floats(1e-8, 20.0)


@pytest.mark.parametrize("counts", [(14, 2), (9, 7), (30, 4), (20, 6, 4), (12, 12, 0), (25, 1, 1), (18, 9, 6, 1)])
@pytest.mark.parametrize("noise_std", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_no_bound_is_below_the_divergence_of_the_outcomes_from_any_neighbours(counts, noise_std, adjacency):
    counts = np.array(counts, dtype=float)
    rho = NoisyVote(noise_std).rho(adjacency)
    log_q = log_wrong(counts[None], noise_std)
    values = [bound(log_q, rho, ORDERS)[0] for bound in BOUNDS]
    log_p = exact.log_probabilities(counts, noise_std)
    for other in exact.neighbours(counts, adjacency):
        log_other = exact.log_probabilities(other, noise_std)
        truth = np.array([exact.divergence(log_p, log_other, order) for order in ORDERS])
        for value in values:
            assert (value >= truth - 1e-9).all()  # the integrals are good to about 1e-12


def test_the_bounds_hold_at_margins_that_doubles_cannot_integrate():
    noise_std, order = 2.0, 3.0
    with mp.workdps(60):
        for margin, change in itertools.product((10, 30, 60), (-2, 2)):
            q, other = (mp.ncdf(-mp.mpf(m) / (mp.sqrt(2) * noise_std)) for m in (margin, margin + change))
            moment = (1 - q) ** order * (1 - other) ** (1 - order) + q**order * other ** (1 - order)
            truth = float(mp.log(moment) / (order - 1))
            log_q = log_wrong(np.array([[margin, 0.0]]), noise_std)
            for bound in BOUNDS:
                value = bound(log_q, NoisyVote(noise_std).rho("replace"), np.array([order]))[0, 0]
                assert truth <= value
                assert math.isfinite(value)


@given(LOG_Q, RHO)
def test_the_bounds_never_exceed_the_cost_of_any_votes(log_q, rho):
    for bound in BOUNDS:
        values = bound(np.array([log_q]), rho, ORDERS)
        assert ((values >= 0) & (values <= ORDERS * rho)).all()
    best = renyi(np.array([log_q]), rho, ORDERS)
    assert (best <= np.minimum.reduce([bound(np.array([log_q]), rho, ORDERS) for bound in BOUNDS])).all()


@given(LOG_Q, st.floats(1.0001, 3.0), RHO)
def test_a_clearer_outcome_costs_no_more(log_q, factor, rho):
    clear, unclear = tradeoff(np.array([log_q * factor, log_q]), rho, ORDERS)
    assert (clear <= unclear * (1 + 1e-9)).all()


@given(LOG_Q, RHO)
def test_the_tradeoff_curve_gives_the_least_bound(log_q, rho):
    least = tradeoff(np.array([log_q]), rho, ORDERS)
    for other in (theorem6, theorem7):
        assert (least <= other(np.array([log_q]), rho, ORDERS) * (1 + 1e-6) + 1e-15).all()


@pytest.mark.parametrize("log_q", [-1e-12, -1e-3, math.log(1e-300), -1e6])
def test_the_ends_of_the_range_are_numbers(log_q):
    for bound in BOUNDS:
        values = bound(np.array([log_q]), 1 / 1600, ORDERS)
        assert np.isfinite(values).all()
        if log_q > -0.01:
            assert (values == ORDERS * (1 / 1600)).all()
        else:
            assert (values[:, :4] < ORDERS[:4] / 1600 * 1e-30).all()


def test_the_tail_term_needs_the_square_root_that_the_printed_theorem_lacks():
    # two classes; the neighbour's margin is larger, so that the unlikely outcome gets rarer still
    noise_std, margin, order = 20.0, 120.0, 4.0
    rho = NoisyVote(noise_std).rho("replace")
    log_q = float(log_wrong(np.array([[margin, 0.0]]), noise_std)[0])
    log_other = float(log_wrong(np.array([[margin + 1, -1.0 + 1]]), noise_std)[0])
    truth = order * log_q + (1 - order) * log_other
    moment = (order - 1) * (2 * order - 1) * rho
    assert log_q + moment < truth  # with q itself the step of the proof is false
    assert truth <= 0.5 * log_q + moment


def test_the_corrected_exponent_is_a_sixteenth():
    classes, noise_std, margin, order, rho = 10, 20.0, 400.0, 3.0, 1 / 400
    log_q = np.array([math.log(classes) - (margin / noise_std) ** 2 / 8])  # the paper's bound, by the margin alone
    value = theorem7(log_q, rho, np.array([order]), log_q_neighbour=np.array([-1e5]))[0, 0]
    exponent = -((margin / noise_std) ** 2) / 16 + 0.5 * math.log(classes) + (order - 1) * (2 * order - 1) * rho
    assert value == pytest.approx(math.log1p(math.exp(exponent)) / (order - 1), rel=1e-9)
