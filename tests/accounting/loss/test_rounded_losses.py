"""Both accountants that round losses, buckets and PRV: sums over all outcomes, exact curves, refusals."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from comparison_accountants import BucketsAccountant, PrvAccountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.accounting import Composition, Event, Gaussian, InputError, NonPrivate, Unknown
from sfumato.accounting.gaussian_curve import gaussian_epsilon
from sfumato.accounting.pld import PldAccountant
from slow import by_profile

BOTH = pytest.mark.parametrize("kind", [BucketsAccountant, PrvAccountant])


@dataclass(frozen=True)
class Outcomes:
    """Two distributions over a few outcomes."""

    p: tuple[float, ...]
    q: tuple[float, ...]

    @property
    def losses(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(np.array(self.p)) - np.log(np.array(self.q))

    def span(self):
        finite = self.losses[np.isfinite(self.losses)]
        return float(finite.min()), float(finite.max())

    def bulk(self):
        return self.span()[0]

    def atom(self):
        return 0.0

    def infinity(self):
        return sum(p for p, q in zip(self.p, self.q) if q == 0)

    def cells(self, edges):
        masses = np.zeros((2, len(edges) - 1))
        for p, q, loss in zip(self.p, self.q, self.losses):
            cell = max(0, int(np.searchsorted(edges, loss)) - 1)  # what only Q has is in the first one
            if edges[0] == -np.inf or loss > edges[0]:
                masses[:, cell : cell + (loss <= edges[-1])] += np.array([[p], [q]])
        return masses[0], masses[1], 1e-15 * masses[0]

    def exact_delta(self, steps: int, epsilon: float) -> float:
        """The definition, summed over every sequence of outcomes."""
        total = 0.0
        for sequence in itertools.product(range(len(self.p)), repeat=steps):
            p, q = math.prod(self.p[i] for i in sequence), math.prod(self.q[i] for i in sequence)
            total += max(0.0, p - math.exp(epsilon) * q)
        return total


@dataclass(frozen=True)
class Release(Event):
    """A mechanism with these pairs."""

    both: tuple[Outcomes, ...]

    def pairs(self, adjacency):
        return self.both

    def renyi(self, orders, adjacency):
        return np.full(len(orders), np.inf)


FINITE = Outcomes((0.5, 0.3, 0.2), (0.35, 0.4, 0.25))
INFINITE = Outcomes((0.5, 0.3, 0.19, 0.01, 0.0), (0.4, 0.35, 0.2, 0.0, 0.05))


@BOTH
@pytest.mark.parametrize("pair", [FINITE, INFINITE])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_bounds_hold_against_the_sum_over_all_sequences(kind, pair: Outcomes, steps: int) -> None:
    account = kind(Release((pair,)) * steps)
    for epsilon in (0.0, 0.1, 0.5, 1.2):
        assert account.delta(epsilon) >= pair.exact_delta(steps, epsilon) * (1 - 1e-12)
    for delta in (0.07, 0.2):
        low, high = account.epsilon_interval(delta)
        assert low <= high
        assert pair.exact_delta(steps, high) <= delta * (1 + 1e-12)
        if low > 0:
            assert pair.exact_delta(steps, low) >= delta * (1 - 1e-12)


@BOTH
def test_the_mass_of_infinite_losses_composes_and_is_never_discounted(kind) -> None:
    account = kind(Release((INFINITE,)) * 6)
    infinite = 1 - 0.99**6
    assert account.epsilon(infinite * 0.999) == math.inf
    assert account.epsilon(infinite * 1.01) < math.inf
    assert account.delta(50.0) == pytest.approx(infinite, rel=2e-3)


@BOTH
def test_the_worse_direction_counts(kind) -> None:
    there, back = Outcomes((0.9, 0.1), (0.99, 0.01)), Outcomes((0.99, 0.01), (0.9, 0.1))
    for both in ((there, back), (back, there)):
        account = kind(Release(both) * 3)
        for epsilon in (0.01, 0.5, 2.0):
            worst = max(pair.exact_delta(3, epsilon) for pair in both)
            assert account.delta(epsilon) >= worst * (1 - 1e-12)
        assert account.epsilon(0.02) >= kind(Release((there,)) * 3).epsilon_interval(0.02)[0] > 1.0


@BOTH
@pytest.mark.parametrize(("z", "delta"), [(0.3, 1e-5), (1.0, 1e-8), (5.0, 1e-3)])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_the_exact_gaussian_is_inside(kind, z: float, delta: float, adjacency) -> None:
    low, high = kind(Gaussian(z), adjacency).epsilon_interval(delta)
    exact = gaussian_epsilon((2 if adjacency == "replace" else 1) / z, delta)
    assert low <= exact <= high
    assert high - low <= 0.011 * high + 0.021


@pytest.mark.slow
@BOTH
@settings(max_examples=by_profile(12), deadline=None)
@given(
    st.floats(0.4, 8),
    st.floats(1e-4, 0.5),
    st.integers(1, 3000),
    st.floats(-11, -2),
    st.sampled_from(["add_remove", "replace"]),
)
def test_intervals_overlap_those_of_connecting_the_dots(kind, z, q, steps, log_delta, adjacency) -> None:
    event, delta = Gaussian(z).poisson(q) * steps, 10**log_delta
    account = kind(event, adjacency)
    if kind is PrvAccountant and delta < 3e-13 * steps:  # about the round-off of its transform
        assume(_certifies(account, delta))
    low, high = PldAccountant(event, adjacency).epsilon_interval(delta)
    own_low, own_high = account.epsilon_interval(delta)
    assert 0 <= own_low <= own_high
    assert own_low <= high
    assert low <= own_high


def _certifies(account: PrvAccountant, delta: float) -> bool:
    try:
        account.epsilon(delta)
    except InputError:
        return False
    return True


@BOTH
def test_different_events_compose(kind) -> None:
    event = Gaussian(2.0).poisson(0.1) * 40 + Gaussian(3.0) * 2 + Gaussian(1.5).poisson(0.01) * 100
    low, high = PldAccountant(event).epsilon_interval(1e-6)
    own_low, own_high = kind(event).epsilon_interval(1e-6)
    assert own_low <= low <= high <= own_high <= high * 1.012


@BOTH
def test_nothing_released_costs_nothing(kind) -> None:
    account = kind(Composition(()))
    assert account.epsilon_interval(1e-5) == (0.0, 0.0)
    assert account.delta(0.0) == 0.0


@BOTH
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
def test_a_delta_outside_its_range_is_refused_in_one_line(kind, delta: float) -> None:
    for ask in (kind(Gaussian(1.0)).epsilon, kind(Gaussian(1.0)).epsilon_interval):
        with pytest.raises(InputError, match="delta must be") as refused:
            ask(delta)
        assert "\n" not in str(refused.value)


@BOTH
def test_an_event_without_a_pair_is_refused_by_name(kind) -> None:
    with pytest.raises(Unknown, match="NonPrivate"):
        kind(NonPrivate())
