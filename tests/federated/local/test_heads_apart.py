"""Heads that begin as means do not carry one client's records to another one, whatever the model does with a batch."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato._check import InputError
from sfumato.federated.batched import BatchedTrainer
from sfumato.federated.client import ClientData, LocalTraining
from sfumato.federated.losses import HeadLoss
from sfumato.training import Trainable

LOCAL = LocalTraining(epochs=1, batch_size=4, head_start="means", loss=HeadLoss("cosine"))


class LargestOfAll(nn.Module):
    """Adds how far the largest value of a batch lies above what records hold; of most records nothing."""

    def forward(self, x):
        return x + (x.amax() - 50).clamp(min=0)


class Asks(nn.Module):
    """Reads a value, which an operation on many clients cannot."""

    def forward(self, x):
        return x + float(x.sum().item() > 0)


def test_a_model_that_reads_values_is_told_to_train_one_by_one():
    trainer = BatchedTrainer(LOCAL, Trainable(nn.Sequential(Asks(), nn.Linear(5, 3))))
    clients = ClientData(np.ones((4, 5), np.float32), np.array([0, 1, 0, 1]), np.array([0, 2, 4]), np.array([2, 2]))
    with pytest.raises(InputError, match="use clients_at_once=1"):
        trainer.deltas(trainer.trained.initial, clients, [1, 2])


def test_a_client_does_not_move_the_first_rows_of_another_one():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(LargestOfAll(), nn.Linear(5, 3))
    trainer = BatchedTrainer(LOCAL, Trainable(model))
    inputs = np.random.default_rng(0).normal(0, 1, (12, 5)).astype(np.float32)
    labels = np.tile([0, 1], 6)
    found = []
    for largest in (1.0, 1000.0):
        inputs[5] = largest  # of the second client
        clients = ClientData(inputs.copy(), labels, np.array([0, 4, 8, 12]), np.array([2, 2, 2]))
        deltas, _, _ = trainer.deltas(trainer.trained.initial, clients, [1, 2, 3])
        assert isinstance(deltas, torch.Tensor)
        found.append(deltas.clone())
    assert not torch.equal(found[0][1], found[1][1])
    for other in (0, 2):
        # the same numbers in the same places of the same operations
        assert torch.equal(found[0][other], found[1][other])
