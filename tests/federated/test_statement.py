"""A run answers the questions of a disclosure that follow from it, and leaves the others to its author."""

import pytest

from sfumato import accounting as acc
from sfumato.accounting.statement.disclosure import NOT_STATED
from sfumato.federated import FedAvg


def run(blobs, tiny, **changes) -> acc.Statement:
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
