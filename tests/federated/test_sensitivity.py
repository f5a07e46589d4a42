"""One user's data moves the sum by at most the sensitivity in the ledger and the statement: the heart of the matter."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import FedAvg, FedEmb, FedSGD
from slow import by_profile


class Scores(nn.Module):
    """Embeddings that are the inputs, scaled: one client's delta can be as large as its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def users_of(seed: int, scale: float, count: int = 7) -> data.UserDataset:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, count)
    owners = np.repeat(np.arange(count), sizes)
    inputs = rng.normal(0, 1, (len(owners), 3)).astype(np.float32)
    inputs[owners == count - 1] *= scale  # the last user's records can be as wild as they like
    labels = rng.integers(0, 4, len(owners))
    labels[:4] = np.arange(4)
    return data.from_arrays(inputs, labels, np.array([f"u{o}" for o in owners]))


def moved(plan, users, seed: int) -> tuple[float, float]:
    """By how much the sum moves without the last user, and the sensitivity that the plan accounts."""
    torch.manual_seed(0)
    model = Scores()
    source = RandomSource.from_seed(seed)
    private_sum = plan.private_sum(len(users))
    sums = []
    present = np.arange(len(users))
    whole = plan.contribution(model, users, "cpu", 0)
    for cohort in (present, present[:-1]):
        groups = private_sum.grouping.group(cohort, 0, source)
        share = whole.clipped_sum(whole.trained.initial, groups, 0, plan.bound, plan.clip_norm, source, None)
        sums.append(share.total)
    return (sums[0] - sums[1]).norm().item(), private_sum.contributions_moved * private_sum.scale(plan.clip_norm)


LOCAL = {"learning_rate": 0.5, "momentum": 0.5, "local_epochs": 2, "batch_size": 2, "noise_multiplier": 1.0}
PLANS = {
    "virtual clients": lambda c, w: FedEmb(clients_per_round=2, users_per_client=3, clip_norm=c, **LOCAL),
    "a client each": lambda c, w: FedEmb(
        clients_per_round=2, users_per_client=1, clip_norm=c, head_classes="global", **LOCAL
    ),
    "shared head": lambda c, w: FedAvg(clients_per_round=2, clip_norm=c, clients_at_once=w, **LOCAL),
    "shared head, virtual clients": lambda c, w: FedAvg(
        clients_per_round=2, users_per_client=3, clip_norm=c, clients_at_once=w, **LOCAL
    ),
    "gradients": lambda c, w: FedSGD(clients_per_round=2, clip_norm=c, noise_multiplier=1.0),
}


@pytest.mark.parametrize("name", PLANS)
@settings(deadline=None, max_examples=by_profile(25))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    width=st.sampled_from([1, 3]),
)
def test_one_user_moves_the_sum_by_at_most_the_sensitivity(name, seed, scale, clip, width):
    distance, sensitivity = moved(PLANS[name](clip, width), users_of(seed, scale), seed)
    assert distance <= sensitivity * (1 + 1e-9) + 1e-12


def test_inside_a_virtual_client_one_user_can_move_more_than_one_clip_norm():
    """So the paper's C would not be a bound for a user: 2C is needed."""
    worst = 0.0
    for seed in range(60):
        distance, _ = moved(PLANS["virtual clients"](1e-3, 1), users_of(seed, 1e3), seed)
        worst = max(worst, distance / 1e-3)
    assert worst > 1.2


def test_an_absent_user_leaves_no_trace_in_the_sum():
    plan = PLANS["virtual clients"](1.0, 1)
    torch.manual_seed(0)
    model, source, present = Scores(), RandomSource.from_seed(1), np.arange(6)
    totals = []
    for scale in (1.0, 1e6):
        contribution = plan.contribution(model, users_of(0, scale), "cpu", 0)
        groups = plan.grouping.group(present, 0, source)
        theta = contribution.trained.initial
        totals.append(contribution.clipped_sum(theta, groups, 0, plan.bound, 1.0, source, None).total)
    assert torch.equal(*totals)


BOUNDED = {
    "per layer": {"clipping": "per_layer", "layer_shares": (3.0, 1.0)},
    "automatic": {"clipping": "automatic"},
    "adaptive": {"clipping": "adaptive"},
}
"""Fields of a plan with a shared head: two layers, the backbone's and the head's."""


@pytest.mark.parametrize("users_per_client", [1, 3])
@pytest.mark.parametrize("name", BOUNDED)
@settings(deadline=None, max_examples=by_profile(15))
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e20, float("inf"), float("nan")]),
    clip=st.sampled_from([1e-3, 1.0, 50.0]),
    width=st.sampled_from([1, 3]),
)
def test_every_kind_of_clipping_bounds_what_a_user_moves(name, users_per_client, seed, scale, clip, width):
    plan = FedAvg(
        clients_per_round=2,
        users_per_client=users_per_client,
        clip_norm=clip,
        clients_at_once=width,
        **{**LOCAL, "noise_multiplier": 0.1},
        **BOUNDED[name],
    )
    distance, sensitivity = moved(plan, users_of(seed, scale), seed)
    assert sensitivity == pytest.approx(clip * (1 if users_per_client == 1 else 2))
    assert distance <= sensitivity * (1 + 1e-9) + 1e-12


def alone(plan, scale: float = 1e3) -> list[torch.Tensor]:
    """What one wild client adds to the sum, layer by layer."""
    torch.manual_seed(0)
    contribution, source = plan.contribution(Scores(), users_of(1, scale), "cpu", 0), RandomSource.from_seed(0)
    cohort = plan.grouping.group(np.array([6]), 0, source)
    theta = contribution.trained.initial
    share = contribution.clipped_sum(theta, cohort, 0, plan.bound, plan.bound.start, source, None)
    assert share.tally["units"] == 1
    return contribution.trained.views(share.total)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("shares", [None, (3.0, 1.0), (1.0, 20.0)])
def test_one_wild_client_adds_at_most_the_bound_of_each_layer_to_that_layer(width, shares):
    plan = FedAvg(
        clients_per_round=2, clip_norm=0.1, clients_at_once=width, clipping="per_layer", layer_shares=shares, **LOCAL
    )
    bounds = plan.bound.bounds(2, 0.1)
    norms = [view.norm().item() for view in alone(plan)]
    assert all(norm <= bound for norm, bound in zip(norms, bounds, strict=True))
    assert norms == pytest.approx(bounds, rel=1e-3)  # the client is wild in both: no noise is wasted


def test_a_backbone_alone_has_all_of_the_bound_where_the_head_stays_with_its_client():
    plan = FedEmb(
        clients_per_round=2, users_per_client=1, head_classes="global", clip_norm=0.1, clipping="per_layer", **LOCAL
    )
    (norm,) = (view.norm().item() for view in alone(plan))
    assert norm == pytest.approx(0.1, rel=1e-3)
    with pytest.raises(InputError, match="layer_shares has 2 numbers but the model trains 1 layers"):
        alone(replace(plan, layer_shares=(1.0, 1.0)))


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_automatic_clipping_brings_clients_to_one_length(scale):
    plan = FedAvg(clients_per_round=2, clip_norm=0.1, clipping="automatic", **LOCAL)
    total = torch.cat([view.reshape(-1) for view in alone(plan, scale)])
    assert 0.09 < total.norm().item() < 0.1


@pytest.mark.parametrize(
    ("clipping", "told", "disclosed"),
    [
        ("flat", "clipped to norm 0.5", "clipped to a fixed public norm"),
        ("per_layer", "clipped layer by layer to norm 0.5 in all", "clipped to a fixed public norm in each layer"),
        ("automatic", "normalised to norm 0.5", "normalised to a fixed public norm"),
        ("adaptive", "clipped to an adaptive norm", "clipped to a public norm that follows a noisy count"),
    ],
)
def test_the_statement_tells_the_bound_that_ran(blobs, tiny, clipping, told, disclosed):
    plan = FedAvg(rounds=2, clients_per_round=3, clip_norm=0.5, noise_multiplier=1.0, clipping=clipping, seed=1)
    statement = plan.fit(tiny(), blobs(8)).statement
    assert f"of contributions {told}, noise multiplier 1" in statement.mechanism
    assert (", with a noisy count for the norm" in statement.mechanism) == (clipping == "adaptive")
    assert statement.disclosure["contribution"].startswith(f"Each contribution is {disclosed} in every round")
    flat = replace(plan, clipping="flat").fit(tiny(), blobs(8)).statement
    assert statement.epsilon == pytest.approx(flat.epsilon, rel=1e-6)


def test_shares_that_do_not_fit_the_model_leave_no_folder(blobs, tiny, tmp_path):
    plan = FedAvg(rounds=2, clients_per_round=3, noise_multiplier=1.0, clipping="per_layer", layer_shares=(1.0, 2.0))
    with pytest.raises(InputError, match="layer_shares has 2 numbers but the model trains 3 layers"):
        plan.fit(tiny(), blobs(8), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
