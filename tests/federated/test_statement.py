"""A run answers the questions of a disclosure that follow from it, and leaves the others to its author."""

import numpy as np
import pytest
from scipy import stats

from sfumato import accounting as acc
from sfumato.federated import FedAvg
from sfumato.statement import Statement
from sfumato.statement.statement import NOT_STATED


def run(blobs, tiny, **changes) -> Statement:
    fields = {"rounds": 1, "clients_per_round": 2, "noise_multiplier": 1.0, "delta": 1e-2, "seed": 1}
    return FedAvg(**{**fields, **changes}).fit(tiny(), blobs(8)).statement


@pytest.mark.parametrize(("seed", "answer"), [(1, "No: seeded"), (None, "Yes: AES-256")])
def test_it_tells_whether_the_noise_is_cryptographic(blobs, tiny, seed, answer) -> None:
    assert run(blobs, tiny, seed=seed).disclosure["cryptographic_noise"].startswith(answer)


def test_what_only_the_author_knows_is_left_open(blobs, tiny) -> None:
    answers = run(blobs, tiny).disclosure
    for name in ("preprocessing", "public_data", "budget_choice"):
        assert answers[name] == NOT_STATED
    for name in ("hyperparameter_tuning", "other_releases", "several_units", "evaluation"):
        assert NOT_STATED in answers[name] != NOT_STATED
    for name in ("trust_model", "released", "contribution", "sampling_as_run", "floating_point", "verification"):
        assert NOT_STATED not in answers[name]


def test_a_run_without_noise_claims_nothing(blobs, tiny) -> None:
    answers = run(blobs, tiny, noise_multiplier=0.0).disclosure
    assert "nothing is covered" in answers["released"]
    assert answers["cryptographic_noise"] == NOT_STATED


def test_no_lower_bound_is_claimed_for_users_who_may_be_alone_in_a_virtual_client(blobs, tiny) -> None:
    """A round cannot cost what its event costs: in a group that is empty without them, a user moves the sum by C only.

    Written out for one round, however the records are chosen, the number of empty groups revealed (which costs more).
    """
    clients, size, users, z, delta = 32, 2, 3400, 1.2, 1e-6
    rate = clients * size / users
    below, _ = acc.guarantee(acc.Gaussian(z / 2).poisson(rate)).epsilon_interval(delta)
    x = np.linspace(-12.0, 20.0, 40_001)
    absent, alone, joined = (stats.norm.pdf(x, shift, z) for shift in (0, 1, 2))
    truth = 0.0
    for empty in range(clients + 1):
        share = empty / clients
        present = (1 - rate) * absent + rate * (share * alone + (1 - share) * joined)
        excess = [np.maximum(p - np.exp(below) * q, 0).sum() for p, q in ((present, absent), (absent, present))]
        truth += stats.binom.pmf(empty, clients, (1 - rate / clients) ** (users - 1)) * max(excess) * (x[1] - x[0])
    assert truth < 0.9 * delta  # so "no accounting can show an epsilon below" it would be false
    assert run(blobs, tiny, users_per_client=2).epsilon_lower is None
    assert run(blobs, tiny).epsilon_lower > 0
