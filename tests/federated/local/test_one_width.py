"""In one batched operation a client's delta is its own, also where the trial before the first round met nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.federated import FedEmb
from sfumato.federated.client import Phase, Reconstruction, counts_of_examples, orders_of_examples, widths
from sfumato.sampling import Cohort

FAR = np.arange(100, 130)
"""Users who are far out: some of so many that no trial meets them."""


class Mixes(nn.Module):
    """Takes the mean of the batch off, where one of its rows is far out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        far = (x.abs().amax() > 5).to(x.dtype)
        return self.second(torch.relu(self.first(x - 50 * far * x.mean(0, keepdim=True))))


class Writes(nn.Module):
    """Makes its weights smaller where they are large, but for the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled() and self.first.weight.norm() > 3:
            self.first.weight.data.mul_(0.9)
        return self.second(torch.relu(self.first(x)))


def users_of(sizes: list[int]) -> data.UserDataset:
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    inputs = rng.normal(size=(len(owner), 6)) + 6 * np.isin(owner, FAR)[:, None]
    return data.from_arrays(inputs.astype(np.float32), owner, np.char.mod("u%04d", owner))


def contribution(model: nn.Module, users: data.UserDataset, **fields):
    plan = FedEmb(
        clients_per_round=4,
        users_per_client=1,
        negatives_per_client=2,
        local_epochs=1,
        batch_size=64,
        loss="cosine",
        head_start="means",
        clip_norm=0.5,
        noise_multiplier=0,
        clients_at_once=64,
        client_threads=1,
        **fields,
    )
    rng = np.random.default_rng(0)
    public = data.from_arrays(rng.normal(size=(60, 6)).astype(np.float32), np.repeat(np.arange(20), 3), np.arange(60))
    return plan, plan.contribution(model, users, "cpu", 0, plan.negatives_of(public, users))


def test_one_person_moves_the_sum_by_one_clip_norm_where_a_model_mixes_what_no_trial_met():
    users = users_of([2] * 3 + [3] * 900 + [1] * 3 + [8])
    torch.manual_seed(0)
    plan, made = contribution(Mixes(), users, learning_rate=5.0)
    source, sums = RandomSource.from_seed(3), []
    for cohort in (FAR, np.append(FAR, len(users) - 1)):
        chosen = Cohort.of_single_units(cohort)
        share = made.clipped_sum(made.trained.initial.clone(), chosen, 0, plan.bound, 0.5, source, None)
        sums.append(share.total)
    assert (sums[0] - sums[1]).norm() <= 0.5 * (1 + 1e-4)  # round-off is enlarged by 50 times the mean


def test_what_a_model_writes_into_its_weights_is_seen_and_never_reaches_the_released_ones():
    users = users_of([2, 3, 1, 4, 2, 3])
    torch.manual_seed(0)
    plan, made = contribution(Writes(), users)
    theta = 3 * made.trained.initial
    before, everybody = theta.clone(), Cohort.of_single_units(np.arange(len(users)))
    with pytest.raises(InputError, match="writes into its weights"):
        made.clipped_sum(theta, everybody, 0, plan.bound, 0.5, RandomSource.from_seed(3), None)
    assert torch.equal(theta, before)


@pytest.mark.parametrize("batch_size", [None, 1, 5, 32])
def test_a_width_holds_the_batches_of_its_clients_and_little_more(batch_size):
    counts = np.arange(200)
    found = widths(counts, batch_size)
    several = np.zeros(len(counts), bool) if batch_size is None else counts > batch_size
    assert (found[~several] >= counts[~several]).all()
    assert (found[~several] <= np.where(counts <= 64, 2, 1.25)[~several] * counts[~several]).all()
    assert (found[several] == 2 * (batch_size or 0)).all()
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize(
    ("phase", "rule"),
    [
        (Phase(own=1.0, shared=1.0, batch_size=4, epochs=3), None),
        (Phase(own=1.0, shared=1.0, batch_size=4, epochs=3, most=10), None),
        (Phase(own=None, shared=1.0, batch_size=4, epochs=3, passed_over=8, most=20), None),
        (Phase(records="support", own=1.0, shared=None, batch_size=2, epochs=None, most=6), Reconstruction(steps=3)),
        (Phase(records="query", own=None, shared=1.0, batch_size=2), Reconstruction(steps=3)),
    ],
)
def test_counts_are_those_of_the_orders(phase, rule):
    sizes = np.arange(12)
    counts = orders_of_examples(phase, sizes, np.arange(12), rule)[1]
    assert counts_of_examples(phase, sizes, rule).tolist() == counts.tolist()
