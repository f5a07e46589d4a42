import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import Gaussian, NonPrivate
from sfumato.accounting.accountants import ZcdpAccountant, rho_to_epsilon


@given(st.floats(1e-6, 1e3), st.floats(1e-15, 0.5))
def test_no_order_of_a_dense_grid_gives_a_smaller_epsilon(rho: float, delta: float) -> None:
    orders = 1 + np.geomspace(1e-9, 1e9, 200_001)
    dense = rho * orders + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    assert rho_to_epsilon(rho, delta) <= max(0.0, dense.min()) + 1e-9


@given(st.floats(1e-4, 1e3), st.floats(1e-12, 1e-2))
def test_delta_inverts_epsilon(rho: float, delta: float) -> None:
    account = ZcdpAccountant(Gaussian(math.sqrt(0.5 / rho)))
    epsilon = account.epsilon(delta)
    if epsilon > 0:
        assert account.delta(epsilon) == pytest.approx(delta, rel=1e-6)


def test_rho_adds_up_and_sampling_earns_nothing() -> None:
    assert ZcdpAccountant(Gaussian(2.0) * 8).rho() == 1.0
    assert ZcdpAccountant(Gaussian(2.0).poisson(0.1) * 8).rho() == 1.0
    assert ZcdpAccountant(Gaussian(2.0) * 8, "replace").rho() == 4.0
    assert ZcdpAccountant(Gaussian(2.0).without_replacement(1, 10) * 8).rho() == 4.0
    assert ZcdpAccountant(NonPrivate()).rho() == math.inf
