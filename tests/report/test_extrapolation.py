import pytest

from sfumato.accounting import Gaussian, InputError, guarantee
from sfumato.report import extrapolate

BASE = {"noise_multiplier": 0.62, "rounds": 200, "clients_per_round": 32, "users_per_client": 8}


def test_rows_are_the_guarantees_of_the_scaled_runs() -> None:
    (row,) = extrapolate(**BASE, populations=[1_000_000], multipliers=[3], methods=["rdp"])
    assert (row.users_per_round, row.sampling_rate, row.noise_multiplier) == (768, 768e-6, pytest.approx(1.86))
    assert row.delta == pytest.approx(1_000_000**-1.1)
    client = guarantee(Gaussian(1.86).poisson(768e-6) * 200, method="rdp")
    user = guarantee(Gaussian(0.93).poisson(768e-6) * 200, method="rdp")
    assert row.epsilon["rdp"] == pytest.approx(client.epsilon(row.delta), rel=1e-9)
    assert row.epsilon_user["rdp"] == pytest.approx(user.epsilon(row.delta), rel=1e-9)


def test_a_client_of_one_user_is_that_user() -> None:
    (row,) = extrapolate(**{**BASE, "users_per_client": 1}, populations=[10_000], multipliers=[1], methods=["rdp"])
    assert row.epsilon == row.epsilon_user


def test_more_people_and_more_computation_never_cost_more() -> None:
    rows = extrapolate(**BASE, populations=[100_000, 1_000_000], multipliers=[1, 2, 4], methods=["rdp"])
    epsilons = [row.epsilon["rdp"] for row in rows]
    assert epsilons[0] > epsilons[1] > epsilons[2]
    assert all(small > large for small, large in zip(epsilons[:3], epsilons[3:], strict=True))


def test_a_cohort_larger_than_the_population_is_refused() -> None:
    with pytest.raises(InputError, match="needs 512 users, the population is 300"):
        extrapolate(**BASE, populations=[300], multipliers=[2])


@pytest.mark.parametrize(
    "wrong", [{"populations": 1000}, {"methods": "rdp"}, {"multipliers": None}, {"clients_per_round": 10**308}]
)
def test_an_extrapolation_refuses_what_is_no_list_or_out_of_range(wrong):
    right = {
        "noise_multiplier": 0.6,
        "rounds": 5,
        "clients_per_round": 4,
        "users_per_client": 2,
        "populations": [1000],
        "multipliers": [1.0],
    }
    with pytest.raises(InputError):
        extrapolate(**{**right, **wrong})
