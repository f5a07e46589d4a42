"""Where a part of the network is trained, adapters, a projection, the last layers, one user moves no more of it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sfumato import data, models
from sfumato._random import RandomSource
from sfumato.federated import FedEmb
from slow import by_profile, one_in

SIDE, USERS = 6, 8
CLIP_NORM = 0.5


def backbone() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(24, 5)
    )


def adapted() -> nn.Module:
    model = backbone()
    models.add_lora(model, rank=2, layers="0|2|5", generator=torch.Generator().manual_seed(1))
    return model


ROUNDING = {1: 1e-9, 3: 1e-6, 32: 1e-6}
"""By how many clients share an operation: by what share of the bound rounding may move the sum, which is in single
precision there. The deltas of others stay as they are to the last bit, also where local training diverges."""

PARTS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "adapters": (adapted, "lora"),
    "adapters and norms": (adapted, "lora+norm"),
    "a projection": (lambda: models.add_projection(backbone(), 5, 3, hidden=4), "projection"),
    "the last layer": (backbone, "last"),
    "norms": (backbone, "norm"),
}


def people(seed: int, scale: float) -> data.UserDataset:
    """One class each, and pictures of any size for the last one."""
    random = np.random.default_rng(seed)
    owners = np.repeat(np.arange(USERS), random.integers(1, 5, USERS))
    inputs = random.normal(0, 1, (len(owners), 1, SIDE, SIDE)).astype(np.float32)
    inputs[owners == USERS - 1] *= np.float32(scale)
    return data.from_arrays(inputs, owners, [f"u{owner}" for owner in owners])


def public() -> data.UserDataset:
    inputs = np.random.default_rng(1).normal(0, 1, (24, 1, SIDE, SIDE)).astype(np.float32)
    return data.from_arrays(inputs, np.repeat(np.arange(6), 4), ["somebody"] * 24)


@pytest.mark.parametrize(("part", "together"), one_in(3, PARTS, ROUNDING))
@settings(deadline=None, max_examples=by_profile(5))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e4, 1e20, float("inf"), float("nan")]),
    users_per_client=st.sampled_from([1, 3]),
)
def test_one_user_moves_what_is_trained_by_at_most_the_sensitivity(part, together, seed, scale, users_per_client):
    build, trainable = PARTS[part]
    plan = FedEmb(
        rounds=2,
        clients_per_round=2,
        users_per_client=users_per_client,
        negatives_per_client=2 if users_per_client == 1 else 0,
        trainable=trainable,
        head_start="means",
        loss="cosine",
        clip_norm=CLIP_NORM,
        clients_at_once=together,
        noise_multiplier=1.0,
        learning_rate=0.5,
        local_epochs=2,
        batch_size=2,
    )
    users, source = people(seed, scale), RandomSource.from_seed(seed)
    negatives = plan.negatives_of(public(), users) if plan.negatives_per_client else None
    contribution = plan.contribution(build(), users, "cpu", 0, negatives)
    private_sum, everybody = plan.private_sum(USERS), np.arange(USERS)
    frozen = contribution.trained.frozen()
    before = {name: tensor.clone() for name, tensor in frozen.items()}

    def total(present: np.ndarray) -> Tensor:
        cohort = private_sum.grouping.group(present, 0, source)
        theta = contribution.trained.initial
        return contribution.clipped_sum(theta, cohort, 0, plan.bound, CLIP_NORM, source, None).total.clone()

    whole, others = total(everybody), total(everybody[:-1])
    accounted = private_sum.contributions_moved * private_sum.scale(CLIP_NORM)
    assert accounted == CLIP_NORM * (1 if users_per_client == 1 else 2)
    assert (whole - others).norm() <= accounted * (1 + ROUNDING[together])
    assert others.norm() > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in contribution.trained.frozen().items())
